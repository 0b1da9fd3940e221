//! list_objects: for fsck and the garbage collector.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for objects in order behind one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListObjectsReq {
    /// Last object that the caller has.
    pub after: Option<ObjectId>,
    /// Most objects to return.
    pub limit: u32,
}

/// Some objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListObjectsResp {
    /// Objects with their length in bytes, in an order that stays.
    pub objects: Vec<(ObjectId, u64)>,
    /// Whether nothing follows.
    pub end: bool,
}
message!(ListObjectsReq => ListObjectsResp, ListObjects);
