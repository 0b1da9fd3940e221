//! stat_objects: length and time of last write of objects (the MDT asks while several clients write).

use brindle_types::attr::Time;
use brindle_types::{ObjectId, Pair};
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks about objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatObjectsReq {
    /// The objects.
    pub objects: Vec<ObjectId>,
}

/// State of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStat {
    /// Whether it exists.
    pub exists: bool,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Server time of the last write, with the attribute epoch it carried.
    pub last_write: Option<(Pair, Time)>,
    /// The file of the object ends before bytes that were synced: it is damaged.
    pub is_cut_short: bool,
    /// Lowest truncate epoch that is accepted.
    pub truncate_epoch: Pair,
}

/// States in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatObjectsResp {
    /// The objects.
    pub objects: Vec<ObjectStat>,
    /// Boot term of the OST.
    pub boot_term: u32,
}
message!(StatObjectsReq => StatObjectsResp, StatObjects);
