//! Checksums of the extents of a copy (design note 054). BLAKE3 is a tree over the bytes, and an extent is a subtree of it: the checksum of
//! the whole copy, which the MDT has, follows from those of its extents. So they need not be believed.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use brindle_stdx::cast::to_usize;
use brindle_types::hsm::{Extents, extent_bytes};
use serde::{Deserialize, Serialize};

/// Bytes of the checksum of an extent.
const SUM_BYTES: usize = 32;

/// Checksums of the extents of a copy, as its manifest has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentSums {
    /// Length of an extent; the last one may be shorter.
    pub extent_bytes: u64,
    /// Chaining values of the extents one behind the other, 32 bytes each, in base64.
    pub blake3_base64: String,
}

/// Checksums of the extents of a copy, of which that of the whole is known.
#[derive(Clone, Debug)]
pub struct Sums {
    extent_bytes: u64,
    values: Vec<ChainingValue>,
}

/// The chaining value over some of them. The left half is the largest power of two, as in the tree over the bytes.
fn merged(values: &[ChainingValue]) -> Option<ChainingValue> {
    match values {
        [] => None,
        [one] => Some(*one),
        many => {
            let (left, right) = many.split_at(many.len().next_power_of_two() / 2);
            Some(merge_subtrees_non_root(&merged(left)?, &merged(right)?, Mode::Hash))
        }
    }
}

/// The checksum of a whole of at least two extents.
fn root(values: &[ChainingValue]) -> Option<[u8; 32]> {
    if values.len() < 2 {
        return None;
    }
    let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
    Some(*merge_subtrees_root(&merged(left)?, &merged(right)?, Mode::Hash).as_bytes())
}

fn hasher_at(offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(offset);
    hasher
}

/// Checksums of the extents of a span: a part of a copy that begins and ends at extents, or with the file.
pub struct SpanSumming {
    extent_bytes: u64,
    start: u64,
    hasher: Hasher,
    values: Vec<ChainingValue>,
}

impl SpanSumming {
    /// Begins, for a span of a file of this size that starts at this byte.
    pub fn new(size_bytes: u64, start: u64) -> SpanSumming {
        SpanSumming {
            extent_bytes: extent_bytes(size_bytes),
            start,
            hasher: hasher_at(start),
            values: Vec::new(),
        }
    }

    /// Takes the next bytes of the span.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.hasher.count() == self.extent_bytes {
                self.end_extent();
            }
            let left = self.extent_bytes - self.hasher.count();
            let (now, later) = bytes.split_at(bytes.len().min(to_usize(left)));
            self.hasher.update(now);
            bytes = later;
        }
    }

    fn end_extent(&mut self) {
        self.values.push(self.hasher.finalize_non_root());
        self.hasher = hasher_at(self.start + self.values.len() as u64 * self.extent_bytes);
    }

    /// The chaining values of the extents.
    pub fn finish(mut self) -> Vec<ChainingValue> {
        if self.hasher.count() > 0 {
            self.end_extent();
        }
        self.values
    }
}

/// The checksum of a copy of several extents, from the chaining values of all of them, and these as a manifest has them; `None` if they are
/// not as many as the copy has extents.
pub fn whole(size_bytes: u64, values: &[ChainingValue]) -> Option<([u8; 32], ExtentSums)> {
    if values.len() as u64 != Extents::count_of(size_bytes) {
        return None;
    }
    let sums = ExtentSums {
        extent_bytes: extent_bytes(size_bytes),
        blake3_base64: BASE64_STANDARD.encode(values.concat()),
    };
    Some((root(values)?, sums))
}

impl Sums {
    /// The checksums that a manifest tells of a copy of this size; `Err` has the reason why they are not those of the copy.
    pub fn of(told: &ExtentSums, size_bytes: u64, checksum: &[u8; 32]) -> Result<Sums, String> {
        let extent_bytes = extent_bytes(size_bytes);
        if told.extent_bytes != extent_bytes {
            return Err(format!("its extents have {} bytes, not {extent_bytes}", told.extent_bytes));
        }
        let bytes = BASE64_STANDARD.decode(&told.blake3_base64);
        let bytes = bytes.map_err(|e| format!("the checksums of its extents are not base64: {e}"))?;
        let count = Extents::count_of(size_bytes);
        if bytes.len() as u64 != count * SUM_BYTES as u64 {
            return Err(format!("{} bytes are not the checksums of {count} extents", bytes.len()));
        }
        let (values, _) = bytes.as_chunks::<SUM_BYTES>();
        match root(values).is_some_and(|whole| whole == *checksum) {
            true => Ok(Sums { extent_bytes, values: values.to_vec() }),
            false => Err("the checksum of the whole does not follow from those of its extents".to_owned()),
        }
    }

    /// Begins to compare an extent.
    pub fn check(&self, extent: u64) -> Check<'_> {
        Check { hasher: hasher_at(extent * self.extent_bytes), wanted: self.values.get(to_usize(extent)) }
    }
}

/// An extent that is being compared.
pub struct Check<'a> {
    hasher: Hasher,
    wanted: Option<&'a ChainingValue>,
}

impl Check<'_> {
    /// Takes the next bytes of the extent.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Whether all bytes were those of the copy.
    pub fn is_good(&self) -> bool {
        self.hasher.count() > 0 && self.wanted == Some(&self.hasher.finalize_non_root())
    }
}

