//! The map: targets, addresses, epochs. Kept by the MGS in the config store; its version is in every RPC.

use brindle_types::{FsName, Nid, PoolName, TargetId};
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

/// Most pools of a file system.
pub const POOLS_MAX: usize = 1024;

/// A named set of OSTs that layouts can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// Indices of its OSTs, ascending.
    pub osts: Vec<u16>,
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
    /// Pools, sorted by name.
    pub pools: Vec<Pool>,
    /// OSTs that get no new objects, because they are to be emptied; ascending.
    pub draining: Vec<u16>,
    /// Targets that were taken out for good, the last of them ([`REMOVED_MAX`]) in order: they are not let in again.
    pub removed: Vec<RemovedTarget>,
}

/// A target that was taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedTarget {
    /// Its id then; another target may have it by now.
    pub id: TargetId,
    /// Its identity.
    pub uuid: [u8; 16],
}

/// Most removed targets that a map remembers.
pub const REMOVED_MAX: usize = 1024;

impl Map {
    /// The map of a new file system.
    pub fn new(fs: FsName, fs_id: u64) -> Map {
        Map {
            fs,
            fs_id,
            version: 1,
            targets: Vec::new(),
            pools: Vec::new(),
            draining: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Whether there was a target of this id, and there is none now.
    pub fn is_removed(&self, id: TargetId) -> bool {
        self.removed.iter().any(|t| t.id == id) && self.target(id).is_none()
    }

    /// The entry of a target.
    pub fn target(&self, id: TargetId) -> Option<&TargetEntry> {
        self.targets.iter().find(|t| t.id == id)
    }

    /// The pool of a name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.iter().find(|p| p.name == *name)
    }

    /// Names of its pools, for messages: `flash, disk`.
    pub fn pool_names(&self) -> String {
        let names: Vec<&str> = self.pools.iter().map(|p| p.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}
