//! Holes and reservations: fallocate's halves. A hole is on disk before the answer.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::DiskFile;
use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, ObjectId};
use brindle_wire::oss::Ticket;

use crate::format::{
    BLOCK, OBJECT_LEN_MAX, REGION, REGION_BLOCKS, SUMS, data_pos, file_len, object_len, object_offset,
    sum_pos,
};
use crate::intent::MarkError;
use crate::object::Object;
use crate::ranges::ALL;
use crate::slots::{InFlight, Turn};
use crate::stats::add;
use crate::store::{Changed, ObjectStore, write_fault};
use crate::sums;

/// Regions that are punched in one step, under one sync of write intents.
const STEP_REGIONS: u64 = 64;

/// A range of an object to punch, zero or reserve.
#[derive(Clone, Copy, Debug)]
pub struct PunchOp {
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Rights.
    pub ticket: Ticket,
}

impl ObjectStore {
    /// Makes a range read as zeros; with `keep_space` its blocks stay reserved. A missing object stays missing.
    pub async fn punch(&self, op: &PunchOp, keep_space: bool, turn: &mut Turn) -> Result<Changed, Fault> {
        loop {
            let boot_term = self.boot_term();
            let object = self.ready(op.object).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            if !self.still_ready(&object) {
                continue;
            }
            self.check_ticket(&object, &op.ticket)?;
            let (exists, len) = {
                let s = object.state.lock();
                (s.exists(), s.len)
            };
            let end = op.offset.saturating_add(op.len_bytes).min(len);
            if exists && op.offset < end {
                self.mend_edges(&object, op.offset, end - op.offset).await?;
                self.punch_held(&object, op, end, boot_term, turn).await?;
                if keep_space {
                    self.space.forget();
                    self.room_for(&object, op.offset, end - op.offset, false)?;
                    self.reserve(&object, op.offset, end - op.offset, false)?;
                }
                self.space.forget();
                self.sync_held(&object).await?;
            }
            let allocated_bytes = object.state.lock().allocated_bytes();
            return Ok(Changed { boot_term, allocated_bytes });
        }
    }

    async fn punch_held(
        &self,
        object: &Arc<Object>,
        op: &PunchOp,
        end: u64,
        term: u32,
        turn: &mut Turn,
    ) -> Result<(), Fault> {
        let file = object.state.lock().file.clone().expect("the object exists");
        let io = |e: io::Error| write_fault(object.id, &e);
        let mut at = op.offset;
        while at < end {
            // Holes with no sums are passed over.
            let region_pos = data_pos(at / REGION * REGION) - SUMS;
            match file.next_data(region_pos).map_err(io)? {
                None => return Ok(()),
                Some(pos) => at = at.max(object_offset(pos) / REGION * REGION),
            }
            if at >= end {
                return Ok(());
            }
            let stop = end.min((at / REGION + STEP_REGIONS) * REGION);
            self.mark_held(object, at..stop, term).await?;
            turn.begin(InFlight { object: object.id, offset: at, len_bytes: stop - at })?;
            let (session, epoch) = turn.session();
            let fence = self.fences.enter(session, epoch)?;
            self.punch_step(object, &*file, at..stop, op, term)?;
            drop(fence);
            at = stop;
        }
        Ok(())
    }

    async fn mark_held(&self, object: &Arc<Object>, bytes: Range<u64>, term: u32) -> Result<(), Fault> {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        match self.mark_overwrite(object, blocks.clone(), term).await {
            Err(MarkError::Full) => {
                self.sync_held(object).await?;
                let reaped = self.intents.reap(self.seams.now(), true).await;
                reaped.map_err(|e| self.mark_failed(term, e))?;
                let again = self.mark_overwrite(object, blocks, term).await;
                again.map_err(|e| self.mark_failed(term, e))
            }
            other => other.map_err(|e| self.mark_failed(term, e)),
        }
    }

