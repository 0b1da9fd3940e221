//! Blocks that are damaged here, or torn by a crash, taken from another copy of the object.
//!
//! A member of a replica set can replace such a block. [`OtherCopies`] knows the other members and which of them may be believed, and this
//! module writes their bytes over the local block. Two callers: [`ObjectStore::settle_left`], before a block counts as torn by a crash, and
//! writes of parts of blocks ([`crate::write`]).
//!
//! Invariant: a block that is whole here is never replaced.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::{BoxFuture, DiskFile};
use brindle_types::{Code, Fault, ObjectId};
use brindle_wire::oss::replica::ObjectImage;
use bytes::Bytes;

use crate::format::{BLOCK, block_range, blocks, data_pos, sum_pos};
use crate::object::Object;
use crate::read::read_blocks;
use crate::resum::{Torn, scan};
use crate::store::{ObjectStore, write_fault};
use crate::sums::{self, BLOCK_BYTES};

/// Most blocks that are asked for at once.
const RUN_BLOCKS: u64 = 256;

/// Blocks that are wanted from another copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBlocks {
    /// The object.
    pub object: ObjectId,
    /// Header of the local object: a copy with other epochs has other bytes.
    pub image: ObjectImage,
    /// The blocks.
    pub blocks: Range<u64>,
}

impl WantedBlocks {
    /// First byte.
    pub fn offset(&self) -> u64 {
        self.blocks.start * BLOCK
    }

    /// Bytes of the blocks.
    pub fn len_bytes(&self) -> u64 {
        (self.blocks.end - self.blocks.start) * BLOCK
    }

    /// Whether these bytes reach into the last of the blocks. A copy that ends before does not have all of them.
    pub fn are_all(&self, bytes: &[u8]) -> bool {
        let len = bytes.len() as u64;
        len <= self.len_bytes() && len.div_ceil(BLOCK) == self.blocks.end - self.blocks.start
    }
}

/// The way to other copies.
pub trait OtherCopies: Send + Sync {
    /// Bytes of blocks from a copy that has every one of them whole; `None` if no copy has. If that copy ends within the last block, the
    /// bytes end there, too.
    fn whole_blocks<'a>(&'a self, wanted: &'a WantedBlocks) -> BoxFuture<'a, Option<Bytes>>;
}

impl ObjectStore {
    /// From now on blocks that are damaged here are taken from there; `None`: from nowhere.
    pub fn ask_others(&self, others: Option<Arc<dyn OtherCopies>>) {
        *self.others.lock() = others;
    }

    fn others(&self) -> Option<Arc<dyn OtherCopies>> {
        self.others.lock().clone()
    }

    /// Replaces blocks of these ranges that do not match their checksums, where another copy has them whole. The caller holds all of the object, and
    /// syncs it.
    pub(crate) async fn take_from_others(
        &self,
        object: &Object,
        file: &Arc<dyn DiskFile>,
        ranges: &[Range<u64>],
    ) -> Result<(), Fault> {
        let Some(others) = self.others() else { return Ok(()) };
        let Ok((image, _)) = crate::replica::image_of(object) else { return Ok(()) };
        let (scanned, ranges) = (file.clone(), ranges.to_vec());
        let found = self.seams.run_blocking(move || mismatching(&*scanned, &ranges)).await;
        let found =
            found.ok_or_else(|| Fault::new(Code::Bug).what("the job that verifies blocks ended early"))?;
        let io = |e: io::Error| write_fault(object.id, &e);
        let (found, mut taken) = (found.map_err(io)?, 0);
        for run in runs(&found) {
            let wanted = WantedBlocks { object: object.id, image, blocks: run.clone() };
            if let Some(bytes) = whole(&*others, &wanted).await {
                put_whole(&**file, image.len_bytes, run.start, &bytes).map_err(io)?;
                taken += run.end - run.start;
                continue;
            }
            for block in run.clone().filter(|_| run.end - run.start > 1) {
                let wanted = WantedBlocks { blocks: block..block + 1, ..wanted.clone() };
                if let Some(bytes) = whole(&*others, &wanted).await {
                    put_whole(&**file, image.len_bytes, block, &bytes).map_err(io)?;
                    taken += 1;
                }
            }
        }
        if !found.is_empty() {
            let lacking = found.len() as u64 - taken;
            tracing::warn!(object = %object.id, taken, lacking, "blocks that a crash may have torn were taken from another copy");
        }
        Ok(())
    }

