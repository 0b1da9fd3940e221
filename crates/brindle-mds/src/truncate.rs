//! Truncate: to zero, of inline bytes, or of objects (ARCHITECTURE, "Truncate").

use brindle_stdx::cast::to_usize;
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{ChangeKind, Code, Fault, Ino, ObjectId, Pair, Result, SessionId, Stripe};
use brindle_wire::Op;
use brindle_wire::mds::open::Access;
use brindle_wire::mds::setattr::{SetattrReq, SetattrResp};
use brindle_wire::notify::{LayoutNotice, Recall};
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::truncate::TruncateObjectReq;
use futures_util::future::join_all;

use crate::ask::{Notice, apply_reports};
use crate::mdt::{Busy, Call, Event, Mdt, SideTask, Step, Stop, Txn};
use crate::opens::Writing;
use crate::ops::{append, setattr};
use crate::store::{Inode, inline, inode};
use crate::{attrs, changelog, grant, hsm, namespace, reports};

/// A truncate with whatever else the request changes, all of it in one batch or not at all.
pub async fn handle(mdt: &Mdt, call: &Call, req: &SetattrReq, size_bytes: u64) -> Result<SetattrResp> {
    if size_bytes > FILE_SIZE_MAX_BYTES {
        return Err(Fault::new(Code::TooLarge));
    }
    let busy = Busy::new(mdt, req.ino);
    let report: Vec<_> = req.report.iter().map(|r| (call.session, r.clone())).collect();
    let mut has_asked = false;
    let cutting = Access { truncate: true, ..Access::default() };
    let cut = mdt.step(call, |t| {
        grant::refuse_busy_programs(t, call, req.ino, cutting, &mut has_asked)?;
        busy.set(t)?;
        apply_reports(t, req.ino, &report)?;
        begin(t, call.session, req.ino, size_bytes)
    });
    let made = match cut.await? {
        Some(file) => match cut_objects(mdt, &file, size_bytes).await {
            Ok(made) => Some(made),
            // The fault is not an OST's: the MDT stops. The cut is begun, and the next start of the MDT finishes it.
            Err(fault) if fault.code == Code::Shutdown => return Err(fault),
            Err(fault) => return Err(give_up(mdt, &file, size_bytes, &busy, fault).await?),
        },
        None => None,
    };
    mdt.complete(call, |t| {
        // The objects are cut already.
        t.frees_space();
        let mut file = inode::get(t, req.ino)?;
        let before = file.size_bytes;
        match &made {
            Some(made) => finish(t, &mut file, size_bytes, made)?,
            None if size_bytes == 0 => zero(t, &mut file)?,
            None => cut_here(t, &mut file, size_bytes)?,
        }
        append::drop_behind(t, req.ino, size_bytes)?;
        changed(t, call.session, &mut file, before.min(size_bytes), req.kill_suidgid)?;
        setattr::apply(t, &mut file, req)?;
        inode::put(t, &file)?;
        changelog::attributes(t, req);
        busy.clear(t);
        let grant = Some(grant::grant_now(t, &file, call.session)?);
        Ok(SetattrResp { attr: file.attr(), grant })
    })
    .await
}

/// O_TRUNC: in the batch of an open.
pub fn to_zero(t: &mut Txn<'_>, session: SessionId, file: &mut Inode, kill_suidgid: bool) -> Step<()> {
    exclusive_back(t, session, file.ino)?;
    zero(t, file)?;
    append::drop_behind(t, file.ino, 0)?;
    changed(t, session, file, 0, kill_suidgid)?;
    Ok(())
}

/// The exclusive holder, if it is another session, gives its right back first, with its report.
fn exclusive_back(t: &Txn<'_>, session: SessionId, ino: Ino) -> Step<()> {
    t.settled(ino, session)?;
    if t.live().recalling.contains(&ino) {
        return Err(Stop::RetryAfter(Event::Recalled(ino)));
    }
    match t.live().opens.writing(ino) {
        Writing::Exclusive(holder) if holder != session => {
            Err(Stop::First(SideTask::Recall { ino, right: Recall::Exclusive, from: vec![holder] }))
        }
        _ => Ok(()),
    }
}

/// The first batch: `Some(file)` when its objects must be cut, with the cut recorded under a new truncate epoch.
fn begin(t: &mut Txn<'_>, session: SessionId, ino: Ino, size_bytes: u64) -> Step<Option<Inode>> {
    exclusive_back(t, session, ino)?;
    let mut file = inode::get(t, ino)?;
    let nothing_to_cut = size_bytes == file.size_bytes && !file.open_for_write;
    if size_bytes > 0 {
        hsm::here(t, &file)?;
    }
    if file.file()?.layout.inline || size_bytes == 0 || nothing_to_cut {
        return Ok(None);
    }
    file.truncate_epoch = t.pair();
    file.file_mut()?.pending_cut = Some(size_bytes);
    inode::put(t, &file)?;
    Ok(Some(file))
}

