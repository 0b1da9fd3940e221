//! The executor: one thread, virtual time, seeded choice among the tasks that can run.
//!
//! Time passes in two ways: each poll takes up to two microseconds, and when no task can run the clock jumps to the
//! next timer. Tasks belong to a [`Group`] (one incarnation of a node), all of whose futures can be dropped at once.
//!
//! Invariant: no lock of the simulator is held while a future is polled or dropped, or while a waker is woken.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use brindle_stdx::Task;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::rng::{SplitMix, mix, mix_text};
use crate::trace::Trace;

/// Longest that one poll takes in virtual time.
const POLL_MAX_NS: u64 = 2_000;
/// Polls without any progress of the clock by a timer after which the run counts as a livelock.
const POLLS_MAX: u64 = 50_000_000;
/// Number of the future that [`Sim::run_until`] drives.
const MAIN: u64 = 0;

/// Reason why a run ended before its future did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The virtual time limit was reached.
    OutOfTime,
    /// No task can ever run again: a deadlock.
    Deadlock,
    /// Tasks run for ever without waiting: a livelock.
    Livelock,
}

/// An incarnation of a node: lives from start or restart to kill or power cut.
pub struct Group {
    node: String,
    number: u64,
    alive: AtomicBool,
    /// While it stands still: the tasks that would run.
    held: Mutex<Option<Vec<Waker>>>,
}

