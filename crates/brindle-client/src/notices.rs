//! Notices: questions of servers to this client, for leases back, pages dropped, reports.
//!
//! Called by the connection to the MDT, in a task for each notice. A notice never waits for another client. A notice waits for work
//! of this client (an append under way) for less than a lease.

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use brindle_net::NotifyHandler;
use brindle_stdx::{BoxFuture, planted};
use brindle_targets::{log_level, log_lines};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::frame::{Frame, decode_body, encode_body};
use brindle_wire::log_level::LogLevelNotice;
use brindle_wire::log_lines::LogLinesNotice;
use brindle_wire::notify::{
    ClosedAck, ClosedNotice, InvalidateAck, InvalidateNotice, LayoutAck, LayoutNotice, LeaseAck, LeaseNotice,
    Recall, RecallAck, RecallNotice, ReportAck, ReportNotice, SessionEndAck, SessionEndNotice, SettleAck,
    SettleNotice,
};
use brindle_wire::{Message, Op};
use tokio::sync::oneshot;

use crate::Client;
use crate::cache::KernelCache;
use crate::file::write_behind::NOTICE_WAIT_MS;
use crate::inodes::{Inode, Wanted};

/// Longest wait of a recall for an append of our own. After it the recall is answered with the end that the append will have.
const APPEND_WAIT_MS: u64 = 2_000;

/// Longest wait of a recall until the MDT has taken back handles that are closed here.
const CLOSE_WAIT_MS: u64 = 1_000;

/// Longest wait for changes under way to end and to be made durable, before bytes are copied.
const SETTLE_WAIT_MS: u64 = 2_000;

/// Longest wait until the kernel knows the new size, before the notice of a cut is answered.
const SIZE_WAIT_MS: u64 = 1_000;

/// Hands notices to the client, as long as it lives.
pub(crate) struct Notices(pub Arc<OnceLock<Weak<Client>>>);

impl NotifyHandler for Notices {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let header = frame.header.clone();
            let Some(client) = self.0.get().and_then(Weak::upgrade) else {
                return Frame::fault_reply_to(&header, &Fault::new(Code::Shutdown));
            };
            // The event loop takes the answers of the MDT and must not block. Invalidation in the kernel can
            // block, so it runs in a task of its own.
            let (tell, told) = oneshot::channel();
            client.seams().clone().spawn("client.notice", async move {
                let answer = client.answer_notice(&frame).await;
                // An error means that the connection has ended.
                let _ = tell.send(answer);
            });
            let ended = || Err(Fault::new(Code::Bug).why("the answer to a notice was given up"));
            match told.await.unwrap_or_else(|_| ended()) {
                Ok(reply) => reply,
                Err(fault) => Frame::fault_reply_to(&header, &fault),
            }
        })
    }
}

fn ack<M: Message>(frame: &Frame, _: &M, answer: M::Resp) -> Frame {
    Frame::reply_to(&frame.header, encode_body(&Ok::<M::Resp, Fault>(answer)))
}

