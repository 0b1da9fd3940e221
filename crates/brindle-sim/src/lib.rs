//! The lower part of the simulator: tasks, virtual time, chance, a trace, and disks that lose what was not synced.
//!
//! Real code runs over these seams in one thread, from one seed. The crate lies below everything that has state on a
//! disk, so that each crate tests with the same disk as the simulated clusters of `brindle-testkit`, which adds the
//! network and the services. Used by tests only.
//!
//! | part | file | seam |
//! |---|---|---|
//! | tasks and virtual time | `exec.rs` | `Spawn`, `Clock` |
//! | hosts and their incarnations | `node.rs` | |
//! | torn, lost and reordered writes | `disk/` | `Disk` |
//! | clocks and chance | `seams.rs`, `rng.rs` | `Clock`, `Rng` |
//! | what happened, as a hash | `trace.rs` | |
//!
//! Invariant: the same seed and the same code give the same sequence of events, hence the same hash. Code under test
//! must not read real time, spawn threads or iterate over hash maps.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "simulations choose their numbers"
)]

pub mod disk;
mod exec;
mod node;
pub mod rng;
mod seams;
mod trace;

pub use disk::{DiskModel, DiskOp, LIMITED_BYTES, SECTOR_LEN, SimDisk, Survival};
pub use exec::{Group, Sim, Sleep, Stuck, log_ns};
pub use node::{Crash, Node};
pub use rng::SplitMix;
pub use seams::ManualClock;
pub use trace::Trace;
