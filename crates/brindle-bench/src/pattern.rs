//! The bytes that files are filled with: a function of a seed, the file and the offset, so that every byte that is read
//! back can be compared without keeping what was written.
//!
//! Every eight bytes of a file differ from all others of it (a Weyl sequence), so a block in a wrong place is found as well
//! as a damaged one; and the loop is simple enough to run at the speed of memory.

use brindle_stdx::cast::to_usize;

/// Distance of neighbours in the sequence: 2^64 divided by the golden ratio, odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const WORD: u64 = 8;

/// The contents of one file.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    start: u64,
}

/// Eight bytes that are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset in the file, a multiple of eight unless the piece read began after it.
    pub offset: u64,
    /// Value that was written at the offset.
    pub expected: u64,
    /// Value that was read.
    pub found: u64,
}

impl Pattern {
    /// Contents of file number `file` of a run with this seed.
    pub fn of(seed: u64, file: u64) -> Pattern {
        let mixed = (seed ^ file.rotate_left(32)).wrapping_add(STEP).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Pattern { start: mixed ^ (mixed >> 31) }
    }

    fn word(self, index: u64) -> u64 {
        let x = self.start.wrapping_add(index.wrapping_mul(STEP));
        x ^ (x >> 32)
    }

    /// Fills `buffer` with the bytes of the file from `offset`.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let (head, body) = split_at_word(offset, buffer.len());
        let mut index = offset / WORD;
        if head > 0 {
            let word = self.word(index).to_be_bytes();
            let skip = (offset % WORD) as usize;
            buffer[..head].copy_from_slice(&word[skip..skip + head]);
            index += 1;
        }
        let mut words = buffer[head..head + body].chunks_exact_mut(to_usize(WORD));
        let mut x = self.start.wrapping_add(index.wrapping_mul(STEP));
        for word in &mut words {
            word.copy_from_slice(&(x ^ (x >> 32)).to_be_bytes());
            x = x.wrapping_add(STEP);
        }
        let tail = &mut buffer[head + body..];
        let word = (x ^ (x >> 32)).to_be_bytes();
        tail.copy_from_slice(&word[..tail.len()]);
    }

    /// The first difference between `data`, read at `offset`, and what was written there.
    pub fn check(self, offset: u64, data: &[u8]) -> Option<Mismatch> {
        const PIECE: usize = 4096;
        let mut expected = [0u8; PIECE];
        let mut at = offset;
        for piece in data.chunks(PIECE) {
            self.fill(at, &mut expected[..piece.len()]);
            if *piece != expected[..piece.len()] {
                return Some(difference(at, piece, &expected[..piece.len()]));
            }
            at += piece.len() as u64;
        }
        None
    }
}

/// Bytes before the first whole word, and bytes of whole words.
fn split_at_word(offset: u64, len: usize) -> (usize, usize) {
    let head = ((WORD - offset % WORD) % WORD).min(len as u64) as usize;
    (head, (len - head) / to_usize(WORD) * to_usize(WORD))
}

fn difference(offset: u64, found: &[u8], expected: &[u8]) -> Mismatch {
    let first = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
    let from = first / to_usize(WORD) * to_usize(WORD);
    let word = |bytes: &[u8]| {
        let end = bytes.len().min(from + to_usize(WORD));
        let mut word = [0; to_usize(WORD)];
        word[..end - from].copy_from_slice(&bytes[from..end]);
        u64::from_be_bytes(word)
    };
    Mismatch { offset: offset + from as u64, expected: word(expected), found: word(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_the_same_bytes() {
        let pattern = Pattern::of(7, 3);
        let mut whole = vec![0; 10_000];
        pattern.fill(0, &mut whole);
        for (offset, len) in [(0, 1), (3, 2), (5, 100), (8, 8), (4093, 5000), (9999, 1), (17, 0)] {
            let mut piece = vec![0; len];
            pattern.fill(offset as u64, &mut piece);
            assert_eq!(piece, whole[offset..offset + len], "{len} bytes at {offset}");
            assert_eq!(pattern.check(offset as u64, &piece), None);
        }
    }

    #[test]
    fn one_wrong_byte_is_found_and_named() {
        let pattern = Pattern::of(7, 3);
        let mut data = vec![0; 20_000];
        pattern.fill(47_008, &mut data);
        let right = u64::from_be_bytes(data[12_000..12_008].try_into().expect("eight bytes"));
        data[12_003] ^= 1;
        let wrong = pattern.check(47_008, &data).expect("found");
        assert_eq!(wrong, Mismatch { offset: 47_008 + 12_000, expected: right, found: right ^ (1 << 32) });
    }

    #[test]
    fn files_and_places_differ() {
        let bytes = |seed, file, offset| {
            let mut out = [0; 64];
            Pattern::of(seed, file).fill(offset, &mut out);
            out
        };
        let all = [bytes(1, 0, 0), bytes(1, 1, 0), bytes(2, 0, 0), bytes(1, 0, 64)];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }
}
