//! The throughput mode of iozone: the same bytes by 1, 2, 4 ... threads, each with a file of its own; write,
//! write again, read.

use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Phase};
use crate::run::{Unit, X};
use crate::workload::ior;

/// Options of `brindle bench threads`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of threads, in the order in which they run.
    pub threads: Vec<u32>,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes of a call.
    pub record_bytes: u64,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
}

/// 1, 2, 4 ... up to `most`, which is always the last.
pub fn doubling(most: u32) -> Vec<u32> {
    let mut counts: Vec<u32> =
        std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|n| *n < most).collect();
    counts.push(most.max(1));
    counts
}

/// A plan for each number of threads.
pub fn plans(options: &Options, setting: &Setting) -> Vec<Plan> {
    let mounts = setting.dirs.len();
    options.threads.iter().map(|threads| plan(options, setting, *threads, mounts)).collect()
}

fn plan(options: &Options, setting: &Setting, threads: u32, mounts: usize) -> Plan {
    let records = (options.bytes / u64::from(threads) / options.record_bytes).max(1);
    let job = ior::Job {
        file_per_process: true,
        transfer_bytes: options.record_bytes,
        block_bytes: records * options.record_bytes,
        segments: 1,
        read_own: false,
        direct: options.direct,
    };
    Plan {
        case: setting.case_name("file per thread", mounts),
        mounts,
        bytes: job.bytes() * u64::from(threads),
        files: u64::from(threads),
        x: Some(X { name: "threads".to_owned(), value: f64::from(threads) }),
        threads: true,
        steps: vec![
            Step::new(Phase::Write, "write", Unit::MibPerSecond),
            Step::new(Phase::Rewrite, "rewrite", Unit::MibPerSecond),
            Step::cold(Phase::Read, "read", Unit::MibPerSecond),
        ],
        clean: true,
        ..Plan::new(threads, rank::Job::Ior(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_double_up_to_the_largest() {
        assert_eq!(doubling(1), [1]);
        assert_eq!(doubling(8), [1, 2, 4, 8]);
        assert_eq!(doubling(100), [1, 2, 4, 8, 16, 32, 64, 100]);
    }
}
