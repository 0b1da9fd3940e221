//! The common outside of small files: magic, format version, length and checksum around a postcard body.
//!
//! ```text
//! 0  magic            8 bytes
//! 8  format version   u32, big-endian
//! 12 body length      u32
//! 16 CRC32C of bytes 0..16 and the body
//! 20 body
//! ```
//!
//! Called by the superblock, the local store and backups of the configuration. Invariant: these 20 bytes never change, so that every release can
//! tell a newer file from a damaged one.

use brindle_stdx::cast::len_u32;
use brindle_stdx::codec::Reader;
use brindle_stdx::{crc, crc_append};

/// Bytes in front of the body.
const HEAD_LEN: usize = 20;
/// Bytes that the checksum covers besides the body.
const SUMMED_LEN: usize = 16;

/// Reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The bytes are not those that were written; the reason.
    Damaged(String),
    /// The file is sound, and of a format that this release does not know.
    Newer {
        /// Version in the file.
        found: u32,
        /// Newest version that this release knows.
        known: u32,
    },
}

/// Wraps a body.
pub fn seal(magic: &[u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEAD_LEN + body.len());
    file.extend_from_slice(magic);
    file.extend_from_slice(&version.to_be_bytes());
    file.extend_from_slice(&len_u32(body.len()).to_be_bytes());
    let sum = crc_append(crc(&file), body);
    file.extend_from_slice(&sum.to_be_bytes());
    file.extend_from_slice(body);
    file
}

/// The format version and the body of a file, after every check that needs no knowledge of it.
pub fn unseal<'a>(magic: &[u8; 8], known: u32, file: &'a [u8]) -> Result<(u32, &'a [u8]), Unreadable> {
    let damaged = |why: String| Err(Unreadable::Damaged(why));
    let mut r = Reader::new(file);
    let head = (|| Some((r.take(8)?, r.u32()?, r.u32()? as usize, r.u32()?)))();
    let Some((found_magic, version, body_len, sum)) = head else {
        return damaged(format!("it has {} bytes, less than its header", file.len()));
    };
    if found_magic != magic {
        return damaged("it does not begin with its magic bytes".to_owned());
    }
    let body = r.rest();
    if body.len() != body_len {
        return damaged(format!("it has {} bytes behind its header, and should have {body_len}", body.len()));
    }
    let found = crc_append(crc(&file[..SUMMED_LEN]), body);
    if found != sum {
        return damaged(format!("its checksum is {found:08x}, and should be {sum:08x}"));
    }
    if version == 0 || version > known {
        return Err(Unreadable::Newer { found: version, known });
    }
    Ok((version, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"TESTFILE";

    #[test]
    fn every_damaged_bit_and_every_cut_is_noticed() {
        let good = seal(MAGIC, 3, b"some body");
        assert_eq!(unseal(MAGIC, 3, &good), Ok((3, &b"some body"[..])));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(unseal(MAGIC, u32::MAX, &bad), Err(Unreadable::Damaged(_))), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(matches!(unseal(MAGIC, 3, &good[..len]), Err(Unreadable::Damaged(_))), "cut at {len}");
        }
    }

    #[test]
    fn newer_is_not_damaged() {
        let file = seal(MAGIC, 4, b"x");
        assert_eq!(unseal(MAGIC, 3, &file), Err(Unreadable::Newer { found: 4, known: 3 }));
    }
}
