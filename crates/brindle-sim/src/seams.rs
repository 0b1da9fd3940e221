//! Clock, randomness and tasks: those of an incarnation of a simulated node, and those that a test moves by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use brindle_stdx::{BoxFuture, Clock, Disk, Mono, Rng, Seams, Spawn, Task, Timestamp};
use parking_lot::Mutex;

use crate::exec::{Group, Sim, Sleep};
use crate::rng::SplitMix;

/// Civil time at the start of a world: 2026-01-01T00:00:00Z.
const EPOCH_S: i64 = 1_767_225_600;
const NS_PER_S: i64 = 1_000_000_000;
const MILLION: i128 = 1_000_000;

/// Difference between a node's clocks and those of the world.
#[derive(Default)]
pub(crate) struct Skew {
    /// Added to the monotonic clock: when the host was booted. Changes at a power cut only.
    pub mono_ns: AtomicU64,
    /// Added to civil time; jumps at will.
    pub wall_ns: AtomicI64,
    /// Parts in a million by which the monotonic clock is too fast. Set before anything reads the clock.
    pub rate_ppm: AtomicI64,
}

/// The clocks of a node.
pub(crate) struct SimClock {
    pub sim: Arc<Sim>,
    pub skew: Arc<Skew>,
}

impl SimClock {
    fn mono_skew_ns(&self) -> u64 {
        self.skew.mono_ns.load(Ordering::Relaxed)
    }

    /// Speed of the monotonic clock, in parts in a million.
    fn rate_ppm(&self) -> u128 {
        (MILLION + i128::from(self.skew.rate_ppm.load(Ordering::Relaxed))).unsigned_abs()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Mono {
        let own_ns = u128::from(self.sim.now_ns()) * self.rate_ppm() / MILLION.unsigned_abs();
        Mono(own_ns as u64 + self.mono_skew_ns())
    }

    fn wall(&self) -> Timestamp {
        let ns = self.sim.now_ns() as i64 + self.skew.wall_ns.load(Ordering::Relaxed);
        Timestamp::new(EPOCH_S + ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S) as u32)
    }

    fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
        let own_ns = u128::from(at.0.saturating_sub(self.mono_skew_ns()));
        // Not before that moment by the node's own clock.
        let at_ns = (own_ns * MILLION.unsigned_abs()).div_ceil(self.rate_ppm()) as u64;
        Box::pin(Sleep::new(self.sim.clone(), at_ns))
    }
}

struct SimRng(Mutex<SplitMix>);

impl Rng for SimRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

struct SimSpawn {
    sim: Arc<Sim>,
    group: Arc<Group>,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        self.sim.spawn(&self.group, name, task);
    }
}

/// The seams of an incarnation.
pub(crate) fn seams(group: &Arc<Group>, clock: Arc<SimClock>, rng: SplitMix, disk: Arc<dyn Disk>) -> Seams {
    let tasks = Arc::new(SimSpawn { sim: clock.sim.clone(), group: group.clone() });
    Seams { clock, rng: Arc::new(SimRng(Mutex::new(rng))), tasks, disk }
}

/// Time that moves when a test says so. Nobody wakes who sleeps by it.
#[derive(Default)]
pub struct ManualClock(Mutex<Mono>);

impl ManualClock {
    /// Moves time.
    pub fn advance_ms(&self, ms: u64) {
        let mut now = self.0.lock();
        *now = now.plus_ms(ms);
    }

    /// Seams with this clock and a disk, constant chance, and tasks that never run.
    pub fn seams(self: &Arc<Self>, disk: Arc<dyn Disk>) -> Seams {
        Seams { clock: self.clone(), rng: Arc::new(NoChance), tasks: Arc::new(NoTasks), disk }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Mono {
        *self.0.lock()
    }

    fn wall(&self) -> Timestamp {
        let ns = self.now().0;
        Timestamp::new((ns / NS_PER_S as u64) as i64 + 1_000_000, (ns % NS_PER_S as u64) as u32)
    }

    fn sleep_until(&self, _at: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

struct NoChance;

impl Rng for NoChance {
    fn next_u64(&self) -> u64 {
        4
    }
}

struct NoTasks;

impl Spawn for NoTasks {
    fn spawn(&self, _name: &'static str, task: Task) {
        drop(task);
    }
}
