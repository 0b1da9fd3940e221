//! read: bytes of one object; they are the reply frame's bulk.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use super::Ticket;
use crate::message;

/// Reads from one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReq {
    /// The object.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes wanted.
    pub len_bytes: u32,
    /// The reader's kernel may keep the pages: set its mark.
    pub may_cache: bool,
    /// Rights.
    pub ticket: Ticket,
}

/// The bytes are the bulk; fewer than asked where the object ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadResp {
    /// Whether the object exists.
    pub exists: bool,
    /// Boot term of the OST.
    pub boot_term: u32,
}
message!(ReadReq => ReadResp, Read);
