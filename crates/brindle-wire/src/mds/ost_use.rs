//! ost_use: how many files of an MDT have a part on an OST (`brindle target remove`, `drain`).

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for the next part of the count. Answered with or without a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstUseReq {
    /// Index of the OST.
    pub ost: u16,
    /// Files up to this one were counted; `None` at first.
    pub after: Option<Ino>,
}

/// A part of the count: of files with and without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstUseResp {
    /// Files that have, or may have, an object there.
    pub files: u64,
    /// Number of these files that no directory names any more, and that programs have open.
    pub nameless: u64,
    /// Inode to go on with; `None` at the end.
    pub next: Option<Ino>,
}
message!(OstUseReq => OstUseResp, OstUse);
