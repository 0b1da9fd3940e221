//! The step of each reader of the FUSE device: waiting, reading, or handling. A caller can wait until every message that was read before has
//! reached its handler.
//!
//! A message that a reader has taken out of the kernel's queue is unknown to all other threads until its handler has begun. Requests are
//! taken in the order in which programs made them, but handled by several threads. With the steps, one thread finds out that the others
//! have begun with all earlier requests.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Steps of one message: none, being read, being looked at.
const PHASES: u64 = 3;
const READING: u64 = 1;
const HANDLING: u64 = 2;
/// Interval between two looks at a reader that is handling a message.
const LOOK: Duration = Duration::from_micros(50);
/// Looks after which a reader is waited for no more: its handler blocks, and began long ago.
const LOOKS_MAX: u32 = 20_000;

/// The readers of a session.
pub(crate) struct Readers(Vec<Reader>);

#[derive(Default)]
struct Reader {
    tid: AtomicU32,
    /// Counts phases.
    steps: AtomicU64,
}

impl Readers {
    /// Steps of `count` readers that have not begun.
    pub fn new(count: usize) -> Readers {
        Readers((0..count).map(|_| Reader::default()).collect())
    }

    /// The calling thread is this reader.
    pub fn begins(&self, me: usize) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.0[me].tid.store(tid.unsigned_abs(), Ordering::SeqCst);
    }

    /// The reader asks the kernel for a message.
    pub fn reads(&self, me: usize) {
        self.0[me].advance(READING);
    }

    /// The reader has a message.
    pub fn took(&self, me: usize) {
        self.0[me].advance(HANDLING);
    }

    /// The handler of the reader's message has begun, or there was no message.
    pub fn is_done(&self, me: usize) {
        self.0[me].advance(0);
    }

    /// Waits until the handlers of all messages have begun that were read before this was called. `sleeps`: whether a thread waits, for a
    /// message if it reads. Blocks.
    pub fn pass(&self, sleeps: impl Fn(u32) -> bool) {
        self.0.iter().for_each(|reader| reader.pass(&sleeps));
    }
}

impl Reader {
    /// Goes on to the next step of this phase. Only its own thread does so.
    fn advance(&self, phase: u64) {
        let now = self.steps.load(Ordering::Relaxed);
        let ahead = (phase + PHASES - now % PHASES) % PHASES;
        self.steps.store(now + ahead, Ordering::SeqCst);
    }

    fn pass(&self, sleeps: &impl Fn(u32) -> bool) {
        let first = self.steps.load(Ordering::SeqCst);
        if first.is_multiple_of(PHASES) {
            return;
        }
        let begun = first.next_multiple_of(PHASES);
        for _ in 0..LOOKS_MAX {
            let waits = first % PHASES == READING && sleeps(self.tid.load(Ordering::SeqCst));
            let now = self.steps.load(Ordering::SeqCst);
            if now >= begun || waits && now == first {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_asks_waits_for_readers_that_have_a_message_and_not_for_those_that_wait_for_one() {
        let readers = Arc::new(Readers::new(2));
        readers.reads(0);
        readers.pass(|_| true);
        // The other reader has a message, and has not begun to handle it.
        readers.reads(1);
        let asleep = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let (asked, state) = (readers.clone(), asleep.clone());
        let thread = std::thread::spawn(move || {
            asked.pass(|tid| tid == 0 && state.load(Ordering::SeqCst));
            tell.send(()).unwrap();
        });
        let is_waiting = || told.recv_timeout(Duration::from_millis(20)).is_err();
        assert!(is_waiting(), "both may have read one");
        readers.took(1);
        asleep.store(true, Ordering::SeqCst);
        assert!(is_waiting(), "one has, and sleeps in the middle of it");
        readers.is_done(1);
        told.recv_timeout(Duration::from_secs(10)).expect("it has begun, and the first waits for a message");
        thread.join().unwrap();
        readers.is_done(0);
        readers.pass(|_| false);
    }
}
