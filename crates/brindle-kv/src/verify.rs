//! Verification of an open store's files from the device, a piece at a time, while the store goes on.
//!
//! | file | a piece is right if |
//! |---|---|
//! | segment of the log | its header is the one that was written, and each record up to the last synced one matches its checksum |
//! | checkpoint | each block is as redb last read or wrote it ([`crate::backend::Sums`]); rows have checksums of their own ([`Snapshot::digest`]) |
//!
//! Called by the scrub of the MDT. Bytes come from the device, past the page cache. Invariants: damage counts only after a second look at the
//! store as it is then; what is being written is never called damaged; nothing that is being written is overwritten. The spare segment is not
//! read: its contents have no meaning.

use std::sync::Arc;

use brindle_stdx::buffers::Buffer;
use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_stdx::{DiskFile, crc_append};
use brindle_types::Result;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::backend::{BLOCK_BYTES, BLOCK_LEN, BlockState, Sums};
use crate::batch::LogPos;
use crate::fault::{log_io, store_io};
use crate::format::{HEADER_BYTES, SegmentHeader, claimed_len, decode_record};
use crate::memtable::Memtable;
use crate::scan::{Segment, bound};
use crate::snapshot::Snapshot;
use crate::store::STORE_FILE;
use crate::tail::decode_records;

/// Bytes of a piece, about.
pub const VERIFY_BYTES: usize = 1 << 20;
/// Bytes that are read for a record that does not end within a piece: more than the largest batch takes.
const RECORD_BYTES_MAX: usize = 4 << 20;
/// Rows that are in memory at a time for a digest.
const DIGEST_CHUNK_ROWS: usize = 64;
/// Looks at a block that seems damaged while it may be being written.
const BLOCK_LOOKS: usize = 4;

/// Place in the files of a store: the piece that is read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// Name of the file in the directory of the store.
    pub file: String,
    /// Offset of the piece.
    pub offset: u64,
    /// Index of the record there, in a segment of the log.
    pub index: u64,
}

/// A damaged place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// Name of the file in the directory of the store.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// Reason.
    pub why: String,
    /// Whether the place was written anew.
    pub is_mended: bool,
}

impl FileDamage {
    /// Whether [`crate::Kv::renew_log`] mends it: all rows of the log are in memory or in the checkpoint.
    pub fn is_in_log(&self) -> bool {
        self.file != STORE_FILE
    }
}

/// Outcome for a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The next piece; `None` at the end of all files.
    pub next: Option<FilePlace>,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Damage in this piece.
    pub damaged: Vec<FileDamage>,
}

struct LiveSegment {
    path: String,
    name: String,
    header: SegmentHeader,
    /// Index behind the last record that has to be there.
    end: u64,
}

/// Files of a store at a moment, and what is known of them.
pub struct Verifier {
    disk: Arc<dyn Disk>,
    dir: String,
    sums: Arc<Mutex<Sums>>,
    segments: Vec<LiveSegment>,
}

/// Verifies the piece at `place`, or the first one, and mends blocks of the checkpoint whose right bytes are in memory. `fresh` gives the files as they
/// are now; it is asked again where something looks damaged. Blocks on the disk.
pub fn verify(fresh: &dyn Fn() -> Result<Verifier>, place: Option<&FilePlace>) -> Result<Verified> {
    let seen = fresh()?.step(place)?;
    if seen.damaged.is_empty() {
        return Ok(seen);
    }
    let now = fresh()?;
    let mut confirmed = Vec::new();
    let mut files: Vec<&String> = seen.damaged.iter().map(|damage| &damage.file).collect();
    files.dedup();
    for file in files {
        if file == STORE_FILE {
            let blocks = seen.damaged.iter().filter(|damage| damage.file == *file);
            for block in blocks {
                confirmed.extend(now.settle_block(to_usize(block.offset / BLOCK_BYTES))?);
            }
        } else {
            // From its beginning: the place in the segment may be one of an earlier segment of this name.
            confirmed.extend(now.look_at_segment(file)?);
        }
    }
    Ok(Verified { damaged: confirmed, ..seen })
}

