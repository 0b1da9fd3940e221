//! Names and attributes: one file per operation, which makes one request to the MDT and applies the result to
//! the client's state.

pub mod create;
pub mod getattr;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod path;
pub mod project;
pub mod readdir;
pub mod readlink;
pub mod rename;
pub mod rmdir;
pub mod scan;
pub mod setattr;
pub mod statfs;
pub mod stripe;
pub mod symlink;
pub mod tmpfile;
pub mod unlink;
pub mod xattr;
