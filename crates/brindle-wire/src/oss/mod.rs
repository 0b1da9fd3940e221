//! Messages of the OSS, one file per operation or per small family.
//!
//! The header of every write carries session, slot, sequence and session epoch. The [`Ticket`] says which layout and
//! truncate epoch the client believes in.

pub mod destroy;
pub mod fence;
pub mod grant;
pub mod list;
pub mod punch;
pub mod read;
pub mod replica;
pub mod scrub;
pub mod seek;
pub mod stat;
pub mod statfs;
pub mod sync;
pub mod truncate;
pub mod write;

use brindle_types::{ObjectId, Pair};
use serde::{Deserialize, Serialize};

/// The right to touch an object, as the MDT gave it out. (Signed once hosts are enrolled; the body is versioned.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Layout epoch; an OST refuses older ones than it was told.
    pub layout_epoch: Pair,
    /// Truncate epoch; likewise.
    pub truncate_epoch: Pair,
    /// Attribute epoch, kept with the object's time of last write.
    pub attr_epoch: Pair,
    /// The MDT knows that the object exists. Where it is missing the OST answers `ObjectMissing`: it neither reads zeros nor makes
    /// another object.
    pub must_exist: bool,
}

/// Clients that may hold pages of the changed range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marks {
    /// No client.
    None,
    /// Sessions that have read since the last change.
    Sessions(Vec<brindle_types::SessionId>),
    /// The OST restarted since: everybody with a readable handle counts.
    Unknown,
}

/// Most [`AcknowledgedMarks`] in one request.
pub const TOLD_MAX: usize = 32;

/// Marks that an OST had given to a change, and whose holders have dropped their pages since. Until it hears of that the
/// OST gives them to every change that meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgedMarks {
    /// The object.
    pub object: ObjectId,
    /// A number from [`ChangeResp::takings`].
    pub taking: u64,
    /// First byte of the object that was dropped.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// Grant of one OST: bytes that a client may have acknowledged to programs and not yet sent
/// ([`write::room_bytes`]). Only the answer to a write lowers it, by no more than that write's room. So the
/// client never has more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of the OST process that grants.
    pub life: u64,
    /// Of two grants of one life the one with the higher number is newer.
    pub serial: u64,
    /// The bytes, including those of requests under way.
    pub bytes: u64,
}

/// The answer of everything that changes an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeResp {
    /// Boot term of the OST: what was written under an older one and not synced may be lost.
    pub boot_term: u32,
    /// Readers whose pages must go before the change is acknowledged.
    pub marks: Marks,
    /// Numbers by which the client confirms the marks when their pages are gone. Empty: the marks are given out again.
    pub takings: Vec<u64>,
    /// Allocated bytes of the object afterwards.
    pub allocated_bytes: u64,
}
