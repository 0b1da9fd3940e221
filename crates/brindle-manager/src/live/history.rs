//! The last minutes by the second, the last hours by ten seconds. In memory, and bounded.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples of one second each that are kept: ten minutes.
pub const SECONDS_MAX: usize = 600;
/// Samples of ten seconds each that are kept: six hours.
pub const TENS_MAX: usize = 2160;
/// Long samples that a forecast needs: half an hour of them.
pub const FORECAST_MIN: usize = 180;
/// Seconds of a long sample.
const LONG_SECONDS: usize = 10;

/// What the cluster did in a second, or in the middle of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// When, seconds since 1970.
    pub at_s: i64,
    /// Bytes that OSTs read.
    pub read_bytes_per_second: f64,
    /// Bytes that OSTs wrote.
    pub written_bytes_per_second: f64,
    /// Reads of OSTs.
    pub reads_per_second: f64,
    /// Writes of OSTs.
    pub writes_per_second: f64,
    /// Operations of MDTs.
    pub metadata: Metadata,
    /// Bytes in use on the OSTs, each device once.
    pub used_bytes: u64,
    /// Bytes of the OSTs, each device once.
    pub total_bytes: u64,
    /// Daemons that told their numbers.
    pub daemons_heard: u32,
    /// Daemons that were asked.
    pub daemons_asked: u32,
}

/// Operations of MDTs a second, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Lookups and attributes that were read.
    pub lookup: f64,
    /// Opens and closes.
    pub open: f64,
    /// Files, directories and links that were made.
    pub create: f64,
    /// Files and directories that were removed.
    pub remove: f64,
    /// Renames.
    pub rename: f64,
    /// Pages of listings.
    pub list: f64,
    /// Attributes that were changed.
    pub set_attributes: f64,
    /// Reads and writes of small files, whose bytes are with the MDT.
    pub small_file_data: f64,
    /// Anything else.
    pub other: f64,
}

impl Metadata {
    /// The rate that operations of this name belong to. The names are those of `brindle_wire::Op`.
    pub fn of(&mut self, operation: &str) -> &mut f64 {
        match operation {
            "lookup" | "getattr" | "readlink" | "getxattr" | "listxattr" => &mut self.lookup,
            "open" | "open_ahead" | "close" => &mut self.open,
            "create" | "mkdir" | "mknod" | "symlink" | "link" | "tmpfile" => &mut self.create,
            "unlink" | "rmdir" => &mut self.remove,
            "rename" => &mut self.rename,
            "readdir" => &mut self.list,
            "setattr" | "setxattr" | "removexattr" => &mut self.set_attributes,
            "inline_read" | "inline_write" => &mut self.small_file_data,
            _ => &mut self.other,
        }
    }

    fn each(&mut self, other: &Metadata, change: impl Fn(&mut f64, f64)) {
        let pairs = [
            (&mut self.lookup, other.lookup),
            (&mut self.open, other.open),
            (&mut self.create, other.create),
            (&mut self.remove, other.remove),
            (&mut self.rename, other.rename),
            (&mut self.list, other.list),
            (&mut self.set_attributes, other.set_attributes),
            (&mut self.small_file_data, other.small_file_data),
            (&mut self.other, other.other),
        ];
        pairs.into_iter().for_each(|(mine, theirs)| change(mine, theirs));
    }
}

/// The samples of a span, the oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HistoryView {
    /// Seconds between two samples.
    pub step_s: u32,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// A span of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Ten minutes, by the second.
    Minutes,
    /// Six hours, by ten seconds.
    Hours,
}

/// The history.
#[derive(Debug, Default)]
pub struct History {
    seconds: VecDeque<Sample>,
    tens: VecDeque<Sample>,
    gathered: Vec<Sample>,
}

impl History {
    /// Adds the sample of a second.
    pub fn add(&mut self, sample: Sample) {
        push(&mut self.seconds, sample, SECONDS_MAX);
        self.gathered.push(sample);
        if self.gathered.len() >= LONG_SECONDS {
            push(&mut self.tens, mean(&self.gathered), TENS_MAX);
            self.gathered.clear();
        }
    }

