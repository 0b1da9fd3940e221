//! The copy shares its work with other hosts: files in batches, large ones in parts.
//!
//! This process looks at everything, makes directories and links, and gives each file its name. Other hosts write contents under names of
//! their own. A try whose host does not answer is made again under other names: what a late host still writes, nobody takes.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{StageFile, StageRange, StageTop, StageUnit, StagedFile};
use serde::{Deserialize, Serialize};

use super::large::{LARGE_BYTES, Large};
use super::partial::{PARTIAL, partial, remove_if_there};
use super::side::Route;
use super::{Copy, CopyOutcome, failed, sync_entry};

/// Most files of a batch.
const BATCH_FILES_MAX: usize = 64;
/// Bytes after which a batch is full.
const BATCH_BYTES: u64 = 16 << 20;
/// How often files are given to other hosts, before this one copies them by itself.
pub(super) const TRIES_MAX: usize = 3;
/// Less work than this is done by this host alone.
const SHARED_FROM_BYTES: u64 = 32 << 20;
const SHARED_FROM_FILES: u64 = 256;
/// Most directories on the other side that hosts are asked for.
const TOPS_MAX: usize = 256;
/// Most directories, links and entries that wait for the files before them.
const LATER_MAX: usize = 1 << 16;
/// Least time between two words about how far this host is.
const SAY_EVERY: Duration = Duration::from_millis(500);

/// Words of the copy to the process that has started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Said {
    /// All that is to be done.
    Plan {
        /// Files to look at.
        files: u64,
        /// Bytes that the destination does not have.
        bytes: u64,
        /// Directories outside of buffers; where it is empty, this host copies alone, and no answer is read.
        tops: Vec<StageTop>,
    },
    /// What this host has copied by itself.
    Own {
        /// Files.
        files: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Files for another host.
    Unit {
        /// Number of the unit.
        id: u64,
        /// The files.
        unit: StageUnit,
    },
    /// The end.
    End(Result<CopyOutcome>),
}

/// Answers to them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Heard {
    /// So many units may be under way: hosts help if there are any.
    Hosts {
        /// Number.
        streams: usize,
    },
    /// A unit was copied, or not.
    Unit {
        /// Number of the unit.
        id: u64,
        /// So many units may be under way from now on.
        streams: usize,
        /// Outcome for each file; `None` where the host has not answered.
        files: Option<Vec<StagedFile>>,
    },
}

/// How this process tells and hears.
struct Line {
    out: Box<dyn Write>,
    input: Box<dyn BufRead>,
}

/// A file that another host copies.
pub(super) struct Given {
    from: PathBuf,
    to: PathBuf,
    file: StageFile,
}

/// A unit that another host has.
pub(super) enum Sent {
    Batch { route: Box<Route>, files: Vec<Given>, ending: String, tries: usize },
    Part { large: u64 },
}

/// An action that waits until the files before it are there.
pub(super) enum Later {
    /// A further name of a file.
    Link { from: PathBuf, to: PathBuf },
    /// Attributes of a directory, which hold once everything is in it.
    Dir { from: PathBuf, to: PathBuf, is_top: bool, meta: Box<Metadata> },
    /// An entry that is to be durable.
    Entry { parent: PathBuf, to: PathBuf },
}

/// Who the work is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) stages_in: bool,
    pub(super) serial: u64,
}

/// The work that is shared.
#[derive(Default)]
pub struct Share {
    line: Option<Line>,
    order: Order,
    streams: usize,
    next_id: u64,
    pub(super) sent: BTreeMap<u64, Sent>,
    batch: Vec<Given>,
    batch_route: Option<Route>,
    /// Large files, by a number.
    pub(super) larges: BTreeMap<u64, Large>,
    later: Vec<Later>,
    route: Option<Route>,
    /// Inode number of the directory of the last copy.
    into: Option<(PathBuf, u64)>,
    own_files: u64,
    own_bytes: u64,
    said: Option<Instant>,
}

impl Share {
    /// No other host takes part, and nobody is told.
    pub fn alone() -> Share {
        Share::default()
    }

    /// Somebody is told, and may share.
    pub(super) fn told(out: Box<dyn Write>, input: Box<dyn BufRead>) -> Share {
        Share { line: Some(Line { out, input }), ..Share::default() }
    }

