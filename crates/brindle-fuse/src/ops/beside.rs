//! Writes beside a mapping of the same page, on one mount (design note 017).
//!
//! While a WRITE of a program is under way the kernel may read its pages anew for a mapping, and a program may store into them.
//! Before write(2) returns the kernel drops these pages, and writes them back first: whole, with what they held before the
//! WRITE. A writeback is therefore laid under every write after which its pages were not read again.
//!
//! Invariant: a write is remembered from its arrival until its pages are read again after its answer; only then can a page hold
//! it. The number of writes that are remembered longer is bounded: where there is a mapping the kernel makes one write after
//! the other, so only the last one can have returned to the kernel and not to the program.

use std::collections::BTreeMap;
use std::ops::Range;

use brindle_stdx::cast::to_usize;
use brindle_types::Ino;
use bytes::Bytes;
use parking_lot::Mutex;

/// Parts of the table, so that writers seldom meet.
const SHARDS: usize = 16;
/// Answered writes of one file that are remembered.
const ANSWERED_MAX: usize = 2;
/// Answered writes that one part remembers, and their bytes; beyond them those of the lowest file go.
const SHARD_MAX: usize = 256;
const SHARD_BYTES_MAX: usize = 4 << 20;

/// A write of a program.
#[derive(Debug)]
struct Write {
    number: u64,
    /// Offset of the write; unknown for an append before its end.
    at: Option<u64>,
    data: Bytes,
    answered: bool,
}

impl Write {
    fn range(&self) -> Option<Range<u64>> {
        self.at.map(|at| at..at + self.data.len() as u64)
    }
}

#[derive(Default)]
struct Shard {
    files: BTreeMap<Ino, Vec<Write>>,
    next: u64,
    answered: usize,
    answered_bytes: usize,
}

impl Shard {
    fn count(&mut self, write: &Write, more: bool) {
        if !write.answered {
            return;
        }
        let len_bytes = write.data.len();
        if more {
            self.answered += 1;
            self.answered_bytes += len_bytes;
        } else {
            self.answered -= 1;
            self.answered_bytes -= len_bytes;
        }
    }

    /// Takes the writes of a file that `keep` gives nothing back for, and puts others in the place of the rest.
    fn change(&mut self, ino: Ino, mut keep: impl FnMut(Write) -> Vec<Write>) {
        let Some(writes) = self.files.remove(&ino) else { return };
        let mut kept = Vec::with_capacity(writes.len());
        for write in writes {
            self.count(&write, false);
            kept.extend(keep(write));
        }
        kept.iter().for_each(|write| self.count(write, true));
        if !kept.is_empty() {
            self.files.insert(ino, kept);
        }
    }

    fn make_room(&mut self) {
        while self.answered > SHARD_MAX || self.answered_bytes > SHARD_BYTES_MAX {
            let has_answered = |writes: &&Vec<Write>| writes.iter().any(|write| write.answered);
            let Some(ino) = self.files.iter().find(|(_, writes)| has_answered(writes)).map(|(ino, _)| *ino)
            else {
                return;
            };
            self.change(ino, |write| if write.answered { Vec::new() } else { vec![write] });
        }
    }
}

/// The writes of a mount that pages of the kernel may lack.
#[derive(Default)]
pub(crate) struct Beside {
    shards: [Mutex<Shard>; SHARDS],
}

impl Beside {
    /// A write of a program has arrived; for an append the kernel's idea of the place is none. Returns its number.
    pub fn begin(&self, ino: Ino, at: Option<u64>, data: &Bytes) -> u64 {
        let mut shard = self.shard(ino).lock();
        shard.next += 1;
        let number = shard.next;
        let write = Write { number, at, data: data.clone(), answered: false };
        shard.files.entry(ino).or_default().push(write);
        number
    }

    /// A write is about to be answered. `written`: where it lies, and how many bytes of it; `None` where that is not known.
    pub fn end(&self, ino: Ino, number: u64, written: Option<(u64, u64)>) {
        let mut shard = self.shard(ino).lock();
        let answered = shard.files.get(&ino).map_or(0, |writes| writes.iter().filter(|w| w.answered).count());
        let mut too_many = (answered + 1).saturating_sub(ANSWERED_MAX);
        shard.change(ino, |write| {
            if write.number == number && !write.answered {
                let Some((at, len_bytes)) = written.filter(|(_, len_bytes)| *len_bytes > 0) else {
                    return Vec::new();
                };
                let data = write.data.slice(..write.data.len().min(to_usize(len_bytes)));
                return vec![Write { at: Some(at), data, answered: true, ..write }];
            }
            if write.answered && too_many > 0 {
                too_many -= 1;
                return Vec::new();
            }
            vec![write]
        });
        shard.make_room();
    }

