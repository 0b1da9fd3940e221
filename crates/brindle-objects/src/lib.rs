//! The object store of an OST: bytes with a checksum for every 4 KiB, in files of a local file system.
//!
//! Called by `brindle-oss` (one [`ObjectStore`] a target) and, read only, by fsck ([`check`]). Knows nothing of
//! connections, sessions' rights or the MDT; a request's place in its slot comes in as a [`slots::Turn`].
//!
//! Invariants: written bytes survive the death of the process, and synced bytes survive a power cut, with right checksums (a store may
//! answer changes only when they are synced: [`replies`]); a block that a crash cannot have torn is never re-summed; a block with a wrong
//! checksum is never returned; a request with an epoch below its fence changes nothing.
//!
//! How a crash is told from damage: a block may be torn by a power cut only at or above the object's high-water mark, or in a region with a
//! write intent ([`intent`]), both of an older boot term ([`boot`]); by the death of the process only within the ranges that the slot table
//! ([`slots`]) names as in flight, or by a cut that the header names. [`ObjectStore`] re-sums these blocks, and no others, before it uses
//! an object for the first time in a boot term. A store of a replica set first tries to take them from another copy that has them whole
//! ([`OtherCopies`]).
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

pub mod boot;
pub mod check;
pub mod fence;
pub mod findings;
pub mod format;
pub mod grants;
pub mod intent;
pub mod names;
pub mod ranges;
pub mod recheck;
pub mod replies;
pub mod slots;
pub mod space;
pub mod stats;
pub mod sums;

mod destroy;
mod list;
mod object;
mod others;
mod punch;
mod read;
mod recent;
mod replica;
mod resum;
mod seek;
mod settle;
mod store;
pub mod sync;
mod truncate;
mod verify;
mod write;
mod writeback_hint;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use destroy::Destroyed;
pub use list::Listed;
pub use others::{OtherCopies, WantedBlocks};
pub use punch::PunchOp;
pub use ranges::{ALL, RangeLock};
pub use read::ReadOut;
pub use recent::ReadCache;
pub use replies::Replies;
pub use store::{Changed, ObjectStore, StoreConfig};
pub use sync::Synced;
pub use verify::{DamagedBlock, Verified};
pub use write::WriteOp;

/// Largest read or write at once, in bytes.
pub const TRANSFER_MAX: usize = 16 << 20;

#[cfg(test)]
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
