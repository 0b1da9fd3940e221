//! The simulator: real code over simulated seams, in one thread, from one seed.
//!
//! [`World`] is the handle that tests hold: it makes nodes, runs futures in virtual time and injects faults. A node
//! is a host with one process (one *incarnation* at a time) and one disk. The simulator does not know what runs on
//! a node.
//!
//! | part | where |
//! |---|---|
//! | tasks, virtual time, disks that lose what was not synced, the trace | `brindle-sim` |
//! | connections, latency, partitions (`Transport`) | `net.rs` |
//! | nodes, and their faults | `world.rs` |
//!
//! Invariant: the same seed and the same code give the same sequence of events, hence the same
//! [`World::trace_hash`]. Code under test must not read real time, spawn threads or iterate over hash maps.

mod net;
mod world;

#[cfg(test)]
mod tests;

pub use brindle_sim::{Crash, DiskOp, LIMITED_BYTES, SECTOR_LEN, SimDisk, SplitMix, Stuck, log_ns};
pub use net::{Direction, NetConfig};
pub use world::{NodeSeams, World};
