//! scatter: sends written bytes to the OSTs, in parallel, and takes in their answers: boot terms, space, marks of readers.
//!
//! Step 5 of write: from [`super::write`] to `brindle-wire/src/oss/write.rs`.

use std::collections::BTreeSet;

use brindle_layout::ObjectRange;
use brindle_stdx::BoxFuture;
use brindle_targets::{Identity, Options};
use brindle_types::{Code, Fault, ObjectId, Pair, SessionId};
use brindle_wire::mds::invalidate::{Holders, InvalidateReq};
use brindle_wire::oss::write::{Claim, WriteReq, room_bytes};
use brindle_wire::oss::{AcknowledgedMarks, ChangeResp, Marks};
use bytes::Bytes;

use super::read::split;
use super::{Tries, gather};
use crate::Client;
use crate::inodes::{Author, Inode, LayoutSnapshot};
use crate::rope::Rope;

/// Sessions whose kept pages a change met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    sessions: BTreeSet<SessionId>,
    /// OSTs that know only from now on who holds pages of an object: all such pages must go, wherever the change was.
    everybody: bool,
    /// Confirmations for the OSTs when those pages are gone, by OST.
    takings: Vec<(u16, AcknowledgedMarks)>,
}

impl Met {
    /// Marks that the change of `part` met.
    pub fn add(&mut self, object: ObjectId, part: &ObjectRange, answer: ChangeResp) {
        match answer.marks {
            Marks::None => {}
            Marks::Sessions(sessions) => self.sessions.extend(sessions),
            Marks::Unknown => self.everybody = true,
        }
        let (offset, len_bytes) = (part.object_offset, part.len_bytes);
        let told =
            answer.takings.into_iter().map(|taking| AcknowledgedMarks { object, taking, offset, len_bytes });
        self.takings.extend(told.map(|told| (part.ost, told)));
    }

    /// Notes that the pages are gone; `all`: every page of the file.
    fn told(
        takings: Vec<(u16, AcknowledgedMarks)>,
        all: bool,
    ) -> impl Iterator<Item = (u16, AcknowledgedMarks)> {
        let widest = move |told: AcknowledgedMarks| {
            if all { AcknowledgedMarks { offset: 0, len_bytes: u64::MAX, ..told } } else { told }
        };
        takings.into_iter().map(move |(ost, told)| (ost, widest(told)))
    }

    fn holders(self, own: SessionId) -> Option<Holders> {
        if self.everybody {
            return Some(Holders::AllReaders);
        }
        let sessions: Vec<SessionId> = self.sessions.into_iter().filter(|s| *s != own).collect();
        (!sessions.is_empty()).then_some(Holders::Sessions(sessions))
    }
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Whether the bytes must be on stable storage before the answer.
    pub sync: bool,
    /// Clear set-id bits.
    pub kill_suidgid: bool,
    /// Writeback of a page: readers elsewhere are told in the background.
    pub page: bool,
    /// The session in which alone the write may be made.
    pub session: Identity,
    /// Bytes that were acknowledged before, and for which space is reserved.
    pub author: Option<Author>,
    /// The truncate epoch under which alone the write may be made. An append with a place asks for it again after every change of the
    /// layout.
    pub under: Option<Pair>,
}

/// Outcome of a part of a scatter.
struct Written {
    part: ObjectRange,
    /// Offset of the first byte in the file.
    first: u64,
    /// The end of its last one.
    end: u64,
    outcome: Result<ChangeResp, Fault>,
}

/// Outcome of a scatter.
struct Scattered {
    /// First byte of the file that was not written, and why.
    failed: Option<(u64, ObjectRange, Fault)>,
    /// End of the last part that was written.
    end: u64,
    met: Met,
}

/// An OST without space for the write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub ost: u16,
    /// First byte of the file without space.
    pub offset: u64,
    /// Number of bytes that the OST refused.
    pub len_bytes: u64,
}

