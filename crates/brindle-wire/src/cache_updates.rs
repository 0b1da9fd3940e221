//! Cache updates: names and attributes that the answer of an MDT carries for its caller's cache.
//!
//! An answer that found or changed names and inodes also carries their present state, so that the caller can answer from its
//! own cache for as long as it holds the lease of the directory (`docs/design/005-directory-leases.md`). Cache updates lie
//! behind the outcome in the body of a reply; the header has their length. The outcome does not contain them: a request that is
//! answered again from the reply cache comes without cache updates.

use brindle_types::{Attr, FileType, Ino};
use serde::{Deserialize, Serialize};

use crate::Name;

/// Cache updates in an answer, beside its outcome. Places (`at`) are positions in the log of the MDT: of two
/// facts about the same thing, the one with the higher place is newer. Places of different terms of the MDT
/// cannot be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUpdates {
    /// Directories whose lease the caller holds.
    pub leased: Vec<Leased>,
    /// Targets of names.
    pub names: Vec<NameUpdate>,
    /// Attributes of inodes.
    pub inodes: Vec<InodeUpdate>,
}

/// The caller holds the lease of a directory: nobody else changes its entries, its own attributes or covered
/// attributes of what is in it without a [`crate::notify::LeaseNotice`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// The directory.
    pub dir: Ino,
    /// Place in the log at which that was so.
    pub at: u64,
    /// Whether this very request made the directory, so that it has no entries.
    pub is_new: bool,
}

/// The target of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameUpdate {
    /// Directory.
    pub dir: Ino,
    /// Name.
    pub name: Name,
    /// Inode and type; `None` if there is no such name.
    pub to: Option<(Ino, FileType)>,
    /// Place in the log at which that was so.
    pub at: u64,
}

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeUpdate {
    /// The inode.
    pub ino: Ino,
    /// Place in the log at which that was so.
    pub at: u64,
    /// Attributes of the inode, if a lease of the caller covers them. Otherwise they have changed, or the
    /// inode is gone.
    pub known: Option<Covered>,
}

/// Attributes that a lease covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The attributes.
    pub attr: Attr,
    /// The directory whose lease it is: a directory's own, the one with the only name of anything else. The
    /// lease of a directory's parent covers its rights only ([`brindle_types::attr::Rights`]); everything
    /// else is what it was at that place.
    pub by: Ino,
}

impl Covered {
    /// Whether only the rights are covered.
    pub fn is_rights_only(&self) -> bool {
        self.attr.kind == FileType::Directory && self.by != self.attr.ino
    }
}

impl CacheUpdates {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.leased.is_empty() && self.names.is_empty() && self.inodes.is_empty()
    }
}
