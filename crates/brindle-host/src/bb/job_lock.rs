//! The lock of a job: its phases overlap, because a cancelled job is torn down while another phase runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::process::Signal;

use crate::process::Identity;

/// The lock of a job, and the copy that runs under it.
#[derive(Default)]
pub struct JobLock {
    pub(super) step: Mutex<()>,
    /// How many want the copy to stop.
    stop: AtomicUsize,
    copy: Mutex<Option<Identity>>,
}

impl JobLock {
    /// Stops the copy that runs, and those that would begin, until [`JobLock::go_on`].
    pub(super) fn stop(&self) {
        self.stop.fetch_add(1, Ordering::SeqCst);
        if let Some(copy) = *self.copy.lock() {
            copy.signal(Signal::KILL);
        }
    }

    /// Copies may run again.
    pub(super) fn go_on(&self) {
        self.stop.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody wants the copy to stop.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst) > 0
    }

    /// Notes the process of a copy, or that it has ended; kills one that is not wanted any more.
    pub fn copies(&self, copy: Option<Identity>) {
        let mut now = self.copy.lock();
        *now = copy;
        if let Some(copy) = copy.filter(|_| self.stops()) {
            copy.signal(Signal::KILL);
        }
    }
}