impl Client {
    async fn answer_notice(&self, frame: &Frame) -> Result<Frame, Fault> {
        match Op::from_number(frame.header.op) {
            Some(Op::RecallNotice) => {
                let notice: RecallNotice = decode_body(&frame.body)?;
                Ok(ack(frame, &notice, self.recalled(&notice).await))
            }
            Some(Op::InvalidateNotice) => {
                let notice: InvalidateNotice = decode_body(&frame.body)?;
                Ok(ack(frame, &notice, self.invalidated(&notice).await))
            }
            Some(Op::LeaseNotice) => {
                let notice: LeaseNotice = decode_body(&frame.body)?;
                if let Some(left) = self.dirs.recalled(&notice.dirs, notice.at) {
                    left.await;
                }
                self.drop_spares_in(&notice.dirs);
                let cache = self.cache.read().clone();
                cache.names_gone(Some(notice.dirs.clone())).await;
                Ok(ack(frame, &notice, LeaseAck {}))
            }
            Some(Op::LayoutNotice) => {
                let notice: LayoutNotice = decode_body(&frame.body)?;
                Ok(ack(frame, &notice, self.layout_changed(&notice).await))
            }
            Some(Op::ClosedNotice) => {
                let notice: ClosedNotice = decode_body(&frame.body)?;
                let cache = self.cache.read().clone();
                cache.closed(notice.ino).await;
                // The open handle is a spare, which no program has.
                self.drop_spare(notice.ino);
                self.given_back(notice.ino).await;
                Ok(ack(frame, &notice, ClosedAck {}))
            }
            Some(Op::SettleNotice) => {
                let notice: SettleNotice = decode_body(&frame.body)?;
                let settled = self.settled(notice.ino).await;
                Ok(ack(frame, &notice, SettleAck { settled }))
            }
            Some(Op::ReportNotice) => {
                let notice: ReportNotice = decode_body(&frame.body)?;
                Ok(ack(frame, &notice, self.report_asked(&notice).await))
            }
            Some(Op::LogLinesNotice) => {
                let notice: LogLinesNotice = decode_body(&frame.body)?;
                let lines = log_lines::handle(&notice.0)?;
                Ok(ack(frame, &notice, lines))
            }
            Some(Op::LogLevelNotice) => {
                let notice: LogLevelNotice = decode_body(&frame.body)?;
                let level = log_level::change(&notice.by, "", &notice.level)?;
                Ok(ack(frame, &notice, level))
            }
            Some(Op::SessionEndNotice) => {
                let notice: SessionEndNotice = decode_body(&frame.body)?;
                tracing::warn!(reason = notice.reason, "the server ends this session");
                self.session_doubtful();
                Ok(ack(frame, &notice, SessionEndAck {}))
            }
            _ => Err(Fault::new(Code::UnknownOp).why(format!("notify {}", frame.header.op))),
        }
    }

    /// Waits until the MDT has taken back handles that are closed here.
    async fn given_back(&self, ino: Ino) {
        let Some(inode) = self.inodes.notice(ino) else { return };
        if inode.lock().closing > 0 {
            self.closes.hurry();
            let closed = inode.wait_until(|state| state.closing == 0);
            // A longer wait means that an OST is away.
            let _ = self.seams.timeout_ms(CLOSE_WAIT_MS, closed).await;
        }
    }

    async fn recalled(&self, notice: &RecallNotice) -> RecallAck {
        self.kept_versions.forget(notice.ino);
        self.drop_spare(notice.ino);
        let Some(inode) = self.inodes.notice(notice.ino) else {
            return RecallAck { report: None, later: false };
        };
        let (exclusive, closing) = {
            let mut state = inode.lock();
            state.no_longer_cached();
            let exclusive = notice.recall == Recall::Exclusive && state.no_longer_exclusive();
            (exclusive, state.closing > 0)
        };
        if closing {
            // The client that wants the file then finds it closed, and the MDT has the last report before it
            // has this answer.
            self.closes.hurry();
            let closed = inode.wait_until(|state| state.closing == 0);
            let is_closed = self.seams.timeout_ms(CLOSE_WAIT_MS, closed).await.is_some();
            if !is_closed && inode.lock().abandoned > 0 {
                // Bytes of a program that was killed wait for an OST.
                return RecallAck { report: None, later: true };
            }
        }
        if exclusive {
            self.give_up_append(&inode).await;
        }
        if notice.recall == Recall::Exclusive && inode.lock().abandoned > 0 {
            // A change that was given up may still be made.
            return RecallAck { report: None, later: true };
        }
        if notice.recall == Recall::Exclusive {
            // Old bytes under way must not come to lie over bytes of the next writer. If their OST keeps them waiting for longer
            // than a lease, this session is ended, and the bytes are refused.
            inode.wait_until(|state| !state.rewriting).await;
        }
        if notice.recall == Recall::Exclusive
            && !planted("client_recall_keeps_the_buffer")
            && !self.flush_behind_within(&inode, NOTICE_WAIT_MS).await
        {
            return RecallAck { report: None, later: true };
        }
        if !self.pages_dropped_within(&inode, 0..u64::MAX, NOTICE_WAIT_MS).await {
            // A page that was changed through a mapping waits for an OST that is away.
            return RecallAck { report: None, later: true };
        }
        // The report is due even without the right: a close that the MDT has not taken carries writes that were made under the
        // right.
        let asked = notice.recall == Recall::Exclusive;
        let report = asked.then(|| inode.lock().tell_report()).flatten();
        RecallAck { report, later: false }
    }