impl Verifier {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &str,
        sums: Arc<Mutex<Sums>>,
        segments: &[Segment],
        synced: u64,
    ) -> Verifier {
        let live = |(n, segment): (usize, &Segment)| {
            let next = segments.get(n + 1);
            let end = next.map_or(synced + 1, |next| bound(&segment.header, &next.header));
            let name = segment.header.file_name();
            LiveSegment { path: segment.path.clone(), name, header: segment.header, end }
        };
        let segments = segments.iter().enumerate().map(live).collect();
        Verifier { disk, dir: dir.to_owned(), sums, segments }
    }

    fn store_path(&self) -> String {
        format!("{}/{STORE_FILE}", self.dir)
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        let len = |path: &str| self.disk.stat(path).map_or(0, |stat| stat.len_bytes);
        len(&self.store_path()) + self.segments.iter().map(|segment| len(&segment.path)).sum::<u64>()
    }

    /// Whether a segment of the log is still needed.
    pub fn has_segment(&self, file: &str) -> bool {
        self.segments.iter().any(|segment| segment.name == file)
    }

    fn begin(segment: &LiveSegment) -> FilePlace {
        FilePlace { file: segment.name.clone(), offset: 0, index: segment.header.first_index }
    }

    /// The first piece of the first segment behind a file.
    fn behind(&self, file: &str) -> Option<FilePlace> {
        self.segments.iter().find(|segment| *segment.name > *file).map(Verifier::begin)
    }

    fn step(&self, place: Option<&FilePlace>) -> Result<Verified> {
        let Some(place) = place.filter(|place| place.file != STORE_FILE) else {
            return self.blocks(place.map_or(0, |place| place.offset));
        };
        match self.segments.iter().find(|segment| segment.name == place.file) {
            Some(segment) => self.records(segment, place),
            // The checkpoint has made it needless meanwhile.
            None => Ok(Verified { next: self.behind(&place.file), ..Verified::default() }),
        }
    }

    fn damage(file: &str, offset: u64, why: impl Into<String>) -> FileDamage {
        FileDamage { file: file.to_owned(), offset, why: why.into(), is_mended: false }
    }

    /// Compares blocks of the checkpoint with what is known of them.
    fn blocks(&self, offset: u64) -> Result<Verified> {
        let path = self.store_path();
        let io = |e| store_io("cannot verify the metadata store", &path, &e);
        let file = self.disk.open(&path, OpenHow::ReadOnly).map_err(io)?;
        let offset = offset - offset % BLOCK_BYTES;
        let first = to_usize(offset / BLOCK_BYTES);
        let known = self.sums.lock().len();
        let count = (VERIFY_BYTES / BLOCK_LEN).min(known.saturating_sub(first));
        let mut seen = Verified::default();
        let mut buffer = Buffer::new(VERIFY_BYTES);
        match file.read_direct(&mut buffer[..count * BLOCK_LEN], offset) {
            Ok(read) => {
                seen.read_bytes = read as u64;
                // A block may be written between these two lines: `settle_block` looks again.
                let sums = self.sums.lock();
                let blocks = buffer[..count * BLOCK_LEN].chunks_exact(BLOCK_LEN).enumerate();
                let bad = blocks.filter(|(n, block)| {
                    let is_short = (n + 1) * BLOCK_LEN > read;
                    let state = sums.judge(first + n, block);
                    state == BlockState::Damaged || is_short && state != BlockState::Unknown
                });
                let place = |n: usize| (first + n) as u64 * BLOCK_BYTES;
                seen.damaged.extend(bad.map(|(n, _)| Self::damage(STORE_FILE, place(n), "")));
            }
            Err(error) => {
                tracing::debug!(%error, path, offset, "the device does not give a piece of the metadata store");
                let bad = (first..first + count).filter(|n| self.sums.lock().get(*n).is_some());
                seen.damaged.extend(bad.map(|n| Self::damage(STORE_FILE, n as u64 * BLOCK_BYTES, "")));
            }
        }
        let is_last = first + count >= known;
        let next = FilePlace { file: STORE_FILE.to_owned(), offset: offset + VERIFY_BYTES as u64, index: 0 };
        seen.next = if is_last { self.segments.first().map(Verifier::begin) } else { Some(next) };
        Ok(seen)
    }

    /// Looks at a block of the checkpoint again, alone, and mends it if its right bytes are in memory.
    fn settle_block(&self, n: usize) -> Result<Option<FileDamage>> {
        let path = self.store_path();
        let io = |e| store_io("cannot verify the metadata store", &path, &e);
        let file = self.disk.open(&path, OpenHow::Existing).map_err(io)?;
        let at = n as u64 * BLOCK_BYTES;
        let mut why = String::new();
        for _ in 0..BLOCK_LOOKS {
            let before = self.sums.lock().get(n);
            let mut block = Buffer::new(BLOCK_LEN);
            let state = match file.read_direct(&mut block, at) {
                Ok(read) if read < BLOCK_LEN => {
                    why = format!("the file ends within the block, behind {read} bytes of it");
                    BlockState::Damaged
                }
                Ok(_) => {
                    why = "the block has changed since it was written".to_owned();
                    self.sums.lock().judge(n, &block)
                }
                Err(error) => {
                    why = format!("the device does not give the block: {error}");
                    BlockState::Damaged
                }
            };
            let sums = self.sums.lock();
            let is_steady = before.is_some() && before == sums.get(n);
            match state {
                BlockState::Whole | BlockState::Unknown => return Ok(None),
                BlockState::Damaged if !is_steady => continue,
                BlockState::Damaged => {}
            }
            // A block that cannot be written anew stays damaged.
            let is_mended = sums.mend(n, &*file).unwrap_or_else(|error| {
                tracing::warn!(%error, path, offset = at, "cannot write a damaged block of the metadata store anew");
                false
            });
            return Ok(Some(FileDamage { is_mended, ..Self::damage(STORE_FILE, at, why) }));
        }
        // The block is written again and again: redb knows what is there.
        tracing::debug!(path, offset = at, why, "a block of the metadata store was written during each look");
        Ok(None)
    }

    /// Verifies records of a segment from `place` on: about a piece of them.
    fn records(&self, segment: &LiveSegment, place: &FilePlace) -> Result<Verified> {
        let is_beginning = to_usize(place.offset) < HEADER_BYTES;
        let (mut at, mut index) = match is_beginning {
            true => (HEADER_BYTES as u64, segment.header.first_index),
            false => (place.offset, place.index),
        };
        let mut seen = Verified { next: self.behind(&segment.name), ..Verified::default() };
        let file = match self.disk.open(&segment.path, OpenHow::ReadOnly) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                seen.damaged.push(Self::damage(&segment.name, 0, "the file is missing"));
                return Ok(seen);
            }
            Err(e) => return Err(log_io("cannot verify the metadata log", &segment.path, &e)),
        };
        let mut window = match Window::read(&*file, if is_beginning { 0 } else { at }, VERIFY_BYTES) {
            Ok(window) => window,
            Err(error) => {
                let why = format!("the device does not give its bytes: {error}");
                seen.damaged.push(Self::damage(&segment.name, at, why));
                return Ok(seen);
            }
        };
        seen.read_bytes = window.bytes.len() as u64;
        if is_beginning && SegmentHeader::decode(&window.bytes).ok() != Some(segment.header) {
            seen.damaged.push(Self::damage(&segment.name, 0, "its header is not the one that was written"));
            return Ok(seen);
        }
        let start = at;
        while index < segment.end {
            let header = &segment.header;
            let found = decode_record(&window.bytes, window.within(at), header.seed(), header.term);
            if let Some(record) = found.filter(|record| record.index == index) {
                at += record.len_bytes as u64;
                index += 1;
                continue;
            }
            if window.may_hold(at) {
                let why = format!("record {index} does not match its checksum");
                seen.damaged.push(Self::damage(&segment.name, at, why));
                return Ok(seen);
            }
            if at > start {
                seen.next = Some(FilePlace { file: segment.name.clone(), offset: at, index });
                return Ok(seen);
            }
            window = Window::read(&*file, at, RECORD_BYTES_MAX)
                .map_err(|e| log_io("cannot verify the metadata log", &segment.path, &e))?;
        }
        Ok(seen)
    }

    /// Damage in a segment as it is now, if it is still needed.
    fn look_at_segment(&self, file: &str) -> Result<Vec<FileDamage>> {
        let Some(segment) = self.segments.iter().find(|segment| segment.name == file) else {
            return Ok(Vec::new());
        };
        let mut place = Verifier::begin(segment);
        loop {
            let seen = self.records(segment, &place)?;
            match seen.next.filter(|next| next.file == file) {
                Some(next) if seen.damaged.is_empty() => place = next,
                _ => return Ok(seen.damaged),
            }
        }
    }
}

