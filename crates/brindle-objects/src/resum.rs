//! Computes sums anew from the blocks on disk: after a crash for blocks that it may have torn, and after a failed
//! write.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::DiskFile;
use brindle_stdx::cast::to_usize;

use crate::format::{
    BLOCK, HEADER, REGION, REGION_BLOCKS, STRIDE, SUMS, blocks, data_pos, file_len, object_len, sum_pos,
};
use crate::read::read_blocks;
use crate::settle::POISON;
use crate::sums;

/// Blocks that are read at once.
const CHUNK_BLOCKS: u64 = 256;

/// A block whose sum did not match its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torn {
    pub block: u64,
    pub stored: u32,
    pub computed: u32,
}

/// Calls `each` for runs of blocks within `range` that have data or sums in the file, at most [`CHUNK_BLOCKS`] long.
/// Holes with no sums verify by themselves and are passed over.
pub(crate) fn for_data(
    file: &dyn DiskFile,
    range: Range<u64>,
    mut each: impl FnMut(Range<u64>) -> io::Result<()>,
) -> io::Result<()> {
    let end = range.end.min(blocks(object_len(file.len()?)));
    let mut block = range.start;
    while let Some(next) = next_block(file, block)?.filter(|next| *next < end) {
        let stop = end.min((next / REGION_BLOCKS + 1) * REGION_BLOCKS).min(next + CHUNK_BLOCKS);
        each(next..stop)?;
        block = stop;
    }
    Ok(())
}

/// First block at or behind `block` whose region has data or sums in the file. `None`: there are only holes, or nothing.
pub(crate) fn next_block(file: &dyn DiskFile, block: u64) -> io::Result<Option<u64>> {
    let region_pos = data_pos(block / REGION_BLOCKS * REGION) - SUMS;
    let next = file.next_data(region_pos)?.map(|at| match at {
        at if at < region_pos + STRIDE => block,
        // The next data, sums included, lies behind this region.
        at => (at - HEADER) / STRIDE * REGION_BLOCKS,
    });
    let end = blocks(object_len(file.len()?));
    Ok(next.filter(|next| *next < end))
}

/// Blocks whose sums do not match, in data order; `found` may put them right. Blocks that the disk does not return are passed over: `unread` hears
/// of them.
pub(crate) fn scan(
    file: &dyn DiskFile,
    range: Range<u64>,
    mut found: impl FnMut(Torn) -> io::Result<()>,
    mut unread: impl FnMut(u64),
) -> io::Result<()> {
    for_data(file, range, |run| {
        let all = match read_blocks(file, run.clone()) {
            Ok(read) => vec![(run.start, read)],
            Err(_) => run
                .filter_map(|block| match read_blocks(file, block..block + 1) {
                    Ok(read) => Some((block, read)),
                    Err(_) => {
                        unread(block);
                        None
                    }
                })
                .collect(),
        };
        for (first, (data, stored)) in all {
            let mut from = 0;
            while let Err(m) = sums::verify(&data[from * to_usize(BLOCK)..], &stored[from * 4..]) {
                let index = from + m.index;
                found(Torn { block: first + index as u64, stored: m.stored, computed: m.computed })?;
                from = index + 1;
            }
        }
        Ok(())
    })
}

/// Makes the sums of a range tell what is there, except of blocks that were damaged before; returns what did not match. With `rewrite` the data is written
/// again, too, because a failed sync may have left it only in memory.
pub(crate) fn resum(file: &Arc<dyn DiskFile>, range: Range<u64>, rewrite: bool) -> io::Result<Vec<Torn>> {
    let mut torn = Vec::new();
    let resum_one = |t: Torn| {
        // No crash did that: the block was damaged when it was cut.
        if t.stored == t.computed ^ POISON {
            return Ok(());
        }
        file.write_at(&t.computed.to_le_bytes(), sum_pos(t.block))?;
        torn.push(t);
        Ok(())
    };
    // A block that the disk does not return stays as it is: its readers get the error.
    scan(&**file, range.clone(), resum_one, |_| {})?;
    if rewrite {
        let len = object_len(file.len()?);
        for_data(&**file, range, |run| {
            let (data, stored) = read_blocks(&**file, run.clone())?;
            let bytes = (len - run.start * BLOCK).min(data.len() as u64);
            file.write_at(&data[..to_usize(bytes)], data_pos(run.start * BLOCK))?;
            file.write_at(&stored, sum_pos(run.start))
        })?;
    }
    Ok(torn)
}

/// Takes away what a power cut left behind the object's end: sums whose data or length was lost. An extension
/// of the object relies on their being zero. Returns whether there was anything.
pub(crate) fn trim(file: &dyn DiskFile) -> io::Result<bool> {
    let raw = file.len()?;
    let len = object_len(raw);
    let mut found = false;
    if raw > file_len(len) {
        file.set_len(file_len(len))?;
        found = true;
    }
    let first = blocks(len);
    if !first.is_multiple_of(REGION_BLOCKS) {
        let mut sums = vec![0; to_usize((REGION_BLOCKS - first % REGION_BLOCKS) * 4)];
        file.read_at(&mut sums, sum_pos(first))?;
        if sums.iter().any(|b| *b != 0) {
            sums.fill(0);
            file.write_at(&sums, sum_pos(first))?;
            found = true;
        }
    }
    Ok(found)
}

/// Makes the sums of a range tell what is there, without a word: the caller's own write failed in it.
pub(crate) fn make_true(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    scan(file, range, |t| file.write_at(&t.computed.to_le_bytes(), sum_pos(t.block)), |_| {})
}
