//! convert: inline data moves to objects, once, under the rule of every layout change; and layout_get.

use brindle_types::{Ino, Pair};
use serde::{Deserialize, Serialize};

use super::open::OpenGrant;
use crate::message;

/// Moves a file's bytes from the MDT to its objects. A file that has moved already answers with its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertReq {
    /// The file.
    pub ino: Ino,
    /// Layout epoch that the client knows.
    pub layout_epoch: Pair,
}
message!(ConvertReq => OpenGrant, Convert);

/// Fetches layout and epochs again (after `StaleLayout` or a notice).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutGetReq {
    /// The file.
    pub ino: Ino,
}
message!(LayoutGetReq => OpenGrant, LayoutGet);
