//! mkdir: a directory, its name and its parent's count of subdirectories in one batch.

use brindle_types::{ChangeKind, Code, Fault, FileType, Result};
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::mkdir::MkdirReq;

use crate::birth::{self, Birth};
use crate::changelog;
use crate::mdt::{Call, Mdt};
use crate::namespace;
use crate::store::inode;

/// Makes a directory with a copy of its parent's stripe default.
pub async fn handle(mdt: &Mdt, call: &Call, req: MkdirReq) -> Result<EntryResp> {
    namespace::check_new_name(&req.name)?;
    let made = mdt.modify(call, |t| {
        let mut parent = inode::dir(t, req.parent)?;
        if namespace::find(t, parent.ino, &req.name)?.is_some() {
            return Err(Fault::new(Code::Exists).into());
        }
        let kind = FileType::Directory;
        let birth = Birth { kind, mode: req.mode, umask: req.umask, rdev: 0, cred: &req.cred };
        let mut dir = birth::make(t, &parent, &birth)?;
        namespace::add_name(t, &mut parent, &req.name, &mut dir);
        inode::put(t, &parent)?;
        inode::put(t, &dir)?;
        changelog::named(t, ChangeKind::Mkdir, (parent.ino, &req.name), dir.ino, &req.cred, 0);
        Ok(EntryResp { attr: dir.attr() })
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], made.await).await
}
