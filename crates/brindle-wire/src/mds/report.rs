//! report: a writer's report of its writes to the MDT: at fsync, close, and about once a second.

use brindle_types::attr::Time;
use brindle_types::{Ino, Pair, Stripe};
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::message;

/// Most files in one [`ReportReq`].
pub const REPORT_ITEMS_MAX: usize = 1024;

/// A client's writes to a file, as far as the client does not know that the MDT has heard of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReport {
    /// Grows with everything that there is to tell. A report says all that was not answered yet, so an older one says
    /// nothing new, and the same one twice moves times once.
    pub number: u64,
    /// Highest end of a write in bytes; 0 if none.
    pub end_bytes: u64,
    /// Whether bytes were written, so that mtime and ctime move (unless `attr_epoch` is old).
    pub written: bool,
    /// Start of the last write, by the server's clock as the client knows it; `None`: the server takes its
    /// own time.
    pub written_at: Option<Time>,
    /// Set-id bits must be cleared because a caller without CAP_FSETID wrote.
    pub kill_suidgid: bool,
    /// Attribute epoch under which the writes were made.
    pub attr_epoch: Pair,
    /// Truncate epoch under which the writes were made; an older one changes neither size nor times.
    pub truncate_epoch: Pair,
    /// [`brindle_types::Layout::body`] that what follows is true of.
    pub body: Pair,
    /// Stripes whose objects are known to exist and to be synced.
    pub synced_stripes: Vec<Stripe>,
    /// Stripes written and not known to be synced, with the OST's boot term at the write.
    pub unsynced_stripes: Vec<(Stripe, u32)>,
    /// Allocated bytes of the file as the writer last heard, if it did.
    pub allocated_bytes: Option<u64>,
}

/// Objects of one file that exist on stable storage. Told of files that the client has closed, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncedObjects {
    /// The file.
    pub ino: Ino,
    /// [`brindle_types::Layout::body`] that they belong to. Nothing is recorded under another one.
    pub body: Pair,
    /// Stripes whose objects exist.
    pub stripes: Vec<Stripe>,
}

/// Reports several files at once; at most [`REPORT_ITEMS_MAX`] of each kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReq {
    /// Files that are open and what was written.
    pub items: Vec<(Ino, WriteReport)>,
    /// Files of which objects were synced.
    pub synced: Vec<SyncedObjects>,
}
message!(ReportReq => Empty, Report);
