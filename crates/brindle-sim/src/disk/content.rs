//! Contents of one simulated file: what a reader sees, what the platter holds, and the versions in between.
//!
//! Bytes and space are apart. Bytes are versions of sectors. Space is a set of allocation blocks, which a write fills, a
//! hole frees and an allocation takes without a byte. A large file that is only allocated costs nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::pages::Pages;
use super::ranges::RangeSet;
use super::{Fate, Survival};

/// Unit that a disk writes whole or not at all.
pub const SECTOR_LEN: usize = 512;
const SECTOR: u64 = SECTOR_LEN as u64;
/// Unsynced versions remembered for one sector, or for the length, beside those that a sync under way is to make
/// durable; older ones are forgotten first.
const VERSIONS_MAX: usize = 32;
/// Unsynced changes of the space of a file.
const SPACE_CHANGES_MAX: usize = 1024;

/// A version of a sector; `None` is a hole.
type Sector = Option<Bytes>;

/// A version of the length.
#[derive(Clone, Copy)]
struct Len {
    bytes: u64,
    /// Whether the length was set as such, not by a write behind the end.
    set: bool,
}

/// A version with the number of the write that made it.
type Versions<T> = Vec<(u64, T)>;

/// An unsynced change of the space that a file takes, in blocks.
#[derive(Clone)]
struct SpaceChange {
    blocks: Range<u64>,
    is_taken: bool,
}

/// Contents of a file.
pub(super) struct Content {
    /// Bytes that readers see.
    cache: Pages,
    len: u64,
    /// Blocks that take space.
    space: RangeSet,
    /// Bytes that the platter is known to hold.
    platter: Pages,
    platter_len: u64,
    platter_space: RangeSet,
    /// Written since the last sync.
    unsynced: BTreeMap<u64, Versions<Sector>>,
    unsynced_len: Versions<Len>,
    unsynced_space: Versions<SpaceChange>,
    /// Number of the last write.
    writes: u64,
    /// Marks of the syncs under way.
    syncing: Vec<u64>,
    /// Bytes of an allocation block.
    block: u64,
}

/// Adds a version. One that a sync under way is to make durable is never forgotten, however often its sector is written
/// meanwhile: a disk that forgot it would break the promise of that sync.
fn push<T>(versions: &mut Versions<T>, syncing: &[u64], number: u64, value: T) {
    if versions.len() >= VERSIONS_MAX {
        let covered = |pair: &[(u64, T)]| syncing.iter().any(|mark| (pair[0].0..pair[1].0).contains(mark));
        if let Some(oldest) = versions.windows(2).position(|pair| !covered(pair)) {
            versions.remove(oldest);
        }
    }
    versions.push((number, value));
}

/// First sector of a range, and the one behind its last.
fn sector_range(offset: u64, len: u64) -> (u64, u64) {
    (offset / SECTOR, (offset + len).div_ceil(SECTOR))
}

impl Content {
    /// An empty file that takes space in blocks of `block` bytes.
    pub fn new(block: u64) -> Content {
        Content {
            cache: Pages::default(),
            len: 0,
            space: RangeSet::default(),
            platter: Pages::default(),
            platter_len: 0,
            platter_space: RangeSet::default(),
            unsynced: BTreeMap::new(),
            unsynced_len: Vec::new(),
            unsynced_space: Vec::new(),
            writes: 0,
            syncing: Vec::new(),
            block,
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of space taken.
    pub fn allocated_bytes(&self) -> u64 {
        self.space.count() * self.block
    }

    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block..range.end.div_ceil(self.block)
    }

    /// Bytes of space that a range lacks.
    pub fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        let blocks = self.blocks(&(offset..offset + len));
        (blocks.end - blocks.start - self.space.count_within(blocks)) * self.block
    }

    /// Bytes of a write of `len` bytes at `offset` before it needs more than `room` bytes of space.
    pub fn fitting_bytes(&self, offset: u64, len: u64, room: u64) -> u64 {
        let mut room_blocks = room / self.block;
        for block in self.blocks(&(offset..offset + len)) {
            if !self.space.contains(block) {
                if room_blocks == 0 {
                    return (block * self.block).saturating_sub(offset);
                }
                room_blocks -= 1;
            }
        }
        len
    }

