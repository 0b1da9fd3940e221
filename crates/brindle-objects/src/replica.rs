//! Object store of a member of a replica set, beside the operations of every OST. Marks name the objects that
//! may differ between members; checksums compare them; changes make an object equal to another member's.
//!
//! A mark is durable before the first change of an object, on every member, and goes when all members in sync have synced it. After the death
//! of a member at most the marked objects differ. Marks lie in a table like that of write intents ([`crate::intent`]), one for each object.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_stdx::DiskFile;
use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, ObjectId, Pair};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::replica::{LOOK_BLOCKS_MAX, ObjectImage};
use bytes::Bytes;

use crate::format::{OBJECT_LEN_MAX, REGION_BLOCKS, blocks, file_len, sum_pos};
use crate::intent::{Intents, MarkError};
use crate::object::Object;
use crate::punch::PunchOp;
use crate::ranges::ALL;
use crate::store::{ObjectStore, write_fault};
use crate::write::{Intent, WriteOp};

/// File of the table of marks, beside the others of the store.
const MARKS_FILE: &str = "replica-marks";
/// Region number of a mark: a mark always covers a whole object.
const WHOLE: u64 = 0;
/// Newer than every epoch: a member takes all changes of the primary.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };

/// Rights of a change that a primary makes on a member, whatever the member has.
fn any_ticket() -> Ticket {
    Ticket { layout_epoch: ANY_EPOCH, truncate_epoch: ANY_EPOCH, attr_epoch: Pair::ZERO, must_exist: false }
}

/// Header and file of an object as it is now. `ObjectDamaged` where the file was cut by something else than a crash.
pub(crate) fn image_of(object: &Object) -> Result<(ObjectImage, Option<Arc<dyn DiskFile>>), Fault> {
    let s = object.state.lock();
    if s.cut_by_others() {
        return Err(crate::object::damaged(object.id, format!("its file ends at {} bytes", s.len)));
    }
    let image = ObjectImage {
        exists: s.exists(),
        len_bytes: if s.exists() { s.len } else { 0 },
        layout_epoch: s.header.layout_epoch,
        truncate_epoch: s.header.truncate_epoch,
        last_write: s.header.last_write,
    };
    Ok((image, s.file.clone().filter(|_| s.exists())))
}

impl ObjectStore {
    /// Makes the store that of a member of a replica set: from now on it keeps marks, tells clients `term`, and ends when a sync fails,
    /// because another member goes on.
    pub fn become_member(&self, term: u32) -> Result<(), Fault> {
        if self.marks.get().is_none() {
            let marks = Intents::open(&*self.seams.disk, &format!("{}/{MARKS_FILE}", self.root))?;
            // Two starts of one store do not run at a time.
            drop(self.marks.set(marks));
        }
        self.tell_term(term);
        Ok(())
    }

    /// The boot term to tell clients instead of the store's own.
    pub fn tell_term(&self, term: u32) {
        self.told.store(term, Ordering::Release);
    }

    /// Whether the store belongs to a member of a replica set.
    pub fn is_member(&self) -> bool {
        self.marks.get().is_some()
    }

    fn marks(&self) -> Result<&Intents, Fault> {
        self.marks.get().ok_or_else(|| Fault::new(Code::Bug).why("marks of a store that is no member's"))
    }

    /// Marks objects, durably on return. `Overloaded` when the table is full: marks of objects that are equal have to go first.
    pub async fn mark_objects(&self, ids: &[ObjectId]) -> Result<(), Fault> {
        let (marks, term) = (self.marks()?, self.boot_term());
        match marks.mark_all(ids, WHOLE, term).await {
            Ok(_) => Ok(()),
            Err(MarkError::Full) => Err(Fault::new(Code::Overloaded).why("the table of marks is full")),
            Err(e) => Err(self.mark_failed(term, e)),
        }
    }

    /// Objects with marks.
    pub fn marked_objects(&self) -> Vec<ObjectId> {
        self.marks.get().map(Intents::objects).unwrap_or_default()
    }

    /// Objects with marks, and a number for each that rises with every use of its mark.
    pub fn marks_in_use(&self) -> Vec<(ObjectId, u64)> {
        let Some(marks) = self.marks.get() else { return Vec::new() };
        let uses = |object: ObjectId| marks.snapshot(object).iter().map(|(_, uses)| *uses).sum();
        marks.objects().into_iter().map(|object| (object, uses(object))).collect()
    }

    /// Takes marks away: the objects are equal, and durable, on all members. The caller keeps changes of them out meanwhile.
    pub async fn unmark_objects(&self, ids: &[ObjectId]) -> Result<(), Fault> {
        let marks = self.marks()?;
        ids.iter().for_each(|id| marks.drop_object(*id));
        let reaped = marks.reap(self.seams.now(), false).await;
        reaped.map(drop).map_err(|e| self.mark_failed(self.boot_term(), e))
    }

