//! [`Node`]: a host of a simulation with one process (one incarnation at a time), its clocks and its disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_stdx::{Disk, Seams};

use crate::disk::SimDisk;
use crate::exec::{Group, Sim};
use crate::rng::{SplitMix, mix, mix_text};
use crate::seams::{SimClock, Skew, seams};

/// Longest time that a host needs to boot after a power cut, on its monotonic clock.
const BOOT_MAX_NS: u64 = 100_000_000_000;
/// Civil clocks of nodes differ by at most this at first.
const WALL_SKEW_MAX_MS: u64 = 500;

/// Way in which a node goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// kill -9: the process is gone, its host goes on.
    Kill,
    /// The host goes dark; what was not synced may be lost.
    PowerCut,
}

/// A host. Clones are the same host, as long as neither is restarted.
#[derive(Clone)]
pub struct Node {
    clock: Arc<SimClock>,
    group: Arc<Group>,
    disk: SimDisk,
}

impl Node {
    /// A host that was just set up, with its first process.
    pub fn new(sim: &Arc<Sim>, name: &str) -> Node {
        let seed = mix_text(sim.seed(), name);
        let mut rng = SplitMix::new(mix(seed, 3));
        let skew = Skew::default();
        skew.mono_ns.store(rng.below(BOOT_MAX_NS), Ordering::Relaxed);
        let wall_ms = rng.below(2 * WALL_SKEW_MAX_MS) as i64 - WALL_SKEW_MAX_MS as i64;
        skew.wall_ns.store(wall_ms * 1_000_000, Ordering::Relaxed);
        let clock = Arc::new(SimClock { sim: sim.clone(), skew: Arc::new(skew) });
        let group = Group::new(name, 1);
        let disk = SimDisk::of_node(group.clone(), clock.clone(), seed);
        Node { clock, group, disk }
    }

    /// The incarnation that runs, or ran last.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// The disk as that incarnation sees it.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Time, chance, tasks and disk of that incarnation.
    pub fn seams(&self) -> Seams {
        self.seams_with(Arc::new(self.disk.clone()))
    }

    /// Like [`Node::seams`], with another disk.
    pub fn seams_with(&self, disk: Arc<dyn Disk>) -> Seams {
        let (group, seed) = (&self.group, self.clock.sim.seed());
        let rng = SplitMix::new(mix(mix_text(mix(seed, 4), group.node()), group.number()));
        seams(group, self.clock.clone(), rng, disk)
    }

    /// Starts the next incarnation; the one before must be dead.
    pub fn restart(&mut self) {
        assert!(!self.group.is_alive(), "one process of {} runs already", self.group.node());
        self.group = self.group.next();
        self.disk = self.disk.seen_by(&self.group);
    }

    /// Takes the incarnation down: its tasks are gone, and with the power what was not synced. A node that is down may lose
    /// its power.
    pub fn crash(&self, how: Crash) {
        let sim = &self.clock.sim;
        sim.end_group(&self.group);
        match how {
            Crash::Kill => self.disk.process_died(),
            Crash::PowerCut => {
                self.disk.host_died();
                let boot_ns = sim.rng().below(BOOT_MAX_NS);
                self.clock.skew.mono_ns.store(boot_ns, Ordering::Relaxed);
            }
        }
    }

    /// Lets the monotonic clock run faster (or slower) by so many parts in a million. Before anything reads it.
    pub fn drift(&self, ppm: i64) {
        self.clock.skew.rate_ppm.store(ppm, Ordering::Relaxed);
    }

    /// Lets civil time jump.
    pub fn jump_wall(&self, ms: i64) {
        self.clock.skew.wall_ns.fetch_add(ms * 1_000_000, Ordering::Relaxed);
    }
}