    /// Fills `buf` from `offset`; returns the bytes before the end of the file.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = (self.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        self.cache.read(&mut buf[..n], offset);
        n
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        self.writes += 1;
        self.cache.write(data, offset);
        let end = offset + data.len() as u64;
        self.space.insert(self.blocks(&(offset..end)));
        self.note_sectors(offset, data.len() as u64);
        self.grow(end);
    }

    /// Notes the sectors of a range, as readers see them, as versions: one buffer for all of them.
    fn note_sectors(&mut self, offset: u64, len: u64) {
        let (first, end) = sector_range(offset, len);
        let mut whole = vec![0; ((end - first) * SECTOR) as usize];
        self.cache.read(&mut whole, first * SECTOR);
        let whole = Bytes::from(whole);
        for at in first..end {
            let i = ((at - first) * SECTOR) as usize;
            self.note(at, Some(whole.slice(i..i + SECTOR_LEN)));
        }
    }

    fn note(&mut self, at: u64, sector: Sector) {
        push(self.unsynced.entry(at).or_default(), &self.syncing, self.writes, sector);
    }

    /// A write up to `end` carries the file's length at least so far with it, also where only readers knew of it because
    /// the sync that should have carried it failed: a file system's length on disk follows what is written behind it.
    fn grow(&mut self, end: u64) {
        self.len = self.len.max(end);
        let carried = self.unsynced_len.last().map_or(self.platter_len, |(_, len)| len.bytes);
        if end > carried {
            push(&mut self.unsynced_len, &self.syncing, self.writes, Len { bytes: end, set: false });
        }
    }

    /// Cuts or extends.
    pub fn set_len(&mut self, len: u64) {
        self.writes += 1;
        if len < self.len {
            self.erase(len..self.len);
            // Space behind the end goes too.
            self.free(len, self.space.end() * self.block);
        }
        if len != self.len {
            self.len = len;
            push(&mut self.unsynced_len, &self.syncing, self.writes, Len { bytes: len, set: true });
        }
    }

    /// Takes space for the range without changing what is read.
    pub fn allocate(&mut self, offset: u64, len: u64, keep_len: bool) {
        self.writes += 1;
        let blocks = self.blocks(&(offset..offset + len));
        if self.space.count_within(blocks.clone()) < blocks.end - blocks.start {
            self.space.insert(blocks.clone());
            self.note_space(SpaceChange { blocks, is_taken: true });
        }
        if !keep_len {
            self.grow(offset + len);
        }
    }

    /// Makes the range a hole.
    pub fn punch(&mut self, offset: u64, len: u64) {
        self.writes += 1;
        let end = offset.saturating_add(len).min(self.len);
        if offset < end {
            self.erase(offset..end);
        }
    }

    fn erase(&mut self, range: Range<u64>) {
        let sectors = self.cache.sectors(&range);
        self.cache.zero(range.clone());
        for at in sectors {
            let sector = at * SECTOR..(at + 1) * SECTOR;
            // A file that ends within a sector has nothing behind its end.
            if range.start <= sector.start && (sector.end <= range.end || range.end >= self.len) {
                self.note(at, None);
            } else {
                let mut bytes = vec![0; SECTOR_LEN];
                self.cache.read(&mut bytes, sector.start);
                self.note(at, Some(bytes.into()));
            }
        }
        self.free(
            range.start,
            if range.end >= self.len { self.len.next_multiple_of(self.block) } else { range.end },
        );
    }

    /// Frees the whole blocks of a range.
    fn free(&mut self, start: u64, end: u64) {
        let blocks = start.div_ceil(self.block)..end / self.block;
        if self.space.next_member(blocks.start).is_some_and(|at| at < blocks.end) {
            self.space.remove(blocks.clone());
            self.note_space(SpaceChange { blocks, is_taken: false });
        }
    }

    /// Notes a change of the space; the journal takes the oldest one when there are many.
    fn note_space(&mut self, change: SpaceChange) {
        self.unsynced_space.push((self.writes, change));
        if self.unsynced_space.len() > SPACE_CHANGES_MAX {
            let (_, oldest) = self.unsynced_space.remove(0);
            self.settle(std::iter::once(oldest), Vec::new());
        }
    }

    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let at = self.space.next_member(offset / self.block)?;
        let found = offset.max(at * self.block);
        (found < self.len).then_some(found)
    }

    pub fn next_hole(&self, offset: u64) -> u64 {
        let at = self.space.next_gap(offset / self.block);
        offset.max(at.saturating_mul(self.block)).min(self.len.max(offset))
    }

    /// Begins a sync. Its mark is the number of the last write: what it must cover.
    pub fn begin_sync(&mut self) -> u64 {
        self.syncing.push(self.writes);
        self.writes
    }

    /// The sync that began at `mark` is over.
    fn end_sync(&mut self, mark: u64) {
        if let Some(at) = self.syncing.iter().position(|m| *m == mark) {
            self.syncing.swap_remove(at);
        }
    }

    /// Makes everything up to the write `mark` durable.
    pub fn sync(&mut self, mark: u64) {
        self.end_sync(mark);
        let spaces = std::mem::take(&mut self.unsynced_space);
        let (synced, rest): (Vec<_>, Vec<_>) = spaces.into_iter().partition(|(number, _)| *number <= mark);
        self.unsynced_space = rest;
        let mut sectors = Vec::new();
        self.unsynced.retain(|at, versions| {
            if let Some(last) = versions.iter().rposition(|(n, _)| *n <= mark) {
                sectors.push((*at, versions[last].1.clone()));
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        self.settle(synced.into_iter().map(|(_, change)| change), sectors);
        if let Some(last) = self.unsynced_len.iter().rposition(|(n, _)| *n <= mark) {
            self.platter_len = self.unsynced_len[last].1.bytes;
            self.unsynced_len.drain(..=last);
        }
    }

    /// Puts what becomes durable onto the platter. A sector that holds bytes takes space, whatever became of the space.
    fn settle(&mut self, spaces: impl Iterator<Item = SpaceChange>, sectors: Vec<(u64, Sector)>) {
        for (at, sector) in &sectors {
            match sector {
                Some(bytes) => self.platter.write(bytes, at * SECTOR),
                None => self.platter.zero(at * SECTOR..(at + 1) * SECTOR),
            }
        }
        for SpaceChange { blocks, is_taken } in spaces {
            if is_taken {
                self.platter_space.insert(blocks);
                continue;
            }
            self.platter_space.remove(blocks.clone());
            let bytes = blocks.start * self.block..blocks.end.saturating_mul(self.block);
            for at in self.platter.sectors(&bytes) {
                if !self.platter.is_zero(&(at * SECTOR..(at + 1) * SECTOR)) {
                    self.platter_space.insert(self.blocks(&(at * SECTOR..(at + 1) * SECTOR)));
                }
            }
        }
        for (at, _) in sectors.iter().filter(|(_, sector)| sector.is_some()) {
            self.platter_space.insert(self.blocks(&(at * SECTOR..(at + 1) * SECTOR)));
        }
    }

    /// A sync that failed: as on Linux, the data it should have written stay readable, are clean from now on, and may
    /// never reach the platter, and neither does the length that they would have carried. Holes, space and lengths that
    /// were set are the file system's own: they wait in its journal for the next sync.
    pub fn sync_failed(&mut self, mark: u64) {
        self.end_sync(mark);
        self.unsynced.retain(|_, versions| {
            versions.retain(|(_, sector)| sector.is_none());
            !versions.is_empty()
        });
        self.unsynced_len.retain(|(_, len)| len.set);
    }

    /// Chooses what survives.
    pub fn power_cut(&mut self, survival: Survival, fate: Fate, path: &str) {
        let chance = Chance { style: survival.of_file(fate, path), fate, path };
        let mut sectors = Vec::new();
        for (at, mut versions) in std::mem::take(&mut self.unsynced) {
            if let Some(last) = chance.choose(at, versions.len() as u64).checked_sub(1) {
                sectors.push((at, versions.swap_remove(last as usize).1));
            }
        }
        let changes = std::mem::take(&mut self.unsynced_space).into_iter().map(|(_, change)| change);
        // Space is taken and freed block by block, from the front.
        let kept = changes.map(|SpaceChange { blocks, is_taken }| {
            let number = u64::MAX / 2 - 2 * blocks.start - u64::from(is_taken);
            let count = chance.choose(number, blocks.end - blocks.start);
            SpaceChange { blocks: blocks.start..blocks.start + count, is_taken }
        });
        self.settle(kept, sectors);
        let lens = std::mem::take(&mut self.unsynced_len);
        if let Some(last) = chance.choose(u64::MAX - 1, lens.len() as u64).checked_sub(1) {
            self.platter_len = lens[last as usize].1.bytes;
        }
        self.syncing.clear();
        // Bytes behind the end read as zeros when the file grows again; space that was taken there stays taken.
        self.platter.zero(self.platter_len..u64::MAX);
        self.back_to_platter();
    }

    fn back_to_platter(&mut self) {
        self.len = self.platter_len;
        self.cache = self.platter.clone();
        self.space = self.platter_space.clone();
    }

    /// Replaces the contents, on the platter as well.
    pub fn replace(&mut self, bytes: &[u8]) {
        *self = Content::new(self.block);
        self.platter.write(bytes, 0);
        self.platter_len = bytes.len() as u64;
        self.platter_space.insert(self.blocks(&(0..self.platter_len)));
        self.back_to_platter();
    }

    /// Whether the byte at `offset` takes space.
    pub fn has_space(&self, offset: u64) -> bool {
        self.space.contains(offset / self.block)
    }

    /// Inverts the bits of `mask` in the stored byte at `offset`, which takes space if it is in a hole.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        let block = self.blocks(&(offset..offset + 1));
        self.space.insert(block.clone());
        self.cache.flip(offset, mask);
        self.platter_space.insert(block);
        self.platter.flip(offset, mask);
    }
}

/// How much of the unsynced changes of one file a power cut keeps.
#[derive(Clone, Copy)]
pub(super) enum Style {
    Nothing,
    Everything,
    /// For each thing one of its versions, all equally likely, the durable one among them.
    Any,
    /// Seven times in eight the newest version.
    MostlyNewest,
}

struct Chance<'a> {
    style: Style,
    fate: Fate,
    path: &'a str,
}

impl Chance<'_> {
    /// Number of the `count` changes of the thing `number` that survive, from the oldest on.
    fn choose(&self, number: u64, count: u64) -> u64 {
        let any = || self.fate.choose(self.path, number, count + 1);
        match self.style {
            Style::Nothing => 0,
            Style::Everything => count,
            Style::Any => any(),
            Style::MostlyNewest if self.fate.choose(self.path, !number, 8) > 0 => count,
            Style::MostlyNewest => any(),
        }
    }
}