    /// Lets other clients append from now on: an append that we began at our own end is finished, or its place is reported.
    async fn give_up_append(&self, inode: &Inode) {
        let finished = inode.wait_until(|state| state.appending.is_none());
        // When the time is up the report includes the place of the append; the bytes follow.
        let _ = self.seams.timeout_ms(APPEND_WAIT_MS, finished).await;
        let mut state = inode.lock();
        if let Some(end_bytes) = state.appending {
            state.pending.reserve(end_bytes);
        }
    }

    async fn invalidated(&self, notice: &InvalidateNotice) -> InvalidateAck {
        self.kept_versions.forget(notice.ino);
        self.drop_spare(notice.ino);
        let Some(inode) = self.inodes.notice(notice.ino) else { return InvalidateAck { later: false } };
        inode.lock().inline = None;
        let end = notice.offset.saturating_add(notice.len_bytes);
        let gone = self.pages_dropped_within(&inode, notice.offset..end, NOTICE_WAIT_MS).await;
        InvalidateAck { later: !gone }
    }

    async fn layout_changed(&self, notice: &LayoutNotice) -> LayoutAck {
        self.kept_versions.forget(notice.ino);
        self.drop_spare(notice.ino);
        let Some(inode) = self.inodes.notice(notice.ino) else {
            return LayoutAck { report: None, later: false };
        };
        let report = {
            let mut state = inode.lock();
            state.stale = true;
            state.size_stale = true;
            // The file may have been moved to another project.
            state.project = None;
            let is_cut = notice.drop_from < u64::MAX;
            state.cuts += u64::from(is_cut);
            if is_cut {
                state.cut_told = state.cut_told.max(notice.truncate_epoch);
            }
            state.size_bytes = state.size_bytes.min(notice.drop_from);
            state.inline = None;
            let report = state.tell_report();
            state.pending.cut(notice.drop_from);
            report
        };
        let gone = self.pages_dropped_within(&inode, notice.drop_from..u64::MAX, NOTICE_WAIT_MS).await;
        self.refresh_size(&inode).await;
        LayoutAck { report, later: !gone }
    }

    /// Prepares a copy of the file's bytes: waits for changes under way, and makes them durable. The wait is shorter than a lease:
    /// an OST that is away must not cost us the session.
    ///
    /// Work that has begun continues whatever becomes of the answer: old bytes that are being written again must not land when
    /// nobody waits for them any more. At most one such work runs at a time.
    async fn settled(&self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.notice(ino) else { return true };
        let Some(this) = self.this.upgrade() else { return false };
        let begun = self.seams.now();
        let snapshot = loop {
            // The known layout counts: the MDT announces no other until the bytes are at their new place.
            if !self.rest_behind_within(&inode, SETTLE_WAIT_MS).await {
                return false;
            }
            let mut state = inode.lock();
            if state.behind.is_at_rest() {
                state.stale = true;
                if std::mem::replace(&mut state.settling, true) {
                    return false;
                }
                break state.last_layout();
            }
            if self.seams.now().ms_since(begun) > SETTLE_WAIT_MS {
                return false;
            }
        };
        let (tell, told) = oneshot::channel();
        let (client, settling) = (this.clone(), inode.clone());
        self.seams.spawn("client.settle", async move {
            settling.wait_until(|state| state.changing == 0 && !state.rewriting).await;
            let durable = match snapshot.filter(|snapshot| !snapshot.layout.inline) {
                Some(snapshot) => client.make_durable(&settling, &snapshot).await,
                None => Ok(()),
            };
            settling.lock().settling = false;
            // After a long wait the receiver is gone.
            let _ = tell.send(durable.is_ok());
        });
        let settled = matches!(self.seams.timeout_ms(SETTLE_WAIT_MS, told).await, Some(Ok(true)));
        if !settled {
            // The epoch may be refused by now.
            self.seams.spawn("client.settle", async move { drop(this.snapshot(&inode).await) });
        }
        settled
    }

    async fn report_asked(&self, notice: &ReportNotice) -> ReportAck {
        let Some(inode) = self.inodes.asked_about(notice.ino) else { return ReportAck { report: None } };
        let sent = self.flush_behind_within(&inode, NOTICE_WAIT_MS).await;
        let mut state = inode.lock();
        if !sent {
            // An OST is away. The acknowledged size counts; the bytes follow.
            let end_bytes = state.behind_end();
            state.pending.reserve(end_bytes);
        }
        let report = state.tell_report();
        if let Some(epoch) = notice.attr_epoch {
            state.take_attr_epoch(epoch);
        }
        ReportAck { report }
    }

