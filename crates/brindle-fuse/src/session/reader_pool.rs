//! Number of readers that wait at the device.
//!
//! The kernel gives messages to waiting readers in turn. Where a program asks for one thing after the other, two readers share its
//! requests, each with the cold caches of another processor, and every second time a reader is woken where the program itself is about to
//! go on. A single reader serves such a program faster (note 007). The fastest reader is the one that also takes the answers of the MDT:
//! the [event loop](super::event_loop), number 0. As few readers as needed are therefore at work, and the others rest:
//!
//! * The event loop is at work as long as operations go on where it takes answers, and it has to wait for a message now and then. Outside
//!   of these conditions it leaves the device to one other reader, alone: a message wakes everybody who waits in an event loop, and a
//!   reader besides.
//! * A reader that hardly ever has to wait for a message calls another one.
//! * A reader that mostly waits rests, unless it is the last. The last one gives the device back to the event loop when the event loop's
//!   conditions hold again.
//! * A resting reader is the *watch*: it looks now and then whether the readers at work get on. If all of them are still with the message
//!   that they had the last time (a handler that blocks, a processor that is taken away), the watch joins them.
//!
//! Invariant: at least one reader is at work, or called, and a message waits for at most two [`WATCH`] longer than for a free reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// The reader that is the event loop.
const LEAD: usize = 0;

/// Messages after which a reader looks how often it had to wait.
const WINDOW: u32 = 64;
/// A reader that waited for no more of them calls another one: while it deals with one message the next ones come.
const WAITS_BUSY: u32 = WINDOW * 5 / 16;
/// A reader that waited for so many of them rests.
const WAITS_IDLE: u32 = WINDOW * 3 / 4;
/// Operations resumed on the event loop, within a window, that make it worth reading the device there. A
/// create takes six messages.
const WOKEN_MIN: u64 = 4;
/// Interval between two looks of the watch.
const WATCH: Duration = Duration::from_millis(10);
/// After so many looks at which nobody had moved the watch rests, too, until somebody has something to do.
const LOOKS_QUIET: u32 = 5;

/// Pace of a reader, by how often it had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// The reader never had to wait.
    Never,
    /// The reader could not keep up with more.
    Busy,
    Fair,
    /// The reader had next to nothing to do.
    Idle,
}

/// Counts of a reader.
#[derive(Default)]
pub(super) struct Window {
    messages: u32,
    waits: u32,
    /// Operations that had gone on on the event loop when it began.
    woken: u64,
}

/// Verdict on a window of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub pace: Pace,
    /// Operations go on on the event loop.
    pub answers: bool,
}

impl Window {
    /// Window that begins when `woken` operations have been resumed on the event loop.
    pub fn starting(woken: u64) -> Window {
        Window { woken, ..Window::default() }
    }

    /// Counts a message; a verdict at the end of each window. `woken`: operations that have gone on on the event loop so far.
    pub fn count(&mut self, waited: bool, woken: u64) -> Option<Seen> {
        self.messages += 1;
        self.waits += u32::from(waited);
        if self.messages < WINDOW {
            return None;
        }
        let before = std::mem::replace(self, Window::starting(woken));
        let pace = match before.waits {
            0 => Pace::Never,
            1..=WAITS_BUSY => Pace::Busy,
            WAITS_IDLE.. => Pace::Idle,
            _ => Pace::Fair,
        };
        Some(Seen { pace, answers: woken - before.woken >= WOKEN_MIN })
    }
}

struct State {
    /// Readers at work, by number.
    at_work: Vec<bool>,
    /// Readers that are to begin.
    calls: usize,
    /// Whether one of the resting readers is the watch.
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

/// Has the watch look again.
type Rouse = Box<dyn Fn() + Send + Sync>;

/// State that the event loop and its reader pool share.
#[derive(Default)]
pub(super) struct Beat {
    /// Messages that the event loop has taken, twice; one more while it is awake.
    steps: AtomicU64,
    /// Operations that have gone on on the event loop.
    woken: AtomicU64,
    /// No reader is the watch, because none had work for long.
    unwatched: AtomicBool,
    rouse: OnceLock<Rouse>,
}

impl Beat {
    /// The event loop goes to sleep. Only its own thread says so, and the next three.
    pub fn sleeps(&self) {
        let now = self.steps.load(Ordering::Relaxed);
        self.steps.store(now.next_multiple_of(2), Ordering::Relaxed);
    }

