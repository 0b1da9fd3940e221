//! The cluster's configuration and the identity of each target.
//!
//! [`ConfigStore`] keeps what must be agreed on: the map of targets and their epochs (later pools, policies, buffers).
//! Called by the MGS; [`LocalStore`] is its one-node backend over a `Disk`, [`EtcdStore`] the one that survives hosts. [`Superblock`] says what a target's
//! directory holds; it is written by `brindle format` and read by whoever serves or checks the target.
//!
//! Invariant: never inodes, sessions, locks, queues or statistics. The store is needed only to change membership:
//! while it is away, I/O goes on.

pub mod envelope;
pub mod etcd;
pub mod local;
pub mod neighbours;
#[cfg(test)]
mod properties;
pub mod store;
pub mod superblock;

pub use etcd::EtcdStore;
pub use local::LocalStore;
pub use neighbours::neighbour;
pub use store::{ConfigStore, Entry, Swap, WRITES_MAX, Watch, Write};
pub use superblock::{Expected, Loaded, Superblock};
