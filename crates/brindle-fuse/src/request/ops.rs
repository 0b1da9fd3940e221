//! Operations of requests: one variant per operation, one structure for each that has arguments.
//!
//! File systems match on [`Op`]. Flags stay raw where they are the system's own (`O_*`, `RENAME_*`, `FALLOC_*`).

use brindle_types::attr::Time;
use bytes::Bytes;

/// An operation with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Find a name: answer with an entry, or ENOENT (or an entry with node id 0, which may be cached).
    /// The names `.` and `..` ask for an inode or its parent (open by handle).
    Lookup(Lookup),
    /// Attributes: answer with attributes.
    Getattr(Getattr),
    /// Attributes with birth time: answer with statx.
    Statx(Statx),
    /// Change attributes: answer with attributes.
    Setattr(Setattr),
    /// Target of a symbolic link: answer with data.
    Readlink,
    /// Make a symbolic link: answer with an entry.
    Symlink(Symlink),
    /// Make a file, pipe, socket or device: answer with an entry.
    Mknod(Mknod),
    /// Make a directory: answer with an entry.
    Mkdir(Mkdir),
    /// Remove a name of a file.
    Unlink(Unlink),
    /// Remove an empty directory.
    Rmdir(Rmdir),
    /// Move a name (RENAME and RENAME2).
    Rename(Rename),
    /// Give the inode `ino` one more name in this directory: answer with an entry.
    Link(Link),
    /// Open a file: answer with a handle.
    Open(Open),
    /// Make and open a file: answer with an entry and a handle.
    Create(Create),
    /// Make and open a file without a name: answer with an entry and a handle.
    Tmpfile(Tmpfile),
    /// Read: answer with data.
    Read(Read),
    /// Write: answer with the number of bytes written.
    Write(Write),
    /// A descriptor was closed; sent for each close, several times for one open.
    Flush(Flush),
    /// Make contents durable.
    Fsync(Fsync),
    /// The last descriptor of an open is gone; errors reach nobody.
    Release(Release),
    /// Allocate or free space.
    Fallocate(Fallocate),
    /// Find data or holes: answer with an offset.
    Lseek(Lseek),
    /// A control of a file or directory: answer with ioctl.
    Ioctl(Ioctl),
    /// Copy between files: answer with the number of bytes copied.
    CopyFileRange(CopyFileRange),
    /// Ask who holds a lock: answer with a lock.
    Getlk(Lock),
    /// Take or drop a lock, perhaps waiting (SETLK and SETLKW).
    Setlk(Setlk),
    /// Set an extended attribute.
    Setxattr(Setxattr),
    /// Get an extended attribute: answer with data, or its length when `size` is 0.
    Getxattr(Getxattr),
    /// List extended attributes, each ended by a zero byte: answer with data, or its length when `size` is 0.
    Listxattr(Listxattr),
    /// Remove an extended attribute.
    Removexattr(Removexattr),
    /// Open a directory: answer with a handle.
    Opendir(Open),
    /// Read a directory (READDIR and READDIRPLUS): answer with a directory buffer.
    Readdir(Readdir),
    /// The last descriptor of a directory is gone.
    Releasedir(Release),
    /// Make a directory durable.
    Fsyncdir(Fsync),
    /// Space and inodes: answer with statfs.
    Statfs,
    /// Check rights (not sent under `default_permissions`).
    Access(Access),
}

impl Op {
    /// Whether answering it is mostly copying and checking bytes of files.
    pub fn moves_data(&self) -> bool {
        matches!(self, Op::Read(_) | Op::Write(_) | Op::CopyFileRange(_))
    }
}

/// LOOKUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The name.
    pub name: Bytes,
}

/// GETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Getattr {
    /// The handle that asks, where there is one.
    pub fh: Option<u64>,
}

/// STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The handle that asks, where there is one.
    pub fh: Option<u64>,
    /// `AT_STATX_*` bits.
    pub flags: u32,
    /// `STATX_*` bits wanted.
    pub mask: u32,
}

/// A new time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// The time given here.
    To(Time),
}

/// SETATTR: attributes that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setattr {
    /// The handle that asks (ftruncate, also O_TRUNC where it is not atomic).
    pub fh: Option<u64>,
    /// Permission bits, with type bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; sent only with the kernel's writeback cache.
    pub ctime: Option<Time>,
    /// Lock owner of the truncation, for mandatory locks.
    pub lock_owner: Option<u64>,
    /// Set-id bits go (HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// SYMLINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symlink {
    /// The new name.
    pub name: Bytes,
    /// Target of the link.
    pub target: Bytes,
}

/// MKNOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mknod {
    /// The new name.
    pub name: Bytes,
    /// Type and permission bits, before the umask.
    pub mode: u32,
    /// Device number.
    pub rdev: u32,
    /// The caller's umask; applied by the file system unless a default ACL replaces it.
    pub umask: u32,
}

/// MKDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkdir {
    /// The new name.
    pub name: Bytes,
    /// Permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// UNLINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlink {
    /// The name.
    pub name: Bytes,
}

/// RMDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rmdir {
    /// The name.
    pub name: Bytes,
}

