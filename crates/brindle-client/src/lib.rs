//! The client library: names, striped I/O, sessions, leases, locks. The library does not know the kernel.
//!
//! Used by `brindle-fuse` (a mount), by tools and by the testkit. [`Client::mount`] gives a [`Client`]; its operations
//! are methods, one file each: [`namespace`] for names and attributes, [`file`] for contents, [`locks`] for locks,
//! [`control`] for what commands ask of a running mount.
//!
//! Everything is async and runs on the seams it is given. Errors are `Fault`s. A call whose server is away waits until
//! it is back; a caller that does not want to wait drops the call, or hands it to [`Client::detachable`].
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

mod accesses;
mod background;
pub mod cache;
pub mod client;
mod clock;
mod closed_unsynced;
pub mod control;
pub mod ctx;
pub mod detach;
mod dirs;
mod failout;
pub mod file;
mod grants;
pub mod handles;
pub mod hsm;
pub mod inodes;
pub mod locks;
mod mark_acks;
pub mod namespace;
pub mod notices;
mod open_prefetch;
mod quota;
pub mod readahead;
mod rope;
pub mod session;
pub mod unsynced;

pub use brindle_net::job;
pub use cache::{Forgetting, KernelCache, NoCache};
pub use client::{Client, MountConfig, Switches};
pub use ctx::{Cancel, Ctx};
pub use file::open::{Created, Opened};
pub use file::read::ReadOut;
pub use file::write::WriteIn;
pub use namespace::readdir::Listing;
pub use namespace::setattr::SetAttr;
pub use namespace::statfs::Space;
