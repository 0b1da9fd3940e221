//! A file of a fixed size with the samples of a fixed number of time slots: the newest take the places of the oldest.
//!
//! ```text
//! header   64 bytes: magic, seconds of a slot, number of slots, checksum
//! slot n   152 bytes: checksum over all else and n; the sample, little-endian
//! ```
//!
//! A sample of the time `t` lies in the slot `t / step mod slots`. Each sample is written by one call and never synced: after a kill all
//! samples are there, after a power cut the last ones may be missing. A slot that was torn or damaged has a wrong checksum, and counts as
//! empty.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use brindle_stdx::cast::{from_i64, low_u32, to_i64, to_usize};

use super::history::{Metadata, Sample};

const MAGIC: &[u8; 16] = b"brindle-history1";
const HEADER_BYTES: u64 = 64;
const CHECKSUM_BYTES: usize = 8;
/// Numbers of a sample, eight bytes each.
const NUMBERS: usize = 18;
const SLOT_BYTES: usize = CHECKSUM_BYTES + NUMBERS * 8;

/// The file.
#[derive(Debug)]
pub struct Ring {
    file: File,
    step_s: i64,
    slots: u64,
}

impl Ring {
    /// Opens the file, or makes it; returns its samples, in no order. A file of another form is made anew: its samples are lost.
    pub fn open(path: &Path, step_s: i64, slots: u64) -> io::Result<(Ring, Vec<Sample>)> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let ring = Ring { file, step_s, slots };
        let (header, length) = (ring.header(), HEADER_BYTES + slots * SLOT_BYTES as u64);
        let mut found = vec![0; header.len()];
        let is_ours = ring.file.metadata()?.len() == length && {
            ring.file.read_exact_at(&mut found, 0)?;
            found == header
        };
        if !is_ours {
            ring.file.set_len(0)?;
            ring.file.set_len(length)?;
            ring.file.write_all_at(&header, 0)?;
            return Ok((ring, Vec::new()));
        }
        let mut bytes = vec![0; to_usize(slots) * SLOT_BYTES];
        ring.file.read_exact_at(&mut bytes, HEADER_BYTES)?;
        let slots = (0..).zip(bytes.chunks_exact(SLOT_BYTES));
        let samples = slots.filter_map(|(slot, bytes)| ring.decode(slot, bytes)).collect();
        Ok((ring, samples))
    }

    /// Writes a sample into its slot.
    pub fn write(&self, sample: &Sample) -> io::Result<()> {
        let slot = self.slot(sample.at_s);
        let mut bytes = [0; SLOT_BYTES];
        for (number, place) in numbers(sample).iter().zip(bytes[CHECKSUM_BYTES..].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(slot, &bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&sum);
        self.file.write_all_at(&bytes, HEADER_BYTES + slot * SLOT_BYTES as u64)
    }

    fn slot(&self, at_s: i64) -> u64 {
        from_i64(at_s.div_euclid(self.step_s).rem_euclid(to_i64(self.slots)))
    }

    fn decode(&self, slot: u64, bytes: &[u8]) -> Option<Sample> {
        let (sum, body) = bytes.split_at(CHECKSUM_BYTES);
        if sum != checksum(slot, body) {
            return None;
        }
        let mut words = [0; NUMBERS];
        for (word, place) in words.iter_mut().zip(body.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let sample = sample(&words);
        (self.slot(sample.at_s) == slot).then_some(sample)
    }

    fn header(&self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend(self.step_s.to_le_bytes());
        header.extend(self.slots.to_le_bytes());
        header.extend((SLOT_BYTES as u64).to_le_bytes());
        let sum = checksum(u64::MAX, &header);
        header.extend(sum);
        header.resize(to_usize(HEADER_BYTES), 0);
        header
    }
}

fn checksum(slot: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&slot.to_le_bytes()).update(bytes);
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_BYTES]);
    sum
}

