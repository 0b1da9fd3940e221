//! From counters of daemons to rates.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::history::Sample;
use super::metrics::{Series, parse};

/// Most counters that are remembered.
const COUNTERS_MAX: usize = 100_000;

/// Work of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TargetRates {
    /// Bytes that an OST reads a second.
    pub read_bytes_per_second: f64,
    /// Bytes that an OST writes a second.
    pub written_bytes_per_second: f64,
    /// Reads and writes of an OST, operations of an MDT, a second.
    pub operations_per_second: f64,
}

/// Counters of the daemons at the last look.
#[derive(Debug, Default)]
pub struct Rates {
    counters: HashMap<String, f64>,
}

/// Rates of all, and of each target.
pub type RatesByTarget = (Sample, BTreeMap<String, TargetRates>);

impl Rates {
    /// The rates since the call before; `texts` has the metrics of each daemon, with its address. A daemon that was silent at the last
    /// call, or whose counters fell because it has started again, counts as idle so far.
    pub fn since_last(&mut self, texts: &[(String, String)], seconds: f64) -> RatesByTarget {
        let (mut sample, mut targets) = (Sample::default(), BTreeMap::<String, TargetRates>::new());
        let mut now = HashMap::new();
        for (daemon, text) in texts {
            for series in parse(text).filter(is_counted) {
                let target = series.label("target").unwrap_or_default();
                let operation = series.label("op").unwrap_or_default();
                let key = format!("{daemon} {} {target} {operation}", series.name);
                let before = self.counters.get(&key).copied();
                if now.len() < COUNTERS_MAX {
                    now.insert(key, series.value);
                }
                let more = before.map_or(0.0, |before| (series.value - before).max(0.0));
                let rate = if seconds > 0.0 { more / seconds } else { 0.0 };
                let of_target = targets.entry(target.to_owned()).or_default();
                add(&mut sample, of_target, &series, operation, rate);
            }
        }
        self.counters = now;
        (sample, targets)
    }
}

/// Asking for the free space, which the manager does itself, is no work on names.
const NOT_METADATA: &str = "mdt_statfs";

fn is_counted(series: &Series) -> bool {
    if series.label("op") == Some(NOT_METADATA) {
        return false;
    }
    matches!(
        series.name,
        "brindle_oss_read_bytes_total"
            | "brindle_oss_written_bytes_total"
            | "brindle_oss_reads_total"
            | "brindle_oss_writes_total"
            | "brindle_mds_operations_total"
    )
}

fn add(sample: &mut Sample, target: &mut TargetRates, series: &Series, operation: &str, rate: f64) {
    match series.name {
        "brindle_oss_read_bytes_total" => {
            sample.read_bytes_per_second += rate;
            target.read_bytes_per_second += rate;
        }
        "brindle_oss_written_bytes_total" => {
            sample.written_bytes_per_second += rate;
            target.written_bytes_per_second += rate;
        }
        "brindle_oss_reads_total" => {
            sample.reads_per_second += rate;
            target.operations_per_second += rate;
        }
        "brindle_oss_writes_total" => {
            sample.writes_per_second += rate;
            target.operations_per_second += rate;
        }
        _ => {
            *sample.metadata.of(operation) += rate;
            target.operations_per_second += rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(written: u64, created: u64) -> Vec<(String, String)> {
        vec![(
            "http://a".to_owned(),
            format!(
                "brindle_oss_written_bytes_total{{target=\"dev-OST0000\"}} {written}\n\
                 brindle_mds_operations_total{{target=\"dev-MDT0000\",op=\"create\"}} {created}\n\
                 brindle_mds_operations_total{{target=\"dev-MDT0000\",op=\"mdt_statfs\"}} {created}\n\
                 brindle_process_threads 5\n"
            ),
        )]
    }

    #[test]
    fn rates_are_differences_and_a_restart_is_no_burst() {
        let mut rates = Rates::default();
        let (sample, _) = rates.since_last(&text(1_000_000, 50), 1.0);
        assert_eq!(sample.written_bytes_per_second, 0.0, "the first time says nothing of a rate");
        let (sample, targets) = rates.since_last(&text(3_000_000, 60), 2.0);
        assert_eq!((sample.written_bytes_per_second, sample.metadata.create), (1e6, 5.0));
        assert_eq!(targets["dev-OST0000"].written_bytes_per_second, 1e6);
        assert_eq!(targets["dev-MDT0000"].operations_per_second, 5.0);
        let (sample, _) = rates.since_last(&text(10, 0), 1.0);
        assert_eq!(
            (sample.written_bytes_per_second, sample.metadata.create),
            (0.0, 0.0),
            "it has started again"
        );
        let (_, targets) = rates.since_last(&[], 1.0);
        assert!(targets.is_empty());
        let (sample, _) = rates.since_last(&text(5_000, 1), 1.0);
        assert_eq!(sample.written_bytes_per_second, 0.0, "it was not heard the time before");
    }
}
