//! ESTALE: a program that gave a path must never see it.
//!
//! An operation on an inode that somebody has removed is answered ESTALE, so that the kernel walks the path again: a file of the same
//! name may have been made meanwhile. The kernel does so once (`retry_estale` of Linux). If the new file is gone by then too, the kernel
//! would hand ESTALE to the program. At that moment the path led to nothing, which is ENOENT.
//!
//! A second walk is known by what the thread asks: LOOKUPs that all find something, with GETATTRs of the directories on the way, then the
//! wanted operation. A name that is to be made is looked up, too, and the last LOOKUP finds nothing. Where the kernel remembers a name it
//! asks whether the name still leads to the same inode; if not, it looks the same name up once more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_stdx::{Mono, crc, crc_append};
use parking_lot::Mutex;

use crate::request::Op;

/// Threads remembered; beyond them the lowest goes.
const THREADS_MAX: usize = 1024;
/// Longest time that the kernel may take to walk a path again.
const GOOD_FOR_MS: u64 = 5_000;

/// Progress of a thread that was refused with ESTALE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryProgress {
    /// The thread is at the point of the refusal.
    Refused,
    /// The thread walks the path for the second time.
    Walking,
    /// The thread has looked at a file: the call wanted just that, or is about to open it.
    Arrived,
    /// On its way for the second time a name led to nothing: the call is over, or is about to make it, or looks it up once more.
    Absent,
}

/// A name in a directory, as far as two steps of one thread are to be told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Name(u32);

/// A thread whose last request was refused with ESTALE.
struct Refused {
    part: Part,
    place: RetryProgress,
    /// The name that it looked up last.
    name: Name,
    at: Mono,
}

impl Refused {
    fn walks(&mut self, name: Name) {
        (self.place, self.name) = (RetryProgress::Walking, name);
    }
}

/// The part of an operation in a system call on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A step of the walk.
    Step,
    /// A request that may be on the way, to check a permission or to follow a link, or be the wanted operation.
    Look,
    /// The aim of the call.
    Act,
}

/// The part that an operation has.
pub(crate) fn part(op: &Op) -> Part {
    match op {
        Op::Lookup(_) => Part::Step,
        Op::Getattr(_) | Op::Statx(_) | Op::Readlink | Op::Getxattr(_) | Op::Access(_) => Part::Look,
        _ => Part::Act,
    }
}

/// The name that an operation on the node `nodeid` looks up.
fn name(nodeid: u64, op: &Op) -> Name {
    match op {
        Op::Lookup(op) => Name(crc_append(crc(&nodeid.to_le_bytes()), &op.name)),
        _ => Name::default(),
    }
}

/// Threads that walk a path again.
#[derive(Default)]
pub(crate) struct Stale {
    by_thread: Mutex<BTreeMap<u32, Refused>>,
    /// Number of entries.
    count: AtomicUsize,
}

impl Stale {
    /// Whether no thread is remembered.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A thread asks for something of the node `nodeid`.
    pub fn asked(&self, tid: u32, nodeid: u64, op: &Op) {
        if !self.is_empty() {
            self.goes_on(tid, part(op), name(nodeid, op));
        }
    }

    fn goes_on(&self, tid: u32, part: Part, name: Name) {
        self.change(|threads| {
            let Some(refused) = threads.get_mut(&tid) else { return };
            match (part, refused.place) {
                (Part::Step, RetryProgress::Refused | RetryProgress::Walking) => refused.walks(name),
                (Part::Step, RetryProgress::Absent) if name == refused.name => refused.walks(name),
                // The thread is in a later system call.
                (Part::Step, _) | (Part::Act, RetryProgress::Refused) => drop(threads.remove(&tid)),
                _ => {}
            }
        });
    }

    /// A thread has looked at something.
    pub fn seen(&self, tid: u32, is_dir: bool) {
        self.change(|threads| match threads.get_mut(&tid) {
            Some(refused) if !is_dir => refused.place = RetryProgress::Arrived,
            // The directory may be the aim of the call.
            Some(refused) if refused.part == Part::Look => refused.place = RetryProgress::Refused,
            _ => {}
        });
    }

    /// A name led a thread to nothing.
    pub fn absent(&self, tid: u32) {
        if self.is_empty() {
            return;
        }
        self.change(|threads| match threads.get_mut(&tid) {
            Some(refused) if refused.place == RetryProgress::Walking => refused.place = RetryProgress::Absent,
            _ => drop(threads.remove(&tid)),
        });
    }

