//! `brindle hsm restore`: files come back before somebody opens them; with `-r` whole trees, so many at a time.
//!
//! The scan of the tree and the restores go hand in hand. At most [`Args::pending`] restores are requested and not done, so that
//! restores of other users do not wait behind ours in the queue.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use brindle_admin::{document, paths};
use brindle_client::control::{Answer, Request, ScanAsk, ScanPage};
use brindle_types::hsm::HSM_RELEASED;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, FileType, Ino, Result};
use brindle_wire::mds::hsm::{HsmAsk, HsmStateResp};
use brindle_wire::mds::scan::{Term, Test, Wanted};
use schemars::JsonSchema;
use serde::Serialize;

use super::files;
use crate::control::{Control, path_fault, unexpected};
use crate::exit::{Done, warn};
use crate::output::{Output, print_json};

/// Pause between two looks at what is pending.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Restores that are asked for and not done, unless told otherwise.
const PENDING_DEFAULT: u16 = 256;
/// A released file counts for this space: what counts for more is here.
const RELEASED_BYTES: u64 = 512;
/// Pages of the scan that wait for room among the pending ones.
const PAGES_MAX: usize = 2;
/// Files that are named in the result because they did not come back.
const FAILED_MAX: usize = 1000;

/// Arguments of `brindle hsm restore`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  brindle hsm restore /mnt/b/f              (in the background)\n  \
                        brindle hsm restore -r /mnt/b/project      (a tree, before a job needs it; ends when all is here)\n\
                        After an interruption the same command goes on; what was asked for comes back all the same.")]
