//! Messages between the orchestrator of burst buffers and the agents of compute nodes (design note 029).
//!
//! An agent connects to the orchestrator and registers ([`NodeRegisterReq`]). The orchestrator sends its orders ([`NodeOrderReq`]) over the
//! same connection, as notices. A compute node therefore listens at no port, and only a proven server of the cluster can send it an order.

use brindle_types::{Nid, TargetId};
use serde::{Deserialize, Serialize};

use crate::message;

/// Registers a compute node, and says that it lives. Repeated every few seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRegisterReq {
    /// Number of this start of the agent.
    pub start: u64,
    /// Directory of the node's mounts.
    pub mount_root: String,
    /// Whether the agent wants to know what may be mounted. Until it has heard that once it takes no orders.
    pub wants_kept: bool,
    /// Number of the last answer after which nothing was mounted on the node that it does not name; 0: none, `u64::MAX`: nothing is mounted at all.
    pub cleaned: u64,
    /// Why the agent takes no orders; empty where it does.
    pub fault: String,
}

/// The node is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRegisterResp {
    /// Names below `mount_root` that living buffers may have mounted on the node, where the agent wants to know.
    pub kept: Option<Vec<String>>,
    /// Identity of the orchestrator's state. An agent that has something mounted believes no other one than it knows.
    pub store: String,
    /// Number of this answer.
    pub number: u64,
}
message!(NodeRegisterReq => NodeRegisterResp, NodeRegister);

/// An order for a compute node. It can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrderReq {
    /// Serial number of the buffer of the job.
    pub serial: u64,
    /// Revision of the buffer's row. An agent refuses a lower one than it has seen.
    pub revision: u64,
    /// The job.
    pub job: String,
    /// Action of the order.
    pub order: NodeOrder,
}

/// Work on a compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Mount what a job has.
    Mount {
        /// The mounts.
        mounts: Vec<NodeMount>,
        /// Whether the node gets its own directory of the job's buffer.
        private: bool,
        /// The source of the mount for the node's swap, where the job has swap.
        swap: Option<String>,
    },
    /// Unmount it.
    Unmount {
        /// Names of the mounts.
        names: Vec<String>,
        /// The swap of the node, where the job has swap.
        swap: Option<NodeSwapOff>,
    },
}

/// A mount of a job on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMount {
    /// Name below the directory of mounts.
    pub name: String,
    /// Source, as mount(8) takes it.
    pub source: String,
}

/// The end of a node's swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSwapOff {
    /// Why the servers of the swap do not run; `None` where they do.
    pub servers_down: Option<String>,
    /// Whether pages are given up that cannot be read: the processes that need them get SIGBUS.
    pub gives_up: bool,
}

/// The order was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrderResp {
    /// Why something that programs wrote into what was unmounted may have been thrown away, if it was.
    pub lost: Option<String>,
}
message!(NodeOrderReq => NodeOrderResp, NodeOrder);

/// An order for a host with bricks, about its part of a buffer (design note 051). It can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSlicesReq {
    /// Serial number of the buffer; 0 for orders about a brick as a whole.
    pub serial: u64,
    /// Revision of the buffer's row. An agent refuses a lower one than it has seen.
    pub revision: u64,
    /// Identity of the orchestrator's state, which is the mark of its bricks.
    pub store: String,
    /// Action of the order.
    pub order: SliceOrder,
}

/// Work on the slices of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceOrder {
    /// Mark a directory as a brick of the orchestrator, and remove slices in it that no living buffer has.
    Claim {
        /// The directory.
        brick: String,
        /// Bytes that buffers may have of it; 0 where it was added before.
        bytes: u64,
        /// Serial numbers of the buffers that live: their slices stay.
        kept: Vec<u64>,
        /// Serial numbers from this one on stay, too: their buffers are newer than the list.
        below: u64,
    },
    /// Take the mark off a brick that holds nothing.
    Release {
        /// The directory.
        brick: String,
    },
    /// Serve targets.
    Serve(SlicesServed),
    /// Keep each OST from using more than its slice. Answered with the free bytes of each.
    Hold {
        /// The OSTs.
        targets: Vec<SliceTarget>,
        /// Whether free blocks are given back to the disk first.
        trims: bool,
    },
    /// Tell how much each OST has free.
    Free(Vec<SliceTarget>),
    /// End the targets, and remove them from these bricks.
    Destroy {
        /// Directories of the bricks.
        bricks: Vec<String>,
    },
}

