//! Checksums of blocks, stored so that a hole verifies, and combined into the checksum of a whole transfer.

use std::sync::LazyLock;

use brindle_stdx::cast::to_usize;
use brindle_stdx::{crc, crc_append, crc_combine};
use brindle_types::{Code, Fault};

use crate::format::BLOCK;

/// Bytes of a block, as an index.
pub const BLOCK_BYTES: usize = to_usize(BLOCK);

static ZERO_BLOCK: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// Checksum of a block of zeros.
static ZERO_CRC: LazyLock<u32> = LazyLock::new(|| crc(&ZERO_BLOCK));
/// Effect of appending a block on the checksum of the bytes before it, by byte of that checksum.
static SHIFT: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let mut table = [[0; 256]; 4];
    for (byte, row) in table.iter_mut().enumerate() {
        for (value, out) in (0u32..).zip(row) {
            *out = crc_combine(value << (8 * byte), 0, BLOCK_BYTES);
        }
    }
    table
});

/// Checksum of A followed by a block whose checksum is `block`.
fn append_block(a: u32, block: u32) -> u32 {
    let t = &*SHIFT;
    let [b0, b1, b2, b3] = a.to_le_bytes();
    t[0][b0 as usize] ^ t[1][b1 as usize] ^ t[2][b2 as usize] ^ t[3][b3 as usize] ^ block
}

/// Stored sum of a block with this content (shorter than a block: zeros follow).
pub fn stored(content: &[u8]) -> u32 {
    assert!(content.len() <= BLOCK_BYTES, "more than a block");
    crc_append(crc(content), &ZERO_BLOCK[content.len()..]) ^ *ZERO_CRC
}

/// The pieces of a transfer at `offset`, cut at block boundaries: (block, start within the block, bytes).
pub fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut at = offset;
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let within = (at % BLOCK) as usize;
        let (head, tail) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
        let item = (at / BLOCK, within, head);
        // (The end of a piece that ends with 64 bits is used for nothing.)
        at = at.saturating_add(head.len() as u64);
        rest = tail;
        Some(item)
    })
}

/// Sums of a transfer's blocks, and the checksum of the whole in the same pass.
pub struct TransferSums {
    /// Sum to store for each block that the transfer touches; 0 for blocks that it covers only in part.
    pub sums: Vec<u32>,
    /// CRC32C of all bytes.
    pub total: u32,
}

/// Computes the sums of a transfer.
pub fn of_transfer(offset: u64, data: &[u8]) -> TransferSums {
    let mut sums = Vec::with_capacity(data.len() / BLOCK_BYTES + 2);
    let mut total = 0;
    for (_, _, piece) in pieces(offset, data) {
        if piece.len() == BLOCK_BYTES {
            let sum = crc(piece);
            total = append_block(total, sum);
            sums.push(sum ^ *ZERO_CRC);
        } else {
            total = crc_append(total, piece);
            sums.push(0);
        }
    }
    TransferSums { sums, total }
}

/// Refuses a transfer whose checksum is not the one that its sender computed.
pub fn check_transfer(total: u32, claimed: u32, len: usize) -> Result<(), Fault> {
    if total == claimed {
        return Ok(());
    }
    Err(Fault::new(Code::BadChecksum)
        .why(format!("{len} bytes have the checksum {total:08x}, the sender's is {claimed:08x}"))
        .data("nothing was written"))
}

/// A mismatch found while verifying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the block among the verified ones.
    pub index: usize,
    /// The sum that is stored.
    pub stored: u32,
    /// The sum of the bytes that were read.
    pub computed: u32,
}

/// Verifies whole blocks against little-endian stored sums; returns the checksums of the blocks, or the first
/// mismatch.
pub fn verify(data: &[u8], stored_sums: &[u8]) -> Result<Vec<u32>, Mismatch> {
    let mut crcs = Vec::with_capacity(data.len() / BLOCK_BYTES);
    for (index, (block, word)) in data.chunks(BLOCK_BYTES).zip(stored_sums.chunks_exact(4)).enumerate() {
        let have = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let sum = crc(block);
        if sum ^ *ZERO_CRC != have {
            return Err(Mismatch { index, stored: have, computed: sum ^ *ZERO_CRC });
        }
        crcs.push(sum);
    }
    Ok(crcs)
}

/// The checksum of `data`, which begins at `offset` of an object, where the checksums of its whole blocks are known:
/// `crcs[0]` is that of the block that holds `offset`.
pub fn total_of(offset: u64, data: &[u8], crcs: &[u32]) -> u32 {
    let mut total = 0;
    for ((_, _, piece), whole) in pieces(offset, data).zip(crcs) {
        total = match piece.len() {
            BLOCK_BYTES => append_block(total, *whole),
            _ => crc_append(total, piece),
        };
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
    }

    #[test]
    fn a_hole_verifies_and_a_short_block_counts_as_zero_filled() {
        assert_eq!(stored(&ZERO_BLOCK), 0);
        assert_eq!(stored(&[]), 0);
        let mut block = noise(100);
        let short = stored(&block);
        block.resize(BLOCK_BYTES, 0);
        assert_eq!(short, stored(&block));
    }

    #[test]
    fn totals_are_the_plain_checksum() {
        for (offset, len) in [(0, 0), (0, 4096), (1, 4096), (4095, 2), (100, 20_000), (8192, 12_288)] {
            let data = noise(len);
            let sums = of_transfer(offset, &data);
            assert_eq!(sums.total, crc(&data), "{len} bytes at {offset}");
            let crcs: Vec<u32> = sums.sums.iter().map(|s| s ^ *ZERO_CRC).collect();
            assert_eq!(total_of(offset, &data, &crcs), crc(&data));
        }
    }

    #[test]
    fn golden_sums() {
        assert_eq!(stored(b"brindle"), 0x659b_1979);
    }
}
