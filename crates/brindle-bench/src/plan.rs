//! Plans of phases, and the settings that all plans of a run share.

use std::path::PathBuf;

use crate::cold::Cold;
use crate::cpu::Watched;
use crate::rank::{Job, Phase};
use crate::run::{Directory, Unit, X};
use crate::team::Launcher;

/// Settings from the command line for all plans.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Directories to measure: several mounts of one file system.
    pub dirs: Vec<Directory>,
    /// A local directory to compare with.
    pub limit: Option<Directory>,
    /// Processes at once.
    pub ranks: u32,
    /// Repetitions of each phase.
    pub repeat: u32,
    /// Way to make caches cold.
    pub cold: Cold,
    /// Whether write phases end with fsync of each file.
    pub fsync: bool,
    /// Whether what is read is compared with what was written.
    pub verify: bool,
    /// Seed of the contents of files.
    pub seed: u64,
    /// Processes whose processor time is counted.
    pub watched: Watched,
    /// Kind of ranks.
    pub launcher: Launcher,
}

impl Setting {
    /// Paths of the directories.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|d| PathBuf::from(&d.path)).collect()
    }

    /// A name of a case with the mounts that it uses, where there are several.
    pub fn case_name(&self, name: &str, mounts: usize) -> String {
        match (self.dirs.len(), mounts) {
            (1, _) => name.to_owned(),
            (_, 1) => format!("{name}, 1 mount"),
            (_, n) => format!("{name}, {n} mounts"),
        }
    }
}

/// A case: ranks that go through phases together.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the case, for people.
    pub case: String,
    /// Varied quantity, if there is one.
    pub x: Option<X>,
    /// Ranks at once.
    pub ranks: u32,
    /// Number of directories that are used.
    pub mounts: usize,
    /// Whether ranks are threads whatever the setting says.
    pub threads: bool,
    /// Work of each rank.
    pub job: Job,
    /// Phases before the first repetition, not measured.
    pub once: Vec<Phase>,
    /// Phases of each repetition.
    pub steps: Vec<Step>,
    /// Whether each repetition ends with [`Phase::Clean`].
    pub clean: bool,
    /// Whether round trips and streams over loopback are measured as well.
    pub loopback: bool,
    /// Bytes that are there at most.
    pub bytes: u64,
    /// Files that are there at most.
    pub files: u64,
}

impl Plan {
    /// A plan that does nothing yet.
    pub fn new(ranks: u32, job: Job) -> Plan {
        Plan {
            case: String::new(),
            x: None,
            ranks,
            mounts: 1,
            threads: false,
            job,
            once: Vec::new(),
            steps: Vec::new(),
            clean: false,
            loopback: false,
            bytes: 0,
            files: 0,
        }
    }
}

/// A phase of each repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Phase to run.
    pub phase: Phase,
    /// Name of the phase, for people; `None` when it is not measured.
    pub name: Option<String>,
    /// Unit of the figure.
    pub unit: Unit,
    /// Whether caches are made cold before it.
    pub cold: bool,
}

impl Step {
    /// A phase that begins as the one before has left things.
    pub fn new(phase: Phase, name: &str, unit: Unit) -> Step {
        Step { phase, name: Some(name.to_owned()), unit, cold: false }
    }

    /// A phase that begins with cold caches.
    pub fn cold(phase: Phase, name: &str, unit: Unit) -> Step {
        Step { cold: true, ..Step::new(phase, name, unit) }
    }

    /// A phase that only puts things in order.
    pub fn unmeasured(phase: Phase) -> Step {
        Step { phase, name: None, unit: Unit::Seconds, cold: false }
    }
}
