//! Locks: fcntl, OFD and flock, one table per inode at its home MDT.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::message;

/// Lock space: flock or POSIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    /// fcntl and OFD locks: byte ranges.
    Posix,
    /// flock: whole files.
    Flock,
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// No lock: gives up a held range.
    Unlock,
}

/// A lock: who, what, where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// Lock space.
    pub space: LockSpace,
    /// Owner within the session (the kernel's lock owner).
    pub owner: u64,
    /// Kind.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` for the end of time.
    pub end: u64,
    /// Process that asked, for F_GETLK and people.
    pub pid: u32,
}

/// Asks which lock would be in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetLockReq {
    /// The file.
    pub ino: Ino,
    /// The lock that would be set.
    pub lock: LockState,
}

/// The first conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetLockResp {
    /// `None` when the lock could be set. Its pid is 0 when the holder is another client.
    pub conflict: Option<LockState>,
}
message!(GetLockReq => GetLockResp, GetLock);

/// Sets or gives up a lock. Idempotent: the same owner may ask for the same lock again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLockReq {
    /// The file.
    pub ino: Ino,
    /// The lock.
    pub lock: LockState,
    /// Wait until it can be had.
    pub wait: bool,
    /// Names this request for [`CancelLockReq`]; unique in the session.
    pub request: u64,
}
message!(SetLockReq => Empty, SetLock);

/// Ends the waiting of a `SetLock` (the program got a signal). The waiter answers `Interrupted`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelLockReq {
    /// The file.
    pub ino: Ino,
    /// The request.
    pub request: u64,
}
message!(CancelLockReq => Empty, CancelLock);
