//! Moving a file to other OSTs, piece by piece.
//!
//! The MDT moves one piece at a time; the work between the pieces (pace, progress, going on after an interruption) is here. Programs may
//! read and write the file all the time.

use std::path::{Path, PathBuf};

use brindle_client::control::{Answer, Request};
use brindle_stdx::Mono;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Ino, LayoutPolicy, Result};
use brindle_wire::mds::migrate::PIECE_BYTES_MAX;

use crate::job::{Job, Progress};
use crate::mount::{Mount, unexpected};

/// Bytes of a piece, unless the bandwidth is limited to less in a second.
const PIECE_BYTES: u64 = 32 << 20;
/// Time that a job may make up for when it was slower than its pace.
const PACE_SLACK_NS: u64 = 1_000_000_000;
/// Smallest piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;
/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;

/// Plan for the files.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Wanted layout; none: the layout that each file has.
    pub policy: Option<LayoutPolicy>,
    /// OSTs that they are to leave.
    pub avoid: Vec<u16>,
}

/// Keeps a job of many files to its bandwidth: after copying bytes, a caller waits for the rest of the time that they should have taken.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// Time at which the copied bytes should have been done.
    due: Mono,
}

impl Pace {
    /// A pace of so many bytes a second; as fast as it goes without.
    pub fn new(bandwidth_bytes: Option<u64>, now: Mono) -> Pace {
        let bytes_per_second = bandwidth_bytes.unwrap_or(u64::MAX).max(PIECE_BYTES_MIN);
        Pace { bytes_per_second, due: now }
    }

    /// Bytes of a piece: at most those of a second.
    fn piece_bytes(&self) -> u64 {
        let second = self.bytes_per_second / PIECE_BYTES_MIN * PIECE_BYTES_MIN;
        PIECE_BYTES.min(second).min(PIECE_BYTES_MAX)
    }

    /// Nanoseconds until it goes on after so many bytes at this time.
    fn next_ns(&mut self, now: Mono, copied_bytes: u64) -> u64 {
        let took_ns = u128::from(copied_bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let took_ns = u64::try_from(took_ns).unwrap_or(u64::MAX);
        let slack = now.0.saturating_sub(took_ns.min(PACE_SLACK_NS));
        self.due = Mono(self.due.0.max(slack).saturating_add(took_ns));
        self.due.0.saturating_sub(now.0)
    }
}

/// Outcome of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The file, as it was named.
    pub path: PathBuf,
    /// Bytes that were copied; 0 if the file was already as wanted.
    pub copied_bytes: u64,
    /// Duration of the move.
    pub milliseconds: u64,
}

/// Moves a file of a mount; `path` is its name in messages.
pub async fn migrate(
    job: &Job,
    mount: &dyn Mount,
    ino: Ino,
    path: &Path,
    plan: &Plan,
    pace: &mut Pace,
) -> Result<Moved> {
    let seams = job.seams();
    let begun = seams.now();
    let (mut offset, mut copied) = (0, 0u64);
    let done = |copied| format!("{} of {} are moved", format_bytes(copied), path.display());
    loop {
        job.check().map_err(|fault| fault.why(done(copied)))?;
        let request = Request::Migrate {
            ino: ino.0,
            offset,
            policy: plan.policy.clone(),
            avoid: plan.avoid.clone(),
            copy_max_bytes: pace.piece_bytes(),
        };
        let answer = mount.ask(&request).await.map_err(|fault| {
            let is_damaged = matches!(fault.code, Code::ObjectMissing | Code::ObjectDamaged);
            fault.why(done(copied)).data(match is_damaged {
                true => "a part of the file is lost or damaged, and stays as it is; what is not moved is where it was",
                false => "the file is whole: what is not moved is where it was",
            })
        })?;
        let Answer::Migrated { next, copied_bytes, size_bytes } = answer else {
            return Err(unexpected(&answer));
        };
        copied = copied.saturating_add(copied_bytes);
        job.progress(Progress {
            subject: path.display().to_string(),
            done_bytes: offset.saturating_add(copied_bytes).min(size_bytes),
            total_bytes: size_bytes,
            copied_bytes: copied,
        });
        let wait_ns = pace.next_ns(seams.now(), copied_bytes);
        if wait_ns > 0 {
            job.pause_ms(wait_ns.div_ceil(MS_NS)).await.map_err(|fault| fault.why(done(copied)))?;
        }
        let Some(next) = next else { break };
        offset = next;
    }
    let milliseconds = seams.now().ms_since(begun);
    Ok(Moved { path: path.to_owned(), copied_bytes: copied, milliseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_files_keep_the_pace_of_one_large_one() {
        let start = Mono(1 << 40);
        let mut pace = Pace::new(Some(10 << 20), start);
        // A hundred files of 1 MiB, copied in no time: ten seconds.
        let mut now = start;
        for _ in 0..100 {
            now.0 += pace.next_ns(now, 1 << 20);
        }
        assert_eq!(now.ms_since(start), 10_000);
        // A job that took longer than its pace does not wait, and makes up for the time that it lost, within bounds.
        now = now.plus_ms(60_000);
        assert_eq!(pace.next_ns(now, 1 << 20), 0);
        assert_eq!(pace.next_ns(now, 1 << 20) / MS_NS, 100);
        assert_eq!(Pace::new(Some(1), now).piece_bytes(), PIECE_BYTES_MIN);
        assert_eq!(Pace::new(None, now).piece_bytes(), PIECE_BYTES.min(PIECE_BYTES_MAX));
    }
}
