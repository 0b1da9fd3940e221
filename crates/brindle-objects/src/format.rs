//! The format of an object file: a header block, then regions of one block of sums and 1024 blocks of data.
//!
//! ```text
//! 0      4096        8192                 8192 + 4 MiB
//! header | sums 0    | data of region 0   | sums 1 | data of region 1 | ...
//! ```
//!
//! The file's length tells the object's length, exact to a byte. Bytes behind the object's end in its last block
//! count as zero. Header fields are big-endian; sums are little-endian words, one a block.
//!
//! Invariant: the header's fields lie in one 512-byte sector, so that a power cut leaves the old or the new header.

use brindle_stdx::codec::Reader;
use brindle_stdx::crc;
use brindle_types::attr::Time;
use brindle_types::{Ino, ObjectId, Pair};

/// Bytes that share one checksum.
pub const BLOCK: u64 = 4096;
/// Blocks of a region.
pub const REGION_BLOCKS: u64 = 1024;
/// Data bytes of a region.
pub const REGION: u64 = BLOCK * REGION_BLOCKS;
/// Bytes of the header block.
pub const HEADER: u64 = BLOCK;
/// Bytes of a region's block of sums.
pub const SUMS: u64 = BLOCK;
/// Bytes from one region to the next in the file.
pub const STRIDE: u64 = SUMS + REGION;
/// Largest object: its file still has a length that a local file system can express.
pub const OBJECT_LEN_MAX: u64 = (1 << 62) - 1;

/// First four bytes of an object file: `BOBJ`.
const MAGIC: u32 = 0x424f_424a;
/// Version of the format.
const VERSION: u16 = 1;
/// Bytes of the sector that holds the header's fields.
pub const HEADER_SECTOR: usize = 512;
const CRC_AT: std::ops::Range<usize> = 8..12;
const NO_CUT: u64 = u64::MAX;

/// The object has only fences: no write has made it yet.
const FLAG_FENCE_ONLY: u16 = 1;
/// The directory entry is known to be durable.
const FLAG_LINKED: u16 = 2;
/// Changed since the last sync.
const FLAG_DIRTY: u16 = 4;

/// Position of byte `offset` of the object in its file.
pub fn data_pos(offset: u64) -> u64 {
    HEADER + offset / REGION * STRIDE + SUMS + offset % REGION
}

/// Position of the sum of a block in the file.
pub fn sum_pos(block: u64) -> u64 {
    HEADER + block / REGION_BLOCKS * STRIDE + block % REGION_BLOCKS * 4
}

/// Length of the file of an object of this length.
pub fn file_len(object_len: u64) -> u64 {
    object_len.checked_sub(1).map_or(HEADER, |last| data_pos(last) + 1)
}

/// Length of the object in a file of this length.
pub fn object_len(file_len: u64) -> u64 {
    let rest = file_len.saturating_sub(HEADER);
    rest / STRIDE * REGION + (rest % STRIDE).saturating_sub(SUMS)
}

/// The byte of the object that lies at `pos` of the file, or the first one behind it where `pos` is no data.
pub fn object_offset(pos: u64) -> u64 {
    object_len(pos)
}

/// Bytes of data in a file that takes `raw` bytes on the device: without header and, as far as can be told, sums.
pub fn data_allocated(raw: u64) -> u64 {
    let rest = raw.saturating_sub(HEADER);
    rest.saturating_sub(rest.div_ceil(STRIDE) * SUMS)
}

/// Number of blocks of an object of this length.
pub fn blocks(object_len: u64) -> u64 {
    object_len.div_ceil(BLOCK)
}

/// The blocks that a byte range touches.
pub fn block_range(offset: u64, len: u64) -> std::ops::Range<u64> {
    if len == 0 { offset / BLOCK..offset / BLOCK } else { offset / BLOCK..(offset + len).div_ceil(BLOCK) }
}

