//! Bytes fetched before they are asked for, for reads that fill no pages of the kernel: of files that somebody writes,
//! and with O_DIRECT; and for reads in steps, of which the kernel reads nothing ahead.
//!
//! Owned by a handle. Pure. A window is what the kernel's pages are elsewhere: the OSTs note that this client keeps the
//! bytes, and whoever changes them waits until it has dropped them (`docs/design/001-mixed-state.md`).
//!
//! Several processes that each read their pieces of one file, in turns, leave out what the others read. Linux sees the gap before each
//! piece and takes it for a small read of its own (`page_cache_sync_ra`, 6.18): one request after the other, as long as the
//! piece. So a window is fetched for these as well, as long as it is not more gaps than pieces.
//! Invariant: nothing of a window is given out once the file may have changed since before the window was asked for;
//! [`Seen`] tells, and any change counts, wherever in the file it was.

use std::ops::Range;

use brindle_stdx::planted;
use brindle_types::Pair;
use brindle_wire::oss::Ticket;
use bytes::Bytes;

use crate::kept::Room;

/// Bytes of a window, at most.
pub(crate) const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// Bytes of all windows of one mount, at most.
pub(crate) const ALL_WINDOWS_BYTES_MAX: usize = 64 << 20;
/// Reads in sequence before anything is fetched ahead.
const PATIENCE_MIN: u32 = 2;
/// The same, where windows were lost to somebody's changes again and again.
const PATIENCE_MAX: u32 = 256;

/// A state of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`crate::inodes::State::contents`].
    pub contents: u64,
    pub body: Pair,
    pub ticket: Ticket,
}

struct Window {
    seen: Seen,
    start: u64,
    /// In one piece: pieces of many objects would each hold the block of memory that they came in.
    bytes: Bytes,
    _room: Room,
}

/// How a handle is read.
pub(crate) struct Ahead {
    /// Where a read in sequence begins, at the earliest.
    next: u64,
    /// Reads in sequence so far.
    run: u32,
    /// So many of them before something is fetched ahead.
    patience: u32,
    window: Option<Window>,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { next: 0, run: 0, patience: PATIENCE_MIN, window: None }
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

impl Ahead {
    /// The bytes of `range`, if they are in the window and nothing has changed since. Every read comes here first.
    pub fn take(&mut self, seen: Option<Seen>, range: &Range<u64>, reader: Reader) -> Option<Bytes> {
        let follows = match range.start.checked_sub(self.next) {
            None => false,
            Some(0) => reader == Reader::Program,
            Some(gap) => gap <= range.end - range.start,
        };
        self.run = if follows { self.run.saturating_add(1) } else { 1 };
        self.next = range.end;
        let window = self.window.take()?;
        let end = window.start + window.bytes.len() as u64;
        if seen != Some(window.seen) && !planted("client_reads_ahead_of_changes") {
            self.lose();
            return None;
        }
        if range.end >= end {
            self.patience = PATIENCE_MIN;
        }
        if range.start < window.start || range.end > end {
            return None;
        }
        let from = (range.start - window.start) as usize;
        let bytes = window.bytes.slice(from..from + (range.end - range.start) as usize);
        self.window = (range.end < end).then_some(window);
        Some(bytes)
    }

    /// What was fetched ahead was for nothing: somebody works on the file, who should not have to wait for us again and again,
    /// or it cannot be read.
    pub fn lose(&mut self) {
        self.run = 1;
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
    }

    /// The file ends here: no more is read for a while.
    pub fn end(&mut self) {
        self.window = None;
    }

    /// How far to read, where `range` is asked for and the file is known to reach to `size_bytes`; `None` if no further.
    pub fn until(&self, range: &Range<u64>, size_bytes: u64) -> Option<u64> {
        let reads = WINDOW_BYTES_MAX / (range.end - range.start).max(1);
        let until = size_bytes.min(range.start + reads * (range.end - range.start));
        (self.run >= self.patience && until > range.end).then_some(until)
    }