    /// The event loop has woken up.
    pub fn wakes(&self) {
        let now = self.steps.load(Ordering::Relaxed);
        self.steps.store(now | 1, Ordering::Relaxed);
        // A watch that goes to rest looks at the steps once more after it has said so.
        fence(Ordering::SeqCst);
        if self.unwatched.load(Ordering::Relaxed)
            && let Some(rouse) = self.rouse.get()
        {
            rouse();
        }
    }

    /// Counts a message that the event loop takes.
    pub fn takes(&self) {
        let now = self.steps.load(Ordering::Relaxed);
        self.steps.store(now + 2, Ordering::Relaxed);
    }

    /// An operation goes on on it.
    pub fn goes_on(&self) {
        let now = self.woken.load(Ordering::Relaxed);
        self.woken.store(now + 1, Ordering::Relaxed);
    }

    /// Operations that have gone on on it so far.
    pub fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Sets what the event loop does when it wakes up unwatched. An event loop serves one session: the first one counts.
    pub fn on_unwatched(&self, rouse: Rouse) {
        let _ = self.rouse.set(rouse);
    }
}

/// The readers of a session.
pub(super) struct ReaderPool {
    event_loop: Arc<Beat>,
    /// Steps of the other readers: messages taken and dealt with; odd while a reader has one.
    steps: Vec<AtomicU64>,
    state: Mutex<State>,
    called: Condvar,
    lead_called: Notify,
    /// Whether the event loop may have the device.
    event_loop_reads: bool,
}

impl ReaderPool {
    /// The event loop, which is at work, and `others` readers, which are numbered from 1.
    /// `event_loop_reads`: whether the event loop comes back to the device once it has left it, and stays there for longer than its
    /// first messages.
    pub fn new(event_loop: Arc<Beat>, others: usize, event_loop_reads: bool) -> ReaderPool {
        event_loop.unwatched.store(true, Ordering::Relaxed);
        let at_work = (0..=others).map(|n| n == LEAD).collect();
        ReaderPool {
            event_loop,
            steps: (0..others).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(State { at_work, calls: 0, watched: false, over: false }),
            called: Condvar::new(),
            lead_called: Notify::new(),
            event_loop_reads,
        }
    }

    /// The event loop's side.
    pub fn event_loop(&self) -> &Beat {
        &self.event_loop
    }

    /// A reader that is not the event loop has a message.
    pub fn takes(&self, me: usize) {
        self.steps[me - 1].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.event_loop.unwatched.load(Ordering::Relaxed) {
            self.rouse();
        }
    }

