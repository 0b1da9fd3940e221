//! A finished run: one document with everything that was measured. Schema `brindle.bench`, version 1; within a version
//! fields are only added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cpu::ProcessMemory;
use crate::machine::Machine;
use crate::stats::{Summary, median};

/// Name of the schema.
pub const SCHEMA: &str = "brindle.bench";
/// Version of the schema.
pub const VERSION: u32 = 1;

/// A run of one workload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// `ior`, `mdtest`, ...
    pub workload: String,
    /// Name and version of the program.
    pub program: String,
    /// Label of the run from the user: a commit, a peer.
    pub label: Option<String>,
    /// When it began, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// Duration of the run.
    pub duration_seconds: f64,
    /// Machine of the run.
    pub machine: Machine,
    /// Directories that were measured.
    pub directories: Vec<Directory>,
    /// Directory that the figures are compared with, if it is one.
    pub limit: Option<Directory>,
    /// Sizes and counts, by name.
    pub parameters: BTreeMap<String, Value>,
    /// Notes for the reader: how caches were dropped, whose processor time is counted, which limit was used.
    pub notes: Vec<String>,
    /// Memory of the processes of the file system at the end.
    #[serde(default)]
    pub memory: Vec<ProcessMemory>,
    /// The figures, in the order of the phases.
    pub figures: Vec<Figure>,
}

/// A directory that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Directory {
    /// Path, as it was given.
    pub path: String,
    /// Type of its file system: `fuse.brindle`, `ext4`.
    pub file_system: String,
}

/// In what a figure is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// MiB in a second.
    #[serde(rename = "MiB/s")]
    MibPerSecond,
    /// Operations in a second.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// Seconds; less is better.
    #[serde(rename = "s")]
    Seconds,
    /// Microseconds; less is better.
    #[serde(rename = "us")]
    Microseconds,
}

impl Unit {
    /// Text of the unit in output.
    pub fn text(self) -> &'static str {
        match self {
            Unit::MibPerSecond => "MiB/s",
            Unit::OpsPerSecond => "ops/s",
            Unit::Seconds => "s",
            Unit::Microseconds => "us",
        }
    }

    /// Whether a larger figure is the better one.
    pub fn more_is_better(self) -> bool {
        matches!(self, Unit::MibPerSecond | Unit::OpsPerSecond)
    }

    /// Quality of `value` beside `other`: 1 for equal, 0.5 for half as fast.
    pub fn fraction(self, value: f64, other: f64) -> f64 {
        if self.more_is_better() { value / other } else { other / value }
    }
}

/// A phase of one case.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// `easy, file per process`.
    pub case: String,
    /// `write`.
    pub phase: String,
    /// In what `summary` and the values of the samples are counted.
    pub unit: Unit,
    /// Varied quantity, if there is one: threads.
    pub x: Option<X>,
    /// Every repetition.
    pub samples: Vec<Sample>,
    /// Of the values of the samples.
    pub summary: Summary,
    /// Median processor time of the file system's processes per GiB moved; `None` where nothing was counted or moved.
    pub cpu_seconds_per_gib: Option<f64>,
    /// Median processor time for each operation, in microseconds.
    pub cpu_microseconds_per_operation: Option<f64>,
    /// Limits that the figure is compared with.
    pub limits: Vec<Limit>,
}

/// A place on the horizontal axis of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct X {
    /// `threads`.
    pub name: String,
    /// Value of the quantity.
    pub value: f64,
}

/// A repetition of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The figure, in its unit.
    pub value: f64,
    /// From the first start of a rank to the last end.
    pub seconds: f64,
    /// Calls of read or write, files, entries.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Processor time of the file system's processes; `None` where none is counted.
    pub cpu_seconds: Option<f64>,
    /// Processor time of the benchmark itself, system calls included.
    pub benchmark_cpu_seconds: f64,
    /// Processor time of everything on this machine.
    pub machine_cpu_seconds: f64,
}

impl Sample {
    /// Computes the value.
    pub fn valued(mut self, unit: Unit) -> Sample {
        self.value = match unit {
            Unit::MibPerSecond => self.bytes as f64 / f64::from(1 << 20) / self.seconds,
            Unit::OpsPerSecond => self.operations as f64 / self.seconds,
            Unit::Seconds => self.seconds,
            Unit::Microseconds => self.seconds * 1e6 / self.operations.max(1) as f64,
        };
        self
    }
}

