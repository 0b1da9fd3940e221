//! link: one more name for an inode; also a first one for an O_TMPFILE file.

use brindle_types::{ChangeKind, Code, Fault, Result};
use brindle_wire::mds::EntryResp;
use brindle_wire::mds::link::LinkReq;

use crate::changelog;
use crate::mdt::{Call, Mdt};
use crate::namespace::{self, LINKS_MAX};
use crate::store::{inode, orphan};

/// Adds a name.
pub async fn handle(mdt: &Mdt, call: &Call, req: LinkReq) -> Result<EntryResp> {
    namespace::check_new_name(&req.name)?;
    let made = mdt.modify(call, |t| {
        let mut dir = inode::dir(t, req.parent)?;
        let mut child = inode::get(t, req.ino)?;
        if child.is_dir() {
            return Err(Fault::new(Code::NotPermitted).why("directories have one name").into());
        }
        if namespace::find(t, dir.ino, &req.name)?.is_some() {
            return Err(Fault::new(Code::Exists).into());
        }
        if dir.excludes_project_of(&child) {
            return Err(namespace::other_project(&dir, &child).into());
        }
        if child.nlink >= LINKS_MAX {
            return Err(Fault::new(Code::TooManyLinks).into());
        }
        if child.nlink == 0 {
            orphan::delete(t, child.ino);
        }
        child.ctime = t.now;
        namespace::add_name(t, &mut dir, &req.name, &mut child);
        inode::put(t, &dir)?;
        inode::put(t, &child)?;
        changelog::named(t, ChangeKind::Hardlink, (dir.ino, &req.name), child.ino, &req.cred, 0);
        Ok(EntryResp { attr: child.attr() })
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], made.await).await
}
