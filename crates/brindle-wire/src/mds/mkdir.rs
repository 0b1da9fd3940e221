//! mkdir.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::EntryResp;
use crate::{Cred, Name, message};

/// Makes a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MkdirReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(MkdirReq => EntryResp, Mkdir);
