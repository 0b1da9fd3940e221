//! Failed asynchronous writes: the truncate that Linux makes after some of them.
//!
//! A write that was handed over asynchronously (io_submit, io_uring) may reach beyond the end of the file that the kernel knows of. If such
//! a write fails, the kernel cuts the file to that end (`fuse_direct_IO`, Linux 6.18), so that nothing is left of the write. Others may
//! have written behind that end long ago: the kernel hears of truncates only. The SETATTR looks like that of an ftruncate, and nobody waits
//! for its answer. The SETATTR is refused. A part of the failed write may therefore stay behind the old end: the lesser evil.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_stdx::Mono;
use parking_lot::Mutex;

/// Failures remembered; beyond them those of the lowest thread go.
const FAILED_MAX: usize = 4096;
/// Longest time that the kernel may take to cut the file: it waits for nothing but a processor.
const GOOD_FOR_MS: u64 = 5_000;

/// Time of the last failed write of each thread through a handle.
#[derive(Default)]
pub(crate) struct FailedWrites {
    by_thread: Mutex<BTreeMap<(u32, u64), Mono>>,
    /// Number of entries.
    count: AtomicUsize,
}

impl FailedWrites {
    /// A write through a handle failed, or was made in part.
    pub fn note(&self, tid: u32, handle: u64, now: Mono) {
        let mut failed = self.by_thread.lock();
        if failed.len() >= FAILED_MAX {
            failed.pop_first();
        }
        failed.insert((tid, handle), now);
        self.count.store(failed.len(), Ordering::Relaxed);
    }

    /// A write through a handle was made.
    pub fn made(&self, tid: u32, handle: u64) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.forget(tid, handle);
        }
    }

    fn forget(&self, tid: u32, handle: u64) -> Option<Mono> {
        let mut failed = self.by_thread.lock();
        let at = failed.remove(&(tid, handle));
        self.count.store(failed.len(), Ordering::Relaxed);
        at
    }

    /// The thread asks for a size by this handle; whether its last write through it failed just now.
    pub fn take(&self, tid: u32, handle: u64, now: Mono) -> bool {
        self.forget(tid, handle).is_some_and(|at| now.ms_since(at) < GOOD_FOR_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_remembered_for_one_size_and_not_for_long() {
        let (failed, now) = (FailedWrites::default(), Mono::default());
        failed.note(7, 1, now);
        failed.note(7, 2, now);
        assert!(!failed.take(8, 1, now));
        assert!(failed.take(7, 1, now) && !failed.take(7, 1, now));
        assert!(failed.take(7, 2, now), "each handle for itself");
        failed.note(7, 1, now);
        assert!(!failed.take(7, 1, now.plus_ms(GOOD_FOR_MS)));
        failed.note(7, 1, now);
        failed.made(7, 1);
        assert!(!failed.take(7, 1, now), "the next one was made");
        (0..2 * FAILED_MAX as u32).for_each(|tid| failed.note(tid, 1, now));
        assert_eq!(failed.by_thread.lock().len(), FAILED_MAX);
    }
}
