//! Four figures in about a minute: write and read a stream, create and stat files.

use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Phase};
use crate::run::Unit;
use crate::workload::{ior, mdtest};

/// Size of the work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the stream of each rank.
    pub bytes: u64,
    /// Files of each rank.
    pub files: u32,
}

/// A plan for the streams and one for the files, both beside disk and loopback.
pub fn plans(options: &Options, setting: &Setting) -> Vec<Plan> {
    let mounts = setting.dirs.len();
    let streams = ior::Options {
        cases: vec![ior::Case::Easy],
        bytes: options.bytes,
        transfer_bytes: 1 << 20,
        read_own: false,
        direct: false,
    };
    let streams = ior::plans(&streams, setting).into_iter().map(|plan| Plan {
        case: setting.case_name("1 MiB, file per process", mounts),
        loopback: true,
        ..plan
    });
    let job = mdtest::Job { files: options.files, bytes: 0, shared: false };
    let files = u64::from(options.files) * u64::from(setting.ranks);
    let files = Plan {
        case: setting.case_name("empty files, own directories", mounts),
        mounts,
        files,
        steps: vec![
            Step::new(Phase::Create, "create", Unit::OpsPerSecond),
            Step::cold(Phase::Stat, "stat", Unit::OpsPerSecond),
            Step::unmeasured(Phase::Remove),
        ],
        clean: true,
        loopback: true,
        ..Plan::new(setting.ranks, rank::Job::Mdtest(job))
    };
    streams.chain([files]).collect()
}
