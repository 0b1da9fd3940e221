//! A rank: one of several processes (or threads) that do the same at once, each with its share.

use std::path::{Path, PathBuf};

use brindle_stdx::cast::from_i64;
use brindle_types::Result;
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::stop::Halt;
use crate::workload::{ior, list, mdtest, random, tree};

/// Facts that a rank needs before its first phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Number of the rank, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Directories that show the same files through one mount each; ranks take them in turn.
    pub dirs: Vec<PathBuf>,
    /// Seed of the contents of files.
    pub seed: u64,
    /// Whether what is read is compared with what was written.
    pub verify: bool,
    /// Whether write phases end with fsync of each file.
    pub fsync: bool,
    /// Whether this rank is a thread among others, so that only its own processor time is to be counted.
    pub thread: bool,
    /// Work to do.
    pub job: Job,
}

impl Spec {
    /// The directory through which this rank goes.
    pub fn dir(&self) -> &Path {
        &self.dirs[self.rank as usize % self.dirs.len()]
    }

    /// The rank whose files this one reads: the next one, so that nobody reads from a cache what it wrote itself.
    pub fn next(&self) -> u32 {
        (self.rank + 1) % self.ranks
    }
}

/// The jobs that ranks do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Large files, each rank its own or all the same.
    Ior(ior::Job),
    /// Many files.
    Mdtest(mdtest::Job),
    /// A single large directory.
    List(list::Job),
    /// Small pieces in random order.
    Random(random::Job),
    /// A source tree.
    Tree(tree::Job),
}

/// Phase in which ranks work together; each workload has some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Writes everything, in order.
    Write,
    /// Writes everything over what is there.
    Rewrite,
    /// Reads everything, in order.
    Read,
    /// Writes pieces in random order, for some seconds.
    RandomWrite,
    /// Reads pieces in random order, for some seconds.
    RandomRead,
    /// Makes files.
    Create,
    /// Asks for the attributes of files by name.
    Stat,
    /// Removes files.
    Remove,
    /// Lists a directory with all attributes.
    List,
    /// Unpacks the tree.
    Untar,
    /// Looks for files of a size.
    Find,
    /// Adds up the tree.
    Du,
    /// Packs the tree.
    Tar,
    /// Removes what the workload itself does not remove in a phase of its own; not measured.
    Clean,
}

/// Counts of a rank in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Start of the phase, in nanoseconds of the monotonic clock, which is one for all processes.
    pub start_ns: u64,
    /// End of the phase, on the same clock.
    pub end_ns: u64,
    /// Calls, files, entries.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Processor time that it used, system calls included.
    pub cpu_seconds: f64,
}

/// Operations and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub operations: u64,
    pub bytes: u64,
}

/// A rank with what it keeps between phases.
pub struct Rank {
    spec: Spec,
    random: random::State,
}

impl Rank {
    /// Rank before its first phase.
    pub fn new(spec: Spec) -> Rank {
        Rank { spec, random: random::State::default() }
    }

    /// Runs a phase that begins at `start_at_ns` of the monotonic clock.
    pub fn run(&mut self, phase: Phase, start_at_ns: u64, halt: &Halt) -> Result<Tally> {
        sleep_until(start_at_ns);
        let cpu = if self.spec.thread { cpu::of_thread } else { cpu::of_process };
        let (cpu_before, start_ns) = (cpu(), now_ns());
        let spec = &self.spec;
        let done = match &spec.job {
            Job::Ior(job) => ior::run(spec, job, phase, halt)?,
            Job::Mdtest(job) => mdtest::run(spec, job, phase, halt)?,
            Job::List(job) => list::run(spec, job, phase, halt)?,
            Job::Random(job) => random::run(spec, job, &mut self.random, phase, halt)?,
            Job::Tree(job) => tree::run(spec, job, phase, halt)?,
        };
        let end_ns = now_ns();
        Ok(Tally {
            start_ns,
            end_ns,
            operations: done.operations,
            bytes: done.bytes,
            cpu_seconds: (cpu() - cpu_before).max(0.0),
        })
    }
}

/// The monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    from_i64(t.tv_sec) * 1_000_000_000 + from_i64(t.tv_nsec)
}

fn sleep_until(at_ns: u64) {
    let left = at_ns.saturating_sub(now_ns());
    if left > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(left));
    }
}
