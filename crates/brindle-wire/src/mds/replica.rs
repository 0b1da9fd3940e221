//! Messages between the members of an MDT's replica set, from the primary to the others (design note 044).
//!
//! Records and rows travel in the bulk, as records lie in the log of `brindle-kv`.

use serde::{Deserialize, Serialize};

use super::Empty;
use crate::message;
use crate::oss::replica::{Attachment, ReplicaLeaseResp};

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