/// The header of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identity of the object; a file under another name is damage.
    pub object: ObjectId,
    /// File system.
    pub fs_id: u64,
    /// Lowest layout epoch that is accepted.
    pub layout_epoch: Pair,
    /// Lowest truncate epoch that is accepted.
    pub truncate_epoch: Pair,
    /// Attribute epoch and server time of the last write.
    pub last_write: Option<(Pair, Time)>,
    /// High-water mark: blocks below it were synced, and are verified without mercy outside the intent table.
    pub synced_blocks: u64,
    /// Boot term in which blocks at or above the high-water mark were last written.
    pub dirty_term: u32,
    /// A cut to this length was decided and may not have been finished.
    pub pending_cut: Option<u64>,
    /// The file holds only fences: no object of this name exists yet.
    pub fence_only: bool,
    /// The directory entry is known to be durable.
    pub linked: bool,
    /// Changed since the last sync.
    pub dirty: bool,
}

/// State of the first sector of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderState {
    /// A good header.
    Good(Header),
    /// Zeros or nothing: the file was made, and its header never reached the disk. The object does not exist.
    Never,
    /// The header is damaged, with the reason.
    Damaged(String),
}

impl Header {
    /// The header of a new object.
    pub fn new(object: ObjectId, fs_id: u64) -> Header {
        Header {
            object,
            fs_id,
            layout_epoch: Pair::ZERO,
            truncate_epoch: Pair::ZERO,
            last_write: None,
            synced_blocks: 0,
            dirty_term: 0,
            pending_cut: None,
            fence_only: false,
            linked: false,
            dirty: false,
        }
    }

