//! seek: data and holes of one object.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for the next data or hole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekReq {
    /// The object.
    pub object: ObjectId,
    /// Offset in the object to search from.
    pub offset: u64,
    /// Data (`true`) or a hole.
    pub data: bool,
    /// Whether the object must exist, as in [`super::Ticket::must_exist`].
    pub must_exist: bool,
}

/// Offset of the data or hole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekResp {
    /// First byte of the data or hole; `None` for data: there is none. The end of the object counts as a hole.
    pub offset: Option<u64>,
}
message!(SeekReq => SeekResp, Seek);
