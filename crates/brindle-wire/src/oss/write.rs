//! write: step 6 of write, from `brindle-client/src/file/scatter.rs` to `brindle-oss/src/ops/write.rs`. The bytes are the
//! frame's bulk; the checksum in the header is the client's own.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use super::{AcknowledgedMarks, ChangeResp, Grant, Ticket};
use crate::message;

/// Bytes of a block of an object, and of the checksums of a region.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of an object that share a block of checksums.
const REGION_BYTES: u64 = 4 << 20;

/// The most room that a write of `len_bytes` at `offset` of an object can take: whole blocks, checksums, the object's header.
/// Defined for all numbers: a request may hold any.
pub fn room_bytes(offset: u64, len_bytes: u64) -> u64 {
    let end = offset.saturating_add(len_bytes).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
    let regions = 1 + end / REGION_BYTES - offset / REGION_BYTES;
    (end - offset / BLOCK_BYTES * BLOCK_BYTES).saturating_add(BLOCK_BYTES * (1 + regions))
}

/// Writes bytes into one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReq {
    /// The object; made when it is missing, unless the ticket says that it must exist.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Rights.
    pub ticket: Ticket,
    /// Whether the bytes must be on stable storage before the answer (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// Marks of earlier changes that were dealt with; at most [`super::TOLD_MAX`].
    pub told: Vec<AcknowledgedMarks>,
    /// The client's claim to reserved space; `None` from servers, and from clients that do not buffer.
    pub claim: Option<Claim>,
}
message!(WriteReq => WriteResp, Write);

/// Room that an OST keeps for a client, so that what the client has acknowledged to a program finds room when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The bytes were acknowledged on the strength of the grant: they may use room that is kept back.
    pub covered: bool,
    /// The grant that the client was told last; a restarted OST takes its word for it.
    pub holds_bytes: u64,
}

/// The change, and the space that is reserved for the client from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResp {
    /// Outcome as for every change.
    pub change: ChangeResp,
    /// `None` without a claim, and when the answer was stored.
    pub grant: Option<Grant>,
}

/// Copies bytes of another object into this one, between OSTs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRangeReq {
    /// Object to read.
    pub source: ObjectId,
    /// OST that holds it.
    pub source_ost: u16,
    /// First byte in the source object.
    pub source_offset: u64,
    /// The source object is known to exist ([`Ticket::must_exist`]).
    pub source_must_exist: bool,
    /// Object to write.
    pub object: ObjectId,
    /// First byte within it.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Rights on the object written.
    pub ticket: Ticket,
}
message!(CopyRangeReq => ChangeResp, CopyRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_write_is_defined_for_all_numbers() {
        assert_eq!(room_bytes(0, 1), 3 * BLOCK_BYTES);
        assert_eq!(room_bytes(4095, 2), 4 * BLOCK_BYTES);
        let all = [0, 1, 4095, (1 << 62) - 1, 1 << 62, i64::MAX as u64, u64::MAX - 4095, u64::MAX];
        for (offset, len_bytes) in all.into_iter().flat_map(|offset| all.map(|len| (offset, len))) {
            let least = len_bytes.min(u64::MAX - offset);
            assert!(room_bytes(offset, len_bytes) >= least, "{len_bytes} bytes at {offset}");
        }
    }
}