/// Checksums of a file that is being archived.
pub struct Summing {
    extent_bytes: u64,
    has_one: bool,
    hasher: Hasher,
    values: Vec<ChainingValue>,
}

impl Summing {
    /// Begins, for a file of this size.
    pub fn new(size_bytes: u64) -> Summing {
        let extent_bytes = extent_bytes(size_bytes);
        Summing {
            extent_bytes,
            has_one: size_bytes <= extent_bytes,
            hasher: Hasher::new(),
            values: Vec::new(),
        }
    }

    /// Takes the next bytes of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if !self.has_one && self.hasher.count() == self.extent_bytes {
                self.end_extent();
            }
            let left = if self.has_one { u64::MAX } else { self.extent_bytes - self.hasher.count() };
            let (now, later) = bytes.split_at(bytes.len().min(to_usize(left)));
            self.hasher.update(now);
            bytes = later;
        }
    }

    fn end_extent(&mut self) {
        self.values.push(self.hasher.finalize_non_root());
        self.hasher = hasher_at(self.values.len() as u64 * self.extent_bytes);
    }

    /// The checksum of the whole file, and those of its extents if there are several.
    pub fn finish(mut self) -> ([u8; 32], Option<ExtentSums>) {
        if self.has_one {
            return (*self.hasher.finalize().as_bytes(), None);
        }
        self.end_extent();
        let whole = root(&self.values).unwrap_or_default();
        let sums = ExtentSums {
            extent_bytes: self.extent_bytes,
            blake3_base64: BASE64_STANDARD.encode(self.values.concat()),
        };
        (whole, Some(sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect()
    }

    fn sums_of(data: &[u8], step: usize) -> ([u8; 32], Option<ExtentSums>) {
        let mut summing = Summing::new(data.len() as u64);
        data.chunks(step).for_each(|part| summing.update(part));
        summing.finish()
    }

    #[test]
    fn the_checksum_of_the_whole_is_that_of_blake3_whatever_the_number_of_extents() {
        let data = bytes(9 * MIB + 17);
        let lens =
            [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB, 4 * MIB + 1, 5 * MIB, 8 * MIB, 9 * MIB + 17];
        for len in lens {
            let data = &data[..len];
            for step in [MIB, 700_001] {
                let (whole, sums) = sums_of(data, step);
                assert_eq!(whole, *blake3::hash(data).as_bytes(), "{len} bytes by {step}");
                assert_eq!(sums.is_some(), len > MIB, "{len}");
                let Some(told) = sums else { continue };
                let sums = Sums::of(&told, len as u64, &whole).expect("they are those of the copy");
                for (number, extent) in data.chunks(MIB).enumerate() {
                    let mut check = sums.check(number as u64);
                    extent.chunks(100_000).for_each(|part| check.update(part));
                    assert!(check.is_good(), "extent {number} of {len} bytes");
                }
            }
        }
    }

    #[test]
    fn the_checksum_of_the_whole_follows_from_spans_that_others_have_read() {
        for len in [8 * MIB + 1, 16 * MIB, 20 * MIB + 17] {
            let data = bytes(len);
            let spans = data.chunks(8 * MIB).enumerate().map(|(number, span)| {
                let mut summing = SpanSumming::new(len as u64, (number * 8 * MIB) as u64);
                span.chunks(700_001).for_each(|part| summing.update(part));
                summing.finish()
            });
            let values: Vec<ChainingValue> = spans.flatten().collect();
            assert_eq!(whole(len as u64, &values), {
                let (whole, sums) = sums_of(&data, MIB);
                sums.map(|sums| (whole, sums))
            });
            assert_eq!(whole(len as u64, &values[1..]), None, "one is missing");
        }
    }

    #[test]
    fn one_bit_makes_an_extent_bad_and_no_extent_passes_for_another() {
        let data = bytes(3 * MIB + 5);
        let (whole, told) = sums_of(&data, MIB);
        let sums = Sums::of(&told.expect("several extents"), data.len() as u64, &whole).expect("good");
        let is_good = |extent: u64, bytes: &[u8]| {
            let mut check = sums.check(extent);
            check.update(bytes);
            check.is_good()
        };
        let mut second = data[MIB..2 * MIB].to_vec();
        assert!(is_good(1, &second) && !is_good(0, &second) && !is_good(2, &second) && !is_good(9, &second));
        second[77] ^= 1;
        assert!(!is_good(1, &second));
        assert!(!is_good(3, &data[3 * MIB..3 * MIB + 4]) && is_good(3, &data[3 * MIB..]));
        assert!(!sums.check(0).is_good(), "nothing is not an extent");
    }

    #[test]
    fn checksums_that_do_not_lead_to_that_of_the_whole_are_refused() {
        let data = bytes(3 * MIB);
        let (whole, told) = sums_of(&data, MIB);
        let told = told.expect("several extents");
        let len = data.len() as u64;
        let why = |told: &ExtentSums, size_bytes, whole: &[u8; 32]| {
            Sums::of(told, size_bytes, whole).map(drop).expect_err("refused")
        };
        assert!(why(&told, len, &[7; 32]).contains("does not follow"));
        assert!(why(&told, len + 1, &whole).contains("4 extents"));
        let longer = ExtentSums { extent_bytes: 2 << 20, ..told.clone() };
        assert!(why(&longer, len, &whole).contains("2097152 bytes"));
        let no_text = ExtentSums { blake3_base64: "?".to_owned(), ..told };
        assert!(why(&no_text, len, &whole).contains("base64"));
    }
}
