//! lookup: name in a directory to attributes.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::EntryResp;
use crate::{Name, message};

/// Finds a name. `.` and `..` work as names (NFS export).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
}
message!(LookupReq => EntryResp, Lookup);
