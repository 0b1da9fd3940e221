//! readdir: entries in hash order, so that a cookie stays valid whatever is added or removed (design note 003).

use brindle_types::{Attr, FileType, Ino};
use serde::{Deserialize, Serialize};

use crate::{Name, message};

/// Smallest cookie of a real entry; 0 is the start, 1 is behind `.`, 2 is behind `..`.
pub const COOKIE_FIRST: u64 = 16;

/// Asks for entries behind a cookie. `.` and `..` are the client's business.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaddirReq {
    /// Directory.
    pub ino: Ino,
    /// Cookie of the last entry that the caller has; below [`COOKIE_FIRST`] for the start.
    pub after: u64,
    /// Most entries to return.
    pub entries_max: u32,
    /// Whether attributes are wanted.
    pub plus: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name.
    pub name: Name,
    /// Inode.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// Place in the directory: a 63-bit hash of the name, at least [`COOKIE_FIRST`].
    pub cookie: u64,
    /// Attributes, when asked for and when the lease of the directory covers them and the caller holds it.
    pub attr: Option<Attr>,
}

/// Some entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaddirResp {
    /// Entries in order of cookie.
    pub entries: Vec<DirEntry>,
    /// Whether nothing follows.
    pub end: bool,
    /// The parent directory, for `..`.
    pub parent: Ino,
}
message!(ReaddirReq => ReaddirResp, Readdir);
