//! setattr: mode, owner, times, size.

use brindle_types::attr::Time;
use brindle_types::{Attr, Ino};
use serde::{Deserialize, Serialize};

use super::open::OpenGrant;
use super::report::WriteReport;
use crate::{Cred, message};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// The time given here.
    At(Time),
}

/// Changes attributes; fields that are `None` stay. All of it happens in one batch or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetattrReq {
    /// The inode.
    pub ino: Ino,
    /// Credentials of the program that asks.
    pub cred: Cred,
    /// Permission bits with set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: a truncate.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Clear set-id bits because contents or owner change (HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
    /// The caller's handle for ftruncate, 0 for none.
    pub handle: u64,
    /// The caller's own report due, applied first.
    pub report: Option<WriteReport>,
}

/// The attributes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetattrResp {
    /// Attributes.
    pub attr: Attr,
    /// After a truncate: layout and epochs that the caller's open handles use from now on.
    pub grant: Option<OpenGrant>,
}
message!(SetattrReq => SetattrResp, Setattr);
