//! The ordered key-value store of one MDT, behind its own group-commit log.
//!
//! ```text
//!   log (truth)  ->  memtable (batches since the last checkpoint)  ->  redb file (checkpoint)
//! ```
//!
//! Called by `brindle-mds/store` only, under the MDT's single-writer lock for [`Kv::append`], from anywhere for reads
//! and waits, and by fsck through [`KvReader`]. A [`Replica`] follows the log of another store and can become a [`Kv`].
//!
//! Invariants: a prefix of the appended batches survives a crash, each batch whole or not at all; the prefix contains
//! everything that [`Kv::wait`] returned for (Written: process death, Synced: power cut). Every opening has a term of
//! its own, so a pair (term, index) never names two records. Damage is named, never returned as data.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

mod backend;
mod batch;
mod engine;
mod fault;
mod fill;
mod format;
mod group;
mod kv;
mod log;
mod memtable;
mod open;
mod options;
mod reader;
mod replica;
mod scan;
mod segment;
mod snapshot;
mod store;
mod tail;
#[cfg(test)]
mod tests;
mod verify;

pub use batch::{BATCH_BYTES_MAX, Batch, CHANGE_OVERHEAD_BYTES, KEY_BYTES_MAX, LogPos, VALUE_BYTES_MAX};
pub use fault::row_name;
pub use fill::Filling;
pub use kv::Kv;
pub use options::{
    CACHE_BYTES_MAX, Damage, Durability, DurabilityMode, KvOptions, KvStats, MEMTABLE_BYTES_MAX, OpenReport,
    RESERVE_BYTES, SEGMENT_BYTES, SEGMENT_BYTES_FOR_ALL, SEGMENT_BYTES_MIN,
};
pub use reader::KvReader;
pub use replica::{Checkpointed, Checkpointing, Replica};
pub use snapshot::Snapshot;
pub use tail::{decode_records, encode_rows};
pub use verify::{Digest, FileDamage, FilePlace, VERIFY_BYTES, Verified, Verifier, verify};

#[cfg(not(test))]
pub(crate) use brindle_stdx::planted;
#[cfg(test)]
pub(crate) use tests::planted;
