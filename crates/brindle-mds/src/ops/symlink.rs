//! symlink: its target lies where small files have their bytes.

use brindle_types::{ChangeKind, Code, Fault, FileType, Result};
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::symlink::SymlinkReq;

use crate::birth::{self, Birth};
use crate::changelog;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::{inline, inode};

/// Longest target in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;

/// Makes a symbolic link.
pub async fn handle(mdt: &Mdt, call: &Call, req: SymlinkReq) -> Result<EntryResp> {
    namespace::check_new_name(&req.name)?;
    if req.target.is_empty() {
        return Err(Fault::new(Code::NotFound).why("the target is empty"));
    }
    if req.target.len() > TARGET_BYTES_MAX {
        return Err(Fault::new(Code::NameTooLong).why(format!("the target has {} bytes", req.target.len())));
    }
    let made = mdt.modify(call, |t| {
        let mut dir = inode::dir(t, req.parent)?;
        if namespace::find(t, dir.ino, &req.name)?.is_some() {
            return Err(Fault::new(Code::Exists).into());
        }
        let birth = Birth { kind: FileType::Symlink, mode: 0o777, umask: 0, rdev: 0, cred: &req.cred };
        let mut node = birth::make(t, &dir, &birth)?;
        node.size_bytes = req.target.len() as u64;
        inline::put(t, node.ino, &req.target);
        namespace::add_name(t, &mut dir, &req.name, &mut node);
        inode::put(t, &dir)?;
        inode::put(t, &node)?;
        changelog::named(t, ChangeKind::Symlink, (dir.ino, &req.name), node.ino, &req.cred, 0);
        Ok(EntryResp { attr: node.attr() })
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], made.await).await
}
