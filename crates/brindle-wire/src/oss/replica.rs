//! Messages between the members of a replica set, from the primary to the others (design note 032).
//!
//! Every message carries an [`Attachment`]: the epoch of the set and a number that the primary takes when it attaches a member. A member
//! takes messages of its highest attachment only. Messages of a former primary, and late ones of the present primary, therefore never
//! change the member.

use brindle_types::attr::Time;
use brindle_types::{ObjectId, Pair, SessionId};
use serde::{Deserialize, Serialize};

use super::Ticket;
use super::scrub::ScrubRecord;
use crate::mds::Empty;
use crate::message;

/// Most blocks that are compared by one [`ReplicaLookReq`].
pub const LOOK_BLOCKS_MAX: u64 = 1 << 16;
/// Most blocks that are read and verified by one [`ReplicaVerifyReq`].
pub const VERIFY_BLOCKS_MAX: u64 = 256;

/// The right of a primary to change a member, until a higher one comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// Epoch of the set when it was made.
    pub epoch: u64,
    /// Rises with each attachment of one epoch.
    pub number: u64,
}

/// A primary begins to send changes to a member. On return nothing of an earlier attachment is under way there, or will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaAttachReq {
    /// The new attachment.
    pub attachment: Attachment,
}

/// The member is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaAttachResp {
    /// Boot term of its store: under another one it may have lost what nobody synced.
    pub boot_term: u32,
}
message!(ReplicaAttachReq => ReplicaAttachResp, ReplicaAttach);

/// A primary asks for its lease to be renewed. A member that grants it does not serve as primary before the lease has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLeaseReq {
    /// The attachment.
    pub attachment: Attachment,
    /// Epoch of the set now. The member records it durably before it answers.
    pub epoch: u64,
}

/// The lease is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLeaseResp {
    /// Boot term of the member's store.
    pub boot_term: u32,
    /// Bytes that are available on the member.
    pub available_bytes: u64,
}
message!(ReplicaLeaseReq => ReplicaLeaseResp, ReplicaLease);

/// Header of an object, as all members have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectImage {
    /// Whether there is an object, not mere fences.
    pub exists: bool,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Lowest layout epoch that is accepted.
    pub layout_epoch: Pair,
    /// Lowest truncate epoch that is accepted.
    pub truncate_epoch: Pair,
    /// Attribute epoch and server time of the last write.
    pub last_write: Option<(Pair, Time)>,
}

/// A change that the primary has made, or is about to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaChange {
    /// The bulk is written.
    Write {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Rights, as the primary found them good.
        ticket: Ticket,
        /// Whether the bytes must be on stable storage before the answer.
        sync: bool,
    },
    /// A range reads as zeros.
    Punch {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len_bytes: u64,
        /// Whether the blocks stay reserved.
        keep_space: bool,
        /// Rights.
        ticket: Ticket,
    },
    /// Space for a range is reserved.
    Allocate {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len_bytes: u64,
        /// The length of the object stays.
        keep_len: bool,
        /// Rights.
        ticket: Ticket,
    },
    /// The object is cut or extended.
    Truncate {
        /// The object.
        object: ObjectId,
        /// New length of the object.
        len_bytes: u64,
        /// The new truncate epoch.
        epoch: Pair,
        /// Whether it is made where it is missing.
        make: bool,
    },
    /// Objects are removed.
    Destroy {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// Older layouts are refused.
    FenceLayout {
        /// The objects.
        objects: Vec<ObjectId>,
        /// Lowest layout epoch that is accepted.
        layout_epoch: Pair,
    },
    /// Sessions of lower epochs are refused.
    FenceSession {
        /// The session.
        session: SessionId,
        /// Lowest epoch that is accepted.
        epoch: Pair,
    },
    /// Objects are made durable.
    Sync {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// All changes are made durable.
    SyncAll,
    /// The objects are durable on all members: their marks go.
    Unmark {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// The bulk takes the place of what differs there, whatever the member has.
    Put {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
    },
    /// A range becomes a hole, whatever the member has.
    PutHole {
        /// The object.
        object: ObjectId,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// The header and the length become these; the object is not longer than that.
    PutImage {
        /// The object.
        object: ObjectId,
        /// Object as the primary has it.
        image: ObjectImage,
    },
    /// The member forgets the object, as if it had never been.
    Forget {
        /// The object.
        object: ObjectId,
    },
}

/// Makes a change on a member. The bytes are the bulk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaChangeReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The change.
    pub change: ReplicaChange,
}
message!(ReplicaChangeReq => Empty, ReplicaChange);

/// Asks how an object is on a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLookReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The object.
    pub object: ObjectId,
    /// First block whose checksum is wanted.
    pub from_block: u64,
    /// Number of blocks; at most [`LOOK_BLOCKS_MAX`].
    pub blocks: u64,
}

/// The stored checksums of the blocks are the bulk, 4 bytes each, fewer where the object ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLookResp {
    /// The header and the length.
    pub image: ObjectImage,
    /// First block behind these that may have data there. `None`: only holes follow, or no block was asked for.
    pub next_data: Option<u64>,
}
message!(ReplicaLookReq => ReplicaLookResp, ReplicaLook);

/// Asks for objects of a member, fences included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaListReq {
    /// The attachment.
    pub attachment: Attachment,
    /// Last object that the primary has.
    pub after: Option<ObjectId>,
    /// Most objects to return.
    pub limit: u32,
    /// Only objects with marks; all of them, whatever the limit is.
    pub only_marked: bool,
}

/// Some objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaListResp {
    /// The objects, in an order that stays.
    pub objects: Vec<ObjectId>,
    /// Whether nothing follows.
    pub end: bool,
}
message!(ReplicaListReq => ReplicaListResp, ReplicaList);

/// Reads from a member what the primary cannot read: a block that is damaged there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReadReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Bytes wanted.
    pub len_bytes: u32,
}

/// The bytes are the bulk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReadResp {
    /// Whether the object exists there.
    pub exists: bool,
}
message!(ReplicaReadReq => ReplicaReadResp, ReplicaRead);

/// Asks a member to read blocks of an object from its disk and to verify them. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaVerifyReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The object.
    pub object: ObjectId,
    /// First block.
    pub from_block: u64,
    /// Number of blocks; at most [`VERIFY_BLOCKS_MAX`].
    pub blocks: u64,
}

/// The stored checksums of the blocks are the bulk, 4 bytes each, fewer where the object ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaVerifyResp {
    /// Whether the object exists there.
    pub exists: bool,
    /// Whether nothing of the object can be read: its header is damaged, or its file was cut.
    pub is_unreadable: bool,
    /// Blocks that do not match their checksums, or that the disk does not return.
    pub damaged_blocks: Vec<u64>,
    /// First block behind these that may have data there. `None`: only holes follow.
    pub next_data: Option<u64>,
}
message!(ReplicaVerifyReq => ReplicaVerifyResp, ReplicaVerify);

/// Gives a member the record of the scrub, so that a pass goes on where the member takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaScrubReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The record.
    pub record: ScrubRecord,
}
message!(ReplicaScrubReq => Empty, ReplicaScrub);
