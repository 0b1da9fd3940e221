//! backup_read: the rows of an MDT at one moment, page by page (`brindle mdt backup`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for the next page of rows. Answered without a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReadReq {
    /// Number of the moment that is read; 0 begins with the present one.
    pub moment: u64,
    /// Key of the last row of the page before; empty at first.
    pub after: Bytes,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReadResp {
    /// Number of the moment, for the next page.
    pub moment: u64,
    /// Term of the MDT.
    pub term: u32,
    /// Keys and values, as they are stored, in order of key.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Whether this is the last page; then the MDT has let go of the moment.
    pub is_last: bool,
}
message!(BackupReadReq => BackupReadResp, BackupRead);