/// Cuts the objects of a file at all of its OSTs. The cut is durable at the MDT before the first is asked.
async fn cut_objects(mdt: &Mdt, file: &Inode, size_bytes: u64) -> Result<Made> {
    mdt.synced().await?;
    let layout = &file.file()?.layout;
    let last = brindle_layout::last_stripe(layout, size_bytes);
    let cut = |(ost, object): (u16, ObjectId)| async move {
        let stripe = object.named();
        let len_bytes = brindle_layout::object_len(layout, stripe, size_bytes);
        let make = last == Some(stripe);
        let truncate_epoch = file.truncate_epoch;
        let must_exist = layout.object_known(stripe);
        let cut = TruncateObjectReq { object, len_bytes, truncate_epoch, make, must_exist };
        mdt.osts().insist(ost, &cut).await.map(|answer| (stripe, answer))
    };
    // The object that determines the size of the file comes after all others: if one of them refuses, the
    // file has not become longer.
    let (last_one, others): (Vec<_>, Vec<_>) =
        attrs::objects(file).into_iter().partition(|(_, object)| last == Some(object.named()));
    let mut answers: Vec<(Stripe, ChangeResp)> = Vec::new();
    for objects in [others, last_one] {
        for answer in join_all(objects.into_iter().map(cut)).await {
            answers.push(answer?);
        }
    }
    let allocated_bytes = attrs::sum_bytes(answers.iter().map(|(_, answer)| answer.allocated_bytes));
    let last = answers.iter().map(|(stripe, _)| *stripe).find(|stripe| last == Some(*stripe));
    Ok(Made { epoch: file.truncate_epoch, allocated_bytes, last })
}

/// Gives up a cut that an OST has refused. The caller is told, and from then on nobody may cut behind what is written
/// next: the mark goes. As after a crash, the file is what its objects have come to: one that was cut already reads as
/// zeros. Returns what the caller is told; fails when the mark stays.
async fn give_up(mdt: &Mdt, begun: &Inode, size_bytes: u64, busy: &Busy<'_>, fault: Fault) -> Result<Fault> {
    let call = Call::internal(Op::TruncateObject);
    let stats = attrs::stat_answering(mdt, begun).await;
    let marked = mdt.step(&call, |t| {
        // The mark must go also where there is no room left.
        t.frees_space();
        if let Some(mut file) = inode::find(t, begun.ino)?
            && file.truncate_epoch == begun.truncate_epoch
        {
            file.file_mut()?.pending_cut = None;
            attrs::merge_objects(&mut file, &stats);
            // The caller itself has outdated pages and an old epoch, too.
            changed(t, SessionId(0), &mut file, size_bytes, false)?;
            inode::put(t, &file)?;
            changelog::about(t, ChangeKind::Truncate, begun.ino, None);
        }
        busy.clear(t);
        Ok(())
    });
    marked.await.map_err(|worse| worse.why(fault.to_string()))?;
    // Every writer has been told by now. Their reports under the former epoch were ignored since the objects were asked,
    // and an OST that has refused the new epoch took their bytes. Hence ask the objects again.
    let stats = attrs::stat_answering(mdt, begun).await;
    let merged = mdt.step(&call, |t| {
        t.frees_space();
        if let Some(mut file) = inode::find(t, begun.ino)?
            && file.truncate_epoch == begun.truncate_epoch
        {
            attrs::merge_objects(&mut file, &stats);
            inode::put(t, &file)?;
        }
        Ok(())
    });
    merged.await.map_err(|worse| worse.why(fault.to_string()))?;
    Ok(fault
        .data(format!("the file was cut in part at most; what lies behind byte {size_bytes} may be zeros")))
}

/// Outcome of cutting the objects.
struct Made {
    epoch: Pair,
    allocated_bytes: u64,
    /// The stripe that holds the last byte; its object exists, on stable storage.
    last: Option<Stripe>,
}

/// The second batch: the size, and the mark of the cut goes.
fn finish(t: &mut Txn<'_>, file: &mut Inode, size_bytes: u64, made: &Made) -> Step<()> {
    if file.truncate_epoch != made.epoch {
        return Err(Fault::new(Code::Bug)
            .what("a truncate was overtaken on")
            .subject(file.ino.fid().to_string())
            .into());
    }
    file.size_bytes = size_bytes;
    file.allocated_bytes = made.allocated_bytes;
    file.attr_epoch = t.pair();
    let body = file.file_mut()?;
    body.pending_cut = None;
    if let Some(stripe) = made.last {
        body.layout.set_object_known(stripe);
        body.unsynced.retain(|(s, _)| *s != stripe);
    }
    Ok(())
}

