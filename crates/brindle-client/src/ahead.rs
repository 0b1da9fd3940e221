//! Bytes fetched before they are asked for, for reads that fill no pages of the kernel: of files that somebody writes,
//! and with O_DIRECT; and for reads in steps, of which the kernel reads nothing ahead.
//!
//! A handle knows how it is read ([`Follow`]); what was fetched belongs to the file ([`Chunks`]), so that processes that read it
//! in turns on one mount have it fetched once. It is what the kernel's pages are elsewhere: the OSTs note that this client keeps
//! the bytes, and whoever changes them waits until it has dropped them (`docs/design/001-mixed-state.md`).
//!
//! Several processes that each read their pieces of one file, in turns, leave out what the others read. Linux sees the gap before each
//! piece and takes it for a small read of its own (`page_cache_sync_ra`, 6.18): one request after the other, as long as the
//! piece. So bytes are fetched ahead for these as well: of short pieces with what lies between them, as long as that is not more,
//! and long pieces alone, where each comes as far behind the one before it as that one did.
//! Invariants: nothing is given out once the file may have changed since before it was asked for; [`Seen`] tells, and any
//! change counts, wherever in the file it was. Chunks are kept only while a live handle reads near them: a mount without one
//! is told of no changes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::{BoxFuture, Mono, planted};
use brindle_types::Pair;
use brindle_wire::oss::Ticket;
use bytes::Bytes;
use futures_util::future::Shared;

use crate::kept::Room;

/// No chunk reaches over a multiple of this: so each lies in one object of a usual layout, and comes in one piece.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Longer reads are far enough by themselves.
const READ_BYTES_MAX: u64 = CHUNK_BYTES / 2;
/// Of longer reads with gaps between them the gaps are not fetched.
const STEP_BYTES_MAX: u64 = 128 << 10;
/// So many long pieces are fetched ahead for a handle at most; not more than it has read.
const PIECES_AHEAD_MAX: u64 = 4;
/// So far behind the last read chunks are fetched at most; not farther than was read in sequence, but for the first one.
const AHEAD_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
/// Handles that have not read for so long have nothing kept for them.
const IDLE_MS: u64 = 10_000;
/// Bytes of all chunks of one mount, at most, but for those of long pieces.
pub(crate) const CHUNKS_BYTES_MAX: usize = 64 << 20;
/// Bytes of all long pieces of one mount, at most: who reads little at a time gains more by each byte.
pub(crate) const PIECES_BYTES_MAX: usize = 32 << 20;
/// Reads in sequence before anything is fetched ahead.
const PATIENCE_MIN: u32 = 2;
/// The same, where what was fetched was of no use again and again.
const PATIENCE_MAX: u32 = 256;

/// A state of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`crate::inodes::State::contents`].
    pub contents: u64,
    pub body: Pair,
    pub ticket: Ticket,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The kernel, to fill its pages: it reads ahead itself what has no gaps.
    Kernel,
    /// A program.
    Program,
}

/// How a handle is read.
pub(crate) struct Follow {
    /// Reads in sequence so far, where the first of them began, and where the next one begins at the earliest.
    run: u32,
    start: u64,
    next: u64,
    /// Where the last read began, and how far behind the one before it.
    last: u64,
    step: u64,
    /// The reads are long pieces with gaps between them, each `step` behind the one before.
    in_pieces: bool,
    /// So many of them before something is fetched ahead.
    patience: u32,
    /// Bytes that were fetched for them, and of long pieces those that were read since then.
    fetched_bytes: u64,
    used_bytes: u64,
    /// [`Chunks::losses`] when they began.
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
    /// Every read comes here first, once.
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

    /// Of what was fetched.
    fn used_bytes(&self) -> u64 {
        if self.in_pieces { self.used_bytes } else { self.next - self.start }
    }

    /// Nothing is kept for it from now on; said before [`Chunks::leave`].
    pub fn end(&mut self) {
        self.is_over = true;
    }

