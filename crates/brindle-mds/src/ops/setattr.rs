//! setattr: mode, owner, times; a size is a truncate.

use brindle_types::attr::Time;
use brindle_types::{Ino, Pair, Result, SessionId};
use brindle_wire::mds::report::WriteReport;
use brindle_wire::mds::setattr::{SetTime, SetattrReq, SetattrResp};
use brindle_wire::notify::ReportNotice;
use futures_util::future::join_all;

use crate::acl::{self, Acl};
use crate::ask::{apply_reports, ask};
use crate::mdt::{Call, Mdt, Txn};
use crate::store::{Inode, inode, xattr};
use crate::{attrs, changelog, grant, reports, truncate};

const PERM_BITS: u32 = 0o7777;

/// Changes attributes in one batch.
pub async fn handle(mdt: &Mdt, call: &Call, req: SetattrReq) -> Result<SetattrResp> {
    if let Some(size_bytes) = req.size_bytes {
        return truncate::handle(mdt, call, &req, size_bytes).await;
    }
    let sets_times = req.atime.is_some() || req.mtime.is_some();
    let mut due: Vec<_> = req.report.iter().map(|r| (call.session, r.clone())).collect();
    let mut epoch = None;
    if sets_times {
        let (new_epoch, reports) = reports_due(mdt, call, req.ino).await?;
        due.extend(reports);
        epoch = Some(new_epoch);
    } else {
        // What was written before clears set-id bits before they are set again, not after.
        attrs::settle_holder(mdt, call.session, req.ino).await?;
    }
    mdt.modify(call, |t| {
        // Nothing grows.
        t.frees_space();
        apply_reports(t, req.ino, &due)?;
        let mut inode = inode::get(t, req.ino)?;
        apply(t, &mut inode, &req)?;
        inode.attr_epoch = inode.attr_epoch.max(epoch.unwrap_or(Pair::ZERO));
        inode::put(t, &inode)?;
        changelog::attributes(t, &req);
        let grant = match sets_times && inode.file.is_some() {
            true => Some(grant::grant_now(t, &inode, call.session)?),
            false => None,
        };
        Ok(SetattrResp { attr: inode.attr(), grant })
    })
    .await
}

/// A new attribute epoch, told to the other writers of an inode, with the reports that they owed under the old one.
async fn reports_due(mdt: &Mdt, call: &Call, ino: Ino) -> Result<(Pair, Vec<(SessionId, WriteReport)>)> {
    let writers = mdt.read(|t| Ok(t.live().opens.other_writers(ino, call.session))).await?;
    let epoch = mdt.numbers().pair();
    let question = ReportNotice { ino, attr_epoch: Some(epoch) };
    let asked = writers.iter().map(|session| ask(mdt, *session, &question));
    let answers = join_all(asked).await;
    let reports = writers.iter().zip(answers).filter_map(|(s, answer)| Some((*s, answer?.report?)));
    Ok((epoch, reports.collect()))
}

/// Everything but the size.
pub fn apply(t: &mut Txn<'_>, inode: &mut Inode, req: &SetattrReq) -> Result<()> {
    let changes_owner = req.uid.is_some() || req.gid.is_some();
    inode.uid = req.uid.unwrap_or(inode.uid);
    inode.gid = req.gid.unwrap_or(inode.gid);
    if changes_owner {
        reports::drop_capability(t, inode)?;
    }
    if changes_owner || req.kill_suidgid {
        reports::kill_set_id(inode);
    }
    if let Some(mode) = req.mode {
        inode.perm = (mode & PERM_BITS) as u16;
        chmod_acl(t, inode)?;
    }
    let time = |set: SetTime, now: Time| match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    inode.atime = req.atime.map_or(inode.atime, |set| time(set, t.now));
    inode.mtime = req.mtime.map_or(inode.mtime, |set| time(set, t.now));
    inode.ctime = t.now;
    Ok(())
}

/// The access ACL follows the mode bits.
fn chmod_acl(t: &mut Txn<'_>, inode: &Inode) -> Result<()> {
    if !inode.has_acl {
        return Ok(());
    }
    let stored = xattr::find(t, inode.ino, acl::ACCESS)?;
    let Some(mut acl) = stored.map(|bytes| Acl::decode(&bytes)).transpose()?.flatten() else { return Ok(()) };
    acl.set_mode_bits(inode.perm);
    xattr::put(t, inode.ino, acl::ACCESS, &acl.encode());
    Ok(())
}
