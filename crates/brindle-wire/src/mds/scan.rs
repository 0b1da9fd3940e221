//! scan: finds or sums up the entries below a directory that match a predicate, in the MDT (`lfs find`, `brindle file
//! du`).
//!
//! Each request is answered with a page of bounded size and work, and a cursor to go on from. The server keeps no state
//! between pages: a scan outlives a restart, and other requests are never in its way.

use brindle_types::attr::Time;
use brindle_types::{Attr, Code, FileType, Ino, PoolName};
use serde::{Deserialize, Serialize};

use crate::{Cred, Name, message};

/// Most terms of a predicate.
pub const TERMS_MAX: usize = 256;
/// Longest glob in bytes.
pub const GLOB_BYTES_MAX: usize = 1024;
/// Deepest level below the start of a scan that is looked at; what lies deeper is named as refused.
pub const DEPTH_MAX: u32 = 4096;
/// Longest path below the start of a scan, in bytes; what lies deeper is named as refused.
pub const PATH_BYTES_MAX: usize = 64 << 10;

/// Numbers from `min` to `max`, both included; none if `min` is above `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
}

impl Range {
    /// Whether a number is in it.
    pub fn holds(&self, n: u64) -> bool {
        self.min <= n && n <= self.max
    }
}

/// A time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamp {
    /// Last access.
    Access,
    /// Last change of contents.
    Modify,
    /// Last change of the inode.
    Change,
    /// Creation.
    Birth,
}

/// Comparison of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PermMatch {
    /// All bits are these.
    Exact,
    /// At least all of these are set.
    All,
    /// At least one of these is set (or none is asked for).
    Any,
}

/// Kind of layout of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// Layout in objects, striped; also of an empty file, which has no bytes anywhere yet.
    Raid0,
    /// Layout in the MDT.
    Mdt,
    /// Layout with several components, as the file grows.
    Composite,
}

/// A question to one entry. Tests from [`Test::StripeCount`] on are false for everything but regular files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    /// The name (without directories) matches a glob.
    Name {
        /// `*`, `?`, `[...]` and `\` as in fnmatch(3); a leading dot is nothing special.
        glob: Vec<u8>,
        /// Upper and lower case are the same.
        fold_case: bool,
    },
    /// The type is one of these.
    Kind(Vec<FileType>),
    /// Size in bytes, as the MDT knows it.
    Size(Range),
    /// Age in seconds at the beginning of the scan.
    Age {
        /// Time of the inode to use.
        of: Stamp,
        /// At least this old; `None`: from the future too.
        at_least_secs: Option<u64>,
        /// Younger than this; `None`: however old.
        below_secs: Option<u64>,
    },
    /// A time later than this one.
    Newer {
        /// Time of the inode to compare.
        of: Stamp,
        /// Time to compare with.
        than: Time,
    },
    /// Owner.
    Uid(Range),
    /// Group.
    Gid(Range),
    /// Number of names.
    Links(Range),
    /// Permission bits, with set-id and sticky bits.
    Perm {
        /// Kind of comparison.
        how: PermMatch,
        /// Bits to compare with.
        bits: u16,
    },
    /// Number of stripes, of the component that `lfs getstripe -c` shows; all OSTs, asked for and not placed yet, count as
    /// the largest number.
    StripeCount(Range),
    /// Stripe size in bytes, of the same component.
    StripeSize(Range),
    /// The first OST, of the same component, is one of these.
    StripeIndex(Vec<u16>),
    /// A stripe of any component is on one of these OSTs.
    Ost(Vec<u16>),
    /// Kind of layout of the file.
    Layout(LayoutKind),
    /// Number of components.
    Components(Range),
    /// A component asks for this pool, whether there is one of that name now or not.
    Pool(PoolName),
    /// Project; of every type of entry.
    Project(Range),
}

/// A predicate is a list of these in postfix order (`a b And Not`); an empty one is true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Term {
    /// A question.
    Test(Test),
    /// The opposite of the term before.
    Not,
    /// Both previous terms hold.
    And,
    /// At least one of the two terms before holds.
    Or,
}

/// The part of each match that the answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Paths of the entries.
    Paths,
    /// Paths and attributes of the entries.
    Attrs,
    /// The space that they take, for every directory down to this depth (0: only the start).
    Sums {
        /// Deepest directory with a sum of its own.
        depth_max: u32,
    },
}

/// Asks for a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanReq {
    /// Credentials of the caller. A caller other than root gets what find(1) would show: nothing below a
    /// directory without search permission, or without read permission.
    pub cred: Cred,
    /// Directory (or file) to begin at; it is looked at first, at depth 0.
    pub start: Ino,
    /// Name of the start for [`Test::Name`]: the last part of the path that the user gave.
    pub start_name: Name,
    /// The predicate, as postfix terms.
    pub predicate: Vec<Term>,
    /// Entries above this depth do not match.
    pub depth_min: u32,
    /// Entries below this depth are not looked at.
    pub depth_max: u32,
    /// The wanted part of each match.
    pub wanted: Wanted,
    /// Cursor of the page before; `None` for the first.
    pub cursor: Option<ScanCursor>,
}

/// A place in a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanCursor {
    /// Start of the scan, by the clock of the MDT; ages are those of this moment.
    pub began: Time,
    /// The directories that are being read, outermost first.
    pub levels: Vec<ScanLevel>,
}

/// A directory that is being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanLevel {
    /// The directory.
    pub dir: Ino,
    /// Last entry of the directory that was looked at; empty at the beginning. For all levels but the last,
    /// the name of the next one.
    pub after: Name,
}

/// An entry that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanFound {
    /// Below the start, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
    /// Attributes as the MDT knows them, with [`Wanted::Attrs`].
    pub attr: Option<Attr>,
}

/// Space of the matching entries in (and below) a directory, as far as this page met them. A directory has as many
/// of these as it takes, its first one before those of the directories in it, and none once it was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanSum {
    /// The directory, below the start.
    pub path: Vec<u8>,
    /// Entries.
    pub entries: u64,
    /// Allocated bytes in whole blocks of 512, without [`ScanSum::linked`].
    pub allocated_bytes: u64,
    /// Sizes of regular files and symbolic links, without [`ScanSum::linked`].
    pub size_bytes: u64,
    /// Entries with more names than one, each to be counted once.
    pub linked: Vec<ScanLinked>,
}

/// An inode with several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanLinked {
    /// The inode.
    pub ino: Ino,
    /// Allocated bytes in whole blocks of 512.
    pub allocated_bytes: u64,
    /// Size.
    pub size_bytes: u64,
}

/// A directory that was not looked into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRefused {
    /// The directory, below the start.
    pub path: Vec<u8>,
    /// Reason.
    pub code: Code,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanResp {
    /// Entries that match, each directory before what is in it.
    pub found: Vec<ScanFound>,
    /// Sums, with [`Wanted::Sums`].
    pub sums: Vec<ScanSum>,
    /// Directories that were not looked into.
    pub refused: Vec<ScanRefused>,
    /// Start of the next page; `None` at the end.
    pub cursor: Option<ScanCursor>,
}
message!(ScanReq => ScanResp, Scan);
