//! fsync: the MDT's half. The client has synced every OST of the layout first.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::report::WriteReport;
use crate::message;

/// Makes size, times, create and the path to the inode durable; of a directory: its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsyncReq {
    /// The inode.
    pub ino: Ino,
    /// Report of the writes, with the objects now synced.
    pub report: Option<WriteReport>,
}
message!(FsyncReq => Empty, Fsync);