    /// Drops the pages of a range that the kernel keeps, except pages that are being read: these are fetched again. The call does
    /// not wait for a change of the size by this client: the kernel releases no changed page before that change is answered, and
    /// two clients that truncate one file would wait for each other (rule 10 of `docs/design/001-mixed-state.md`). In that case the
    /// pages go a little later.
    pub(crate) async fn invalidate(&self, inode: &Inode, range: Range<u64>) {
        inode.lock().contents += 1;
        let free = inode.reads.invalidate(range).await;
        let cache = self.cache.read().clone();
        let (gone, ended) = oneshot::channel::<()>();
        let ino = inode.ino;
        self.seams.spawn("client.invalidate", async move {
            drop_pages(&*cache, ino, free).await;
            drop(gone);
        });
        let cutting = inode.wait_until(|state| state.cutting > 0);
        tokio::select! {
            biased;
            _ = ended => {}
            () = cutting => {}
        }
    }
}

impl Client {
    /// Drops the present pages of a file, in the background ([`Drops`]).
    pub(crate) fn want_pages_dropped(&self, inode: &Arc<Inode>, range: Range<u64>) -> Wanted {
        let (wanted, begins) = inode.lock().drops.want(&range);
        if let Some(this) = self.this.upgrade().filter(|_| begins) {
            let inode = inode.clone();
            self.seams.spawn("client.drop", async move { this.drop_wanted_pages(&inode, range).await });
        }
        wanted
    }

    async fn drop_wanted_pages(&self, inode: &Inode, range: Range<u64>) {
        loop {
            let round = inode.lock().drops.begin(&range);
            self.invalidate(inode, range.clone()).await;
            // The invalidation leaves out pages that are just being written back. The kernel delays their
            // writeback while it waits for a change of the size.
            let cutting = inode.wait_until(|state| state.cutting > 0);
            let was_written = tokio::select! {
                biased;
                () = cutting => false,
                was_written = inode.reads.written_back(&range) => was_written,
            };
            if was_written {
                self.invalidate(inode, range.clone()).await;
            }
            let goes_on = inode.lock().drops.end(&range, round);
            inode.quiet.notify_waiters();
            if !goes_on {
                return;
            }
        }
    }

    /// Drops pages of a range and waits for at most so many milliseconds. Returns whether the pages are gone.
    pub(crate) async fn pages_dropped_within(&self, inode: &Arc<Inode>, range: Range<u64>, ms: u64) -> bool {
        let wanted = self.want_pages_dropped(inode, range);
        let gone = inode.wait_until(|state| state.drops.is_over(wanted));
        self.seams.timeout_ms(ms, gone).await.is_some()
    }

    /// An operation has changed contents or size of a file, although the kernel was told that it had failed. As after a change by
    /// another client, the pages are dropped and the size is asked for.
    pub async fn changed_unseen(&self, ino: Ino) {
        self.kept_versions.forget(ino);
        // Without a handle nobody reads: the next open finds no version, and drops the pages.
        let Some(inode) = self.inodes.get(ino) else { return };
        // Pages that cannot be written back yet go later.
        self.pages_dropped_within(&inode, 0..u64::MAX, NOTICE_WAIT_MS).await;
        self.refresh_size(&inode).await;
    }

    /// Makes the kernel learn a size that another client has set. The kernel's update waits for pages that are being read, and a
    /// change of the size by this client may wait for the update; the wait here is therefore bounded.
    async fn refresh_size(&self, inode: &Inode) {
        let cache = self.cache.read().clone();
        let refreshed = cache.refresh_size(inode.ino);
        let cutting = inode.wait_until(|state| state.cutting > 0);
        tokio::select! {
            biased;
            _ = self.seams.timeout_ms(SIZE_WAIT_MS, refreshed) => {}
            () = cutting => {}
        }
    }
}

async fn drop_pages(cache: &dyn KernelCache, ino: Ino, ranges: Vec<Range<u64>>) {
    for range in ranges {
        let len_bytes = if range.end == u64::MAX { u64::MAX } else { range.end - range.start };
        cache.invalidate(ino, range.start, len_bytes).await;
    }
}
