//! owner_query: an OST asks whether objects are still wanted. Answered from committed state only; age never decides.

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Most objects in one [`OwnerQueryReq`].
pub const OWNER_ITEMS_MAX: usize = 4096;

/// Asks about objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerQueryReq {
    /// The objects, all on one OST.
    pub objects: Vec<ObjectId>,
    /// OST that asks.
    pub ost: u16,
}

/// The MDT's verdict on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Part of a file, or pending to become one.
    Owned,
    /// The MDT issued this generation and disowns it: garbage.
    Disowned,
    /// An inode or term that this MDT never issued: quarantine, never destroy.
    Unknown,
}

/// A verdict for each object, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerQueryResp {
    /// Verdicts.
    pub verdicts: Vec<Verdict>,
}
message!(OwnerQueryReq => OwnerQueryResp, OwnerQuery);
