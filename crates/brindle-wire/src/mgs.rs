//! Messages of the MGS: the map, and [`hosts`].

pub mod durability;
pub mod hosts;
pub mod id_map;
pub mod limit;
pub mod nodemap;
pub mod replica;
pub mod scrub;
pub mod shared;
pub mod spare;

use brindle_types::{FsName, Nid, PoolName, TargetId};
use serde::{Deserialize, Serialize};

use crate::form::FormatLevel;
use crate::map::Map;
use crate::map::delta::MapUpdate;
use crate::message;

/// A server announces a target that it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterReq {
    /// File system that the target was formatted for.
    pub fs: FsName,
    /// File system id in the target's superblock; 0 before its first registration.
    pub fs_id: u64,
    /// Role and index.
    pub target: TargetId,
    /// Identity from the superblock.
    pub uuid: [u8; 16],
    /// Addresses it listens on.
    pub nids: Vec<Nid>,
    /// Host name.
    pub host: String,
    /// The newest format level that the server reads and writes.
    pub format_level_max: FormatLevel,
}

/// The map as it is with the target in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterResp {
    /// The map.
    pub map: Map,
    /// Epoch under which the target serves.
    pub epoch: u32,
    /// Interval of heartbeats, in milliseconds.
    pub heartbeat_ms: u32,
}
message!(RegisterReq => RegisterResp, Register);

/// Asks for the map; with `known_version`, answers when it is newer or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetMapReq {
    /// Name of the file system.
    pub fs: FsName,
    /// Version that the caller has; 0 for none.
    pub known_version: u64,
    /// Longest wait for a newer map, in milliseconds.
    pub wait_ms: u32,
}

/// A newer map, or `None` when the caller's version is still the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetMapResp {
    /// The newer map.
    pub update: Option<MapUpdate>,
}
message!(GetMapReq => GetMapResp, GetMap);

/// A target is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReq {
    /// Name of the file system.
    pub fs: FsName,
    /// The target.
    pub target: TargetId,
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Epoch that it serves under.
    pub epoch: u32,
}

/// The newest version of the map, so that the server knows when to fetch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatResp {
    /// Version of the map.
    pub map_version: u64,
    /// Whether the MGS knows the target under this epoch; otherwise it registers again.
    pub known: bool,
}
message!(HeartbeatReq => HeartbeatResp, Heartbeat);

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EventLevel {
    /// A user asked for the change, or all is well again.
    Info,
    /// Brindle has changed something so that work goes on.
    Warning,
    /// Users may have to wait.
    Error,
}

impl EventLevel {
    /// The level as a word.
    pub fn name(self) -> &'static str {
        match self {
            EventLevel::Info => "info",
            EventLevel::Warning => "warning",
            EventLevel::Error => "error",
        }
    }
}

/// Event of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises with every event of the file system.
    pub number: u64,
    /// Time of the event, in seconds since 1970.
    pub at_s: i64,
    /// Kind of event, such as `target.silent`. These words do not change.
    pub name: String,
    /// Severity.
    pub level: EventLevel,
    /// The host or target.
    pub subject: String,
    /// A sentence for people.
    pub text: String,
}

/// Asks for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsReq {
    /// Number of the last one that is known; 0 for none.
    pub after: u64,
    /// Longest wait for an event, in milliseconds.
    pub wait_ms: u32,
}

/// Events in order; the MGS keeps the last few hundred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsResp {
    /// The events.
    pub events: Vec<Event>,
}
message!(EventsReq => EventsResp, Events);

/// An MDT has opened under a term. The MGS keeps the highest one, so that an MDT which is restored from a backup begins above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteTermReq {
    /// Name of the file system.
    pub fs: FsName,
    /// The MDT.
    pub target: TargetId,
    /// Identity of the target, from the superblock.
    pub uuid: [u8; 16],
    /// The term.
    pub term: u32,
    /// Chosen at random by each opening: a copy of the MDT's disk may open under the same term.
    pub opening: u64,
}

/// The highest term that the MGS was ever told, this one included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteTermResp {
    /// The term.
    pub highest: u32,
    /// Whether the asking opening is the one that has it.
    pub is_newest: bool,
}
message!(NoteTermReq => NoteTermResp, NoteTerm);

/// A change of a target's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetChange {
    /// The target gets no new objects from now on.
    Drain,
    /// The target gets new objects again.
    Undrain,
    /// The target leaves the file system. Only a drained one may; the asker has made sure that no MDT has
    /// a file on it.
    Remove,
}

/// Raises the format level of a file system to the newest that every server of it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseLevelReq {
    /// Name of the file system.
    pub fs: FsName,
    /// The level.
    pub level: FormatLevel,
}

/// The map as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseLevelResp {
    /// The map.
    pub map: Map,
    /// Whether anything was changed.
    pub changed: bool,
}
message!(RaiseLevelReq => RaiseLevelResp, RaiseLevel);

/// Changes what a target is used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTargetReq {
    /// Name of the file system.
    pub fs: FsName,
    /// Index of the OST.
    pub ost: u16,
    /// The change.
    pub change: TargetChange,
}

/// The map as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTargetResp {
    /// The map.
    pub map: Map,
    /// Whether anything was changed.
    pub changed: bool,
}
message!(ChangeTargetReq => ChangeTargetResp, ChangeTarget);

/// A change of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolChange {
    /// Makes the pool, without OSTs.
    Create,
    /// Adds these OSTs.
    Add(Vec<u16>),
    /// Takes these OSTs out; objects on them stay.
    Remove(Vec<u16>),
    /// Removes the pool.
    Destroy {
        /// Even if it has OSTs.
        with_osts: bool,
    },
}

/// Changes a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePoolReq {
    /// Name of the file system.
    pub fs: FsName,
    /// The pool.
    pub pool: PoolName,
    /// The change.
    pub change: PoolChange,
}

/// The map as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePoolResp {
    /// The map.
    pub map: Map,
    /// Whether anything was changed.
    pub changed: bool,
}
message!(ChangePoolReq => ChangePoolResp, ChangePool);
