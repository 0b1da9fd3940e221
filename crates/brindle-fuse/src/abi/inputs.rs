//! Structures that the kernel sends.

use super::kernel_structs;

kernel_structs! {
    /// Head of every request.
    InHeader[40] { len: u32 = 0, opcode: u32 = 4, unique: u64 = 8, nodeid: u64 = 16, uid: u32 = 24, gid: u32 = 28,
        pid: u32 = 32, total_extlen: u16 = 36, padding: u16 = 38 }
    /// Head of an extension behind the arguments.
    ExtHeader[8] { size: u32 = 0, kind: u32 = 4 }
    /// First request of a connection.
    InitIn[64] { major: u32 = 0, minor: u32 = 4, max_readahead: u32 = 8, flags: u32 = 12, flags2: u32 = 16,
        unused: [u32; 11] = 20 }
    /// FORGET.
    ForgetIn[8] { nlookup: u64 = 0 }
    /// Entry of a BATCH_FORGET.
    ForgetOne[16] { nodeid: u64 = 0, nlookup: u64 = 8 }
    /// BATCH_FORGET, before its `count` records.
    BatchForgetIn[8] { count: u32 = 0, dummy: u32 = 4 }
    /// INTERRUPT.
    InterruptIn[8] { unique: u64 = 0 }
    /// GETATTR.
    GetattrIn[16] { getattr_flags: u32 = 0, dummy: u32 = 4, fh: u64 = 8 }
    /// STATX.
    StatxIn[24] { getattr_flags: u32 = 0, reserved: u32 = 4, fh: u64 = 8, sx_flags: u32 = 16, sx_mask: u32 = 20 }
    /// SETATTR.
    SetattrIn[88] { valid: u32 = 0, padding: u32 = 4, fh: u64 = 8, size: u64 = 16, lock_owner: u64 = 24,
        atime: u64 = 32, mtime: u64 = 40, ctime: u64 = 48, atimensec: u32 = 56, mtimensec: u32 = 60,
        ctimensec: u32 = 64, mode: u32 = 68, unused4: u32 = 72, uid: u32 = 76, gid: u32 = 80, unused5: u32 = 84 }
    /// MKNOD.
    MknodIn[16] { mode: u32 = 0, rdev: u32 = 4, umask: u32 = 8, padding: u32 = 12 }
    /// MKDIR.
    MkdirIn[8] { mode: u32 = 0, umask: u32 = 4 }
    /// RENAME.
    RenameIn[8] { newdir: u64 = 0 }
    /// RENAME2.
    Rename2In[16] { newdir: u64 = 0, flags: u32 = 8, padding: u32 = 12 }
    /// LINK.
    LinkIn[8] { oldnodeid: u64 = 0 }
    /// OPEN and OPENDIR.
    OpenIn[8] { flags: u32 = 0, open_flags: u32 = 4 }
    /// CREATE and TMPFILE.
    CreateIn[16] { flags: u32 = 0, mode: u32 = 4, umask: u32 = 8, open_flags: u32 = 12 }
    /// RELEASE and RELEASEDIR.
    ReleaseIn[24] { fh: u64 = 0, flags: u32 = 8, release_flags: u32 = 12, lock_owner: u64 = 16 }
    /// FLUSH.
    FlushIn[24] { fh: u64 = 0, unused: u32 = 8, padding: u32 = 12, lock_owner: u64 = 16 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn[40] { fh: u64 = 0, offset: u64 = 8, size: u32 = 16, read_flags: u32 = 20, lock_owner: u64 = 24,
        flags: u32 = 32, padding: u32 = 36 }
    /// WRITE, before its data.
    WriteIn[40] { fh: u64 = 0, offset: u64 = 8, size: u32 = 16, write_flags: u32 = 20, lock_owner: u64 = 24,
        flags: u32 = 32, padding: u32 = 36 }
    /// FSYNC and FSYNCDIR.
    FsyncIn[16] { fh: u64 = 0, fsync_flags: u32 = 8, padding: u32 = 12 }
    /// SETXATTR as it was before SETXATTR_EXT.
    SetxattrInCompat[8] { size: u32 = 0, flags: u32 = 4 }
    /// SETXATTR.
    SetxattrIn[16] { size: u32 = 0, flags: u32 = 4, setxattr_flags: u32 = 8, padding: u32 = 12 }
    /// GETXATTR and LISTXATTR.
    GetxattrIn[8] { size: u32 = 0, padding: u32 = 4 }
    /// A byte range with a lock; the end is inclusive.
    FileLock[24] { start: u64 = 0, end: u64 = 8, kind: u32 = 16, pid: u32 = 20 }
    /// GETLK, SETLK and SETLKW.
    LkIn[48] { fh: u64 = 0, owner: u64 = 8, lk: FileLock = 16, lk_flags: u32 = 40, padding: u32 = 44 }
    /// ACCESS.
    AccessIn[8] { mask: u32 = 0, padding: u32 = 4 }
    /// FALLOCATE.
    FallocateIn[32] { fh: u64 = 0, offset: u64 = 8, length: u64 = 16, mode: u32 = 24, padding: u32 = 28 }
    /// IOCTL, before what the caller gives.
    IoctlIn[32] { fh: u64 = 0, flags: u32 = 8, cmd: u32 = 12, arg: u64 = 16, in_size: u32 = 24, out_size: u32 = 28 }
    /// LSEEK.
    LseekIn[24] { fh: u64 = 0, offset: u64 = 8, whence: u32 = 16, padding: u32 = 20 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRangeIn[56] { fh_in: u64 = 0, off_in: u64 = 8, nodeid_out: u64 = 16, fh_out: u64 = 24, off_out: u64 = 32,
        len: u64 = 40, flags: u64 = 48 }
}
