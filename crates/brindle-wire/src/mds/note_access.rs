//! note_access: reports which files were read, for the times of their last access.
//!
//! The operation is idempotent: a repeated report changes nothing.

use brindle_types::attr::Time;
use brindle_types::{Ino, Pair};
use serde::{Deserialize, Serialize};

use crate::message;

/// Most files in one request: the writer lock of the MDT is held for all of them.
pub const ACCESSES_MAX: usize = 256;

/// A file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessed {
    /// The file.
    pub ino: Ino,
    /// When, by the MDT's clock.
    pub at: Time,
    /// The last explicit change of its times that the reader knew of: a later one is not undone.
    pub attr_epoch: Pair,
}

/// Tells of reads. Without files it only asks since when access times are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteAccessReq {
    /// The files, at most [`ACCESSES_MAX`].
    pub files: Vec<Accessed>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteAccessResp {
    /// Reads of before this moment are not in the access times of this file system.
    pub since: Time,
}
message!(NoteAccessReq => NoteAccessResp, NoteAccess);
