//! Answers to the kernel, encoded.
//!
//! Handlers build a [`Reply`] with one of its constructors; the session adds the head and writes it with one
//! `writev`, so that read data goes out from where it lies. Invariant: what a constructor builds has the exact size
//! that the kernel expects for that operation.

pub mod dir;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brindle_stdx::cast::{len_u32, low_u16};
use brindle_types::Attr;
use brindle_types::attr::Time;
use brindle_types::errno::{EINVAL, ERANGE};
use bytes::Bytes;
use zerocopy::{Immutable, IntoBytes};

use crate::abi::inputs::FileLock;
use crate::abi::outputs::*;
use crate::request::{CopyFileRange, Lock, LockKind};

pub use dir::DirBuffer;

/// Largest errno that the kernel takes in an answer.
const ERRNO_MAX: i32 = 511;
/// Unit of allocated space in attributes.
const BLOCK_BYTES: u64 = 512;
/// Most pieces of data in one answer; more are joined by copying.
pub(crate) const PIECES_MAX: usize = 512;

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 0, or the positive errno.
    pub(crate) errno: i32,
    /// The fixed part.
    pub(crate) fixed: Vec<u8>,
    /// Bytes that follow it, sent from where they lie.
    pub(crate) data: Vec<Bytes>,
    /// Set when the kernel has it.
    pub(crate) given: Option<Given>,
}

/// Whether the kernel has an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Arc<AtomicBool>);

impl Given {
    /// The kernel has the answer now.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Two answers that differ only in whether the kernel has them are equal.
impl PartialEq for Given {
    fn eq(&self, _: &Given) -> bool {
        true
    }
}

impl Eq for Given {}

/// Answer about a name and its inode, with the times for which the kernel may keep them.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The inode.
    pub attr: &'a Attr,
    /// Node id for the kernel: the inode number, if nothing else was chosen.
    pub nodeid: u64,
    /// Tells inodes apart that had the same number one after the other; any constant if numbers are never reused.
    pub generation: u64,
    /// Time for which the kernel may use the name without asking.
    pub entry_valid: Duration,
    /// Time for which the kernel may use the attributes without asking.
    pub attr_valid: Duration,
}

impl<'a> Entry<'a> {
    /// An entry that the kernel asks for again each time.
    pub fn uncached(attr: &'a Attr) -> Entry<'a> {
        Entry {
            attr,
            nodeid: attr.ino.0,
            generation: 0,
            entry_valid: Duration::ZERO,
            attr_valid: Duration::ZERO,
        }
    }

    pub(crate) fn to_kernel(&self) -> EntryOut {
        EntryOut {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.entry_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: attr_to_kernel(self.attr),
        }
    }
}

/// An open file for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Our number of the open; comes back with each request on it.
    pub fh: u64,
    /// Bits of [`crate::abi::flags::fopen`].
    pub flags: u32,
}

/// Space and inodes of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Size in units of `frsize_bytes`.
    pub blocks: u64,
    /// Free, reserve included.
    pub free: u64,
    /// Free for users.
    pub available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
    /// Preferred I/O size.
    pub bsize_bytes: u32,
    /// Unit of the first three.
    pub frsize_bytes: u32,
    /// Longest name.
    pub name_max_bytes: u32,
}

impl Reply {
    /// Done, nothing to say.
    pub fn ok() -> Reply {
        Reply { errno: 0, fixed: Vec::new(), data: Vec::new(), given: None }
    }

    /// Failed with this (positive) errno of `brindle_types::errno`. Values that the kernel would refuse become EIO.
    pub fn err(errno: i32) -> Reply {
        let errno = if (1..=ERRNO_MAX).contains(&errno) { errno } else { brindle_types::errno::EIO };
        Reply { errno, fixed: Vec::new(), data: Vec::new(), given: None }
    }

    /// Failed: the errno of this fault.
    pub fn fault(fault: &brindle_types::Fault) -> Reply {
        Reply::err(fault.errno())
    }

    /// The answer to LOOKUP, SYMLINK, MKNOD, MKDIR and LINK. The kernel then holds one more reference, until FORGET.
    pub fn entry(entry: &Entry) -> Reply {
        Reply::fixed(&entry.to_kernel())
    }

    /// LOOKUP found nothing, and the kernel may remember that. (With `valid` 0 answer ENOENT instead.)
    pub fn no_entry(valid: Duration) -> Reply {
        let entry_valid_nsec = valid.subsec_nanos();
        Reply::fixed(&EntryOut { entry_valid: valid.as_secs(), entry_valid_nsec, ..Default::default() })
    }

    /// The answer to CREATE and TMPFILE.
    pub fn created(entry: &Entry, opened: Opened) -> Reply {
        let mut reply = Reply::entry(entry);
        reply.fixed.extend_from_slice(opened.to_kernel().as_bytes());
        reply
    }

    /// The answer to GETATTR and SETATTR.
    pub fn attr(attr: &Attr, valid: Duration) -> Reply {
        let (attr_valid, attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
        Reply::fixed(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr_to_kernel(attr) })
    }

