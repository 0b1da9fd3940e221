//! Tiering: the states of a file whose bytes lie, or lay, in an archive, under Lustre's words and bits.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Pair;

/// An archive has a copy of the file, perhaps an old one.
pub const HSM_EXISTS: u32 = 0x01;
/// The file has changed since it was archived.
pub const HSM_DIRTY: u32 = 0x02;
/// The bytes lie in the archive only.
pub const HSM_RELEASED: u32 = 0x04;
/// The copy was completed.
pub const HSM_ARCHIVED: u32 = 0x08;
/// The file is never to be released.
pub const HSM_NORELEASE: u32 = 0x10;
/// The file is never to be archived.
pub const HSM_NOARCHIVE: u32 = 0x20;
/// The copy was lost.
pub const HSM_LOST: u32 = 0x40;
/// The flags that the owner of a file may set and clear; root more ([`HSM_ROOT_FLAGS`]).
pub const HSM_USER_FLAGS: u32 = HSM_NORELEASE | HSM_NOARCHIVE | HSM_DIRTY;
/// The flags that root may set and clear.
pub const HSM_ROOT_FLAGS: u32 = HSM_USER_FLAGS | HSM_EXISTS | HSM_ARCHIVED | HSM_LOST;
/// Archives have the numbers 1 to this one.
pub const ARCHIVE_ID_MAX: u32 = 32;

/// The checksum of a copy that was made by another tool, which kept none: its bytes are taken as they are.
pub const CHECKSUM_UNKNOWN: [u8; 32] = [0; 32];

/// Least length of an extent: the unit in which readers of a released file get its bytes while the rest is still coming.
pub const EXTENT_BYTES_MIN: u64 = 1 << 20;
/// Most extents of a file. Longer files have longer extents.
pub const EXTENTS_MAX: u64 = 1 << 16;

/// Length of the extents of a file of this size: a power of two.
pub fn extent_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(EXTENTS_MAX).next_power_of_two().max(EXTENT_BYTES_MIN)
}

/// Files that are longer are divided over the agents of their archive, unless an MDT is given another number.
pub const DIVIDE_ABOVE_BYTES_DEFAULT: u64 = 1 << 30;
/// Longest file that is divided. An extent of a longer one does not fit into the memory of an agent, which compares it before it writes it.
pub const DIVIDED_BYTES_MAX: u64 = 4 << 40;
/// Least length of the spans of a file that is archived: S3 takes no shorter parts than 5 MiB.
const ARCHIVE_SPAN_BYTES_MIN: u64 = 8 << 20;
/// Least length of the spans of a file that is restored: short, so that readers need not wait long for theirs.
const RESTORE_SPAN_BYTES_MIN: u64 = 4 << 20;
/// Most spans of a file: S3 takes 10000 parts.
pub const SPANS_MAX: u64 = 1 << 13;

/// Length of the spans that the agents of an archive share a file of this size in: a power of two, and whole extents.
pub fn span_bytes(kind: HsmKind, size_bytes: u64) -> u64 {
    let least = match kind {
        HsmKind::Archive => ARCHIVE_SPAN_BYTES_MIN,
        HsmKind::Restore | HsmKind::Remove => RESTORE_SPAN_BYTES_MIN,
    };
    size_bytes.div_ceil(SPANS_MAX).next_power_of_two().max(least).max(extent_bytes(size_bytes))
}

/// A set of spans of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans {
    count: u32,
    /// A bit for each span, the lowest bit of a byte first.
    bits: Vec<u8>,
}

impl Spans {
    /// The empty set, for a file of so many spans.
    pub fn none(count: u32) -> Spans {
        Spans { count, bits: vec![0; usize::try_from(count.div_ceil(8)).unwrap_or(0)] }
    }

    /// The set that these bits name; `None` if they are not as many as the file has spans.
    pub fn of_bits(count: u32, bits: &[u8]) -> Option<Spans> {
        let is_whole = u32::try_from(bits.len()) == Ok(count.div_ceil(8));
        let beyond = !count.is_multiple_of(8) && bits.last().is_some_and(|last| last >> (count % 8) != 0);
        (is_whole && !beyond).then(|| Spans { count, bits: bits.to_vec() })
    }

