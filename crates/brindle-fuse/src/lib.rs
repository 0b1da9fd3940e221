//! The FUSE protocol layer: Linux only, protocol 7.45, down to 7.39 (Linux 6.6).
//!
//! Upwards the crate offers the trait [`Filesystem`], a decoded [`Request`] with bytes of its own and a [`Reply`] of pieces;
//! downwards it mounts, reads /dev/fuse with several threads, and writes answers and notifications. The binary calls it for
//! `brindle mount`.
//!
//! Invariant: only this crate knows the kernel's interface. The crate keeps no file-system state: all that it knows of
//! inodes, handles and locks is in the requests.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod abi;
pub mod buffer;
pub mod fs;
pub mod interrupt;
pub mod jobs;
pub mod node_ids;
pub mod notify;
mod ops;
pub mod reply;
pub mod request;
pub mod session;

use std::sync::Arc;

use brindle_stdx::BoxFuture;

pub use fs::{BrindleFs, MountHandle, MountSettings, mount};
pub use interrupt::{Cancel, kill_pending};
pub use jobs::JobFrom;
pub use notify::{Notice, Notifier, Outcome};
pub use reply::{DirBuffer, Entry, Opened, Reply, Statfs};
pub use request::{Asked, Op, Request};
pub use session::{
    Connected, Ended, EventLoop, MountOptions, Negotiated, PageInvalidation, ServeOptions, Session, Wanted,
};

/// A file system that serves the requests of a mount.
pub trait Filesystem: Send + Sync + 'static {
    /// Handles one request. Called on a reader thread, which polls the future once; if it is not ready it goes to the
    /// session's task runner. Neither the call nor a poll may block.
    ///
    /// The future should watch `request.cancel` wherever it waits for something that may not come. A panic in it is
    /// answered EIO.
    fn handle(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Reply>;

    /// The answer, if nothing has to be waited for to know it: asked before [`Filesystem::handle`], which costs several times
    /// as much. `None` has no effect but that requests of the same thread before it are known to be over.
    fn fast_path(&self, _asked: Asked, _op: &Op) -> Option<Reply> {
        None
    }

    /// The kernel dropped `nlookup` of the references to inode `ino` that entries gave it. Called on a reader
    /// thread; must not block.
    fn forget(&self, ino: u64, nlookup: u64);

    /// The kernel says goodbye. Not sent by every kernel; the end of the session is what counts.
    fn destroy(&self) {}
}
