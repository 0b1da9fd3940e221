//! tmpfile: O_TMPFILE, a file without a name.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::create::CreateResp;
use super::open::Access;
use crate::{Cred, message};

/// Makes a nameless file in a directory (for its defaults) and opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmpfileReq {
    /// Directory.
    pub parent: Ino,
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Access of the handle.
    pub access: Access,
    /// The client's number for the handle.
    pub handle: u64,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(TmpfileReq => CreateResp, Tmpfile);