fn numbers(sample: &Sample) -> [u64; NUMBERS] {
    let m = &sample.metadata;
    let heard_and_asked = u64::from(sample.daemons_heard) << 32 | u64::from(sample.daemons_asked);
    [
        sample.at_s.cast_unsigned(),
        sample.read_bytes_per_second.to_bits(),
        sample.written_bytes_per_second.to_bits(),
        sample.reads_per_second.to_bits(),
        sample.writes_per_second.to_bits(),
        m.lookup.to_bits(),
        m.open.to_bits(),
        m.create.to_bits(),
        m.remove.to_bits(),
        m.rename.to_bits(),
        m.list.to_bits(),
        m.set_attributes.to_bits(),
        m.small_file_data.to_bits(),
        m.other.to_bits(),
        sample.used_bytes,
        sample.total_bytes,
        heard_and_asked,
        0,
    ]
}

fn sample(words: &[u64; NUMBERS]) -> Sample {
    let rate = |at: usize| f64::from_bits(words[at]);
    Sample {
        at_s: words[0].cast_signed(),
        read_bytes_per_second: rate(1),
        written_bytes_per_second: rate(2),
        reads_per_second: rate(3),
        writes_per_second: rate(4),
        metadata: Metadata {
            lookup: rate(5),
            open: rate(6),
            create: rate(7),
            remove: rate(8),
            rename: rate(9),
            list: rate(10),
            set_attributes: rate(11),
            small_file_data: rate(12),
            other: rate(13),
        },
        used_bytes: words[14],
        total_bytes: words[15],
        daemons_heard: (words[16] >> 32) as u32,
        daemons_asked: low_u32(words[16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(at_s: i64) -> Sample {
        let mut words: [u64; NUMBERS] = std::array::from_fn(|n| (at_s as f64 + n as f64).to_bits());
        (words[0], words[17]) = (at_s.cast_unsigned(), 0);
        sample(&words)
    }

    #[test]
    fn what_was_written_is_read_and_damage_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let (ring, empty) = Ring::open(&path, 10, 6).unwrap();
        assert!(empty.is_empty());
        let all: Vec<Sample> = (0..10).map(|n| some(n * 10)).collect();
        all.iter().for_each(|sample| ring.write(sample).unwrap());
        let length = path.metadata().unwrap().len();
        assert_eq!(length, HEADER_BYTES + 6 * SLOT_BYTES as u64);
        let read = || {
            let (_, mut samples) = Ring::open(&path, 10, 6).unwrap();
            samples.sort_by_key(|sample| sample.at_s);
            samples
        };
        assert_eq!(read(), all[4..]);
        // A bit anywhere in a slot makes that slot empty, and no other.
        let mut bytes = std::fs::read(&path).unwrap();
        for at in [0, 7, 8, SLOT_BYTES - 1] {
            let place = HEADER_BYTES as usize + 2 * SLOT_BYTES + at;
            bytes[place] ^= 4;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(read().len(), 5, "{at}");
            bytes[place] ^= 4;
        }
        // A slot in another's place is none.
        let slot = bytes[HEADER_BYTES as usize..][..SLOT_BYTES].to_vec();
        bytes[HEADER_BYTES as usize + SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&slot);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read().len(), 5);
    }

    #[test]
    fn a_file_of_another_form_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let (ring, _) = Ring::open(&path, 10, 6).unwrap();
        ring.write(&some(10)).unwrap();
        assert_eq!(Ring::open(&path, 10, 6).unwrap().1.len(), 1);
        assert!(Ring::open(&path, 1, 6).unwrap().1.is_empty(), "other seconds");
        assert!(Ring::open(&path, 1, 7).unwrap().1.is_empty(), "other slots");
        for garbage in [&b""[..], b"x", &[0xff; 5000]] {
            std::fs::write(&path, garbage).unwrap();
            let (ring, samples) = Ring::open(&path, 1, 7).unwrap();
            assert!(samples.is_empty());
            ring.write(&some(3)).unwrap();
            assert_eq!(Ring::open(&path, 1, 7).unwrap().1, [some(3)]);
        }
    }
}
