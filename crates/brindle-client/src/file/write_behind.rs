//! Write-behind: the sole writer of a file is answered as soon as its bytes are in this client's buffer ([`crate::inodes::WriteBuffer`]).
//! Buffered bytes are sent when enough of them are together, when they get old, and before anything happens by which their absence could be
//! seen: fsync, close, a read of them, a stat of the size, a recall, a change that is not buffered.
//!
//! Invariants: what is acknowledged here has room at its OSTs ([`crate::grants`]); bytes that cannot be sent are told by fsync
//! and close of every handle that can write the file; a write that is not buffered never overtakes a buffered one under it.

use std::ops::Range;
use std::sync::Arc;

use brindle_net::job;
use brindle_stdx::{BoxFuture, Mono, planted};
use brindle_targets::Options;
use brindle_types::layout::{FILE_SIZE_MAX_BYTES, INLINE_MAX_BYTES};
use brindle_types::{Code, Fault, Layout, Pair};
use brindle_wire::Cred;
use brindle_wire::mds::inline::InlineWriteReq;
use brindle_wire::oss::write::room_bytes;
use bytes::Bytes;

use super::scatter::How;
use super::{Tries, gather};
use crate::Client;
use crate::grants::Covered;
use crate::handles::Handle;
use crate::inodes::{Author, Inode, LayoutSnapshot, State, Taken, WriteBuffer};
use crate::quota::{Bound, Growth};
use crate::rope::Rope;

/// Extents of one file that are sent at once without a flush.
const SENDS_MAX: usize = 8;
/// Length of an object that every local file system can hold.
const OBJECT_LEN_MAX: u64 = 1 << 40;
/// Interval of the search for buffered bytes that have waited too long, and the age that counts as too long. The sum bounds the wait of
/// buffered bytes to less than half a second.
const LOOK_EVERY_MS: u64 = 200;
const AGE_MAX_MS: u64 = 250;
/// Longest time that bytes being sent delay the answer to a notice. With the other waits of a recall it is
/// shorter than a lease.
pub(crate) const NOTICE_WAIT_MS: u64 = 1_000;
/// Longest time that bytes being sent delay the end of a mount.
const END_WAIT_MS: u64 = 30_000;

/// Place of bytes in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WritePosition {
    At(u64),
    /// At the end of the file.
    End,
}

/// Caller and rights of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// Whether the write clears set-id bits.
    pub kill_suidgid: bool,
    pub bound: Bound,
}

/// Bytes to be written.
struct Put {
    range: Range<u64>,
    taken: Option<Taken>,
}

impl Client {
    /// Takes bytes into the buffer, if they may be acknowledged here and now. If not, changes nothing.
    pub(crate) fn put_behind(
        &self,
        handle: &Handle,
        place: WritePosition,
        data: &Bytes,
        rights: Rights,
    ) -> bool {
        if !self.config.switches.write_behind || !self.session.is_held() {
            return false;
        }
        let inode = &handle.inode;
        let put = self.put_in(&mut inode.lock(), handle, place, data, rights);
        let Some(put) = put else { return false };
        // Pages of the same mount that are just being read.
        inode.reads.changed(&put.range);
        if let Some(taken) = put.taken
            && let Some(this) = self.this.upgrade()
        {
            let inode = handle.inode.clone();
            self.seams.spawn("client.behind", async move {
                let mut next = Some(taken);
                while let Some(taken) = next {
                    this.send_taken(&inode, taken, false).await;
                    next = inode.lock().behind.take_full(SENDS_MAX);
                }
            });
        }
        true
    }

