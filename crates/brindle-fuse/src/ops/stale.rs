//! ESTALE, which no program that gave a path is to see.
//!
//! An operation on an inode that somebody has removed is answered ESTALE, so that the kernel walks the path again: a file
//! of the same name may have been made meanwhile. The kernel does so once (`retry_estale` of Linux). Where the new file is
//! gone by then too it would hand ESTALE to the program; the path led to nothing at that moment, and that is ENOENT.
//!
//! A second walk is known by what the thread asks: LOOKUPs that all find something, then the same operation again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_stdx::Mono;
use parking_lot::Mutex;

/// Threads remembered; beyond them the lowest goes.
const THREADS_MAX: usize = 1024;
/// How long the kernel may take to walk a path again.
const GOOD_FOR_MS: u64 = 5_000;

/// What a thread was last refused with ESTALE.
struct Refused {
    op: &'static str,
    walks: bool,
    at: Mono,
}

/// Threads that walk a path again.
#[derive(Default)]
pub(crate) struct Stale {
    by_thread: Mutex<BTreeMap<u32, Refused>>,
    /// How many there are.
    count: AtomicUsize,
}

impl Stale {
    /// A thread asks for something. Whether it walks a path for the second time is known from this.
    pub fn asked(&self, tid: u32, op: &'static str, is_lookup: bool) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.change(|threads| match threads.get_mut(&tid) {
            Some(refused) if is_lookup => refused.walks = true,
            Some(refused) if refused.walks && refused.op == op => {}
            Some(_) => drop(threads.remove(&tid)),
            None => {}
        });
    }

    /// A thread was answered: something was made or changed, or a name led to nothing.
    pub fn over(&self, tid: u32) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|threads| drop(threads.remove(&tid)));
        }
    }

    /// The inode that `op` of a thread is about is gone. Whether this is the second time in one system call.
    pub fn is_second(&self, tid: u32, op: &'static str, now: Mono) -> bool {
        self.change(|threads| {
            let was = threads.remove(&tid).filter(|refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            if was.is_some_and(|refused| refused.walks && refused.op == op) {
                return true;
            }
            threads.retain(|_, refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            if threads.len() >= THREADS_MAX {
                threads.pop_first();
            }
            threads.insert(tid, Refused { op, walks: false, at: now });
            false
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u32, Refused>) -> T) -> T {
        let mut threads = self.by_thread.lock();
        let changed = change(&mut threads);
        self.count.store(threads.len(), Ordering::Relaxed);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(0);

    #[test]
    fn the_second_time_in_one_call_is_told_from_the_first_of_another() {
        let stale = Stale::default();
        let ask = |op: &'static str| stale.asked(7, op, op == "lookup");
        assert!(!stale.is_second(7, "open", NOW));
        ask("lookup");
        ask("lookup");
        ask("open");
        assert!(stale.is_second(7, "open", NOW));
        // By descriptor: nothing is looked up in between.
        assert!(!stale.is_second(7, "getattr", NOW));
        ask("getattr");
        assert!(!stale.is_second(7, "getattr", NOW));
        // The second walk found nothing, or came to its end.
        ask("lookup");
        stale.over(7);
        ask("lookup");
        ask("getattr");
        assert!(!stale.is_second(7, "getattr", NOW));
        // Another operation, and another thread.
        ask("lookup");
        ask("open");
        assert!(!stale.is_second(7, "open", NOW));
        ask("lookup");
        assert!(!stale.is_second(8, "open", NOW));
        assert!(!stale.is_second(7, "open", NOW.plus_ms(GOOD_FOR_MS)), "too late");
    }

    #[test]
    fn memory_is_bounded() {
        let stale = Stale::default();
        (0..2 * THREADS_MAX as u32).for_each(|tid| assert!(!stale.is_second(tid, "open", NOW)));
        assert_eq!(stale.count.load(Ordering::Relaxed), THREADS_MAX);
    }
}
