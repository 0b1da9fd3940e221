//! Permission checks for the few cases that the caller's kernel could not check itself (it checks all others:
//! `default_permissions`). Hosts that are not trusted with that have a gate of their own: [`crate::admission`].

use brindle_types::{Code, Fault, Result};
use brindle_wire::Cred;

use crate::acl::{self, Acl};
use crate::store::{Inode, Rows, xattr};

/// Reading.
pub const READ: u16 = 4;
/// Writing.
pub const WRITE: u16 = 2;
/// Looking up names in a directory.
pub const SEARCH: u16 = 1;

/// Refuses with `PermissionDenied` what mode bits or ACL do not allow. Root may everything here.
pub fn check(rows: &(impl Rows + ?Sized), inode: &Inode, cred: &Cred, wanted: u16) -> Result<()> {
    if cred.uid == 0 {
        return Ok(());
    }
    let acl = acl_of(rows, inode)?;
    if acl.allows(inode.uid, inode.gid, cred, wanted) {
        return Ok(());
    }
    Err(Fault::new(Code::PermissionDenied))
}

/// The ACL of an inode, or the one that its mode bits stand for.
pub fn acl_of(rows: &(impl Rows + ?Sized), inode: &Inode) -> Result<Acl> {
    let stored = match inode.has_acl {
        true => xattr::find(rows, inode.ino, acl::ACCESS)?,
        false => None,
    };
    let acl = match stored {
        Some(bytes) => Acl::decode(&bytes)?,
        None => None,
    };
    Ok(acl.unwrap_or_else(|| Acl::from_mode(inode.perm)))
}
