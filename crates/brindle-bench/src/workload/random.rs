//! Pieces of 4 KiB in random order with O_DIRECT, so that every one is acknowledged by the storage: each rank in a file of
//! its own, for some seconds, after the file was written once in order.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use brindle_stdx::cast::to_usize;
use brindle_types::Result;
use brindle_types::units::GIB;
use serde::{Deserialize, Serialize};

use crate::files::{self, Buffer};
use crate::pattern::Pattern;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Done, Phase, Spec};
use crate::run::Unit;
use crate::stop::Halt;

/// Bytes of a piece.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of all files together, where the disk has room: more than caches of devices and servers hold.
pub const SET_BYTES: u64 = 4 * GIB;
/// The set takes at most this part of the free space by default.
const SET_OF_FREE: u64 = 5;
/// Bytes of a write while the file is made.
const FILL_BYTES: u64 = 1 << 20;

/// Size and duration of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Bytes of the file of each rank.
    pub file_bytes: u64,
    /// Length of a phase.
    pub seconds: u32,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
}

/// State that a rank keeps between phases.
#[derive(Default)]
pub(crate) struct State {
    /// Number of writes of each block, as far as it matters for the contents.
    generations: Vec<u8>,
    repetition: u8,
    random: u64,
}

impl State {
    /// xorshift64*: which block is next.
    fn next(&mut self, blocks: u64) -> u64 {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % blocks
    }
}

fn path(spec: &Spec) -> PathBuf {
    spec.dir().join(format!("random.{}", spec.rank))
}

fn pattern(spec: &Spec, generation: u8) -> Pattern {
    Pattern::of(spec.seed, u64::from(spec.rank) | (u64::from(generation) << 32))
}

/// Runs a phase.
pub(crate) fn run(spec: &Spec, job: &Job, state: &mut State, phase: Phase, halt: &Halt) -> Result<Done> {
    match phase {
        Phase::Write => fill(spec, job, state, halt),
        Phase::RandomWrite => write(spec, job, state, halt),
        Phase::RandomRead => read(spec, job, state, halt),
        other => Err(super::no_such_phase(other)),
    }
}

fn fill(spec: &Spec, job: &Job, state: &mut State, halt: &Halt) -> Result<Done> {
    let path = path(spec);
    let file = files::open_write(&path, job.direct)?;
    let mut buffer = Buffer::new(to_usize(FILL_BYTES));
    let mut offset = 0;
    while offset < job.file_bytes {
        halt.check()?;
        let len = to_usize(FILL_BYTES.min(job.file_bytes - offset));
        pattern(spec, 0).fill(offset, &mut buffer.bytes()[..len]);
        files::write_at(&file, &path, &buffer.bytes()[..len], offset)?;
        offset += len as u64;
    }
    files::sync(&file, &path, true)?;
    state.generations = vec![0; (job.file_bytes / BLOCK_BYTES) as usize];
    state.random = (spec.seed ^ (u64::from(spec.rank) << 40)) | 1;
    Ok(Done { operations: job.file_bytes.div_ceil(FILL_BYTES), bytes: job.file_bytes })
}

fn write(spec: &Spec, job: &Job, state: &mut State, halt: &Halt) -> Result<Done> {
    let path = path(spec);
    let file = files::open_write(&path, job.direct)?;
    let mut buffer = Buffer::new(to_usize(BLOCK_BYTES));
    state.repetition = state.repetition % 250 + 1;
    let generation = state.repetition;
    let mut done = Done::default();
    let end = Instant::now() + Duration::from_secs(job.seconds.into());
    while Instant::now() < end {
        halt.check()?;
        let block = state.next(state.generations.len() as u64);
        pattern(spec, generation).fill(block * BLOCK_BYTES, buffer.bytes());
        files::write_at(&file, &path, buffer.bytes(), block * BLOCK_BYTES)?;
        state.generations[to_usize(block)] = generation;
        done.operations += 1;
        done.bytes += BLOCK_BYTES;
    }
    files::sync(&file, &path, spec.fsync)?;
    Ok(done)
}

fn read(spec: &Spec, job: &Job, state: &mut State, halt: &Halt) -> Result<Done> {
    let path = path(spec);
    let file = files::open_read(&path, job.direct)?;
    let mut buffer = Buffer::new(to_usize(BLOCK_BYTES));
    let mut done = Done::default();
    let end = Instant::now() + Duration::from_secs(job.seconds.into());
    while Instant::now() < end {
        halt.check()?;
        let block = state.next(state.generations.len() as u64);
        files::read_at(&file, &path, buffer.bytes(), block * BLOCK_BYTES)?;
        if spec.verify {
            let generation = state.generations[to_usize(block)];
            files::compare(&path, pattern(spec, generation), block * BLOCK_BYTES, buffer.bytes())?;
        }
        done.operations += 1;
        done.bytes += BLOCK_BYTES;
    }
    Ok(done)
}

/// Options of `brindle bench random`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of all files together.
    pub set_bytes: u64,
    /// Length of a phase.
    pub seconds: u32,
    /// Whether files are opened with O_DIRECT.
    pub direct: bool,
}

/// The bytes of all files together where nobody says how many: 4 GiB, or less where `free_bytes` is little.
pub fn set_bytes_default(free_bytes: u64) -> u64 {
    SET_BYTES.min(free_bytes / SET_OF_FREE)
}

/// The plan.
pub fn plans(options: &Options, setting: &Setting) -> Vec<Plan> {
    let each = (options.set_bytes / u64::from(setting.ranks) / FILL_BYTES).max(1) * FILL_BYTES;
    let job = Job { file_bytes: each, seconds: options.seconds, direct: options.direct };
    let name = if options.direct { "4 KiB, O_DIRECT" } else { "4 KiB, buffered" };
    let mounts = setting.dirs.len();
    vec![Plan {
        case: setting.case_name(name, mounts),
        mounts,
        bytes: each * u64::from(setting.ranks),
        files: u64::from(setting.ranks),
        once: vec![Phase::Write],
        steps: vec![
            Step::new(Phase::RandomWrite, "write", Unit::OpsPerSecond),
            Step::cold(Phase::RandomRead, "read", Unit::OpsPerSecond),
        ],
        loopback: true,
        ..Plan::new(setting.ranks, rank::Job::Random(job))
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_four_gib_unless_the_disk_is_small() {
        assert_eq!(set_bytes_default(100 * GIB), 4 * GIB);
        assert_eq!(set_bytes_default(10 * GIB), 2 * GIB);
    }

    #[test]
    fn blocks_are_spread() {
        let mut state = State { random: 1, ..State::default() };
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| state.next(64)).collect();
        assert_eq!(seen.len(), 64);
    }
}
