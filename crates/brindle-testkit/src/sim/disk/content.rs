//! Contents of one simulated file: what a reader sees, what the platter holds, and the versions in between.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Fate;

/// Unit that a disk writes whole or not at all.
pub const SECTOR_LEN: usize = 512;
/// Unsynced versions remembered for one sector, or for the length, beside those that a sync under way is to make
/// durable; older ones are forgotten first.
const VERSIONS_MAX: usize = 8;

static ZEROS: [u8; SECTOR_LEN] = [0; SECTOR_LEN];

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

#[derive(Default)]
pub(super) struct Content {
    /// Bytes that readers see.
    cache: BTreeMap<u64, Bytes>,
    len: u64,
    /// Bytes that the platter is known to hold.
    platter: BTreeMap<u64, Bytes>,
    platter_len: u64,
    /// Written since the last sync.
    unsynced: BTreeMap<u64, Versions<Sector>>,
    unsynced_len: Versions<Len>,
    /// Number of the last write.
    writes: u64,
    /// Marks of the syncs under way.
    syncing: Vec<u64>,
}

/// Adds a version. A version that a sync under way is to make durable is never forgotten, however often its sector is
/// written meanwhile: a disk that forgot it would break the promise of that sync.
fn push<T>(versions: &mut Versions<T>, syncing: &[u64], number: u64, value: T) {
    if versions.len() >= VERSIONS_MAX {
        let covered = |pair: &[(u64, T)]| syncing.iter().any(|mark| (pair[0].0..pair[1].0).contains(mark));
        if let Some(oldest) = versions.windows(2).position(|pair| !covered(pair)) {
            versions.remove(oldest);
        }
    }
    versions.push((number, value));
}

fn store(map: &mut BTreeMap<u64, Bytes>, at: u64, sector: Sector) {
    match sector {
        Some(bytes) => drop(map.insert(at, bytes)),
        None => drop(map.remove(&at)),
    }
}

impl Content {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Sectors that take space.
    pub fn sectors(&self) -> usize {
        self.cache.len()
    }

    /// Sectors of the range that do not take space yet.
    pub fn missing(&self, offset: u64, len: u64) -> usize {
        let (first, end) = sector_range(offset, len);
        (end - first) as usize - self.cache.range(first..end).count()
    }

    /// Fills `buf` from `offset`; returns the bytes before the end of the file.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = (self.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        let buf = &mut buf[..n];
        buf.fill(0);
        let (first, end) = sector_range(offset, n as u64);
        for (at, sector) in self.cache.range(first..end) {
            let start = at * SECTOR_LEN as u64;
            let from = offset.max(start);
            let to = (offset + n as u64).min(start + SECTOR_LEN as u64);
            let part = &sector[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        n
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        self.writes += 1;
        let (first, end) = sector_range(offset, data.len() as u64);
        let start = first * SECTOR_LEN as u64;
        // A buffer of whole sectors: old bytes at both ends, new ones between.
        let mut whole = vec![0; ((end - first) as usize) * SECTOR_LEN];
        for edge in [first, end - 1] {
            if let Some(old) = self.cache.get(&edge) {
                let at = ((edge - first) as usize) * SECTOR_LEN;
                whole[at..at + SECTOR_LEN].copy_from_slice(old);
            }
        }
        let skip = (offset - start) as usize;
        whole[skip..skip + data.len()].copy_from_slice(data);
        let whole = Bytes::from(whole);
        for at in first..end {
            let i = ((at - first) as usize) * SECTOR_LEN;
            self.put(at, Some(whole.slice(i..i + SECTOR_LEN)));
        }
        self.grow(offset + data.len() as u64);
    }

    fn put(&mut self, at: u64, sector: Sector) {
        push(self.unsynced.entry(at).or_default(), &self.syncing, self.writes, sector.clone());
        store(&mut self.cache, at, sector);
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
            self.erase(len, self.len - len);
        }
        if len != self.len {
            self.len = len;
            push(&mut self.unsynced_len, &self.syncing, self.writes, Len { bytes: len, set: true });
        }
    }

    /// Takes space for the range without changing its contents.
    pub fn allocate(&mut self, offset: u64, len: u64, keep_len: bool) {
        self.writes += 1;
        let (first, end) = sector_range(offset, len);
        for at in first..end {
            if !self.cache.contains_key(&at) {
                self.put(at, Some(Bytes::from_static(&ZEROS)));
            }
        }
        if !keep_len {
            self.grow(offset + len);
        }
    }

    /// Makes the range a hole.
    pub fn punch(&mut self, offset: u64, len: u64) {
        self.writes += 1;
        let end = (offset + len).min(self.len);
        if offset < end {
            self.erase(offset, end - offset);
        }
    }