    /// Punches at most [`STEP_REGIONS`] regions: parts of blocks are written as zeros, whole blocks become holes.
    fn punch_step(
        &self,
        object: &Arc<Object>,
        file: &dyn DiskFile,
        bytes: Range<u64>,
        op: &PunchOp,
        term: u32,
    ) -> Result<(), Fault> {
        let len = object.state.lock().len;
        let first = bytes.start.next_multiple_of(BLOCK);
        // The object's last block is whole when the range reaches its end.
        let last = if bytes.end == len { len.next_multiple_of(BLOCK) } else { bytes.end / BLOCK * BLOCK };
        let zero = |from: u64, to: u64| {
            let zeros = vec![0; to_usize(to - from)];
            let transfer = sums::of_transfer(from, &zeros);
            self.apply(object, from, &zeros, &transfer, op.ticket.attr_epoch, term)
        };
        if first >= last {
            return zero(bytes.start, bytes.end);
        }
        if bytes.start < first {
            zero(bytes.start, first)?;
        }
        if last < bytes.end {
            zero(last, bytes.end)?;
        }
        self.touch(object, op.ticket.attr_epoch, term)?;
        let punched = punch_blocks(file, first / BLOCK..last / BLOCK);
        punched.map_err(|e| {
            let repaired = crate::resum::make_true(file, first / BLOCK..last / BLOCK);
            if let Err(second) = repaired {
                tracing::error!(object = %object.id, error = %second, "cannot repair the sums of a failed punch");
            }
            write_fault(object.id, &e)
        })
    }

    /// Reserves space for a range; makes the object where it is missing. Without `keep_len` the object becomes at
    /// least as long as the range's end.
    pub async fn allocate(&self, op: &PunchOp, keep_len: bool, turn: &mut Turn) -> Result<Changed, Fault> {
        let end = op.offset.checked_add(op.len_bytes).filter(|end| *end <= OBJECT_LEN_MAX);
        let end = end.ok_or_else(|| Fault::new(Code::TooLarge).subject(format!("object {}", op.object)))?;
        loop {
            let boot_term = self.boot_term();
            let object = self.ready(op.object).await?;
            let _all = object.locks.write(ALL).await;
            if !self.still_ready(&object) {
                continue;
            }
            self.check_ticket(&object, &op.ticket)?;
            self.room_for(&object, op.offset, op.len_bytes, false)?;
            // The change writes no byte and no sum of a block, so a kill in the middle of it cannot tear the object.
            // The empty range says that damage found later has another cause.
            turn.begin(InFlight { object: op.object, offset: 0, len_bytes: 0 })?;
            let (session, epoch) = turn.session();
            let _fence = self.fences.enter(session, epoch)?;
            self.make(&object)?;
            self.touch(&object, op.ticket.attr_epoch, boot_term)?;
            let reserved = self.reserve_io(&object, op.offset, op.len_bytes);
            reserved.map_err(|e| write_fault(op.object, &e))?;
            let mut s = object.state.lock();
            if !keep_len && end > s.len {
                let file = s.file.clone().expect("it was just made");
                file.set_len(file_len(end)).map_err(|e| write_fault(object.id, &e))?;
                s.len = object_len(file_len(end));
            }
            add(&self.stats.writes, 1);
            let allocated_bytes = s.allocated_bytes();
            return Ok(Changed { boot_term, allocated_bytes });
        }
    }
}

/// Makes whole blocks holes, with their sums.
fn punch_blocks(file: &dyn DiskFile, blocks: Range<u64>) -> io::Result<()> {
    let mut block = blocks.start;
    while block < blocks.end {
        let region_end = (block / REGION_BLOCKS + 1) * REGION_BLOCKS;
        let stop = blocks.end.min(region_end);
        file.punch_hole(data_pos(block * BLOCK), (stop - block) * BLOCK)?;
        if block.is_multiple_of(REGION_BLOCKS) && stop == region_end {
            file.punch_hole(sum_pos(block), SUMS)?;
        } else {
            file.write_at(&vec![0; to_usize((stop - block) * 4)], sum_pos(block))?;
        }
        block = stop;
    }
    Ok(())
}
