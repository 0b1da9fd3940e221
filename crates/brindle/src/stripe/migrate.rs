//! Moving files to other OSTs, piece by piece: `brindle stripe migrate`, `lfs migrate`.
//!
//! The MDT moves one piece at a time; what is in between (pace, progress, going on after an interruption) is here. Programs
//! may read and write the file all the time.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brindle_client::control::{Answer, Request};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Ino, LayoutPolicy, Result};
use brindle_wire::mds::migrate::PIECE_BYTES_MAX;
use serde::Serialize;

use super::PolicyArgs;
use crate::control::{Control, ino, path_fault, unexpected};
use crate::exit::Done;
use crate::output::{Output, print_json};
use crate::paths::{self, PathView};

/// Bytes of a piece, unless the bandwidth is limited to less in a second.
const PIECE_BYTES: u64 = 32 << 20;
/// Time that a job may make up for when it was slower than its pace.
const PACE_SLACK: Duration = Duration::from_secs(1);
/// Smallest piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// Arguments of `brindle stripe migrate`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle stripe migrate -c 4 /mnt/b/big.dat        (spread over four OSTs)\n  \
                        brindle stripe migrate --off 3 /mnt/b/big.dat     (whatever lies on OST 3 goes elsewhere)\n\n\
                        Programs may read and write the files meanwhile. After an interruption the same command goes on."
)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// OSTs that the files are to leave
    #[arg(long, value_name = "OST", value_delimiter = ',', add = crate::completion::live::ost_indices())]
    off: Vec<u16>,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Plan for the files.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Wanted layout; none: the layout that each file has.
    pub policy: Option<LayoutPolicy>,
    /// OSTs that they are to leave.
    pub avoid: Vec<u16>,
    /// Whether progress is shown.
    pub progress: bool,
}

/// Keeps a job of many files to its bandwidth: whoever has copied bytes waits for as long as they should have taken.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// When what was copied should have been done.
    due: Instant,
}

impl Pace {
    /// A pace of so many bytes a second; as fast as it goes without.
    pub fn new(bandwidth_bytes: Option<u64>) -> Pace {
        let bytes_per_second = bandwidth_bytes.unwrap_or(u64::MAX).max(PIECE_BYTES_MIN);
        Pace { bytes_per_second, due: Instant::now() }
    }

    /// Bytes of a piece: at most those of a second.
    fn piece_bytes(&self) -> u64 {
        let second = self.bytes_per_second / PIECE_BYTES_MIN * PIECE_BYTES_MIN;
        PIECE_BYTES.min(second).min(PIECE_BYTES_MAX)
    }

    /// When it goes on after so many bytes at this time.
    fn next(&mut self, now: Instant, copied_bytes: u64) -> Duration {
        let took = Duration::from_secs_f64(copied_bytes as f64 / self.bytes_per_second as f64);
        let slack = now.checked_sub(took.min(PACE_SLACK)).unwrap_or(now);
        self.due = self.due.max(slack) + took;
        self.due.saturating_duration_since(now)
    }

    fn copied(&mut self, bytes: u64) {
        std::thread::sleep(self.next(Instant::now(), bytes));
    }
}

/// Outcome of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// The file.
    #[serde(flatten)]
    pub path: PathView,
    #[serde(skip)]
    name: String,
    /// Bytes that were copied; 0 when it was as it is to be.
    pub copied_bytes: u64,
    /// How long it took.
    pub milliseconds: u64,
}

#[derive(Serialize)]
struct View {
    files: Vec<Moved>,
}

/// Runs `brindle stripe migrate`.
pub fn run(args: &Args) -> Result<Done> {
    let policy = args.policy.policy()?;
    let plan = Plan {
        policy: (policy != LayoutPolicy::default()).then_some(policy),
        avoid: args.off.clone(),
        progress: !args.output.json() && std::io::stderr().is_terminal(),
    };
    let mut files = Vec::new();
    let mut pace = Pace::new(args.bandwidth);
    for path in &args.paths {
        let moved = migrate(path, &plan, &mut pace)?;
        if !args.output.json() {
            println!("{}", describe(&moved));
        }
        files.push(moved);
    }
    if args.output.json() {
        print_json("brindle.stripe.migrate", 1, &View { files })?;
    }
    Ok(Done::Ok)
}