    /// Keeps what was read from `start` on, when the contents were as in `seen`.
    pub fn keep(&mut self, seen: Seen, start: u64, bytes: Bytes, room: Room) {
        self.window = Some(Window { seen, start, bytes, _room: room });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kept::Budget;

    const TICKET: Ticket =
        Ticket { layout_epoch: Pair::ZERO, truncate_epoch: Pair::ZERO, attr_epoch: Pair::ZERO };
    const SEEN: Seen = Seen { contents: 3, body: Pair::ZERO, ticket: TICKET };
    const SIZE: u64 = 10 << 20;

    fn fill(ahead: &mut Ahead, start: u64, len: usize) {
        let room = Arc::new(Budget::new(ALL_WINDOWS_BYTES_MAX)).take(1).expect("there is room");
        ahead.keep(SEEN, start, Bytes::from(vec![7; len]), room);
    }

    fn take(ahead: &mut Ahead, seen: Option<Seen>, range: Range<u64>) -> Option<usize> {
        ahead.take(seen, &range, Reader::Program).map(|bytes| bytes.len())
    }

    #[test]
    fn reads_in_steps_fetch_what_lies_between_unless_that_is_more() {
        let reads_until_a_window = |len: u64, step: u64, reader| {
            let mut ahead = Ahead::default();
            (0..10u64).find(|n| {
                let range = n * step..n * step + len;
                ahead.take(Some(SEEN), &range, reader);
                ahead.until(&range, SIZE).is_some()
            })
        };
        for reader in [Reader::Kernel, Reader::Program] {
            assert_eq!(reads_until_a_window(49152, 94208, reader), Some(1));
            assert_eq!(reads_until_a_window(4096, 3 * 4096, reader), None, "more gaps than pieces");
        }
        assert_eq!(reads_until_a_window(4096, 4096, Reader::Program), Some(1));
        assert_eq!(reads_until_a_window(4096, 4096, Reader::Kernel), None, "it does so itself");
    }

    #[test]
    fn the_second_read_in_sequence_fetches_whole_reads_of_a_megabyte() {
        let mut ahead = Ahead::default();
        assert_eq!(take(&mut ahead, Some(SEEN), 47008..94016), None);
        assert_eq!(ahead.until(&(47008..94016), SIZE), None, "one read is no sequence");
        assert_eq!(take(&mut ahead, Some(SEEN), 94016..141_024), None);
        assert_eq!(ahead.until(&(94016..141_024), SIZE), Some(94016 + 22 * 47008));
        assert_eq!(ahead.until(&(94016..141_024), 200_000), Some(200_000), "as far as it goes");
        assert_eq!(ahead.until(&(94016..141_024), 141_024), None);
        assert_eq!(ahead.until(&(0..1 << 20), SIZE), None, "large reads are far enough");
        assert_eq!(ahead.until(&(0..8 << 20), SIZE), None);
        assert_eq!(take(&mut ahead, Some(SEEN), 500..600), None);
        assert_eq!(ahead.until(&(500..600), SIZE), None, "elsewhere");
    }

    #[test]
    fn a_window_is_used_until_it_ends_or_something_changes() {
        let mut ahead = Ahead::default();
        take(&mut ahead, Some(SEEN), 0..4096);
        fill(&mut ahead, 0, 16384);
        assert_eq!(take(&mut ahead, Some(SEEN), 4096..8192), Some(4096));
        assert_eq!(take(&mut ahead, Some(SEEN), 8192..10_000), Some(1808));
        assert_eq!(take(&mut ahead, Some(SEEN), 0..100), Some(100), "also in any other order");
        assert_eq!(take(&mut ahead, Some(SEEN), 16000..17000), None, "only part of it is there");
        assert!(ahead.window.is_none());
        fill(&mut ahead, 0, 16384);
        assert_eq!(take(&mut ahead, Some(SEEN), 8192..16384), Some(8192));
        assert!(ahead.window.is_none(), "read to its end");
        fill(&mut ahead, 0, 16384);
        ahead.end();
        assert_eq!(take(&mut ahead, Some(SEEN), 0..100), None);

        for other in [
            Some(Seen { contents: 4, ..SEEN }),
            Some(Seen { body: Pair { term: 1, counter: 1 }, ..SEEN }),
            Some(Seen { ticket: Ticket { layout_epoch: Pair { term: 1, counter: 1 }, ..TICKET }, ..SEEN }),
            None,
        ] {
            fill(&mut ahead, 0, 16384);
            assert_eq!(take(&mut ahead, other, 0..4096), None, "{other:?}");
            assert_eq!(take(&mut ahead, Some(SEEN), 4096..8192), None, "it is gone");
        }
    }

    #[test]
    fn windows_that_are_lost_make_patient() {
        let mut ahead = Ahead::default();
        let mut reads_until_a_window = || {
            for n in 1.. {
                let at = ahead.next;
                ahead.take(None, &(at..at + 100), Reader::Program);
                if ahead.until(&(at..at + 100), SIZE).is_some() {
                    fill(&mut ahead, at, 4096);
                    return n;
                }
            }
            0
        };
        let waits: Vec<u32> = (0..5).map(|_| reads_until_a_window()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32]);
    }
}