    fn put_in(
        &self,
        state: &mut State,
        handle: &Handle,
        place: WritePosition,
        data: &Bytes,
        rights: Rights,
    ) -> Option<Put> {
        let snapshot = state.snapshot().filter(|snapshot| snapshot.exclusive)?;
        let len_bytes = data.len() as u64;
        let offset = match place {
            WritePosition::At(offset) => offset,
            WritePosition::End if state.size_exact() => state.size_bytes,
            WritePosition::End => return None,
        };
        let end = offset.checked_add(len_bytes).filter(|end| *end <= FILE_SIZE_MAX_BYTES)?;
        let range = offset..end;
        let is_small = snapshot.layout.inline;
        let has_place = match is_small {
            true => end <= INLINE_MAX_BYTES,
            false => brindle_layout::is_placed(&snapshot.layout, range.clone()),
        };
        let may = has_place
            && state.converting == 0
            && state.behind.has_room(len_bytes)
            && (!state.behind.overlaps(&range) || planted("client_behind_ignores_order"));
        if !may {
            return None;
        }
        let now = self.seams.now();
        let covered = match is_small {
            true => self.grants.take_small(len_bytes)?,
            false => self.cover(&snapshot, range.clone(), now)?,
        };
        let charge = self.take_room(state, rights.bound, &Growth::Range(range.clone())).ok()?;
        let author = Author {
            session: handle.session,
            kill_suidgid: rights.kill_suidgid,
            attr_epoch: snapshot.ticket.attr_epoch,
            body: snapshot.layout.body,
            small: if is_small { handle.number } else { 0 },
            job: job::current(),
        };
        let full = state.behind.put(offset, data, author, covered.charged(charge), now);
        state.size_bytes = state.size_bytes.max(end);
        state.contents += 1;
        tracing::trace!(ino = handle.inode.ino.0, offset, len_bytes, "buffered");
        let taken = if full { state.behind.take_full(SENDS_MAX) } else { None };
        Some(Put { range, taken })
    }

    /// Whether a file with bytes buffered for the MDT gets too large for the MDT with a write that ends at `end`.
    pub(crate) fn outgrows_mdt(&self, inode: &Inode, end: u64) -> bool {
        let state = inode.lock();
        let is_inline = state.layout.as_ref().is_some_and(|layout| layout.inline);
        is_inline && end > INLINE_MAX_BYTES && state.behind.has_small()
    }

    /// Reserves space at the OSTs for all buffered bytes of a small file; returns its body. `None` if there is not enough space, or if
    /// bytes are on their way to the MDT.
    pub(crate) fn cover_small(&self, inode: &Inode) -> Option<Pair> {
        let mut state = inode.lock();
        let snapshot = state.snapshot().filter(|snapshot| snapshot.exclusive && snapshot.layout.inline)?;
        let moved = LayoutSnapshot {
            layout: Arc::new(Layout { inline: false, ..(*snapshot.layout).clone() }),
            ..snapshot
        };
        let now = self.seams.now();
        let cover = |range: Range<u64>| {
            let has_place = brindle_layout::is_placed(&moved.layout, range.clone());
            Some((range.start, self.cover(&moved, range, now).filter(|_| has_place)?))
        };
        let covered: Option<Vec<(u64, Covered)>> =
            state.behind.small_waiting(moved.layout.body)?.into_iter().map(cover).collect();
        covered?.into_iter().for_each(|(first, covered)| state.behind.cover(first, covered));
        state.outgrows = Some(moved.layout.body);
        state.outgrows
    }

    /// Reserves space at the OSTs for bytes of a range.
    fn cover(&self, snapshot: &LayoutSnapshot, range: Range<u64>, now: Mono) -> Option<Covered> {
        let len_bytes = range.end - range.start;
        let parts = brindle_layout::object_ranges(&snapshot.layout, range);
        if parts.iter().any(|part| part.object_offset + part.len_bytes > OBJECT_LEN_MAX) {
            // Only the OST knows the largest object that it can hold; it answers when it is asked.
            return None;
        }
        if parts.iter().any(|part| self.is_failed_out(part.ost)) {
            // The write itself is to fail, not the fsync after it.
            return None;
        }
        let rooms =
            parts.iter().map(|part| (part.ost, room_bytes(part.object_offset, part.len_bytes))).collect();
        self.grants.take(rooms, len_bytes, now)
    }

