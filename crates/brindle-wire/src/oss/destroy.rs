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

/// Done and durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyObjectsResp {
    /// How many existed.
    pub removed: u32,
}
message!(DestroyObjectsReq => DestroyObjectsResp, DestroyObjects);
