//! Structures that we send: bodies of replies, and notifications.

use super::inputs::FileLock;
use super::kernel_structs;

kernel_structs! {
    /// Head of every reply and notification.
    OutHeader[16] { len: u32 = 0, error: i32 = 4, unique: u64 = 8 }
    /// Attributes.
    Attr[88] { ino: u64 = 0, size: u64 = 8, blocks: u64 = 16, atime: u64 = 24, mtime: u64 = 32, ctime: u64 = 40,
        atimensec: u32 = 48, mtimensec: u32 = 52, ctimensec: u32 = 56, mode: u32 = 60, nlink: u32 = 64,
        uid: u32 = 68, gid: u32 = 72, rdev: u32 = 76, blksize: u32 = 80, flags: u32 = 84 }
    /// A name's inode: LOOKUP, MKNOD, MKDIR, SYMLINK, LINK, and first part of CREATE and TMPFILE.
    EntryOut[128] { nodeid: u64 = 0, generation: u64 = 8, entry_valid: u64 = 16, attr_valid: u64 = 24,
        entry_valid_nsec: u32 = 32, attr_valid_nsec: u32 = 36, attr: Attr = 40 }
    /// GETATTR and SETATTR.
    AttrOut[104] { attr_valid: u64 = 0, attr_valid_nsec: u32 = 8, dummy: u32 = 12, attr: Attr = 16 }
    /// A time of STATX.
    SxTime[16] { tv_sec: i64 = 0, tv_nsec: u32 = 8, reserved: i32 = 12 }
    /// Attributes with birth time.
    Statx[256] { mask: u32 = 0, blksize: u32 = 4, attributes: u64 = 8, nlink: u32 = 16, uid: u32 = 20, gid: u32 = 24,
        mode: u16 = 28, spare0: u16 = 30, ino: u64 = 32, size: u64 = 40, blocks: u64 = 48, attributes_mask: u64 = 56,
        atime: SxTime = 64, btime: SxTime = 80, ctime: SxTime = 96, mtime: SxTime = 112, rdev_major: u32 = 128,
        rdev_minor: u32 = 132, dev_major: u32 = 136, dev_minor: u32 = 140, spare2: [u64; 14] = 144 }
    /// STATX.
    StatxOut[288] { attr_valid: u64 = 0, attr_valid_nsec: u32 = 8, flags: u32 = 12, spare: [u64; 2] = 16,
        stat: Statx = 32 }
    /// OPEN and OPENDIR, and second part of CREATE and TMPFILE.
    OpenOut[16] { fh: u64 = 0, open_flags: u32 = 8, backing_id: i32 = 12 }
    /// WRITE and COPY_FILE_RANGE.
    WriteOut[8] { size: u32 = 0, padding: u32 = 4 }
    /// COPY_FILE_RANGE_64.
    CopyFileRangeOut[8] { bytes_copied: u64 = 0 }
    /// STATFS.
    StatfsOut[80] { blocks: u64 = 0, bfree: u64 = 8, bavail: u64 = 16, files: u64 = 24, ffree: u64 = 32,
        bsize: u32 = 40, namelen: u32 = 44, frsize: u32 = 48, padding: u32 = 52, spare: [u32; 6] = 56 }
    /// GETXATTR and LISTXATTR that ask for the length only.
    GetxattrOut[8] { size: u32 = 0, padding: u32 = 4 }
    /// GETLK.
    LkOut[24] { lk: FileLock = 0 }
    /// IOCTL, before what the caller gets.
    IoctlOut[16] { result: i32 = 0, flags: u32 = 4, in_iovs: u32 = 8, out_iovs: u32 = 12 }
    /// `struct fsxattr` of `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
    FsXattr[28] { xflags: u32 = 0, extsize: u32 = 4, nextents: u32 = 8, projid: u32 = 12, cowextsize: u32 = 16,
        pad: [u32; 2] = 20 }
    /// LSEEK.
    LseekOut[8] { offset: u64 = 0 }
    /// INIT.
    InitOut[64] { major: u32 = 0, minor: u32 = 4, max_readahead: u32 = 8, flags: u32 = 12, max_background: u16 = 16,
        congestion_threshold: u16 = 18, max_write: u32 = 20, time_gran: u32 = 24, max_pages: u16 = 28,
        map_alignment: u16 = 30, flags2: u32 = 32, max_stack_depth: u32 = 36, request_timeout: u16 = 40,
        unused: [u16; 11] = 42 }
    /// Head of a directory record; the name follows, then zeros up to the 8-byte grid.
    Dirent[24] { ino: u64 = 0, off: u64 = 8, namelen: u32 = 16, kind: u32 = 20 }
    /// NOTIFY_INVAL_INODE.
    InvalInodeOut[24] { ino: u64 = 0, off: i64 = 8, len: i64 = 16 }
    /// NOTIFY_INVAL_ENTRY, before the name.
    InvalEntryOut[16] { parent: u64 = 0, namelen: u32 = 8, flags: u32 = 12 }
    /// NOTIFY_DELETE, before the name.
    DeleteOut[24] { parent: u64 = 0, child: u64 = 8, namelen: u32 = 16, padding: u32 = 20 }
    /// NOTIFY_STORE, before the data.
    StoreOut[24] { nodeid: u64 = 0, offset: u64 = 8, size: u32 = 16, padding: u32 = 20 }
    /// NOTIFY_PRUNE, before the node ids.
    PruneOut[16] { count: u32 = 0, padding: u32 = 4, spare: u64 = 8 }
}
