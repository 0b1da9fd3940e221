//! Reads blocks for the scrub, from the disk where possible. A block that does not match its checksum is reported to the scrub; it does not
//! count as damage that a reader met.
//!
//! A block is read under the range lock of its object, like a read of a user, so that data and checksum are of one moment.
//! [`ObjectStore::ready`] has put right half-written blocks before.

use std::io;
use std::ops::Range;

use brindle_stdx::DiskFile;
use brindle_stdx::buffers::Buffer;
use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::IoKind;
use brindle_types::{Code, Fault, ObjectId};
use brindle_wire::oss::replica::{ObjectImage, VERIFY_BLOCKS_MAX};
use bytes::Bytes;

use crate::format::{BLOCK, blocks};
use crate::read::{read_blocks, read_blocks_into};
use crate::resum::{for_data, next_block};
use crate::store::ObjectStore;
use crate::sums;

/// A block that does not match its checksum, or that the disk does not return (then both checksums are 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// Number of the block in its object.
    pub block: u64,
    /// Checksum that is stored.
    pub stored: u32,
    /// Checksum of the bytes that were read.
    pub computed: u32,
}

/// Some blocks of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Header of the object.
    pub image: ObjectImage,
    /// Stored checksums of the blocks, 4 bytes each, fewer where the object ends.
    pub sums: Bytes,
    /// Blocks that do not match.
    pub damaged: Vec<DamagedBlock>,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// First later block that may have data here. `None`: only holes follow, or nothing.
    pub next_data: Option<u64>,
}

impl ObjectStore {
    /// Reads and verifies blocks; at most [`VERIFY_BLOCKS_MAX`]. `ObjectDamaged` where nothing of the object can be read.
    pub async fn verify(&self, id: ObjectId, from_block: u64, count: u64) -> Result<Verified, Fault> {
        let wanted = from_block..from_block.saturating_add(count.min(VERIFY_BLOCKS_MAX));
        loop {
            let object = self.ready(id).await?;
            let _range = object.locks.read(wanted.clone()).await;
            if !self.still_ready(&object) {
                continue;
            }
            let (image, file) = crate::replica::image_of(&object)?;
            let end = wanted.end.min(blocks(image.len_bytes));
            let Some(file) = file.filter(|_| from_block < end) else {
                return Ok(Verified { image, ..Verified::default() });
            };
            let bytes = (end - from_block) * BLOCK;
            let _permit = self.seams.disk.admit(IoKind::Read, to_usize(bytes)).await;
            let read = self.seams.run_blocking(move || verify_blocks(&*file, from_block..end)).await;
            let read =
                read.ok_or_else(|| Fault::new(Code::Bug).what("the job that verifies objects ended early"))?;
            let found =
                read.map_err(|e| Fault::io(Code::OstIo, "cannot read", format!("object {id}"), &e))?;
            return Ok(Verified { image, ..found });
        }
    }

    /// Counts a damaged block that nothing could mend, and keeps it among the findings.
    pub fn report_unmended(&self, id: ObjectId, damaged: &DamagedBlock) {
        // (Readers of the block get the fault.)
        let _fault = self.report_damage(id, damaged.block, damaged.stored, damaged.computed);
    }

    /// First block at or behind `from_block` that may have data here, found by what the file system knows of holes. `None`: there is none.
    pub async fn next_data(&self, id: ObjectId, from_block: u64) -> Result<Option<u64>, Fault> {
        let object = self.ready(id).await?;
        let file = {
            let s = object.state.lock();
            s.file.clone().filter(|_| s.exists())
        };
        let next = file.map_or(Ok(None), |file| next_block(&*file, from_block));
        next.map_err(|e| Fault::io(Code::OstIo, "cannot search", format!("object {id}"), &e))
    }

    /// Number of transfers of users so far: it tells whether anybody uses the store.
    pub fn transfers(&self) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        self.stats.reads.load(Relaxed) + self.stats.writes.load(Relaxed)
    }
}

impl Verified {
    /// Reads blocks one by one, because the disk did not return all of them. Blocks that it does not return are damaged. If it returns
    /// none, the error is `e`, which may concern the whole disk.
    fn one_by_one(
        &mut self,
        file: &dyn DiskFile,
        run: Range<u64>,
        (first, sums): (u64, &mut [u8]),
        e: io::Error,
    ) -> io::Result<()> {
        let mut unreadable = Vec::new();
        for block in run.clone() {
            let Ok((data, stored)) = read_blocks(file, block..block + 1) else {
                unreadable.push(DamagedBlock { block, stored: 0, computed: 0 });
                continue;
            };
            let at = to_usize(block - first) * 4;
            sums[at..at + 4].copy_from_slice(&stored);
            self.read_bytes += BLOCK;
            self.damaged.extend(mismatches(block, &data, &stored));
        }
        if unreadable.len() as u64 == run.end - run.start {
            return Err(e);
        }
        self.damaged.extend(unreadable);
        self.damaged.sort_unstable_by_key(|damaged| damaged.block);
        Ok(())
    }
}

fn verify_blocks(file: &dyn DiskFile, range: Range<u64>) -> io::Result<Verified> {
    let mut sums = vec![0; to_usize(range.end - range.start) * 4];
    let mut found = Verified::default();
    for_data(file, range.clone(), |run| {
        let mut data = Buffer::new(to_usize(run.end - run.start) * to_usize(BLOCK));
        let (mut stored, direct_bytes) = match read_blocks_into(file, run.clone(), &mut data, true) {
            Err(e) => return found.one_by_one(file, run, (range.start, &mut sums), e),
            Ok(read) => read,
        };
        let mut damaged = mismatches(run.start, &data, &stored);
        if !damaged.is_empty() && direct_bytes > 0 {
            // After a failed writeback the page cache has the right bytes, until a sync tells of the failure.
            (stored, _) = read_blocks_into(file, run.clone(), &mut data, false)?;
            damaged = mismatches(run.start, &data, &stored);
        }
        let at = to_usize(run.start - range.start) * 4;
        sums[at..at + stored.len()].copy_from_slice(&stored);
        found.read_bytes += data.len() as u64;
        found.damaged.extend(damaged);
        Ok(())
    })?;
    found.sums = sums.into();
    found.next_data = next_block(file, range.end)?;
    Ok(found)
}

/// Blocks that do not match their checksums.
fn mismatches(first: u64, data: &[u8], stored: &[u8]) -> Vec<DamagedBlock> {
    let (mut damaged, mut from) = (Vec::new(), 0);
    while let Err(m) = sums::verify(&data[from * to_usize(BLOCK)..], &stored[from * 4..]) {
        let index = from + m.index;
        damaged.push(DamagedBlock { block: first + index as u64, stored: m.stored, computed: m.computed });
        from = index + 1;
    }
    damaged
}
