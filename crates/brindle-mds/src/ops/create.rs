//! Step 4 of create: an inode, its name and its handle in one batch; no OST is asked. From `dispatch`, on to
//! `store/*` through the batch.

use brindle_types::{ChangeKind, Code, Fault, FileType, Result};
use brindle_wire::Cred;
use brindle_wire::mds::create::{CreateReq, CreateResp};
use brindle_wire::mds::open::OpenMode;

use crate::birth::{self, Birth};
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::{Inode, inode};
use crate::{access, changelog, grant, namespace, truncate};

/// Makes a regular file and opens it; without `exclusive` opens the one that is there.
pub async fn handle(mdt: &Mdt, call: &Call, req: CreateReq) -> Result<CreateResp> {
    namespace::check_new_name(&req.name)?;
    let made = mdt.modify(call, |t| {
        let mut dir = inode::dir(t, req.parent)?;
        if let Some(entry) = namespace::find(t, dir.ino, &req.name)? {
            let file = namespace::named(t, dir.ino, &req.name, entry)?;
            return open_existing(t, call, &req, file);
        }
        let birth =
            Birth { kind: FileType::Regular, mode: req.mode, umask: req.umask, rdev: 0, cred: &req.cred };
        let mut file = birth::make(t, &dir, &birth)?;
        namespace::add_name(t, &mut dir, &req.name, &mut file);
        let mode = grant::open_new(t, call, &mut file, req.access, req.handle)?;
        inode::put(t, &dir)?;
        inode::put(t, &file)?;
        changelog::named(t, ChangeKind::Create, (dir.ino, &req.name), file.ino, &req.cred, 0);
        answer(t, &file, mode, true, req.access.read)
    });
    namespace::tell_if_refused(mdt, call, &[(req.parent, &req.name)], made.await).await
}

/// Opens an existing file: another client has made the name after the caller's kernel had looked it up. The answer
/// follows open(2).
fn open_existing(t: &mut Txn<'_>, call: &Call, req: &CreateReq, mut file: Inode) -> Step<CreateResp> {
    if req.exclusive || file.kind == FileType::Symlink {
        return Err(Fault::new(Code::Exists).into());
    }
    file.file()?;
    check_access(t, &file, &req.cred, req)?;
    let mode = grant::open(t, call, &mut file, req.access, req.handle)?;
    if req.access.truncate {
        truncate::to_zero(t, call.session, &mut file, req.cred.uid != 0)?;
        changelog::about(t, ChangeKind::Truncate, file.ino, Some(&req.cred));
    }
    inode::put(t, &file)?;
    t.tell_name(call, req.parent, &req.name, Some((file.ino, file.kind)));
    answer(t, &file, mode, false, req.access.read)
}

fn check_access(t: &Txn<'_>, file: &Inode, cred: &Cred, req: &CreateReq) -> Result<()> {
    let read = if req.access.read { access::READ } else { 0 };
    let write = if req.access.write || req.access.truncate { access::WRITE } else { 0 };
    access::check(t, file, cred, read | write)
}

fn answer(t: &Txn<'_>, file: &Inode, mode: OpenMode, created: bool, readable: bool) -> Step<CreateResp> {
    Ok(CreateResp { attr: file.attr(), grant: grant::grant(t, file, mode, readable)?, created })
}
