//! read: from the stripes of a file, with holes as zeros and the end where it really is.
//!
//! Invariants: if the size is not known for certain, it is asked for *before* the bytes are read. Bytes missing below
//! that size were therefore a hole, and never bytes that somebody wrote meanwhile. A page read that crossed an
//! invalidation is made again before it is answered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_net::job;
use brindle_stdx::cast::{bounded_u32, to_usize};
use brindle_stdx::{BoxFuture, planted};
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{Code, Fault, Ino, ObjectId};
use brindle_wire::mds::inline::InlineReadReq;
use brindle_wire::oss::read::ReadReq;
use bytes::Bytes;
use futures_util::FutureExt;

use super::{RPC_BYTES_MAX, Tries, try_gather};
use crate::handles::Handle;
use crate::inodes::{Hold, Inode, LayoutSnapshot, ReadGuard};
use crate::readahead::{Coming, Fetched, ReadState, Reader};
use crate::{Client, Ctx};

/// Zeros that holes are read from.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// Most waits of a read for readahead; then the read fetches its own bytes.
const WAITS_MAX: usize = 8;

/// Bytes read.
pub struct ReadOut {
    /// The bytes in pieces, in order; fewer than asked for at the end of the file.
    pub pieces: Vec<Bytes>,
    /// Held until an invalidation finds the bytes in the kernel (the kernel has the answer). `None` if no pages are
    /// filled with them.
    pub guard: Option<ReadGuard>,
}