    fn tell(&mut self, said: &Said) -> Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let text = serde_json::to_string(said).expect("plain fields always serialise");
        writeln!(line.out, "{text}").and_then(|()| line.out.flush()).map_err(|e| gone(&e.to_string()))
    }

    fn hear(&mut self) -> Result<Heard> {
        let Some(line) = &mut self.line else { return Err(gone("nobody is there")) };
        let mut text = String::new();
        match line.input.read_line(&mut text) {
            Ok(0) => Err(gone("it has ended")),
            Ok(_) => serde_json::from_str(&text).map_err(|e| gone(&e.to_string())),
            Err(e) => Err(gone(&e.to_string())),
        }
    }

    /// Says what is to be done, and hears whether other hosts help.
    pub(super) fn plan(
        &mut self,
        order: Order,
        (files, bytes): (u64, u64),
        routes: &[Option<Route>],
    ) -> Result<()> {
        self.order = order;
        let mut tops: Vec<StageTop> = routes.iter().flatten().map(|route| route.outside.clone()).collect();
        tops.sort();
        tops.dedup();
        let is_worth_it = files >= SHARED_FROM_FILES || bytes >= SHARED_FROM_BYTES;
        if !is_worth_it || tops.len() > TOPS_MAX {
            tops.clear();
        }
        let asks = !tops.is_empty() && self.line.is_some();
        self.tell(&Said::Plan { files, bytes, tops })?;
        if asks && let Heard::Hosts { streams } = self.hear()? {
            self.streams = streams;
        }
        Ok(())
    }

    /// The end, told.
    pub(super) fn end(&mut self, outcome: Result<CopyOutcome>) -> Result<()> {
        self.tell(&Said::Own { files: self.own_files, bytes: self.own_bytes })?;
        self.tell(&Said::End(outcome))
    }

    /// Whether other hosts help.
    pub(super) fn is_shared(&self) -> bool {
        self.streams > 0
    }

    /// Units that may be under way.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// The sides of the copy that comes next.
    pub(super) fn follow(&mut self, route: Option<Route>) {
        self.route = route;
        self.into = None;
    }

    /// This host has copied bytes.
    pub(super) fn copied(&mut self, bytes: u64) {
        self.own_bytes += bytes;
        if self.line.is_none() || self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return;
        }
        self.said = Some(Instant::now());
        // Whoever does not listen any more has ended, and this process with it.
        let _ = self.tell(&Said::Own { files: self.own_files, bytes: self.own_bytes });
    }

    /// This host has done a file: copied it, linked it, or found it to be there.
    pub(super) fn done_file(&mut self) {
        self.own_files += 1;
    }

    /// A number that no other try has.
    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// End of the names of a try, which begins with what all tries for this job have.
    pub(super) fn new_ending(&mut self) -> String {
        let id = self.new_id();
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), id);
        format!("{}{random:016x}", self.mark())
    }

    fn mark(&self) -> String {
        format!(".s{}-", self.order.serial)
    }

    pub(super) fn send(
        &mut self,
        route: &Route,
        files: Vec<StageFile>,
        ending: &str,
        range: Option<StageRange>,
    ) -> Result<u64> {
        let id = self.new_id();
        let Order { uid, gid, stages_in, .. } = self.order;
        let (buffer, inside, outside) = (route.buffer, route.inside.clone(), route.outside.clone());
        let ending = ending.to_owned();
        let unit = StageUnit { uid, gid, stages_in, buffer, inside, outside, files, ending, range };
        self.tell(&Said::Unit { id, unit })?;
        Ok(id)
    }

    /// Inode number of the directory that a copy goes into.
    fn directory_of(&mut self, to: &Path) -> Result<u64> {
        let dir = to.parent().unwrap_or(Path::new("/"));
        if let Some((known, inode)) = &self.into
            && known == dir
        {
            return Ok(*inode);
        }
        let inode = std::fs::metadata(dir).map_err(|e| failed("cannot look at", dir, &e))?.ino();
        self.into = Some((dir.to_owned(), inode));
        Ok(inode)
    }

    /// Removes what tries of this job have left in a directory.
    fn clean(&self, dir: &Path) -> Result<()> {
        let mark = format!("{PARTIAL}{}", self.mark());
        let Ok(entries) = std::fs::read_dir(dir) else {
            // A directory that the user may write to and not read: nobody can look for them.
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') && name.contains(&mark) {
                remove_if_there(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// The process that has started this one does not listen or answer.
fn gone(why: &str) -> Fault {
    Fault::new(Code::StageStopped).what("the orchestrator does not answer").why(why.to_owned())
}

impl Copy {
    /// Copies a file, or has another host copy it.
    pub(super) fn hand_out(&mut self, from: &Path, to: &Path) -> Result<()> {
        let route = self.share.route.clone().filter(|_| self.share.is_shared());
        let Some(route) = route else {
            self.settle()?;
            return self.file(from, to);
        };
        let meta = std::fs::symlink_metadata(from).map_err(|e| failed("cannot look at", from, &e))?;
        let paths = route.below(from, to).filter(|_| meta.is_file());
        let Some((below, target)) = paths else {
            self.settle()?;
            return self.file(from, to);
        };
        if meta.nlink() > 1 && self.first_names.contains_key(&(meta.dev(), meta.ino())) {
            return self.do_later(Later::Link { from: from.to_owned(), to: to.to_owned() });
        }
        self.remember(&meta, to);
        let file = StageFile {
            from: below,
            to: target,
            into: self.share.directory_of(to)?,
            inode: meta.ino(),
            bytes: meta.len(),
            mtime_s: meta.mtime(),
            mtime_ns: meta.mtime_nsec(),
        };
        if meta.len() >= LARGE_BYTES {
            self.flush()?;
            return self.large(&route, from, to, file);
        }
        if self.share.batch_route.as_ref().is_some_and(|other| !other.is_with(&route)) {
            self.flush()?;
        }
        self.share.batch_route = Some(route);
        self.share.batch.push(Given { from: from.to_owned(), to: to.to_owned(), file });
        let bytes: u64 = self.share.batch.iter().map(|given| given.file.bytes).sum();
        if self.share.batch.len() >= BATCH_FILES_MAX || bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the batch that is being filled.
    fn flush(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.share.batch);
        match self.share.batch_route.take() {
            Some(route) if !files.is_empty() => self.send_batch(route, files, 1),
            _ => Ok(()),
        }
    }

    fn send_batch(&mut self, route: Route, files: Vec<Given>, tries: usize) -> Result<()> {
        self.wait_for_room()?;
        if !self.share.is_shared() || tries > TRIES_MAX {
            return files.iter().try_for_each(|given| self.file_alone(&given.from, &given.to));
        }
        let ending = self.share.new_ending();
        let list = files.iter().map(|given| given.file.clone()).collect();
        let id = self.share.send(&route, list, &ending, None)?;
        self.share.sent.insert(id, Sent::Batch { route: Box::new(route), files, ending, tries });
        Ok(())
    }

    /// Waits until one more unit may be under way.
    pub(super) fn wait_for_room(&mut self) -> Result<()> {
        while self.share.is_shared() && self.share.sent.len() >= self.share.streams {
            self.take_answer()?;
        }
        Ok(())
    }

    fn take_answer(&mut self) -> Result<()> {
        let Heard::Unit { id, streams, files: answers } = self.share.hear()? else {
            return Err(gone("it answers something else than was asked"));
        };
        self.share.streams = streams;
        match self.share.sent.remove(&id) {
            Some(Sent::Batch { route, files, ending, tries }) => match answers {
                Some(answers) if answers.len() == files.len() => {
                    for (index, (given, answer)) in files.iter().zip(answers).enumerate() {
                        self.take(given, answer, &ending_of(&ending, index))?;
                    }
                    Ok(())
                }
                _ => {
                    for (index, given) in files.iter().enumerate() {
                        // A host that is late may make it later: then it is removed with the directory's last look.
                        remove_if_there(&partial(&given.to, &ending_of(&ending, index)))?;
                    }
                    self.send_batch(*route, files, tries + 1)
                }
            },
            Some(Sent::Part { large }) => self.take_part(large, answers.as_deref()),
            None => Ok(()),
        }
    }

    /// Gives a file that another host has copied its name. What another host cannot copy, this one copies: its fault is the one that counts.
    fn take(&mut self, given: &Given, answer: StagedFile, ending: &str) -> Result<()> {
        match answer {
            StagedFile::Copied { bytes, attributes_lost } => {
                let partial = partial(&given.to, ending);
                let is_whole = std::fs::symlink_metadata(&partial)
                    .is_ok_and(|meta| meta.is_file() && meta.len() == given.file.bytes);
                if !is_whole {
                    remove_if_there(&partial)?;
                    return self.file_alone(&given.from, &given.to);
                }
                std::fs::rename(&partial, &given.to)
                    .map_err(|e| failed("cannot rename to", &given.to, &e))?;
                self.outcome.files += 1;
                self.outcome.bytes += bytes;
                self.outcome.attributes_lost += attributes_lost;
                Ok(())
            }
            StagedFile::Unchanged => {
                self.outcome.unchanged += 1;
                Ok(())
            }
            StagedFile::Failed { .. } => self.file_alone(&given.from, &given.to),
        }
    }

    /// Does something once the files before it are there.
    pub(super) fn do_later(&mut self, later: Later) -> Result<()> {
        self.share.later.push(later);
        if self.share.later.len() >= LATER_MAX { self.settle() } else { Ok(()) }
    }

    /// Waits for other hosts, then does what had to wait.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.flush()?;
        while !self.share.sent.is_empty() {
            self.take_answer()?;
        }
        let mut cleaned: Option<PathBuf> = None;
        for later in std::mem::take(&mut self.share.later) {
            match later {
                Later::Link { from, to } => self.file(&from, &to)?,
                Later::Dir { from, to, is_top, meta } => {
                    self.share.clean(&to)?;
                    self.finish_dir(&from, &to, is_top, &meta)?;
                }
                Later::Entry { parent, to } => {
                    // The entries of a list may be thousands in one directory.
                    let dir = to.parent().unwrap_or(&parent);
                    if cleaned.as_deref() != Some(dir) {
                        self.share.clean(dir)?;
                        cleaned = Some(dir.to_owned());
                    }
                    sync_entry(&parent, &to)?;
                }
            }
        }
        Ok(())
    }
}

/// End of the name of a file of a unit.
pub(super) fn ending_of(ending: &str, index: usize) -> String {
    format!("{ending}.{index}")
}
