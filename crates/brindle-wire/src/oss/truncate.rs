//! truncate_object: the MDT cuts the objects of a file. Idempotent.

use brindle_types::{ObjectId, Pair};
use serde::{Deserialize, Serialize};

use super::ChangeResp;
use crate::message;

/// Cuts (or extends) an object and refuses everything of an older truncate epoch from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncateObjectReq {
    /// The object.
    pub object: ObjectId,
    /// Length from now on, in bytes.
    pub len_bytes: u64,
    /// The new truncate epoch; a cut of an older or equal one than the object has is answered without an effect.
    pub truncate_epoch: Pair,
    /// Make the object when it is missing (it holds the file's last byte).
    pub make: bool,
}
message!(TruncateObjectReq => ChangeResp, TruncateObject);