    /// An object as it is here: its header, and the stored checksums of some blocks, fewer where it ends.
    pub async fn look(
        &self,
        id: ObjectId,
        from_block: u64,
        count: u64,
    ) -> Result<(ObjectImage, Bytes), Fault> {
        loop {
            let object = self.ready(id).await?;
            let _all = object.locks.read(ALL).await;
            if !self.still_ready(&object) {
                continue;
            }
            let (image, file) = image_of(&object)?;
            let end = from_block.saturating_add(count.min(LOOK_BLOCKS_MAX)).min(blocks(image.len_bytes));
            let Some(file) = file.filter(|_| from_block < end) else { return Ok((image, Bytes::new())) };
            let mut sums = vec![0; to_usize(end - from_block) * 4];
            let mut block = from_block;
            while block < end {
                let stop = end.min((block / REGION_BLOCKS + 1) * REGION_BLOCKS);
                let (from, to) = (to_usize(block - from_block) * 4, to_usize(stop - from_block) * 4);
                // Blocks behind the end of the file are holes, whose checksums are zeros.
                file.read_at(&mut sums[from..to], sum_pos(block))
                    .map_err(|e| Fault::io(Code::OstIo, "cannot read", format!("object {id}"), &e))?;
                block = stop;
            }
            return Ok((image, sums.into()));
        }
    }

    /// Writes bytes that another member has, whatever lies here. Whole blocks; the last one may end with the object.
    pub async fn put(&self, id: ObjectId, offset: u64, data: Bytes, crc: u32) -> Result<(), Fault> {
        self.unbury(&id);
        let mut turn = self.slots.anonymous(None)?;
        let ticket = any_ticket();
        let op = WriteOp { object: id, offset, data, crc, ticket, sync: false, covered: true };
        self.write(&op, &mut turn).await.map(drop)
    }

    /// Writes a damaged block anew with the bytes of another member, as `put` does, and syncs it. Records no write intent: a power cut that
    /// tears the block leaves it damaged, and no other block of its region is taken for torn. The time of the last write stays, because the
    /// contents do not change.
    pub async fn mend(&self, id: ObjectId, offset: u64, data: Bytes, crc: u32) -> Result<(), Fault> {
        let (image, _) = self.look(id, 0, 0).await?;
        let mut turn = self.slots.anonymous(None)?;
        let ticket = any_ticket();
        let op = WriteOp { object: id, offset, data, crc, ticket, sync: false, covered: true };
        self.write_with(&op, &mut turn, Intent::None).await?;
        self.put_image(id, &image).await?;
        self.sync(&[id]).await.map(drop)
    }

    /// Makes a range of whole blocks a hole, because it is one on another member.
    pub async fn put_hole(&self, id: ObjectId, offset: u64, len_bytes: u64) -> Result<(), Fault> {
        let mut turn = self.slots.anonymous(None)?;
        let op = PunchOp { object: id, offset, len_bytes, ticket: any_ticket() };
        self.punch(&op, false, &mut turn).await.map(drop)
    }

    /// Sets header and length to those of another member. An object that is longer here, or has later epochs, has to
    /// be forgotten first.
    pub async fn put_image(&self, id: ObjectId, image: &ObjectImage) -> Result<(), Fault> {
        if image.len_bytes > OBJECT_LEN_MAX {
            return Err(Fault::new(Code::TooLarge).subject(format!("object {id}")));
        }
        self.unbury(&id);
        loop {
            let object = self.ready(id).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            let term = self.boot_term();
            if !self.still_ready(&object) {
                continue;
            }
            let is_fenced = image.layout_epoch != Pair::ZERO || image.truncate_epoch != Pair::ZERO;
            let (has_file, exists, len) = {
                let s = object.state.lock();
                (s.file.is_some(), s.exists(), s.len)
            };
            if exists && (!image.exists || len > image.len_bytes) {
                return Err(Fault::new(Code::Bug)
                    .subject(format!("object {id}"))
                    .why("it is more than it is to be"));
            }
            if image.exists {
                self.make(&object)?;
            } else if !is_fenced {
                return Ok(());
            } else if !has_file {
                self.make_file(&object, true)?;
            }
            let mut s = object.state.lock();
            if image.exists && image.len_bytes > s.len {
                let file =
                    s.file.clone().ok_or_else(|| Fault::new(Code::Bug).why("an object without a file"))?;
                file.set_len(file_len(image.len_bytes)).map_err(|e| write_fault(id, &e))?;
                s.len = image.len_bytes;
            }
            s.header.layout_epoch = image.layout_epoch;
            s.header.truncate_epoch = image.truncate_epoch;
            s.header.last_write = image.last_write;
            (s.header.dirty, s.header.dirty_term) = (true, term);
            s.changes += 1;
            s.put_header().map_err(|e| write_fault(id, &e))?;
            drop(s);
            self.note_dirty(&object);
            return Ok(());
        }
    }
}
