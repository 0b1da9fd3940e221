//! Readahead of this client, for reads that fill no pages of the kernel (files that somebody writes, and O_DIRECT), and for strided
//! reads, for which the kernel does not read ahead.
//!
//! A handle knows how it is read ([`Follow`]); what was fetched belongs to the file ([`Chunks`]), so that processes that read it in
//! turns on one mount have it fetched once. The chunks stand in for the kernel's page cache: the OSTs note that this client keeps the
//! bytes, and whoever changes them waits until it has dropped them (`docs/design/001-mixed-state.md`).
//!
//! Several processes that each read their pieces of one file, in turns, leave out what the others read. Linux sees the gap before each
//! piece and takes it for a small read of its own (`page_cache_sync_ra`, 6.18): one request after the other, as long as the piece.
//! Readahead therefore covers these readers as well. Short pieces are fetched with the gaps between them, as long as a gap is not
//! longer than a piece. Long pieces are fetched alone, where each has the same distance to its predecessor. Invariants: a chunk is not
//! used if the file may have changed after the chunk was asked for. [`Seen`] tells; any change counts, wherever in the file it was.
//! Chunks are kept only while a live handle reads near them: a mount without one is told of no changes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::cast::to_usize;
use brindle_stdx::{BoxFuture, Mono, planted};
use brindle_types::Pair;
use brindle_wire::oss::Ticket;
use bytes::Bytes;
use futures_util::future::Shared;

use crate::unsynced::Room;

/// No chunk crosses a multiple of this length: each chunk lies in one object of a usual layout, and comes in one piece.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Longer reads need no readahead.
const READ_BYTES_MAX: u64 = CHUNK_BYTES / 2;
/// Between longer reads with gaps the gaps are not fetched.
const STEP_BYTES_MAX: u64 = 128 << 10;
/// Most long pieces that are fetched ahead for a handle; never more than it has read.
const PIECES_AHEAD_MAX: u64 = 4;
/// Most bytes fetched ahead after the last read; never more than the sequence has read, but for the first chunk.
const AHEAD_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
/// Time after which the readahead of an idle handle is dropped.
const IDLE_MS: u64 = 10_000;
/// Most bytes of all chunks of one mount, except long pieces.
pub(crate) const CHUNKS_BYTES_MAX: usize = 64 << 20;
/// Most bytes of all long pieces of one mount: a reader of small pieces gains more by each byte.
pub(crate) const PIECES_BYTES_MAX: usize = 32 << 20;
/// Reads in sequence before anything is fetched ahead.
const PATIENCE_MIN: u32 = 2;
/// Bound of that number where fetched bytes were of no use again and again.
const PATIENCE_MAX: u32 = 256;

/// A state of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`crate::inodes::State::contents`].
    pub contents: u64,
    pub body: Pair,
    pub ticket: Ticket,
}

/// Kind of reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The kernel, to fill its pages: it reads ahead by itself where there are no gaps.
    Kernel,
    /// A program.
    Program,
}

/// Read pattern of a handle.
pub(crate) struct Follow {
    /// Reads in sequence so far, the start of the first, and the earliest start of the next.
    run: u32,
    start: u64,
    next: u64,
    /// Start of the last read, and its distance from the start of the one before.
    last: u64,
    step: u64,
    /// The reads are long pieces with gaps between them, each `step` behind the one before.
    in_pieces: bool,
    /// Reads of the pattern that are needed before bytes are fetched ahead.
    patience: u32,
    /// Bytes that were fetched for these reads, and bytes of long pieces that were read since then.
    fetched_bytes: u64,
    used_bytes: u64,
    /// [`Chunks::losses`] at the start of the sequence.
    losses: u64,
    /// The handle is closed or dead.
    is_over: bool,
}

impl Default for Follow {
    fn default() -> Follow {
        let patience = PATIENCE_MIN;
        Follow {
            run: 0,
            start: 0,
            next: 0,
            last: 0,
            step: 0,
            in_pieces: false,
            patience,
            fetched_bytes: 0,
            used_bytes: 0,
            losses: 0,
            is_over: false,
        }
    }
}