    /// The kernel reads pages: they will hold all earlier writes.
    pub fn fills(&self, ino: Ino, range: Range<u64>) {
        let mut shard = self.shard(ino).lock();
        let meets = |write: &Write| {
            write.answered && write.range().is_some_and(|own| own.start < range.end && range.start < own.end)
        };
        if !shard.files.get(&ino).is_some_and(|writes| writes.iter().any(meets)) {
            return;
        }
        shard.change(ino, |write| {
            let Some(own) = write.range().filter(|_| meets(&write)) else { return vec![write] };
            let part = |part: Range<u64>| {
                let data = write.data.slice(to_usize(part.start - own.start)..to_usize(part.end - own.start));
                Write { number: write.number, at: Some(part.start), data, answered: true }
            };
            let parts = [own.start..range.start.max(own.start), range.end.min(own.end)..own.end];
            parts.into_iter().filter(|part| part.start < part.end).map(part).collect()
        });
    }

    /// Pages that the kernel writes back, with the writes that they may lack laid over them.
    pub fn over(&self, ino: Ino, at: u64, pages: Bytes) -> Bytes {
        let shard = self.shard(ino).lock();
        let range = at..at + pages.len() as u64;
        let mut whole: Option<Vec<u8>> = None;
        for write in shard.files.get(&ino).into_iter().flatten() {
            let Some(own) = write.range() else { continue };
            let both = own.start.max(range.start)..own.end.min(range.end);
            if both.start < both.end {
                let whole = whole.get_or_insert_with(|| pages.to_vec());
                whole[to_usize(both.start - at)..to_usize(both.end - at)].copy_from_slice(
                    &write.data[to_usize(both.start - own.start)..to_usize(both.end - own.start)],
                );
            }
        }
        whole.map_or(pages, Bytes::from)
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[to_usize(ino.0) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Ino = Ino(7);

    fn page(byte: u8) -> Bytes {
        vec![byte; 8].into()
    }

    #[test]
    fn a_page_lacks_a_write_until_it_is_read_after_its_answer() {
        let beside = Beside::default();
        let over = |at| beside.over(F, at, page(b'm'));
        let number = beside.begin(F, Some(10), &Bytes::from_static(b"WW"));
        assert_eq!(&over(8)[..], b"mmWWmmmm");
        beside.fills(F, 8..16);
        assert_eq!(&over(8)[..], b"mmWWmmmm", "it was not answered yet");
        beside.end(F, number, Some((10, 2)));
        assert_eq!(&over(8)[..], b"mmWWmmmm");
        assert_eq!(&over(0)[..], b"mmmmmmmm", "another page");
        assert_eq!(&beside.over(Ino(23), 8, page(b'm'))[..], b"mmmmmmmm", "another file");
        beside.fills(F, 0..11);
        assert_eq!(&over(8)[..], b"mmmWmmmm", "half of it was read");
        beside.fills(F, 8..16);
        assert_eq!(&over(8)[..], b"mmmmmmmm");
    }

    #[test]
    fn appends_count_where_they_came_to_lie_and_what_failed_does_not() {
        let beside = Beside::default();
        let append = beside.begin(F, None, &Bytes::from_static(b"AAA"));
        assert_eq!(&beside.over(F, 0, page(b'm'))[..], b"mmmmmmmm");
        beside.end(F, append, Some((5, 2)));
        assert_eq!(&beside.over(F, 0, page(b'm'))[..], b"mmmmmAAm");
        let failed = beside.begin(F, Some(0), &Bytes::from_static(b"FF"));
        beside.end(F, failed, None);
        assert_eq!(&beside.over(F, 0, page(b'm'))[..], b"mmmmmAAm");
    }

    #[test]
    fn later_writes_lie_over_earlier_ones_and_memory_is_bounded() {
        let beside = Beside::default();
        for n in 0..10u8 {
            let number = beside.begin(F, Some(u64::from(n)), &Bytes::from(vec![n; 2]));
            beside.end(F, number, Some((u64::from(n), 2)));
        }
        let held = |ino: Ino| beside.shard(ino).lock().files.get(&ino).map_or(0, Vec::len);
        assert_eq!(held(F), ANSWERED_MAX);
        assert_eq!(&beside.over(F, 8, page(b'm'))[..3], &[8, 9, 9]);
        for ino in 0..10 * (SHARD_MAX * SHARDS) as u64 {
            let number = beside.begin(Ino(ino), Some(0), &page(1));
            beside.end(Ino(ino), number, Some((0, 8)));
        }
        let shard = beside.shard(F).lock();
        assert_eq!((shard.answered, shard.answered_bytes), (SHARD_MAX, 8 * SHARD_MAX));
        assert!(shard.files.len() <= SHARD_MAX);
    }
}
