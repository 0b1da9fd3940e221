//! Putting right what a crash left: cuts that were not finished, and blocks that may be torn.
//!
//! Done once for each object and boot term, before anything else uses it. Blocks may be torn at or above the
//! high-water mark, and in regions with a write intent, both of an older boot term. Everything else is left
//! as it is, so that a later read finds the damage.

use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::DiskFile;
use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, ObjectId};

use crate::boot::same_boot;
use crate::findings::{Finding, FindingKind};
use crate::format::{BLOCK, REGION, REGION_BLOCKS, block_range, blocks, file_len, sum_pos};
use crate::object::Object;
use crate::others::OtherCopies;
use crate::ranges::ALL;
use crate::read::read_blocks;
use crate::resum::{Torn, resum, trim};
use crate::slots::InFlight;
use crate::stats::add;
use crate::store::{ObjectStore, write_fault};
use crate::sums;

/// Xored into the sum of a block that was damaged when it was cut, so that it stays damaged.
pub(crate) const POISON: u32 = 0xbad0_bad0;
/// Xored into the sum of a block that a crash may have torn when it was cut, so that another copy is asked for it.
const SUSPICION: u32 = 0x5059_5059;

/// Work that a crash left on an object.
struct Plan {
    file: Arc<dyn DiskFile>,
    cut: Option<u64>,
    ranges: Vec<Range<u64>>,
    rewrite: bool,
    trim: bool,
}

impl ObjectStore {
    /// Puts an object right for the present boot term.
    pub(crate) async fn settle(&self, object: &Arc<Object>) -> Result<(), Fault> {
        let _syncing = object.syncing.lock().await;
        let _all = object.locks.write(ALL).await;
        let term = self.boot_term();
        self.drop_leftover(object, term).await?;
        let Some(plan) = self.plan(object, term) else { return Ok(()) };
        if let Some(len) = plan.cut {
            self.finish_cut(object, len)?;
        }
        if plan.trim && trim(&*plan.file).map_err(|e| write_fault(object.id, &e))? {
            object.state.lock().changes += 1;
            self.note_dirty(object);
        }
        let lenient = !plan.ranges.is_empty();
        if lenient {
            self.resum(object, &plan).await?;
        }
        let dirty = !object.state.lock().clean();
        if lenient || plan.cut.is_some() || dirty && plan.rewrite {
            self.sync_held(object).await?;
        }
        if lenient {
            self.intents.drop_object(object.id);
        }
        object.state.lock().settled_term = term;
        Ok(())
    }

    /// Drops bytes that belong to no object. A power cut can keep the bytes of an object's first write, but
    /// lose the header that made it more than a fence. The next first write must not find these bytes.
    async fn drop_leftover(&self, object: &Object, term: u32) -> Result<(), Fault> {
        let file = {
            let s = object.state.lock();
            s.file.clone().filter(|_| !s.exists() && !s.gone && s.settled_term != term)
        };
        let io = |e: std::io::Error| write_fault(object.id, &e);
        let Some(file) = file else { return Ok(()) };
        if file.len().map_err(io)? <= file_len(0) {
            return Ok(());
        }
        file.set_len(file_len(0)).map_err(io)?;
        object.state.lock().len = 0;
        add(&self.stats.fdatasyncs, 1);
        let synced = file.sync_data_async().await;
        synced.map_err(|e| self.sync_failed(term, format!("object {}", object.id), &e))
    }

