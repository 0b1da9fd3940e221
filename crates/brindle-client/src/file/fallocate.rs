//! fallocate: reserving space, punching holes, zeroing ranges.

use std::ops::Range;
use std::sync::atomic::Ordering;

use brindle_layout::ObjectRange;
use brindle_stdx::BoxFuture;
use brindle_stdx::cast::to_usize;
use brindle_targets::Options;
use brindle_types::layout::{FILE_SIZE_MAX_BYTES, INLINE_MAX_BYTES};
use brindle_types::{Code, Fault, ObjectId, Stripe};
use brindle_wire::Message;
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::punch::{AllocateReq, PunchReq};
use bytes::Bytes;

use super::scatter::{Full, Met};
use super::write::WriteIn;
use super::{Tries, gather};
use crate::handles::Handle;
use crate::inodes::{Inode, LayoutSnapshot};
use crate::quota::{Bound, Growth};
use crate::{Client, Ctx, SetAttr};

/// The change of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Reserve space; extend the file to the end of the range unless `keep_size`.
    Reserve {
        /// Leave the size.
        keep_size: bool,
    },
    /// Make it a hole; the size stays.
    Punch,
    /// Make it zeros with space reserved; extend the file unless `keep_size`.
    Zero {
        /// Leave the size.
        keep_size: bool,
    },
}

/// The change of a range, and whether set-id bits go.
#[derive(Clone, Copy)]
struct Change {
    how: Allocation,
    kill_suidgid: bool,
    options: Options,
}

impl Allocation {
    fn keeps_size(self) -> bool {
        match self {
            Allocation::Reserve { keep_size } | Allocation::Zero { keep_size } => keep_size,
            Allocation::Punch => true,
        }
    }
}

impl Client {
    /// Changes the allocation of a range. Set-id bits go unless the superuser asks, because nobody says whether the
    /// caller may keep them.
    pub async fn fallocate(
        &self,
        ctx: &Ctx,
        handle: u64,
        range: Range<u64>,
        how: Allocation,
    ) -> Result<(), Fault> {
        let handle = self.writable_handle(handle)?;
        self.begin_write(&handle.inode);
        let change = Change { how, kill_suidgid: ctx.cred.uid != 0, options: handle.options() };
        if range.end > FILE_SIZE_MAX_BYTES {
            return Err(Fault::new(Code::TooLarge));
        }
        let _under_way = handle.inode.writing();
        let charge = match how {
            Allocation::Punch => None,
            _ => self.room(&handle.inode, Bound::of(ctx, false), Growth::Range(range.clone())).await?,
        };
        // A hole, or in the MDT nothing but a size: what has blocks is not known any more, also of what is written meanwhile.
        handle.inode.lock().void_allocated_range();
        let done = self.allocate(ctx, &handle, range, change).await;
        handle.inode.lock().void_allocated_range();
        self.room_used(&handle.inode, charge, done.is_ok());
        handle.changed(done)?;
        match handle.is_synchronous.load(Ordering::Relaxed) {
            true => self.sync_inode(&handle.inode).await,
            false => Ok(()),
        }
    }

    async fn allocate(
        &self,
        ctx: &Ctx,
        handle: &Handle,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), Fault> {
        let inode = &handle.inode;
        self.flush_behind(inode).await;
        let mut tries = Tries::default();
        loop {
            let snapshot = self.snapshot(inode).await?;
            let punch = change.how == Allocation::Punch;
            let done = if snapshot.layout.inline && (punch || range.end <= INLINE_MAX_BYTES) {
                self.allocate_inline(ctx, handle, &snapshot, range.clone(), change).await
            } else if punch || brindle_layout::is_placed(&snapshot.layout, range.clone()) {
                self.allocate_objects(inode, &snapshot, range.clone(), change, &mut tries).await
            } else {
                self.place(inode, range.clone()).await?;
                continue;
            };
            match done {
                Err(fault) => self.retry(inode, &mut tries, fault).await?,
                done => return done,
            }
        }
    }

    /// A file in the MDT has all the space it can need: only contents and size change.
    async fn allocate_inline(
        &self,
        ctx: &Ctx,
        handle: &Handle,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), Fault> {
        let Change { how, kill_suidgid, .. } = change;
        let inode = &handle.inode;
        let size_bytes = self.size_for(inode, range.end).await?;
        if how != (Allocation::Reserve { keep_size: how.keeps_size() }) {
            let end = if how.keeps_size() { range.end.min(size_bytes) } else { range.end };
            // Beyond the limit an inline file has no bytes, however far a truncate has extended it.
            let end = end.min(INLINE_MAX_BYTES);
            if range.start < end {
                let zeros = Bytes::from(vec![0; to_usize(end - range.start)]);
                let write = WriteIn { offset: range.start, kill_suidgid, ..WriteIn::default() };
                self.write_inline(ctx, handle, snapshot, &write, zeros).await?;
            }
        } else if !how.keeps_size() && range.end > size_bytes {
            // A write of nothing: the file grows, also if it has become longer meanwhile.
            let write = WriteIn { offset: range.end, kill_suidgid, ..WriteIn::default() };
            self.write_inline(ctx, handle, snapshot, &write, Bytes::new()).await?;
        } else if kill_suidgid {
            self.setattr(ctx, inode.ino, SetAttr { kill_suidgid, ..SetAttr::default() }).await?;
        }
        Ok(())
    }