/// Bytes of a segment around a record.
struct Window {
    start: u64,
    bytes: Bytes,
    /// Whether the file ends with these bytes.
    is_end: bool,
}

impl Window {
    fn read(file: &dyn DiskFile, at: u64, len: usize) -> std::io::Result<Window> {
        let start = at - at % BLOCK_BYTES;
        let mut buffer = Buffer::new(len);
        let read = file.read_direct(&mut buffer, start)?;
        Ok(Window { start, bytes: Bytes::copy_from_slice(&buffer[..read]), is_end: read < len })
    }

    fn within(&self, at: u64) -> usize {
        to_usize(at - self.start)
    }

    /// Whether the record at `at` would be here as a whole.
    fn may_hold(&self, at: u64) -> bool {
        let is_longest = self.bytes.len() >= RECORD_BYTES_MAX;
        let ends = claimed_len(&self.bytes, self.within(at))
            .is_some_and(|len| self.within(at).saturating_add(len) <= self.bytes.len());
        self.is_end || ends || is_longest && self.within(at) < BLOCK_LEN
    }
}

/// Rows of a range of keys in a few bytes, to be compared between members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Checksum over keys and values, in order.
    pub sum: u32,
    /// The last key; where there is no row, the key behind which it begins.
    pub last: Bytes,
    /// Whether no row follows.
    pub is_end: bool,
}

