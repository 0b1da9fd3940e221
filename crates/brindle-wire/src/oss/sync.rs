//! sync_objects: makes objects durable, and reports which of them exist.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Syncs objects (contents, checksums, directory entries).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncObjectsReq {
    /// The objects.
    pub objects: Vec<ObjectId>,
}

/// The objects are durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncObjectsResp {
    /// Boot term of the OST.
    pub boot_term: u32,
    /// Whether each exists, in the order of the request.
    pub exists: Vec<bool>,
    /// Allocated bytes of all of them.
    pub allocated_bytes: u64,
}
message!(SyncObjectsReq => SyncObjectsResp, SyncObjects);
