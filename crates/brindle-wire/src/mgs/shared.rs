//! Messages of the MGS about shared targets, on storage that two hosts reach: one host serves and the other stands by.
//!
//! A *turn* is the number of changes of a shared target's owner. The turn rises in the config store before anybody serves under it, and
//! lies in the owner block of the device.

use brindle_types::{Fault, TargetId};
use serde::{Deserialize, Serialize};

use crate::message;

/// A host that reaches a shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedHost {
    /// Name of the host.
    pub host: String,
    /// Block device, or image file, as this host names it.
    pub device: String,
}

/// Phase of a shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedPhase {
    /// The owner serves the target, or is to.
    Owned,
    /// The owner is to stop the target and give it up to another host.
    Handing {
        /// The host.
        to: String,
    },
    /// The owner is to be fenced; then another host becomes the owner.
    Fencing {
        /// The host.
        to: String,
    },
}

/// A shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedTarget {
    /// Role and index.
    pub target: TargetId,
    /// Identity that it is formatted with.
    pub uuid: [u8; 16],
    /// Hosts that reach it, the preferred one first.
    pub hosts: Vec<SharedHost>,
    /// Mount point of the device on its owner.
    pub dir: String,
    /// Port that it is served at.
    pub port: u16,
    /// Whether it was formatted. If it was, a blank device is another one than the right one.
    pub is_formatted: bool,
    /// Whether it is to be served now.
    pub is_wanted: bool,
    /// Host that may serve it.
    pub owner: String,
    /// Number of its owners so far.
    pub turn: u64,
    /// Phase of the target.
    pub phase: SharedPhase,
}

/// State of a shared target on one of its hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedState {
    /// Another host has it; this one reads its owner block.
    StandingBy {
        /// Turn in the owner block; 0 if nobody has had it.
        turn: u64,
        /// Whether that owner has given it up.
        is_released: bool,
    },
    /// The device is waited for, checked and mounted; then the target starts.
    Starting,
    /// The target is served.
    Serving,
    /// The target is neither served nor mounted, and the owner block says that it was given up.
    Released,
    /// The target cannot be served.
    Failed {
        /// Reason.
        fault: Box<Fault>,
        /// Whether parts of it may still run on this host, so that it is not given up.
        is_held: bool,
    },
}

/// A shared target on a host, as the host's daemon has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedReport {
    /// Role and index.
    pub target: TargetId,
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Turn that the daemon goes by.
    pub turn: u64,
    /// Whether the device holds the target.
    pub is_formatted: bool,
    /// State of the target.
    pub state: SharedState,
}

/// A host's daemon tells of its shared targets, and asks what to do with them; answered when that is newer than `known_version`, or after
/// `wait_ms`. The MGS goes by these words: a daemon that is silent for a few seconds is taken for dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepSharedReq {
    /// Version that the daemon has; 0 for none.
    pub known_version: u64,
    /// Longest wait for newer orders, in milliseconds.
    pub wait_ms: u32,
    /// Shared targets of the host.
    pub states: Vec<SharedReport>,
}

/// Orders for the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepSharedResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// All shared targets that this host reaches; `None` where the daemon's version is the newest.
    pub targets: Option<Vec<SharedTarget>>,
}
message!(KeepSharedReq => KeepSharedResp, KeepShared);

/// Asks for all shared targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSharedReq {}

/// Last report of one of the hosts of a shared target, as the MGS heard it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWord {
    /// The host.
    pub host: String,
    /// Time since the daemon was heard of, in milliseconds; `None`: not since the MGS has started.
    pub heard_ms_ago: Option<u64>,
    /// The target there.
    pub report: Option<SharedReport>,
}

/// A shared target, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedInfo {
    /// The target.
    pub target: SharedTarget,
    /// Words of its hosts, in their order.
    pub words: Vec<SharedWord>,
    /// Reason why nothing is done although the owner does not serve the target.
    pub hindrance: Option<Fault>,
}

/// All shared targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSharedResp {
    /// The targets, by name.
    pub targets: Vec<SharedInfo>,
    /// Whether the MGS has a program that fences hosts.
    pub has_fence: bool,
}
message!(ListSharedReq => ListSharedResp, ListShared);

/// A change of a shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedChange {
    /// A new shared target, which its first host formats.
    Add {
        /// An MDT, or an OST.
        is_mdt: bool,
        /// Index of the target; `None`: the lowest free one.
        index: Option<u16>,
        /// Hosts that reach it, the preferred one first.
        hosts: Vec<SharedHost>,
        /// Mount point of the device on its owner.
        dir: String,
    },
    /// Another host is to serve it.
    Move {
        /// The target.
        target: TargetId,
        /// The host; the preferred one if the target is not there, else the other one.
        to: Option<String>,
        /// The administrator vouches that the present owner is off, so that it need not be fenced.
        is_owner_off: bool,
    },
    /// Whether the target is to be served.
    Want {
        /// The target.
        target: TargetId,
        /// Whether it is to be served.
        is_wanted: bool,
    },
    /// The target is not to be made after all.
    Forget {
        /// The target.
        target: TargetId,
    },
}

/// Changes a shared target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSharedReq {
    /// The change.
    pub change: SharedChange,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The change as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSharedResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The target then.
    pub target: SharedTarget,
}
message!(ChangeSharedReq => ChangeSharedResp, ChangeShared);
