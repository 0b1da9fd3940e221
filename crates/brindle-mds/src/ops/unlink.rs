//! unlink and rmdir: a name goes, and with the last one the inode, unless somebody has it open.

use brindle_types::changelog::FLAG_LAST;
use brindle_types::{ChangeKind, Code, Fault, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::unlink::{RmdirReq, UnlinkReq};

use crate::changelog;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::{dirent, inode};

/// Removes a name of something that is not a directory.
pub async fn handle(mdt: &Mdt, call: &Call, req: UnlinkReq) -> Result<Empty> {
    if namespace::is_dots(&req.name) {
        return Err(Fault::new(Code::IsDirectory));
    }
    namespace::check_name(&req.name)?;
    let removed = mdt.modify(call, |t| {
        let mut dir = inode::dir(t, req.parent)?;
        let mut child = namespace::get(t, dir.ino, &req.name)?;
        if child.is_dir() {
            return Err(Fault::new(Code::IsDirectory).into());
        }
        t.frees_space();
        namespace::remove_name(t, &mut dir, &req.name, &mut child)?;
        inode::put(t, &dir)?;
        namespace::store_or_drop(t, &child)?;
        let flags = if child.nlink == 0 { FLAG_LAST } else { 0 };
        changelog::named(t, ChangeKind::Unlink, (dir.ino, &req.name), child.ino, &req.cred, flags);
        Ok(Empty {})
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], removed.await).await
}

/// Removes an empty directory.
pub async fn handle_rmdir(mdt: &Mdt, call: &Call, req: RmdirReq) -> Result<Empty> {
    match &req.name[..] {
        b"." => return Err(Fault::new(Code::InvalidArgument).why("'.' cannot be removed")),
        b".." => return Err(Fault::new(Code::NotEmpty)),
        name => namespace::check_name(name)?,
    }
    let removed = mdt.modify(call, |t| {
        let mut parent = inode::dir(t, req.parent)?;
        let mut child = namespace::get(t, parent.ino, &req.name)?;
        if !child.is_dir() {
            return Err(Fault::new(Code::NotDirectory).into());
        }
        if !dirent::is_empty(t, child.ino)? {
            return Err(Fault::new(Code::NotEmpty).into());
        }
        t.frees_space();
        namespace::remove_name(t, &mut parent, &req.name, &mut child)?;
        inode::put(t, &parent)?;
        namespace::store_or_drop(t, &child)?;
        changelog::named(t, ChangeKind::Rmdir, (parent.ino, &req.name), child.ino, &req.cred, FLAG_LAST);
        Ok(Empty {})
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], removed.await).await
}