/// RENAME and RENAME2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The old name, in the request's directory.
    pub name: Bytes,
    /// The new name's directory.
    pub new_parent: u64,
    /// The new name.
    pub new_name: Bytes,
    /// `RENAME_*` bits.
    pub flags: u32,
}

/// LINK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The inode that gets one more name.
    pub ino: u64,
    /// The new name, in the request's directory.
    pub name: Bytes,
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// `O_*` bits, without O_CREAT, O_EXCL and O_NOCTTY.
    pub flags: u32,
    /// Set-id bits go, because O_TRUNC is set.
    pub kill_suidgid: bool,
}

/// CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The new name.
    pub name: Bytes,
    /// `O_*` bits, O_EXCL included.
    pub flags: u32,
    /// Type and permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Set-id bits go, because O_TRUNC is set.
    pub kill_suidgid: bool,
}

/// TMPFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmpfile {
    /// `O_*` bits; O_EXCL means that it may never get a name.
    pub flags: u32,
    /// Type and permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The handle; for page reads of a mapping, one of those that map it.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; fewer in the answer means end of file.
    pub size: u32,
    /// The descriptor's `O_*` bits.
    pub flags: u32,
    /// Lock owner of the read, for mandatory locks.
    pub lock_owner: Option<u64>,
}

/// WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The handle; a guess when `from_cache`.
    pub fh: u64,
    /// First byte. With O_APPEND it is the kernel's idea of the end, which may be old.
    pub offset: u64,
    /// The bytes: a slice of the page-aligned buffer that they were read into.
    pub data: Bytes,
    /// The descriptor's `O_*` bits.
    pub flags: u32,
    /// Writeback of a page that was changed through a mapping: whole pages, from nobody in particular.
    pub from_cache: bool,
    /// Set-id bits go.
    pub kill_suidgid: bool,
    /// Lock owner of the write, for mandatory locks.
    pub lock_owner: Option<u64>,
}

/// FLUSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The handle.
    pub fh: u64,
    /// The process that closed; its POSIX locks on the file end.
    pub lock_owner: u64,
}

/// FSYNC and FSYNCDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// The handle.
    pub fh: u64,
    /// Only the data that a later read needs.
    pub data_only: bool,
}

/// RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The handle.
    pub fh: u64,
    /// The descriptor's `O_*` bits.
    pub flags: u32,
    /// The owner whose flock ends; `None` when none was taken through this open.
    pub flock_owner: Option<u64>,
}

/// FALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// The handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// `FALLOC_FL_*` bits.
    pub mode: u32,
}

/// LSEEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lseek {
    /// The handle.
    pub fh: u64,
    /// Offset to start from.
    pub offset: u64,
    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub whence: u32,
}

/// IOCTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// The command.
    pub command: u32,
    /// Input from the caller.
    pub data: Bytes,
    /// Size of the caller's output buffer, in bytes.
    pub room: u32,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// Handle of the source, the request's inode.
    pub fh_in: u64,
    /// First byte of the source.
    pub offset_in: u64,
    /// Inode of the destination.
    pub ino_out: u64,
    /// Handle of the destination.
    pub fh_out: u64,
    /// First byte of the destination.
    pub offset_out: u64,
    /// Number of bytes; never more than the answer can say.
    pub length: u64,
    /// Always 0 today.
    pub flags: u64,
    /// Whether the answer has 64 bits; for [`crate::reply::Reply::copied`].
    pub wide: bool,
}

/// Type of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Unlock: ends the locks of the owner in the range.
    Unlock,
}

/// GETLK, and the range of SETLK.
///
/// fcntl, flock and OFD locks arrive alike: only `flock` tells the second kind, and OFD locks carry the owner
/// number that flock uses for the open file. Never key both lock spaces by the owner alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The handle.
    pub fh: u64,
    /// Owner: a process (fcntl) or an open file (OFD, flock).
    pub owner: u64,
    /// A flock of the whole file, in a lock space of its own.
    pub flock: bool,
    /// The lock asked for.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for the end of the file, wherever it is.
    pub end: u64,
    /// Process id of the caller (thread group), as F_GETLK shows it.
    pub pid: u32,
}

/// SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setlk {
    /// The lock.
    pub lock: Lock,
    /// Wait until it can be had; the caller's signals end the wait through the request's `cancel`.
    pub wait: bool,
}

/// SETXATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setxattr {
    /// The name.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// The set-group-id bit goes, because an ACL is set by someone outside the group.
    pub kill_sgid: bool,
}

/// GETXATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Getxattr {
    /// The name.
    pub name: Bytes,
    /// Room for the value; 0 asks for its length.
    pub size: u32,
}

/// LISTXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listxattr {
    /// Room for the list; 0 asks for its length.
    pub size: u32,
}

/// REMOVEXATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removexattr {
    /// The name.
    pub name: Bytes,
}

/// READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readdir {
    /// The handle.
    pub fh: u64,
    /// The cookie of the last record seen; 0 at the start.
    pub offset: u64,
    /// Room for records in bytes.
    pub size: u32,
    /// Whether the attributes of each entry are wanted, which then counts as looked up.
    pub plus: bool,
}

/// ACCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// `R_OK`, `W_OK`, `X_OK` bits.
    pub mask: u32,
}
