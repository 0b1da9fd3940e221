//! Bytes fetched before they are asked for, for reads that fill no pages of the kernel: of files that somebody writes,
//! and with O_DIRECT; and for reads in steps, of which the kernel reads nothing ahead.
//!
//! Owned by a handle. What was fetched is what the kernel's pages are elsewhere: the OSTs note that this client keeps the
//! bytes, and whoever changes them waits until it has dropped them (`docs/design/001-mixed-state.md`).
//!
//! Several processes that each read their pieces of one file, in turns, leave out what the others read. Linux sees the gap before each
//! piece and takes it for a small read of its own (`page_cache_sync_ra`, 6.18): one request after the other, as long as the
//! piece. So bytes are fetched ahead for these as well, as long as they are not more gaps than pieces.
//! Invariants: nothing is given out once the file may have changed since before it was asked for; [`Seen`] tells, and
//! any change counts, wherever in the file it was. Chunks lie one behind the other, without gaps.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::{BoxFuture, planted};
use brindle_types::Pair;
use brindle_wire::oss::Ticket;
use bytes::Bytes;
use futures_util::future::Shared;

use crate::kept::Room;

/// Chunks end at multiples of this, or with the file: each lies in one object of a usual layout, and comes in one piece.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Longer reads are far enough by themselves.
const READ_BYTES_MAX: u64 = CHUNK_BYTES / 2;
/// So far behind the last read chunks reach at most; not farther than was read in sequence, but for the first one.
const AHEAD_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
/// Bytes of all chunks of one mount, at most.
pub(crate) const ALL_CHUNKS_BYTES_MAX: usize = 64 << 20;
/// Reads in sequence before anything is fetched ahead.
const PATIENCE_MIN: u32 = 2;
/// The same, where chunks were lost to somebody's changes again and again.
const PATIENCE_MAX: u32 = 256;

/// A state of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`crate::inodes::State::contents`].
    pub contents: u64,
    pub body: Pair,
    pub ticket: Ticket,
}

/// Bytes that were fetched ahead.
pub(crate) struct Fetched {
    /// All of the chunk, in order.
    pub pieces: Vec<Bytes>,
    pub _room: Room,
}

/// Bytes on their way; `None` if they could not be read.
pub(crate) type Coming = Shared<BoxFuture<'static, Option<Arc<Fetched>>>>;

struct Chunk {
    seen: Seen,
    range: Range<u64>,
    bytes: Coming,
}

/// How a handle is read.
pub(crate) struct Ahead {
    /// Where a read in sequence begins, at the earliest.
    next: u64,
    /// Reads in sequence so far, and where the first of them began.
    run: u32,
    run_start: u64,
    /// So many of them before something is fetched ahead.
    patience: u32,
    chunks: VecDeque<Chunk>,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { next: 0, run: 0, run_start: 0, patience: PATIENCE_MIN, chunks: VecDeque::new() }
    }
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The kernel, to fill its pages: it reads ahead itself what has no gaps.
    Kernel,
    /// A program.
    Program,
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

impl Ahead {
    /// Every read comes here first, once.
    pub fn note(&mut self, range: &Range<u64>, reader: Reader) {
        let follows = match range.start.checked_sub(self.next) {
            None => false,
            Some(0) => reader == Reader::Program,
            Some(gap) => gap <= range.end - range.start,
        };
        if follows {
            self.run = self.run.saturating_add(1);
        } else {
            self.run = 1;
            self.run_start = range.start;
        }
        self.next = range.end;
    }

    /// The bytes of `range`, if nothing has changed since they were asked for.
    pub fn find(&mut self, seen: Option<Seen>, range: &Range<u64>) -> Found {
        let changed = self.chunks.iter().any(|chunk| seen != Some(chunk.seen));
        if changed && !planted("client_reads_ahead_of_changes") {
            self.lose();
            return Found::Nothing;
        }
        let covers = self.chunks.front().is_some_and(|first| first.range.start <= range.start)
            && self.end().is_some_and(|end| end >= range.end);
        if !covers {
            self.chunks.clear();
            return Found::Nothing;
        }
        let mut found = Vec::new();
        for chunk in self.chunks.iter().filter(|c| c.range.end > range.start && c.range.start < range.end) {
            match chunk.bytes.peek() {
                None => return Found::Coming(chunk.bytes.clone()),
                Some(Some(fetched)) => cut(chunk.range.start, &fetched.pieces, range, &mut found),
                // What was not asked for may be what cannot be read.
                Some(None) => {
                    self.lose();
                    return Found::Nothing;
                }
            }
        }
        while self.chunks.front().is_some_and(|first| first.range.end <= range.end) {
            self.chunks.pop_front();
            self.patience = PATIENCE_MIN;
        }
        Found::Bytes(found)
    }

