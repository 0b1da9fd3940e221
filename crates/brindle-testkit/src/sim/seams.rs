//! Clock, randomness and tasks of one incarnation of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use brindle_stdx::{BoxFuture, Clock, Mono, Rng, Spawn, Task, Timestamp};
use parking_lot::Mutex;

use super::exec::{Group, Sleep};
use super::rng::SplitMix;
use super::world::Shared;

/// Civil time at the start of a world: 2026-01-01T00:00:00Z.
const EPOCH_S: i64 = 1_767_225_600;
const NS_PER_S: i64 = 1_000_000_000;

/// Difference between a node's clocks and those of the world.
#[derive(Default)]
pub(super) struct Skew {
    /// Added to the monotonic clock: when the host was booted. Changes at a power cut only.
    pub mono_ns: AtomicU64,
    /// Added to civil time; jumps at will.
    pub wall_ns: AtomicI64,
}

pub(super) struct SimClock {
    pub shared: Arc<Shared>,
    pub skew: Arc<Skew>,
}

impl SimClock {
    fn mono_skew_ns(&self) -> u64 {
        self.skew.mono_ns.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Mono {
        Mono(self.shared.now_ns() + self.mono_skew_ns())
    }

    fn wall(&self) -> Timestamp {
        let ns = self.shared.now_ns() as i64 + self.skew.wall_ns.load(Ordering::Relaxed);
        Timestamp::new(EPOCH_S + ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S) as u32)
    }

    fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
        let at_ns = at.0.saturating_sub(self.mono_skew_ns());
        Box::pin(Sleep::new(self.shared.clone(), at_ns))
    }
}

pub(super) struct SimRng(pub Mutex<SplitMix>);

impl Rng for SimRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

pub(super) struct SimSpawn {
    pub shared: Arc<Shared>,
    pub group: Arc<Group>,
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, task: Task) {
        self.shared.spawn(&self.group, name, task);
    }
}