    /// Work on an object; `None` when there is none, and then the object is settled.
    fn plan(&self, object: &Object, term: u32) -> Option<Plan> {
        let mut s = object.state.lock();
        if s.settled_term == term || s.gone {
            return None;
        }
        let suspects = self.intents.suspects(object.id, term);
        let Some(file) = s.file.clone().filter(|_| s.exists()) else {
            s.settled_term = term;
            drop(s);
            if !suspects.is_empty() {
                self.intents.drop_object(object.id);
            }
            return None;
        };
        let mut ranges: Vec<Range<u64>> =
            suspects.iter().map(|r| r * REGION_BLOCKS..(r + 1) * REGION_BLOCKS).collect();
        let trim = s.header.dirty_term != term;
        if trim && blocks(s.len) > s.header.synced_blocks {
            ranges.push(s.header.synced_blocks..u64::MAX);
        }
        // Dirtied in a term that a failed sync ended: the pages may be clean in memory only.
        let rewrite = trim && same_boot(s.header.dirty_term, term);
        let cut = s.header.pending_cut;
        if ranges.is_empty() && cut.is_none() && !trim {
            s.settled_term = term;
            return None;
        }
        Some(Plan { file, cut, ranges, rewrite, trim })
    }

    /// Puts right the blocks that a crash may have torn: takes each from another copy of the object that has it whole; otherwise computes
    /// its sum from the local bytes.
    async fn resum(&self, object: &Object, plan: &Plan) -> Result<(), Fault> {
        let id = object.id;
        self.take_from_others(object, &plan.file, &plan.ranges).await?;
        let (file, ranges, rewrite) = (plan.file.clone(), plan.ranges.clone(), plan.rewrite);
        let job = move || -> std::io::Result<Vec<Torn>> {
            let mut torn = Vec::new();
            for range in ranges {
                torn.extend(resum(&file, range, rewrite)?);
            }
            Ok(torn)
        };
        let torn = self.seams.run_blocking(job).await;
        let torn =
            torn.ok_or_else(|| Fault::new(Code::Bug).what("the job that computes sums ended early"))?;
        self.list_torn(id, &torn.map_err(|e| write_fault(id, &e))?);
        Ok(())
    }

    /// Counts and keeps re-summed blocks.
    fn list_torn(&self, id: ObjectId, torn: &[Torn]) {
        add(&self.stats.resummed_blocks, torn.len() as u64);
        for t in torn {
            self.findings.add(Finding {
                kind: FindingKind::Resummed,
                object: id,
                offset: t.block * BLOCK,
                stored: t.stored,
                computed: t.computed,
                boot_term: self.boot_term(),
            });
        }
        if !torn.is_empty() {
            tracing::warn!(object = %id, blocks = torn.len(), "computed sums anew of blocks that a crash had torn");
        }
    }

    /// Cuts (or extends) the file and makes the sums of its last region follow. The header tells of the cut already.
    /// May be repeated. The caller holds all of the object.
    pub(crate) fn finish_cut(&self, object: &Object, new_len: u64) -> Result<(), Fault> {
        let id = object.id;
        let mut s = object.state.lock();
        let file = s.file.clone().expect("the object exists");
        let within = new_len % BLOCK;
        let last = new_len / BLOCK;
        let io = |e: std::io::Error| write_fault(id, &e);
        // Verify the block that is cut in two, or the last block that grows. Later is too late: the cut and the new sum would
        // hide damage.
        let mut poison = 0;
        if within > 0 && last < blocks(s.len) {
            let (old, stored) = read_blocks(&*file, last..last + 1).map_err(io)?;
            let lenient = s.settled_term != self.boot_term() && last >= s.header.synced_blocks;
            if let Err(m) = sums::verify(&old, &stored) {
                let was_damaged = m.stored == m.computed ^ POISON;
                match (lenient, self.others.lock().is_some()) {
                    (true, _) if was_damaged => poison = POISON,
                    (false, _) => {
                        poison = POISON;
                        self.report_damage(id, last, m.stored, m.computed);
                    }
                    // Settling asks another copy for this block first, as for all blocks that a crash may have torn.
                    (true, true) => poison = SUSPICION,
                    (true, false) => {}
                }
            }
        }
        file.set_len(file_len(new_len)).map_err(io)?;
        s.len = new_len;
        s.intent_floor = s.intent_floor.min(last);
        if new_len == 0 || new_len.is_multiple_of(REGION) {
            return Ok(());
        }
        let mut first_stale = last;
        if within > 0 {
            let (content, _) = read_blocks(&*file, last..last + 1).map_err(io)?;
            let sum = sums::stored(&content) ^ poison;
            file.write_at(&sum.to_le_bytes(), sum_pos(last)).map_err(io)?;
            first_stale += 1;
        }
        let region_end = (last / REGION_BLOCKS + 1) * REGION_BLOCKS;
        let zeros = vec![0; to_usize((region_end - first_stale) * 4)];
        if !zeros.is_empty() {
            file.write_at(&zeros, sum_pos(first_stale)).map_err(io)?;
        }
        Ok(())
    }

