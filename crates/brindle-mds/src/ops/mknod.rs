//! mknod: special files, and regular ones without opening them.

use brindle_types::{ChangeKind, Code, Fault, FileType, Result};
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::mknod::MknodReq;

use crate::birth::{self, Birth};
use crate::changelog;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::inode;

/// Makes a FIFO, socket, device node or regular file.
pub async fn handle(mdt: &Mdt, call: &Call, req: MknodReq) -> Result<EntryResp> {
    namespace::check_new_name(&req.name)?;
    if matches!(req.kind, FileType::Directory | FileType::Symlink) {
        return Err(Fault::new(Code::InvalidArgument).why("mknod makes no directories and no symbolic links"));
    }
    let is_device = matches!(req.kind, FileType::CharDevice | FileType::BlockDevice);
    let rdev = if is_device { req.rdev } else { 0 };
    let made = mdt.modify(call, |t| {
        let mut dir = inode::dir(t, req.parent)?;
        if namespace::find(t, dir.ino, &req.name)?.is_some() {
            return Err(Fault::new(Code::Exists).into());
        }
        let birth = Birth { kind: req.kind, mode: req.mode, umask: req.umask, rdev, cred: &req.cred };
        let mut node = birth::make(t, &dir, &birth)?;
        namespace::add_name(t, &mut dir, &req.name, &mut node);
        inode::put(t, &dir)?;
        inode::put(t, &node)?;
        let kind = if req.kind == FileType::Regular { ChangeKind::Create } else { ChangeKind::Mknod };
        changelog::named(t, kind, (dir.ino, &req.name), node.ino, &req.cred, 0);
        Ok(EntryResp { attr: node.attr() })
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], made.await).await
}
