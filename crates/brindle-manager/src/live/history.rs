//! Throughput and load of the cluster over time: ten minutes by the second, six hours by ten seconds, a week by the minute, a year by ten
//! minutes. The history is in memory, in files of a fixed size ([`Ring`]), and bounded.
//!
//! A sample of a coarser level is the mean of the finer samples of its time. After a restart a mean that was begun continues with the
//! samples that the finer files have of its time.

use std::collections::BTreeMap;
use std::path::Path;

use brindle_stdx::cast::{bounded_u32, from_i64, to_i64};
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ring::Ring;

/// Resolutions: seconds of a sample, and how many samples are kept.
const LEVELS: [(i64, usize); 4] = [(1, 600), (10, 2_160), (60, 10_080), (600, 52_560)];
/// The resolution that forecasts are made of.
const FORECAST_LEVEL: usize = 1;
/// Samples of that resolution that a forecast needs: half an hour.
pub const FORECAST_MIN: usize = 180;
/// Most samples of an answer; of more, neighbours are put together.
pub const SHOWN_MAX: usize = 2_200;
/// Directory of the files in the manager's directory.
const DIR: &str = "history";

/// Work of the cluster in a second, or the mean of ten.
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

/// A span of the history: its name, the resolution that it is taken from, and how far it reaches back, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Name of the span.
    pub name: &'static str,
    level: usize,
    seconds: i64,
}

/// All spans.
pub const SPANS: [Span; 6] = [
    Span { name: "10m", level: 0, seconds: 600 },
    Span { name: "6h", level: 1, seconds: 21_600 },
    Span { name: "1d", level: 2, seconds: 86_400 },
    Span { name: "7d", level: 2, seconds: 604_800 },
    Span { name: "30d", level: 3, seconds: 2_592_000 },
    Span { name: "1y", level: 3, seconds: 31_536_000 },
];

/// Samples of one resolution.
#[derive(Debug)]
struct Level {
    step_s: i64,
    max: usize,
    /// By their number: the time by the seconds of a sample.
    samples: BTreeMap<i64, Sample>,
    gathered: Gathered,
    ring: Option<Ring>,
}

/// Samples of a time that is not over.
#[derive(Debug, Default)]
struct Gathered {
    number: i64,
    /// Samples with their weights: the seconds that each is for.
    samples: Vec<(f64, Sample)>,
}

/// The history.
#[derive(Debug)]
pub struct History {
    levels: Vec<Level>,
}

impl Default for History {
    /// A history in memory only.
    fn default() -> History {
        let level = |(step_s, max)| Level {
            step_s,
            max,
            samples: BTreeMap::new(),
            gathered: Gathered::default(),
            ring: None,
        };
        History { levels: LEVELS.into_iter().map(level).collect() }
    }
}