    /// Sends all bytes that were buffered before. Must not be dropped half way: see [`Client::flush_behind_within`].
    pub(crate) async fn flush_behind(&self, inode: &Inode) {
        let (taken, last) = {
            let mut state = inode.lock();
            if state.behind.is_empty() {
                return;
            }
            (state.behind.take_all(), state.behind.last())
        };
        let sending = taken
            .into_iter()
            .map(|taken| -> BoxFuture<'_, bool> { Box::pin(self.send_taken(inode, taken, false)) });
        gather(sending.collect()).await;
        inode.wait_until(|state| state.behind.is_over(last)).await;
    }

    /// Like [`Client::flush_behind`], boxed, for [`Client::place`] and [`Client::spill`]: the types of these
    /// functions contain each other. Sending calls `place` only for bytes that do not go to the MDT, and
    /// never calls `spill`.
    pub(crate) fn flush_behind_first<'a>(&'a self, inode: &'a Inode) -> BoxFuture<'a, ()> {
        Box::pin(self.flush_behind(inode))
    }

    /// Like [`Client::flush_behind`], if bytes of `range` are buffered. A small file is sent as a whole, because the MDT knows its size.
    pub(crate) async fn flush_behind_under(&self, inode: &Inode, range: &Range<u64>) {
        let waits = {
            let behind = &inode.lock().behind;
            behind.has_small() || behind.overlaps(range)
        };
        if waits {
            self.flush_behind(inode).await;
        }
    }

    /// Sends the buffered bytes of a small file and makes them durable with the last ones. Returns whether all earlier writes are durable
    /// now.
    pub(crate) async fn sync_small(&self, inode: &Arc<Inode>) -> bool {
        let mut taken = {
            let mut state = inode.lock();
            if !state.behind.has_small() {
                return false;
            }
            state.behind.take_all()
        };
        let all_small = taken.iter().all(|taken| taken.author.small != 0);
        let last = taken.pop();
        let sending = taken
            .into_iter()
            .map(|taken| -> BoxFuture<'_, bool> { Box::pin(self.send_taken(inode, taken, false)) });
        let sent = gather(sending.collect()).await.into_iter().all(|sent| sent);
        // Sends that began earlier go into the log before the last bytes, too.
        let before = last.as_ref().map_or(u64::MAX, |last| last.number - 1);
        inode.wait_until(|state| state.behind.is_over(before)).await;
        let Some(last) = last else { return false };
        self.send_taken(inode, last, true).await && sent && all_small
    }

    /// Like [`Client::flush_behind`], but returns when the time is over. Returns whether the buffer is empty. Sends that have started
    /// continue.
    pub(crate) async fn flush_behind_within(&self, inode: &Arc<Inode>, ms: u64) -> bool {
        self.flush_behind_until(inode, ms, WriteBuffer::is_empty).await
    }

    /// Like [`Client::flush_behind`], but leaves bytes that have to wait for the MDT: [`WriteBuffer::is_at_rest`].
    pub(crate) async fn rest_behind_within(&self, inode: &Arc<Inode>, ms: u64) -> bool {
        self.flush_behind_until(inode, ms, WriteBuffer::is_at_rest).await
    }

    async fn flush_behind_until(&self, inode: &Arc<Inode>, ms: u64, done: fn(&WriteBuffer) -> bool) -> bool {
        if done(&inode.lock().behind) {
            return true;
        }
        let Some(this) = self.this.upgrade() else { return false };
        let flushed = inode.clone();
        self.seams.spawn("client.behind", job::carry(async move { this.flush_behind(&flushed).await }));
        let flushed = inode.wait_until(|state| done(&state.behind));
        self.seams.timeout_ms(ms, flushed).await.is_some()
    }

    /// The end of the mount: unsent bytes are lost.
    pub(crate) async fn flush_all_behind(&self) {
        let inodes = self.inodes.all();
        let flushing = inodes
            .iter()
            .map(|inode| -> BoxFuture<'_, bool> { Box::pin(self.flush_behind_within(inode, END_WAIT_MS)) });
        let left = gather(flushing.collect()).await.into_iter().filter(|flushed| !flushed).count();
        if left > 0 {
            tracing::error!(
                files = left,
                bytes = self.grants.bytes(),
                "unmounted before all bytes could be sent"
            );
        }
    }

    /// The task that sends bytes that have waited too long.
    pub(crate) async fn send_what_waits(self: Arc<Self>) {
        loop {
            self.seams.sleep_ms(LOOK_EVERY_MS).await;
            if self.session.is_ended() {
                return;
            }
            if self.grants.bytes() == 0 {
                continue;
            }
            let now = self.seams.now();
            for inode in self.inodes.all() {
                let taken = {
                    let mut state = inode.lock();
                    let old = |since| now.ms_since(since) >= AGE_MAX_MS;
                    match state.behind.oldest().is_some_and(old) {
                        true => state.behind.take_all(),
                        false => continue,
                    }
                };
                let this = self.clone();
                self.seams.spawn("client.behind", async move {
                    let sending = taken.into_iter().map(|taken| -> BoxFuture<'_, bool> {
                        Box::pin(this.send_taken(&inode, taken, false))
                    });
                    gather(sending.collect()).await;
                });
            }
        }
    }

    /// Whether the bytes have arrived. `sync`: bytes of a small file are durable then.
    async fn send_taken(&self, inode: &Inode, taken: Taken, sync: bool) -> bool {
        let Taken { number, offset, author, rope, covered } = taken;
        let sending = async {
            match author.small {
                0 => self.send_to_objects(inode, offset, author, &rope).await.map(|()| true),
                _ => self.send_small(inode, offset, author, rope, sync).await,
            }
        };
        let outcome = job::with(author.job, sending).await;
        let arrived = outcome == Ok(true);
        let has_followed = outcome == Ok(false);
        if let Err(fault) = outcome
            && !planted("client_behind_error_untold")
        {
            self.lose_behind(inode, &fault);
        }
        let mut state = inode.lock();
        covered.arrived(|| state.reports_allocated());
        if author.small != 0 && !has_followed {
            state.pending.told(inode.ino);
        }
        state.behind.over(number);
        drop(state);
        inode.quiet.notify_waiters();
        arrived
    }

    async fn send_to_objects(
        &self,
        inode: &Inode,
        offset: u64,
        author: Author,
        rope: &Rope,
    ) -> Result<(), Fault> {
        let how = How {
            kill_suidgid: author.kill_suidgid,
            session: author.session,
            author: Some(author),
            ..How::default()
        };
        let mut done = 0;
        while done < rope.len_bytes() {
            done += self.write_objects(inode, offset + done, &rope.tail(done), how).await?;
        }
        Ok(())
    }

    /// The file stays in the MDT until the bytes buffered for it there have arrived. A caller that moves the file waits for them
    /// ([`Inode::converting`], or the recall of the right under which they were buffered), or has space for them at the OSTs
    /// ([`Client::outgrow`]). Returns `false` if the bytes went to the OSTs, because the file was moved meanwhile.
    async fn send_small(
        &self,
        inode: &Inode,
        offset: u64,
        author: Author,
        rope: Rope,
        sync: bool,
    ) -> Result<bool, Fault> {
        let data = rope.into_bytes();
        let mut tries = Tries::default();
        loop {
            let snapshot = self.snapshot(inode).await?;
            if !snapshot.layout.inline {
                if inode.lock().outgrows != Some(author.body) || planted("client_small_bytes_do_not_follow") {
                    let why = "the MDT lost power and went back to the file before it was emptied";
                    return Err(Fault::new(Code::DataLost).why(why));
                }
                let author = Author { small: 0, body: snapshot.layout.body, ..author };
                tracing::trace!(ino = inode.ino.0, offset, "follows the file that was moved meanwhile");
                return self.send_to_objects(inode, offset, author, &Rope::from(data)).await.map(|()| false);
            }
            let write = InlineWriteReq {
                ino: inode.ino,
                handle: author.small,
                layout_epoch: snapshot.layout.epoch,
                offset,
                append: false,
                data: data.clone(),
                written_at: inode.lock().written_at,
                kill_suidgid: author.kill_suidgid,
                cred: Cred::default(),
                sync,
                promised: true,
            };
            let options = Options { only_as: Some(author.session), ..Options::default() };
            match self.write_at_mdt(inode, &write, options).await {
                Err(fault) => self.retry(inode, &mut tries, fault).await?,
                Ok(_) => return Ok(true),
            }
        }
    }

    /// Gives up acknowledged bytes. Handles of a later session report the loss as well: their fsync may have been meant for these bytes.
    pub(crate) fn lose_behind(&self, inode: &Inode, why: &Fault) {
        let fault = Fault::new(why.code)
            .what("bytes that were written could not be sent to the servers:")
            .subject(inode.ino.fid().to_string())
            .why(why.to_string())
            .data("what was written since the last fsync may be missing");
        self.handles.lose(inode.ino, &fault);
        inode.lock().void_allocated_range();
        // A stopped mount has no handles to tell.
        if fault.code != Code::Shutdown {
            tracing::error!(code = %fault.code, ino = inode.ino.0, "{fault}");
        }
    }
}
