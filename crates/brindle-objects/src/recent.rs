//! Table of recently read pieces of objects: long reads bypass the page cache until a piece is read for the
//! second time.
//!
//! A copy in the page cache costs processor time and memory. The copy pays only for a piece that is read again: by other clients, or by a
//! client without room to cache it. Therefore the first read of a piece comes from the device. Reads from the second one on go through the
//! page cache, and so do reads in the next [`KEEP_BYTES`] of the same object. From there on, clients that read one file together cause one
//! read of the device. Every piece leaves a mark in a table of fixed size, in which newer marks overwrite older ones.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use brindle_stdx::cast::to_usize;
use brindle_types::ObjectId;

/// Bytes of an object that one mark stands for.
const PIECE_BYTES: u64 = 256 << 10;
/// Marks of a store: of 64 GiB that were read, in a MiB of memory.
const MARKS: usize = 1 << 18;
/// Bytes of an object that go through the page cache after a piece of it was read again.
pub(crate) const KEEP_BYTES: u64 = 64 << 20;

/// Which long reads go through the page cache of the OST's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadCache {
    /// Those of pieces that are read again.
    #[default]
    Auto,
    /// All of them.
    On,
    /// None.
    Off,
}

impl FromStr for ReadCache {
    type Err = String;

    fn from_str(text: &str) -> Result<ReadCache, String> {
        match text {
            "auto" => Ok(ReadCache::Auto),
            "on" => Ok(ReadCache::On),
            "off" => Ok(ReadCache::Off),
            _ => Err("it must be auto, on or off".to_owned()),
        }
    }
}

impl fmt::Display for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadCache::Auto => "auto",
            ReadCache::On => "on",
            ReadCache::Off => "off",
        })
    }
}

/// Marks of the pieces that were read.
pub(crate) struct Recent {
    marks: Box<[AtomicU32]>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { marks: (0..MARKS).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl Recent {
    /// Marks the pieces that begin in a range of an object, so that consecutive reads mark different pieces wherever they begin.
    /// Returns whether the first piece was marked already. (Two pieces in 2^32 may be taken for one another.)
    pub fn mark(&self, id: &ObjectId, range: Range<u64>) -> bool {
        let mut again = false;
        let first = range.start.div_ceil(PIECE_BYTES);
        for piece in first..range.end.div_ceil(PIECE_BYTES) {
            let mut hasher = DefaultHasher::new();
            (id, piece).hash(&mut hasher);
            let hash = hasher.finish();
            let mark = (hash >> 32) as u32 | 1;
            let before = self.marks[to_usize(hash) % MARKS].swap(mark, Ordering::Relaxed);
            again |= piece == first && before == mark;
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use brindle_types::{Ino, Pair};

    use super::*;

    #[test]
    fn the_switch_is_read_as_it_is_shown() {
        for switch in [ReadCache::Auto, ReadCache::On, ReadCache::Off] {
            assert_eq!(switch.to_string().parse(), Ok(switch));
        }
        assert_eq!("yes".parse::<ReadCache>(), Err("it must be auto, on or off".to_owned()));
    }

    #[test]
    fn a_piece_is_known_the_second_time_until_newer_ones_have_taken_its_place() {
        let recent = Recent::default();
        let id = |ino| ObjectId { ino: Ino(ino), generation: Pair { term: 1, counter: 1 }, stripe: 0 };
        assert!(!recent.mark(&id(7), 0..1 << 20));
        assert!(!recent.mark(&id(8), 0..1 << 20), "another object");
        assert!(!recent.mark(&id(7), 1 << 20..2 << 20), "another piece");
        assert!(recent.mark(&id(7), 0..1 << 20));
        let odd = |n: u64| 1000 + n * PIECE_BYTES..1000 + (n + 1) * PIECE_BYTES;
        assert_eq!((0..100).filter(|n| recent.mark(&id(9), odd(*n))).count(), 0, "one behind the other");
        assert_eq!((0..100).filter(|n| recent.mark(&id(9), odd(*n))).count(), 100);
        assert!(recent.mark(&id(7), 512 << 10..3 << 20), "its beginning was read");
        (0..64).for_each(|n| _ = recent.mark(&id(100 + n), 0..1 << 30));
        let known = (0..8).filter(|n| recent.mark(&id(7), n * PIECE_BYTES..(n + 1) * PIECE_BYTES)).count();
        assert!(known < 8, "it is not remembered for ever");
    }
}
