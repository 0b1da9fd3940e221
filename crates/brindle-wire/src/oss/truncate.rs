//! truncate_object: the MDT cuts the objects of a file. Idempotent.

use brindle_types::{ObjectId, Pair};
use serde::{Deserialize, Serialize};

use super::ChangeResp;
use crate::message;

/// Cuts an object, or extends it if `make` is set, and refuses everything of an older truncate epoch from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncateObjectReq {
    /// The object.
    pub object: ObjectId,
    /// Length from now on, in bytes.
    pub len_bytes: u64,
    /// The new truncate epoch; a cut of an older or equal one than the object has is answered without an effect.
    pub truncate_epoch: Pair,
    /// Whether the object holds the file's last byte: then it is made when it is missing, and extended when it is shorter.
    pub make: bool,
    /// Whether the object must exist, as in [`super::Ticket::must_exist`].
    pub must_exist: bool,
}
message!(TruncateObjectReq => ChangeResp, TruncateObject);