    /// The sector's bytes.
    pub fn encode(&self) -> [u8; HEADER_SECTOR] {
        let mut out = Vec::with_capacity(HEADER_SECTOR);
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let flags = flag(self.fence_only, FLAG_FENCE_ONLY)
            | flag(self.linked, FLAG_LINKED)
            | flag(self.dirty, FLAG_DIRTY);
        let (attr_epoch, time) = self.last_write.unwrap_or_default();
        out.extend(MAGIC.to_be_bytes());
        out.extend(VERSION.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend([0; 4]); // checksum
        out.extend(self.dirty_term.to_be_bytes());
        out.extend(self.fs_id.to_be_bytes());
        put_object(&mut out, &self.object);
        put_pair(&mut out, self.layout_epoch);
        put_pair(&mut out, self.truncate_epoch);
        out.push(u8::from(self.last_write.is_some()));
        put_pair(&mut out, attr_epoch);
        out.extend(time.secs.to_be_bytes());
        out.extend(time.nanos.to_be_bytes());
        out.extend(self.synced_blocks.to_be_bytes());
        out.extend(self.pending_cut.unwrap_or(NO_CUT).to_be_bytes());
        let mut sector = [0; HEADER_SECTOR];
        sector[..out.len()].copy_from_slice(&out);
        let sum = crc(&sector);
        sector[CRC_AT].copy_from_slice(&sum.to_be_bytes());
        sector
    }

    /// Reads a sector (shorter when the file is).
    pub fn decode(bytes: &[u8]) -> HeaderState {
        if bytes.iter().all(|b| *b == 0) {
            return HeaderState::Never;
        }
        let Ok(mut sector) = <[u8; HEADER_SECTOR]>::try_from(bytes) else {
            return HeaderState::Damaged(format!("its header has {} bytes", bytes.len()));
        };
        let stored = u32::from_be_bytes([sector[8], sector[9], sector[10], sector[11]]);
        sector[CRC_AT].fill(0);
        let computed = crc(&sector);
        if stored != computed {
            return HeaderState::Damaged(format!(
                "its header's checksum is {computed:08x}, stored is {stored:08x}"
            ));
        }
        match Header::fields(&sector) {
            Some(header) => HeaderState::Good(header),
            None => HeaderState::Damaged("its header is of another format or version".into()),
        }
    }

    fn fields(sector: &[u8]) -> Option<Header> {
        let mut r = Reader::new(sector);
        if r.u32()? != MAGIC || r.u16()? != VERSION {
            return None;
        }
        let flags = r.u16()?;
        r.u32()?;
        let dirty_term = r.u32()?;
        let fs_id = r.u64()?;
        let object = take_object(&mut r)?;
        let layout_epoch = take_pair(&mut r)?;
        let truncate_epoch = take_pair(&mut r)?;
        let written = r.u8()? == 1;
        let attr_epoch = take_pair(&mut r)?;
        let time = Time { secs: r.u64()?.cast_signed(), nanos: r.u32()? };
        let synced_blocks = r.u64()?;
        let pending_cut = Some(r.u64()?).filter(|cut| *cut != NO_CUT);
        Some(Header {
            object,
            fs_id,
            layout_epoch,
            truncate_epoch,
            last_write: written.then_some((attr_epoch, time)),
            synced_blocks,
            dirty_term,
            pending_cut,
            fence_only: flags & FLAG_FENCE_ONLY != 0,
            linked: flags & FLAG_LINKED != 0,
            dirty: flags & FLAG_DIRTY != 0,
        })
    }
}

/// Appends a pair.
pub fn put_pair(out: &mut Vec<u8>, pair: Pair) {
    out.extend(pair.term.to_be_bytes());
    out.extend(pair.counter.to_be_bytes());
}

/// Reads a pair.
pub fn take_pair(r: &mut Reader<'_>) -> Option<Pair> {
    Some(Pair { term: r.u32()?, counter: r.u64()? })
}

/// Appends an object's name.
pub fn put_object(out: &mut Vec<u8>, object: &ObjectId) {
    out.extend(object.ino.0.to_be_bytes());
    put_pair(out, object.generation);
    out.extend(object.stripe.to_be_bytes());
}

/// Reads an object's name.
pub fn take_object(r: &mut Reader<'_>) -> Option<ObjectId> {
    Some(ObjectId { ino: Ino(r.u64()?), generation: take_pair(r)?, stripe: r.u32()? })
}

/// A record of `N` bytes with its checksum in the last four.
pub fn seal<const N: usize>(body: &[u8]) -> [u8; N] {
    let mut record = [0; N];
    record[..body.len()].copy_from_slice(body);
    let sum = crc(&record[..N - 4]);
    record[N - 4..].copy_from_slice(&sum.to_be_bytes());
    record
}

/// The body of a sealed record; `None` when its checksum is wrong.
pub fn unseal(record: &[u8]) -> Option<&[u8]> {
    let (body, sum) = record.split_at_checked(record.len().checked_sub(4)?)?;
    (crc(body).to_be_bytes() == sum).then_some(body)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample() -> Header {
        Header {
            object: ObjectId { ino: Ino(0x0102), generation: Pair { term: 3, counter: 4 }, stripe: 5 },
            fs_id: 0xfeed,
            layout_epoch: Pair { term: 6, counter: 7 },
            truncate_epoch: Pair { term: 8, counter: 9 },
            last_write: Some((Pair { term: 10, counter: 11 }, Time { secs: -12, nanos: 13 })),
            synced_blocks: 14,
            dirty_term: 15,
            pending_cut: Some(16),
            fence_only: true,
            linked: true,
            dirty: true,
        }
    }

    #[test]
    fn header_round_trips_and_notices_every_flipped_bit() {
        let bytes = sample().encode();
        assert_eq!(Header::decode(&bytes), HeaderState::Good(sample()));
        for bit in 0..HEADER_SECTOR * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&bad), HeaderState::Damaged(_)), "bit {bit}");
        }
        assert_eq!(Header::decode(&[0; HEADER_SECTOR]), HeaderState::Never);
        assert_eq!(Header::decode(&[]), HeaderState::Never);
        assert!(matches!(Header::decode(&bytes[..100]), HeaderState::Damaged(_)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn lengths_and_places_agree(
            len in prop_oneof![0u64..40_000_000, OBJECT_LEN_MAX - 9_000_000..OBJECT_LEN_MAX],
        ) {
            prop_assert_eq!(object_len(file_len(len)), len);
            prop_assert_eq!(object_offset(data_pos(len)), len);
            prop_assert!(sum_pos(len / BLOCK) < data_pos(len));
            prop_assert!(file_len(len) <= i64::MAX as u64);
            let pos = sum_pos(len / BLOCK);
            prop_assert_eq!(object_len(pos), len / REGION * REGION, "a file that ends in sums");
        }
    }
}
