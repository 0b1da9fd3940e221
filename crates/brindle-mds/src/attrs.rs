//! Current attributes: from the MDT while nobody writes; otherwise with size and times of the exclusive holder or the
//! OSTs.

use std::collections::BTreeSet;

use brindle_stdx::planted;
use brindle_types::attr::Time;
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{Attr, Code, Ino, ObjectId, Pair, Result, SessionId, Stripe};
use brindle_wire::Op;
use brindle_wire::mds::report::WriteReport;
use brindle_wire::notify::ReportNotice;
use brindle_wire::oss::stat::ObjectStat;
use parking_lot::Mutex;

use crate::ask::{apply_reports, ask};
use crate::mdt::{Call, Mdt, Txn};
use crate::opens::Writing;
use crate::ops::append;
use crate::store::{Inode, inode};
use crate::{recovery, reports};

/// Longest wait for an OST to tell the allocated bytes of objects, while a caller waits for them.
const COUNT_OST_MS: u64 = 1_000;
/// An object may have allocated this much more than it reports, if blocks of the local file system are smaller than a
/// block of sums.
const UNTOLD_BYTES: u64 = 3 << 10;

/// The authority for size and times of an inode.
pub enum Authority {
    /// The MDT (or the session that asks, which adds what it knows itself).
    Mdt,
    /// The exclusive holder.
    Holder(SessionId),
    /// The objects.
    Objects,
    /// A writer that has not declared itself since the MDT has restarted, perhaps: it may have bytes in its buffer.
    Undeclared,
}

/// The authority for size and times of an inode that `session` asks for.
pub fn authority(t: &Txn<'_>, inode: &Inode, session: SessionId) -> Authority {
    if !inode.open_for_write || inode.file.is_none() {
        return Authority::Mdt;
    }
    let unless_inline = |authority| if inode.is_inline() { Authority::Mdt } else { authority };
    match t.live().opens.writing(inode.ino) {
        Writing::Exclusive(holder) if holder == session => Authority::Mdt,
        Writing::Exclusive(_) if planted("mds_holder_of_small_file_not_asked") && inode.is_inline() => {
            Authority::Mdt
        }
        Writing::Exclusive(holder) => Authority::Holder(holder),
        Writing::Nobody if t.live().recovering => Authority::Undeclared,
        Writing::Shared | Writing::Nobody => unless_inline(Authority::Objects),
    }
}

/// Makes the exclusive holder of an inode, if that is another session, send all that is in its buffer.
pub async fn settle_holder(mdt: &Mdt, session: SessionId, ino: Ino) -> Result<()> {
    let look = |t: &Txn<'_>| Ok(inode::find(t, ino)?.map(|inode| authority(t, &inode, session)));
    match mdt.read(look).await? {
        Some(Authority::Holder(holder)) => ask_holder(mdt, holder, ino).await.map(drop),
        _ => Ok(()),
    }
}

/// The attributes of an inode as `session` may see them now.
pub async fn fresh(mdt: &Mdt, session: SessionId, ino: Ino) -> Result<Attr> {
    let mut attr = current(mdt, session, ino).await?.attr();
    // An append that is not finished hides what lies behind it.
    attr.size_bytes = mdt.read(|t| append::shown_end(t, ino, attr.size_bytes)).await?;
    Ok(attr)
}

/// End of a file, and the truncate epoch under which the end was valid.
pub struct KnownEnd {
    epoch: Pair,
    /// The objects were just being cut.
    cutting: bool,
    size_bytes: u64,
}

impl KnownEnd {
    /// The end, if `file` was not cut since.
    pub fn of(&self, file: &Inode) -> Option<u64> {
        (self.epoch == file.truncate_epoch && !self.cutting).then_some(self.size_bytes)
    }
}

/// The true end of a file, with everything written by anybody so far.
pub async fn true_size(mdt: &Mdt, session: SessionId, ino: Ino) -> Result<KnownEnd> {
    let inode = current(mdt, session, ino).await?;
    let cutting = inode.file.as_ref().is_some_and(|file| file.pending_cut.is_some());
    Ok(KnownEnd { epoch: inode.truncate_epoch, cutting, size_bytes: inode.size_bytes })
}

async fn current(mdt: &Mdt, session: SessionId, ino: Ino) -> Result<Inode> {
    let look = |t: &Txn<'_>| {
        let inode = inode::get(t, ino)?;
        let authority = authority(t, &inode, session);
        Ok((inode, authority))
    };
    let (mut inode, mut authority) = mdt.read(look).await?;
    if matches!(authority, Authority::Undeclared) {
        recovery::over(mdt).await;
        (inode, authority) = mdt.read(look).await?;
    }
    if let Authority::Holder(holder) = authority {
        let report = ask_holder(mdt, holder, ino).await?;
        (inode, authority) = mdt.read(look).await?;
        if let Some(report) = report.filter(|report| report.truncate_epoch >= inode.truncate_epoch) {
            // Bytes of a small file that could not be sent at once are on their way here.
            inode.size_bytes = inode.size_bytes.max(reports::told_size(&report));
        }
    }
    match authority {
        // A new holder after the first was asked: what the first said was true after this call began.
        Authority::Mdt | Authority::Holder(_) => Ok(inode),
        // (Undeclared: it restarts once more, and this call with it.)
        Authority::Undeclared if inode.is_inline() => Ok(inode),
        Authority::Objects | Authority::Undeclared => with_objects(mdt, inode).await,
    }
}