    /// What was fetched ahead was for nothing: somebody works on the file, who should not have to wait for us again and again,
    /// or it cannot be read.
    fn lose(&mut self) {
        self.chunks.clear();
        self.run = 1;
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
    }

    /// The file ends here: no more is read for a while.
    pub fn forget(&mut self) {
        self.chunks.clear();
    }

    /// Where the chunks end.
    fn end(&self) -> Option<u64> {
        self.chunks.back().map(|last| last.range.end)
    }

    /// What to fetch now, where `range` is being read and the file is known to reach to `size_bytes`.
    pub fn wanted(&self, range: &Range<u64>, size_bytes: u64) -> Option<Range<u64>> {
        if self.run < self.patience || range.end - range.start > READ_BYTES_MAX {
            return None;
        }
        let start = match self.end() {
            None if range.end < size_bytes => range.start,
            None => return None,
            Some(end) => {
                let far = AHEAD_BYTES_MAX.min(range.end.saturating_sub(self.run_start));
                (end < size_bytes && end.saturating_sub(range.end) < far).then_some(end)?
            }
        };
        let end = (start.max(range.end) / CHUNK_BYTES + 1) * CHUNK_BYTES;
        Some(start..end.min(size_bytes))
    }

    /// Keeps what [`Ahead::wanted`] named and was asked for when the contents were as in `seen`.
    pub fn add(&mut self, seen: Seen, range: Range<u64>, bytes: Coming) {
        self.chunks.push_back(Chunk { seen, range, bytes });
    }
}