impl Follow {
    /// Notes a read; called first for every read, once.
    pub fn note(&mut self, range: &Range<u64>, reader: Reader) {
        let len = range.end - range.start;
        let step = if self.run == 0 { 0 } else { range.start.wrapping_sub(self.last) };
        let (mut follows, mut in_pieces) = (false, false);
        match range.start.checked_sub(self.next) {
            None => {}
            Some(0) => follows = reader == Reader::Program,
            Some(gap) if len <= STEP_BYTES_MAX => follows = gap <= len,
            Some(_) => (follows, in_pieces) = (step == self.step, true),
        }
        if follows && (self.run == 1 || in_pieces == self.in_pieces) {
            self.run = self.run.saturating_add(1);
            self.in_pieces = in_pieces;
            if in_pieces && self.fetched_bytes > 0 {
                self.used_bytes += len;
            }
            if self.fetched_bytes > 0 && self.used_bytes() > self.fetched_bytes / 2 {
                self.patience = PATIENCE_MIN;
            }
        } else {
            if self.used_bytes() < self.fetched_bytes / 2 {
                self.be_patient();
            }
            self.begin_at(range.start);
        }
        (self.last, self.step) = (range.start, step);
        self.next = range.end;
    }

    /// Whether it reads long pieces.
    pub fn is_in_pieces(&self) -> bool {
        self.in_pieces
    }

    /// Number of fetched bytes that were read.
    fn used_bytes(&self) -> u64 {
        if self.in_pieces { self.used_bytes } else { self.next - self.start }
    }

    /// Ends read-ahead for the handle; called before [`Chunks::leave`].
    pub fn end(&mut self) {
        self.is_over = true;
    }

    fn begin_at(&mut self, at: u64) {
        (self.run, self.start, self.next, self.in_pieces) = (1, at, at, false);
        (self.fetched_bytes, self.used_bytes) = (0, 0);
    }

    /// The readahead was of no use: the reader went elsewhere, or the bytes cannot be read.
    fn be_patient(&mut self) {
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        self.begin_at(self.next);
    }
}

/// Bytes that were fetched ahead.
pub(crate) struct Fetched {
    /// All of the chunk, in one piece: those of many objects would each hold the block of memory that they came in.
    pub bytes: Bytes,
    pub _room: Room,
}

/// Bytes on their way; `None` if they could not be read.
pub(crate) type Coming = Shared<BoxFuture<'static, Option<Arc<Fetched>>>>;

struct Chunk {
    seen: Seen,
    /// Range in the file. The end of the range may be the end of the file.
    range: Range<u64>,
    /// The handle that the chunk was fetched for, unless others read on there.
    piece_of: Option<u64>,
    bytes: Coming,
}

/// A handle for which something is fetched.
struct FetchingHandle {
    /// Offset of the last read, and its time.
    at: u64,
    last: Mono,
    /// Distance within which the pieces of the handle are kept: several reads through it may be under way.
    reach_bytes: u64,
}

/// Fetched bytes of a file.
#[derive(Default)]
pub(crate) struct Chunks {
    /// Chunks by their start; none begins within another.
    by_start: BTreeMap<u64, Chunk>,
    /// Readers by the numbers of the handles.
    readers: BTreeMap<u64, FetchingHandle>,
    /// Number of times that changes by others have dropped chunks. A client that changes the file should not have to wait for us again
    /// and again: after each loss, reads start a new sequence and more of them are needed before the next fetch.
    losses: u64,
    patience: u32,
}

/// State of the bytes of a read.
pub(crate) enum ReadState {
    /// The bytes were fetched ahead.
    Bytes(Vec<Bytes>),
    /// The bytes are on their way: wait for them, then look again.
    Coming(Coming),
    /// The bytes must be asked for.
    Nothing,
}

