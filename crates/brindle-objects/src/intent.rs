//! Write intents: durable marks on regions whose synced blocks are about to be overwritten.
//!
//! After a power cut a block below the high-water mark may be torn only if its region is marked; all others are
//! verified without mercy. A mark is durable before the first overwrite since the last sync, and goes within a second
//! of the next sync. Many callers share one sync of the table.
//!
//! ```text
//! record, 64 bytes: magic u32 | boot term u32 | object 24 bytes | region u64 | zeros | checksum
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use brindle_stdx::cast::len_u32;
use brindle_stdx::codec::Reader;
use brindle_stdx::disk::{OpenHow, read_exact_at};
use brindle_stdx::time::Mono;
use brindle_stdx::{Disk, DiskFile, planted};
use brindle_types::{Code, Fault, ObjectId};
use parking_lot::Mutex;

use crate::format::{put_object, seal, take_object, unseal};

const MAGIC: u32 = 0x4249_4e54; // BINT
const RECORD: usize = 64;
/// Most regions that may be marked at once: 64 GiB of overwrites between two syncs.
pub const INTENTS_MAX: usize = 16384;
/// Time for which a mark stays after the sync of its region, so that the next overwrite need not set it
/// again.
const LINGER_MS: u64 = 300;

/// A region of an object.
pub type RegionKey = (ObjectId, u64);

/// A mark on disk: number of its record, region, boot term it was set in.
pub type Mark = (u32, RegionKey, u32);

/// The table, in memory and on disk.
pub struct Intents {
    file: Arc<dyn DiskFile>,
    inner: Mutex<Inner>,
    flushing: tokio::sync::Mutex<()>,
}

struct Inner {
    entries: BTreeMap<RegionKey, Entry>,
    free: Vec<u32>,
    /// Writes of records so far, and how many of them are durable.
    written: u64,
    durable: u64,
    /// A sync failed: what it should have written counts as clean and is to be written again.
    sync_failed: bool,
}

struct Entry {
    record: u32,
    term: u32,
    /// Raised by every use, so that a sync clears only marks that were not used since it began.
    generation: u64,
    /// [`Inner::written`] that makes the mark durable.
    written: u64,
    clean_since: Option<Mono>,
}

fn encode(key: &RegionKey, term: u32) -> [u8; RECORD] {
    let mut body = Vec::with_capacity(RECORD);
    body.extend(MAGIC.to_be_bytes());
    body.extend(term.to_be_bytes());
    put_object(&mut body, &key.0);
    body.extend(key.1.to_be_bytes());
    seal(&body)
}

fn decode(record: &[u8]) -> Option<(RegionKey, u32)> {
    let mut r = Reader::new(unseal(record)?);
    (r.u32()? == MAGIC).then_some(())?;
    let term = r.u32()?;
    Some(((take_object(&mut r)?, r.u64()?), term))
}

/// The marks of a table on disk, with the boot terms they were set in; for [`Intents::open`] and fsck. The number is
/// how many records are damaged.
pub fn load(file: &dyn DiskFile) -> io::Result<(Vec<Mark>, usize)> {
    let mut bytes = vec![0; INTENTS_MAX * RECORD];
    read_exact_at(file, &mut bytes, 0)?;
    let mut marks = Vec::new();
    let mut damaged = 0;
    for (index, record) in (0..).zip(bytes.chunks_exact(RECORD)) {
        match decode(record) {
            Some((key, term)) => marks.push((index, key, term)),
            None if record.iter().all(|b| *b == 0) => {}
            None => damaged += 1,
        }
    }
    Ok((marks, damaged))
}

impl Intents {
    /// Opens the table, or makes it with all the space it will ever need.
    pub fn open(disk: &dyn Disk, path: &str) -> Result<Intents, Fault> {
        Intents::open_io(disk, path)
            .map_err(|e| Fault::io(Code::OstIo, "cannot open the write intents in", path.to_owned(), &e))
    }

    fn open_io(disk: &dyn Disk, path: &str) -> io::Result<Intents> {
        let file = disk.open(path, OpenHow::OpenOrCreate)?;
        if file.len()? < (INTENTS_MAX * RECORD) as u64 {
            file.write_at(&vec![0; INTENTS_MAX * RECORD], 0)?;
            file.sync_data()?;
            disk.sync_dir(brindle_stdx::disk::parent(path))?;
        }
        let (marks, damaged) = load(&*file)?;
        if damaged > 0 {
            tracing::error!(path, damaged, "records of the write-intent table are damaged");
        }
        let mut entries = BTreeMap::new();
        let mut used = vec![false; INTENTS_MAX];
        for (record, key, term) in marks {
            // Two records of one region: a power cut kept one that was being cleared. Either will do.
            if entries.contains_key(&key) {
                file.write_at(&[0; RECORD], u64::from(record) * RECORD as u64)?;
                continue;
            }
            entries.insert(key, Entry { record, term, generation: 0, written: 1, clean_since: None });
        }
        entries.values().for_each(|e| used[e.record as usize] = true);
        let free = (0..len_u32(INTENTS_MAX)).rev().filter(|i| !used[*i as usize]).collect();
        // A process that was killed may have written marks and not synced them, or in vain: who uses one makes it durable first.
        let found = !entries.is_empty();
        let inner = Inner { entries, free, written: u64::from(found), durable: 0, sync_failed: found };
        let inner = Mutex::new(inner);
        Ok(Intents { file, inner, flushing: tokio::sync::Mutex::new(()) })
    }

