//! punch and allocate: fallocate's halves at an OST.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use super::{ChangeResp, Ticket};
use crate::message;

/// Makes a range read as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PunchReq {
    /// The object; a missing one stays missing.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Keep (or reserve) the space: FALLOC_FL_ZERO_RANGE.
    pub keep_space: bool,
    /// Rights.
    pub ticket: Ticket,
}
message!(PunchReq => ChangeResp, Punch);

/// Reserves space for a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateReq {
    /// The object; made when it is missing.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Leave the object's length as it is: FALLOC_FL_KEEP_SIZE.
    pub keep_len: bool,
    /// Rights.
    pub ticket: Ticket,
}
message!(AllocateReq => ChangeResp, Allocate);
