//! Progress of a copy into or out of a buffer, and the hosts that make it.

use brindle_types::units::format_bytes;
use serde::{Deserialize, Serialize};

/// Time before which no rate is told: a rate of less is chance.
const RATE_AFTER_MS: u64 = 1_000;

/// A copy that runs, or ran last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Staging {
    /// Whether into the buffer.
    pub stages_in: bool,
    /// Whether it has ended.
    pub ended: bool,
    /// Time since its first file, or between the first and its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Files to copy or to compare; 0 until they are counted.
    pub all_files: u64,
    /// Bytes that the destination did not have at the start.
    pub all_bytes: u64,
    /// The hosts, the orchestrator's own first.
    pub hosts: Vec<StagingHost>,
}

impl Staging {
    /// Files that are done.
    pub fn files(&self) -> u64 {
        self.hosts.iter().map(|host| host.files).sum()
    }

    /// Bytes that were copied.
    pub fn bytes(&self) -> u64 {
        self.hosts.iter().map(|host| host.bytes).sum()
    }

    /// Bytes copied in a second, of as many as these; `None` so early that it says nothing.
    pub fn rate(&self, bytes: u64) -> Option<u64> {
        let elapsed_ms = u128::from(self.elapsed_ms);
        let rate = (u128::from(bytes) * 1000).checked_div(elapsed_ms)?;
        (self.elapsed_ms >= RATE_AFTER_MS).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Seconds until the end if it goes on like this: by bytes or by files, whichever is later. `None` where that cannot be said.
    pub fn left_s(&self) -> Option<u64> {
        if self.ended || self.all_files == 0 || self.elapsed_ms < RATE_AFTER_MS {
            return None;
        }
        let left_of = |done: u64, all: u64| -> Option<u128> {
            let left = u128::from(all.saturating_sub(done));
            (u128::from(self.elapsed_ms) * left).checked_div(u128::from(done) * 1000)
        };
        let (files, bytes) = (left_of(self.files(), self.all_files), left_of(self.bytes(), self.all_bytes));
        // A copy of one large file has no file that is done until the end.
        files.into_iter().chain(bytes).max().and_then(|left_s| u64::try_from(left_s).ok())
    }

    /// The progress in one line.
    pub fn line(&self) -> String {
        let direction = if self.stages_in { "in" } else { "out" };
        if self.all_files == 0 && !self.ended {
            return format!("staging {direction}: its files are being counted");
        }
        let word = if self.ended { "staged" } else { "staging" };
        let mut line = format!(
            "{word} {direction}: {} of {} files, {} of {}",
            self.files().min(self.all_files),
            self.all_files,
            format_bytes(self.bytes()),
            format_bytes(self.all_bytes.max(self.bytes()))
        );
        if let Some(rate) = self.rate(self.bytes()) {
            line += &format!(", {}/s", format_bytes(rate));
        }
        if let Some(left_s) = self.left_s() {
            line += &format!(", about {left_s} s left");
        }
        line
    }
}

/// A host that copies, or why it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StagingHost {
    /// Name.
    pub name: String,
    /// Files that it has done: copied as a whole, linked, or found to be there.
    pub files: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Why it is not used, or no longer; empty where it is.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_rate_and_time_left() {
        let host = |files, bytes| StagingHost { files, bytes, ..StagingHost::default() };
        let mut staging = Staging { stages_in: true, ..Staging::default() };
        assert_eq!(staging.line(), "staging in: its files are being counted");
        (staging.all_files, staging.all_bytes) = (100, 64 << 20);
        assert_eq!(staging.line(), "staging in: 0 of 100 files, 0 B of 64.0 MiB");
        staging.hosts = vec![host(0, 0), host(20, 16 << 20), host(20, 16 << 20)];
        staging.elapsed_ms = 4_000;
        assert_eq!(
            staging.line(),
            "staging in: 40 of 100 files, 32.0 MiB of 64.0 MiB, 8.0 MiB/s, about 6 s left",
            "files take longer than bytes"
        );
        (staging.ended, staging.stages_in) = (true, false);
        staging.hosts.push(host(70, 40 << 20));
        assert_eq!(staging.line(), "staged out: 100 of 100 files, 72.0 MiB of 72.0 MiB, 18.0 MiB/s");
    }

    #[test]
    fn a_copy_that_has_just_begun_promises_nothing() {
        let mut staging = Staging { all_files: 1, all_bytes: 1 << 40, elapsed_ms: 999, ..Staging::default() };
        staging.hosts = vec![StagingHost { bytes: 1 << 20, ..StagingHost::default() }];
        assert_eq!((staging.rate(1 << 20), staging.left_s()), (None, None));
        staging.elapsed_ms = 1_000;
        assert_eq!(staging.left_s(), Some((1 << 20) - 1), "by bytes: no file is done yet");
        staging.hosts.clear();
        assert_eq!(staging.left_s(), None);
    }
}
