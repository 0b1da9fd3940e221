//! statfs of an MDT.

use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for space and inodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtStatfsReq {}

/// Space and inodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtStatfsResp {
    /// Bytes of the MDT's file system.
    pub total_bytes: u64,
    /// Bytes still available.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes that would still fit.
    pub inodes_free: u64,
    /// Device that the MDT lies on, so that targets on one device are counted once.
    pub device_id: u64,
}
message!(MdtStatfsReq => MdtStatfsResp, MdtStatfs);
