//! The workload of IOR: every rank writes its share in order and reads the share of the next rank. The ranks
//! write a file per process (`ior -F -C -e`) or one file for all (`ior -C -e`), in which the shares of the
//! ranks take turns block by block.

use std::path::PathBuf;

use brindle_stdx::cast::to_usize;
use brindle_types::Result;
use serde::{Deserialize, Serialize};

use crate::files::{self, Buffer};
use crate::pattern::Pattern;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Done, Phase, Spec};
use crate::run::Unit;
use crate::stop::Halt;

/// Bytes of a transfer in IO500's hard case: no multiple of anything.
pub const HARD_BYTES: u64 = 47_008;

/// Layout of the bytes of the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Every rank has a file of its own.
    pub file_per_process: bool,
    /// Bytes of each call.
    pub transfer_bytes: u64,
    /// Bytes of a rank that lie together; a multiple of `transfer_bytes`.
    pub block_bytes: u64,
    /// Blocks of each rank.
    pub segments: u64,
    /// Ranks read what they wrote themselves (`ior` without `-C`).
    pub read_own: bool,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
}

impl Job {
    /// Offset of a block of a rank.
    fn block_offset(&self, rank: u32, ranks: u32, segment: u64) -> u64 {
        let block =
            if self.file_per_process { segment } else { segment * u64::from(ranks) + u64::from(rank) };
        block * self.block_bytes
    }

    fn path(&self, spec: &Spec, rank: u32) -> PathBuf {
        match self.file_per_process {
            true => spec.dir().join(format!("data.{rank}")),
            false => spec.dir().join("data.shared"),
        }
    }

    fn pattern(&self, spec: &Spec, rank: u32) -> Pattern {
        Pattern::of(spec.seed, if self.file_per_process { u64::from(rank) } else { 0 })
    }

    /// Bytes of each rank.
    pub fn bytes(&self) -> u64 {
        self.block_bytes * self.segments
    }
}

/// Runs a phase.
pub(crate) fn run(spec: &Spec, job: &Job, phase: Phase, halt: &Halt) -> Result<Done> {
    match phase {
        Phase::Write | Phase::Rewrite => write(spec, job, halt),
        Phase::Read => read(spec, job, halt),
        Phase::Clean => clean(spec, job),
        other => Err(super::no_such_phase(other)),
    }
}

/// Calls `each` with the offset of every transfer of a rank.
fn transfers(spec: &Spec, job: &Job, rank: u32, mut each: impl FnMut(u64) -> Result<()>) -> Result<Done> {
    let mut done = Done::default();
    for segment in 0..job.segments {
        let block = job.block_offset(rank, spec.ranks, segment);
        for n in 0..job.block_bytes / job.transfer_bytes {
            each(block + n * job.transfer_bytes)?;
            done.operations += 1;
            done.bytes += job.transfer_bytes;
        }
    }
    Ok(done)
}

fn write(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let (path, pattern) = (job.path(spec, spec.rank), job.pattern(spec, spec.rank));
    let file = files::open_write(&path, job.direct)?;
    let mut buffer = Buffer::new(to_usize(job.transfer_bytes));
    let done = transfers(spec, job, spec.rank, |offset| {
        halt.check()?;
        pattern.fill(offset, buffer.bytes());
        files::write_at(&file, &path, buffer.bytes(), offset)
    })?;
    files::sync(&file, &path, spec.fsync)?;
    Ok(done)
}

fn read(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let rank = if job.read_own { spec.rank } else { spec.next() };
    let (path, pattern) = (job.path(spec, rank), job.pattern(spec, rank));
    let file = files::open_read(&path, job.direct)?;
    let mut buffer = Buffer::new(to_usize(job.transfer_bytes));
    transfers(spec, job, rank, |offset| {
        halt.check()?;
        files::read_at(&file, &path, buffer.bytes(), offset)?;
        if spec.verify { files::compare(&path, pattern, offset, buffer.bytes()) } else { Ok(()) }
    })
}

fn clean(spec: &Spec, job: &Job) -> Result<Done> {
    if job.file_per_process || spec.rank == 0 {
        let path = job.path(spec, spec.rank);
        std::fs::remove_file(&path).map_err(|e| files::failed("cannot remove", &path, &e))?;
    }
    Ok(Done::default())
}

