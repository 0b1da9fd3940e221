//! Writing: checks first, then intents, then the slot record, then data and sums in one uninterrupted step.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::DiskFile;
use brindle_stdx::buffers::ALIGN_BYTES;
use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::{IoKind, OpenHow};
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, ObjectId, Pair};
use brindle_wire::oss::Ticket;
use bytes::Bytes;

use crate::format::{
    BLOCK, HEADER, OBJECT_LEN_MAX, REGION, REGION_BLOCKS, SUMS, block_range, blocks, data_pos, object_len,
    sum_pos,
};
use crate::intent::MarkError;
use crate::object::Object;
use crate::ranges::ALL;
use crate::read::read_blocks;
use crate::replies::Replies;
use crate::slots::{InFlight, Turn};
use crate::space::{BALLAST_TRIES, Room, Taken};
use crate::stats::add;
use crate::store::{Changed, ObjectStore, write_fault};
use crate::sums::{self, BLOCK_BYTES, TransferSums};
use crate::{TRANSFER_MAX, names};

/// Shortest run of whole blocks that is written, or read, past the page cache.
pub(crate) const DIRECT_BYTES_MIN: usize = 256 << 10;

/// A write.
#[derive(Clone, Debug)]
pub struct WriteOp {
    /// The object; made when it is missing.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
    /// CRC32C of the bytes as their sender computed it.
    pub crc: u32,
    /// Rights.
    pub ticket: Ticket,
    /// Whether the bytes must be on stable storage before the answer.
    pub sync: bool,
    /// May use the room that is kept back for grants.
    pub covered: bool,
}

/// Whether an overwrite leaves a write intent: then a power cut may have torn its region, and mismatches there are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The overwrite leaves a write intent.
    Marked,
    /// The overwrite leaves none: a block that it tears counts as damaged, as its former contents did.
    None,
}

impl ObjectStore {
    /// Writes, exactly as [`WriteOp`] says or not at all (a failing disk excepted).
    pub async fn write(&self, op: &WriteOp, turn: &mut Turn) -> Result<Changed, Fault> {
        self.write_with(op, turn, Intent::Marked).await
    }

    pub(crate) async fn write_with(
        &self,
        op: &WriteOp,
        turn: &mut Turn,
        intent: Intent,
    ) -> Result<Changed, Fault> {
        let len = op.data.len() as u64;
        let end =
            op.offset.checked_add(len).filter(|end| *end <= OBJECT_LEN_MAX && len <= TRANSFER_MAX as u64);
        if end.is_none() {
            return Err(Fault::new(Code::TooLarge).subject(format!("object {}", op.object)));
        }
        let transfer = sums::of_transfer(op.offset, &op.data);
        sums::check_transfer(transfer.total, op.crc, op.data.len())?;
        loop {
            let boot_term = self.boot_term();
            let object = self.ready(op.object).await?;
            let exists = object.state.lock().exists();
            let range = if exists { block_range(op.offset, len) } else { ALL };
            let held = object.locks.write(range).await;
            if !self.still_ready(&object) || exists && !object.state.lock().exists() {
                continue;
            }
            self.check_ticket(&object, &op.ticket)?;
            let (room, taken) = self.room_for(&object, op.offset, len, op.covered)?;
            let marked = match intent {
                Intent::Marked => self.mark_overwrite(&object, block_range(op.offset, len), boot_term).await,
                Intent::None => Ok(()),
            };
            match marked {
                Err(MarkError::Full) => {
                    drop(held);
                    self.make_room_for_intents().await?;
                    continue;
                }
                other => other.map_err(|e| self.mark_failed(boot_term, e))?,
            }
            let permit = self.seams.disk.admit(IoKind::Write, op.data.len()).await;
            turn.begin(InFlight { object: op.object, offset: op.offset, len_bytes: len })?;
            self.make(&object)?;
            if room == Room::Little {
                self.reserve(&object, op.offset, len, op.covered)?;
            }
            if let Err(fault) = self.apply_for(turn, &object, op, &transfer, boot_term) {
                let is_edge = matches!(fault.code, Code::ObjectDamaged | Code::OstIo);
                if !is_edge || !self.mend_edges(&object, op.offset, len).await? {
                    return Err(fault);
                }
                self.apply_for(turn, &object, op, &transfer, boot_term)?;
            }
            add(&self.stats.writes, 1);
            add(&self.stats.written_bytes, len);
            // The permit too: a sync waits for all of the object, and who holds a part of it may be waiting for a permit.
            drop((permit, held, taken));
            // A sync is waited for here only if replies do not wait for syncs anyway.
            if op.sync && self.replies == Replies::Written {
                self.sync_object(&object).await?;
                self.must_be_of(boot_term, op.object)?;
            }
            let allocated_bytes = object.state.lock().allocated_bytes();
            return Ok(Changed { boot_term, allocated_bytes });
        }
    }

