//! How many readers wait at the device.
//!
//! The kernel gives messages to waiting readers in turn. Where a program asks for one thing after the other two readers share
//! its requests, each with the cold caches of another processor, and every other one is woken where the program itself is about
//! to go on. One reader alone serves it faster (note 007). So as few are at work as are needed, and the others rest:
//!
//! * A reader that hardly ever has to wait for a message calls another one.
//! * A reader that mostly waits rests, unless it is the last.
//! * One of those that rest is the *watch*: it looks now and then whether those at work get on. If all of them are still with
//!   the message that they had the last time (a handler that blocks, a processor that is taken away), it joins them.
//!
//! Invariant: at least one reader is at work, and a message waits for at most [`WATCH`] longer than for a free reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Messages after which a reader looks how often it had to wait.
const WINDOW: u32 = 64;
/// A reader that waited for no more of them calls another one: while it deals with one message the next ones come.
const WAITS_BUSY: u32 = WINDOW * 5 / 16;
/// A reader that waited for so many of them rests.
const WAITS_IDLE: u32 = WINDOW * 3 / 4;
/// How often the watch looks.
const WATCH: Duration = Duration::from_millis(10);
/// After so many looks at which nobody had moved the watch rests, too, until there is a message again.
const LOOKS_QUIET: u32 = 100;

/// What a reader finds that looks how often it had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It could not keep up with more.
    Busy,
    Fair,
    /// It had next to nothing to do.
    Idle,
}

/// What one reader counts.
#[derive(Default)]
pub(super) struct Window {
    messages: u32,
    waits: u32,
}

impl Window {
    /// Counts a message; a verdict at the end of each window.
    pub fn count(&mut self, waited: bool) -> Option<Pace> {
        self.messages += 1;
        self.waits += u32::from(waited);
        if self.messages < WINDOW {
            return None;
        }
        let waits = std::mem::take(self).waits;
        Some(match waits {
            0..=WAITS_BUSY => Pace::Busy,
            WAITS_IDLE.. => Pace::Idle,
            _ => Pace::Fair,
        })
    }
}

struct State {
    /// By reader.
    at_work: Vec<bool>,
    /// Readers that are to begin.
    calls: usize,
    /// One of those that rest is the watch.
    watched: bool,
    over: bool,
}

impl State {
    fn working(&self) -> usize {
        self.at_work.iter().filter(|at_work| **at_work).count()
    }

    fn begin(&mut self, me: usize) {
        self.at_work[me] = true;
    }
}

/// Whether every reader at work is still with the message that it had at the last look.
fn all_are_stuck(at_work: &[bool], last: &[u64], now: &[u64]) -> bool {
    let is_stuck = |n: usize| now[n] % 2 == 1 && last.get(n) == Some(&now[n]);
    (0..now.len()).filter(|n| at_work[*n]).all(is_stuck)
}

/// The readers of a session.
pub(super) struct Crew {
    /// By reader: messages taken and dealt with; odd while it has one.
    steps: Vec<AtomicU64>,
    state: Mutex<State>,
    called: Condvar,
    /// Nobody is the watch, because nobody has moved for long.
    unwatched: AtomicBool,
}

impl Crew {
    /// `count` readers, of which the first is at work.
    pub fn new(count: usize) -> Crew {
        let at_work = (0..count).map(|n| n == 0).collect();
        Crew {
            steps: (0..count).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(State { at_work, calls: 0, watched: false, over: false }),
            called: Condvar::new(),
            unwatched: AtomicBool::new(true),
        }
    }

    /// A reader has a message.
    pub fn takes(&self, me: usize) {
        self.steps[me].fetch_add(1, Ordering::Relaxed);
        if self.unwatched.load(Ordering::Relaxed) && self.unwatched.swap(false, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.called.notify_one();
        }
    }

    /// It is done with it.
    pub fn is_done(&self, me: usize) {
        self.steps[me].fetch_add(1, Ordering::Relaxed);
    }

    /// One more is needed; nothing if there is none.
    pub fn call(&self) {
        let mut state = self.state.lock();
        if state.working() + state.calls < state.at_work.len() {
            state.calls += 1;
            self.called.notify_one();
        }
    }

    /// Whether the reader is one of those that rest.
    pub fn is_resting(&self, me: usize) -> bool {
        !self.state.lock().at_work[me]
    }

    /// The reader would rest. Not if it is the last.
    pub fn leaves(&self, me: usize) -> bool {
        let mut state = self.state.lock();
        let may = state.working() > 1;
        if may {
            state.at_work[me] = false;
        }
        may
    }