/// Progress of a scatter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes written from the first on.
    pub written: u64,
    /// The fault that stopped the write, if an OST had no space.
    pub full: Option<Full>,
    /// The identity of the contents and the truncate epoch of the write.
    pub under: (Pair, Pair),
    /// Whether a notice of a truncate came meanwhile, made or given up.
    pub overtaken: bool,
}

impl Client {
    /// Writes `data` at `offset` into the objects of `inode`. Returns the progress, if at least the first byte could be written or an OST
    /// was full. `StaleLayout`, or perhaps `ObjectMissing`, if the layout was changed meanwhile: then nothing is certain, and all bytes
    /// must be written again. The caller has placed all of the range.
    pub(crate) async fn scatter(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        offset: u64,
        data: &Rope,
        how: How,
    ) -> Result<Progress, Fault> {
        let end = offset + data.len_bytes();
        if !brindle_layout::is_placed(&snapshot.layout, offset..end) {
            return Err(Fault::new(Code::Bug).why("bytes were to be written where the file has no objects"));
        }
        let ranges = brindle_layout::object_ranges(&snapshot.layout, offset..end);
        let parts = ranges.into_iter().flat_map(split);
        let writing = parts.map(|part| -> BoxFuture<'_, _> {
            Box::pin(self.write_part(inode, snapshot, part, offset, data, how))
        });
        let mut sum = Scattered { failed: None, end: 0, met: Met::default() };
        let changing = inode.changing(snapshot).await?;
        let written = gather(writing.collect()).await;
        drop(changing);
        for Written { part, first, end, outcome } in written {
            match outcome {
                Ok(answer) => {
                    sum.end = sum.end.max(end);
                    sum.met.add(ObjectId::of(inode.ino, part.stripe), &part, answer);
                }
                Err(fault) => note_failure(&mut sum.failed, first, part, fault),
            }
        }
        tracing::trace!(
            ino = inode.ino.0,
            body = %snapshot.layout.body,
            offset,
            len = data.len_bytes(),
            failed = ?sum.failed.as_ref().map(|(at, _, fault)| (at, fault.code)),
            "written to objects"
        );
        let mut full = None;
        let (written, failed) = match sum.failed {
            Some((_, _, fault)) if uncertainty(&fault) > 0 => (0, Some(fault)),
            Some((first, part, fault)) => {
                full = (fault.code == Code::OstFull).then_some(Full {
                    ost: part.ost,
                    offset: first,
                    len_bytes: end - first,
                });
                (first - offset, Some(fault))
            }
            None => (data.len_bytes(), None),
        };
        // Readers are told even if a part failed: the other parts have been written.
        self.tell_readers(inode, offset, data.len_bytes(), sum.met, how.page).await?;
        let overtaken = {
            let mut state = inode.lock();
            if written > 0 {
                state.wrote(snapshot, offset + written, how.kill_suidgid);
            }
            if sum.end > offset + written && failed.as_ref().is_some_and(|f| uncertainty(f) == 0) {
                // Bytes after the failed part belong to the file, whatever becomes of that part. The bytes do not belong to a hole that is
                // made there later.
                state.reserved(snapshot, sum.end);
            }
            state.told_of_cut_since(snapshot)
        };
        match failed {
            Some(fault) if written == 0 && full.is_none() => Err(fault),
            _ => {
                let under = (snapshot.layout.body, snapshot.ticket.truncate_epoch);
                Ok(Progress { written, full, under, overtaken })
            }
        }
    }

    async fn write_part(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        range: ObjectRange,
        offset: u64,
        data: &Rope,
        how: How,
    ) -> Written {
        let (mut first, mut last) = (u64::MAX, 0);
        let component = snapshot.layout.component(range.stripe.generation);
        let bulk: Vec<Bytes> = component
            .into_iter()
            .flat_map(|component| range.pieces(component))
            .flat_map(|piece| {
                first = first.min(piece.file_offset);
                last = last.max(piece.file_offset + piece.len_bytes);
                data.slice(piece.file_offset - offset, piece.len_bytes)
            })
            .collect();
        let request = WriteReq {
            object: ObjectId::of(inode.ino, range.stripe),
            offset: range.object_offset,
            ticket: snapshot.ticket_for(range.stripe),
            sync: how.sync,
            told: self.mark_acks.take(range.ost),
            claim: self.claim(range.ost, how),
        };
        let sent = self.seams.now();
        let mark = inode.lock().changes;
        let options = Options { only_as: Some(how.session), ..Options::default() };
        let answer = async {
            let ost = self.ost(range.ost).await?;
            let guard = self.abandoning(inode);
            let (answer, _) = ost.call_guarded(&request, bulk.clone(), options, guard).await?;
            let spent =
                if how.author.is_some() { room_bytes(range.object_offset, range.len_bytes) } else { 0 };
            self.grants.told(range.ost, answer.grant, spent, sent);
            Ok(answer.change)
        };
        let answer: Result<ChangeResp, Fault> = answer.await;
        if let Ok(answer) = &answer {
            let keep = snapshot.exclusive.then_some(&self.kept);
            let mut state = inode.lock();
            if state.same_body(snapshot) {
                // Of two writes that were under way at once the later answer may be of the earlier one.
                let allocated = state.allocated.entry(range.stripe).or_default();
                *allocated = answer.allocated_bytes.max(*allocated);
                if how.sync {
                    state.synced_now.insert(range.stripe);
                    state.synced_with(range.stripe, answer.boot_term, mark);
                }
                // Synced bytes are kept too, where unsynced ones may lie below them: the unsynced ones would be written again over them.
                if !how.sync || state.unsynced.contains_key(&range.stripe) {
                    state.changed(snapshot, range.stripe, answer.boot_term, range.object_offset, &bulk, keep);
                }
            }
        }
        Written { part: range, first, end: last, outcome: answer }
    }

    /// The claim to grants in a write to an OST.
    pub(crate) fn claim(&self, ost: u16, how: How) -> Option<Claim> {
        let claim = || Claim { covered: how.author.is_some(), holds_bytes: self.grants.holds_bytes(ost) };
        self.config.switches.write_behind.then(claim)
    }

    /// A change met marks: those clients drop their pages before the change counts as made.
    pub(crate) async fn tell_readers(
        &self,
        inode: &Inode,
        offset: u64,
        len_bytes: u64,
        mut met: Met,
        background: bool,
    ) -> Result<(), Fault> {
        let takings = std::mem::take(&mut met.takings);
        if inode.lock().exclusive {
            // No other client has had a handle for reading since the change.
            self.mark_acks.add(Met::told(takings, true));
            return Ok(());
        }
        let everybody = met.everybody;
        let Some(holders) = met.holders(self.session.identity().session) else { return Ok(()) };
        // An OST says once after its restart that it knows of no marks: then every page of the file may be unmarked.
        let (offset, len_bytes) = if everybody { (0, u64::MAX) } else { (offset, len_bytes) };
        let request = InvalidateReq { ino: inode.ino, offset, len_bytes, holders };
        let this = self.this.upgrade().filter(|_| background);
        let Some(this) = this else { return self.have_pages_dropped(inode, &request, takings).await };
        // The page is locked until its writeback is answered, and a reader elsewhere may wait for just that page;
        // fsync waits for the rest.
        let hold = self.inodes.hold(inode.ino);
        hold.lock().background += 1;
        self.seams.spawn("client.invalidate", async move {
            if let Err(fault) = this.have_pages_dropped(&hold, &request, takings).await {
                tracing::warn!(code = %fault.code, "cannot tell readers of a page: {fault}");
            }
            hold.lock().background -= 1;
            hold.quiet.notify_waiters();
        });
        Ok(())
    }

    /// Has the pages dropped. If the OST knows of nobody's pages, our own are dropped as well, because the next writer will not hear of
    /// them.
    async fn have_pages_dropped(
        &self,
        inode: &Inode,
        request: &InvalidateReq,
        takings: Vec<(u16, AcknowledgedMarks)>,
    ) -> Result<(), Fault> {
        let told = self.mds.ask(request).await.map(drop);
        let all = request.holders == Holders::AllReaders;
        if all {
            self.kept_versions.forget(inode.ino);
            self.invalidate(inode, 0..u64::MAX).await;
        }
        told.inspect(|()| self.mark_acks.add(Met::told(takings, all)))
    }

    /// Writes into objects until the layout does not change during a try; bytes for a full OST go to other OSTs. Writes fewer bytes if no
    /// OST has space for the rest.
    pub(crate) async fn write_objects(
        &self,
        inode: &Inode,
        offset: u64,
        data: &Rope,
        how: How,
    ) -> Result<u64, Fault> {
        let mut tries = Tries::default();
        let mut done = 0;
        let mut done_under = None;
        loop {
            let step = self.write_some(inode, offset + done, &data.tail(done), how).await;
            let again = match step {
                // The file was truncated between two parts of this write. The write must be entirely before that or entirely after it.
                Ok(Progress { under, .. }) if done > 0 && done_under != Some(under) => {
                    done = 0;
                    Ok(())
                }
                // The file was truncated while this write was under way. An OST that refused the truncate may have taken older bytes
                // afterwards, of which the MDT would not hear. Written again, the bytes belong to the time after the truncate.
                Ok(Progress { overtaken: true, .. }) => {
                    done = 0;
                    Err(Fault::new(Code::StaleLayout))
                }
                Ok(Progress { written, full, under, overtaken: false }) => {
                    done += written;
                    done_under = Some(under);
                    if written > 0 {
                        tries.spills = 0;
                    }
                    match full {
                        None => return Ok(done),
                        Some(full) if how.author.is_some() => {
                            self.spill_buffered(inode, &mut tries, full).await
                        }
                        Some(full) => self.spill(inode, &mut tries, full).await,
                    }
                }
                Err(fault) => Err(fault),
            };
            let Err(fault) = again else { continue };
            if how.under.is_some() && fault.code == Code::StaleLayout {
                return Err(fault);
            }
            if let Err(fault) = self.retry(inode, &mut tries, fault).await {
                return if done > 0 { Ok(done) } else { Err(fault) };
            }
        }
    }

    async fn write_some(&self, inode: &Inode, offset: u64, data: &Rope, how: How) -> Result<Progress, Fault> {
        loop {
            let mut snapshot = self.snapshot(inode).await?;
            if how.under.is_some_and(|under| under != snapshot.ticket.truncate_epoch) {
                return Err(Fault::new(Code::StaleLayout));
            }
            if let Some(author) = how.author {
                if author.body != snapshot.layout.body {
                    // The file was emptied since, and these bytes with it.
                    let under = (author.body, snapshot.ticket.truncate_epoch);
                    return Ok(Progress { written: data.len_bytes(), full: None, under, overtaken: false });
                }
                snapshot.ticket.attr_epoch = author.attr_epoch;
            }
            let range = offset..offset + data.len_bytes();
            if brindle_layout::is_placed(&snapshot.layout, range.clone()) {
                return self.scatter(inode, &snapshot, offset, data, how).await;
            }
            self.place(inode, range).await?;
        }
    }
}

/// How surely a fault means that the layout has changed, so that the outcome of the written parts is unknown: 2 surely, 1 perhaps (an object
/// is missing that must exist; see `Client::retry`), 0 not at all.
fn uncertainty(fault: &Fault) -> u8 {
    match fault.code {
        Code::StaleLayout => 2,
        Code::ObjectMissing => 1,
        _ => 0,
    }
}

/// Keeps the failure that lies first in the file; an old layout goes before all other faults.
fn note_failure(failed: &mut Option<(u64, ObjectRange, Fault)>, first: u64, part: ObjectRange, fault: Fault) {
    let replace = match failed {
        None => true,
        Some((at, _, before)) if uncertainty(before) == uncertainty(&fault) => first < *at,
        Some((_, _, before)) => uncertainty(before) < uncertainty(&fault),
    };
    if replace {
        *failed = Some((first, part, fault));
    }
}