impl Group {
    /// The incarnation with this number of a node.
    pub fn new(node: &str, number: u64) -> Arc<Group> {
        Arc::new(Group {
            node: node.to_owned(),
            number,
            alive: AtomicBool::new(true),
            held: Mutex::default(),
        })
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Number of the incarnation; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next incarnation of the same node.
    pub fn next(&self) -> Arc<Group> {
        Group::new(&self.node, self.number + 1)
    }

    /// Whether the process still lives.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// The process dies: nothing that it asks for has an effect any more.
    pub fn die(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    /// Stops all tasks of the group, as if by a signal; its clock goes on.
    pub fn stand_still(&self) {
        self.held.lock().get_or_insert_default();
    }

    /// Whether it stands still.
    pub fn is_still(&self) -> bool {
        self.held.lock().is_some()
    }

    /// Lets the tasks of the group go on.
    pub fn go_on(&self) {
        let held = self.held.lock().take();
        held.into_iter().flatten().for_each(Waker::wake);
    }
}

struct Slot {
    /// Absent while it is polled.
    future: Option<Task>,
    waker: Waker,
    group: Arc<Group>,
    name: &'static str,
}

thread_local! {
    /// Virtual time of the task that this thread polls, for log lines.
    static LOG_NS: Cell<u64> = const { Cell::new(0) };
}

/// Virtual time of the world that runs on this thread, for log lines: what services say is read beside the trace.
pub fn log_ns() -> u64 {
    LOG_NS.get()
}

/// An action of the simulated world at a point in time.
type Action = Box<dyn FnOnce() + Send>;

enum Timer {
    Wake(Waker),
    Act(Action),
}

/// Place of a timer: its time, and a number that keeps equal times apart.
type TimerKey = (u64, u64);

struct Exec {
    now_ns: u64,
    rng: SplitMix,
    next_id: u64,
    tasks: BTreeMap<u64, Slot>,
    timers: BTreeMap<TimerKey, Timer>,
    ready: Arc<Mutex<Ready>>,
}

/// Tasks that were woken, in order of their numbers: the order of waking is not always the same (a tokio `watch` wakes
/// its waiters in an order of its own), the set is.
#[derive(Default)]
struct Ready {
    order: Vec<u64>,
}

struct TaskWaker {
    id: u64,
    ready: Arc<Mutex<Ready>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock();
        if let Err(at) = ready.order.binary_search(&self.id) {
            ready.order.insert(at, self.id);
        }
    }
}

impl Exec {
    fn new(seed: u64) -> Exec {
        Exec {
            now_ns: 1_000_000_000,
            rng: SplitMix::new(seed),
            next_id: MAIN + 1,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            ready: Arc::default(),
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn waker(&self, id: u64) -> Waker {
        Arc::new(TaskWaker { id, ready: self.ready.clone() }).into()
    }

    fn add_timer(&mut self, at_ns: u64, timer: Timer) -> TimerKey {
        let key = (at_ns.max(self.now_ns), self.id());
        self.timers.insert(key, timer);
        key
    }

    /// The next timer that is due.
    fn due(&mut self) -> Option<Timer> {
        let entry = self.timers.first_entry()?;
        (entry.key().0 <= self.now_ns).then(|| entry.remove())
    }
}

/// A simulation: tasks, virtual time, chance and a trace, all from one seed.
pub struct Sim {
    seed: u64,
    exec: Mutex<Exec>,
    trace: Mutex<Trace>,
}

impl Sim {
    /// A simulation without tasks, in which everything follows from `seed`.
    pub fn new(seed: u64) -> Arc<Sim> {
        Arc::new(Sim { seed, exec: Mutex::new(Exec::new(mix(seed, 1))), trace: Mutex::default() })
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The record of what happened. Nothing else of the simulation may be called while the guard lives.
    pub fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock()
    }

    /// Chance of the simulation itself. Nothing else of the simulation may be called while the guard lives.
    pub fn rng(&self) -> MappedMutexGuard<'_, SplitMix> {
        MutexGuard::map(self.exec.lock(), |exec| &mut exec.rng)
    }

    /// Records and counts an event.
    pub fn note(&self, what: &'static str, detail: &str) {
        let now_ns = self.now_ns();
        let mut trace = self.trace.lock();
        trace.event(what, &[mix_text(0, detail), now_ns]);
        trace.count(what);
        trace.line(|| format!("{now_ns:>15} *** {what} {detail}"));
    }

    /// Forgets all timers: nothing that was planned will happen. What they held is dropped with the value returned.
    pub fn forget_timers(&self) -> impl Drop + use<> {
        std::mem::take(&mut self.exec.lock().timers)
    }

    /// Adds a task to a group; one of a dead group is dropped.
    pub fn spawn(&self, group: &Arc<Group>, name: &'static str, task: Task) {
        if !group.is_alive() {
            return;
        }
        let mut exec = self.exec.lock();
        let id = exec.id();
        let waker = exec.waker(id);
        let slot = Slot { future: Some(task), waker: waker.clone(), group: group.clone(), name };
        exec.tasks.insert(id, slot);
        drop(exec);
        waker.wake();
    }

    /// Ends a group: its futures are dropped, and every future that it spawns from now on.
    pub fn end_group(&self, group: &Arc<Group>) {
        group.die();
        let mut exec = self.exec.lock();
        let members = exec.tasks.iter().filter(|(_, slot)| Arc::ptr_eq(&slot.group, group));
        let ids: Vec<u64> = members.map(|(id, _)| *id).collect();
        let slots: Vec<Slot> = ids.iter().filter_map(|id| exec.tasks.remove(id)).collect();
        drop(exec);
        drop(slots);
    }

    /// Does something at a point in time.
    pub fn act_at(&self, at_ns: u64, action: impl FnOnce() + Send + 'static) {
        self.exec.lock().add_timer(at_ns, Timer::Act(Box::new(action)));
    }

    /// Virtual time in nanoseconds (clocks of nodes differ from it).
    pub fn now_ns(&self) -> u64 {
        self.exec.lock().now_ns
    }

    /// Runs everything until `future` is done, for at most `limit_ms` of virtual time.
    pub fn run_until<F: Future>(&self, limit_ms: u64, future: F) -> Result<F::Output, Stuck> {
        let until_ns = self.now_ns().saturating_add(limit_ms.saturating_mul(1_000_000));
        self.run(until_ns, future)
    }

    fn run<F: Future>(&self, until_ns: u64, future: F) -> Result<F::Output, Stuck> {
        let mut future = pin!(future);
        let main = self.exec.lock().waker(MAIN);
        main.wake_by_ref();
        let mut polls = 0;
        loop {
            self.fire_due();
            if self.now_ns() >= until_ns {
                return Err(Stuck::OutOfTime);
            }
            match self.choose() {
                Some(MAIN) => {
                    let polled = future.as_mut().poll(&mut Context::from_waker(&main));
                    if let Poll::Ready(out) = polled {
                        return Ok(out);
                    }
                }
                Some(id) => self.poll_task(id),
                None => {
                    polls = 0;
                    self.jump(until_ns)?;
                }
            }
            polls += 1;
            if polls > POLLS_MAX {
                return Err(Stuck::Livelock);
            }
        }
    }

    fn fire_due(&self) {
        loop {
            let timer = self.exec.lock().due();
            match timer {
                None => return,
                Some(Timer::Wake(waker)) => waker.wake(),
                Some(Timer::Act(action)) => action(),
            }
        }
    }

    /// Chooses a task that can run.
    fn choose(&self) -> Option<u64> {
        let mut exec = self.exec.lock();
        let count = exec.ready.lock().order.len();
        if count == 0 {
            return None;
        }
        let at = exec.rng.below(count as u64) as usize;
        let took = exec.rng.below(POLL_MAX_NS);
        exec.now_ns += took;
        let mut ready = exec.ready.lock();
        Some(ready.order.remove(at))
    }

    fn poll_task(&self, id: u64) {
        let mut exec = self.exec.lock();
        let Some(slot) = exec.tasks.get_mut(&id) else { return };
        if let Some(held) = slot.group.held.lock().as_mut() {
            held.push(slot.waker.clone());
            return;
        }
        let Some(mut future) = slot.future.take() else { return };
        let (waker, name) = (slot.waker.clone(), slot.name);
        let now_ns = exec.now_ns;
        drop(exec);
        LOG_NS.set(now_ns);
        let mut trace = self.trace.lock();
        trace.event(name, &[id, now_ns]);
        drop(trace);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut exec = self.exec.lock();
        let ended = if done {
            exec.tasks.remove(&id)
        } else {
            // The slot is gone when the task's own group was ended while it ran.
            match exec.tasks.get_mut(&id) {
                Some(slot) => {
                    slot.future = Some(future);
                    return;
                }
                None => None,
            }
        };
        drop(exec);
        drop(ended);
        drop(future);
    }

    /// Lets the clock jump to the next timer.
    fn jump(&self, until_ns: u64) -> Result<(), Stuck> {
        let mut exec = self.exec.lock();
        let next_ns = exec.timers.first_key_value().map(|(key, _)| key.0);
        match next_ns {
            None if until_ns == u64::MAX => Err(Stuck::Deadlock),
            None => {
                exec.now_ns = until_ns;
                Ok(())
            }
            Some(at_ns) => {
                exec.now_ns = exec.now_ns.max(at_ns.min(until_ns));
                Ok(())
            }
        }
    }
}

/// Completes at a point in virtual time.
pub struct Sleep {
    sim: Arc<Sim>,
    at_ns: u64,
    key: Option<TimerKey>,
}

impl Sleep {
    /// Completes when the virtual time of `sim` is `at_ns`.
    pub fn new(sim: Arc<Sim>, at_ns: u64) -> Sleep {
        Sleep { sim, at_ns, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sim = self.sim.clone();
        let mut exec = sim.exec.lock();
        let old = self.key.take().and_then(|key| exec.timers.remove(&key));
        let now = if exec.now_ns >= self.at_ns {
            Poll::Ready(())
        } else {
            self.key = Some(exec.add_timer(self.at_ns, Timer::Wake(cx.waker().clone())));
            Poll::Pending
        };
        drop(exec);
        drop(old);
        now
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let old = self.sim.exec.lock().timers.remove(&key);
        drop(old);
    }
}