fn describe(moved: &Moved) -> String {
    match moved.copied_bytes {
        0 => format!("{}: nothing to move", moved.name),
        bytes => {
            let rate = (bytes as f64 / (moved.milliseconds.max(1) as f64 / 1000.0)) as u64;
            format!("{}: {} moved, {}/s", moved.name, format_bytes(bytes), format_bytes(rate))
        }
    }
}

/// Moves one file.
pub fn migrate(path: &Path, plan: &Plan, pace: &mut Pace) -> Result<Moved> {
    let meta = std::fs::metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
    if !meta.is_file() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot migrate")
            .subject(path.display().to_string())
            .why("only files have bytes on OSTs")
            .next(format!(
                "for all files below it: lfs find {} -type f -print0 | xargs -0 lfs migrate ...",
                path.display()
            )));
    }
    migrate_inode(&Control::of(path)?, ino(path)?, path, plan, pace)
}

/// Moves a file of a mount; `path` is its name in messages.
pub fn migrate_inode(
    control: &Control,
    ino: Ino,
    path: &Path,
    plan: &Plan,
    pace: &mut Pace,
) -> Result<Moved> {
    let begun = Instant::now();
    let (mut offset, mut copied) = (0, 0);
    let mut progress = Progress { path, shown: None, begun, active: plan.progress };
    loop {
        let request = Request::Migrate {
            ino: ino.0,
            offset,
            policy: plan.policy.clone(),
            avoid: plan.avoid.clone(),
            copy_max_bytes: pace.piece_bytes(),
        };
        let answer = control.ask(&request).map_err(|fault| {
            let done = format!("{} of {} are moved", format_bytes(copied), path.display());
            let is_damaged = matches!(fault.code, Code::ObjectMissing | Code::ObjectDamaged);
            fault.why(done).data(match is_damaged {
                true => "a part of the file is lost or damaged, and stays as it is; what is not moved is where it was",
                false => "the file is whole: what is not moved is where it was",
            })
        })?;
        let Answer::Migrated { next, copied_bytes, size_bytes } = answer else {
            return Err(unexpected(&answer));
        };
        copied += copied_bytes;
        progress.show(offset.saturating_add(copied_bytes).min(size_bytes), copied, size_bytes);
        pace.copied(copied_bytes);
        let Some(next) = next else { break };
        offset = next;
    }
    progress.end();
    let milliseconds = begun.elapsed().as_millis() as u64;
    Ok(Moved { path: PathView::from(path), name: paths::text(path), copied_bytes: copied, milliseconds })
}

/// A line that is written over again and again.
struct Progress<'a> {
    path: &'a Path,
    shown: Option<Instant>,
    begun: Instant,
    active: bool,
}

impl Progress<'_> {
    /// Pause between two looks of the line.
    const PAUSE: Duration = Duration::from_millis(200);

    fn show(&mut self, at: u64, copied: u64, size_bytes: u64) {
        if !self.active || self.shown.is_some_and(|shown| shown.elapsed() < Self::PAUSE) {
            return;
        }
        self.shown = Some(Instant::now());
        let rate = copied as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
        let left = (size_bytes.saturating_sub(at)) as f64 / rate.max(1.0);
        let percent = (at.min(size_bytes) * 100).checked_div(size_bytes).unwrap_or(100);
        let name = self.path.display();
        let rate = format_bytes(rate as u64);
        eprint!("\r\x1b[K{name}: {percent} % of {}, {rate}/s, {left:.0} s left", format_bytes(size_bytes));
        // A line that cannot be shown is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    fn end(&self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_files_keep_the_pace_of_one_large_one() {
        let start = Instant::now();
        let mut pace = Pace { bytes_per_second: 10 << 20, due: start };
        // A hundred files of 1 MiB, copied in no time: ten seconds.
        let mut now = start;
        for _ in 0..100 {
            now += pace.next(now, 1 << 20);
        }
        assert_eq!((now - start).as_millis(), 10_000);
        // What took longer than its pace is not made to wait; what it lost is made up for within bounds.
        now += Duration::from_secs(60);
        assert_eq!(pace.next(now, 1 << 20), Duration::ZERO);
        assert_eq!(pace.next(now, 1 << 20).as_millis(), 100);
        assert_eq!(Pace::new(Some(1)).piece_bytes(), PIECE_BYTES_MIN);
        assert_eq!(Pace::new(None).piece_bytes(), PIECE_BYTES.min(PIECE_BYTES_MAX));
    }
}
