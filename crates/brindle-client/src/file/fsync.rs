//! fsync: syncs every OST of the layout, then the MDT. fsync knows which writes an OST lost in a power cut, and writes them again or
//! reports the loss.
//!
//! Invariant: an fsync that succeeds covers every write that returned before it was called, whoever wrote it; one that
//! cannot says `DataLost`, on this handle and on every other of the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_layout::{ObjectRange, StripeExtent};
use brindle_stdx::{BoxFuture, planted};
use brindle_targets::Options;
use brindle_types::layout::Component;
use brindle_types::{Code, Fault, Ino, Layout, ObjectId, Stripe, TargetId};
use brindle_wire::mds::fsync::FsyncReq;
use brindle_wire::oss::sync::{SyncObjectsReq, SyncObjectsResp};
use brindle_wire::oss::write::WriteReq;
use bytes::Bytes;

use super::scatter::{How, Met};
use super::{Tries, try_gather};
use crate::Client;
use crate::closed_unsynced::ANSWER_WITHIN_MS;
use crate::handles::Handle;
use crate::inodes::{Carry, Inode, LayoutSnapshot};
use crate::unsynced::Plan;

/// How often lost bytes are written again before the OST counts as failing.
const RESENDS_MAX: usize = 8;

/// State of an OST's objects of a file, as its answer to a sync shows it.
struct Synced {
    /// Stripes whose objects exist.
    exist: Vec<Stripe>,
    /// Writes were lost; the handles report it.
    lost: Option<Fault>,
}

/// Whether the file reads all of these bytes of a stripe where they were written. A component ends early when its OST was full, and
/// the bytes after that end are on another OST. (Bytes in an object that nobody reads would be of no use.)
fn is_read_there(layout: &Layout, stripe: Stripe, writes: &[(u64, Bytes)]) -> bool {
    let parts: Vec<_> = layout.parts_of(stripe.generation).collect();
    let (Some(first), Some(ost)) = (parts.first(), layout.ost_of(stripe)) else { return false };
    let is_covered = |piece: StripeExtent| {
        let end = piece.file_offset + piece.len_bytes;
        let covers =
            |at: u64, part: &&Component| if (part.start..part.end).contains(&at) { part.end } else { at };
        parts.iter().fold(piece.file_offset, covers) >= end
    };
    writes.iter().all(|(offset, data)| {
        let len_bytes = data.len() as u64;
        let range = ObjectRange { stripe, ost, object_offset: *offset, len_bytes };
        let (mut found, mut covered) = (0, true);
        for piece in range.pieces(first) {
            found += piece.len_bytes;
            covered &= is_covered(piece);
        }
        covered && found == len_bytes
    })
}

/// Refuses an answer in which an object is missing that must exist.
fn all_there(
    inode: &Inode,
    snapshot: &LayoutSnapshot,
    stripes: &[Stripe],
    answer: &SyncObjectsResp,
) -> Result<(), Fault> {
    let is_missing =
        |(stripe, exists): &(&Stripe, &bool)| !**exists && snapshot.layout.object_known(**stripe);
    match stripes.iter().zip(&answer.exists).find(is_missing) {
        Some((stripe, _)) => {
            let object = ObjectId::of(inode.ino, *stripe);
            Err(Fault::new(Code::ObjectMissing).subject(format!("object {object}")))
        }
        None => Ok(()),
    }
}

impl Client {
    /// Makes contents, size, creation and path of an open file durable.
    pub async fn fsync(&self, handle: u64) -> Result<(), Fault> {
        let handle = self.handles.get(handle)?;
        let synced = match handle.alive() {
            Ok(()) => self.sync_inode(&handle.inode).await,
            dead => dead,
        };
        self.tell_lost(&handle.inode);
        match handle.loss() {
            Some(loss) => {
                self.handles.told(handle.inode.ino);
                Err(loss)
            }
            None => handle.alive().and(synced),
        }
    }