/// Limit that no figure can exceed for long, measured in the same run in turn with the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// `disk` or `loopback`.
    pub name: String,
    /// Repetitions of the limit, in the unit of the figure.
    pub samples: Vec<f64>,
    /// Of the samples.
    pub summary: Summary,
    /// The figure as a fraction of it: medians; 1 is as fast as the limit.
    pub fraction: f64,
}

impl Run {
    /// Note on the memory of the file system; `None` if no process was watched.
    pub fn memory_note(&self) -> Option<String> {
        let each: Vec<String> = self.memory.iter().map(|m| format!("{} {}", m.process, m.peak())).collect();
        (!each.is_empty()).then(|| format!("Memory, most since each process started: {}.", each.join(", ")))
    }
}

impl Figure {
    /// Puts a figure together. `None` when there is no sample.
    pub fn new(case: &str, phase: &str, unit: Unit, x: Option<X>, samples: Vec<Sample>) -> Option<Figure> {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        let summary = Summary::of(&values)?;
        let per = |amount: fn(&Sample) -> f64| {
            let each = samples.iter().filter(|s| amount(s) > 0.0);
            let each: Vec<f64> = each.filter_map(|s| Some(s.cpu_seconds? / amount(s))).collect();
            median(&each)
        };
        Some(Figure {
            case: case.to_owned(),
            phase: phase.to_owned(),
            unit,
            x,
            summary,
            cpu_seconds_per_gib: per(|s| s.bytes as f64 / f64::from(1 << 30)),
            cpu_microseconds_per_operation: per(|s| s.operations as f64 / 1e6),
            samples,
            limits: Vec::new(),
        })
    }

    /// Adds a limit; nothing happens without samples of it.
    pub fn limit(&mut self, name: &str, samples: &[f64]) {
        if let Some(summary) = Summary::of(samples) {
            let fraction = self.unit.fraction(self.summary.median, summary.median);
            self.limits.push(Limit { name: name.to_owned(), samples: samples.to_vec(), summary, fraction });
        }
    }

    /// Key of the figure among those of its run.
    pub fn key(&self) -> (String, String, Option<u64>) {
        (self.case.clone(), self.phase.clone(), self.x.as_ref().map(|x| x.value.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, cpu_seconds: Option<f64>) -> Sample {
        let made = Sample { seconds, operations: 2048, bytes: 2 << 30, cpu_seconds, ..Sample::default() };
        made.valued(Unit::MibPerSecond)
    }

    #[test]
    fn a_figure_has_its_rate_its_cost_and_its_limit() {
        let samples = vec![sample(2.0, Some(4.0)), sample(4.0, Some(2.0)), sample(1.0, Some(2.0))];
        let mut figure = Figure::new("easy", "write", Unit::MibPerSecond, None, samples).expect("samples");
        assert_eq!(figure.summary.median, 1024.0);
        assert_eq!(figure.cpu_seconds_per_gib, Some(1.0));
        assert_eq!(figure.cpu_microseconds_per_operation, Some(2.0 / 2048.0 * 1e6));
        figure.limit("disk", &[2048.0]);
        figure.limit("loopback", &[]);
        assert_eq!(figure.limits.len(), 1);
        assert_eq!(figure.limits[0].fraction, 0.5);
    }

    #[test]
    fn where_nothing_is_counted_nothing_is_said() {
        let figure = Figure::new("easy", "write", Unit::MibPerSecond, None, vec![sample(2.0, None)]);
        assert_eq!(figure.expect("a sample").cpu_seconds_per_gib, None);
        assert!(Figure::new("easy", "write", Unit::Seconds, None, Vec::new()).is_none());
        assert_eq!(Unit::Seconds.fraction(2.0, 1.0), 0.5);
    }

    #[test]
    fn units_are_written_as_people_write_them() {
        assert_eq!(serde_json::to_string(&Unit::MibPerSecond).expect("JSON"), "\"MiB/s\"");
        assert_eq!(Unit::OpsPerSecond.text(), "ops/s");
    }
}