    /// The reader is done with its message.
    pub fn is_done(&self, me: usize) {
        self.steps[me - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that there is work: a reader becomes the watch.
    pub fn rouse(&self) {
        if self.event_loop.unwatched.swap(false, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.called.notify_one();
        }
    }

    fn all_steps(&self) -> Vec<u64> {
        let others = self.steps.iter().map(|s| s.load(Ordering::Relaxed));
        std::iter::once(self.event_loop.steps.load(Ordering::Relaxed)).chain(others).collect()
    }

    /// Calls another reader, if one rests.
    pub fn call(&self) {
        let mut state = self.state.lock();
        let resting = state.at_work.iter().skip(LEAD + 1).filter(|at_work| !**at_work).count();
        if state.calls < resting {
            state.calls += 1;
            self.called.notify_one();
        }
    }

    /// Whether the reader is one of those that rest.
    pub fn is_resting(&self, me: usize) -> bool {
        !self.state.lock().at_work[me]
    }

    /// Whether a reader that has seen this rests from now on. If it is the last one the event loop has the device then.
    pub fn leaves(&self, me: usize, seen: Seen) -> bool {
        let mut state = self.state.lock();
        let is_last = state.working() + state.calls == 1;
        let answers = seen.answers && self.event_loop_reads;
        let leaves = match seen.pace {
            Pace::Idle => !is_last || answers,
            Pace::Fair => is_last && answers,
            Pace::Never | Pace::Busy => false,
        };
        if leaves {
            state.at_work[me] = false;
        }
        if leaves && is_last {
            state.begin(LEAD);
            self.lead_called.notify_one();
        }
        leaves
    }

    /// Whether the event loop, which has seen this, leaves the device to others from now on.
    pub fn lead_leaves(&self, seen: Seen) -> bool {
        let leaves = !seen.answers || seen.pace == Pace::Never || !self.event_loop_reads;
        if leaves {
            self.lead_gives_up();
        }
        leaves
    }

    /// The event loop leaves the device to others.
    pub fn lead_gives_up(&self) {
        let mut state = self.state.lock();
        state.at_work[LEAD] = false;
        if state.working() + state.calls == 0 {
            state.calls = 1;
            self.called.notify_one();
        }
    }

    /// Rests until the event loop has the device. `false`: the session is over.
    pub async fn lead_rests(&self) -> bool {
        loop {
            {
                let state = self.state.lock();
                if state.over || state.at_work[LEAD] {
                    return !state.over;
                }
            }
            self.lead_called.notified().await;
        }
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
            if state.watched {
                self.called.wait(&mut state);
                continue;
            }
            if quiet >= LOOKS_QUIET {
                quiet = 0;
                self.event_loop.unwatched.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.all_steps() == last {
                    self.called.wait(&mut state);
                    continue;
                }
            }
            self.event_loop.unwatched.store(false, Ordering::Relaxed);
            state.watched = true;
            let timed_out = self.called.wait_for(&mut state, WATCH).timed_out();
            state.watched = false;
            if !timed_out {
                continue;
            }
            let now = self.all_steps();
            let is_stuck = all_are_stuck(&state.at_work, &last, &now);
            state.calls += usize::from(is_stuck);
            quiet = if now == last && !is_stuck { quiet + 1 } else { 0 };
            last = now;
        }
        false
    }

    /// The session is over: nobody rests any longer.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.called.notify_all();
        self.lead_called.notify_one();
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
    fn rests(reader_pool: &Arc<ReaderPool>, me: usize) -> mpsc::Receiver<bool> {
        let (tell, told) = mpsc::channel();
        let reader_pool = reader_pool.clone();
        std::thread::spawn(move || tell.send(reader_pool.rest(me)));
        told
    }

    #[test]
    fn a_reader_that_seldom_waits_is_busy_and_one_that_mostly_waits_is_idle() {
        let pace = |waits: u32| {
            let mut window = Window::default();
            let seen: Vec<_> = (0..WINDOW).filter_map(|n| window.count(n < waits, 0)).collect();
            assert_eq!(seen.len(), 1, "one verdict in a window");
            seen[0].pace
        };
        assert_eq!((pace(0), pace(1)), (Pace::Never, Pace::Busy));
        assert_eq!((pace(WAITS_BUSY), pace(WAITS_BUSY + 1)), (Pace::Busy, Pace::Fair));
        assert_eq!(
            (pace(WAITS_IDLE - 1), pace(WAITS_IDLE), pace(WINDOW)),
            (Pace::Fair, Pace::Idle, Pace::Idle)
        );
    }

    #[test]
    fn what_goes_on_on_the_lead_counts_by_window() {
        let before = 1000;
        let mut window = Window::starting(before);
        let mut answers =
            |woken| (0..WINDOW).find_map(|_| window.count(true, before + woken)).map(|seen| seen.answers);
        let at =
            [0, WOKEN_MIN - 1, 2 * WOKEN_MIN - 1, 2 * WOKEN_MIN - 1].map(|woken| answers(woken).unwrap());
        assert_eq!(at, [false, false, true, false]);
    }

    const BUSY: Seen = Seen { pace: Pace::Busy, answers: true };
    const FAIR: Seen = Seen { pace: Pace::Fair, answers: true };
    const IDLE: Seen = Seen { pace: Pace::Idle, answers: true };
    const NEVER: Seen = Seen { pace: Pace::Never, answers: true };

    fn without_answers(seen: Seen) -> Seen {
        Seen { answers: false, ..seen }
    }

    /// An event loop, and two others.
    fn reader_pool() -> ReaderPool {
        ReaderPool::new(Arc::default(), 2, true)
    }

    fn is_at_work(reader_pool: &ReaderPool) -> [bool; 3] {
        [0, 1, 2].map(|n| !reader_pool.is_resting(n))
    }

    /// Whether the event loop may have the device.
    async fn lead_comes(reader_pool: &ReaderPool) -> bool {
        tokio::time::timeout(PATIENCE, reader_pool.lead_rests()).await.expect("in time")
    }

    #[tokio::test]
    async fn the_lead_is_at_work_until_it_leaves_and_again_when_the_last_other_one_has_left() {
        let reader_pool = reader_pool();
        assert_eq!(is_at_work(&reader_pool), [true, false, false]);
        assert!(lead_comes(&reader_pool).await);
        assert!(
            !reader_pool.lead_leaves(IDLE)
                && !reader_pool.lead_leaves(BUSY)
                && reader_pool.lead_leaves(NEVER)
        );
        let mut resting = std::pin::pin!(reader_pool.lead_rests());
        assert!(futures_util::poll!(&mut resting).is_pending());
        assert!(reader_pool.rest(2), "one is called");
        for _ in 0..5 {
            reader_pool.call();
        }
        assert!(reader_pool.rest(1), "so is the other, and no call is left over");
        assert_eq!((is_at_work(&reader_pool), reader_pool.state.lock().calls), ([false, true, true], 0));
        assert!(!reader_pool.leaves(1, FAIR), "the second one is of use as long as it does not mostly wait");
        assert!(reader_pool.leaves(1, without_answers(IDLE)));
        assert!(futures_util::poll!(&mut resting).is_pending(), "there is one yet");
        assert!(
            !reader_pool.leaves(2, BUSY)
                && !reader_pool.leaves(2, without_answers(IDLE))
                && reader_pool.leaves(2, FAIR)
        );
        assert!(resting.await);
        assert_eq!(is_at_work(&reader_pool), [true, false, false]);
        assert!(reader_pool.lead_leaves(without_answers(IDLE)), "others need not be told by an event loop");
        reader_pool.end();
        assert!(!lead_comes(&reader_pool).await);
    }

    #[test]
    fn an_event_loop_that_is_switched_off_leaves_and_does_not_come_back() {
        let reader_pool = ReaderPool::new(Arc::default(), 2, false);
        assert!(reader_pool.lead_leaves(BUSY));
        assert!(reader_pool.rest(1));
        assert!(!reader_pool.leaves(1, IDLE) && !reader_pool.leaves(1, FAIR), "the last one stays");
        assert_eq!(is_at_work(&reader_pool), [false, true, false]);
    }

    #[test]
    fn who_was_called_and_has_not_come_counts() {
        let reader_pool = reader_pool();
        assert!(reader_pool.lead_leaves(NEVER));
        assert!(reader_pool.rest(1));
        reader_pool.call();
        assert!(!reader_pool.leaves(1, FAIR) && reader_pool.leaves(1, IDLE));
        assert_eq!(is_at_work(&reader_pool), [false; 3], "the one that was called is on its way");
        assert!(reader_pool.rest(2));
    }

    #[test]
    fn who_rests_comes_when_called_and_goes_when_it_is_over() {
        let reader_pool = Arc::new(reader_pool());
        let resting = [rests(&reader_pool, 1), rests(&reader_pool, 2)];
        reader_pool.call();
        let first = resting.iter().position(|r| r.recv_timeout(PATIENCE / 10) == Ok(true));
        let other = 1 - first.expect("one of them comes");
        assert_eq!(resting[other].try_recv(), Err(mpsc::TryRecvError::Empty), "and only one");
        reader_pool.end();
        assert_eq!(resting[other].recv_timeout(PATIENCE), Ok(false));
    }

    #[test]
    fn a_reader_that_is_stuck_in_a_handler_is_noticed_also_after_a_long_rest() {
        let reader_pool = Arc::new(reader_pool());
        let resting = [rests(&reader_pool, 1), rests(&reader_pool, 2)];
        let watched = Arc::downgrade(&reader_pool);
        reader_pool.event_loop.on_unwatched(Box::new(move || {
            watched.upgrade().iter().for_each(|reader_pool| reader_pool.rouse())
        }));
        // The test waits until the watch has looked in vain for long.
        let is_unwatched = || reader_pool.event_loop.unwatched.load(Ordering::Relaxed);
        reader_pool.rouse();
        let until = std::time::Instant::now() + PATIENCE;
        while !is_unwatched() {
            assert!(std::time::Instant::now() < until, "it looks for ever");
            std::thread::yield_now();
        }
        assert!(
            resting.iter().all(|r| r.try_recv().is_err()),
            "a reader that waits for a message is not stuck"
        );
        // The event loop wakes up, for whatever it may be, and does not get on.
        reader_pool.event_loop.wakes();
        let comes = |r: &mpsc::Receiver<bool>| r.recv_timeout(PATIENCE / 10) == Ok(true);
        let first = resting.iter().position(comes).expect("one comes to help");
        // The second reader gets stuck, too.
        reader_pool.takes(1 + first);
        assert_eq!(resting[1 - first].recv_timeout(PATIENCE), Ok(true));
        assert_eq!(reader_pool.state.lock().working(), 3);
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