    /// Makes the entries of a directory durable.
    pub async fn fsync_dir(&self, ino: Ino) -> Result<(), Fault> {
        self.mds.ask(&FsyncReq { ino, report: None }).await.map(drop)
    }

    /// The bytes of a synchronous write are on stable storage: makes its size and the existence of its objects durable.
    pub(crate) async fn sync_writes(&self, handle: &Handle) -> Result<(), Fault> {
        let inode = &handle.inode;
        inode.wait_until(|state| state.background == 0).await;
        let stripes = std::mem::take(&mut inode.lock().synced_now);
        self.sync_at_mdt(inode, stripes.into_iter().collect()).await?;
        // The layout is fetched anew if the MDT has restarted meanwhile: the MDT may have lost the layout under which the bytes were
        // written.
        self.snapshot(inode).await?;
        self.tell_lost(inode);
        handle.intact()
    }

    pub(crate) async fn sync_inode(&self, inode: &Arc<Inode>) -> Result<(), Fault> {
        let _one_syncs = inode.syncing.lock().await;
        if self.sync_small(inode).await && inode.due(Carry::Changes).report.is_none() {
            inode.wait_until(|state| state.background == 0).await;
            // The layout is fetched anew if the MDT has restarted meanwhile: the MDT may have lost earlier writes to it.
            return self.snapshot(inode).await.map(drop);
        }
        self.flush_behind(inode).await;
        inode.wait_until(|state| state.background == 0).await;
        let mut tries = Tries::default();
        let (exist, lost) = loop {
            let snapshot = self.snapshot(inode).await?;
            if snapshot.layout.inline {
                break (Vec::new(), None);
            }
            match self.sync_objects(inode, &snapshot).await {
                Ok((exist, lost)) => break (exist, lost.or(self.lost_before_move(inode, &snapshot).await)),
                Err(fault) => self.retry(inode, &mut tries, fault).await?,
            }
        };
        let synced = self.sync_at_mdt(inode, exist).await;
        lost.map_or(synced, Err)
    }

    /// The fault for an OST that lost writes of closed handles, before the file was moved off that OST.
    async fn lost_before_move(&self, inode: &Inode, snapshot: &LayoutSnapshot) -> Option<Fault> {
        let map = self.map();
        for (ost, left) in self.closed_unsynced.outside(inode.ino, &snapshot.layout) {
            if map.is_removed(TargetId::ost(ost)) {
                continue;
            }
            // The file does not need the OST any more. If the OST is away, or its disk fails, it is asked again later, and holds up
            // no fsync.
            match self.seams.timeout_ms(ANSWER_WITHIN_MS, self.sync_left(ost, &left)).await {
                Some(Err(fault)) if fault.code == Code::DataLost => return Some(fault),
                Some(Err(fault)) => {
                    tracing::debug!(ost, code = %fault.code, "whether bytes were lost before a move is not known: {fault}");
                }
                Some(Ok(())) | None => {}
            }
        }
        None
    }

    /// Makes written bytes durable at the OSTs alone, under a layout that is about to change.
    pub(crate) async fn make_durable(
        &self,
        inode: &Arc<Inode>,
        snapshot: &LayoutSnapshot,
    ) -> Result<(), Fault> {
        // Every handle reports the loss; the remaining bytes are moved all the same.
        self.sync_objects(inode, snapshot).await.map(drop)
    }

