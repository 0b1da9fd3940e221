//! rename, with renameat2's flags.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::{Cred, Name, message};

/// Moves a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameReq {
    /// Old directory.
    pub parent: Ino,
    /// Old name.
    pub name: Name,
    /// New directory.
    pub new_parent: Ino,
    /// New name.
    pub new_name: Name,
    /// RENAME_NOREPLACE: fail if the new name exists.
    pub no_replace: bool,
    /// RENAME_EXCHANGE: swap the two names.
    pub exchange: bool,
    /// RENAME_WHITEOUT: a character device 0:0 comes to stand at the old name, by which overlayfs knows what is hidden.
    pub whiteout: bool,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(RenameReq => Empty, Rename);
