//! close: gives handles back; the last write close of a file ends its write session.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::report::WriteReport;
use crate::message;

/// Most handles in one request.
pub const CLOSES_MAX: usize = 64;

/// Gives handles back, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseReq {
    /// The handles, at most [`CLOSES_MAX`], each of another inode.
    pub closes: Vec<Close>,
}
message!(CloseReq => Empty, Close);

/// A handle that is given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// The inode.
    pub ino: Ino,
    /// The client's number of the handle.
    pub handle: u64,
    /// The last report of a writer.
    pub report: Option<WriteReport>,
}

impl CloseReq {
    /// Request to close one handle.
    pub fn one(ino: Ino, handle: u64, report: Option<WriteReport>) -> CloseReq {
        CloseReq { closes: vec![Close { ino, handle, report }] }
    }
}
