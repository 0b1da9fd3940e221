//! Operation numbers of requests and codes of notifications.

macro_rules! numbers {
    ($($name:ident = $value:literal;)*) => { $(#[doc = stringify!($name)] pub const $name: u32 = $value;)* };
}

numbers! {
    LOOKUP = 1; FORGET = 2; GETATTR = 3; SETATTR = 4; READLINK = 5; SYMLINK = 6; MKNOD = 8; MKDIR = 9; UNLINK = 10;
    RMDIR = 11; RENAME = 12; LINK = 13; OPEN = 14; READ = 15; WRITE = 16; STATFS = 17; RELEASE = 18; FSYNC = 20;
    SETXATTR = 21; GETXATTR = 22; LISTXATTR = 23; REMOVEXATTR = 24; FLUSH = 25; INIT = 26; OPENDIR = 27;
    READDIR = 28; RELEASEDIR = 29; FSYNCDIR = 30; GETLK = 31; SETLK = 32; SETLKW = 33; ACCESS = 34; CREATE = 35;
    INTERRUPT = 36; BMAP = 37; DESTROY = 38; IOCTL = 39; POLL = 40; NOTIFY_REPLY = 41; BATCH_FORGET = 42;
    FALLOCATE = 43; READDIRPLUS = 44; RENAME2 = 45; LSEEK = 46; COPY_FILE_RANGE = 47; SETUPMAPPING = 48;
    REMOVEMAPPING = 49; SYNCFS = 50; TMPFILE = 51; STATX = 52; COPY_FILE_RANGE_64 = 53;
}

/// Notification codes, sent in the error field of a message whose `unique` is 0.
pub mod notify {
    numbers! {
        POLL = 1; INVAL_INODE = 2; INVAL_ENTRY = 3; STORE = 4; RETRIEVE = 5; DELETE = 6; RESEND = 7; INC_EPOCH = 8;
        PRUNE = 9;
    }
}
