//! The map: targets, addresses, epochs. Kept by the MGS in the config store; its version is in every RPC.

use brindle_types::{FsName, Nid, TargetId};
use serde::{Deserialize, Serialize};

/// What the MGS believes of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetState {
    /// Registered and heard of lately.
    Up,
    /// Registered, not heard of for longer than its lease.
    Down,
}

/// One target of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEntry {
    /// Role and index.
    pub id: TargetId,
    /// Identity given at format time; an index belongs to one identity for ever.
    pub uuid: [u8; 16],
    /// Where it is served now, best first.
    pub nids: Vec<Nid>,
    /// Raised by every change of who serves it; fences everything older.
    pub epoch: u32,
    /// Whether it is served.
    pub state: TargetState,
    /// Host that serves it, as people know it.
    pub host: String,
}

/// The versioned description of one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Name of the file system.
    pub fs: FsName,
    /// Identity of the file system; in every frame.
    pub fs_id: u64,
    /// Raised by every change.
    pub version: u64,
    /// Targets, sorted by id.
    pub targets: Vec<TargetEntry>,
}

impl Map {
    /// The entry of a target.
    pub fn target(&self, id: TargetId) -> Option<&TargetEntry> {
        self.targets.iter().find(|t| t.id == id)
    }
}