    async fn allocate_objects(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        change: Change,
        tries: &mut Tries,
    ) -> Result<(), Fault> {
        let Change { how, kill_suidgid, .. } = change;
        if !matches!(how, Allocation::Reserve { .. }) {
            let parts = brindle_layout::object_ranges(&snapshot.layout, range.clone());
            let keep_space = how != Allocation::Punch;
            let punching = parts.into_iter().map(|part| -> BoxFuture<'_, _> {
                Box::pin(self.punch_part(inode, snapshot, part, keep_space, change.options))
            });
            self.change(inode, snapshot, range.clone(), punching.collect(), tries).await?;
        }
        if how != Allocation::Punch {
            let parts = brindle_layout::object_ranges(&snapshot.layout, range.clone());
            let grows = !how.keeps_size();
            let is_one = parts.len() == 1;
            // If one of several objects has no room, the others must not have made the file longer. The object with the last
            // byte therefore gets its length only when all have their space.
            let last = last_byte(snapshot, &parts, range.end).filter(|_| grows && !is_one);
            let reserving = parts.into_iter().map(|part| -> BoxFuture<'_, _> {
                Box::pin(self.allocate_part(inode, snapshot, part, !(grows && is_one), change.options))
            });
            self.change(inode, snapshot, range.clone(), reserving.collect(), tries).await?;
            if let Some(last) = last {
                let growing: BoxFuture<'_, _> =
                    Box::pin(self.allocate_part(inode, snapshot, last, false, change.options));
                self.change(inode, snapshot, range.clone(), vec![growing], tries).await?;
            }
        }
        let end = if how.keeps_size() { 0 } else { range.end };
        inode.lock().wrote(snapshot, end, kill_suidgid);
        Ok(())
    }

    /// Runs changes of objects, a bounded number at once, and tells the readers whose pages they met. Where an OST has no room,
    /// others are found, and the answer is `StaleLayout`: all is to be done again.
    async fn change(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        changes: Vec<BoxFuture<'_, Changed>>,
        tries: &mut Tries,
    ) -> Result<(), Fault> {
        let mut met = Met::default();
        let changing = inode.changing(snapshot).await?;
        let changed = gather(changes).await;
        drop(changing);
        let mut failed = None;
        for (part, answer) in changed {
            match answer {
                Ok(answer) => met.add(ObjectId::of(inode.ino, part.stripe), &part, answer),
                Err(fault) => failed = failed.or(Some((part, fault))),
            }
        }
        self.tell_readers(inode, range.start, range.end - range.start, met, false).await?;
        match failed {
            None => Ok(()),
            Some((part, fault)) if fault.code == Code::OstFull => {
                self.spill(inode, tries, no_room(snapshot, &part)).await?;
                Err(Fault::new(Code::StaleLayout))
            }
            Some((_, fault)) => Err(fault),
        }
    }

    async fn punch_part(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        part: ObjectRange,
        keep_space: bool,
        options: Options,
    ) -> Changed {
        let request = PunchReq {
            object: ObjectId::of(inode.ino, part.stripe),
            offset: part.object_offset,
            len_bytes: part.len_bytes,
            keep_space,
            ticket: snapshot.ticket_for(part.stripe),
        };
        (part, self.change_part(inode, snapshot, part, &request, options).await)
    }

    async fn allocate_part(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        part: ObjectRange,
        keep_len: bool,
        options: Options,
    ) -> Changed {
        let request = AllocateReq {
            object: ObjectId::of(inode.ino, part.stripe),
            offset: part.object_offset,
            len_bytes: part.len_bytes,
            keep_len,
            ticket: snapshot.ticket_for(part.stripe),
        };
        (part, self.change_part(inode, snapshot, part, &request, options).await)
    }

    async fn change_part<M: Message<Resp = ChangeResp>>(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        part: ObjectRange,
        request: &M,
        options: Options,
    ) -> Result<ChangeResp, Fault> {
        let (ost, guard) = (self.ost(part.ost).await?, self.abandoning(inode));
        let (answer, _) = ost.call_guarded(request, Vec::new(), options, guard).await?;
        note_change(inode, snapshot, part.stripe, &answer);
        Ok(answer)
    }
}

/// The last byte of parts that reach to `end` in the file.
fn last_byte(snapshot: &LayoutSnapshot, parts: &[ObjectRange], end: u64) -> Option<ObjectRange> {
    let stripe = brindle_layout::last_stripe(&snapshot.layout, end)?;
    let part = parts.iter().filter(|part| part.stripe == stripe).max_by_key(|part| part.object_offset)?;
    Some(ObjectRange { object_offset: part.object_offset + part.len_bytes - 1, len_bytes: 1, ..*part })
}

/// Outcome of the change of a part.
type Changed = (ObjectRange, Result<ChangeResp, Fault>);

/// Offset in the file at which the part begins that found no room.
fn no_room(snapshot: &LayoutSnapshot, part: &ObjectRange) -> Full {
    let component = snapshot.layout.component(part.stripe.generation);
    let first = component.and_then(|c| part.pieces(c).next());
    let offset = first.map_or(0, |piece| piece.file_offset);
    Full { ost: part.ost, offset, len_bytes: part.len_bytes }
}

/// A change whose bytes nobody could send again.
pub(crate) fn note_change(inode: &Inode, snapshot: &LayoutSnapshot, stripe: Stripe, answer: &ChangeResp) {
    let mut state = inode.lock();
    if state.same_body(snapshot) {
        state.allocated.insert(stripe, answer.allocated_bytes);
        state.changed(snapshot, stripe, answer.boot_term, 0, &[], None);
    }
}
