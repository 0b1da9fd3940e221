//! ost_statfs.

use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstStatfsReq {}

/// Space of an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstStatfsResp {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available to users.
    pub available_bytes: u64,
    /// Inodes (objects) in all.
    pub total_inodes: u64,
    /// Inodes still free.
    pub free_inodes: u64,
    /// Device that the OST lies on, so that targets on one device are counted once.
    pub device_id: u64,
    /// Boot term.
    pub boot_term: u32,
    /// The disk of the OST has returned errors, and takes no writes since.
    pub degraded: bool,
}
message!(OstStatfsReq => OstStatfsResp, OstStatfs);
