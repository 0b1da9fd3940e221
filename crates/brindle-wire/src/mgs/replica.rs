//! Messages of the MGS about replica sets: targets with two or three members on different hosts (design notes 032 and 044).

use brindle_types::{Fault, Nid, TargetId};
use serde::{Deserialize, Serialize};

use crate::message;

/// Most members of a replica set.
pub const REPLICAS_MAX: usize = 3;
/// Most members while a copy moves to another host: the new copy is complete before the former one goes.
pub const MEMBERS_MAX: usize = REPLICAS_MAX + 1;

/// Role of a member in its replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberRole {
    /// The member has everything that was acknowledged.
    InSync,
    /// The member is being filled.
    Learner,
}

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaMember {
    /// Host of the member.
    pub host: String,
    /// Directory of the member on its host.
    pub dir: String,
    /// Whether it was formatted. If it was, an empty directory is a disk that is not mounted, or another one.
    pub is_formatted: bool,
    /// Role of the member.
    pub role: MemberRole,
    /// Boot term of its store when it came into sync; 0 if that is not known yet. Under another one it may have lost what nobody synced.
    pub boot_term: u32,
    /// Highest epoch that it has told to have recorded. A disk with a lower one is an older copy.
    pub recorded_epoch: u64,
    /// Addresses of the member for the others; empty until it has told them.
    pub nids: Vec<Nid>,
}

/// A replica set: who serves the target, and who has all of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaSetState {
    /// The target.
    pub target: TargetId,
    /// Identity that every member is formatted with.
    pub uuid: [u8; 16],
    /// Rises with every change of the primary or of who is in sync.
    pub epoch: u64,
    /// The boot term that clients are told; rises when acknowledged changes that nobody synced may be lost. 0 until it is known.
    pub term: u32,
    /// Port that every member listens at.
    pub port: u16,
    /// Host of the member that serves the target.
    pub primary: String,
    /// All members.
    pub members: Vec<ReplicaMember>,
}

impl ReplicaSetState {
    /// The member on a host.
    pub fn member(&self, host: &str) -> Option<&ReplicaMember> {
        self.members.iter().find(|m| m.host == host)
    }

    /// Members that have everything.
    pub fn in_sync(&self) -> impl Iterator<Item = &ReplicaMember> {
        self.members.iter().filter(|m| m.role == MemberRole::InSync)
    }

    /// Whether the member on a host has everything.
    pub fn is_in_sync(&self, host: &str) -> bool {
        self.in_sync().any(|m| m.host == host)
    }
}

/// Phase of a member on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberPhase {
    /// The member is being formatted or opened, or is stopped to change its part.
    Starting,
    /// The member takes changes from the primary.
    Following,
    /// The member makes the others equal before it serves.
    TakingOver,
    /// The member serves.
    Serving,
    /// The member has failed.
    Failed(Box<Fault>),
}

/// Progress of filling a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resync {
    /// The member's host.
    pub host: String,
    /// Bytes of objects that were compared.
    pub done_bytes: u64,
    /// Bytes of all objects when it began.
    pub total_bytes: u64,
    /// Bytes that differed and were copied.
    pub copied_bytes: u64,
    /// Milliseconds since it began.
    pub running_ms: u64,
    /// Reason why the fill does not go on; empty if it does.
    pub trouble: String,
}

/// A member, as the daemon of its host has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// The target.
    pub target: TargetId,
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Epoch that the daemon goes by.
    pub epoch: u64,
    /// Whether it is formatted.
    pub is_formatted: bool,
    /// Boot term of its store; 0 while that is not open.
    pub boot_term: u32,
    /// Highest epoch on its disk.
    pub recorded_epoch: u64,
    /// Addresses at which the member listens.
    pub nids: Vec<Nid>,
    /// Phase of the member.
    pub phase: MemberPhase,
    /// Members that a primary is filling now.
    pub resyncs: Vec<Resync>,
    /// Blocks that were damaged on the primary and mended from another member.
    pub mended_blocks: u64,
}

/// A host's daemon tells of its members, and asks what they are to be; answered when that is newer than `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepReplicasReq {
    /// Version that the daemon has; 0 for none.
    pub known_version: u64,
    /// Longest wait for newer orders, in milliseconds.
    pub wait_ms: u32,
    /// Reports of the host's members.
    pub members: Vec<MemberReport>,
}

/// Replica sets of the host, as they are to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepReplicasResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// All sets that this host has a member of; `None` where the daemon's version is the newest.
    pub sets: Option<Vec<ReplicaSetState>>,
}
message!(KeepReplicasReq => KeepReplicasResp, KeepReplicas);

/// Asks for all replica sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReplicasReq {}

/// Last report of a member, as the MGS heard it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberWord {
    /// The host.
    pub host: String,
    /// Time since the daemon was heard of, in milliseconds; `None`: not since the MGS has started.
    pub heard_ms_ago: Option<u64>,
    /// The member there.
    pub report: Option<MemberReport>,
}

