//! unlink and rmdir.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::{Cred, Name, message};

/// Removes a name of something that is not a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlinkReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(UnlinkReq => Empty, Unlink);

/// Removes an empty directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RmdirReq {
    /// Directory that holds it.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(RmdirReq => Empty, Rmdir);