    /// Refuses a change that there is no room for. A change that overwrites allocated blocks needs none.
    pub(crate) fn room_for(
        &self,
        object: &Object,
        offset: u64,
        bytes: u64,
        covered: bool,
    ) -> Result<(Room, Option<Taken<'_>>), Fault> {
        let file = object.state.lock().file.clone();
        let overhead = SUMS * (1 + bytes / REGION) + if file.is_none() { HEADER } else { 0 };
        let needed = bytes.saturating_add(overhead);
        match self.space.take(needed, file.is_none(), covered, self.seams.now()) {
            Err(_) if file.is_some_and(|f| allocated(&*f, offset, bytes)) => Ok((Room::Little, None)),
            Ok((room, taken)) => Ok((room, Some(taken))),
            Err(fault) => {
                add(&self.stats.full_refusals, 1);
                Err(fault)
            }
        }
    }

    /// Marks the regions of blocks that were synced and are about to be overwritten.
    pub(crate) async fn mark_overwrite(
        &self,
        object: &Object,
        range: Range<u64>,
        term: u32,
    ) -> Result<(), MarkError> {
        let floor = object.state.lock().intent_floor;
        let synced = range.start..range.end.min(floor);
        if synced.is_empty() {
            return Ok(());
        }
        let regions: Vec<u64> = (synced.start / REGION_BLOCKS..=(synced.end - 1) / REGION_BLOCKS).collect();
        if self.intents.mark(object.id, &regions, term).await? {
            add(&self.stats.intent_syncs, 1);
            add(&self.stats.fdatasyncs, 1);
        }
        Ok(())
    }

    /// The fault of a mark that could not be set.
    pub(crate) fn mark_failed(&self, term: u32, e: MarkError) -> Fault {
        match e {
            MarkError::Sync(e) => self.sync_failed(term, "the write intents".to_owned(), &e),
            MarkError::Io(e) => Fault::io(Code::OstIo, "cannot write", "the write intents", &e),
            MarkError::Full => Fault::new(Code::Overloaded).why("the table of write intents is full"),
        }
    }

    /// Makes the object's file if there is none, and the object if there were only fences. The caller holds all of it.
    pub(crate) fn make(&self, object: &Arc<Object>) -> Result<(), Fault> {
        let mut s = object.state.lock();
        if s.exists() {
            return Ok(());
        }
        if s.file.is_none() {
            drop(s);
            self.make_file(object, false)?;
            s = object.state.lock();
        }
        if s.header.fence_only {
            s.header.fence_only = false;
            if let Err(e) = s.put_header() {
                s.header.fence_only = true;
                return Err(write_fault(object.id, &e));
            }
        }
        add(&self.stats.objects_made, 1);
        Ok(())
    }

    /// Makes the file of an object that has none.
    pub(crate) fn make_file(&self, object: &Arc<Object>, fence_only: bool) -> Result<(), Fault> {
        let id = object.id;
        let path = self.path(&id);
        let mut s = object.state.lock();
        s.header.fence_only = fence_only;
        s.header.dirty_term = self.boot_term();
        s.header.dirty = true;
        let made = self.open_new(&path, &id, s.leftover).and_then(|file| {
            let mut block = [0; to_usize(HEADER)];
            block[..crate::format::HEADER_SECTOR].copy_from_slice(&s.header.encode());
            let begun = file.read_no_further().and_then(|()| file.write_at(&block, 0));
            begun.inspect_err(|_| drop(self.seams.disk.remove(&path)))?;
            Ok(file)
        });
        s.file = Some(made.map_err(|e| write_fault(id, &e))?);
        s.leftover = false;
        s.changes += 1;
        s.intent_floor = 0;
        self.note_dirty(object);
        Ok(())
    }

