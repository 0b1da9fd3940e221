//! getattr: attributes of an inode; the MDT asks the exclusive holder or the OSTs while somebody writes.

use brindle_types::{Attr, Ino};
use serde::{Deserialize, Serialize};

use super::report::WriteReport;
use crate::message;

/// Asks for attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetattrReq {
    /// The inode.
    pub ino: Ino,
    /// The caller's own report due, applied first.
    pub report: Option<WriteReport>,
}

/// The attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetattrResp {
    /// Attributes.
    pub attr: Attr,
}
message!(GetattrReq => GetattrResp, Getattr);