impl Chunks {
    /// The bytes of `range` for a handle, if nothing has changed since they were asked for. Pieces that only this handle reads go when
    /// they have been read to their end.
    pub fn find(
        &mut self,
        handle: u64,
        follow: &mut Follow,
        seen: Option<Seen>,
        range: &Range<u64>,
    ) -> ReadState {
        let changed = self.by_start.values().any(|chunk| seen != Some(chunk.seen));
        if changed && !planted("client_reads_ahead_of_changes") {
            self.by_start.clear();
            self.losses += 1;
            self.patience = (self.patience.max(PATIENCE_MIN) * 2).min(PATIENCE_MAX);
        }
        if follow.losses != self.losses {
            follow.losses = self.losses;
            follow.begin_at(follow.next);
        }
        if self.missing(range.clone()).is_some() {
            return ReadState::Nothing;
        }
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(chunk) = self.chunk_at(at) else { return ReadState::Nothing };
            let (start, end) = (chunk.range.start, range.end.min(chunk.range.end));
            let is_read_to_its_end = chunk.range.end == end;
            match chunk.bytes.peek() {
                None => return ReadState::Coming(chunk.bytes.clone()),
                Some(Some(fetched)) => {
                    let from = to_usize(at - start);
                    found.push(fetched.bytes.slice(from..from + to_usize(end - at)));
                }
                Some(None) => {
                    // The part that cannot be read may be one that no program has asked for.
                    self.by_start.remove(&start);
                    follow.be_patient();
                    return ReadState::Nothing;
                }
            }
            if is_read_to_its_end {
                // The chunk was used to its end without a change by others.
                self.patience = 0;
            }
            at = end;
        }
        let is_read = |chunk: &Chunk| {
            chunk.piece_of == Some(handle) && chunk.range.start < range.end && chunk.range.end > range.start
        };
        self.by_start.retain(|_, chunk| !is_read(chunk) || chunk.range.end > range.end);
        ReadState::Bytes(found)
    }

    /// Whether something is fetched ahead for a handle.
    fn follows(&self, follow: &Follow) -> bool {
        !follow.is_over && follow.run >= follow.patience.max(self.patience)
    }

    fn chunk_at(&self, at: u64) -> Option<&Chunk> {
        let (_, chunk) = self.by_start.range(..=at).next_back()?;
        Some(chunk).filter(|chunk| chunk.range.end > at)
    }

    /// The first part of a range that no chunk has, as far as one chunk may reach.
    fn missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        while let Some(chunk) = self.chunk_at(start) {
            start = chunk.range.end;
        }
        let next = self.by_start.range(start..).next().map_or(u64::MAX, |(next, _)| *next);
        let end = range.end.min((start / CHUNK_BYTES + 1) * CHUNK_BYTES).min(next);
        (start < end).then_some(start..end)
    }

    /// Range to fetch now for a handle that reads `range`, where the file is known to reach to `size_bytes`.
    /// The caller asks again after it has added that range.
    pub fn wanted(&self, follow: &Follow, range: &Range<u64>, size_bytes: u64) -> Option<Range<u64>> {
        let len = range.end - range.start;
        if !self.follows(follow) || range.end >= size_bytes {
            return None;
        }
        if follow.in_pieces {
            let pieces = PIECES_AHEAD_MAX.min(follow.run.into());
            let starts = (1..pieces + 1).map_while(|n| range.start.checked_add(n.checked_mul(follow.step)?));
            return starts
                .take_while(|start| *start < size_bytes)
                .find_map(|start| self.missing(start..start.saturating_add(len).min(size_bytes)));
        }
        if len > READ_BYTES_MAX {
            return None;
        }
        // (Another read may have begun a later run meanwhile.)
        let far = range.end + AHEAD_BYTES_MAX.min(range.end.saturating_sub(follow.start));
        let missing = self.missing(range.start..far.next_multiple_of(CHUNK_BYTES).min(size_bytes))?;
        Some(missing).filter(|missing| missing.start < far)
    }

    /// Keeps what [`Chunks::wanted`] named for a handle and was asked for when the contents were as in `seen`.
    pub fn add(&mut self, handle: u64, follow: &mut Follow, seen: Seen, range: Range<u64>, bytes: Coming) {
        follow.fetched_bytes += range.end - range.start;
        let piece_of = follow.in_pieces.then_some(handle);
        self.by_start.insert(range.start, Chunk { seen, range, piece_of, bytes });
    }

    /// A handle has come to `at`. Chunks that no handle will read soon are dropped.
    pub fn reads(&mut self, handle: u64, follow: &Follow, at: u64, now: Mono) {
        let reach_bytes = if follow.in_pieces { follow.step.saturating_mul(PIECES_AHEAD_MAX + 1) } else { 0 };
        match self.follows(follow) {
            true => self.readers.insert(handle, FetchingHandle { at, last: now, reach_bytes }),
            false => self.readers.remove(&handle),
        };
        self.drop_others();
    }

    /// A handle reads no more.
    pub fn leave(&mut self, handle: u64) {
        if self.readers.remove(&handle).is_some() {
            self.drop_others();
        }
    }

    /// Drops bytes of handles that have not read for long.
    pub fn drop_idle(&mut self, now: Mono) {
        let before = self.readers.len();
        self.readers.retain(|_, place| now.ms_since(place.last) < IDLE_MS);
        if self.readers.len() < before {
            self.drop_others();
        }
    }

    fn drop_others(&mut self) {
        let readers = &self.readers;
        self.by_start.retain(|_, Chunk { range, piece_of, .. }| {
            readers.iter().any(|(handle, place)| {
                let (behind, before) = match piece_of {
                    Some(owner) if owner == handle => (place.reach_bytes, place.reach_bytes),
                    Some(_) => return false,
                    None => (0, AHEAD_BYTES_MAX + CHUNK_BYTES),
                };
                range.end.saturating_add(behind) > place.at && range.start < place.at.saturating_add(before)
            })
        });
    }
}

#[cfg(test)]
mod tests;
