//! The simulator: real code over simulated seams, in one thread, from one seed.
//!
//! [`World`] is the handle that tests hold: it makes nodes, runs futures in virtual time and injects faults. A node
//! is a host with one process (one *incarnation* at a time) and one disk. The simulator does not know what runs on
//! a node.
//!
//! | part | file | seam |
//! |---|---|---|
//! | tasks and virtual time | `exec.rs` | `Spawn`, `Clock` |
//! | connections, latency, partitions | `net.rs` | `Transport` |
//! | torn, lost and reordered writes | `disk/` | `Disk` |
//! | what happened, as a hash | `trace.rs` | |
//!
//! Invariant: the same seed and the same code give the same sequence of events, hence the same
//! [`World::trace_hash`]. Code under test must not read real time, spawn threads or iterate over hash maps.

mod disk;
mod exec;
mod net;
mod rng;
mod seams;
mod trace;
mod world;

#[cfg(test)]
mod tests;

pub use disk::{DiskControl, DiskOp, LIMITED_BYTES, SECTOR_LEN};
pub use exec::{Stuck, log_ns};
pub use net::{Direction, NetConfig};
pub use rng::SplitMix;
pub use world::{Crash, NodeSeams, World};
