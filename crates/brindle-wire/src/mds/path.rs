//! path_of: from an inode number to its paths (`lfs fid2path`).

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for the paths of an inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOfReq {
    /// The inode.
    pub ino: Ino,
}

/// Paths from the root, `/`-separated, without a leading slash; one a hard link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOfResp {
    /// The paths.
    pub paths: Vec<Vec<u8>>,
}
message!(PathOfReq => PathOfResp, PathOf);
