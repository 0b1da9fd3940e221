//! Scrub of an OST: orders of administrators, its progress, and its record on the disk (design note 047).

use brindle_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::{first_form, message};

/// Places with damage that are named; more are only counted.
pub const NAMED_MAX: usize = 64;

/// A place in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScrubPlace {
    /// The object.
    pub object: ObjectId,
    /// First byte of the block; `None`: the object as a whole.
    pub offset: Option<u64>,
}

/// A pass over all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// Begin, in seconds since 1970.
    pub began_s: i64,
    /// End, in seconds since 1970; 0 while it is under way.
    pub ended_s: i64,
    /// Objects that were looked at.
    pub objects: u64,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Damaged places that were found: blocks, or objects as a whole.
    pub found: u64,
    /// Damaged places that were mended from another member.
    pub mended: u64,
    /// Damaged places that no member has whole.
    pub unmended: u64,
}

/// Record of the scrub beside the objects. All members of a replica set have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    /// Whether an administrator has stopped it.
    pub is_stopped: bool,
    /// Most bytes a second; 0 for the default.
    pub rate_bytes: u64,
    /// Days from the end of a pass to the begin of the next one; 0: passes are begun by order only.
    pub every_days: u32,
    /// Time of the next pass, in seconds since 1970.
    pub due_s: i64,
    /// Pass under way.
    pub pass: Option<ScrubPass>,
    /// Last object that the pass has done with.
    pub after: Option<ObjectId>,
    /// Place that the pass has come to in the object behind that.
    pub at: Option<ScrubPlace>,
    /// Bytes of all objects when the pass began.
    pub total_bytes: u64,
    /// Last pass that was completed.
    pub last: Option<ScrubPass>,
    /// Damaged places that could not be mended in the pass under way, or else in the last one; the first of them.
    pub named: Vec<ScrubPlace>,
}
first_form!(1 => ScrubRecord);

/// Order to the scrub of an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubOrder {
    /// Nothing: only tell.
    Show,
    /// Go on with the pass, or begin one.
    Start {
        /// Most bytes a second from now on.
        rate_bytes: Option<u64>,
        /// Days between passes from now on.
        every_days: Option<u32>,
    },
    /// Pause, until it is started again.
    Stop,
}

/// Gives an order to the scrub of an OST, and asks how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReq {
    /// The order.
    pub order: ScrubOrder,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubResp {
    /// The record, as it is in memory.
    pub record: ScrubRecord,
    /// Whether it reads at this moment.
    pub is_running: bool,
    /// Bytes a second that it goes at.
    pub rate_now_bytes: u64,
    /// Most bytes a second while nobody else uses the OST.
    pub rate_limit_bytes: u64,
    /// Reason why it does not go on, or cannot compare a member; empty if neither is so.
    pub trouble: String,
}
message!(ScrubReq => ScrubResp, Scrub);
