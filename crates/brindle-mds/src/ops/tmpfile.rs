//! tmpfile: O_TMPFILE, a file without a name: an orphan from the beginning, until link gives it one.

use brindle_types::{FileType, Result};
use brindle_wire::mds::create::CreateResp;
use brindle_wire::mds::tmpfile::TmpfileReq;

use crate::birth::{self, Birth};
use crate::grant;
use crate::mdt::{Call, Mdt};
use crate::store::{inode, orphan};

/// Makes a nameless file with the defaults of a directory, and opens it.
pub async fn handle(mdt: &Mdt, call: &Call, req: TmpfileReq) -> Result<CreateResp> {
    mdt.modify(call, |t| {
        let dir = inode::dir(t, req.parent)?;
        let kind = FileType::Regular;
        let birth = Birth { kind, mode: req.mode, umask: req.umask, rdev: 0, cred: &req.cred };
        let mut file = birth::make(t, &dir, &birth)?;
        let mode = grant::open_new(t, call, &mut file, req.access, req.handle)?;
        orphan::put(t, file.ino);
        inode::put(t, &file)?;
        let grant = grant::grant(t, &file, mode, req.access.read)?;
        Ok(CreateResp { attr: file.attr(), grant, created: true })
    })
    .await
}
