//! write: Step 6 of write: from `brindle-client/src/file/scatter.rs` to `brindle-oss/src/ops/write.rs`. The bytes are
//! the frame's bulk, its checksum in the header is the client's own.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use super::{ChangeResp, Ticket, Told};
use crate::message;

/// Writes bytes into one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReq {
    /// The object; made when it is missing.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Rights.
    pub ticket: Ticket,
    /// On stable storage before the answer (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// Marks of earlier changes that were dealt with; at most [`super::TOLD_MAX`].
    pub told: Vec<Told>,
}
message!(WriteReq => ChangeResp, Write);

/// Copies bytes of another object into this one, between OSTs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRangeReq {
    /// Object to read.
    pub source: ObjectId,
    /// OST that holds it.
    pub source_ost: u16,
    /// First byte in the source object.
    pub source_offset: u64,
    /// Whether the source object is known to exist.
    pub source_known: bool,
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
