//! create: step 3 of create, the message from `brindle-client/src/namespace/create.rs` to
//! `brindle-mds/src/ops/create.rs`.

use brindle_types::{Attr, Ino};
use serde::{Deserialize, Serialize};

use super::open::{Access, OpenGrant};
use crate::{Cred, Name, message};

/// Makes a regular file and opens it; without `exclusive` opens the one that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateReq {
    /// Directory.
    pub parent: Ino,
    /// Name.
    pub name: Name,
    /// Permission bits asked for.
    pub mode: u32,
    /// The caller's umask; does not count where the directory has a default ACL.
    pub umask: u32,
    /// O_EXCL: fail if the name exists.
    pub exclusive: bool,
    /// Access of the handle.
    pub access: Access,
    /// The client's number for the handle.
    pub handle: u64,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateResp {
    /// Attributes.
    pub attr: Attr,
    /// Mode, layout, epochs.
    pub grant: OpenGrant,
    /// Whether this call made it.
    pub created: bool,
}
message!(CreateReq => CreateResp, Create);