/// Has the exclusive holder report. The report is in the inode afterwards, except for inline data, for which it is
/// only returned.
async fn ask_holder(mdt: &Mdt, holder: SessionId, ino: Ino) -> Result<Option<WriteReport>> {
    let question = ReportNotice { ino, attr_epoch: None };
    let report = ask(mdt, holder, &question).await.and_then(|ack| ack.report);
    let reports: Vec<_> = report.iter().map(|r| (holder, r.clone())).collect();
    mdt.step(&Call::internal(Op::ReportNotice), |t| apply_reports(t, ino, &reports)).await?;
    Ok(report)
}

/// Objects of a file with the OST of each, in order of stripe.
pub fn objects(inode: &Inode) -> Vec<(u16, ObjectId)> {
    let Some(file) = &inode.file else { return Vec::new() };
    file.layout.stripes().map(|(stripe, ost)| (ost, ObjectId::of(inode.ino, stripe))).collect()
}

/// State of the objects of a file now.
pub async fn stat_objects(mdt: &Mdt, inode: &Inode) -> Result<Vec<(Stripe, ObjectStat)>> {
    let objects = objects(inode);
    let stats = mdt.osts().stat(&objects).await.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(objects.iter().map(|(_, object)| object.named()).zip(stats).collect())
}

/// Like `stat_objects`, leaving out objects whose OST cannot say: its disk fails.
pub async fn stat_answering(mdt: &Mdt, inode: &Inode) -> Vec<(Stripe, ObjectStat)> {
    let objects = objects(inode);
    let stats = mdt.osts().stat(&objects).await;
    let known = objects.iter().zip(stats).filter_map(|((ost, object), stat)| match stat {
        Ok(stat) => Some((object.named(), stat)),
        Err(fault) => {
            tracing::error!(ost, %object, %fault, "an object cannot say how long it is; its file may be longer");
            None
        }
    });
    known.collect()
}

/// Asks the OSTs how much the objects of a file have allocated. If the file is open for writing by then, the answer is
/// dropped, and the file counts as uncounted until its close.
pub async fn recount(mdt: &Mdt, ino: Ino) -> Result<()> {
    let is_meant = |file: &Inode| !file.is_inline() && file.may_have_objects();
    let Some(seen) = mdt.read(|t| Ok(inode::find(t, ino)?.filter(is_meant))).await? else { return Ok(()) };
    let stats = stat_objects(mdt, &seen).await?;
    mdt.step(&Call::internal(Op::StatObjects), |t| {
        t.frees_space();
        let Some(mut file) = inode::find(t, ino)? else { return Ok(()) };
        if file.open_for_write {
            // A client that has the file open need not change any of this.
            let owners = file.owners();
            t.after(move |live| live.uncount(ino, owners));
            return Ok(());
        }
        let layout_epoch = |inode: &Inode| inode.file.as_ref().map(|body| body.layout.epoch);
        let is_same = (file.data_version, layout_epoch(&file)) == (seen.data_version, layout_epoch(&seen));
        let allocated_bytes = sum_bytes(stats.iter().map(|(_, stat)| stat.allocated_bytes));
        if !is_same {
            // The file was opened meanwhile, or moved.
            t.after(move |live| live.recount(ino));
        } else if file.allocated_bytes != allocated_bytes {
            file.allocated_bytes = allocated_bytes;
            inode::put(t, &file)?;
        }
        Ok(())
    })
    .await
}

/// Sum of allocated bytes of objects. The sum saturates, and is capped at the largest file: a wrong number of an OST
/// must not crash this server.
pub fn sum_bytes(all: impl IntoIterator<Item = u64>) -> u64 {
    all.into_iter().fold(0, u64::saturating_add).min(FILE_SIZE_MAX_BYTES)
}

/// OSTs that did not answer in time; they are not asked again in the same round.
pub type Silent = Mutex<BTreeSet<u16>>;

