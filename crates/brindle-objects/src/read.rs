//! Reads objects. Every block is verified, and only verified blocks are returned.

use brindle_stdx::buffers::{ALIGN_BYTES, Buffer};
use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::IoKind;
use brindle_stdx::{DiskFile, planted};
use brindle_types::{Code, Fault, ObjectId};
use brindle_wire::oss::Ticket;
use bytes::Bytes;

use crate::format::{BLOCK, REGION, block_range, data_pos, sum_pos};
use crate::object::Object;
use crate::recent::{KEEP_BYTES, ReadCache};
use crate::store::ObjectStore;
use crate::sums::{self, Mismatch};
use crate::write::DIRECT_BYTES_MIN;
use crate::{TRANSFER_MAX, stats};

/// Bytes that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOut {
    /// Whether the object exists.
    pub exists: bool,
    /// The bytes; fewer than asked where the object ends.
    pub data: Bytes,
    /// CRC32C of the bytes.
    pub crc: u32,
    /// Boot term.
    pub boot_term: u32,
}

/// Reads whole blocks and their checksums; blocks behind the file's end are zeros.
pub(crate) fn read_blocks(
    file: &dyn DiskFile,
    range: std::ops::Range<u64>,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut data = vec![0; to_usize(range.end - range.start) * to_usize(BLOCK)];
    let (sums, _) = read_blocks_into(file, range, &mut data, false)?;
    Ok((data, sums))
}

/// Reads blocks into `data`, whose former contents do not matter. `direct`: long pieces bypass the page cache, unless
/// they are in it. Returns the sums, and the number of bytes that bypassed the page cache.
pub(crate) fn read_blocks_into(
    file: &dyn DiskFile,
    range: std::ops::Range<u64>,
    data: &mut [u8],
    direct: bool,
) -> std::io::Result<(Vec<u8>, u64)> {
    let mut sums = vec![0; to_usize(range.end - range.start) * 4];
    let mut direct_bytes = 0;
    let mut block = range.start;
    while block < range.end {
        let region_end = (block * BLOCK / REGION + 1) * REGION / BLOCK;
        let end = range.end.min(region_end);
        let (from, to) = (to_usize(block - range.start), to_usize(end - range.start));
        let room = &mut data[from * to_usize(BLOCK)..to * to_usize(BLOCK)];
        let pos = data_pos(block * BLOCK);
        let is_long = room.len() >= DIRECT_BYTES_MIN && room.as_ptr().align_offset(ALIGN_BYTES) == 0;
        let read = if direct && is_long && !file.is_in_memory(pos, BLOCK)? {
            // Meanwhile; they lie before the bytes.
            file.fetch(sum_pos(block), (end - block) * 4)?;
            match file.read_direct(room, pos) {
                Ok(read) => {
                    direct_bytes += read as u64;
                    read
                }
                // The kernel first writes back what it keeps of the range, which a disk that takes nothing any more refuses. Through
                // the page cache it can be read; if it cannot be read at all, that says why.
                Err(_) => file.read_at(room, pos)?,
            }
        } else {
            file.read_at(room, pos)?
        };
        room[read..].fill(0);
        file.read_at(&mut sums[from * 4..to * 4], sum_pos(block))?;
        block = end;
    }
    Ok((sums, direct_bytes))
}

impl ObjectStore {
    /// Reads `len_bytes` at `offset`.
    pub async fn read(
        &self,
        id: ObjectId,
        offset: u64,
        len_bytes: u64,
        ticket: &Ticket,
    ) -> Result<ReadOut, Fault> {
        let len_bytes = len_bytes.min(TRANSFER_MAX as u64);
        let wanted = offset..offset.saturating_add(len_bytes);
        loop {
            let boot_term = self.boot_term();
            let object = self.readable(id).await?;
            let _range = object.locks.read(block_range(offset, len_bytes.min(u64::MAX - offset))).await;
            if !self.still_ready(&object) {
                continue;
            }
            let (exists, layout_epoch, len, short) = {
                let s = object.state.lock();
                (s.exists(), s.header.layout_epoch, s.len, s.cut_by_others())
            };
            if !exists && ticket.must_exist {
                return Err(self.report_missing(id));
            }
            if ticket.layout_epoch < layout_epoch {
                return Err(Fault::new(Code::StaleLayout).subject(format!("object {id}")));
            }
            if short && wanted.end > len {
                let why = format!("its file ends at {len} bytes, and more were synced");
                stats::add(&self.stats.damaged_blocks, 1);
                return Err(crate::object::damaged(id, why));
            }
            let end = wanted.end.min(len);
            if !exists || end <= offset {
                return Ok(ReadOut { exists, data: Bytes::new(), crc: 0, boot_term });
            }
            // Take the permit last: the holder of the range may need one, too.
            let _permit = self.seams.disk.admit(IoKind::Read, to_usize(len_bytes)).await;
            let (data, crc) = self.read_verified(&object, offset, end - offset)?;
            stats::add(&self.stats.reads, 1);
            stats::add(&self.stats.read_bytes, data.len() as u64);
            return Ok(ReadOut { exists, data, crc, boot_term });
        }
    }

    /// Whether a read goes past the page cache.
    fn is_read_direct(&self, o: &Object, offset: u64, len: u64) -> bool {
        if len < DIRECT_BYTES_MIN as u64 || self.read_cache == ReadCache::On {
            return false;
        }
        if self.read_cache == ReadCache::Off {
            return true;
        }
        let again = self.recent.mark(&o.id, offset..offset + len);
        let mut s = o.state.lock();
        s.keep_bytes = if again { KEEP_BYTES } else { s.keep_bytes.saturating_sub(len) };
        s.keep_bytes == 0
    }

    /// Reads and verifies; the caller holds the range.
    pub(crate) fn read_verified(&self, o: &Object, offset: u64, len: u64) -> Result<(Bytes, u32), Fault> {
        let file = o.state.lock().file.clone().expect("the object exists");
        let range = block_range(offset, len);
        let mut data = Buffer::new(to_usize(range.end - range.start) * to_usize(BLOCK));
        let mut direct = self.is_read_direct(o, offset, len);
        let crcs = loop {
            // (Reads hold their thread either way; to hand its other work on first was measured to be slower.)
            let read = read_blocks_into(&*file, range.clone(), &mut data, direct);
            let (stored, direct_bytes) =
                read.map_err(|e| Fault::io(Code::OstIo, "cannot read", format!("object {}", o.id), &e))?;
            stats::add(&self.stats.direct_read_bytes, direct_bytes);
            match sums::verify(&data, &stored) {
                Ok(crcs) => break crcs,
                // After a failed writeback the page cache has the right bytes, until a sync tells of the
                // failure.
                Err(_) if direct_bytes > 0 => direct = false,
                Err(Mismatch { .. }) if planted("ost_bless_damage") => {
                    let all: Vec<u8> =
                        data.chunks(to_usize(BLOCK)).flat_map(|b| sums::stored(b).to_le_bytes()).collect();
                    drop(file.write_at(&all, sum_pos(range.start)));
                    break sums::verify(&data, &all).unwrap_or_default();
                }
                Err(Mismatch { index, stored, computed }) => {
                    return Err(self.report_damage(o.id, range.start + index as u64, stored, computed));
                }
            }
        };
        let skip = to_usize(offset - range.start * BLOCK);
        let bytes = data.freeze(skip + to_usize(len)).slice(skip..);
        let total = sums::total_of(offset, &bytes, &crcs);
        Ok((bytes, total))
    }
}