    /// A bit for each span, the lowest bit of a byte first.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Adds a span; one that the file does not have is passed over.
    pub fn add(&mut self, span: u32) {
        if span < self.count
            && let Some(byte) = self.bits.get_mut(usize::try_from(span / 8).unwrap_or(usize::MAX))
        {
            *byte |= 1 << (span % 8);
        }
    }

    /// Whether the set has a span.
    pub fn has(&self, span: u32) -> bool {
        let byte = self.bits.get(usize::try_from(span / 8).unwrap_or(usize::MAX));
        span < self.count && byte.is_some_and(|byte| byte & 1 << (span % 8) != 0)
    }

    /// Number of spans in the set.
    pub fn len(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }

    /// Whether the set has no span.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the set has every span of the file.
    pub fn is_full(&self) -> bool {
        self.len() == self.count
    }
}

/// A set of extents of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    size_bytes: u64,
    /// A bit for each extent, the lowest bit of a byte first.
    bits: Vec<u8>,
}

impl Extents {
    /// The empty set, for a file of this size.
    pub fn none(size_bytes: u64) -> Extents {
        let count = Extents::count_of(size_bytes);
        Extents { size_bytes, bits: vec![0; usize::try_from(count.div_ceil(8)).unwrap_or(0)] }
    }

    /// The set that these bits name; `None` if they are not as many as the file has extents.
    pub fn of_bits(size_bytes: u64, bits: &[u8]) -> Option<Extents> {
        let count = Extents::count_of(size_bytes);
        let is_whole = bits.len() as u64 == count.div_ceil(8);
        let beyond = !count.is_multiple_of(8) && bits.last().is_some_and(|last| last >> (count % 8) != 0);
        (is_whole && !beyond).then(|| Extents { size_bytes, bits: bits.to_vec() })
    }

    /// Number of extents of a file of this size.
    pub fn count_of(size_bytes: u64) -> u64 {
        size_bytes.div_ceil(extent_bytes(size_bytes))
    }

    /// A bit for each extent, the lowest bit of a byte first.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Numbers of the extents that a range of bytes touches, as far as the file reaches.
    pub fn touched(&self, range: &Range<u64>) -> Range<u64> {
        let (len, end) = (extent_bytes(self.size_bytes), range.end.min(self.size_bytes));
        let first = range.start / len;
        first..end.div_ceil(len).max(first)
    }

    /// Adds an extent; one that the file does not have is passed over.
    pub fn add(&mut self, extent: u64) {
        if let Some((byte, bit)) = self.place(extent) {
            self.bits[byte] |= bit;
        }
    }

    /// Whether the set has an extent.
    pub fn has(&self, extent: u64) -> bool {
        self.place(extent).is_some_and(|(byte, bit)| self.bits[byte] & bit != 0)
    }

    /// Number of extents in the set.
    pub fn len(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// Whether the set has no extent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, extent: u64) -> Option<(usize, u8)> {
        let byte = usize::try_from(extent / 8).ok()?;
        (extent < Extents::count_of(self.size_bytes)).then_some((byte, 1 << (extent % 8)))
    }
}

/// Bits and words in the order in which Lustre prints them.
const WORDS: [(u32, &str); 7] = [
    (HSM_RELEASED, "released"),
    (HSM_EXISTS, "exists"),
    (HSM_DIRTY, "dirty"),
    (HSM_ARCHIVED, "archived"),
    (HSM_NORELEASE, "never_release"),
    (HSM_NOARCHIVE, "never_archive"),
    (HSM_LOST, "lost_from_hsm"),
];

/// The words of flags, as Lustre has them.
pub fn hsm_words(flags: u32) -> Vec<&'static str> {
    WORDS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect()
}

/// An action that an agent carries out. In the order in which they are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HsmKind {
    /// The bytes come back from the archive.
    Restore,
    /// The copy in the archive goes.
    Remove,
    /// A copy is made.
    Archive,
}

impl HsmKind {
    /// All of them, in the order in which they are given out.
    pub const ALL: [HsmKind; 3] = [HsmKind::Restore, HsmKind::Remove, HsmKind::Archive];
}

