//! One process with a store: a simulation of its own over a disk that outlives it.

use std::future::Future;
use std::sync::Arc;

use brindle_sim::{Crash, DiskModel, Node, SimDisk, Stuck};
use brindle_stdx::Seams;

/// Bytes of a device that no test fills.
pub const LARGE_BYTES: u64 = 1 << 30;

/// A disk of a size, with the directory of the MDT on it.
pub fn new_disk(seed: u64, capacity_bytes: u64) -> SimDisk {
    let model = DiskModel { block_bytes: 4096, sync_pauses: 2, ..DiskModel::default() };
    let disk = SimDisk::new(seed, model);
    disk.set_capacity_bytes((capacity_bytes < LARGE_BYTES).then_some(capacity_bytes));
    disk.put_dir(super::DIR);
    disk
}

/// One simulated process.
pub struct Sim {
    sim: Arc<brindle_sim::Sim>,
    node: Node,
    pub seams: Seams,
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.kill_tasks();
    }
}

impl Sim {
    pub fn new(seed: u64, disk: &SimDisk) -> Sim {
        let sim = brindle_sim::Sim::new(seed);
        let node = Node::new(&sim, "mds");
        let seams = node.seams_with(Arc::new(disk.clone()));
        Sim { sim, node, seams }
    }

    /// Ends all background tasks, as the death of the process does.
    pub fn kill_tasks(&self) {
        self.node.crash(Crash::Kill);
    }

    /// Runs until `main` is done.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.run_for(u64::MAX, main).expect("the future never completes")
    }

    /// Runs until `main` is done, or `None` when it is not within `ms` or waits for nothing that can happen.
    pub fn run_for<T>(&self, ms: u64, main: impl Future<Output = T>) -> Option<T> {
        match self.sim.run_until(ms, main) {
            Ok(out) => Some(out),
            Err(Stuck::Livelock) => panic!("nothing ends: a task spins"),
            Err(Stuck::OutOfTime | Stuck::Deadlock) => None,
        }
    }

    /// Lets `ms` of time pass.
    pub fn pass_ms(&self, ms: u64) {
        self.run(self.seams.sleep_ms(ms));
    }
}