    /// In how many seconds the OSTs are full at the pace of the last hours: where the straight line of least squares through what was in
    /// use meets what there is. None where it does not rise, or it is too soon to say.
    pub fn full_in_s(&self) -> Option<f64> {
        let last = self.tens.back()?;
        // A change of the OSTs is no pace.
        let same = self.tens.iter().rev().take_while(|sample| sample.total_bytes == last.total_bytes);
        let points: Vec<(f64, f64)> =
            same.map(|s| ((s.at_s - last.at_s) as f64, s.used_bytes as f64)).collect();
        if points.len() < FORECAST_MIN || last.total_bytes == 0 {
            return None;
        }
        let n = points.len() as f64;
        let (mean_at, mean_used) =
            (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
        let covariance: f64 = points.iter().map(|p| (p.0 - mean_at) * (p.1 - mean_used)).sum();
        let variance: f64 = points.iter().map(|p| (p.0 - mean_at).powi(2)).sum();
        let bytes_per_second = if variance > 0.0 { covariance / variance } else { 0.0 };
        let left = last.total_bytes.saturating_sub(last.used_bytes) as f64;
        (bytes_per_second > 0.0).then(|| left / bytes_per_second)
    }

    /// The last sample.
    pub fn last(&self) -> Sample {
        self.seconds.back().copied().unwrap_or_default()
    }

    /// The samples of a span.
    pub fn view(&self, span: Span) -> HistoryView {
        let (step_s, samples) = match span {
            Span::Minutes => (1, &self.seconds),
            Span::Hours => (LONG_SECONDS as u32, &self.tens),
        };
        HistoryView { step_s, samples: samples.iter().copied().collect() }
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, max: usize) {
    if samples.len() >= max {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The mean of the rates; what is no rate is that of the last sample.
fn mean(samples: &[Sample]) -> Sample {
    let Some(last) = samples.last() else { return Sample::default() };
    let n = samples.len() as f64;
    let of = |get: fn(&Sample) -> f64| samples.iter().map(get).sum::<f64>() / n;
    let mut metadata = Metadata::default();
    for sample in samples {
        metadata.each(&sample.metadata, |sum, rate| *sum += rate / n);
    }
    Sample {
        read_bytes_per_second: of(|s| s.read_bytes_per_second),
        written_bytes_per_second: of(|s| s.written_bytes_per_second),
        reads_per_second: of(|s| s.reads_per_second),
        writes_per_second: of(|s| s.writes_per_second),
        metadata,
        ..*last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded_and_long_samples_are_means() {
        let mut history = History::default();
        for at_s in 0..(TENS_MAX * LONG_SECONDS + 100) as i64 {
            let metadata = Metadata { create: (at_s % 10) as f64, ..Metadata::default() };
            let sample =
                Sample { at_s, read_bytes_per_second: (at_s % 10) as f64, metadata, ..Sample::default() };
            history.add(sample);
        }
        let (minutes, hours) = (history.view(Span::Minutes), history.view(Span::Hours));
        assert_eq!((minutes.samples.len(), hours.samples.len()), (SECONDS_MAX, TENS_MAX));
        assert_eq!((minutes.step_s, hours.step_s), (1, 10));
        for sample in hours.samples {
            assert!((sample.read_bytes_per_second - 4.5).abs() < 1e-9);
            assert!((sample.metadata.create - 4.5).abs() < 1e-9);
            assert_eq!(sample.at_s % 10, 9);
        }
    }

    #[test]
    fn the_forecast_follows_the_line() {
        let grown = |bytes_per_second: i64, seconds: i64, total_bytes: u64| {
            let mut history = History::default();
            for at_s in 0..seconds {
                let used_bytes = (1_000_000 + at_s * bytes_per_second) as u64;
                history.add(Sample { at_s, used_bytes, total_bytes, ..Sample::default() });
            }
            history
        };
        let needed = (FORECAST_MIN * LONG_SECONDS) as i64;
        let full_in_s = grown(100, needed, 11_000_000).full_in_s().unwrap();
        let expected = (11_000_000 - 1_000_000 - (needed - 1) * 100) as f64 / 100.0;
        assert!((full_in_s - expected).abs() < 1.0, "{full_in_s} {expected}");
        assert_eq!(grown(100, needed - 10, 11_000_000).full_in_s(), None, "too soon");
        assert_eq!(grown(0, needed, 11_000_000).full_in_s(), None);
        assert_eq!(grown(-100, needed, 11_000_000).full_in_s(), None);
        let mut history = grown(100, needed, 11_000_000);
        for at_s in needed..needed + 100 {
            history.add(Sample { at_s, used_bytes: 1, total_bytes: 99, ..Sample::default() });
        }
        assert_eq!(history.full_in_s(), None, "there are other OSTs now");
    }

    #[test]
    fn every_operation_that_is_named_exists() {
        let known: Vec<&str> = brindle_wire::Op::ALL.iter().map(|op| op.name()).collect();
        for name in
            ["lookup", "open_ahead", "tmpfile", "rmdir", "rename", "readdir", "removexattr", "inline_write"]
        {
            assert!(known.contains(&name), "{name}");
            let mut metadata = Metadata::default();
            *metadata.of(name) += 1.0;
            assert!(metadata.other == 0.0, "{name}");
        }
    }
}
