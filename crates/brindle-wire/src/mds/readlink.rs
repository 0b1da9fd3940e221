//! readlink.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for a symbolic link's target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadlinkReq {
    /// The symbolic link.
    pub ino: Ino,
}

/// The target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadlinkResp {
    /// The target.
    pub target: Vec<u8>,
}
message!(ReadlinkReq => ReadlinkResp, Readlink);