impl Snapshot {
    /// The snapshot as it became by later records. They are of the same log, and follow its last one.
    pub fn with_records(&self, records: &[(LogPos, Bytes)]) -> Result<Snapshot> {
        let mut active = Memtable::on_top_of(self.at());
        for (pos, record) in records {
            for (_, batch) in decode_records(record)? {
                active.apply(*pos, record.len(), batch.changes);
            }
        }
        let at = records.last().map_or(self.at(), |(pos, _)| *pos);
        Ok(self.on_top(active, at))
    }

    /// Digest of the rows behind the key `after`, up to the key `to` where it is given. Ends behind the row that makes `rows_max` rows or `bytes_max`
    /// bytes. Each row is verified.
    pub fn digest(&self, after: &[u8], to: Option<&[u8]>, rows_max: u64, bytes_max: u64) -> Result<Digest> {
        let mut digest = Digest { last: Bytes::copy_from_slice(after), ..Digest::default() };
        while digest.rows < rows_max && digest.bytes < bytes_max {
            let rows = self.rows_to(&digest.last, to, DIGEST_CHUNK_ROWS)?;
            let is_short = rows.len() < DIGEST_CHUNK_ROWS;
            let mut left = rows.into_iter();
            while digest.rows < rows_max && digest.bytes < bytes_max {
                let Some((key, value)) = left.next() else { break };
                digest.add(key, &value);
            }
            if is_short && left.next().is_none() {
                digest.is_end = true;
                break;
            }
        }
        Ok(digest)
    }
}

impl Digest {
    fn add(&mut self, key: Bytes, value: &[u8]) {
        for part in [&*key, value] {
            self.bytes += part.len() as u64;
            self.sum = crc_append(self.sum, &(part.len() as u64).to_be_bytes());
            self.sum = crc_append(self.sum, part);
        }
        self.rows += 1;
        self.last = key;
    }

    /// Whether the same rows were seen.
    pub fn is_same(&self, other: &Digest) -> bool {
        (self.rows, self.bytes, self.sum) == (other.rows, other.bytes, other.sum)
    }
}
