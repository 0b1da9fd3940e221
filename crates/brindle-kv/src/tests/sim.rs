//! Seeded chance, a clock that jumps, and a runtime that polls tasks in a random order: the seams of these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use brindle_stdx::{BoxFuture, Clock, Mono, Rng, Seams, Spawn, Task, Timestamp};
use parking_lot::Mutex;

use super::disk::CrashDisk;

/// xorshift from a seed.
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Default)]
struct Timers {
    now: Mono,
    seq: u64,
    due: BTreeMap<(Mono, u64), Waker>,
}

/// Time that moves only when nobody can work.
#[derive(Clone, Default)]
struct SimClock(Arc<Mutex<Timers>>);

impl Clock for SimClock {
    fn now(&self) -> Mono {
        self.0.lock().now
    }

    fn wall(&self) -> Timestamp {
        Timestamp::default()
    }

    fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
        let timers = self.0.clone();
        Box::pin(std::future::poll_fn(move |cx| {
            let mut timers = timers.lock();
            if timers.now >= at {
                return Poll::Ready(());
            }
            timers.seq += 1;
            let key = (at, timers.seq);
            timers.due.insert(key, cx.waker().clone());
            Poll::Pending
        }))
    }
}

struct SimRng(Mutex<Chance>);

impl Rng for SimRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next()
    }
}

#[derive(Default)]
struct Tasks {
    next: u64,
    alive: BTreeMap<u64, Option<Task>>,
    ready: BTreeSet<u64>,
}

#[derive(Clone, Default)]
struct SimSpawn(Arc<Mutex<Tasks>>);

impl Spawn for SimSpawn {
    fn spawn(&self, _name: &'static str, task: Task) {
        let mut tasks = self.0.lock();
        tasks.next += 1;
        let id = tasks.next;
        tasks.alive.insert(id, Some(task));
        tasks.ready.insert(id);
    }
}

struct TaskWaker(u64, Arc<Mutex<Tasks>>);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.1.lock().ready.insert(self.0);
    }
}

/// The main future has this id.
const MAIN: u64 = 0;
/// More polls than any test needs: past them something spins or hangs.
const POLLS_MAX: u64 = 3_000_000;

/// One simulated process.
pub struct Sim {
    clock: SimClock,
    tasks: SimSpawn,
    chance: Mutex<Chance>,
    pub seams: Seams,
}

impl Sim {
    pub fn new(seed: u64, disk: &CrashDisk) -> Sim {
        let (clock, tasks) = (SimClock::default(), SimSpawn::default());
        let seams = Seams {
            clock: Arc::new(clock.clone()),
            rng: Arc::new(SimRng(Mutex::new(Chance::new(seed ^ 0x5a17)))),
            tasks: Arc::new(tasks.clone()),
            disk: Arc::new(disk.clone()),
        };
        Sim { clock, tasks, chance: Mutex::new(Chance::new(seed)), seams }
    }

    /// Ends all background tasks, as the death of the process does.
    pub fn kill_tasks(&self) {
        let tasks = std::mem::take(&mut self.tasks.0.lock().alive);
        drop(tasks);
    }

    /// Runs until `main` is done.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.run_for(u64::MAX, main).expect("the future never completes")
    }

    /// Runs until `main` is done, or `None` when it is not within `ms` or waits for nothing that can happen.
    pub fn run_for<T>(&self, ms: u64, main: impl Future<Output = T>) -> Option<T> {
        let mut main = std::pin::pin!(main);
        let until = self.clock.now().plus_ms(ms);
        self.tasks.0.lock().ready.insert(MAIN);
        for _ in 0..POLLS_MAX {
            let Some(id) = self.pick() else {
                if !self.advance(until) {
                    return None;
                }
                continue;
            };
            let waker = Waker::from(Arc::new(TaskWaker(id, self.tasks.0.clone())));
            let mut cx = Context::from_waker(&waker);
            if id == MAIN {
                if let Poll::Ready(out) = main.as_mut().poll(&mut cx) {
                    return Some(out);
                }
                continue;
            }
            let task = self.tasks.0.lock().alive.get_mut(&id).and_then(Option::take);
            let Some(mut task) = task else { continue };
            let done = task.as_mut().poll(&mut cx).is_ready();
            let mut tasks = self.tasks.0.lock();
            if done {
                tasks.alive.remove(&id);
            } else if let Some(slot) = tasks.alive.get_mut(&id) {
                *slot = Some(task);
            }
        }
        panic!("nothing ends: a task spins");
    }

    fn pick(&self) -> Option<u64> {
        let mut tasks = self.tasks.0.lock();
        if tasks.ready.is_empty() {
            return None;
        }
        let n = self.chance.lock().below(tasks.ready.len() as u64) as usize;
        let id = tasks.ready.iter().nth(n).copied();
        id.filter(|id| tasks.ready.remove(id))
    }

    fn advance(&self, until: Mono) -> bool {
        let mut timers = self.clock.0.lock();
        let Some(((at, _), waker)) = timers.due.pop_first() else { return false };
        if at > until {
            timers.now = until;
            timers.due.insert((at, 0), waker);
            return false;
        }
        timers.now = timers.now.max(at);
        drop(timers);
        waker.wake();
        true
    }

    /// Lets `ms` of time pass.
    pub fn pass_ms(&self, ms: u64) {
        let at = self.clock.now().plus_ms(ms);
        self.run(self.clock.sleep_until(at));
    }
}
