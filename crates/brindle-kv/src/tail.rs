//! Records that members of a replica set may lack: the newest ones of the log, in memory. Also the progress
//! of the required members.
//!
//! The primary sends records from here. Invariants: the records are consecutive; a position is known only if the log has its term at its
//! index. Thus a log that has gone another way is never taken for an earlier state of this one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::batch::{Batch, LogPos, RowChange};
use crate::format::{Record, encode_record, parse_record};

/// Most bytes of records that are kept while a member is filled. If a fill takes longer than that, the member is filled again.
const HELD_BYTES_MAX: usize = 1 << 30;

/// The newest records of a log.
pub(crate) struct Recent {
    bytes_max: usize,
    /// Whether a member is being filled, which needs the records of meanwhile: more of them are kept then.
    is_held: bool,
    bytes: usize,
    /// The record before the first one that is here.
    before: LogPos,
    records: VecDeque<(LogPos, Bytes)>,
}

impl Recent {
    /// An empty tail behind a record, which keeps at most this many bytes.
    pub fn new(bytes_max: usize, before: LogPos) -> Recent {
        Recent { bytes_max, is_held: false, bytes: 0, before, records: VecDeque::new() }
    }

    pub fn push(&mut self, pos: LogPos, record: Bytes) {
        self.bytes += record.len();
        self.records.push_back((pos, record));
        self.trim();
    }

    /// Keeps up to [`HELD_BYTES_MAX`], or not any more.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.trim();
    }

    fn trim(&mut self) {
        let bytes_max = if self.is_held { HELD_BYTES_MAX.max(self.bytes_max) } else { self.bytes_max };
        while self.bytes > bytes_max {
            let Some((first, record)) = self.records.pop_front() else { return };
            self.bytes -= record.len();
            self.before = first;
        }
    }

    /// Records behind `pos` up to index `to`, of at least one and then at most `bytes_max` bytes; `None` if `pos` is not known here.
    pub fn after(&self, pos: LogPos, to: u64, bytes_max: usize) -> Option<Vec<(LogPos, Bytes)>> {
        let skip = usize::try_from(pos.index.checked_sub(self.before.index)?).ok()?;
        let known = match skip.checked_sub(1) {
            None => self.before,
            Some(at) => self.records.get(at)?.0,
        };
        if known != pos {
            return None;
        }
        let mut bytes = 0;
        let fits = |(at, record): &&(LogPos, Bytes)| {
            let is_first = bytes == 0;
            bytes += record.len();
            at.index <= to && (is_first || bytes <= bytes_max)
        };
        Some(self.records.iter().skip(skip).take_while(fits).cloned().collect())
    }
}

/// Progress of the required members beside this store: no request is answered without them.
pub(crate) struct Required {
    written: AtomicU64,
    synced: AtomicU64,
}

impl Required {
    /// A set without required members.
    pub fn nobody() -> Required {
        Required { written: AtomicU64::new(u64::MAX), synced: AtomicU64::new(u64::MAX) }
    }

    pub fn set(&self, written: u64, synced: u64) {
        self.written.store(written, Ordering::Release);
        self.synced.store(synced, Ordering::Release);
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }
}

/// Records and progress that a log keeps for the members of its set.
pub(crate) struct Shipping {
    pub tail: Mutex<Recent>,
    pub required: Required,
}

/// Rows as the bytes of one record, which [`decode_records`] reads.
pub fn encode_rows(at: LogPos, rows: Vec<(Bytes, Bytes)>) -> Bytes {
    let changes: Vec<RowChange> =
        rows.into_iter().map(|(key, value)| RowChange { key, value: Some(value) }).collect();
    Bytes::from(encode_record(0, at, 0, &changes))
}

/// Decodes records that a primary has sent, as they lie in its log, one behind the other. Their checksums are not verified, because they
/// begin with a salt that is not known here; the message that carried them has its own checksum.
pub fn decode_records(bytes: &Bytes) -> Result<Vec<(LogPos, Batch)>> {
    let bad = || Fault::new(Code::BadFrame).why("records of a metadata log do not decode");
    let (mut at, mut records) = (0, Vec::new());
    while at < bytes.len() {
        let (pos, record) = parse_record(bytes, at).ok_or_else(bad)?;
        let changes = Record::changes(&record).ok_or_else(bad)?;
        at += record.len_bytes;
        records.push((pos, Batch { changes, frees_space: false }));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pos(term: u32, index: u64) -> LogPos {
        LogPos { term, index }
    }

    #[test]
    fn a_log_that_went_another_way_is_not_known() {
        let mut tail = Recent::new(1000, pos(3, 7));
        for index in 8..12 {
            tail.push(pos(if index < 10 { 3 } else { 4 }, index), Bytes::from(vec![0; 100]));
        }
        let found = |at: LogPos, to: u64| {
            tail.after(at, to, 250)
                .map(|records| records.iter().map(|(pos, _)| pos.index).collect::<Vec<_>>())
        };
        assert_eq!(found(pos(3, 7), 99), Some(vec![8, 9]), "at most 250 bytes");
        assert_eq!(found(pos(3, 9), 10), Some(vec![10]), "not what is not written yet");
        assert_eq!(found(pos(4, 11), 99), Some(Vec::new()));
        assert_eq!(found(pos(3, 10), 99), None, "of a primary that was replaced");
        assert_eq!(found(pos(3, 6), 99), None, "too old");
        assert_eq!(found(pos(4, 12), 99), None, "ahead");
        assert_eq!(found(pos(2, 7), 99), None);
    }

    #[test]
    fn what_is_too_much_goes_from_the_front() {
        let mut tail = Recent::new(250, pos(0, 0));
        for index in 1..=5 {
            tail.push(pos(1, index), Bytes::from(vec![0; 100]));
        }
        assert!(tail.after(pos(1, 2), 99, 1000).is_none());
        assert_eq!(tail.after(pos(1, 3), 99, 1000).map(|r| r.len()), Some(2));
        // While a member is filled nothing goes.
        tail.hold(true);
        for index in 6..=9 {
            tail.push(pos(1, index), Bytes::from(vec![0; 100]));
        }
        assert_eq!(tail.after(pos(1, 3), 99, 1000).map(|r| r.len()), Some(6));
        tail.hold(false);
        assert!(tail.after(pos(1, 3), 99, 1000).is_none());
        assert_eq!(tail.after(pos(1, 7), 99, 1000).map(|r| r.len()), Some(2));
    }

    #[test]
    fn records_are_sent_as_they_lie_in_the_log() {
        let mut first = Batch::new();
        first.put("key", "value");
        first.delete("gone");
        let mut bytes = encode_record(77, pos(2, 5), 4, &first.changes);
        bytes.extend(encode_record(77, pos(2, 6), 5, &[]));
        let records = decode_records(&Bytes::from(bytes.clone())).expect("decoded");
        assert_eq!(records.iter().map(|(pos, _)| *pos).collect::<Vec<_>>(), [pos(2, 5), pos(2, 6)]);
        assert_eq!(records[0].1.changes, first.changes);
        assert!(records[1].1.is_empty());
        for cut in 1..bytes.len() {
            let whole = decode_records(&Bytes::from(bytes[..cut].to_vec()));
            assert!(whole.map_or(true, |records| records.len() < 2), "{cut}");
        }
    }
}
