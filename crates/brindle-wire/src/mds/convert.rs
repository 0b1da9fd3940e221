//! Changes of a file's layout while it is written. convert: inline data moves to objects, once, and parts of the file that are
//! to be written get OSTs. spill: such parts get other OSTs where theirs are full. layout_get: the present layout.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::open::OpenGrant;
use crate::message;

/// Moves a file's bytes from the MDT to its objects, and has OSTs chosen for every component that the range meets. Where
/// all that was done already, the answer is the layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertReq {
    /// The file.
    pub ino: Ino,
    /// First byte that is to be written.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The client has room at the OST that the first component has, and needs it: where that OST is not to be used the answer is
    /// `OstFull`, and nothing is moved.
    pub promised: bool,
}
message!(ConvertReq => OpenGrant, Convert);

/// An OST has no room for what is to be written there: the place gets other OSTs. Where it has them already, the answer is
/// the layout. `OstFull` when no OST has room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpillReq {
    /// The file.
    pub ino: Ino,
    /// First byte of the file that found no room.
    pub offset: u64,
    /// Number of bytes that the OST refused.
    pub len_bytes: u64,
    /// The OST that refused them.
    pub ost: u16,
}
message!(SpillReq => OpenGrant, Spill);

/// Fetches layout and epochs again (after `StaleLayout` or a notice).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutGetReq {
    /// The file.
    pub ino: Ino,
}
message!(LayoutGetReq => OpenGrant, LayoutGet);