impl History {
    /// The history in the files of a directory, as it is at `now_s`.
    pub fn open(dir: &Path, now_s: i64) -> Result<History> {
        let dir = dir.join(DIR);
        let cannot = |e: &std::io::Error| {
            Fault::io(Code::HistoryFailed, "cannot open the history in", dir.display().to_string(), e)
        };
        match std::fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(cannot(&e)),
            _ => {}
        }
        let mut history = History::default();
        for level in &mut history.levels {
            let path = dir.join(format!("{}s", level.step_s));
            let (ring, samples) =
                Ring::open(&path, level.step_s, level.max as u64).map_err(|e| cannot(&e))?;
            level.ring = Some(ring);
            let oldest = now_s.div_euclid(level.step_s) - to_i64(level.max as u64);
            // Samples of the future were written before the clock was set back.
            let numbered = samples.into_iter().map(|sample| (sample.at_s.div_euclid(level.step_s), sample));
            level.samples = numbered.filter(|(number, s)| *number > oldest && s.at_s <= now_s).collect();
        }
        history.gather_again();
        Ok(history)
    }

    /// Begins means again with what the finer resolution has of their time; and makes the mean before, where a kill came between.
    fn gather_again(&mut self) {
        let Some(last_s) = self.levels[0].samples.last_key_value().map(|(_, last)| last.at_s) else { return };
        for at in 1..self.levels.len() {
            let (finer, coarser) = self.levels.split_at_mut(at);
            let (finer, level) = (&finer[at - 1], &mut coarser[0]);
            let number = last_s.div_euclid(level.step_s);
            let before = finer.within(level, number - 1);
            if !before.is_empty() && !level.samples.contains_key(&(number - 1)) {
                // If the file cannot be written now, the next start finds the same.
                level.samples.insert(number - 1, mean(&before));
            }
            level.gathered = Gathered { number, samples: finer.within(level, number) };
        }
    }

    /// Adds the sample of a second. If a file cannot be written, the log says so; the sample is shown all the same.
    pub fn add(&mut self, sample: Sample) {
        for level in &mut self.levels {
            if let Err(e) = level.add(sample) {
                let code = Code::HistoryFailed;
                tracing::warn!(%code, error = %e, step_s = level.step_s, "a sample of the history is not written");
            }
        }
    }

    /// Seconds until the OSTs are full at the pace of the last hours: where the least-squares line through the used space meets the
    /// capacity. `None` if the used space does not rise, or it is too early to say.
    pub fn full_in_s(&self) -> Option<f64> {
        let samples = &self.levels[FORECAST_LEVEL].samples;
        let (_, last) = samples.last_key_value()?;
        // A change of the OSTs is no pace.
        let same = samples.values().rev().take_while(|sample| sample.total_bytes == last.total_bytes);
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
        self.levels[0].samples.last_key_value().map(|(_, sample)| *sample).unwrap_or_default()
    }

    /// The samples of a span, the oldest first.
    pub fn view(&self, span: Span) -> HistoryView {
        let level = &self.levels[span.level];
        let last = level.samples.last_key_value().map_or(0, |(number, _)| *number);
        let first = last - span.seconds / level.step_s;
        let samples: Vec<Sample> = level.samples.range(first + 1..).map(|(_, sample)| *sample).collect();
        let together = from_i64(span.seconds / level.step_s).div_ceil(SHOWN_MAX as u64).max(1);
        let step_s = bounded_u32(from_i64(level.step_s) * together);
        let numbers = samples.chunk_by(|a, b| {
            let number = |sample: &Sample| sample.at_s.div_euclid(i64::from(step_s));
            number(a) == number(b)
        });
        let mean_of = |some: &[Sample]| mean(&some.iter().map(|sample| (1.0, *sample)).collect::<Vec<_>>());
        HistoryView { step_s, samples: numbers.map(mean_of).collect() }
    }
}

impl Level {
    /// Samples of this resolution, with their weights, that belong to a sample of a coarser one.
    fn within(&self, coarser: &Level, number: i64) -> Vec<(f64, Sample)> {
        let first = number * coarser.step_s / self.step_s;
        let behind = (number + 1) * coarser.step_s / self.step_s;
        let whole = self.samples.range(first..behind).map(|(_, sample)| (self.step_s as f64, *sample));
        let is_within = (first..behind).contains(&self.gathered.number);
        let begun = self.gathered.samples.iter().filter(|_| is_within).copied();
        whole.chain(begun).collect()
    }

    fn add(&mut self, sample: Sample) -> std::io::Result<()> {
        let number = sample.at_s.div_euclid(self.step_s);
        if self.step_s == 1 {
            return self.put(number, sample);
        }
        let mut done = Ok(());
        if number != self.gathered.number {
            let before = std::mem::take(&mut self.gathered);
            if !before.samples.is_empty() {
                done = self.put(before.number, mean(&before.samples));
            }
            self.gathered.number = number;
        }
        self.gathered.samples.push((1.0, sample));
        done
    }

    fn put(&mut self, number: i64, sample: Sample) -> std::io::Result<()> {
        // The clock was set back: samples of the future would be the last ones for ever.
        self.samples.split_off(&number);
        self.samples.insert(number, sample);
        while self.samples.len() > self.max {
            self.samples.pop_first();
        }
        match &self.ring {
            Some(ring) => ring.write(&sample),
            None => Ok(()),
        }
    }
}

