//! The object storage service: one OST on the network.
//!
//! | module | holds |
//! |---|---|
//! | [`dispatch`] | operation number -> handler, a table of contents |
//! | [`ops`] | one file per operation, named like its message |
//! | [`replica`] | one of several members with the same objects |
//! | [`service`] | epochs checked, requests in, replies out |
//! | [`format()`] | a new OST |
//! | [`marks`] | which clients may hold pages of what |
//! | [`collect`] | garbage, found by asking the MDT |
//! | [`scrub`] | damage on the disk, found by reading everything |
//! | [`start`] | starting and stopping |
//! | [`stats`], [`health`] | counters; whether the disk returns errors |
//!
//! Bytes, checksums, slots and fences are the business of `brindle-objects`. Invariants: DESIGN section 12, numbers 4, 6,
//! 8, 13.

pub mod collect;
pub mod config;
pub mod dispatch;
pub mod fences;
pub mod format;
pub mod health;
pub mod marks;
pub mod ops;
pub mod replica;
pub mod rights;
pub mod scrub;
pub mod service;
pub mod start;
pub mod stats;

pub use brindle_objects::{ReadCache, Replies};
pub use config::Config;
pub use format::format;
pub use service::Oss;
pub use start::{Handle, start};