    fn open_new(&self, path: &str, id: &ObjectId, leftover: bool) -> io::Result<Arc<dyn DiskFile>> {
        let disk = &self.seams.disk;
        if leftover {
            disk.remove(path)?;
        }
        match disk.open(path, OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                disk.create_dir_all(&names::dir(&self.root, id))?;
                disk.open(path, OpenHow::CreateNew)
            }
            other => other,
        }
    }

    /// Reserves the blocks of a range, so that a full disk is met before anything is touched. `covered`: room was promised for it, and
    /// what was freed for it may have gone to somebody else.
    pub(crate) fn reserve(&self, object: &Object, offset: u64, len: u64, covered: bool) -> Result<(), Fault> {
        let is_full =
            |done: &io::Result<()>| done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::StorageFull);
        let mut done = self.reserve_io(object, offset, len);
        let mut tries = 0;
        while covered && is_full(&done) && tries < BALLAST_TRIES && self.space.free_more(len)? {
            tries += 1;
            done = self.reserve_io(object, offset, len);
        }
        match done {
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                add(&self.stats.full_refusals, 1);
                self.space.forget();
                Err(write_fault(object.id, &e).data("nothing was written"))
            }
            // A file system that cannot reserve is asked again by the write itself.
            _ => Ok(()),
        }
    }

    /// Asks the file system for the blocks of a range and of its sums.
    pub(crate) fn reserve_io(&self, object: &Object, offset: u64, len: u64) -> io::Result<()> {
        let file = object.state.lock().file.clone().expect("the object exists");
        // Sums of the regions between lie between the data.
        let end = data_pos(offset + len.max(1) - 1) + 1;
        file.allocate(sum_pos(offset / REGION * REGION_BLOCKS), SUMS, true)?;
        file.allocate(data_pos(offset), end - data_pos(offset), true)
    }

    fn apply_for(
        &self,
        turn: &Turn,
        object: &Arc<Object>,
        op: &WriteOp,
        transfer: &TransferSums,
        term: u32,
    ) -> Result<(), Fault> {
        let (session, epoch) = turn.session();
        let apply = || {
            let _fence = self.fences.enter(session, epoch)?;
            self.apply(object, op.offset, &op.data, transfer, op.ticket.attr_epoch, term)
        };
        let is_quick = op.data.len() < DIRECT_BYTES_MIN && !self.fences.may_wait();
        if is_quick { apply() } else { self.seams.blocking(apply) }
    }

    /// Writes data and sums. Runs without a pause, so that only the death of the process can come between them.
    pub(crate) fn apply(
        &self,
        object: &Arc<Object>,
        offset: u64,
        data: &[u8],
        transfer: &TransferSums,
        attr_epoch: Pair,
        term: u32,
    ) -> Result<(), Fault> {
        if data.is_empty() {
            return self.touch(object, attr_epoch, term);
        }
        let (file, len) = {
            let s = object.state.lock();
            (s.file.clone().expect("the object exists"), s.len)
        };
        let mut sums = Cow::Borrowed(&transfer.sums[..]);
        for (index, (block, within, piece)) in sums::pieces(offset, data).enumerate() {
            if piece.len() < BLOCK_BYTES {
                sums.to_mut()[index] = self.merged_sum(object, &*file, len, block, within, piece)?;
            }
        }
        self.touch(object, attr_epoch, term)?;
        let written = put_regions(&*file, offset, data, &sums);
        let mut s = object.state.lock();
        let e = match written {
            Ok(direct) => {
                add(&self.stats.direct_bytes, direct);
                s.len = s.len.max(offset + data.len() as u64);
                self.writeback_hint.written(object, direct);
                return Ok(());
            }
            Err(e) => e,
        };
        // Some of it may have landed: the sums must tell what is there.
        drop(s);
        let repaired = crate::resum::make_true(&*file, block_range(offset, data.len() as u64));
        s = object.state.lock();
        s.len = file.len().map_or(s.len, |n| object_len(n).max(s.len));
        drop(s);
        self.space.forget();
        if let Err(second) = repaired {
            tracing::error!(object = %object.id, error = %second, "cannot repair the sums of a failed write");
        }
        Err(write_fault(object.id, &e))
    }

    /// Sum of a block of which only a piece is written. Refused over damage, unless nothing of it would stay.
    fn merged_sum(
        &self,
        object: &Object,
        file: &dyn DiskFile,
        len: u64,
        block: u64,
        within: usize,
        piece: &[u8],
    ) -> Result<u32, Fault> {
        let here = len.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let covers = within == 0 && piece.len() >= here;
        let mut merged = vec![0; BLOCK_BYTES];
        if block < blocks(len) && !covers {
            let read = read_blocks(file, block..block + 1);
            let (old, stored) =
                read.map_err(|e| Fault::io(Code::OstIo, "cannot read", format!("object {}", object.id), &e))?;
            if let Err(m) = sums::verify(&old, &stored)
                && !brindle_stdx::planted("ost_bless_damage")
            {
                return Err(self.report_damage(object.id, block, m.stored, m.computed));
            }
            merged = old;
        }
        merged[within..within + piece.len()].copy_from_slice(piece);
        Ok(sums::stored(&merged))
    }

    /// Notes a change: in the header on disk if it is the first since the last sync, and in the list of objects to
    /// sync.
    pub(crate) fn touch(&self, object: &Arc<Object>, attr_epoch: Pair, term: u32) -> Result<(), Fault> {
        let wall = self.seams.wall();
        let now = Time { secs: wall.secs, nanos: wall.nanos };
        let mut s = object.state.lock();
        let (epoch, time) = s.header.last_write.unwrap_or_default();
        s.header.last_write = Some((epoch.max(attr_epoch), time.max(now)));
        s.changes += 1;
        if !s.header.dirty || s.header.dirty_term != term {
            let before = (s.header.dirty, s.header.dirty_term);
            (s.header.dirty, s.header.dirty_term) = (true, term);
            if let Err(e) = s.put_header() {
                // The next change must not assume that the header on disk has the flag.
                (s.header.dirty, s.header.dirty_term) = before;
                return Err(write_fault(object.id, &e));
            }
        }
        self.note_dirty(object);
        Ok(())
    }

    /// The object has something to sync.
    pub(crate) fn note_dirty(&self, object: &Arc<Object>) {
        let now = self.seams.now();
        self.dirty.lock().entry(object.id).or_insert_with(|| (now, object.clone()));
    }
}

