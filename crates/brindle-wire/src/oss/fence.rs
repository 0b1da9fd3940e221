//! Fences: sessions that were ended, and layouts that are no longer valid.

use brindle_types::{ObjectId, Pair, SessionId};
use serde::{Deserialize, Serialize};

use crate::mds::Empty;
use crate::message;

/// Refuse everything of this session below the epoch. On disk before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceSessionReq {
    /// The session.
    pub session: SessionId,
    /// Lowest epoch that is accepted.
    pub epoch: Pair,
}
message!(FenceSessionReq => Empty, FenceSession);

/// Refuse everything of an older layout epoch on these objects, existing or not. On disk before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceLayoutReq {
    /// The objects.
    pub objects: Vec<ObjectId>,
    /// Lowest layout epoch that is accepted.
    pub layout_epoch: Pair,
}
message!(FenceLayoutReq => Empty, FenceLayout);