/// The cases of `brindle bench ior`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// A file per process, 1 MiB transfers.
    Easy,
    /// A single file, each rank one piece of it, 1 MiB transfers.
    Segmented,
    /// A single file, ranks take turns every 1 MiB.
    Strided,
    /// A single file, ranks take turns every 47,008 bytes.
    Hard,
}

/// Options of `brindle bench ior`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cases in the order in which they run.
    pub cases: Vec<Case>,
    /// Bytes of each rank.
    pub bytes: u64,
    /// Bytes of a transfer in all cases but the hard one.
    pub transfer_bytes: u64,
    /// Ranks read what they wrote themselves.
    pub read_own: bool,
    /// Whether files are opened with O_DIRECT; not in the hard case, whose transfers are not aligned.
    pub direct: bool,
}

impl Options {
    /// The job of a case.
    pub fn job(&self, case: Case) -> Job {
        let transfer_bytes = if case == Case::Hard { HARD_BYTES } else { self.transfer_bytes };
        let transfers = (self.bytes / transfer_bytes).max(1);
        let together = matches!(case, Case::Easy | Case::Segmented);
        Job {
            file_per_process: case == Case::Easy,
            transfer_bytes,
            block_bytes: if together { transfers * transfer_bytes } else { transfer_bytes },
            segments: if together { 1 } else { transfers },
            read_own: self.read_own,
            direct: self.direct && case != Case::Hard,
        }
    }
}

/// Plans of the cases; those with a shared file run on one mount and, if there are more, on all.
pub fn plans(options: &Options, setting: &Setting) -> Vec<Plan> {
    let mut plans = Vec::new();
    for case in &options.cases {
        let all = setting.dirs.len();
        let mounts = if *case != Case::Easy && all > 1 { vec![1, all] } else { vec![all] };
        plans.extend(mounts.into_iter().map(|mounts| plan(options, *case, setting, mounts)));
    }
    plans
}

fn plan(options: &Options, case: Case, setting: &Setting, mounts: usize) -> Plan {
    let job = options.job(case);
    let name = match case {
        Case::Easy => "easy: file per process",
        Case::Segmented => "shared file, one piece each",
        Case::Strided => "shared file, in turns",
        Case::Hard => "hard: shared file, 47008 B in turns",
    };
    let bytes = job.bytes() * u64::from(setting.ranks);
    Plan {
        case: setting.case_name(name, mounts),
        mounts,
        bytes,
        files: u64::from(setting.ranks) + 1,
        steps: vec![
            Step::new(Phase::Write, "write", Unit::MibPerSecond),
            Step::cold(Phase::Read, "read", Unit::MibPerSecond),
        ],
        clean: true,
        ..Plan::new(setting.ranks, rank::Job::Ior(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { cases: vec![], bytes: 4 << 20, transfer_bytes: 1 << 20, read_own: false, direct: false }
    }

    #[test]
    fn shares_cover_the_file_once() {
        for case in [Case::Easy, Case::Segmented, Case::Strided, Case::Hard] {
            let job = options().job(case);
            let ranks = if job.file_per_process { 1 } else { 3 };
            let mut offsets: Vec<u64> = Vec::new();
            for rank in 0..ranks {
                for segment in 0..job.segments {
                    let block = job.block_offset(rank, ranks, segment);
                    offsets.extend(
                        (0..job.block_bytes / job.transfer_bytes).map(|n| block + n * job.transfer_bytes),
                    );
                }
            }
            offsets.sort_unstable();
            let expected: Vec<u64> = (0..offsets.len() as u64).map(|n| n * job.transfer_bytes).collect();
            assert_eq!(offsets, expected, "{case:?}");
        }
    }

    #[test]
    fn the_hard_case_is_that_of_io500() {
        let job = options().job(Case::Hard);
        assert_eq!((job.transfer_bytes, job.block_bytes, job.segments), (47_008, 47_008, 89));
        assert_eq!(options().job(Case::Segmented).block_bytes, 4 << 20);
        let direct = Options { direct: true, ..options() };
        assert!(direct.job(Case::Easy).direct && !direct.job(Case::Hard).direct);
    }
}
