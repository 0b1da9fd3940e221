//! ESTALE, which no program that gave a path is to see.
//!
//! An operation on an inode that somebody has removed is answered ESTALE, so that the kernel walks the path again: a file
//! of the same name may have been made meanwhile. The kernel does so once (`retry_estale` of Linux). Where the new file is
//! gone by then too it would hand ESTALE to the program; the path led to nothing at that moment, and that is ENOENT.
//!
//! A second walk is known by what the thread asks: LOOKUPs that all find something, with looks at the directories on the way, then
//! the same operation again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_stdx::Mono;
use parking_lot::Mutex;

use crate::request::Op;

/// Threads remembered; beyond them the lowest goes.
const THREADS_MAX: usize = 1024;
/// How long the kernel may take to walk a path again.
const GOOD_FOR_MS: u64 = 5_000;

/// What a thread was last refused with ESTALE.
struct Refused {
    op: &'static str,
    part: Part,
    walks: bool,
    at: Mono,
}

/// What an operation is in a system call on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A step of the walk.
    Step,
    /// May be made on the way, to check a permission or to follow a link, or be what is wanted.
    Look,
    /// What is wanted.
    Act,
}

/// Which part an operation is.
pub(crate) fn part(op: &Op) -> Part {
    match op {
        Op::Lookup(_) => Part::Step,
        Op::Getattr(_) | Op::Statx(_) | Op::Readlink | Op::Getxattr(_) | Op::Access(_) => Part::Look,
        _ => Part::Act,
    }
}

/// Threads that walk a path again.
#[derive(Default)]
pub(crate) struct Stale {
    by_thread: Mutex<BTreeMap<u32, Refused>>,
    /// How many there are.
    count: AtomicUsize,
}

impl Stale {
    /// Whether no thread is remembered.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A thread asks for something. Whether it walks a path for the second time is known from this.
    pub fn asked(&self, tid: u32, op: &'static str, part: Part) {
        if self.is_empty() {
            return;
        }
        self.change(|threads| match threads.get_mut(&tid) {
            Some(refused) if part == Part::Step => refused.walks = true,
            Some(_) if part == Part::Look => {}
            Some(refused) if refused.walks && refused.op == op => {}
            Some(_) => drop(threads.remove(&tid)),
            None => {}
        });
    }

    /// A thread has looked at something. If it wants more, or that was a directory, it is on its way still.
    pub fn seen(&self, tid: u32, is_dir: bool) {
        self.change(|threads| match threads.get_mut(&tid) {
            Some(refused) if refused.part == Part::Look && is_dir => refused.walks = false,
            Some(refused) if refused.part == Part::Look => drop(threads.remove(&tid)),
            _ => {}
        });
    }

    /// A thread has come to its end: something was made, changed or shown, or a name led to nothing.
    pub fn over(&self, tid: u32) {
        if !self.is_empty() {
            self.change(|threads| drop(threads.remove(&tid)));
        }
    }

    /// The inode that `op` of a thread is about is gone. Whether this is the second time in one system call.
    pub fn is_second(&self, tid: u32, (op, part): (&'static str, Part), now: Mono) -> bool {
        self.change(|threads| {
            let was = threads.remove(&tid).filter(|refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            if was.is_some_and(|refused| refused.walks && refused.op == op) {
                return true;
            }
            threads.retain(|_, refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            if threads.len() >= THREADS_MAX {
                threads.pop_first();
            }
            threads.insert(tid, Refused { op, part, walks: false, at: now });
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
    const OPEN: (&str, Part) = ("open", Part::Act);
    const GETATTR: (&str, Part) = ("getattr", Part::Look);

    #[test]
    fn the_second_time_in_one_call_is_told_from_the_first_of_another() {
        let stale = Stale::default();
        let ask = |op: &'static str| {
            let part = match op {
                "lookup" => Part::Step,
                "getattr" => Part::Look,
                _ => Part::Act,
            };
            stale.asked(7, op, part);
        };
        assert!(!stale.is_second(7, OPEN, NOW));
        ask("lookup");
        ask("lookup");
        ask("open");
        assert!(stale.is_second(7, OPEN, NOW));
        // Permissions of directories are looked at on the way.
        assert!(!stale.is_second(7, OPEN, NOW));
        ask("lookup");
        ask("getattr");
        stale.seen(7, true);
        ask("lookup");
        ask("getattr");
        stale.seen(7, false);
        ask("open");
        assert!(stale.is_second(7, OPEN, NOW));
        // By descriptor: nothing is looked up in between.
        assert!(!stale.is_second(7, GETATTR, NOW));
        ask("getattr");
        assert!(!stale.is_second(7, GETATTR, NOW));
        // What was wanted was seen.
        ask("lookup");
        ask("getattr");
        stale.seen(7, false);
        ask("lookup");
        ask("getattr");
        assert!(!stale.is_second(7, GETATTR, NOW));
        // The second walk found nothing, or came to its end.
        ask("lookup");
        stale.over(7);
        ask("lookup");
        ask("getattr");
        assert!(!stale.is_second(7, GETATTR, NOW));
        // Another operation, and another thread.
        ask("lookup");
        ask("open");
        assert!(!stale.is_second(7, OPEN, NOW));
        ask("lookup");
        assert!(!stale.is_second(8, OPEN, NOW));
        assert!(!stale.is_second(7, OPEN, NOW.plus_ms(GOOD_FOR_MS)), "too late");
    }

    #[test]
    fn memory_is_bounded() {
        let stale = Stale::default();
        (0..2 * THREADS_MAX as u32).for_each(|tid| assert!(!stale.is_second(tid, OPEN, NOW)));
        assert_eq!(stale.count.load(Ordering::Relaxed), THREADS_MAX);
    }
}