    fn erase(&mut self, offset: u64, len: u64) {
        let (first, end) = sector_range(offset, len);
        let hit: Vec<(u64, Bytes)> = self.cache.range(first..end).map(|(at, s)| (*at, s.clone())).collect();
        for (at, old) in hit {
            let start = at * SECTOR_LEN as u64;
            let from = offset.max(start) - start;
            let to = (offset + len).min(start + SECTOR_LEN as u64) - start;
            // A file that ends within a sector has nothing behind its end.
            let rest_is_behind_end = start + to >= self.len;
            if from == 0 && (to == SECTOR_LEN as u64 || rest_is_behind_end) {
                self.put(at, None);
            } else {
                let mut sector = old.to_vec();
                sector[from as usize..to as usize].fill(0);
                self.put(at, Some(sector.into()));
            }
        }
    }

    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let first = offset / SECTOR_LEN as u64;
        let (at, _) = self.cache.range(first..).next()?;
        let found = offset.max(at * SECTOR_LEN as u64);
        (found < self.len).then_some(found)
    }

    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset / SECTOR_LEN as u64;
        for (sector, _) in self.cache.range(at..) {
            if *sector != at {
                break;
            }
            at += 1;
        }
        offset.max(at * SECTOR_LEN as u64).min(self.len.max(offset))
    }

    /// Begins a sync. The returned mark is the number of the last write that the sync must cover.
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
        let platter = &mut self.platter;
        self.unsynced.retain(|at, versions| {
            if let Some(last) = versions.iter().rposition(|(n, _)| *n <= mark) {
                store(platter, *at, versions[last].1.clone());
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        if let Some(last) = self.unsynced_len.iter().rposition(|(n, _)| *n <= mark) {
            self.platter_len = self.unsynced_len[last].1.bytes;
            self.unsynced_len.drain(..=last);
        }
    }

    /// A sync that failed: as on Linux, the data it should have written stay readable, are clean from now on, and may
    /// never reach the platter, and neither does the length that they would have carried. Holes and lengths that were
    /// set are the file system's own: they wait in its journal for the next sync.
    pub fn sync_failed(&mut self, mark: u64) {
        self.end_sync(mark);
        self.unsynced.retain(|_, versions| {
            versions.retain(|(_, sector)| sector.is_none());
            !versions.is_empty()
        });
        self.unsynced_len.retain(|(_, len)| len.set);
    }

    /// Chooses what survives.
    pub fn power_cut(&mut self, fate: Fate, path: &str) {
        // Of four power cuts, one loses everything unsynced of a file, one keeps everything, two choose sector by
        // sector.
        let mode = fate.choose(path, u64::MAX, 4);
        let chosen = |number: u64, count: usize| match mode {
            0 => 0,
            1 => count,
            _ => fate.choose(path, number, count as u64 + 1) as usize,
        };
        for (at, mut versions) in std::mem::take(&mut self.unsynced) {
            if let Some(last) = chosen(at, versions.len()).checked_sub(1) {
                store(&mut self.platter, at, versions.swap_remove(last).1);
            }
        }
        let lens = std::mem::take(&mut self.unsynced_len);
        if let Some(last) = chosen(u64::MAX - 1, lens.len()).checked_sub(1) {
            self.platter_len = lens[last].1.bytes;
        }
        self.syncing.clear();
        self.zero_behind_end();
        self.len = self.platter_len;
        self.cache = self.platter.clone();
    }

    /// Makes bytes behind the end read as zeros when the file grows again; space that was taken there stays
    /// taken.
    fn zero_behind_end(&mut self) {
        let behind = sector_range(0, self.platter_len).1;
        self.platter.range_mut(behind..).for_each(|(_, sector)| *sector = Bytes::from_static(&ZEROS));
        let within = (self.platter_len % SECTOR_LEN as u64) as usize;
        let at = self.platter_len / SECTOR_LEN as u64;
        if within != 0
            && let Some(sector) = self.platter.get_mut(&at)
        {
            let mut bytes = sector.to_vec();
            bytes[within..].fill(0);
            *sector = bytes.into();
        }
    }

    /// Flips one bit of the stored byte at `offset`; false in a hole.
    pub fn rot(&mut self, offset: u64) -> bool {
        let (at, within) = (offset / SECTOR_LEN as u64, (offset % SECTOR_LEN as u64) as usize);
        let mut hit = false;
        for map in [&mut self.cache, &mut self.platter] {
            if let Some(sector) = map.get_mut(&at) {
                let mut bytes = sector.to_vec();
                bytes[within] ^= 0x10;
                *sector = bytes.into();
                hit = true;
            }
        }
        hit
    }
}

/// First sector of a range, and the one behind its last.
fn sector_range(offset: u64, len: u64) -> (u64, u64) {
    (offset / SECTOR_LEN as u64, (offset + len).div_ceil(SECTOR_LEN as u64))
}