/// The mean of the rates, by weight; values that are no rates are taken from the last sample.
fn mean(samples: &[(f64, Sample)]) -> Sample {
    let Some((_, last)) = samples.last() else { return Sample::default() };
    let whole: f64 = samples.iter().map(|(weight, _)| weight).sum();
    let of = |get: fn(&Sample) -> f64| samples.iter().map(|(weight, s)| weight * get(s)).sum::<f64>() / whole;
    let mut metadata = Metadata::default();
    for (weight, sample) in samples {
        metadata.each(&sample.metadata, |sum, rate| *sum += weight * rate / whole);
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

    fn span(name: &str) -> Span {
        SPANS.into_iter().find(|span| span.name == name).unwrap()
    }

    fn saw(at_s: i64) -> Sample {
        let rate = (at_s % 10) as f64;
        let metadata = Metadata { create: rate, ..Metadata::default() };
        Sample { at_s, read_bytes_per_second: rate, metadata, ..Sample::default() }
    }

    #[test]
    fn the_history_is_bounded_and_long_samples_are_means() {
        let mut history = History::default();
        for at_s in 0..100_000 {
            history.add(saw(at_s));
        }
        let (minutes, hours, day) =
            (history.view(span("10m")), history.view(span("6h")), history.view(span("1d")));
        assert_eq!((minutes.samples.len(), hours.samples.len(), day.samples.len()), (600, 2160, 1440));
        assert_eq!((minutes.step_s, hours.step_s, day.step_s), (1, 10, 60));
        for sample in hours.samples.iter().chain(&day.samples) {
            assert!((sample.read_bytes_per_second - 4.5).abs() < 1e-9);
            assert!((sample.metadata.create - 4.5).abs() < 1e-9);
            assert_eq!(sample.at_s % 10, 9);
        }
        for (level, (_, max)) in history.levels.iter().zip(LEVELS) {
            assert!(level.samples.len() <= max && level.gathered.samples.len() <= 600);
        }
    }

    #[test]
    fn a_year_is_shown_in_few_samples() {
        let mut history = History::default();
        let level = &mut history.levels[3];
        for number in 0..60_000 {
            level.put(number, saw(number * 600)).unwrap();
        }
        assert_eq!(level.samples.len(), 52_560);
        for (name, step_s) in [("30d", 1_200), ("1y", 14_400)] {
            let view = history.view(span(name));
            assert_eq!(view.step_s, step_s, "{name}");
            assert!(view.samples.len() <= SHOWN_MAX + 1 && view.samples.len() > 2_000, "{name}");
        }
    }

    /// The manager is killed at any moment, also while it writes, and started again: the history has exactly the added samples.
    #[test]
    fn kills_lose_nothing_but_a_torn_slot() {
        use std::os::unix::fs::FileExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mut never = History::default();
        let mut history = History::open(dir.path(), 0).unwrap();
        let mut dice = 7_u64;
        for at_s in 1..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            never.add(saw(at_s));
            history.add(saw(at_s));
            if dice >> 56 == 0 {
                drop(history);
                history = History::open(dir.path(), at_s).unwrap();
            }
        }
        for name in ["10m", "6h", "1d"] {
            let (expected, found) = (never.view(span(name)).samples, history.view(span(name)).samples);
            assert_eq!(expected.len(), found.len(), "{name}");
            for (expected, found) in expected.iter().zip(&found) {
                assert_eq!(expected.at_s, found.at_s);
                let differs = (expected.read_bytes_per_second - found.read_bytes_per_second).abs();
                assert!(differs < 1e-9, "{name} {expected:?} {found:?}");
            }
        }
        drop(history);
        let file = std::fs::File::options().write(true).open(dir.path().join("history/1s")).unwrap();
        file.write_all_at(&[0x55; 100], 64 + 152 * 300 + 20).unwrap();
        let torn = History::open(dir.path(), 19_999).unwrap().view(span("10m"));
        assert_eq!(torn.samples.len(), 599);
        assert!(torn.samples.iter().all(|sample| *sample == saw(sample.at_s)));
    }

    #[test]
    fn old_samples_and_those_ahead_of_the_clock_are_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(dir.path(), 0).unwrap();
        (1_000..1_100).for_each(|at_s| history.add(saw(at_s)));
        assert_eq!(History::open(dir.path(), 1_600).unwrap().view(span("10m")).samples.len(), 99);
        assert_eq!(History::open(dir.path(), 1_049).unwrap().view(span("10m")).samples.len(), 50);
        history.add(saw(1_010));
        assert_eq!(history.last().at_s, 1_010, "the clock was set back");
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
        // A further second ends the last mean.
        let needed = FORECAST_MIN as i64 * 10 + 1;
        let full_in_s = grown(100, needed, 11_000_000).full_in_s().unwrap();
        let expected = (11_000_000 - 1_000_000 - (needed - 2) * 100) as f64 / 100.0;
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