/// Whether the whole range has its blocks, and those of its sums.
fn allocated(file: &dyn DiskFile, offset: u64, len: u64) -> bool {
    let last = offset + len.max(1) - 1;
    let has = |from: u64, to: u64| file.next_hole(from).is_ok_and(|hole| hole > to);
    // The sums of every region but the first lie between its data and that of the region before.
    has(sum_pos(offset / BLOCK), sum_pos(offset / BLOCK)) && has(data_pos(offset), data_pos(last))
}

/// Writes data to one place of the file. Returns the number of bytes that bypassed the page cache.
///
/// Whole blocks of a long piece bypass it: a stream is seldom read again soon, and the copy into the page cache and the
/// writeback cost more processor time than everything else here (design note 010). Blocks of objects are pages of the
/// file, and every reader or writer of a block has locked it, so a block is never on both paths at once.
fn put_data(file: &dyn DiskFile, data: &[u8], pos: u64) -> io::Result<u64> {
    let head = to_usize(pos.next_multiple_of(BLOCK) - pos);
    let whole = data.len().saturating_sub(head) / BLOCK_BYTES * BLOCK_BYTES;
    let is_aligned = || data[head..].as_ptr().align_offset(ALIGN_BYTES) == 0;
    if whole < DIRECT_BYTES_MIN || !is_aligned() {
        return file.write_at(data, pos).map(|()| 0);
    }
    let (head, rest) = data.split_at(head);
    let (whole, tail) = rest.split_at(whole);
    let at = pos + head.len() as u64;
    if !head.is_empty() {
        file.write_at(head, pos)?;
    }
    file.write_direct(whole, at)?;
    if !tail.is_empty() {
        file.write_at(tail, at + whole.len() as u64)?;
    }
    Ok(whole.len() as u64)
}

/// Writes data and sums, region by region; how many bytes went past the page cache.
fn put_regions(file: &dyn DiskFile, offset: u64, data: &[u8], sums: &[u32]) -> io::Result<u64> {
    let mut direct = 0;
    let end = offset + data.len() as u64;
    let first_block = offset / BLOCK;
    let mut at = offset;
    while at < end {
        let stop = end.min((at / REGION + 1) * REGION);
        direct += put_data(file, &data[to_usize(at - offset)..to_usize(stop - offset)], data_pos(at))?;
        let range = block_range(at, stop - at);
        let of_region = &sums[to_usize(range.start - first_block)..to_usize(range.end - first_block)];
        let words: Vec<u8> = of_region.iter().flat_map(|s| s.to_le_bytes()).collect();
        file.write_at(&words, sum_pos(range.start))?;
        at = stop;
    }
    Ok(direct)
}
