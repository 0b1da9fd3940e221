//! Progress of an import, and the files that were not imported.

use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Code, Fault};
use parking_lot::Mutex;

/// Most problems that are kept to be listed; all are counted.
pub const PROBLEMS_MAX: usize = 1000;

/// A file that was not imported.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Path of the file, or of its manifest.
    pub subject: String,
    /// Reason.
    pub fault: Fault,
}

/// Counts of an import, while it goes on.
#[derive(Default)]
pub struct Tally {
    /// Files that were made, or would be.
    pub files: AtomicU64,
    /// Further names of them.
    pub links: AtomicU64,
    /// Directories that were made, or would be.
    pub directories: AtomicU64,
    /// Bytes that the files have.
    pub bytes: AtomicU64,
    /// Files that were passed over because their names exist.
    pub existing: AtomicU64,
    /// Files that have lost their names to ones that were archived later.
    pub superseded: AtomicU64,
    /// Files that have another layout than they had.
    pub other_layouts: AtomicU64,
    /// Files that could not be imported.
    pub failed: AtomicU64,
    problems: Mutex<Vec<Problem>>,
}

impl Tally {
    /// Adds `more` to a counter.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// Value of a counter.
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// A file has lost its name to one that was archived later.
    pub fn replaced(&self) {
        Tally::add(&self.superseded, 1);
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// A file was not imported.
    pub fn problem(&self, subject: String, fault: Fault) {
        let counter = if fault.code == Code::Exists { &self.existing } else { &self.failed };
        Tally::add(counter, 1);
        let mut problems = self.problems.lock();
        if problems.len() < PROBLEMS_MAX {
            problems.push(Problem { subject, fault });
        }
    }

    /// The first [`PROBLEMS_MAX`].
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.lock().clone()
    }
}
