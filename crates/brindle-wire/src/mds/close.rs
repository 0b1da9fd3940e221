//! close: the handle goes; the last write close ends the write session.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::report::WriteReport;
use crate::message;

/// Gives handles back, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseReq {
    /// The inode.
    pub ino: Ino,
    /// The client's number of the handle.
    pub handle: u64,
    /// The last report of a writer.
    pub report: Option<WriteReport>,
}
message!(CloseReq => Empty, Close);
