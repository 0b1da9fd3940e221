//! symlink.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::EntryResp;
use crate::{Cred, Name, message};

/// Makes a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymlinkReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Target, 1 to 4095 bytes.
    pub target: Vec<u8>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(SymlinkReq => EntryResp, Symlink);
