//! Attributes of an inode as they travel and as stat shows them.

use serde::{Deserialize, Serialize};

use crate::ids::{Ino, Pair};

/// Type of an inode; the numbers are those of `st_mode >> 12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileType {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileType {
    /// The type in the top four bits of a `st_mode`; `None` for bits that name no type.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match (mode >> 12) & 0xf {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The type's bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// A point in civil time on the wire and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, below 1e9.
    pub nanos: u32,
}

impl Time {
    /// Nanoseconds since 1970; `None` beyond the years 1677 to 2262.
    pub fn ns(self) -> Option<i64> {
        self.secs.checked_mul(1_000_000_000)?.checked_add(self.nanos.into())
    }

    /// Whether the nanoseconds are less than a second: times that were not made here are checked.
    pub fn is_valid(self) -> bool {
        self.nanos < 1_000_000_000
    }

    /// The time this many nanoseconds after 1970.
    pub fn from_ns(ns: i64) -> Time {
        let nanos = u32::try_from(ns.rem_euclid(1_000_000_000)).expect("it is below a second");
        Time { secs: ns.div_euclid(1_000_000_000), nanos }
    }

    /// The time this many milliseconds earlier.
    pub fn minus_ms(self, ms: u64) -> Time {
        self.ns().map_or(self, |ns| Time::from_ns(ns.saturating_sub_unsigned(ms.saturating_mul(1_000_000))))
    }
}

/// A time of last access that is older than this changes with the next read.
pub const ACCESS_AGE_SECS: i64 = 24 * 3600;

/// Whether a read at `at` changes the time of the last access of a file with these times (contents, inode): the rule of Linux's `relatime`.
pub fn access_counts(atime: Time, (mtime, ctime): (Time, Time), at: Time) -> bool {
    let is_old = at.secs.saturating_sub(atime.secs) >= ACCESS_AGE_SECS;
    at > atime && (atime <= mtime || atime <= ctime || is_old)
}

/// Attributes of an inode: those that stat shows, and those that the client needs beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileType,
    /// Permission bits with set-id and sticky bits (07777).
    pub perm: u16,
    /// Number of directory entries (for a directory: 2 + subdirectories).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as Linux encodes it; else 0.
    pub rdev: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated space in bytes.
    pub allocated_bytes: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Whether the inode has a POSIX ACL (access or default).
    pub has_acl: bool,
    /// Whether the inode has any other extended attribute.
    pub has_xattr: bool,
    /// Version of the contents; `None` while a write session exists (compares equal to nothing).
    pub data_version: Option<Pair>,
    /// Preferred I/O size in bytes: the stripe size.
    pub blksize_bytes: u32,
}

/// Permissions of an inode: everything that the kernel looks at when it checks one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Type.
    pub kind: FileType,
    /// Permission bits with set-id and sticky bits (07777).
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it has a POSIX ACL, which has to be asked for.
    pub has_acl: bool,
    /// Whether it has any other extended attribute, likewise.
    pub has_xattr: bool,
}

impl Attr {
    /// Attributes of an inode with one name that belongs to root, has no extended attributes and was never
    /// touched: the start of many tests.
    pub fn plain(ino: Ino, kind: FileType, size_bytes: u64) -> Attr {
        let time = Time::default();
        Attr {
            ino,
            kind,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes,
            allocated_bytes: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            has_acl: false,
            has_xattr: false,
            data_version: None,
            blksize_bytes: 4096,
        }
    }
}
