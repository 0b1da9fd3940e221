//! Messages between the members of an MDT's replica set, from the primary to the others (design note 044).
//!
//! Records and rows travel in the bulk, as records lie in the log of `brindle-kv`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::scrub::MdtScrubPlaces;
use crate::message;
use crate::oss::replica::{Attachment, ReplicaLeaseResp};
use crate::oss::scrub::ScrubRecord;

/// A place in the log of an MDT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// Term of the opening that wrote the record.
    pub term: u32,
    /// Index of the record.
    pub index: u64,
}

/// A primary begins to send records to a member. On return nothing of an earlier attachment is under way there, or will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAttachReq {
    /// The new attachment.
    pub attachment: Attachment,
    /// Term of the primary's opening, which may not have begun yet. The member never takes it itself: it has kept that durably when it answers.
    pub term: u32,
}

/// The member is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAttachResp {
    /// Boot term of the member: under another one it may have lost what nobody synced.
    pub boot_term: u32,
    /// The last record that it has; `None` if it has nothing of the MDT.
    pub last: Option<LogPlace>,
    /// Highest term that its log knows.
    pub term_max: u32,
}
message!(MemberAttachReq => MemberAttachResp, MemberAttach);

/// A primary asks for its lease to be renewed. A member that grants it does not serve as primary before the lease has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLeaseReq {
    /// The attachment.
    pub attachment: Attachment,
    /// Epoch of the set now. The member records it durably before it answers.
    pub epoch: u64,
}
message!(MemberLeaseReq => ReplicaLeaseResp, MemberLease);

/// Records behind those that the member has, in the bulk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAppendReq {
    /// The attachment.
    pub attachment: Attachment,
}

/// Answer to an append: the records survive the death of the member's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAppendResp {
    /// The last record that the member has.
    pub written: u64,
    /// Index up to which records survive a power cut.
    pub synced: u64,
}
message!(MemberAppendReq => MemberAppendResp, MemberAppend);

/// Request to make all appended records survive a power cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSyncReq {
    /// The attachment.
    pub attachment: Attachment,
}
message!(MemberSyncReq => MemberAppendResp, MemberSync);

/// A step of filling a member with the rows of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FillStep {
    /// The fill begins: the old state of the member is set aside until the new rows are complete.
    Begin {
        /// The last record whose rows are given.
        at: LogPlace,
    },
    /// Rows, in the bulk.
    Rows,
    /// The fill ends. The rows are durable when the step is answered; the member's old state is removed.
    End,
}

/// Fills a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFillReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The step.
    pub step: FillStep,
}
message!(MemberFillReq => Empty, MemberFill);

/// Place in the files of a member's store: the piece that is verified next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePlace {
    /// Name of the file in the directory of the store.
    pub file: String,
    /// Offset of the piece.
    pub offset: u64,
    /// Index of the record there, in a segment of the log.
    pub index: u64,
}

/// A damaged place in a file of a member's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDamage {
    /// Name of the file in the directory of the store.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// Reason.
    pub why: String,
    /// Whether the member has mended it. A member with damage that it cannot mend asks to be filled anew when it is next attached.
    pub is_mended: bool,
}

/// Asks a member to read a piece of its files from the device and to verify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberVerifyReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The piece; `None` for the first one.
    pub place: Option<StorePlace>,
}

/// Outcome for a piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberVerifyResp {
    /// The next piece; `None` at the end.
    pub next: Option<StorePlace>,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Damage in this piece.
    pub damaged: Vec<StoreDamage>,
}
message!(MemberVerifyReq => MemberVerifyResp, MemberVerify);

/// A step of comparing the rows of a member at one moment with those of the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareStep {
    /// The member keeps its rows as they are now. It has at least the records up to this one.
    Begin {
        /// A record that the moment is not before.
        from: LogPlace,
    },
    /// Digest of some rows of that moment.
    Rows {
        /// Key behind which they begin; empty for the first.
        after: Bytes,
        /// Last key; `None` for the end of all rows.
        to: Option<Bytes>,
        /// Most rows to read.
        rows_max: u64,
    },
    /// The moment is not needed any more.
    End,
}

/// Compares rows of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCompareReq {
    /// The attachment.
    pub attachment: Attachment,
    /// The step.
    pub step: CompareStep,
}

/// The moment, and the digest of the rows where rows were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCompareResp {
    /// Last record of the moment.
    pub at: LogPlace,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Checksum over keys and values, in order.
    pub sum: u32,
}
message!(MemberCompareReq => MemberCompareResp, MemberCompare);

/// Gives a member the record of the scrub, so that a pass goes on where the member takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberScrubReq {
    /// The attachment.
    pub attachment: Attachment,
    /// Progress and settings.
    pub record: ScrubRecord,
    /// Places.
    pub places: MdtScrubPlaces,
}
message!(MemberScrubReq => Empty, MemberScrub);
