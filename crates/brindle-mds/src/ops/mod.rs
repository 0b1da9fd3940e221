//! Operations, one file each, named like the message that asks for it.

pub mod append;
pub mod close;
pub mod create;
pub mod fences;
pub mod fsync;
pub mod getattr;
pub mod inline;
pub mod invalidate;
pub mod link;
pub mod lock;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod open;
pub mod owner;
pub mod readdir;
pub mod readlink;
pub mod report;
pub mod setattr;
pub mod symlink;
pub mod sync_all;
pub mod unlink;
pub mod waits;
