//! Errno values of Linux x86-64 and arm64. Only [`crate::Code`] and the FUSE layer know them.

macro_rules! errnos {
    ($($name:ident = $value:expr;)*) => { $(#[doc = stringify!($name)] pub const $name: i32 = $value;)* };
}

errnos! {
    EPERM = 1; ENOENT = 2; EINTR = 4; EIO = 5; ENXIO = 6; E2BIG = 7; EBADF = 9; EAGAIN = 11; ENOMEM = 12;
    EACCES = 13; EBUSY = 16; EEXIST = 17; EXDEV = 18; ENODEV = 19; ENOTDIR = 20; EISDIR = 21; EINVAL = 22;
    ENFILE = 23; EMFILE = 24; ENOTTY = 25; ETXTBSY = 26; EFBIG = 27; ENOSPC = 28; ESPIPE = 29; EROFS = 30; EMLINK = 31;
    ERANGE = 34; EDEADLK = 35; ENAMETOOLONG = 36; ENOLCK = 37; ENOSYS = 38; ENOTEMPTY = 39; ELOOP = 40;
    ENODATA = 61; EPROTO = 71; EOVERFLOW = 75; EOPNOTSUPP = 95; ENOTCONN = 107; ETIMEDOUT = 110;
    ESTALE = 116; EDQUOT = 122;
}