    /// Marks regions of an object and makes the marks durable; many callers share one sync. Returns whether this
    /// call synced..
    pub async fn mark(&self, object: ObjectId, regions: &[u64], term: u32) -> Result<bool, MarkError> {
        if planted("ost_skip_intent") {
            return Ok(false);
        }
        let needed = self.note(object, regions, term)?;
        self.flush(needed).await
    }

    /// As [`Intents::mark`] for several objects, with one sync for all of them.
    pub async fn mark_all(&self, objects: &[ObjectId], region: u64, term: u32) -> Result<bool, MarkError> {
        let mut needed = 0;
        for object in objects {
            needed = needed.max(self.note(*object, &[region], term)?);
        }
        self.flush(needed).await
    }

    fn note(&self, object: ObjectId, regions: &[u64], term: u32) -> Result<u64, MarkError> {
        let mut inner = self.inner.lock();
        let mut needed = 0;
        for region in regions {
            let key = (object, *region);
            if let Some(entry) = inner.entries.get_mut(&key) {
                entry.generation += 1;
                entry.clean_since = None;
                needed = needed.max(entry.written);
                continue;
            }
            let record = inner.free.pop().ok_or(MarkError::Full)?;
            if let Err(e) = self.file.write_at(&encode(&key, term), u64::from(record) * RECORD as u64) {
                inner.free.push(record);
                return Err(MarkError::Io(e));
            }
            inner.written += 1;
            let written = inner.written;
            needed = written;
            inner.entries.insert(key, Entry { record, term, generation: 0, written, clean_since: None });
        }
        Ok(needed)
    }

    /// Makes the first `needed` writes of records durable.
    async fn flush(&self, needed: u64) -> Result<bool, MarkError> {
        if self.inner.lock().durable >= needed {
            return Ok(false);
        }
        let _one = self.flushing.lock().await;
        let written = {
            let mut inner = self.inner.lock();
            if inner.durable >= needed {
                return Ok(false);
            }
            if inner.sync_failed {
                self.file.write_at(&inner.table(), 0).map_err(MarkError::Io)?;
                inner.sync_failed = false;
            }
            inner.written
        };
        if let Err(e) = self.file.sync_data_async().await {
            self.inner.lock().sync_failed = true;
            return Err(MarkError::Sync(e));
        }
        let mut inner = self.inner.lock();
        inner.durable = inner.durable.max(written);
        Ok(true)
    }

    /// The marks of an object now; handed to [`Intents::clear`] when a sync that begins now has ended.
    pub fn snapshot(&self, object: ObjectId) -> Vec<(u64, u64)> {
        let inner = self.inner.lock();
        let of_object = inner.entries.range((object, 0)..=(object, u64::MAX));
        of_object.map(|((_, region), e)| (*region, e.generation)).collect()
    }

    /// The regions of these marks are durable; marks that were used meanwhile stay.
    pub fn clear(&self, object: ObjectId, snapshot: &[(u64, u64)], now: Mono) {
        let mut inner = self.inner.lock();
        for (region, generation) in snapshot {
            if let Some(entry) = inner.entries.get_mut(&(object, *region))
                && entry.generation == *generation
            {
                entry.clean_since = Some(now);
            }
        }
    }

    /// Regions of an object that were marked in an older boot term: what a power cut may have torn.
    pub fn suspects(&self, object: ObjectId, term: u32) -> Vec<u64> {
        let inner = self.inner.lock();
        let of_object = inner.entries.range((object, 0)..=(object, u64::MAX));
        of_object.filter(|(_, e)| e.term != term).map(|((_, region), _)| *region).collect()
    }

