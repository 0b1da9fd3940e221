//! A request of the kernel, decoded: who asks, for which inode, and what ([`Op`]).
//!
//! The session decodes each message with [`decode::message`] and hands the request to the file system. Names and
//! data are slices of the buffer the message was read into, so nothing is copied. Invariant: every length that the
//! kernel gives is checked against the message; a message that does not fit is [`Malformed`], never a panic.

pub mod decode;
pub mod ops;

#[cfg(test)]
mod tests;

use crate::interrupt::Cancel;

pub use decode::{Malformed, Message};
pub use ops::*;

/// Header of a request, for the fast path.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Node id, as in [`Request`].
    pub nodeid: u64,
    /// User id that the caller acts with.
    pub uid: u32,
    /// Thread id of the caller.
    pub pid: u32,
}

/// A request that wants an answer.
#[derive(Debug)]
pub struct Request {
    /// The kernel's number of the request; it may be sent once more, see `resent`.
    pub unique: u64,
    /// The inode it concerns; for names: their directory.
    pub nodeid: u64,
    /// User id that the caller acts with; 0 for requests of the kernel itself.
    pub uid: u32,
    /// Group id that the caller acts with.
    pub gid: u32,
    /// Thread id of the caller; 0 when the kernel acts for nobody, or for a process outside our pid namespace.
    pub pid: u32,
    /// Supplementary groups that the kernel sent along: the one that matters for a create, or none.
    pub groups: Vec<u32>,
    /// Whether it was delivered before, to a server that died: it may have been executed already.
    pub resent: bool,
    /// The operation.
    pub op: Op,
    /// Tells whether the caller got a signal.
    pub cancel: Cancel,
}