    /// Replaces the blocks at the edges of a write that is refused because they are damaged, where another copy has them whole. Returns whether one was
    /// replaced. Synced on return: a power cut leaves the old or the new block, or one that does not match. The caller holds the blocks.
    pub(crate) async fn mend_edges(&self, object: &Object, offset: u64, len: u64) -> Result<bool, Fault> {
        let Some(others) = self.others() else { return Ok(false) };
        let (image, Some(file)) = crate::replica::image_of(object)? else { return Ok(false) };
        let touched = block_range(offset, len);
        let mut edges = vec![touched.start, touched.end.saturating_sub(1)];
        edges.dedup();
        edges.retain(|block| *block < blocks(image.len_bytes) && !is_whole(&*file, *block));
        let mut is_mended = false;
        for block in edges {
            let wanted = WantedBlocks { object: object.id, image, blocks: block..block + 1 };
            let Some(bytes) = whole(&*others, &wanted).await else { continue };
            put_whole(&*file, image.len_bytes, block, &bytes).map_err(|e| write_fault(object.id, &e))?;
            is_mended = true;
        }
        if is_mended {
            let term = self.boot_term();
            let synced = file.sync_data_async().await;
            synced.map_err(|e| self.sync_failed(term, format!("object {}", object.id), &e))?;
        }
        Ok(is_mended)
    }
}

async fn whole(others: &dyn OtherCopies, wanted: &WantedBlocks) -> Option<Bytes> {
    others.whole_blocks(wanted).await.filter(|bytes| wanted.are_all(bytes))
}

fn is_whole(file: &dyn DiskFile, block: u64) -> bool {
    read_blocks(file, block..block + 1).is_ok_and(|(data, stored)| sums::verify(&data, &stored).is_ok())
}

/// Blocks that do not match their checksums, and those that the disk does not return, in order.
fn mismatching(file: &dyn DiskFile, ranges: &[Range<u64>]) -> io::Result<Vec<u64>> {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for range in ranges {
        let torn = |torn: Torn| {
            found.push(torn.block);
            Ok(())
        };
        // A sector that cannot be read may be written.
        scan(file, range.clone(), torn, |block| unread.push(block))?;
    }
    found.extend(unread);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Neighbouring blocks together.
fn runs(found: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in found {
        match runs.last_mut() {
            Some(run) if run.end == *block && run.end - run.start < RUN_BLOCKS => run.end += 1,
            _ => runs.push(*block..*block + 1),
        }
    }
    runs
}

/// Writes whole blocks from `first` on with their checksums, as far as an object of this length goes. Zeros follow behind `bytes`.
fn put_whole(file: &dyn DiskFile, len: u64, first: u64, bytes: &[u8]) -> io::Result<()> {
    for (block, bytes) in (first..blocks(len)).zip(bytes.chunks(BLOCK_BYTES)) {
        let mut content = vec![0; (len - block * BLOCK).min(BLOCK) as usize];
        let here = content.len().min(bytes.len());
        content[..here].copy_from_slice(&bytes[..here]);
        file.write_at(&content, data_pos(block * BLOCK))?;
        file.write_at(&sums::stored(&content).to_le_bytes(), sum_pos(block))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_asked_for_together_and_not_too_many() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3, 7, 9]), [1..4, 7..8, 9..10]);
        let many: Vec<u64> = (0..RUN_BLOCKS + 3).collect();
        assert_eq!(runs(&many), [0..RUN_BLOCKS, RUN_BLOCKS..RUN_BLOCKS + 3]);
    }
}
