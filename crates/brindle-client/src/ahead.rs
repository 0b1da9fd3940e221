//! Bytes fetched before they are asked for, for reads that fill no pages of the kernel: of files that somebody writes,
//! and with O_DIRECT.
//!
//! Owned by a handle. Pure. A window is what the kernel's pages are elsewhere: the OSTs note that this client keeps the
//! bytes, and whoever changes them waits until it has dropped them (`docs/design/001-mixed-state.md`).
//! Invariant: nothing of a window is given out once the file may have changed since before the window was asked for;
//! [`Seen`] tells, and any change counts, wherever in the file it was.

use std::ops::Range;

use brindle_stdx::planted;
use brindle_types::Pair;
use bytes::Bytes;

use crate::kept::Room;
use crate::rope::Rope;

/// Bytes of a window, at most.
pub(crate) const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// Bytes of all windows of one mount, at most.
pub(crate) const ALL_WINDOWS_BYTES_MAX: usize = 64 << 20;
/// A window ends at such a border, and short of the file's end: who appends to the last page need not wait for us.
const PAGE_BYTES: u64 = 4096;
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
    pub truncate_epoch: Pair,
}

struct Window {
    seen: Seen,
    start: u64,
    bytes: Rope,
    _room: Room,
}

/// How a handle is read.
pub(crate) struct Ahead {
    /// Where a read in sequence begins.
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

impl Ahead {
    /// The bytes of `range`, if they are in the window and nothing has changed since. Every read comes here first.
    pub fn take(&mut self, seen: Option<Seen>, range: &Range<u64>) -> Option<Vec<Bytes>> {
        self.run = if range.start == self.next { self.run.saturating_add(1) } else { 1 };
        self.next = range.end;
        let window = self.window.as_ref()?;
        let end = window.start + window.bytes.len_bytes();
        let is_good = seen == Some(window.seen) || planted("client_reads_ahead_of_changes");
        if is_good && window.start <= range.start && range.end <= end {
            return Some(window.bytes.slice(range.start - window.start, range.end - range.start).collect());
        }
        if !is_good {
            // Somebody works on the file: whoever changes it next should not have to wait for us again.
            self.run = 1;
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        } else if range.start >= end {
            self.patience = PATIENCE_MIN;
        }
        self.window = None;
        None
    }

    /// How far to read, where `range` is asked for and the file is known to reach to `size_bytes`; `None` if no further.
    pub fn until(&self, range: &Range<u64>, size_bytes: u64) -> Option<u64> {
        let reads = WINDOW_BYTES_MAX / (range.end - range.start).max(1);
        let window_end = range.start + reads * (range.end - range.start);
        let until = window_end.min(size_bytes / PAGE_BYTES * PAGE_BYTES);
        (self.run >= self.patience && until > range.end).then_some(until)
    }

    /// Keeps what was read from `start` on, when the contents were as in `seen`.
    pub fn keep(&mut self, seen: Seen, start: u64, bytes: Rope, room: Room) {
        self.window = Some(Window { seen, start, bytes, _room: room });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kept::Budget;

    const SEEN: Seen = Seen { contents: 3, body: Pair::ZERO, truncate_epoch: Pair::ZERO };
    const SIZE: u64 = 10 << 20;

    fn fill(ahead: &mut Ahead, start: u64, len: u64) {
        let room = Arc::new(Budget::new(ALL_WINDOWS_BYTES_MAX)).take(1).expect("there is room");
        let mut bytes = Rope::default();
        bytes.push(Bytes::from(vec![7; len as usize]));
        ahead.keep(SEEN, start, bytes, room);
    }

    fn len(pieces: Option<Vec<Bytes>>) -> Option<usize> {
        pieces.map(|pieces| pieces.iter().map(Bytes::len).sum())
    }

    #[test]
    fn the_second_read_in_sequence_fetches_whole_reads_of_a_megabyte() {
        let mut ahead = Ahead::default();
        assert_eq!(len(ahead.take(Some(SEEN), &(47008..94016))), None);
        assert_eq!(ahead.until(&(47008..94016), SIZE), None, "one read is no sequence");
        assert_eq!(len(ahead.take(Some(SEEN), &(94016..141_024))), None);
        assert_eq!(ahead.until(&(94016..141_024), SIZE), Some(94016 + 22 * 47008));
        assert_eq!(ahead.until(&(94016..141_024), 200_000), Some(48 * 4096), "short of the last page");
        assert_eq!(ahead.until(&(94016..141_024), 141_500), None);
        assert_eq!(ahead.until(&(0..1 << 20), SIZE), None, "large reads are far enough");
        assert_eq!(ahead.until(&(0..8 << 20), SIZE), None);
        assert_eq!(len(ahead.take(Some(SEEN), &(500..600))), None);
        assert_eq!(ahead.until(&(500..600), SIZE), None, "elsewhere");
    }

    #[test]
    fn a_window_is_used_until_it_ends_or_something_changes() {
        let mut ahead = Ahead::default();
        ahead.take(Some(SEEN), &(0..4096));
        fill(&mut ahead, 0, 16384);
        assert_eq!(len(ahead.take(Some(SEEN), &(4096..8192))), Some(4096));
        assert_eq!(len(ahead.take(Some(SEEN), &(8192..10_000))), Some(1808));
        assert_eq!(len(ahead.take(Some(SEEN), &(0..100))), Some(100), "also in any other order");
        assert_eq!(len(ahead.take(Some(SEEN), &(16000..17000))), None, "only part of it is there");
        assert!(ahead.window.is_none());

        fill(&mut ahead, 0, 16384);
        let later = Seen { contents: 4, ..SEEN };
        assert_eq!(len(ahead.take(Some(later), &(0..4096))), None);
        assert_eq!(len(ahead.take(Some(SEEN), &(4096..8192))), None, "it is gone");
        fill(&mut ahead, 0, 16384);
        assert_eq!(len(ahead.take(None, &(8192..9000))), None, "nobody knows what there is now");
    }

    #[test]
    fn windows_that_are_lost_make_patient() {
        let mut ahead = Ahead::default();
        let mut reads_until_a_window = || {
            for n in 1.. {
                let at = ahead.next;
                ahead.take(None, &(at..at + 100));
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