/// Adds those of the pieces, which begin at `start`, that lie in `range`.
fn cut(start: u64, pieces: &[Bytes], range: &Range<u64>, out: &mut Vec<Bytes>) {
    let mut at = start;
    for piece in pieces {
        let end = at + piece.len() as u64;
        let (from, until) = (range.start.max(at), range.end.min(end));
        if from < until {
            out.push(piece.slice((from - at) as usize..(until - at) as usize));
        }
        at = end;
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
    const SIZE: u64 = 10 * MIB;

    /// The byte of the file at `at`.
    fn byte(at: u64) -> u8 {
        (at / 1000) as u8
    }

    /// Bytes that are there, in pieces of at most 10000.
    fn fetched(range: Range<u64>) -> Coming {
        let bytes: Vec<u8> = range.clone().map(byte).collect();
        let pieces = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect();
        let room = Arc::new(Budget::new(1)).take(1).expect("there is room");
        let coming = async move { Some(Arc::new(Fetched { pieces, _room: room })) }.boxed().shared();
        coming.clone().now_or_never();
        coming
    }

    /// One read, with all that is wanted fetched at once: the bytes that were there, and what was fetched.
    fn read(ahead: &mut Ahead, seen: Option<Seen>, range: Range<u64>) -> (Option<u64>, Option<Range<u64>>) {
        ahead.note(&range, Reader::Program);
        let found = match ahead.find(seen, &range) {
            Found::Bytes(pieces) => {
                let bytes = pieces.concat();
                assert!(
                    (range.start..).zip(&bytes).all(|(at, b)| *b == byte(at)),
                    "other bytes at {range:?}"
                );
                Some(bytes.len() as u64)
            }
            Found::Coming(_) => panic!("everything is there at once"),
            Found::Nothing => None,
        };
        let wanted = seen.and_then(|_| ahead.wanted(&range, SIZE));
        if let Some(range) = wanted.clone() {
            ahead.add(SEEN, range.clone(), fetched(range));
        }
        (found, wanted)
    }

    #[test]
    fn reads_in_steps_fetch_what_lies_between_unless_that_is_more() {
        let reads_until_a_chunk = |len: u64, step: u64, reader| {
            let mut ahead = Ahead::default();
            (0..10u64).find(|n| {
                let range = n * step..n * step + len;
                ahead.note(&range, reader);
                ahead.wanted(&range, SIZE).is_some()
            })
        };
        for reader in [Reader::Kernel, Reader::Program] {
            assert_eq!(reads_until_a_chunk(49152, 94208, reader), Some(1));
            assert_eq!(reads_until_a_chunk(4096, 3 * 4096, reader), None, "more gaps than pieces");
        }
        assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Program), Some(1));
        assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Kernel), None, "it does so itself");
        assert_eq!(reads_until_a_chunk(READ_BYTES_MAX, READ_BYTES_MAX, Reader::Program), Some(1));
        assert_eq!(reads_until_a_chunk(READ_BYTES_MAX + 1, READ_BYTES_MAX + 1, Reader::Program), None);
    }

    #[test]
    fn every_byte_of_a_file_read_in_sequence_is_fetched_once() {
        let mut ahead = Ahead::default();
        let (mut at, mut alone, mut fetched) = (0, 0, 0..0);
        while at < SIZE {
            let end = SIZE.min(at + 47008);
            let (found, wanted) = read(&mut ahead, Some(SEEN), at..end);
            match found {
                Some(len) => assert_eq!(len, end - at),
                None => alone += 1,
            }
            if let Some(wanted) = wanted {
                assert!(wanted.start == fetched.end || fetched.is_empty() && wanted.start == at);
                assert!(wanted.end == SIZE || wanted.end % CHUNK_BYTES == 0);
                assert!(wanted.end - wanted.start <= CHUNK_BYTES + READ_BYTES_MAX);
                assert!(wanted.end <= end + AHEAD_BYTES_MAX + CHUNK_BYTES);
                fetched = wanted;
            }
            at = end;
        }
        // The first read, and the second, which has the first chunk fetched.
        assert_eq!((alone, fetched.end), (2, SIZE));
        assert!(ahead.chunks.is_empty());
    }

    #[test]
    fn no_more_is_fetched_than_was_read_before_but_for_the_first_chunk() {
        let mut ahead = Ahead::default();
        let fetched: Vec<_> = (0..40u64)
            .filter_map(|n| Some((n, read(&mut ahead, Some(SEEN), n * 65536..(n + 1) * 65536).1?)))
            .collect();
        let ends: Vec<_> = fetched.iter().map(|(n, range)| (*n, range.end / MIB)).collect();
        assert_eq!(
            ends,
            [(1, 1), (8, 2), (16, 3), (24, 4), (32, 5)],
            "as far ahead as it has been read, up to two MiB"
        );
        assert_eq!(fetched[0].1.start, 65536);
    }

    #[test]
    fn chunks_are_used_until_they_end_or_something_changes() {
        let mut ahead = Ahead::default();
        let fill = |ahead: &mut Ahead, range: Range<u64>| ahead.add(SEEN, range.clone(), fetched(range));
        let find = |ahead: &mut Ahead, seen, range: Range<u64>| match ahead.find(seen, &range) {
            Found::Bytes(pieces) => Some(pieces.iter().map(Bytes::len).sum::<usize>()),
            _ => None,
        };
        fill(&mut ahead, 0..16384);
        fill(&mut ahead, 16384..30000);
        assert_eq!(find(&mut ahead, Some(SEEN), 8192..10_000), Some(1808));
        assert_eq!(find(&mut ahead, Some(SEEN), 0..100), Some(100), "in any order");
        assert_eq!(find(&mut ahead, Some(SEEN), 16000..17000), Some(1000), "of two chunks");
        assert_eq!(find(&mut ahead, Some(SEEN), 16384..30000), Some(13616));
        assert!(ahead.chunks.is_empty(), "read to its end");
        fill(&mut ahead, 0..16384);
        assert_eq!(find(&mut ahead, Some(SEEN), 16000..17000), None, "only part of it is there");
        assert!(ahead.chunks.is_empty());
        fill(&mut ahead, 0..16384);
        ahead.forget();
        assert_eq!(find(&mut ahead, Some(SEEN), 0..100), None);
        for other in [
            Some(Seen { contents: 4, ..SEEN }),
            Some(Seen { body: Pair { term: 1, counter: 1 }, ..SEEN }),
            Some(Seen { ticket: Ticket { layout_epoch: Pair { term: 1, counter: 1 }, ..TICKET }, ..SEEN }),
            None,
        ] {
            fill(&mut ahead, 0..16384);
            assert_eq!(find(&mut ahead, other, 0..4096), None, "{other:?}");
            assert_eq!(find(&mut ahead, Some(SEEN), 4096..8192), None, "it is gone");
        }
    }

    #[test]
    fn what_is_on_its_way_is_waited_for_and_what_could_not_be_read_is_asked_for_again() {
        let mut ahead = Ahead::default();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let coming = receiver.map(|_| None).boxed().shared();
        ahead.add(SEEN, 0..MIB, coming.clone());
        let Found::Coming(found) = ahead.find(Some(SEEN), &(0..100)) else { panic!("it is on its way") };
        sender.send(()).expect("somebody waits");
        assert!(found.now_or_never().expect("it has come").is_none());
        assert!(matches!(ahead.find(Some(SEEN), &(0..100)), Found::Nothing));
        assert!(ahead.chunks.is_empty() && ahead.patience > PATIENCE_MIN, "it is not tried again at once");
    }

    #[test]
    fn chunks_that_are_lost_make_patient() {
        let mut ahead = Ahead::default();
        let mut reads_until_a_chunk = || {
            for n in 1.. {
                let range = ahead.next..ahead.next + 100;
                ahead.note(&range, Reader::Program);
                ahead.find(None, &range);
                if let Some(wanted) = ahead.wanted(&range, SIZE) {
                    ahead.add(SEEN, wanted.clone(), fetched(wanted));
                    return n;
                }
            }
            0
        };
        let waits: Vec<u32> = (0..5).map(|_| reads_until_a_chunk()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32]);
    }
}
