//! link: one more name for an inode; also gives a name to an O_TMPFILE file.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::EntryResp;
use crate::{Cred, Name, message};

/// Adds a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReq {
    /// The inode; not a directory.
    pub ino: Ino,
    /// Directory of the new name.
    pub parent: Ino,
    /// New name.
    pub name: Name,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(LinkReq => EntryResp, Link);
