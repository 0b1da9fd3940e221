//! migrate: moves one piece of a file to other OSTs. The caller drives a whole migration piece by piece, so that it can be
//! paced, interrupted and resumed.

use brindle_types::{Ino, LayoutPolicy};
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Most bytes that one piece copies.
pub const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Most OSTs that can be named to be avoided.
pub const AVOID_MAX: usize = 1024;

/// Moves the piece of a file that begins at `offset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateReq {
    /// The file.
    pub ino: Ino,
    /// Start of the piece: 0, then the value of the previous answer.
    pub offset: u64,
    /// Wanted layout; parts that have it and lie on none of `avoid` stay. `None`: the layout that the file has.
    pub policy: Option<LayoutPolicy>,
    /// OSTs that it is to leave. With no policy only parts that lie there move; with neither, everything does.
    pub avoid: Vec<u16>,
    /// Most bytes to copy; at most [`PIECE_BYTES_MAX`].
    pub copy_max_bytes: u64,
    /// Credentials of the program that asks: the owner's, or root's.
    pub cred: Cred,
}
message!(MigrateReq => MigrateResp, Migrate);

/// Progress of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrateResp {
    /// Start of the next piece; `None` when all is done.
    pub next: Option<u64>,
    /// Bytes of the file that were copied.
    pub copied_bytes: u64,
    /// Size of the file, as far as the MDT knows.
    pub size_bytes: u64,
}