/// Asks the OSTs how much the objects of a file that may be open for writing have allocated. The sum counts until a writer or a
/// close reports a better one. If an OST is silent, the sum is at least the known one. Skips files whose allocation a client can
/// report.
pub async fn count(mdt: &Mdt, ino: Ino, silent: &Silent) -> Result<()> {
    let look = |t: &Txn<'_>| {
        let is_meant = |file: &Inode| !file.is_inline() && file.may_have_objects();
        Ok(inode::find(t, ino)?.filter(|file| is_meant(file) && t.live().is_uncounted(ino)))
    };
    let Some(seen) = mdt.read(look).await? else { return Ok(()) };
    let all = objects(&seen);
    let asked: Vec<_> = all.iter().filter(|(ost, _)| !silent.lock().contains(ost)).copied().collect();
    let stats = mdt.osts().stat_within(COUNT_OST_MS, &asked).await;
    let mute = asked.iter().zip(&stats).filter(|(_, stat)| stat.is_err());
    silent.lock().extend(mute.map(|((ost, _), _)| *ost));
    let known: Vec<u64> = stats.iter().flatten().map(|stat| stat.allocated_bytes).collect();
    let (is_whole, sum_bytes) = (known.len() == all.len(), sum_bytes(known.iter().copied()));
    mdt.step(&Call::internal(Op::StatObjects), |t| {
        t.frees_space();
        let Some(mut file) = inode::find(t, ino)? else { return Ok(()) };
        let state = |inode: &Inode| {
            let body = inode.file.as_ref().map(|file| (file.layout.epoch, file.pending_cut));
            (body, inode.truncate_epoch)
        };
        let is_same =
            state(&file) == state(&seen) && seen.file.as_ref().is_some_and(|f| f.pending_cut.is_none());
        let allocated_bytes = if is_whole { sum_bytes } else { sum_bytes.max(file.allocated_bytes) };
        // If the file is not uncounted any more, a client has reported a better value meanwhile.
        if is_same && t.live().is_uncounted(ino) && file.allocated_bytes != allocated_bytes {
            file.allocated_bytes = allocated_bytes;
            inode::put(t, &file)?;
        }
        Ok(())
    })
    .await
}

/// OSTs that are asked for the blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The OSTs, if the row does not tell.
    Osts,
    /// Ask no OST: a file counts as one with holes if its row does not tell.
    Nobody,
}

/// Below which byte a file that `session` writes has all its blocks: none, if it may have holes. `None` if that cannot be known now.
pub async fn allocated_end(mdt: &Mdt, session: SessionId, ino: Ino, asking: Asking) -> Result<Option<u64>> {
    let look = |t: &Txn<'_>| {
        let file = inode::get(t, ino)?;
        let authority = authority(t, &file, session);
        Ok((file, authority, t.live().is_uncounted(ino)))
    };
    let (mut file, authority, is_uncounted) = mdt.read(look).await?;
    let is_being_cut = file.file.as_ref().is_some_and(|file| file.pending_cut.is_some());
    match authority {
        Authority::Holder(_) => return Ok(Some(0)),
        Authority::Undeclared => return Ok(None),
        // The known end and an answer of an OST may both be from before the cut.
        _ if is_being_cut => return Ok(None),
        // The writer has told.
        Authority::Mdt if !is_uncounted || file.is_inline() => {}
        Authority::Mdt | Authority::Objects if asking == Asking::Nobody => return Ok(Some(0)),
        Authority::Mdt | Authority::Objects => {
            let asked = objects(&file);
            let stats = mdt.osts().stat_within(COUNT_OST_MS, &asked).await;
            let stats = match stats.into_iter().collect::<Result<Vec<_>>>() {
                Err(fault) if fault.code == Code::TargetDown => return Ok(None),
                stats => stats?,
            };
            let named: Vec<_> = asked.iter().map(|(_, object)| object.named()).zip(stats).collect();
            merge_objects(&mut file, &named);
        }
    }
    let objects = if file.is_inline() || file.allocated_bytes == 0 { 0 } else { objects(&file).len() as u64 };
    let is_dense = file.allocated_bytes.saturating_add(objects * UNTOLD_BYTES) >= file.size_bytes;
    Ok(Some(if is_dense { file.size_bytes } else { 0 }))
}

async fn with_objects(mdt: &Mdt, mut inode: Inode) -> Result<Inode> {
    let stats = stat_objects(mdt, &inode).await?;
    merge_objects(&mut inode, &stats);
    Ok(inode)
}

/// Raises size and times to those that the objects report: size = max(MDT, objects), times where the last write was
/// made under the inode's attribute epoch. Objects that are missing in `stats` are left as they were known.
pub fn merge_objects(inode: &mut Inode, stats: &[(Stripe, ObjectStat)]) {
    let Some(file) = &inode.file else { return };
    let (mut allocated, mut times) = (0, None);
    for (stripe, stat) in stats.iter().filter(|(_, s)| s.exists) {
        let end = brindle_layout::file_size_from(&file.layout, *stripe, stat.len_bytes);
        inode.size_bytes = inode.size_bytes.max(end);
        allocated = sum_bytes([allocated, stat.allocated_bytes]);
        times = times.max(last_write_time(inode.attr_epoch, stat));
    }
    if stats.len() == file.layout.stripes().count() {
        inode.allocated_bytes = allocated;
    }
    raise_times(inode, times);
}

/// Raises times to those that an object reports.
pub fn merge_times(inode: &mut Inode, stat: &ObjectStat) {
    raise_times(inode, last_write_time(inode.attr_epoch, stat));
}

fn last_write_time(attr_epoch: Pair, stat: &ObjectStat) -> Option<Time> {
    stat.last_write.filter(|(epoch, _)| *epoch >= attr_epoch).map(|(_, time)| time)
}

fn raise_times(inode: &mut Inode, to: Option<Time>) {
    if let Some(time) = to {
        inode.mtime = inode.mtime.max(time);
        inode.ctime = inode.ctime.max(time);
    }
}