    /// A thread has come to its end: something was made, changed or shown.
    pub fn over(&self, tid: u32) {
        if !self.is_empty() {
            self.change(|threads| threads.remove(&tid));
        }
    }

    /// The inode that a thread asks for is gone. Whether this is the second time in one system call.
    pub fn is_second(&self, tid: u32, part: Part, now: Mono) -> bool {
        self.change(|threads| {
            let was = threads.remove(&tid).filter(|refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            match was.map(|refused| refused.place) {
                Some(RetryProgress::Walking) => return true,
                Some(RetryProgress::Arrived | RetryProgress::Absent) if part == Part::Act => return true,
                _ => {}
            }
            threads.retain(|_, refused| now.ms_since(refused.at) < GOOD_FOR_MS);
            if threads.len() >= THREADS_MAX {
                threads.pop_first();
            }
            threads
                .insert(tid, Refused { part, place: RetryProgress::Refused, name: Name::default(), at: now });
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
    use std::cell::Cell;

    use super::*;

    use Part::{Act, Look, Step};

    const NOW: Mono = Mono(0);

    #[test]
    fn the_second_time_in_one_call_is_told_from_the_first_of_another() {
        let stale = Stale::default();
        // Each step has a new name.
        let steps = Cell::new(0);
        let ask = |part| {
            steps.set(steps.get() + 1);
            stale.goes_on(7, part, Name(steps.get()));
        };
        let is_second = |part| stale.is_second(7, part, NOW);
        assert!(!is_second(Act));
        ask(Step);
        ask(Step);
        ask(Act);
        assert!(is_second(Act));
        // On the way permissions are checked, of directories and of the file that is opened.
        for first in [Look, Act] {
            assert!(!is_second(first));
            ask(Step);
            ask(Look);
            stale.seen(7, true);
            ask(Step);
            ask(Look);
            stale.seen(7, false);
            ask(Act);
            assert!(is_second(Act));
        }
        // By descriptor: nothing is looked up in between.
        assert!(!is_second(Look));
        ask(Look);
        assert!(!is_second(Look));
        // The wanted file was seen.
        ask(Step);
        ask(Look);
        stale.seen(7, false);
        ask(Look);
        assert!(!is_second(Look));
        ask(Step);
        ask(Look);
        stale.seen(7, false);
        ask(Step);
        ask(Look);
        assert!(!is_second(Look));
        // The kernel looks a name up before it makes it; the directory goes in between.
        assert!(!is_second(Act));
        ask(Step);
        stale.seen(7, true);
        ask(Step);
        stale.absent(7);
        ask(Look);
        ask(Act);
        assert!(is_second(Act));
        // The name was all that the call wanted; the next one looks for something else.
        assert!(!is_second(Act));
        ask(Step);
        stale.absent(7);
        ask(Step);
        ask(Act);
        assert!(!is_second(Act));
        // The second walk came to its end.
        ask(Step);
        stale.over(7);
        ask(Step);
        ask(Act);
        assert!(!is_second(Act));
        // A different operation, a different thread, too late.
        ask(Act);
        ask(Step);
        assert!(!is_second(Act));
        ask(Step);
        assert!(!stale.is_second(8, Act, NOW));
        assert!(!stale.is_second(7, Act, NOW.plus_ms(GOOD_FOR_MS)));
    }

    /// A name that the kernel remembered has gone, and by the time it is looked up anew there is another.
    #[test]
    fn a_name_that_is_looked_up_twice_is_of_one_walk() {
        let stale = Stale::default();
        assert!(!stale.is_second(7, Act, NOW));
        stale.goes_on(7, Step, Name(1));
        stale.absent(7);
        stale.goes_on(7, Step, Name(1));
        stale.goes_on(7, Look, Name(0));
        stale.seen(7, true);
        stale.goes_on(7, Step, Name(2));
        stale.goes_on(7, Look, Name(0));
        stale.seen(7, false);
        stale.goes_on(7, Act, Name(0));
        assert!(stale.is_second(7, Act, NOW));
    }

    #[test]
    fn memory_is_bounded() {
        let stale = Stale::default();
        (0..2 * THREADS_MAX as u32).for_each(|tid| assert!(!stale.is_second(tid, Act, NOW)));
        assert_eq!(stale.count.load(Ordering::Relaxed), THREADS_MAX);
    }
}
