//! setattr: mode, owner, times; a size is a truncate.

use std::collections::BTreeSet;

use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Ino, Pair, Result, SessionId};
use brindle_wire::mds::setattr::{SetTime, SetattrReq, SetattrResp};

use crate::acl::{self, Acl};
use crate::ask::apply_reports;
use crate::mdt::{Call, Mdt, SideTask, Step, Stop, Txn};
use crate::store::{Inode, inode, xattr};
use crate::{attrs, changelog, grant, reports, truncate};

const PERM_BITS: u32 = 0o7777;

/// Changes attributes in one batch.
pub async fn handle(mdt: &Mdt, call: &Call, req: SetattrReq) -> Result<SetattrResp> {
    let is_wrong = |set: SetTime| matches!(set, SetTime::At(time) if !time.is_valid());
    if req.atime.into_iter().chain(req.mtime).any(is_wrong) {
        let why = "a time has a second or more of nanoseconds";
        return Err(Fault::new(Code::InvalidArgument).why(why).data("nothing was changed"));
    }
    if let Some(size_bytes) = req.size_bytes {
        return truncate::handle(mdt, call, &req, size_bytes).await;
    }
    let sets_times = req.atime.is_some() || req.mtime.is_some();
    let epoch = sets_times.then(|| mdt.numbers().pair());
    if !sets_times {
        // Earlier writes clear set-id bits; take them in before this request sets the bits again.
        attrs::settle_holder(mdt, call.session, req.ino).await?;
    }
    let report: Vec<_> = req.report.iter().map(|r| (call.session, r.clone())).collect();
    let mut told = BTreeSet::new();
    mdt.modify(call, |t| {
        // Rows do not grow.
        t.frees_space();
        if let Some(epoch) = epoch {
            // The answer tells epochs, among them the one of a cut. Every OST must know the cut's epoch before a client writes
            // under it: an OST that learnt of the cut later would cut off the new bytes.
            t.idle(req.ino)?;
            tell_writers(t, call, req.ino, epoch, &mut told)?;
        }
        apply_reports(t, req.ino, &report)?;
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

/// Goes on only if every other writer of an inode knows the new attribute epoch, and has reported its writes under the old one:
/// a report under an older epoch moves no times. `told`: handles that were told. A client that opens the inode before the batch
/// with the new epoch gets the old epoch, even if its session was told before; its new handle is told in turn.
fn tell_writers(
    t: &Txn<'_>,
    call: &Call,
    ino: Ino,
    attr_epoch: Pair,
    told: &mut BTreeSet<(SessionId, u64)>,
) -> Step<()> {
    let mut from = Vec::new();
    for handle in t.live().opens.other_write_handles(ino, call.session) {
        if told.insert(handle) {
            from.push(handle.0);
        }
    }
    from.dedup();
    if from.is_empty() { Ok(()) } else { Err(Stop::First(SideTask::Report { ino, attr_epoch, from })) }
}

/// Everything but the size.
pub fn apply(t: &mut Txn<'_>, inode: &mut Inode, req: &SetattrReq) -> Result<()> {
    let changes_owner = req.uid.is_some() || req.gid.is_some();
    inode.uid = req.uid.unwrap_or(inode.uid);
    inode.gid = req.gid.unwrap_or(inode.gid);
    if changes_owner {
        t.within_limits(req.cred.uid);
        let (ino, owners) = (inode.ino, inode.owners());
        t.after(move |live| live.owners_changed(ino, owners));
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
