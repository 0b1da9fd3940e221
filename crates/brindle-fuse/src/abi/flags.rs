//! Flag bits of the interface, grouped by the field they live in.

macro_rules! bits {
    ($ty:ty; $($name:ident = $bit:literal;)*) => {
        $(#[doc = concat!("Bit ", stringify!($bit), ": ", stringify!($name))] pub const $name: $ty = 1 << $bit;)*
    };
}

/// Flags of an open about the new file descriptor (`fuse_open_out.open_flags`).
pub mod fopen {
    bits! { u32;
        DIRECT_IO = 0; KEEP_CACHE = 1; NONSEEKABLE = 2; CACHE_DIR = 3; STREAM = 4; NOFLUSH = 5;
        PARALLEL_DIRECT_WRITES = 6; PASSTHROUGH = 7;
    }
}

/// Features offered and accepted in INIT; bits 32 and up travel in `flags2`.
pub mod init {
    bits! { u64;
        ASYNC_READ = 0; POSIX_LOCKS = 1; ATOMIC_O_TRUNC = 3; EXPORT_SUPPORT = 4; BIG_WRITES = 5; DONT_MASK = 6;
        SPLICE_WRITE = 7; SPLICE_MOVE = 8; SPLICE_READ = 9; FLOCK_LOCKS = 10; HAS_IOCTL_DIR = 11;
        AUTO_INVAL_DATA = 12; DO_READDIRPLUS = 13; READDIRPLUS_AUTO = 14; ASYNC_DIO = 15; WRITEBACK_CACHE = 16;
        NO_OPEN_SUPPORT = 17; PARALLEL_DIROPS = 18; HANDLE_KILLPRIV = 19; POSIX_ACL = 20; ABORT_ERROR = 21;
        MAX_PAGES = 22; CACHE_SYMLINKS = 23; NO_OPENDIR_SUPPORT = 24; EXPLICIT_INVAL_DATA = 25; MAP_ALIGNMENT = 26;
        SUBMOUNTS = 27; HANDLE_KILLPRIV_V2 = 28; SETXATTR_EXT = 29; INIT_EXT = 30; SECURITY_CTX = 32;
        HAS_INODE_DAX = 33; CREATE_SUPP_GROUP = 34; HAS_EXPIRE_ONLY = 35; DIRECT_IO_ALLOW_MMAP = 36;
        PASSTHROUGH = 37; NO_EXPORT_SUPPORT = 38; HAS_RESEND = 39; ALLOW_IDMAP = 40; OVER_IO_URING = 41;
        REQUEST_TIMEOUT = 42;
    }
}

/// Attributes that a SETATTR changes (`fuse_setattr_in.valid`).
pub mod fattr {
    bits! { u32;
        MODE = 0; UID = 1; GID = 2; SIZE = 3; ATIME = 4; MTIME = 5; FH = 6; ATIME_NOW = 7; MTIME_NOW = 8;
        LOCKOWNER = 9; CTIME = 10; KILL_SUIDGID = 11;
    }
}

bits! { u32;
    GETATTR_FH = 0;
    OPEN_KILL_SUIDGID = 0;
    SETXATTR_ACL_KILL_SGID = 0;
    LK_FLOCK = 0;
    RELEASE_FLUSH = 0; RELEASE_FLOCK_UNLOCK = 1;
    WRITE_CACHE = 0; WRITE_LOCKOWNER = 1; WRITE_KILL_SUIDGID = 2;
    READ_LOCKOWNER = 1;
    FSYNC_FDATASYNC = 0;
    EXPIRE_ONLY = 0;
}

/// Type of the extension that carries supplementary groups; smaller values are security contexts.
pub const EXT_GROUPS: u32 = 32;
/// Largest number of security contexts in one extension; doubles as its type.
pub const EXT_MAX_SECCTX: u32 = 31;