    /// The answer to STATX.
    pub fn statx(attr: &Attr, valid: Duration) -> Reply {
        let (attr_valid, attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
        Reply::fixed(&StatxOut {
            attr_valid,
            attr_valid_nsec,
            flags: 0,
            spare: [0; 2],
            stat: statx_to_kernel(attr),
        })
    }

    /// The answer to OPEN and OPENDIR.
    pub fn opened(opened: Opened) -> Reply {
        Reply::fixed(&opened.to_kernel())
    }

    /// The answer to READ, READLINK, and GETXATTR or LISTXATTR with room.
    pub fn data(data: Bytes) -> Reply {
        Reply { errno: 0, fixed: Vec::new(), data: vec![data], given: None }
    }

    /// Like [`Reply::data`], in pieces that follow each other.
    pub fn pieces(data: Vec<Bytes>) -> Reply {
        let data = if data.len() > PIECES_MAX { vec![Bytes::from(data.concat())] } else { data };
        Reply { errno: 0, fixed: Vec::new(), data, given: None }
    }

    /// The answer to GETXATTR and LISTXATTR: the value, its length if `room` is 0, or ERANGE if it does not fit.
    pub fn xattr(value: Bytes, room: u32) -> Reply {
        match room as usize {
            0 => Reply::fixed(&GetxattrOut { size: len_u32(value.len()), padding: 0 }),
            room if value.len() > room => Reply::err(ERANGE),
            _ => Reply::data(value),
        }
    }

    /// The answer to WRITE: how many bytes were taken.
    pub fn written(size: u32) -> Reply {
        Reply::fixed(&WriteOut { size, padding: 0 })
    }

    /// The answer to either form of COPY_FILE_RANGE.
    pub fn copied(bytes_copied: u64, request: &CopyFileRange) -> Reply {
        if request.wide {
            return Reply::fixed(&CopyFileRangeOut { bytes_copied });
        }
        u32::try_from(bytes_copied).map_or(Reply::err(EINVAL), Reply::written)
    }

    /// The answer to LSEEK.
    pub fn offset(offset: u64) -> Reply {
        Reply::fixed(&LseekOut { offset })
    }

    /// The answer to IOCTL: what the caller gets.
    pub fn ioctl(data: Bytes) -> Reply {
        let head = IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 };
        Reply { errno: 0, fixed: head.as_bytes().to_vec(), data: vec![data], given: None }
    }

    /// The answer to GETLK: the lock in the way, or `None` if the range is free. `pid` is the holder's process.
    pub fn lock(holder: Option<&Lock>) -> Reply {
        let lk = match holder {
            Some(l) => FileLock { start: l.start, end: l.end, kind: l.kind.to_kernel(), pid: l.pid },
            None => FileLock { kind: LockKind::Unlock.to_kernel(), ..Default::default() },
        };
        Reply::fixed(&LkOut { lk })
    }

    /// The answer to STATFS.
    pub fn statfs(s: &Statfs) -> Reply {
        Reply::fixed(&StatfsOut {
            blocks: s.blocks,
            bfree: s.free,
            bavail: s.available,
            files: s.inodes,
            ffree: s.inodes_free,
            bsize: s.bsize_bytes,
            namelen: s.name_max_bytes,
            frsize: s.frsize_bytes,
            padding: 0,
            spare: [0; 6],
        })
    }

    /// The answer to READDIR and READDIRPLUS.
    pub fn directory(records: DirBuffer) -> Reply {
        Reply::data(records.into_bytes())
    }

    /// The errno of a failure, 0 otherwise.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// Number of bytes behind the head.
    pub fn body_len(&self) -> usize {
        self.fixed.len() + self.data.iter().map(Bytes::len).sum::<usize>()
    }

    pub(crate) fn fixed<T: IntoBytes + Immutable>(body: &T) -> Reply {
        Reply { errno: 0, fixed: body.as_bytes().to_vec(), data: Vec::new(), given: None }
    }

    /// The head that goes before it.
    pub(crate) fn head(&self, unique: u64) -> OutHeader {
        OutHeader { len: len_u32(size_of::<OutHeader>() + self.body_len()), error: -self.errno, unique }
    }
}

impl Opened {
    fn to_kernel(self) -> OpenOut {
        OpenOut { fh: self.fh, open_flags: self.flags, backing_id: 0 }
    }
}

/// Attributes as GETATTR and entries carry them.
pub(crate) fn attr_to_kernel(a: &Attr) -> crate::abi::outputs::Attr {
    crate::abi::outputs::Attr {
        ino: a.ino.0,
        size: a.size_bytes,
        blocks: a.allocated_bytes.div_ceil(BLOCK_BYTES),
        atime: a.atime.secs.cast_unsigned(),
        mtime: a.mtime.secs.cast_unsigned(),
        ctime: a.ctime.secs.cast_unsigned(),
        atimensec: a.atime.nanos,
        mtimensec: a.mtime.nanos,
        ctimensec: a.ctime.nanos,
        mode: a.kind.mode_bits() | u32::from(a.perm),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: a.blksize_bytes,
        flags: 0,
    }
}

fn statx_to_kernel(a: &Attr) -> crate::abi::outputs::Statx {
    let time = |t: Time| SxTime { tv_sec: t.secs, tv_nsec: t.nanos, reserved: 0 };
    crate::abi::outputs::Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: a.blksize_bytes,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: low_u16(a.kind.mode_bits().into()) | a.perm,
        ino: a.ino.0,
        size: a.size_bytes,
        blocks: a.allocated_bytes.div_ceil(BLOCK_BYTES),
        atime: time(a.atime),
        btime: time(a.btime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        rdev_major: libc::major(a.rdev.into()),
        rdev_minor: libc::minor(a.rdev.into()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
