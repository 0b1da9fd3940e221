//! A POSIX file system in memory, small enough to be right by reading, and a generator of random operations.
//!
//! A sequence of operations runs against the model and against something real (two kernel mounts, or simulated
//! clients); every answer must be equal: errno, bytes, names, link counts, sizes. The caller is root, so that
//! permissions never decide.

use std::collections::BTreeMap;
use std::sync::Arc;

mod generate;
mod tree;

pub use generate::{Generator, SLOTS};
pub use tree::Model;

/// Flags of [`Op::Open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// O_RDONLY or O_RDWR.
    pub read: bool,
    /// O_WRONLY or O_RDWR.
    pub write: bool,
    /// O_APPEND.
    pub append: bool,
    /// O_TRUNC.
    pub truncate: bool,
    /// O_CREAT.
    pub create: bool,
    /// O_EXCL.
    pub exclusive: bool,
}

/// Kind of rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    /// Replaces what is there.
    Plain,
    /// RENAME_NOREPLACE.
    NoReplace,
    /// RENAME_EXCHANGE.
    Exchange,
}

/// An operation. Paths are relative to the root of the tree; `slot` numbers an open file of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        how: RenameHow,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    /// lstat.
    Stat {
        path: String,
    },
    List {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Truncate {
        path: String,
        size: u64,
    },
    SetXattr {
        path: String,
        name: String,
        value: Vec<u8>,
    },
    GetXattr {
        path: String,
        name: String,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Open {
        slot: usize,
        path: String,
        how: How,
    },
    Tmpfile {
        slot: usize,
        dir: String,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        fill: u8,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Fstat {
        slot: usize,
    },
    Ftruncate {
        slot: usize,
        size: u64,
    },
    Punch {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Zero {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Fallocate {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Fsync {
        slot: usize,
    },
    Copy {
        from: usize,
        to: usize,
        from_offset: u64,
        to_offset: u64,
        len: usize,
    },
}

/// Attributes of stat, as far as they must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatView {
    /// Names the inode; real inode numbers must map one to one to the model's.
    pub ino: u64,
    /// `st_mode` with type and permission bits.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Size in bytes; 0 for directories (file systems differ).
    pub size: u64,
}

/// Answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Failed with this errno.
    Errno(i32),
    /// Succeeded with nothing to tell.
    Done,
    /// Bytes read, a link's target, an attribute's value.
    Bytes(Vec<u8>),
    /// Number of bytes written or copied.
    Count(usize),
    /// stat.
    Stat(StatView),
    /// Names in a directory, sorted.
    Names(Vec<String>),
}

/// A thing in a tree, as [`Model::snapshot`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Names the inode.
    pub ino: u64,
    /// `st_mode` with type and permission bits.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Contents.
    pub content: Content,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Contents of a [`Node`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory; its entries have paths of their own.
    Dir,
    /// A file's bytes.
    File(Arc<Vec<u8>>),
    /// Target of a symbolic link.
    Symlink(String),
}

/// The bytes that `Write { fill, len, .. }` writes: never zero, different at each offset modulo 251.
pub fn pattern(fill: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (fill as usize + i) % 251 + 1).map(|b| b.min(255) as u8).collect()
}
