//! The last lines of this process's log, in memory: for who asks from afar, and where nobody kept a file.
//!
//! Invariant: bounded by [`LINES_MAX`] and [`BYTES_MAX`]; the oldest lines go. Lines are numbered from 1 in the order in which they were written, so
//! that a reader sees whether lines have gone that it had not read.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most lines that are kept.
pub const LINES_MAX: usize = 8192;
/// Most bytes of all lines.
pub const BYTES_MAX: usize = 2 << 20;
/// Longest line; a longer one is kept without its end.
pub const LINE_BYTES_MAX: usize = 4096;

/// The lines of this process.
static RECENT: Recent = Recent::new();

struct RecentLines {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    /// Number of the line that comes next, from 1.
    next: u64,
}

struct Recent(Mutex<RecentLines>);

/// A part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Lines with their numbers, the oldest first.
    pub lines: Vec<(u64, Arc<str>)>,
    /// Number of the oldest line that is kept; that of the next one where none is.
    pub first: u64,
    /// Number of the line that comes next.
    pub next: u64,
}

impl Recent {
    const fn new() -> Recent {
        Recent(Mutex::new(RecentLines { lines: VecDeque::new(), bytes: 0, next: 1 }))
    }

    fn push(&self, line: &[u8]) {
        let end = line.len().min(LINE_BYTES_MAX);
        let line: Arc<str> = String::from_utf8_lossy(&line[..end]).trim_end().into();
        let mut kept = self.0.lock();
        kept.bytes += line.len();
        kept.next += 1;
        kept.lines.push_back(line);
        while kept.lines.len() > LINES_MAX || kept.bytes > BYTES_MAX {
            let Some(gone) = kept.lines.pop_front() else { break };
            kept.bytes -= gone.len();
        }
    }

    fn after(&self, number: u64) -> Part {
        let kept = self.0.lock();
        let first = kept.next - kept.lines.len() as u64;
        let numbered = (first..).zip(kept.lines.iter().cloned());
        let lines = numbered.skip_while(|(n, _)| *n <= number).collect();
        Part { lines, first, next: kept.next }
    }
}

/// Keeps a line.
pub(crate) fn push(line: &[u8]) {
    RECENT.push(line);
}

/// Lines with a higher number than `number`; 0 is below that of the first one.
pub fn after(number: u64) -> Part {
    RECENT.after(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_line_once_and_what_has_gone() {
        let recent = Recent::new();
        assert_eq!(recent.after(0), Part { lines: Vec::new(), first: 1, next: 1 });
        recent.push(b"one\n");
        recent.push(b"two\n");
        let part = recent.after(0);
        assert_eq!(part.lines, [(1, "one".into()), (2, "two".into())]);
        assert_eq!((part.first, part.next), (1, 3));
        recent.push(b"three");
        assert_eq!(recent.after(2).lines, [(3, "three".into())]);
        assert!(recent.after(3).lines.is_empty());
        for n in 0..2 * LINES_MAX {
            recent.push(format!("{n}").as_bytes());
        }
        let part = recent.after(3);
        assert_eq!((part.lines.len(), part.next), (LINES_MAX, 2 * LINES_MAX as u64 + 4));
        assert_eq!(part.lines[0].0, part.first, "lines between 3 and this one have gone");
    }

    #[test]
    fn memory_is_bounded_and_lines_of_any_bytes_are_kept() {
        let recent = Recent::new();
        let long = "\u{1F600}".repeat(LINE_BYTES_MAX);
        for _ in 0..3 * BYTES_MAX / LINE_BYTES_MAX {
            recent.push(&[&[0xff; 3], long.as_bytes()].concat());
        }
        let bytes: usize = recent.after(0).lines.iter().map(|(_, line)| line.len()).sum();
        assert!(bytes <= BYTES_MAX && bytes > BYTES_MAX / 2, "{bytes}");
    }
}