impl fmt::Display for HsmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HsmKind::Restore => "RESTORE",
            HsmKind::Remove => "REMOVE",
            HsmKind::Archive => "ARCHIVE",
        })
    }
}

/// A complete copy in an archive. Data version and attempt are in its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedCopy {
    /// `data_version` of the file that was copied.
    pub data_version: Pair,
    /// The attempt that has made the copy.
    pub attempt: Pair,
    /// Length of the copy.
    pub size_bytes: u64,
    /// BLAKE3 of its bytes.
    pub checksum: [u8; 32],
}

/// Whether actions are given out (`hsm_control`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmControl {
    /// Actions are given out.
    #[default]
    Enabled,
    /// Actions are queued, and wait.
    Disabled,
    /// New actions are refused.
    Stopped,
}

impl fmt::Display for HsmControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HsmControl::Enabled => "enabled",
            HsmControl::Disabled => "disabled",
            HsmControl::Stopped => "stopped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_extents_that_were_added_and_no_others() {
        const MIB: u64 = 1 << 20;
        for size_bytes in [1, MIB, MIB + 1, 8 * MIB, 9 * MIB - 1, EXTENTS_MAX * MIB, EXTENTS_MAX * MIB + 1] {
            let (len, count) = (extent_bytes(size_bytes), Extents::count_of(size_bytes));
            assert!(len.is_power_of_two() && count <= EXTENTS_MAX, "{size_bytes}");
            assert!((count - 1) * len < size_bytes && size_bytes <= count * len, "{size_bytes}");
            let mut set = Extents::none(size_bytes);
            assert!(set.is_empty() && !set.has(0));
            for extent in [0, count - 1, count, u64::MAX] {
                set.add(extent);
            }
            assert_eq!(set.len(), count.min(2), "{size_bytes}");
            assert!(set.has(0) && set.has(count - 1) && !set.has(count), "{size_bytes}");
            assert_eq!(Extents::of_bits(size_bytes, set.bits()), Some(set.clone()));
            assert_eq!(set.touched(&(0..u64::MAX)), 0..count);
            assert_eq!(set.touched(&(len - 1..len + 1)), 0..count.min(2));
            let at_end = set.touched(&(count * len..u64::MAX));
            assert!(at_end.is_empty(), "nothing lies behind the end");
        }
    }

    #[test]
    fn spans_are_whole_extents_and_no_file_has_too_many() {
        for size_bytes in [1, 9 << 20, 1 << 30, (64 << 30) + 1, 1 << 40, DIVIDED_BYTES_MAX] {
            for kind in [HsmKind::Archive, HsmKind::Restore] {
                let span = span_bytes(kind, size_bytes);
                assert!(span.is_power_of_two() && span.is_multiple_of(extent_bytes(size_bytes)));
                assert!(size_bytes.div_ceil(span) <= SPANS_MAX, "{size_bytes}");
            }
        }
        let mut set = Spans::none(9);
        [0, 8, 9, u32::MAX].into_iter().for_each(|span| set.add(span));
        assert!(set.has(0) && set.has(8) && !set.has(9) && set.len() == 2 && !set.is_full());
        assert_eq!(Spans::of_bits(9, set.bits()), Some(set));
        for bits in [&[0xff_u8][..], &[0xff, 2], &[0, 0, 0]] {
            assert_eq!(Spans::of_bits(9, bits), None, "{bits:?}");
        }
        assert!(Spans::of_bits(9, &[0xff, 1]).is_some_and(|set| set.is_full()));
    }

    #[test]
    fn bits_of_another_size_are_no_set() {
        assert_eq!(Extents::of_bits(9 << 20, &[0xff, 1]).map(|set| set.len()), Some(9));
        for bits in [&[0xff_u8][..], &[0xff, 2], &[0, 0, 0], &[]] {
            assert_eq!(Extents::of_bits(9 << 20, bits), None, "{bits:?}");
        }
    }

    #[test]
    fn words_come_in_lustres_order() {
        assert_eq!(hsm_words(0xd), ["released", "exists", "archived"]);
        assert_eq!(hsm_words(0xb), ["exists", "dirty", "archived"]);
        assert_eq!(hsm_words(0x70), ["never_release", "never_archive", "lost_from_hsm"]);
        assert!(hsm_words(0).is_empty());
    }
}
