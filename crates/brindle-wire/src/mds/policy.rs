//! Policies: scans with the tiering state of each entry, removals that compare first, and the backlog of queued actions (design note 033).
//!
//! A policy scan is a [`super::scan`] whose matches come with all facts that the criteria of policies ask about. A removal names the entry
//! as the scan has found it, and is refused if the entry has changed since.

use brindle_types::attr::Time;
use brindle_types::{Attr, HsmKind, Ino, PoolName};
use serde::{Deserialize, Serialize};

use super::Empty;
use super::scan::{ScanCursor, Term};
use crate::{Cred, message};

/// Most extended attributes that one scan asks for.
pub const XATTRS_MAX: usize = 8;
/// Longest value of an extended attribute that is told; of a longer one only that it exists.
pub const XATTR_BYTES_MAX: usize = 256;
/// Most flags to compare with in one scan.
pub const FLAGS_MAX: usize = 64;
/// Most OSTs of one file that are told.
pub const OSTS_MAX: usize = 512;
/// Longest path of an entry to remove, in bytes.
pub const PATH_BYTES_MAX: usize = 64 << 10;

/// The flags of a file under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsMatch {
    /// Mask of the bits of [`brindle_types::hsm`] that count.
    pub mask: u32,
    /// Wanted value of these bits.
    pub value: u32,
}

/// Asks for a page of the whole file system. Only root may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyScanReq {
    /// Directory to begin at.
    pub start: Ino,
    /// The predicate, as postfix terms.
    pub predicate: Vec<Term>,
    /// Files whose flags match one of these; none for all.
    pub flags: Vec<FlagsMatch>,
    /// Names of extended attributes to tell.
    pub xattrs: Vec<Vec<u8>>,
    /// Cursor of the page before; `None` for the first.
    pub cursor: Option<ScanCursor>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// An extended attribute that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrFound {
    /// The attribute does not exist.
    None,
    /// Value of the attribute.
    Value(Vec<u8>),
    /// The value is longer than [`XATTR_BYTES_MAX`].
    TooLong,
}

/// An entry that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFound {
    /// Below the start, without a leading slash.
    pub path: Vec<u8>,
    /// Attributes as the MDT knows them.
    pub attr: Attr,
    /// Flags of tiering.
    pub flags: u32,
    /// Number of the archive; 0 for none.
    pub archive: u32,
    /// The action that is queued or under way.
    pub under_way: Option<HsmKind>,
    /// Pools that its components ask for.
    pub pools: Vec<PoolName>,
    /// OSTs of its stripes, one entry a stripe, at most [`OSTS_MAX`].
    pub osts: Vec<u16>,
    /// Whether a directory is empty.
    pub is_empty_dir: bool,
    /// Extended attributes, in the order in which they were asked for.
    pub xattrs: Vec<XattrFound>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyScanResp {
    /// Entries that match.
    pub found: Vec<PolicyFound>,
    /// The clock of the MDT at the beginning of the scan, by which ages are meant.
    pub began: Time,
    /// Start of the next page; `None` at the end.
    pub cursor: Option<ScanCursor>,
}
message!(PolicyScanReq => PolicyScanResp, PolicyScan);

/// Removes an entry if it is as it was found, and nobody has it open. Only root may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRemoveReq {
    /// Path of the entry from the root of the file system, without a leading slash.
    pub path: Vec<u8>,
    /// Inode that the path led to.
    pub ino: Ino,
    /// Time of the last change of the inode (ctime).
    pub ctime: Time,
    /// Time of the last change of the contents (mtime).
    pub mtime: Time,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(PolicyRemoveReq => Empty, PolicyRemove);

/// Asks what waits for which archive. Only root may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmBacklogReq {
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// Actions of one kind for one archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmBacklog {
    /// The archive.
    pub archive: u32,
    /// Kind of the actions.
    pub kind: HsmKind,
    /// Actions that wait for an agent.
    pub waiting: u64,
    /// Actions that agents have.
    pub running: u64,
    /// Waiting time of the oldest action in the queue, in seconds.
    pub oldest_waits_secs: u64,
    /// The file of that one.
    pub oldest: Option<Ino>,
    /// Whether an agent serves this archive now.
    pub is_served: bool,
}

/// Actions that wait, by archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmBacklogResp {
    /// Lines in order of archive and kind.
    pub lines: Vec<HsmBacklog>,
}
message!(HsmBacklogReq => HsmBacklogResp, HsmBacklog);
