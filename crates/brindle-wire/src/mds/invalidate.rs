//! invalidate: a write met marks of readers that keep pages; they must drop them before the write returns.

use brindle_types::{Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::message;

/// Clients whose pages are to be dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holders {
    /// Sessions whose pages are to go (marks that the write's reply returned).
    Sessions(Vec<SessionId>),
    /// Every session with a handle that may hold pages (the OST had lost its marks).
    AllReaders,
}

/// Drops kept pages of a range at other clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidateReq {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Clients whose pages are to be dropped.
    pub holders: Holders,
}
message!(InvalidateReq => Empty, Invalidate);