    fn begin_at(&mut self, at: u64) {
        (self.run, self.start, self.next, self.in_pieces) = (1, at, at, false);
        (self.fetched_bytes, self.used_bytes) = (0, 0);
    }

    /// What was fetched ahead was for nothing: the reader went elsewhere, or it cannot be read.
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
    /// At its end also the file may end.
    range: Range<u64>,
    /// The handle that it was fetched for, if others do not read on there.
    piece_of: Option<u64>,
    bytes: Coming,
}

/// A handle for which something is fetched.
struct Place {
    /// How far it has come, and when.
    at: u64,
    last: Mono,
    /// So far around that its own pieces are kept: several reads through it may be under way.
    reach_bytes: u64,
}

/// What was fetched of a file.
#[derive(Default)]
pub(crate) struct Chunks {
    /// By where they begin; none begins within another.
    by_start: BTreeMap<u64, Chunk>,
    /// By the numbers of the handles.
    readers: BTreeMap<u64, Place>,
    /// How often chunks were lost to somebody's changes. Who changes the file should not have to wait for us again and again:
    /// reads in sequence begin anew each time, and more of them are waited for.
    losses: u64,
    patience: u32,
}

/// What there is of the bytes of a read.
pub(crate) enum Found {
    /// They were fetched ahead.
    Bytes(Vec<Bytes>),
    /// They are on their way: to be waited for, and then looked for again.
    Coming(Coming),
    /// They are to be asked for.
    Nothing,
}