    /// Objects with marks.
    pub fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.inner.lock().entries.keys().map(|(o, _)| *o).collect();
        objects.dedup();
        objects
    }

    /// Forgets the marks of an object at once (it was settled, or removed). Durable with the next flush.
    pub fn drop_object(&self, object: ObjectId) {
        let mut inner = self.inner.lock();
        let keys = inner.entries.range((object, 0)..=(object, u64::MAX)).map(|(key, _)| *key).collect();
        self.remove(&mut inner, keys);
    }

    /// Removes marks whose regions have been clean for a while (all clean ones, if `at_once`), durably.
    pub async fn reap(&self, now: Mono, at_once: bool) -> Result<bool, MarkError> {
        let written = {
            let mut inner = self.inner.lock();
            let old = |e: &Entry| e.clean_since.is_some_and(|at| at_once || now.ms_since(at) >= LINGER_MS);
            let over = inner.entries.iter().filter(|(_, e)| old(e)).map(|(k, _)| *k).collect();
            self.remove(&mut inner, over);
            inner.written
        };
        self.flush(written).await
    }

    fn remove(&self, inner: &mut Inner, keys: Vec<RegionKey>) {
        for key in keys {
            let Some(entry) = inner.entries.get(&key) else { continue };
            let record = entry.record;
            // A mark that stays on disk only makes verification more lenient; it is tried again by the next reap.
            if self.file.write_at(&[0; RECORD], u64::from(record) * RECORD as u64).is_ok() {
                inner.entries.remove(&key);
                inner.free.push(record);
                inner.written += 1;
            }
        }
    }
}

impl Inner {
    /// The whole table as it is to be on disk.
    fn table(&self) -> Vec<u8> {
        let mut bytes = vec![0; INTENTS_MAX * RECORD];
        for (key, entry) in &self.entries {
            let at = entry.record as usize * RECORD;
            bytes[at..at + RECORD].copy_from_slice(&encode(key, entry.term));
        }
        bytes
    }
}

/// Reason why a region could not be marked.
#[derive(Debug)]
pub enum MarkError {
    /// The table has no free record: sync, and try again.
    Full,
    /// Writing failed.
    Io(io::Error),
    /// The sync failed: a new boot term is due.
    Sync(io::Error),
}

/// Whether bytes are a record of this table, for tests with garbage.
#[cfg(test)]
pub(crate) fn decodes(record: &[u8]) -> bool {
    decode(record).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{block_on, new_disk};
    use brindle_sim::DiskOp;
    use brindle_types::{Ino, Pair};

    fn object(n: u64) -> ObjectId {
        ObjectId { ino: Ino(n), generation: Pair { term: 1, counter: 2 }, stripe: 3 }
    }

    #[test]
    fn golden_record() {
        let bytes = encode(&(object(9), 0x1122), 5);
        assert_eq!(
            crate::hex(&bytes[..40]),
            "42494e54000000050000000000000009000000010000000000000002000000030000000000001122"
        );
        assert_eq!(decode(&bytes), Some(((object(9), 0x1122), 5)));
    }

    #[test]
    fn a_mark_that_a_killed_process_left_unsynced_is_made_durable_by_whoever_uses_it() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let killed = Intents::open(&disk, "/t/intents").expect("open");
        killed.note(object(1), &[7], 1).map_err(|_| "not noted").expect("written");
        drop(killed);
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        assert!(block_on(intents.mark(object(1), &[7], 1)).expect("marked"), "it may not be on the disk");
        assert!(!block_on(intents.mark(object(1), &[7], 1)).expect("marked"), "now it is");
        let disk = disk.power_cut();
        assert_eq!(Intents::open(&disk, "/t/intents").expect("open").suspects(object(1), 2), [7]);
    }

    #[test]
    fn marks_are_durable_shared_and_cleared_only_when_unused() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        assert!(block_on(intents.mark(object(1), &[0, 7], 1)).expect("marked"), "one sync");
        assert!(!block_on(intents.mark(object(1), &[7], 1)).expect("marked"), "durable already");
        let snapshot = intents.snapshot(object(1));
        block_on(intents.mark(object(1), &[7], 1)).expect("used while a sync runs");
        intents.clear(object(1), &snapshot, Mono(0));
        block_on(intents.reap(Mono(0).plus_ms(1000), false)).expect("reaped");
        let disk = disk.power_cut();
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        assert_eq!(intents.suspects(object(1), 2), [7]);
        assert_eq!(intents.suspects(object(1), 1), [0u64; 0], "same term: nothing can be torn");
        assert_eq!(intents.objects(), [object(1)]);
        intents.drop_object(object(1));
        block_on(intents.reap(Mono(0), true)).expect("reaped");
        let disk = disk.power_cut();
        assert!(Intents::open(&disk, "/t/intents").expect("open").objects().is_empty());
    }

    #[test]
    fn a_mark_that_a_failed_sync_took_is_written_again() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        disk.fail_next(DiskOp::SyncFile, 1);
        let failed = block_on(intents.mark(object(1), &[7], 1));
        assert!(matches!(failed, Err(MarkError::Sync(_))));
        assert!(block_on(intents.mark(object(1), &[7], 1)).expect("marked"));
        let disk = disk.power_cut();
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        assert_eq!(intents.suspects(object(1), 2), [7]);
    }

    #[test]
    fn a_full_table_says_so() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let intents = Intents::open(&disk, "/t/intents").expect("open");
        let all: Vec<u64> = (0..INTENTS_MAX as u64).collect();
        block_on(intents.mark(object(1), &all, 1)).expect("room for all");
        assert!(matches!(block_on(intents.mark(object(2), &[0], 1)), Err(MarkError::Full)));
    }
}