/// A cut that concerns only the MDT: inline bytes, or a size that stays.
fn cut_here(t: &mut Txn<'_>, file: &mut Inode, size_bytes: u64) -> Result<()> {
    if file.is_inline() {
        let bytes = inline::get(t, file.ino)?;
        if bytes.len() as u64 > size_bytes {
            let kept = bytes.slice(..to_usize(size_bytes));
            inline::put(t, file.ino, &kept);
            file.allocated_bytes = Inode::inline_allocation(kept.len());
        }
    }
    file.size_bytes = size_bytes;
    file.truncate_epoch = t.pair();
    file.attr_epoch = t.pair();
    Ok(())
}

/// The file is empty, and inline again, as it was made: new generations, only the first component has OSTs. The old
/// objects are queued.
fn zero(t: &mut Txn<'_>, file: &mut Inode) -> Result<()> {
    hsm::emptied(t, file)?;
    let_go(t, file)?;
    file.size_bytes = 0;
    file.allocated_bytes = 0;
    file.truncate_epoch = t.pair();
    file.attr_epoch = t.pair();
    Ok(())
}

/// The bytes of a file go, wherever they lie: it is inline, under a new generation. The old objects are queued. Size and epochs stay.
pub fn let_go(t: &mut Txn<'_>, file: &mut Inode) -> Result<()> {
    if file.may_have_objects() {
        namespace::destroy_objects(t, file);
    }
    inline::delete(t, file.ino);
    let (generation, epoch, body_id) = (t.pair(), t.pair(), t.pair());
    let body = file.file_mut()?;
    if !body.layout.inline || body.convert_begun {
        body.layout.components = brindle_layout::emptied(&body.layout.components);
        body.layout.components.iter_mut().for_each(|c| c.generation = generation);
        body.layout.epoch = epoch;
        body.layout.body = body_id;
        body.layout_gen += 1;
    }
    body.layout.inline = true;
    body.convert_begun = false;
    body.unsynced = Vec::new();
    body.aside = Vec::new();
    body.pending_cut = None;
    Ok(())
}

/// Times, set-id bits and `data_version` of a file that was cut; other clients learn of it before the answer.
fn changed(t: &mut Txn<'_>, session: SessionId, file: &mut Inode, drop_from: u64, kill: bool) -> Result<()> {
    file.mtime = t.now;
    file.ctime = t.now;
    if !file.open_for_write {
        file.data_version = t.pair();
    }
    file.file_mut()?.changed = t.pair();
    reports::contents_changed(t, file, kill)?;
    let (ino, truncate_epoch) = (file.ino, file.truncate_epoch);
    for other in t.live().opens.others(ino, session) {
        t.notify(other, Notice::Layout(LayoutNotice { ino, drop_from, truncate_epoch }));
    }
    Ok(())
}

/// Finishes a cut of objects that a crash interrupted (called by recovery, under a busy mark of its own).
pub async fn finish_pending(mdt: &Mdt, ino: Ino) -> Result<()> {
    let busy = Busy::new(mdt, ino);
    let call = Call::internal(Op::TruncateObject);
    let begun = mdt.step(&call, |t| {
        let Some(file) = inode::find(t, ino)? else { return Ok(None) };
        let Some(size) = file.file.as_ref().and_then(|body| body.pending_cut) else { return Ok(None) };
        busy.take_over(t)?;
        Ok(Some((file, size)))
    });
    let Some((file, size_bytes)) = begun.await? else { return Ok(()) };
    let made = match cut_objects(mdt, &file, size_bytes).await {
        Ok(made) => made,
        Err(fault) => {
            // No client was told that the file was cut. Waiting for an OST that can never do it would block
            // all access to the file.
            let fault = give_up(mdt, &file, size_bytes, &busy, fault).await?;
            tracing::error!(inode = %ino.fid(), %fault, "a truncate that a restart had interrupted could not be finished");
            return Ok(());
        }
    };
    mdt.step(&call, |t| {
        t.frees_space();
        let mut file = inode::get(t, ino)?;
        finish(t, &mut file, size_bytes, &made)?;
        append::drop_behind(t, ino, size_bytes)?;
        changed(t, SessionId(0), &mut file, size_bytes, false)?;
        inode::put(t, &file)?;
        changelog::about(t, ChangeKind::Truncate, ino, None);
        busy.clear(t);
        Ok(())
    })
    .await
}
