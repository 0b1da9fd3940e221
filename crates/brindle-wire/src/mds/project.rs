//! project_get and project_set: the project that an inode counts for (`lfs project`, `chattr -p`).
//!
//! A project is a number that usage is counted and limited by, beside user and group. 0 is no project.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Asks for the project of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectGetReq {
    /// The inode.
    pub ino: Ino,
}

/// The project of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Number of the project; 0 for none.
    pub id: u32,
    /// New entries of this directory get its project, and new subdirectories this flag, too.
    pub inherits: bool,
}
message!(ProjectGetReq => Project, ProjectGet);

/// Sets the project of an inode. Its usage moves in the same batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectSetReq {
    /// The inode.
    pub ino: Ino,
    /// Number of the project, 0 for none; `None` to leave it as it is.
    pub id: Option<u32>,
    /// Whether what is made in this directory gets its project; likewise.
    pub inherits: Option<bool>,
    /// Credentials of the program that asks: the owner's, or root's.
    pub cred: Cred,
}
message!(ProjectSetReq => Project, ProjectSet);