    /// Syncs the objects of the file. Returns the stripes that exist, and the fault if writes were lost.
    async fn sync_objects(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
    ) -> Result<(Vec<Stripe>, Option<Fault>), Fault> {
        let mark = inode.lock().changes;
        let mut by_ost: BTreeMap<u16, Vec<Stripe>> = BTreeMap::new();
        for (stripe, ost) in snapshot.layout.stripes() {
            by_ost.entry(ost).or_default().push(stripe);
        }
        if planted("client_fsync_skips_an_ost") && by_ost.len() > 1 {
            by_ost.pop_last();
        }
        let syncing = by_ost.into_iter().map(|(ost, stripes)| -> BoxFuture<'_, _> {
            Box::pin(self.sync_ost(inode, snapshot, ost, stripes, mark))
        });
        let synced: Vec<Synced> = try_gather(syncing.collect()).await?;
        let lost = synced.iter().find_map(|s| s.lost.clone());
        Ok((synced.into_iter().flat_map(|s| s.exist).collect(), lost))
    }

    /// Syncs the objects on one OST, and writes lost bytes again, until the OST has everything.
    async fn sync_ost(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        ost: u16,
        stripes: Vec<Stripe>,
        mark: u64,
    ) -> Result<Synced, Fault> {
        let caller = self.ost(ost).await?;
        let mut lost = None;
        for _ in 0..RESENDS_MAX {
            let objects: Vec<_> = stripes.iter().map(|stripe| ObjectId::of(inode.ino, *stripe)).collect();
            let left: Vec<_> =
                objects.iter().filter_map(|o| Some((*o, self.closed_unsynced.get(o)?))).collect();
            let answer = caller.ask(&SyncObjectsReq { objects }).await?;
            all_there(inode, snapshot, &stripes, &answer)?;
            if !planted("client_ignores_boot_term")
                && let Some(fault) = self.settle_left(&left, answer.boot_term)
            {
                // The lost bytes were written by handles that are closed.
                lost.get_or_insert(fault);
            }
            let mut resend = Vec::new();
            for stripe in &stripes {
                let plan =
                    inode.lock().unsynced.get(stripe).map_or(Plan::Nothing, |u| u.plan(answer.boot_term));
                match plan {
                    Plan::Nothing => {}
                    _ if planted("client_ignores_boot_term") => {}
                    Plan::Resend(writes) if is_read_there(&snapshot.layout, *stripe, &writes) => {
                        resend.push(*stripe);
                        inode.lock().allocated.remove(stripe);
                    }
                    Plan::Resend(_) | Plan::Lost => {
                        // The handles are told at once: the caller may give up, or fail for another reason, before this function
                        // ends.
                        let mut state = inode.lock();
                        state.unsynced.remove(stripe);
                        state.allocated.remove(stripe);
                        drop(state);
                        lost.get_or_insert_with(|| self.data_lost(inode.ino));
                    }
                }
            }
            if resend.is_empty() {
                let exist = self.note_synced(inode, snapshot, &stripes, &answer, mark);
                return Ok(Synced { exist, lost });
            }
            for stripe in resend {
                self.resend(inode, snapshot, ost, stripe, answer.boot_term).await?;
            }
        }
        Err(Fault::new(Code::DataLost).why(format!("OST {ost:04x} loses unsynced writes again and again")))
    }

    fn note_synced(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        stripes: &[Stripe],
        answer: &SyncObjectsResp,
        mark: u64,
    ) -> Vec<Stripe> {
        let mut state = inode.lock();
        if state.same_body(snapshot) {
            for stripe in stripes {
                if state.unsynced.get_mut(stripe).is_some_and(|u| u.synced(mark)) {
                    state.unsynced.remove(stripe);
                }
            }
            if let [stripe] = stripes {
                state.allocated.insert(*stripe, answer.allocated_bytes);
            }
        }
        let exist = stripes.iter().zip(&answer.exists).filter(|(_, exists)| **exists);
        exist.map(|(stripe, _)| *stripe).collect()
    }

    /// Writes again the bytes that an OST with `boot_term` has lost, if no other client may write the file by now.
    async fn resend(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        ost: u16,
        stripe: Stripe,
        boot_term: u32,
    ) -> Result<(), Fault> {
        let caller = self.ost(ost).await?;
        let rewriting = inode.rewriting().await;
        // The end of a session drops the kept bytes before a new session begins.
        let options = Options { only_as: Some(self.session.identity()), ..Options::default() };
        let plan = inode.lock().unsynced.get(&stripe).map(|unsynced| unsynced.plan(boot_term));
        let Some(Plan::Resend(writes)) = plan else { return Ok(()) };
        tracing::warn!(ino = inode.ino.0, ost, writes = writes.len(), "writing again what a power cut took");
        let object = ObjectId::of(inode.ino, stripe);
        let mut term = u32::MAX;
        let mut met = Met::default();
        for (offset, data) in writes {
            let told = self.mark_acks.take(ost);
            let part = ObjectRange { stripe, ost, object_offset: offset, len_bytes: data.len() as u64 };
            let claim = self.claim(ost, How::default());
            let request =
                WriteReq { object, offset, ticket: snapshot.ticket_for(stripe), sync: false, told, claim };
            let sent = self.seams.now();
            // The call may be given up after a failout. The guard then keeps out the changes that `rewriting` has kept out so far.
            let guard = self.abandoning(inode);
            let (answer, _) = caller.call_guarded(&request, vec![data], options, guard).await?;
            self.grants.told(ost, answer.grant, 0, sent);
            term = term.min(answer.change.boot_term);
            met.add(object, &part, answer.change);
        }
        if let Some(unsynced) = inode.lock().unsynced.get_mut(&stripe) {
            unsynced.resent(term);
        }
        // The kernel may have to write pages back before it drops its own.
        drop(rewriting);
        // Clients that read since the power cut may hold the bytes from before these writes.
        self.tell_readers(inode, 0, u64::MAX, met, false).await
    }

    /// The MDT's half of an fsync: size, times, path, and existing objects.
    async fn sync_at_mdt(&self, inode: &Arc<Inode>, exist: Vec<Stripe>) -> Result<(), Fault> {
        let changed = inode.lock().changed;
        let mut due = inode.due(Carry::Changes);
        let news: Vec<Stripe> = {
            let state = inode.lock();
            let layout = state.layout.clone();
            let new = |stripe: &Stripe| layout.as_ref().is_some_and(|l| !l.object_known(*stripe));
            let news: Vec<Stripe> = exist.into_iter().filter(new).collect();
            if !news.is_empty() && due.report.is_none() {
                due.report = Some(state.report());
            }
            news
        };
        if let Some(report) = &mut due.report {
            report.synced_stripes = news.clone();
        }
        let body = due.report.as_ref().map(|r| r.body);
        self.mds.ask(&FsyncReq { ino: inode.ino, report: due.report.clone() }).await?;
        due.delivered();
        let mut state = inode.lock();
        state.synced_at_mdt(changed);
        if let Some(layout) = &mut state.layout
            && Some(layout.body) == body
        {
            let layout = Arc::make_mut(layout);
            news.iter().for_each(|stripe| layout.set_object_known(*stripe));
        }
        Ok(())
    }

    /// Every handle of the file reports the loss from now on.
    pub(crate) fn data_lost(&self, ino: Ino) -> Fault {
        self.lose(ino, "an OST runs under a new boot term: it lost power, or failed to write to its disk")
    }

    /// Tells the handles of a file that a power cut took changes from the MDT, if an answer has shown that. Any answer with a grant
    /// may show it, so a caller calls this function before it reports success.
    pub(crate) fn tell_lost(&self, inode: &Inode) -> Option<Fault> {
        let lost = std::mem::take(&mut inode.lock().lost);
        lost.then(|| self.lose(inode.ino, "the MDT lost power before it had synced a change of the file"))
    }

    fn lose(&self, ino: Ino, why: &'static str) -> Fault {
        let fault = Fault::new(Code::DataLost)
            .subject(ino.fid().to_string())
            .why(why)
            .data("what was written since the last fsync may be missing");
        self.handles.lose(ino, &fault);
        tracing::error!(code = %fault.code, ino = ino.0, "{fault}");
        fault
    }
}