/// Use of the bytes of a read.
#[derive(Clone, Copy)]
enum Fills<'a> {
    /// The kernel keeps them; asked for through this handle.
    Pages(&'a Handle),
    /// A program gets them, through this handle.
    Program(&'a Handle),
}

/// The range that an object was asked for, and the bytes that came.
pub(super) struct Part {
    range: brindle_layout::ObjectRange,
    pub(super) bytes: Bytes,
}

impl ReadOut {
    /// The bytes as one piece.
    pub fn into_bytes(self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

impl Client {
    /// Reads up to `len_bytes` at `offset`. `page`: the bytes will fill pages that the kernel keeps.
    pub async fn read(&self, handle: u64, offset: u64, len_bytes: u64, page: bool) -> Result<ReadOut, Fault> {
        self.read_for(&Ctx::root(), handle, offset, len_bytes, page).await
    }

    /// Like [`Client::read`], for a caller that may give up while a released file comes back.
    pub async fn read_for(
        &self,
        ctx: &Ctx,
        handle: u64,
        offset: u64,
        len_bytes: u64,
        page: bool,
    ) -> Result<ReadOut, Fault> {
        let handle = self.live_handle(handle)?;
        let read = self.read_through(ctx, &handle, offset, len_bytes, page).await;
        if read.is_ok() {
            if page {
                handle.has_pages.store(true, Ordering::Relaxed);
            }
            self.note_access(&handle);
        }
        handle.seen(read)
    }

    async fn read_through(
        &self,
        ctx: &Ctx,
        handle: &Handle,
        offset: u64,
        len_bytes: u64,
        page: bool,
    ) -> Result<ReadOut, Fault> {
        let end = offset.saturating_add(len_bytes).min(FILE_SIZE_MAX_BYTES);
        let inode = &handle.inode;
        if !page {
            self.session.held().await;
            let pieces = self.read_range(ctx, inode, offset..end, Fills::Program(handle)).await?;
            return Ok(ReadOut { pieces, guard: None });
        }
        let guard = inode.reads.begin(offset..end);
        loop {
            self.session.held().await;
            handle.alive()?;
            let pieces = self.read_range(ctx, inode, offset..end, Fills::Pages(handle)).await?;
            if guard.settle() {
                return Ok(ReadOut { pieces, guard: Some(guard) });
            }
        }
    }

    async fn read_range(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        range: Range<u64>,
        fills: Fills<'_>,
    ) -> Result<Vec<Bytes>, Fault> {
        let mut tries = Tries::default();
        loop {
            if !planted("client_reads_past_the_buffer") {
                self.flush_behind_under(inode, &range).await;
            }
            if self.is_restoring(inode)
                && let Some(pieces) = Box::pin(self.read_restored(ctx, inode, range.clone())).await?
            {
                return Ok(pieces);
            }
            let snapshot = self.snapshot(inode).await?;
            let read = if snapshot.layout.inline {
                self.read_inline(inode, range.clone()).await
            } else {
                self.read_objects(inode, &snapshot, range.clone(), fills).await
            };
            match read {
                // A truncate that came in between may have taken the bytes and left the size that we knew.
                Ok(pieces) if inode.is_still(&snapshot) => return Ok(pieces),
                Ok(_) => {}
                Err(fault) if fault.code == Code::Released => self.begins_restoring(inode),
                Err(fault) => self.retry(inode, &mut tries, fault).await?,
            }
        }
    }

    pub(super) async fn read_inline(&self, inode: &Inode, range: Range<u64>) -> Result<Vec<Bytes>, Fault> {
        let kept = {
            let state = inode.lock();
            let data = state.inline.clone().filter(|_| state.cached && state.size_exact());
            data.map(|data| (data, state.size_bytes))
        };
        let (data, size_bytes) = match kept {
            Some(kept) => kept,
            None => {
                let answer = self.mds.ask(&InlineReadReq { ino: inode.ino }).await?;
                let moved = || Fault::new(Code::StaleLayout);
                (answer.data.ok_or_else(moved)?, answer.size_bytes)
            }
        };
        let end = range.end.min(size_bytes);
        if range.start >= end {
            return Ok(Vec::new());
        }
        let have = data.len() as u64;
        let bytes = data.slice(to_usize(range.start.min(have))..to_usize(end.min(have)));
        let missing = end - range.start - bytes.len() as u64;
        Ok(std::iter::once(bytes).filter(|b| !b.is_empty()).chain(zeros(missing)).collect())
    }

    async fn read_objects(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        fills: Fills<'_>,
    ) -> Result<Vec<Bytes>, Fault> {
        let end = range.end.min(self.size_for(inode, range.end).await?);
        if range.start >= end {
            if let Fills::Program(handle) = fills {
                inode.chunks.lock().leave(handle.number);
            }
            return Ok(Vec::new());
        }
        match fills {
            // Under the right to keep pages they need no marks; the window sets its own.
            Fills::Pages(_) if !snapshot.cached => self.fetch(inode, snapshot, range.start..end, true).await,
            Fills::Pages(handle) => self.read_ahead(handle, snapshot, range.start..end, Reader::Kernel).await,
            Fills::Program(handle) => {
                self.read_ahead(handle, snapshot, range.start..end, Reader::Program).await
            }
        }
    }

    /// Reads through the handle's readahead. The file reaches to the end of `range`.
    async fn read_ahead(
        &self,
        handle: &Handle,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        reader: Reader,
    ) -> Result<Vec<Bytes>, Fault> {
        let inode = &handle.inode;
        handle.follow.lock().note(&range, reader);
        for turn in 0..WAITS_MAX {
            // Taken before the bytes are asked for: every later change is noticed.
            let (seen, size_bytes) = {
                let state = inode.lock();
                (state.seen(snapshot), if state.size_stale { 0 } else { state.size_bytes })
            };
            let found = {
                let (mut follow, mut chunks) = (handle.follow.lock(), inode.chunks.lock());
                let mut found = chunks.find(handle.number, &mut follow, seen, &range);
                let mut added = false;
                while turn == 0
                    && let Some(seen) = seen
                    && let Some(wanted) = chunks.wanted(&follow, &range, size_bytes)
                    && let Some(coming) =
                        self.fetch_ahead(inode, snapshot, wanted.clone(), follow.is_in_pieces())
                {
                    chunks.add(handle.number, &mut follow, seen, wanted, coming);
                    added = true;
                }
                if added && matches!(found, ReadState::Nothing) {
                    found = chunks.find(handle.number, &mut follow, seen, &range);
                }
                let at = if matches!(found, ReadState::Coming(_)) { range.start } else { range.end };
                chunks.reads(handle.number, &follow, at, self.seams.now());
                found
            };
            match found {
                ReadState::Bytes(pieces) => return Ok(pieces),
                ReadState::Coming(bytes) => drop(bytes.await),
                ReadState::Nothing => break,
            }
        }
        self.fetch(inode, snapshot, range, false).await
    }

    /// Begins to read a range ahead; `None` if there is no memory for it.
    fn fetch_ahead(
        &self,
        inode: &Hold,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        is_piece: bool,
    ) -> Option<Coming> {
        let this = self.this.upgrade().filter(|this| this.config.switches.readahead)?;
        let room = if is_piece { &self.pieces } else { &self.ahead };
        let room = room.take(to_usize(range.end - range.start))?;
        let (inode, snapshot) = (inode.clone(), snapshot.clone());
        let fetching = job::carry(async move {
            match this.fetch(&inode, &snapshot, range, true).await {
                Ok(pieces) => {
                    let bytes = ReadOut { pieces, guard: None }.into_bytes();
                    Some(Arc::new(Fetched { bytes, _room: room }))
                }
                Err(fault) => {
                    // The reader that wants these bytes asks the OST itself.
                    tracing::debug!(ino = inode.ino.0, code = %fault.code, "cannot read ahead: {fault}");
                    None
                }
            }
        });
        let fetching = fetching.boxed().shared();
        self.seams.spawn("client.read_ahead", fetching.clone().map(drop));
        Some(fetching)
    }

    /// Reads the bytes below the end of the file from the objects. `mark`: the OSTs note that the bytes are kept.
    async fn fetch(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        mark: bool,
    ) -> Result<Vec<Bytes>, Fault> {
        let parts = self.fetch_parts(inode.ino, snapshot, range.clone(), mark).await?;
        Ok(joined(snapshot, &parts, range))
    }

    /// Reads what the objects of a file have of a range.
    pub(super) async fn fetch_parts(
        &self,
        ino: Ino,
        snapshot: &LayoutSnapshot,
        range: Range<u64>,
        mark: bool,
    ) -> Result<Vec<Part>, Fault> {
        let ranges = brindle_layout::object_ranges(&snapshot.layout, range.clone());
        let parts = ranges.into_iter().flat_map(split);
        let reading =
            parts.map(|part| -> BoxFuture<'_, _> { Box::pin(self.read_part(ino, snapshot, part, mark)) });
        let parts: Vec<Part> = try_gather(reading.collect()).await?;
        tracing::trace!(
            ino = ino.0,
            body = %snapshot.layout.body,
            ?range,
            parts = ?parts.iter().map(|p| (p.range.stripe, p.range.object_offset, p.bytes.len())).collect::<Vec<_>>(),
            "read from objects"
        );
        Ok(parts)
    }

    /// The size of the file, as far as a read up to `end` needs it. The size is asked for if it is not certain to
    /// reach so far.
    pub(crate) async fn size_for(&self, inode: &Inode, end: u64) -> Result<u64, Fault> {
        {
            let state = inode.lock();
            if state.size_exact() || (!state.size_stale && end <= state.size_bytes) {
                return Ok(state.size_bytes);
            }
        }
        Ok(self.getattr(inode.ino).await?.size_bytes)
    }

    async fn read_part(
        &self,
        ino: Ino,
        snapshot: &LayoutSnapshot,
        range: brindle_layout::ObjectRange,
        mark: bool,
    ) -> Result<Part, Fault> {
        let request = ReadReq {
            object: ObjectId::of(ino, range.stripe),
            offset: range.object_offset,
            len_bytes: bounded_u32(range.len_bytes),
            may_cache: mark,
            ticket: snapshot.ticket_for(range.stripe),
        };
        let options = brindle_targets::Options { reply_bulk_max: request.len_bytes, ..Default::default() };
        let ost = self.ost(range.ost).await?;
        let (_, bytes) = ost.call_with(&request, Vec::new(), options).await?;
        Ok(Part { range, bytes })
    }
}

/// The bytes of a range, from what the objects have of it. Ranges without an object, or behind its end, are zeros.
pub(super) fn joined(snapshot: &LayoutSnapshot, parts: &[Part], range: Range<u64>) -> Vec<Bytes> {
    let end = range.end;
    if let [part] = parts
        && part.range.len_bytes == end - range.start
    {
        return padded(part.bytes.clone(), part.range.len_bytes).collect();
    }
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    for part in parts {
        let component = snapshot.layout.component(part.range.stripe.generation);
        for piece in component.into_iter().flat_map(|component| part.range.pieces(component)) {
            let at = (piece.object_offset - part.range.object_offset).min(part.bytes.len() as u64);
            let until = (at + piece.len_bytes).min(part.bytes.len() as u64);
            pieces.push((piece.file_offset, part.bytes.slice(to_usize(at)..to_usize(until))));
        }
    }
    pieces.sort_by_key(|(file_offset, _)| *file_offset);
    let mut out = Vec::with_capacity(pieces.len());
    let mut at = range.start;
    for (file_offset, bytes) in pieces.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        out.extend(zeros(file_offset - at));
        at = file_offset + bytes.len() as u64;
        out.push(bytes);
    }
    out.extend(zeros(end - at));
    out
}

/// A range of an object in requests of a size that one may have.
pub(crate) fn split(range: brindle_layout::ObjectRange) -> impl Iterator<Item = brindle_layout::ObjectRange> {
    let parts = range.len_bytes.div_ceil(RPC_BYTES_MAX);
    (0..parts).map(move |n| {
        let first = n * RPC_BYTES_MAX;
        brindle_layout::ObjectRange {
            object_offset: range.object_offset + first,
            len_bytes: RPC_BYTES_MAX.min(range.len_bytes - first),
            ..range
        }
    })
}

/// The bytes that came, and zeros for missing ones.
fn padded(bytes: Bytes, len_bytes: u64) -> impl Iterator<Item = Bytes> {
    let missing = len_bytes.saturating_sub(bytes.len() as u64);
    std::iter::once(bytes).filter(|b| !b.is_empty()).chain(zeros(missing))
}

fn zeros(len_bytes: u64) -> impl Iterator<Item = Bytes> {
    let step = ZEROS.len() as u64;
    (0..len_bytes.div_ceil(step)).map(move |n| {
        let len = step.min(len_bytes - n * step);
        Bytes::from_static(&ZEROS[..to_usize(len)])
    })
}