    /// Puts right what a crash left, once, before the store of a member is used: `as_they_were` are copies whose hosts have not started anew,
    /// `with_what_was_synced` are copies that were complete before a power cut that all of them had. With neither, blocks count as they are here.
    pub async fn settle_left(
        &self,
        as_they_were: Option<Arc<dyn OtherCopies>>,
        with_what_was_synced: Option<Arc<dyn OtherCopies>>,
    ) -> Result<(), Fault> {
        let Some(in_flight) = self.left.lock().take() else { return Ok(()) };
        *self.others.lock() = as_they_were;
        let settled = self.settle_in_flight(&in_flight).await;
        if settled.is_ok() {
            *self.others.lock() = with_what_was_synced;
            self.settle_marked().await;
        }
        *self.others.lock() = None;
        settled.inspect_err(|_| *self.left.lock() = Some(in_flight))
    }

    /// Like [`ObjectStore::settle_left`], for a member that follows. On return, ranges that were in flight are put right. Objects with
    /// marks are put right when they are used; the returned future does so for all of them.
    pub async fn settle_following(
        self: &Arc<Self>,
    ) -> Result<impl Future<Output = ()> + Send + 'static, Fault> {
        let in_flight = self.left.lock().take();
        if let Some(in_flight) = &in_flight
            && let Err(fault) = self.settle_in_flight(in_flight).await
        {
            *self.left.lock() = Some(in_flight.clone());
            return Err(fault);
        }
        let store = self.clone();
        Ok(async move {
            if in_flight.is_some() {
                store.settle_marked().await;
            }
        })
    }

    /// Whether [`ObjectStore::settle_left`] may have something to put right.
    pub fn has_left(&self) -> bool {
        let in_flight = self.left.lock().as_ref().map(Vec::len);
        in_flight
            .is_some_and(|n| n > 0 || !self.intents.objects().is_empty() || !self.marked_objects().is_empty())
    }

    /// At start, under the same boot term: blocks that were being written when the last process ended.
    async fn settle_in_flight(&self, in_flight: &[InFlight]) -> Result<(), Fault> {
        for range in in_flight {
            let object = match self.ready(range.object).await {
                Ok(object) => object,
                // The object is damaged already. It stays so, and its readers get the fault.
                Err(f) if f.code == Code::ObjectDamaged => continue,
                Err(f) => return Err(f),
            };
            let _all = object.locks.write(ALL).await;
            let Some(file) = object.state.lock().file.clone() else { continue };
            let ranges = vec![block_range(range.offset, range.len_bytes)];
            self.resum(&object, &Plan { file, cut: None, ranges, rewrite: false, trim: false }).await?;
        }
        self.slots.settled()
    }

    /// At start: objects with write intents. Objects of an older term are put right; all are synced soon.
    async fn settle_marked(&self) {
        // A block without a write intent that a crash may have torn lies at or above the high-water mark. If other copies can be asked,
        // such objects are put right now, while those copies may be believed. Otherwise they are put right when they are used.
        let mut objects = self.intents.objects();
        if self.others.lock().is_some() {
            objects.extend(self.marked_objects());
        }
        objects.sort_unstable();
        objects.dedup();
        for id in objects {
            match self.ready(id).await {
                Ok(object) if object.state.lock().exists() => {
                    object.state.lock().changes += 1;
                    self.note_dirty(&object);
                }
                Ok(_) => self.intents.drop_object(id),
                Err(fault) => tracing::error!(object = %id, "cannot settle a marked object: {fault}"),
            }
        }
    }
}
