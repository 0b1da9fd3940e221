//! Turns of tests: a test that is sensitive to other load has the machine alone. Tests on hosts of their own wait most of the time, and run
//! two at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tests on hosts that run at once.
const PLACES: u32 = 2;

static LINE: Mutex<Line> = Mutex::new(Line { taken: 0, next_ticket: 0, waiting: VecDeque::new() });
static MOVED: Condvar = Condvar::new();

/// Tests that wait, in the order in which they came: one that wants the machine alone gets it.
struct Line {
    taken: u32,
    next_ticket: u64,
    waiting: VecDeque<u64>,
}

/// A test's turn, until it is dropped.
pub struct Turn {
    places: u32,
}

impl Turn {
    /// Waits until no other test runs, and keeps others from it.
    pub fn alone() -> Turn {
        Turn::of(PLACES)
    }

    /// Waits until at most one other test runs, and that is one on hosts.
    pub fn beside_another() -> Turn {
        Turn::of(1)
    }

    fn of(places: u32) -> Turn {
        let mut line = lock();
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.waiting.push_back(ticket);
        while line.waiting.front() != Some(&ticket) || line.taken + places > PLACES {
            line = MOVED.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.waiting.pop_front();
        line.taken += places;
        drop(line);
        MOVED.notify_all();
        Turn { places }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock().taken -= self.places;
        MOVED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}
