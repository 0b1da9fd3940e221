//! open: a handle, the mode that the client may use, and the layout.

use brindle_types::{Attr, Ino, Layout, Pair};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Access of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Whether the handle is for reading.
    pub read: bool,
    /// Whether the handle is for writing.
    pub write: bool,
    /// O_TRUNC: to size 0 in the same operation.
    pub truncate: bool,
    /// Whether the handle is for execve(2): while it is open no other client opens the file for writing, nor
    /// cuts it.
    pub execute: bool,
}

/// Open mode of a handle (DESIGN section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenMode {
    /// Read-only and nobody writes: the kernel may keep pages.
    Cached,
    /// Other clients may write: no pages are kept, and every call goes to the servers.
    Direct,
    /// Sole writer: no pages; the client is the authority for size and may append locally.
    Exclusive,
}

/// Description of an inode for I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenGrant {
    /// The mode.
    pub mode: OpenMode,
    /// Layout of the file.
    pub layout: Layout,
    /// Raised by every partial truncate; OSTs refuse writes of older ones.
    pub truncate_epoch: Pair,
    /// Raised by explicit utimes and truncates; reports of older ones change no times.
    pub attr_epoch: Pair,
    /// Version of the contents; `None` while a write session exists.
    pub data_version: Option<Pair>,
    /// Last change of the contents that the MDT made itself (inline bytes, truncate, move to objects): when it is older
    /// than one that was acknowledged, a power cut took that.
    pub changed: Pair,
    /// The whole contents, when they lie in the MDT and the handle is readable.
    pub inline: Option<Bytes>,
}

/// Opens an existing inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReq {
    /// The inode.
    pub ino: Ino,
    /// The client's number for the handle; unique in the session.
    pub handle: u64,
    /// Access of the handle.
    pub access: Access,
    /// Credentials of the program that asks.
    pub cred: Cred,
    /// O_TRUNC by a caller without CAP_FSETID clears set-id bits.
    pub kill_suidgid: bool,
}

/// The open handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenResp {
    /// Attributes.
    pub attr: Attr,
    /// Mode, layout, epochs.
    pub grant: OpenGrant,
}
message!(OpenReq => OpenResp, Open);