pub struct Args {
    /// Everything below directories, and wait until it is here
    #[arg(long, short = 'r')]
    recursive: bool,
    /// Most files that are asked for and not here yet
    #[arg(long, value_name = "N", default_value_t = PENDING_DEFAULT, requires = "recursive", value_parser = clap::value_parser!(u16).range(1..))]
    pending: u16,
    /// End when everything is asked for, however much that is
    #[arg(long, requires = "recursive")]
    no_wait: bool,
    #[command(flatten)]
    output: Output,
    /// Files; with -r directories too
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Result of a restore.
#[derive(Default, Serialize, JsonSchema)]
pub struct RestoredView {
    /// Released files that were found.
    released: u64,
    /// Bytes that they have.
    bytes: u64,
    /// Files that came back.
    restored: u64,
    /// Bytes that came back.
    restored_bytes: u64,
    /// Files that did not come back.
    failed: u64,
    /// The first 1000 of them.
    failures: Vec<FailureView>,
    /// Directories that this user may not look into.
    refused_directories: u64,
}
document!(RestoredView, "brindle.hsm.restore", 1);

/// A file that did not come back.
#[derive(Serialize, JsonSchema)]
struct FailureView {
    /// Path of the file.
    path: String,
    /// Known reason.
    message: String,
}

/// Runs `brindle hsm restore`.
pub fn run(args: &Args) -> Result<Done> {
    if !args.recursive {
        return files::each(&args.paths, |path| {
            files::ask(path, |ino| Request::HsmAct { ino, ask: HsmAsk::Restore })
        });
    }
    let mut view = RestoredView::default();
    for path in &args.paths {
        tree(path, args, &mut view)?;
    }
    let is_whole = view.failed == 0 && view.refused_directories == 0;
    if args.output.json() {
        print_json(&view)?;
    } else {
        show(&view, args.no_wait);
    }
    Ok(if is_whole { Done::Ok } else { Done::Partly })
}

fn show(view: &RestoredView, no_wait: bool) {
    match no_wait {
        true => println!("{} released files, {}: asked for", view.released, format_bytes(view.bytes)),
        false => println!(
            "{} of {} released files came back, {}",
            view.restored,
            view.released,
            format_bytes(view.restored_bytes)
        ),
    }
    if view.failed > 0 {
        println!("{} files did not come back; 'brindle hsm status' tells why agents failed", view.failed);
    }
}

/// A restore that was asked for.
struct Pending {
    ino: Ino,
    path: PathBuf,
    size_bytes: u64,
    is_asked: bool,
}

/// Restores all files below a path.
fn tree(path: &Path, args: &Args, view: &mut RestoredView) -> Result<()> {
    let meta = std::fs::symlink_metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
    // Two of them, and two threads: the scan goes on while what it has found is asked for.
    let (scanning, asking) = (Control::of(path)?, Control::of(path)?);
    let ask = ScanAsk {
        start: meta.ino(),
        start_name: Vec::new(),
        predicate: vec![Term::Test(Test::Kind(vec![FileType::Regular]))],
        depth_min: 0,
        depth_max: u32::MAX,
        wanted: Wanted::Attrs,
    };
    let shows = !args.output.json() && std::io::stderr().is_terminal();
    let mut work = Work { control: asking, args, view, pending: VecDeque::new(), shows, shown: None };
    let (tell, told) = mpsc::sync_channel(PAGES_MAX);
    std::thread::scope(|scope| {
        let scan = scope.spawn(move || {
            // After a failure nobody listens any more, and the failure is told instead.
            let ended = || Fault::new(Code::Interrupted);
            scanning.scan(ask, &mut |page| tell.send(page).map_err(|_| ended()))
        });
        let worked = told.iter().try_for_each(|page| work.page(path, page));
        drop(told);
        let lost = |_| Err(Fault::new(Code::Bug).why("the thread of a scan ended without a result"));
        worked.and(scan.join().unwrap_or_else(lost))
    })?;
    while !work.pending.is_empty() {
        work.look()?;
        if !work.pending.is_empty() {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    work.clear();
    Ok(())
}

struct Work<'a> {
    control: Control,
    args: &'a Args,
    view: &'a mut RestoredView,
    pending: VecDeque<Pending>,
    shows: bool,
    shown: Option<Instant>,
}

impl Work<'_> {
    fn page(&mut self, start: &Path, page: ScanPage) -> Result<()> {
        for refused in page.refused {
            self.view.refused_directories += 1;
            let dir = joined(start, refused.path.into_bytes());
            self.clear();
            warn(&Fault::new(refused.code).what("cannot look into").subject(paths::text(&dir)));
        }
        for found in page.found {
            let Some(attr) = found.attr.filter(|attr| attr.size_bytes > 0) else { continue };
            // A file with any other allocation is here: no need to ask for its state.
            if attr.allocated_bytes != RELEASED_BYTES {
                continue;
            }
            let path = joined(start, found.path.into_bytes());
            if self.state(attr.ino)?.is_none_or(|state| state.flags & HSM_RELEASED == 0) {
                continue;
            }
            self.view.released += 1;
            self.view.bytes += attr.size_bytes;
            let pending = Pending { ino: attr.ino, path, size_bytes: attr.size_bytes, is_asked: false };
            self.pending.push_back(pending);
            while self.pending.len() >= usize::from(self.args.pending) {
                self.look()?;
                if self.pending.len() >= usize::from(self.args.pending) {
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        self.look()
    }

    /// The state of a file; `None` if it has gone.
    fn state(&self, ino: Ino) -> Result<Option<HsmStateResp>> {
        match self.control.ask(&Request::HsmState { ino: ino.0 }) {
            Ok(Answer::HsmState(state)) => Ok(Some(state)),
            Ok(other) => Err(unexpected(&other)),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Asks for what was not asked for, and looks what has ended.
    fn look(&mut self) -> Result<()> {
        for _ in 0..self.pending.len() {
            let Some(mut pending) = self.pending.pop_front() else { break };
            if !pending.is_asked {
                match self.ask(&pending) {
                    Ok(is_asked) => pending.is_asked = is_asked,
                    Err(fault) => {
                        self.failed(&pending.path, &fault);
                        continue;
                    }
                }
                if !pending.is_asked || !self.args.no_wait {
                    self.pending.push_back(pending);
                }
                continue;
            }
            match self.state(pending.ino)? {
                Some(state) if state.under_way.is_some() => self.pending.push_back(pending),
                Some(state) if state.flags & HSM_RELEASED != 0 => {
                    let why = "its restore has failed, or was given up";
                    self.failed(
                        &pending.path,
                        &Fault::new(Code::NotRecalled)
                            .subject(paths::text(&pending.path))
                            .why(why)
                            .next("brindle hsm status tells why"),
                    );
                }
                // The file is here, or it was removed and needs no restore.
                _ => {
                    self.view.restored += 1;
                    self.view.restored_bytes += pending.size_bytes;
                }
            }
        }
        self.tell();
        Ok(())
    }

    /// Asks for one; not now, where the queue is full.
    fn ask(&self, pending: &Pending) -> Result<bool> {
        match self.control.ask(&Request::HsmAct { ino: pending.ino.0, ask: HsmAsk::Restore }) {
            Ok(Answer::Done) => Ok(true),
            Ok(other) => Err(unexpected(&other)),
            Err(fault) if fault.code == Code::Overloaded => Ok(false),
            Err(fault) => Err(fault.subject(paths::text(&pending.path))),
        }
    }

    fn failed(&mut self, path: &Path, fault: &Fault) {
        self.view.failed += 1;
        if self.view.failures.len() < FAILED_MAX {
            let failure = FailureView { path: paths::text(path), message: fault.to_string() };
            self.view.failures.push(failure);
        }
        self.clear();
        warn(fault);
    }

    fn tell(&mut self) {
        if !self.shows || self.shown.is_some_and(|shown| shown.elapsed() < LOOK_EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        eprint!("\r\x1b[K{}", progress(self.view, self.pending.len()));
        // A line that cannot be shown is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

fn progress(view: &RestoredView, pending: usize) -> String {
    format!(
        "{} of {} files, {} of {}; {pending} under way",
        view.restored,
        view.released,
        format_bytes(view.restored_bytes),
        format_bytes(view.bytes)
    )
}

fn joined(start: &Path, below: Vec<u8>) -> PathBuf {
    match below.is_empty() {
        true => start.to_owned(),
        false => start.join(std::ffi::OsString::from_vec(below)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn how_far_it_is_is_said_in_files_and_bytes() {
        let view = RestoredView {
            released: 10,
            restored: 4,
            bytes: 1 << 30,
            restored_bytes: 1 << 29,
            ..RestoredView::default()
        };
        assert_eq!(progress(&view, 6), "4 of 10 files, 512.0 MiB of 1.0 GiB; 6 under way");
        assert_eq!(joined(Path::new("/mnt/f"), Vec::new()).as_os_str().as_bytes(), b"/mnt/f");
        assert_eq!(joined(Path::new("/mnt"), b"a/\xff".to_vec()).as_os_str().as_bytes(), b"/mnt/a/\xff");
    }
}