/// Targets of a buffer that a host is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlicesServed {
    /// The targets, the MGT first.
    pub targets: Vec<SliceTarget>,
    /// Address of the buffer's MGS, where another host serves that.
    pub mgs: Option<Nid>,
    /// Address at which the servers listen.
    pub address: String,
    /// Keys of hosts that the servers refuse, in hexadecimal digits.
    pub refused: Vec<String>,
    /// Seconds for which the MDT lets a write wait for room.
    pub room_wait_s: u64,
    /// Whether the servers keep their memory locked.
    pub lock_memory: bool,
    /// Answer to a target that is missing.
    pub missing: MissingSlice,
}

/// Answer to a target that is to be served and is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingSlice {
    /// Make it: the buffer is being made, or grows.
    Make,
    /// Leave it out: the buffer has begun to grow by it.
    PassOver,
    /// Fail: its disk is not mounted.
    Refuse,
}

/// A target in a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceTarget {
    /// Role and index.
    pub target: TargetId,
    /// Directory of the brick.
    pub brick: String,
    /// Bytes of the slice; of an OST only.
    pub bytes: u64,
    /// Bytes that its image was made for.
    pub image_bytes: u64,
}

/// The order was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSlicesResp {
    /// Address of the buffer's MGS, where the host serves that.
    pub mgs: Option<Nid>,
    /// Free bytes in the slice of each OST, in the order of the question.
    pub free_bytes: Vec<u64>,
}
message!(NodeSlicesReq => NodeSlicesResp, NodeSlices);

/// A host offers to stage files (design note 059). Sent after each registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOfferReq {
    /// Directories below which users may have files staged by this host; empty: the host stages nothing.
    pub stages: Vec<String>,
}

/// The offer is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOfferResp {}
message!(NodeOfferReq => NodeOfferResp, NodeOffer);

/// An order for a host that stages files. It can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStageReq {
    /// Serial number of the buffer of the job.
    pub serial: u64,
    /// Revision of the buffer's row. An agent refuses a lower one than it has seen.
    pub revision: u64,
    /// The job.
    pub job: String,
    /// Action of the order.
    pub order: StageOrder,
}

/// Work of a host that stages files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageOrder {
    /// Mount these buffers, and tell whether these directories are what they are on the orchestrator's host.
    Prepare {
        /// The buffers.
        buffers: Vec<StageBuffer>,
        /// The user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// The directories.
        tops: Vec<StageTop>,
    },
    /// Copy files, or a part of one.
    Copy(StageUnit),
    /// Unmount these buffers.
    End {
        /// Serial numbers.
        buffers: Vec<u64>,
    },
}

/// A buffer that is mounted for staging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageBuffer {
    /// Serial number.
    pub serial: u64,
    /// Source, as mount(8) takes it.
    pub source: String,
}

/// A directory outside of buffers, as the orchestrator's host sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StageTop {
    /// Path, without symbolic links.
    pub path: String,
    /// Number of its inode.
    pub inode: u64,
    /// Kind of its file system, as statfs(2) says it.
    pub kind: i64,
    /// Seconds of its last modification.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: i64,
}

/// Files that one host copies at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageUnit {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Whether into the buffer.
    pub stages_in: bool,
    /// Serial number of the buffer.
    pub buffer: u64,
    /// Directory of the buffer that the files are in, below the one that nodes share; empty: that one.
    pub inside: String,
    /// Directory on the other side.
    pub outside: StageTop,
    /// The files.
    pub files: Vec<StageFile>,
    /// End of the names that the copies have until the orchestrator's host renames them. Each try has its own.
    pub ending: String,
    /// Part of the only file, whose copy is there already.
    pub range: Option<StageRange>,
}

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageFile {
    /// Path of the source, relative to the directory of its side.
    pub from: String,
    /// Path of the copy, relative to the directory of its side.
    pub to: String,
    /// Number of the inode of the directory that the copy goes into.
    pub into: u64,
    /// Number of the source's inode.
    pub inode: u64,
    /// Length of the source.
    pub bytes: u64,
    /// Seconds of its last modification.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: i64,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRange {
    /// First byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
    /// Whether the file that is at `to` already is only compared with the source.
    pub compares: bool,
}

/// The order was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStageResp {
    /// Why a directory is not what it is on the orchestrator's host; empty where all are.
    pub refusal: String,
    /// Outcome for each file.
    pub files: Vec<StagedFile>,
}
message!(NodeStageReq => NodeStageResp, NodeStage);

/// Outcome for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StagedFile {
    /// It is copied and synced, and waits for its name.
    Copied {
        /// Bytes that were copied.
        bytes: u64,
        /// Extended attributes that the destination cannot hold.
        attributes_lost: u64,
    },
    /// It was there already.
    Unchanged,
    /// It could not be copied.
    Failed {
        /// Reason.
        why: String,
    },
}