    /// Rests until the reader is needed. `false`: the session is over.
    pub fn rest(&self, me: usize) -> bool {
        let mut state = self.state.lock();
        let mut last = Vec::new();
        let mut quiet = 0;
        while !state.over {
            if state.calls > 0 {
                state.calls -= 1;
                state.begin(me);
                // If this was the watch, another one is.
                self.called.notify_one();
                return true;
            }
            if state.watched || quiet >= LOOKS_QUIET {
                self.unwatched.store(!state.watched, Ordering::Relaxed);
                self.called.wait(&mut state);
                quiet = 0;
                continue;
            }
            state.watched = true;
            let timed_out = self.called.wait_for(&mut state, WATCH).timed_out();
            state.watched = false;
            if !timed_out {
                continue;
            }
            let now: Vec<u64> = self.steps.iter().map(|s| s.load(Ordering::Relaxed)).collect();
            if all_are_stuck(&state.at_work, &last, &now) {
                state.calls += 1;
            }
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
        false
    }

    /// The session is over: nobody rests any longer.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    /// Far longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Has reader `me` rest in a thread of its own; says when it is needed, or that the session is over.
    fn rests(crew: &Arc<Crew>, me: usize) -> mpsc::Receiver<bool> {
        let (tell, told) = mpsc::channel();
        let crew = crew.clone();
        std::thread::spawn(move || tell.send(crew.rest(me)));
        told
    }

    #[test]
    fn a_reader_that_seldom_waits_is_busy_and_one_that_mostly_waits_is_idle() {
        let pace = |waits: u32| {
            let mut window = Window::default();
            let paces: Vec<_> = (0..WINDOW).filter_map(|n| window.count(n < waits)).collect();
            assert_eq!(paces.len(), 1, "one verdict in a window");
            paces[0]
        };
        assert_eq!((pace(0), pace(WAITS_BUSY), pace(WAITS_BUSY + 1)), (Pace::Busy, Pace::Busy, Pace::Fair));
        assert_eq!(
            (pace(WAITS_IDLE - 1), pace(WAITS_IDLE), pace(WINDOW)),
            (Pace::Fair, Pace::Idle, Pace::Idle)
        );
    }

    #[test]
    fn the_first_is_at_work_and_the_last_never_leaves() {
        let crew = Crew::new(3);
        assert_eq!([0, 1, 2].map(|n| crew.is_resting(n)), [false, true, true]);
        assert!(!crew.leaves(0));
        for _ in 0..5 {
            crew.call();
        }
        assert!(crew.rest(1) && crew.rest(2), "both are called, and no call is left over");
        assert!(crew.leaves(0) && crew.leaves(2) && !crew.leaves(1));
        assert_eq!(crew.state.lock().calls, 0);
    }

    #[test]
    fn who_rests_comes_when_called_and_goes_when_it_is_over() {
        let crew = Arc::new(Crew::new(3));
        let resting = [rests(&crew, 1), rests(&crew, 2)];
        crew.call();
        let first = resting.iter().position(|r| r.recv_timeout(PATIENCE / 10) == Ok(true));
        let other = 1 - first.expect("one of them comes");
        assert_eq!(resting[other].try_recv(), Err(mpsc::TryRecvError::Empty), "and only one");
        crew.end();
        assert_eq!(resting[other].recv_timeout(PATIENCE), Ok(false));
    }

    #[test]
    fn a_reader_that_is_stuck_in_a_handler_is_noticed_also_after_a_long_rest() {
        let crew = Arc::new(Crew::new(3));
        let resting = [rests(&crew, 1), rests(&crew, 2)];
        // Until the watch has looked in vain for long.
        let is_unwatched = || crew.unwatched.load(Ordering::Relaxed);
        crew.takes(0);
        crew.is_done(0);
        let until = std::time::Instant::now() + PATIENCE;
        while !is_unwatched() {
            assert!(std::time::Instant::now() < until, "it looks for ever");
            std::thread::yield_now();
        }
        assert!(
            resting.iter().all(|r| r.try_recv().is_err()),
            "a reader that waits for a message is not stuck"
        );
        crew.takes(0);
        let comes = |r: &mpsc::Receiver<bool>| r.recv_timeout(PATIENCE / 10) == Ok(true);
        let first = resting.iter().position(comes).expect("one comes to help");
        // That one gets stuck, too.
        crew.takes(1 + first);
        assert_eq!(resting[1 - first].recv_timeout(PATIENCE), Ok(true));
        assert_eq!(crew.state.lock().working(), 3);
    }

    #[test]
    fn only_if_all_are_with_the_message_that_they_had_the_last_time_are_they_stuck() {
        let stuck = |last: &[u64], now: &[u64]| all_are_stuck(&[true, false, true], last, now);
        assert!(stuck(&[1, 0, 7], &[1, 0, 7]));
        assert!(stuck(&[1, 2, 7], &[1, 5, 7]), "who rests does not count");
        assert!(!stuck(&[1, 0, 6], &[1, 0, 6]), "one waits for a message");
        assert!(!stuck(&[1, 0, 5], &[1, 0, 7]), "one has got on to another message");
        assert!(!stuck(&[], &[1, 0, 7]), "the first look");
    }
}
