//! mknod: special files, and regular ones without opening them.

use brindle_types::{FileType, Ino};
use serde::{Deserialize, Serialize};

use super::EntryResp;
use crate::{Cred, Name, message};

/// Makes a FIFO, socket, device node or regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MknodReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Type; not a directory, not a symbolic link.
    pub kind: FileType,
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number of device nodes.
    pub rdev: u32,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(MknodReq => EntryResp, Mknod);
