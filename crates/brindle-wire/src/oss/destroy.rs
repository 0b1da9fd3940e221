//! destroy_objects: sent by the MDT after the cause is durable. Idempotent.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Removes objects. Missing ones count as removed; a removed one is never made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyObjectsReq {
    /// The objects.
    pub objects: Vec<ObjectId>,
}

/// Done and durable, but for the objects that are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyObjectsResp {
    /// Number of objects that existed and are gone.
    pub removed: u32,
    /// Objects that are still there because the disk failed; the MDT asks again.
    pub stuck: Vec<ObjectId>,
}
message!(DestroyObjectsReq => DestroyObjectsResp, DestroyObjects);
