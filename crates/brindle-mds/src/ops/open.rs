//! open: a handle and the mode that the client may use. Recalls it needs are done between runs (`mdt::Stop::First`).

use brindle_types::{ChangeKind, Code, Fault, Result};
use brindle_wire::mds::hsm::{HsmOpenReq, HsmRecallReq, HsmRecallResp};
use brindle_wire::mds::open::{OpenGrant, OpenReq, OpenResp};

use super::hsm::recalled;
use crate::mdt::{Call, Mdt};
use crate::store::inode;
use crate::{changelog, grant, truncate};

/// Opens an existing inode. Opening for reading changes no row.
pub async fn handle(mdt: &Mdt, call: &Call, req: OpenReq) -> Result<OpenResp> {
    let mut has_asked = false;
    mdt.modify_storing(call, without_bytes, |t| {
        // No row grows: files of a full MDT can still be read and written.
        t.frees_space();
        let mut file = inode::get(t, req.ino)?;
        let access = req.access;
        if file.is_dir() && (access.write || access.truncate) {
            return Err(Fault::new(Code::IsDirectory).into());
        }
        if !file.is_dir() {
            file.file()?;
        }
        grant::refuse_busy_programs(t, call, file.ino, access, &mut has_asked)?;
        let before = file.clone();
        let mode = grant::open(t, call, &mut file, access, req.handle)?;
        if access.truncate {
            truncate::to_zero(t, call.session, &mut file, req.kill_suidgid)?;
            changelog::about(t, ChangeKind::Truncate, file.ino, Some(&req.cred));
        }
        if file != before {
            inode::put(t, &file)?;
        }
        Ok(OpenResp { attr: file.attr(), grant: grant::grant(t, &file, mode, access.read)? })
    })
    .await
}

/// Opens a file for reading, also a released one, whose restore begins here if there is none.
pub async fn handle_restoring(mdt: &Mdt, call: &Call, req: HsmOpenReq) -> Result<OpenResp> {
    let req = req.open;
    if req.access.write || req.access.truncate {
        return Err(Fault::new(Code::InvalidArgument).why("a file that is being restored is only read"));
    }
    let recall = HsmRecallReq { ino: req.ino, waits_for: None, cred: req.cred.clone() };
    let mut has_asked = false;
    mdt.modify_storing(call, without_bytes, |t| {
        t.frees_space();
        let mut file = inode::get(t, req.ino)?;
        file.file()?;
        grant::refuse_busy_programs(t, call, file.ino, req.access, &mut has_asked)?;
        let mode = grant::open_restoring(t, call, &mut file, req.access, req.handle)?;
        if let HsmRecallResp::Failed(fault) = recalled(t, &recall, None)? {
            return Err(fault.into());
        }
        Ok(OpenResp { attr: file.attr(), grant: grant::grant(t, &file, mode, req.access.read)? })
    })
    .await
}

/// Opening for reading writes nothing but this; the bytes of a small file would be most of it.
fn without_bytes(whole: &OpenResp) -> OpenResp {
    let grant = OpenGrant { inline: None, layout: whole.grant.layout.clone(), ..whole.grant };
    OpenResp { attr: whole.attr.clone(), grant }
}