/// A replica set, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSetInfo {
    /// The set.
    pub set: ReplicaSetState,
    /// Words of its members, in their order.
    pub words: Vec<MemberWord>,
    /// Reason why no member serves the set.
    pub hindrance: Option<Fault>,
}

/// All replica sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReplicasResp {
    /// Sets by target.
    pub sets: Vec<ReplicaSetInfo>,
}
message!(ListReplicasReq => ListReplicasResp, ListReplicas);

/// A host and a directory for a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPlace {
    /// The host.
    pub host: String,
    /// The directory.
    pub dir: String,
}

/// A change of a replica set that an administrator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaSetChange {
    /// A new OST with several members.
    Create {
        /// Index of the target; `None`: the lowest free one.
        index: Option<u16>,
        /// Members of the set; the first one is the first primary.
        places: Vec<MemberPlace>,
    },
    /// A target gets one more member.
    Add {
        /// The target.
        target: TargetId,
        /// The member.
        place: MemberPlace,
    },
    /// A target loses a member that is not its primary. The files in its directory stay there.
    Remove {
        /// The target.
        target: TargetId,
        /// The member's host.
        host: String,
    },
    /// A member that may lack acknowledged changes serves, because those that had them are lost.
    AcceptLoss {
        /// The target.
        target: TargetId,
        /// The member's host.
        host: String,
    },
    /// A new MDT with several members.
    CreateMdt {
        /// Index of the target; `None`: the lowest free one.
        index: Option<u16>,
        /// Members of the set; the first one is the first primary.
        places: Vec<MemberPlace>,
    },
    /// A member that is in sync serves in the place of the primary.
    Promote {
        /// The target.
        target: TargetId,
        /// The member's host.
        host: String,
    },
    /// A copy moves to another host: a member is added there, and once that is complete the former one goes.
    Move {
        /// The target.
        target: TargetId,
        /// Host of the member that goes.
        from: String,
        /// The new member.
        place: MemberPlace,
    },
    /// Another change, after which members may be in one rack, although a host of another rack could have a copy.
    SameRack(Box<ReplicaSetChange>),
}

impl ReplicaSetChange {
    /// The change itself, or the change inside that may put members into one rack; and whether it may.
    pub fn unwrapped(&self) -> (&ReplicaSetChange, bool) {
        match self {
            ReplicaSetChange::SameRack(change) => (change, true),
            change => (change, false),
        }
    }

    /// The change that may put members into one rack, if that is asked for.
    pub fn in_same_rack(self, is_asked_for: bool) -> ReplicaSetChange {
        if is_asked_for { ReplicaSetChange::SameRack(Box::new(self)) } else { self }
    }
}

/// Changes a replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReplicasReq {
    /// The change.
    pub change: ReplicaSetChange,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The set as it is then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReplicasResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The set.
    pub set: ReplicaSetState,
}
message!(ChangeReplicasReq => ChangeReplicasResp, ChangeReplicas);

/// A change of who is in sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InSyncChange {
    /// The primary goes on without a member.
    Drop {
        /// The member's host.
        host: String,
    },
    /// A learner has everything.
    Join {
        /// The member's host.
        host: String,
        /// Boot term of its store, under which it was filled.
        boot_term: u32,
    },
}

impl InSyncChange {
    /// Host of the member.
    pub fn host(&self) -> &str {
        match self {
            InSyncChange::Drop { host } | InSyncChange::Join { host, .. } => host,
        }
    }
}

/// The primary changes who is in sync. Done only if it is the primary, and the epoch is the one that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInSyncReq {
    /// The target.
    pub target: TargetId,
    /// Epoch that the primary knows.
    pub epoch: u64,
    /// The change.
    pub change: InSyncChange,
}

/// The set as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeInSyncResp {
    /// Whether it was changed.
    pub changed: bool,
    /// The set.
    pub set: ReplicaSetState,
}
message!(ChangeInSyncReq => ChangeInSyncResp, ChangeInSync);

/// The primary, which is the only member in sync, has opened its store anew in an epoch in which it has answered before. The MGS raises the
/// epoch, so that a copy of the disk that was made before this opening is known by its lower one (design note 032). Done only if the epoch is
/// the one that the primary knows, and nobody else is in sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteOpeningReq {
    /// The target.
    pub target: TargetId,
    /// Epoch that the primary knows.
    pub epoch: u64,
}

/// The set as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteOpeningResp {
    /// The set.
    pub set: ReplicaSetState,
}
message!(NoteOpeningReq => NoteOpeningResp, NoteOpening);

/// A daemon has a member that has gone by a higher epoch than the MGS knows: the configuration is older than the member. It shows what it knows,
/// so that the MGS can take it over after a restore (design note 039).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowReplicaReq {
    /// The target.
    pub target: TargetId,
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// The epoch.
    pub epoch: u64,
    /// Hosts of the members that were in sync in it.
    pub in_sync: Vec<String>,
    /// The term that clients were told in it; 0 if the member does not know.
    pub term: u32,
}

/// Acknowledgement of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowReplicaResp {}
message!(ShowReplicaReq => ShowReplicaResp, ShowReplica);
