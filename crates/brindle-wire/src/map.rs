//! The map: hosts, targets, addresses, epochs. Kept by the MGS in the config store; its version is in every RPC.
//!
//! [`forms`] has the forms that earlier releases stored, [`delta`] the changes between two versions.

pub mod delta;
pub mod forms;

use brindle_types::{FsName, Nid, PoolName, TargetId};
use serde::{Deserialize, Serialize};

use crate::form::FormatLevel;

/// State of a target, as far as the MGS knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetState {
    /// Registered and heard of lately.
    Up,
    /// Registered, not heard of for longer than its lease.
    Down,
}

/// A target of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEntry {
    /// Role and index.
    pub id: TargetId,
    /// Identity given at format time; an index belongs to one identity for ever.
    pub uuid: [u8; 16],
    /// Addresses at which the target is served now, best first.
    pub nids: Vec<Nid>,
    /// Raised by every change of who serves it; fences everything older.
    pub epoch: u32,
    /// Whether it is served.
    pub state: TargetState,
    /// The hosts that have to do with it.
    pub replicas: ReplicaSet,
    /// The newest format level that the server of the target reads and writes.
    pub format_level_max: FormatLevel,
}

impl TargetEntry {
    /// Host that serves it.
    pub fn host(&self) -> &str {
        &self.replicas.primary
    }
}

/// The hosts of one target, by name. Each host is in one of the lists at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSet {
    /// The host that serves the target.
    pub primary: String,
    /// Hosts whose replicas have everything that was acknowledged: any of them can become the primary.
    pub in_sync: Vec<String>,
    /// Hosts whose replicas are being filled.
    pub learners: Vec<String>,
    /// Hosts that reach the primary's storage, and can serve it when the primary is gone.
    pub standby: Vec<String>,
}

impl ReplicaSet {
    /// The set of one host alone.
    pub fn of(primary: impl Into<String>) -> ReplicaSet {
        ReplicaSet { primary: primary.into(), ..ReplicaSet::default() }
    }
}

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Name of the host.
    pub name: String,
    /// Addresses of its node daemon, best first; none if it has none.
    pub nids: Vec<Nid>,
    /// Hosts of one domain fail together (a rack, a chassis, a power circuit); empty if nothing is said.
    pub failure_domain: String,
}

/// A network that hosts have addresses in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The number behind `tcp` in its addresses.
    pub rail: u8,
    /// Name of the network, for people: `ib0`, `management`.
    pub name: String,
}

/// Most pools of a file system.
pub const POOLS_MAX: usize = 1024;

/// A named set of OSTs that layouts can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name of the pool.
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
    /// Stored values are written in forms up to this level.
    pub format_level: FormatLevel,
    /// Hosts, sorted by name.
    pub hosts: Vec<HostEntry>,
    /// Networks, sorted by rail.
    pub networks: Vec<Network>,
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
    /// Former id of the target; another target may have it by now.
    pub id: TargetId,
    /// Identity of the target.
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
            format_level: FormatLevel::NEWEST,
            hosts: Vec::new(),
            networks: Vec::new(),
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

    /// The entry of a host.
    pub fn host(&self, name: &str) -> Option<&HostEntry> {
        self.hosts.iter().find(|host| host.name == name)
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
