//! Extended attributes (user, trusted, security, POSIX ACLs as system.posix_acl_access and _default).

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::{Cred, Name, message};

/// Most bytes of one value.
pub const XATTR_VALUE_MAX_BYTES: usize = 64 << 10;

/// Asks for one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetxattrReq {
    /// The inode.
    pub ino: Ino,
    /// Attribute name with its prefix.
    pub name: Name,
}

/// The value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetxattrResp {
    /// The value.
    pub value: Vec<u8>,
}
message!(GetxattrReq => GetxattrResp, Getxattr);

/// Asks for all names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListxattrReq {
    /// The inode.
    pub ino: Ino,
}

/// The names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListxattrResp {
    /// Names in order.
    pub names: Vec<Name>,
}
message!(ListxattrReq => ListxattrResp, Listxattr);

/// Sets a value. An access ACL changes the mode bits in the same batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetxattrReq {
    /// The inode.
    pub ino: Ino,
    /// Attribute name with its prefix.
    pub name: Name,
    /// The value.
    pub value: Vec<u8>,
    /// XATTR_CREATE: fail if it exists.
    pub create: bool,
    /// XATTR_REPLACE: fail if it does not exist.
    pub replace: bool,
    /// FUSE_SETXATTR_ACL_KILL_SGID: clear the set-group-id bit.
    pub kill_sgid: bool,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(SetxattrReq => Empty, Setxattr);

/// Removes a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovexattrReq {
    /// The inode.
    pub ino: Ino,
    /// Attribute name with its prefix.
    pub name: Name,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(RemovexattrReq => Empty, Removexattr);
