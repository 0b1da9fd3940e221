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
