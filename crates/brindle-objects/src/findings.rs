//! Findings of the store, kept for fsck and for people: a ring of fixed-size records in a file.
//!
//! Best effort: records are synced in the background, and counters go on when the ring is full.

use std::io;
use std::sync::Arc;

use brindle_stdx::codec::Reader;
use brindle_stdx::disk::{OpenHow, read_file};
use brindle_stdx::{Disk, DiskFile};
use brindle_types::ObjectId;
use parking_lot::Mutex;

use crate::format::{put_object, seal, take_object, unseal};

const MAGIC: u32 = 0x4246_4e44; // BFND
const RECORD: usize = 64;
/// Most findings that are kept.
pub const FINDINGS_MAX: usize = 4096;

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FindingKind {
    /// A block that a crash had torn; its checksum was computed anew.
    Resummed = 1,
    /// A block that does not match its checksum.
    Damaged = 2,
    /// An object whose owner no MDT knows was set aside.
    Quarantined = 3,
    /// An object that the MDT knows to exist was not there when somebody used it.
    Missing = 4,
}

/// A finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// The object.
    pub object: ObjectId,
    /// Byte within the object where the block begins.
    pub offset: u64,
    /// Checksum that was stored.
    pub stored: u32,
    /// Checksum of the bytes that were read.
    pub computed: u32,
    /// Boot term in which the finding was made.
    pub boot_term: u32,
}

impl Finding {
    fn encode(&self, number: u64) -> [u8; RECORD] {
        let mut body = Vec::with_capacity(RECORD);
        body.extend(MAGIC.to_be_bytes());
        body.push(self.kind as u8);
        put_object(&mut body, &self.object);
        body.extend(self.offset.to_be_bytes());
        body.extend(self.stored.to_be_bytes());
        body.extend(self.computed.to_be_bytes());
        body.extend(self.boot_term.to_be_bytes());
        body.extend(number.to_be_bytes());
        seal(&body)
    }

    fn decode(record: &[u8]) -> Option<(u64, Finding)> {
        let mut r = Reader::new(unseal(record)?);
        (r.u32()? == MAGIC).then_some(())?;
        let kind = match r.u8()? {
            1 => FindingKind::Resummed,
            2 => FindingKind::Damaged,
            3 => FindingKind::Quarantined,
            4 => FindingKind::Missing,
            _ => return None,
        };
        let object = take_object(&mut r)?;
        let (offset, stored, computed, boot_term) = (r.u64()?, r.u32()?, r.u32()?, r.u32()?);
        Some((r.u64()?, Finding { kind, object, offset, stored, computed, boot_term }))
    }
}

/// The ring.
pub struct Findings {
    inner: Mutex<Inner>,
}

struct Inner {
    file: Arc<dyn DiskFile>,
    next: u64,
    unsynced: bool,
    kept: Vec<(u64, Finding)>,
}

/// The findings in a file, oldest first.
pub fn load(disk: &dyn Disk, path: &str) -> Vec<(u64, Finding)> {
    let bytes = read_file(disk, path, FINDINGS_MAX * RECORD).unwrap_or_default();
    let mut kept: Vec<_> = bytes.chunks_exact(RECORD).filter_map(Finding::decode).collect();
    kept.sort_by_key(|(number, _)| *number);
    kept
}

impl Findings {
    /// Opens the ring, or makes it.
    pub fn open(disk: &dyn Disk, path: &str) -> io::Result<Findings> {
        let file = disk.open(path, OpenHow::OpenOrCreate)?;
        let kept = load(disk, path);
        let next = kept.last().map_or(0, |(number, _)| number + 1);
        Ok(Findings { inner: Mutex::new(Inner { file, next, unsynced: false, kept }) })
    }

    /// Keeps a finding. A repeated finding is kept once.
    pub fn add(&self, finding: Finding) {
        let mut inner = self.inner.lock();
        if inner.kept.iter().any(|(_, f)| *f == finding) {
            return;
        }
        let number = inner.next;
        inner.next += 1;
        inner.unsynced = true;
        if inner.kept.len() >= FINDINGS_MAX {
            inner.kept.remove(0);
        }
        inner.kept.push((number, finding));
        let at = number % FINDINGS_MAX as u64 * RECORD as u64;
        if let Err(e) = inner.file.write_at(&finding.encode(number), at) {
            tracing::warn!(error = %e, object = %finding.object, "cannot record a finding");
        }
    }

    /// Forgets findings: they are not told any more, by the next process neither.
    pub fn forget(&self, which: impl Fn(&Finding) -> bool) {
        let mut inner = self.inner.lock();
        let (gone, kept): (Vec<_>, Vec<_>) = inner.kept.drain(..).partition(|(_, finding)| which(finding));
        inner.kept = kept;
        inner.unsynced |= !gone.is_empty();
        for (number, finding) in gone {
            let at = number % FINDINGS_MAX as u64 * RECORD as u64;
            if let Err(e) = inner.file.write_at(&[0; RECORD], at) {
                tracing::warn!(error = %e, object = %finding.object, "cannot forget a finding");
            }
        }
    }

    /// Makes added findings durable.
    pub async fn sync(&self) -> io::Result<()> {
        let file = {
            let mut inner = self.inner.lock();
            if !std::mem::take(&mut inner.unsynced) {
                return Ok(());
            }
            inner.file.clone()
        };
        file.sync_data_async().await
    }

    /// All that are kept, oldest first.
    pub fn list(&self) -> Vec<Finding> {
        self.inner.lock().kept.iter().map(|(_, f)| *f).collect()
    }
}

/// Whether bytes are a record of this table, for tests with garbage.
#[cfg(test)]
pub(crate) fn decodes(record: &[u8]) -> bool {
    Finding::decode(record).is_some()
}