impl Chunks {
    /// The bytes of `range` for a handle, if nothing has changed since they were asked for. Its own pieces go when they have been
    /// read to their end.
    pub fn find(
        &mut self,
        handle: u64,
        follow: &mut Follow,
        seen: Option<Seen>,
        range: &Range<u64>,
    ) -> Found {
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
            return Found::Nothing;
        }
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(chunk) = self.chunk_at(at) else { return Found::Nothing };
            let (start, end) = (chunk.range.start, range.end.min(chunk.range.end));
            let is_read_to_its_end = chunk.range.end == end;
            match chunk.bytes.peek() {
                None => return Found::Coming(chunk.bytes.clone()),
                Some(Some(fetched)) => {
                    let from = (at - start) as usize;
                    found.push(fetched.bytes.slice(from..from + (end - at) as usize));
                }
                Some(None) => {
                    // What was not asked for may be what cannot be read.
                    self.by_start.remove(&start);
                    follow.be_patient();
                    return Found::Nothing;
                }
            }
            if is_read_to_its_end {
                // And nobody has changed anything.
                self.patience = 0;
            }
            at = end;
        }
        let is_read = |chunk: &Chunk| {
            chunk.piece_of == Some(handle) && chunk.range.start < range.end && chunk.range.end > range.start
        };
        self.by_start.retain(|_, chunk| !is_read(chunk) || chunk.range.end > range.end);
        Found::Bytes(found)
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

    /// What to fetch now for a handle that reads `range`, where the file is known to reach to `size_bytes`. To be asked again
    /// when that has been added.
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

    /// A handle has come to `at`. What no handle will read soon goes.
    pub fn reads(&mut self, handle: u64, follow: &Follow, at: u64, now: Mono) {
        let reach_bytes = if follow.in_pieces { follow.step.saturating_mul(PIECES_AHEAD_MAX + 1) } else { 0 };
        match self.follows(follow) {
            true => self.readers.insert(handle, Place { at, last: now, reach_bytes }),
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

    /// What is kept for handles that have not read for long goes.
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
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::kept::Budget;

    const TICKET: Ticket =
        Ticket { layout_epoch: Pair::ZERO, truncate_epoch: Pair::ZERO, attr_epoch: Pair::ZERO };
    const SEEN: Seen = Seen { contents: 3, body: Pair::ZERO, ticket: TICKET };
    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 10 * MIB + 5000;

    /// The byte of the file at `at`.
    fn byte(at: u64) -> u8 {
        (at / 1000) as u8
    }

    /// Bytes that are there.
    fn fetched(range: Range<u64>) -> Coming {
        let bytes = range.map(byte).collect();
        let room = Arc::new(Budget::new(1)).take(1).expect("there is room");
        let coming = async move { Some(Arc::new(Fetched { bytes, _room: room })) }.boxed().shared();
        coming.clone().now_or_never();
        coming
    }

    /// A file and its handles; what is wanted is there at once.
    struct File {
        chunks: Chunks,
        handles: [Follow; 2],
        fetched: Vec<Range<u64>>,
        now: Mono,
        size: u64,
    }

    impl Default for File {
        fn default() -> File {
            let (chunks, handles) = Default::default();
            File { chunks, handles, fetched: Vec::new(), now: Mono::default(), size: SIZE }
        }
    }

    impl File {
        /// Whether the bytes of a read were there, or came as a chunk.
        fn read(&mut self, handle: usize, seen: Option<Seen>, range: Range<u64>, reader: Reader) -> bool {
            let (chunks, follow) = (&mut self.chunks, &mut self.handles[handle]);
            follow.note(&range, reader);
            let mut found = chunks.find(handle as u64, follow, seen, &range);
            while let Some(seen) = seen
                && let Some(wanted) = chunks.wanted(follow, &range, self.size)
            {
                self.fetched.push(wanted.clone());
                chunks.add(handle as u64, follow, seen, wanted.clone(), fetched(wanted));
            }
            if matches!(found, Found::Nothing) {
                found = chunks.find(handle as u64, follow, seen, &range);
            }
            chunks.reads(handle as u64, follow, range.end, self.now);
            match found {
                Found::Bytes(pieces) => {
                    let bytes = pieces.concat();
                    assert_eq!(bytes.len() as u64, range.end - range.start);
                    assert!(
                        (range.start..).zip(&bytes).all(|(at, b)| *b == byte(at)),
                        "other bytes at {range:?}"
                    );
                    true
                }
                Found::Coming(_) => panic!("everything is there at once"),
                Found::Nothing => false,
            }
        }

        fn program(&mut self, range: Range<u64>) -> bool {
            self.read(0, Some(SEEN), range, Reader::Program)
        }

        fn fetched_bytes(&self) -> u64 {
            self.fetched.iter().map(|range| range.end - range.start).sum()
        }
    }

    #[test]
    fn reads_in_steps_fetch_what_lies_between_unless_that_is_more() {
        let reads_until_a_chunk = |len: u64, step: u64, reader| {
            let mut follow = Follow::default();
            (0..10u64).find(|n| {
                let range = n * step..n * step + len;
                follow.note(&range, reader);
                Chunks::default().wanted(&follow, &range, SIZE).is_some()
            })
        };
        for reader in [Reader::Kernel, Reader::Program] {
            assert_eq!(reads_until_a_chunk(49152, 94208, reader), Some(1));
            assert_eq!(reads_until_a_chunk(4096, 3 * 4096, reader), None, "more gaps than pieces");
            assert_eq!(reads_until_a_chunk(STEP_BYTES_MAX, 2 * STEP_BYTES_MAX, reader), Some(1));
            assert_eq!(
                reads_until_a_chunk(STEP_BYTES_MAX + 1, 2 * STEP_BYTES_MAX + 1, reader),
                Some(2),
                "alone"
            );
        }
        assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Program), Some(1));
        assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Kernel), None, "it does so itself");
        assert_eq!(reads_until_a_chunk(READ_BYTES_MAX, READ_BYTES_MAX, Reader::Program), Some(1));
        assert_eq!(reads_until_a_chunk(READ_BYTES_MAX + 1, READ_BYTES_MAX + 1, Reader::Program), None);
    }

    #[test]
    fn every_byte_of_a_file_read_in_sequence_is_fetched_once() {
        let mut file = File::default();
        let reads = SIZE.div_ceil(47008);
        let alone = (0..reads).filter(|n| !file.program(n * 47008..SIZE.min((n + 1) * 47008))).count();
        assert_eq!((alone, file.fetched_bytes()), (1, SIZE - 47008), "all but the first read");
        assert!(file.fetched.windows(2).all(|pair| pair[0].end == pair[1].start && pair[1].start % MIB == 0));
        assert!(file.chunks.by_start.is_empty());
    }

    #[test]
    fn processes_that_read_a_file_in_turns_on_one_mount_have_it_fetched_once() {
        let mut file = File::default();
        let reads = SIZE / 49152;
        // One is always a little behind the other.
        for n in 0..reads + 9 {
            let turns =
                [(n % 2 == 0).then_some((0, n)), n.checked_sub(9).filter(|n| n % 2 == 1).map(|n| (1, n))];
            for (handle, n) in turns.into_iter().flatten().filter(|(_, n)| *n < reads) {
                file.read(handle, Some(SEEN), n * 49152..(n + 1) * 49152, Reader::Kernel);
            }
        }
        assert!(file.fetched_bytes() <= SIZE, "{} bytes", file.fetched_bytes());
        assert!(file.chunks.by_start.len() <= 2, "only what lies near the last reads");
        file.chunks.leave(0);
        file.chunks.leave(1);
        assert!(file.chunks.by_start.is_empty());
    }

    #[test]
    fn of_long_pieces_at_one_distance_each_handle_has_its_own_fetched_once() {
        for (len, first, step, size, reader) in [
            (MIB, 0, 2 * MIB, 40 * MIB, Reader::Kernel),
            (MIB, 4096, 3 * MIB, 40 * MIB + 1000, Reader::Kernel),
            (MIB, 2048, 3 * MIB, 40 * MIB + 1000, Reader::Program),
            (300_000, 100, 2 * 300_000, 20 * MIB, Reader::Program),
            (MIB, 7, MIB + 1, 20 * MIB, Reader::Program),
        ] {
            let (mut file, mut alone, mut read) = (File { size, ..File::default() }, [0; 2], 0);
            for start in (first..size).step_by(step as usize) {
                // The second one reads what the first leaves out, if that is as long.
                let handles = if 2 * len <= step { 2 } else { 1 };
                for (handle, alone) in alone.iter_mut().enumerate().take(handles) {
                    let start = start + handle as u64 * len;
                    let end = size.min(start + len);
                    if start < end {
                        *alone += u32::from(!file.read(handle, Some(SEEN), start..end, reader));
                        read += end - start;
                        let in_two = file.fetched.iter().any(|range| range.start % MIB != 0);
                        let most = 2 * PIECES_AHEAD_MAX as usize * if in_two { 2 } else { 1 };
                        assert!(file.chunks.by_start.len() <= most, "only what comes next");
                    }
                }
            }
            assert!(alone[0] == 3 && alone[1] <= 3, "{alone:?} of {len} at {step}");
            assert!(file.fetched_bytes() <= read, "{} bytes of {read}", file.fetched_bytes());
            assert!(
                file.fetched.iter().all(|range| range.start / MIB == (range.end - 1) / MIB),
                "in one chunk"
            );
            let mut fetched = file.fetched.clone();
            fetched.sort_by_key(|range| range.start);
            assert!(fetched.windows(2).all(|pair| pair[0].end <= pair[1].start), "once each");
            assert!(file.chunks.by_start.is_empty());
        }
    }

    #[test]
    fn of_long_pieces_no_more_are_fetched_than_were_read_and_none_for_a_reader_that_went_elsewhere() {
        let mut file = File { size: 400 * MIB, ..File::default() };
        let mut ends = Vec::new();
        for n in 0..8 {
            file.program(n * 3 * MIB..(n * 3 + 1) * MIB);
            ends.push(file.chunks.by_start.len());
        }
        assert_eq!(ends, [0, 0, 2, 3, 4, 4, 4, 4]);
        // Another distance.
        assert!(!file.program(200 * MIB..201 * MIB));
        assert!(file.chunks.by_start.is_empty());
        // No distance twice: nothing. That of the first read from the beginning is none.
        let before = file.fetched.len();
        (1..15).for_each(|n| assert!(!file.program((200 + n * n) * MIB..(201 + n * n) * MIB)));
        let mut other = File::default();
        (1..3).for_each(|n| assert!(!other.program(n * 2 * MIB..(n * 2 + 1) * MIB)));
        assert_eq!((file.fetched.len(), other.fetched.len()), (before, 0));
        // At the end of a file there is nothing to fetch, at the largest distance neither.
        let mut follow = Follow { run: 9, in_pieces: true, step: u64::MAX / 2, ..Follow::default() };
        let wanted = |follow: &Follow, at| file.chunks.wanted(follow, &(at..at + MIB), 400 * MIB);
        assert_eq!(wanted(&follow, 0), None);
        follow.step = 2 * MIB;
        assert_eq!(wanted(&follow, 397 * MIB), Some(399 * MIB..400 * MIB));
        assert_eq!(wanted(&follow, 398 * MIB + 5), None);
    }

    #[test]
    fn short_runs_of_long_pieces_are_not_fetched_for_ever() {
        let mut file = File { size: 4000 * MIB, ..File::default() };
        let mut tile = |rows: u64, number: u64| {
            let before = file.fetched_bytes();
            // The next one begins farther to the right, at the top.
            let first = number * MIB;
            (0..rows).for_each(|row| _ = file.program(first + row * 70 * MIB..first + (row * 70 + 1) * MIB));
            file.fetched_bytes() - before
        };
        let wasted: u64 = (0..50).map(|number| tile(4, number)).sum();
        assert!(wasted <= 10 * MIB, "{wasted} bytes");
        // A long run makes good for it.
        tile(50, 50);
        assert_eq!(file.handles[0].patience, PATIENCE_MIN);
    }

    #[test]
    fn several_reads_of_one_handle_wait_for_the_pieces_that_are_on_their_way() {
        let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
        let piece = |n: u64| 2 * n * MIB..(2 * n + 1) * MIB;
        (0..4).for_each(|n| follow.note(&piece(n), Reader::Program));
        let mut senders = Vec::new();
        for n in 4..7 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            senders.push(sender);
            let coming = receiver.map(move |_| fetched(piece(n)).now_or_never().flatten());
            chunks.add(0, &mut follow, SEEN, piece(n), coming.boxed().shared());
        }
        // Three reads find their piece on its way, the last one first.
        for n in [6, 5, 4] {
            follow.note(&piece(n), Reader::Program);
            (follow.run, follow.step, follow.in_pieces) = (5, 2 * MIB, true);
            let found = chunks.find(0, &mut follow, Some(SEEN), &piece(n));
            assert!(matches!(found, Found::Coming(_)));
            chunks.reads(0, &follow, piece(n).start, Mono::default());
        }
        senders.into_iter().for_each(|sender: tokio::sync::oneshot::Sender<()>| _ = sender.send(()));
        for (n, left) in [(5, 2), (4, 1), (6, 0)] {
            let coming: Vec<_> = chunks.by_start.values().map(|chunk| chunk.bytes.clone()).collect();
            coming.into_iter().for_each(|coming| _ = coming.now_or_never());
            let found = chunks.find(0, &mut follow, Some(SEEN), &piece(n));
            assert!(matches!(found, Found::Bytes(_)), "{n}");
            chunks.reads(0, &follow, piece(n).end, Mono::default());
            assert_eq!(chunks.by_start.len(), left);
        }
    }

    #[test]
    fn what_is_there_in_part_is_not_waited_for() {
        let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
        let (_sender, receiver) = tokio::sync::oneshot::channel::<()>();
        chunks.add(0, &mut follow, SEEN, 0..MIB, receiver.map(|_| None).boxed().shared());
        assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..MIB)), Found::Coming(_)));
        assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..MIB + 1)), Found::Nothing));
    }

    #[test]
    fn pieces_of_one_handle_do_not_keep_what_was_fetched_for_others() {
        let mut file = File { size: 900 * MIB, ..File::default() };
        (0..6).for_each(|n| _ = file.read(1, Some(SEEN), n * 40 * MIB..(n * 40 + 1) * MIB, Reader::Kernel));
        let pieces = file.chunks.by_start.len();
        assert_eq!(pieces, 4);
        // Where the next pieces are, and before them.
        let first = 205 * 16;
        (0..800u64).for_each(|n| _ = file.program((first + n) * 65536..(first + n + 1) * 65536));
        assert!(file.chunks.by_start.len() <= pieces + 4, "what the reader in sequence has passed is gone");
        file.chunks.leave(0);
        assert_eq!(file.chunks.by_start.len(), pieces);
        file.chunks.leave(1);
        assert!(file.chunks.by_start.is_empty());
    }

    #[test]
    fn no_more_is_fetched_than_was_read_before_but_for_the_first_chunk() {
        let mut file = File::default();
        let mut ends = Vec::new();
        for n in 0..40 {
            let before = file.fetched.len();
            file.program(n * 65536..(n + 1) * 65536);
            ends.extend(file.fetched[before..].iter().map(|range| (n, range.end / MIB)));
            assert!(file.chunks.by_start.len() <= 4);
        }
        assert_eq!(ends, [(1, 1), (8, 2), (16, 3), (24, 4), (32, 5)], "up to two MiB ahead");
        assert_eq!(file.fetched[0].start, 65536);
    }

    #[test]
    fn chunks_serve_in_any_order_until_they_are_passed_or_something_changes() {
        let mut file = File::default();
        let prepare = |file: &mut File| {
            *file = File::default();
            (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
            assert_eq!(file.chunks.by_start.keys().copied().collect::<Vec<_>>(), [MIB, 2 * MIB]);
        };
        let find =
            |file: &mut File, seen, range| match file.chunks.find(0, &mut file.handles[0], seen, &range) {
                Found::Bytes(pieces) => Some(pieces.iter().map(Bytes::len).sum::<usize>()),
                _ => None,
            };
        prepare(&mut file);
        assert_eq!(find(&mut file, Some(SEEN), 2 * MIB..2 * MIB + 100), Some(100));
        assert_eq!(find(&mut file, Some(SEEN), 2 * MIB - 1000..2 * MIB + 1), Some(1001), "of two chunks");
        assert_eq!(find(&mut file, Some(SEEN), MIB - 1..MIB + 1), None, "only part of it is there");
        assert_eq!(find(&mut file, Some(SEEN), MIB..MIB + 1), Some(1), "it is still there");
        for other in [
            Some(Seen { contents: 4, ..SEEN }),
            Some(Seen { body: Pair { term: 1, counter: 1 }, ..SEEN }),
            Some(Seen { ticket: Ticket { layout_epoch: Pair { term: 1, counter: 1 }, ..TICKET }, ..SEEN }),
            None,
        ] {
            prepare(&mut file);
            assert_eq!(find(&mut file, other, 2 * MIB..2 * MIB + 4096), None, "{other:?}");
            assert_eq!(find(&mut file, Some(SEEN), 2 * MIB..2 * MIB + 4096), None, "it is gone");
            assert_eq!(file.chunks.patience, 2 * PATIENCE_MIN);
        }
        prepare(&mut file);
        assert!(!file.program(9 * MIB..9 * MIB + 10));
        assert!(file.chunks.by_start.is_empty(), "the reader went elsewhere");
    }

    #[test]
    fn nothing_is_kept_for_handles_that_are_closed_dead_or_idle() {
        let mut file = File::default();
        let read = |file: &mut File| {
            (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
            assert!(!file.chunks.by_start.is_empty());
        };
        read(&mut file);
        file.chunks.drop_idle(file.now.plus_ms(IDLE_MS - 1));
        assert!(!file.chunks.by_start.is_empty(), "it may still read");
        file.chunks.drop_idle(file.now.plus_ms(IDLE_MS));
        assert!(file.chunks.by_start.is_empty());
        read(&mut file);
        file.handles[0].end();
        file.chunks.leave(0);
        assert!(file.chunks.by_start.is_empty());
        // A read that was under way at that time.
        (18..40).for_each(|n| assert!(!file.program(n * 65536..(n + 1) * 65536)));
        assert!(file.chunks.by_start.is_empty() && file.chunks.readers.is_empty());
    }

    #[test]
    fn a_change_makes_all_readers_patient_whoever_meets_it() {
        let mut file = File::default();
        (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
        let before = file.fetched.len();
        // Another handle reads somewhere, and meets it.
        let changed = Some(Seen { contents: 4, ..SEEN });
        assert!(!file.read(1, changed, 5 * MIB..5 * MIB + 10, Reader::Program));
        assert!(file.chunks.by_start.is_empty());
        (18..20).for_each(|n| assert!(!file.program(n * 65536..(n + 1) * 65536)));
        assert_eq!(file.fetched.len(), before, "not at once");
        (20..24).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
        assert!(file.fetched.len() > before);
    }

    #[test]
    fn what_is_on_its_way_is_waited_for_and_what_could_not_be_read_is_asked_for_again() {
        let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let coming = receiver.map(|_| None).boxed().shared();
        chunks.add(0, &mut follow, SEEN, 0..MIB, coming);
        let found = chunks.find(0, &mut follow, Some(SEEN), &(0..100));
        let Found::Coming(found) = found else { panic!("it is on its way") };
        sender.send(()).expect("somebody waits");
        assert!(found.now_or_never().expect("it has come").is_none());
        assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..100)), Found::Nothing));
        assert!(
            chunks.by_start.is_empty() && follow.patience > PATIENCE_MIN,
            "it is not tried again at once"
        );
    }

    #[test]
    fn reads_of_several_threads_through_one_handle_may_overtake_each_other() {
        let mut follow = Follow::default();
        follow.note(&(0..100), Reader::Program);
        follow.note(&(10_000..10_100), Reader::Program);
        follow.note(&(10_100..10_200), Reader::Program);
        assert_eq!(Chunks::default().wanted(&follow, &(0..100), SIZE), Some(0..MIB));
    }

    #[test]
    fn chunks_that_are_lost_to_changes_make_patient() {
        let mut file = File::default();
        let mut at = 0;
        let mut reads_until_a_chunk = || {
            let before = file.fetched.len();
            // Something has changed since the last one.
            file.chunks.find(0, &mut file.handles[0], None, &(0..1));
            for n in 1..100 {
                file.program(at..at + 100);
                at += 100;
                if file.fetched.len() > before {
                    return n;
                }
            }
            0
        };
        let waits: Vec<u32> = (0..5).map(|_| reads_until_a_chunk()).collect();
        assert_eq!(waits, [2, 3, 7, 15, 31], "the run goes on from the read that met the change");
    }

    #[test]
    fn readers_that_go_elsewhere_soon_make_patient_until_one_goes_on() {
        let mut file = File::default();
        for place in 0..200u64 {
            let at = place % 10 * MIB + place;
            for n in 0..4 {
                file.program(at + n * 512..at + (n + 1) * 512);
            }
        }
        assert_eq!(file.fetched.len(), 2, "at the second and the fourth read");
        let begun = 300_000;
        (0..20).for_each(|n| _ = file.program(begun + n * 65536..begun + (n + 1) * 65536));
        assert_eq!(file.handles[0].patience, PATIENCE_MIN);
    }
}
