//! A replica: a store that takes in the records of a primary, under the primary's terms, and takes no terms of its own.
//!
//! States: *following* ([`Replica`]) until [`Replica::lead`] takes a new term and makes a [`Kv`] of it. Calls block on the disk; the
//! caller runs them on a thread that may block. A checkpoint is written while the replica goes on ([`Replica::begin_checkpoint`]).
//!
//! Invariants: records are taken in order and without a gap; records that [`Replica::sync`] returned for survive a power cut; a replica
//! holds only records that its primary made; it never takes a term that it was told of ([`Replica::begin_term`]).

use std::sync::Arc;

use brindle_stdx::{DiskFile, Mono, Seams};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use crate::batch::{Batch, LogPos};
use crate::fault::log_io;
use crate::format::{HEADER_BYTES, Identity, Record, SegmentHeader, encode_record};
use crate::kv::Kv;
use crate::memtable::{Memtable, PointRead};
use crate::open::{Replayed, SEGMENTS_AT_OPEN_MAX, next_term, replay};
use crate::options::{KvOptions, OpenReport};
use crate::segment::make_segment;
use crate::snapshot::Snapshot;
use crate::store::{Meta, Store, View};
use crate::verify::Verifier;

/// A store that follows.
pub struct Replica {
    replayed: Replayed,
    /// Segment for new records; `None` before the first one since the opening.
    segment: Option<Writing>,
    /// Index of the last record that is on the device.
    synced: u64,
    /// Arrival of the oldest record that is not on the device.
    unsynced_since: Option<Mono>,
}

/// The segment that grows.
struct Writing {
    header: SegmentHeader,
    path: String,
    file: Arc<dyn DiskFile>,
    /// Offset of the next record.
    offset: u64,
    /// Records that are not written yet; they go there.
    pending: Vec<u8>,
}

impl Writing {
    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.file.write_at(&self.pending, self.offset);
        written.map_err(|e| log_io("cannot write the metadata log", &self.path, &e))?;
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn end(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }
}

/// A checkpoint that is to be written, while the replica goes on.
pub struct Checkpointing {
    store: Arc<Store>,
    identity: Identity,
    rows: Arc<Memtable>,
}

impl Checkpointing {
    /// Writes the checkpoint; blocks for as long as that takes. The result goes to [`Replica::end_checkpoint`].
    pub fn write(self) -> Result<Checkpointed> {
        let meta = Meta { identity: self.identity, applied: self.rows.last };
        let view = self.store.checkpoint(self.rows.rows(), &meta, drop)?;
        Ok(Checkpointed { view, applied: self.rows.last })
    }
}

/// A checkpoint that was written.
pub struct Checkpointed {
    view: View,
    applied: LogPos,
}

impl Replica {
    /// Opens the store as it is, without a term. Fails as [`Kv::open`] does.
    pub fn open(seams: Seams, dir: &str, opts: KvOptions) -> Result<Replica> {
        let mut replayed = replay(seams, dir, opts)?;
        if replayed.scan.segments.len() > SEGMENTS_AT_OPEN_MAX {
            // A member that starts again and again does not fill the device with nearly empty segments.
            replayed.checkpoint()?;
        }
        let synced = replayed.scan.last.index;
        Ok(Replica { replayed, segment: None, synced, unsynced_since: None })
    }

    /// The last record of the replica.
    pub fn last(&self) -> LogPos {
        self.replayed.scan.last
    }

    /// Index up to which records survive a power cut.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Arrival of the oldest record that does not survive a power cut.
    pub fn unsynced_since(&self) -> Option<Mono> {
        self.unsynced_since
    }

    /// The term that [`Replica::lead`] would take.
    pub fn next_term(&self) -> u32 {
        next_term(&self.replayed.scan, self.replayed.applied)
    }

    /// Records behind `pos`; see [`Kv::records_after`].
    pub fn records_after(&self, pos: LogPos, bytes_max: usize) -> Option<Vec<(LogPos, Bytes)>> {
        self.replayed.tail.as_ref()?.after(pos, u64::MAX, bytes_max)
    }

    /// The value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.replayed.layers.find(key) {
            PointRead::Here(value) => Ok(value),
            PointRead::Below(view) => view.get(key),
        }
    }

    /// Records that a primary is about to take `term`. This store never takes that term or an earlier one itself.
    /// Durable on return.
    pub fn begin_term(&mut self, term: u32) -> Result<()> {
        if term <= self.replayed.scan.term_max {
            return Ok(());
        }
        self.begin_segment(LogPos { term, index: self.last().index + 1 })?;
        self.replayed.scan.term_max = term;
        Ok(())
    }

    /// Appends the record behind the last one, at the primary's position. A record that the store has already is skipped. A record
    /// with a gap before it, or of an earlier term, is refused.
    pub fn apply(&mut self, pos: LogPos, batch: &Batch) -> Result<()> {
        self.take(pos, batch)?;
        self.flush()
    }

    /// Takes in records as [`Replica::apply`] does, with few writes. After a failure the store is to be opened anew.
    pub fn apply_all(&mut self, records: &[(LogPos, Batch)]) -> Result<()> {
        let taken = records.iter().try_for_each(|(pos, batch)| self.take(*pos, batch));
        if !crate::planted("set_member_acks_unwritten") {
            self.flush()?;
        }
        taken
    }

    fn flush(&mut self) -> Result<()> {
        self.segment.as_mut().map_or(Ok(()), Writing::flush)
    }

    fn take(&mut self, pos: LogPos, batch: &Batch) -> Result<()> {
        batch.check()?;
        let last = self.last();
        if pos == last || (pos.term == last.term && pos.index < last.index) {
            return Ok(());
        }
        if pos.index != last.index + 1 || pos.term < last.term.max(self.replayed.scan.term_max) {
            return Err(Fault::new(Code::LogDamaged)
                .what("cannot take in a record of the primary:")
                .subject(pos.to_string())
                .why(format!(
                    "the last one here is {last}, of a log that has reached term {}",
                    self.replayed.scan.term_max
                ))
                .data("nothing was changed"));
        }
        let segment_bytes = self.replayed.opts.segment_bytes;
        let len_max = segment_bytes - HEADER_BYTES as u64;
        let fits = |writing: &Writing, len: usize| {
            writing.header.term == pos.term && writing.end() + len as u64 <= segment_bytes
        };
        // The seed of the checksum is the segment's, so the length comes first.
        let len = encode_record(0, pos, 0, &batch.changes).len();
        if len as u64 > len_max {
            return Err(Fault::new(Code::Bug)
                .what("cannot log a batch that is larger than a segment")
                .why(format!("{len} bytes; segments have {segment_bytes} bytes")));
        }
        if !self.segment.as_ref().is_some_and(|writing| fits(writing, len)) {
            self.begin_segment(pos)?;
        }
        let (synced, now) = (self.synced, self.replayed.seams.now());
        let Some(writing) = self.segment.as_mut() else {
            return Err(Fault::new(Code::Bug).what("a segment was begun, and is not there"));
        };
        let lost = usize::from(crate::planted("kv_replica_loses_a_row") && !batch.changes.is_empty());
        let changes = &batch.changes[lost..];
        let record = Bytes::from(encode_record(writing.header.seed(), pos, synced, changes));
        writing.pending.extend_from_slice(&record);
        self.unsynced_since.get_or_insert(now);
        if let Some(tail) = &mut self.replayed.tail {
            tail.push(pos, record.clone());
        }
        self.replayed.layers.active.apply(pos, record.len(), Record::changes_of_encoded(record));
        self.replayed.scan.last = pos;
        self.replayed.scan.term_max = self.replayed.scan.term_max.max(pos.term);
        Ok(())
    }

    /// Syncs all records that were taken in.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(writing) = &self.segment {
            let synced = writing.file.sync_data();
            synced.map_err(|e| log_io("cannot sync the metadata log", &writing.path, &e))?;
        }
        self.synced = self.last().index;
        self.unsynced_since = None;
        Ok(())
    }

    /// File and index of the sync that is due; `None` if all records are on the device. The caller syncs the
    /// file and then calls [`Replica::was_synced`]. Other work may go on meanwhile.
    pub fn to_sync(&self) -> Option<(Arc<dyn DiskFile>, u64)> {
        let last = self.last().index;
        let writing = self.segment.as_ref().filter(|_| self.synced < last)?;
        Some((writing.file.clone(), last))
    }

    /// Notes that records up to `index` were synced. Later records came at `at` or after.
    pub fn was_synced(&mut self, index: u64, at: Mono) {
        self.synced = self.synced.max(index);
        self.unsynced_since = (self.synced < self.last().index).then_some(at);
    }

    /// Begins a segment with the record of `pos`. The previous segment is synced first: the new header tells
    /// its end.
    fn begin_segment(&mut self, pos: LogPos) -> Result<()> {
        self.sync()?;
        let scan = &mut self.replayed.scan;
        let previous = scan.segments.last().map(|segment| segment.header);
        let (previous_term, previous_last_index) = match previous {
            Some(header) if header.term == pos.term => (header.previous_term, header.previous_last_index),
            Some(header) => (header.term, scan.last.index),
            None => (0, 0),
        };
        let header = SegmentHeader {
            identity: self.replayed.identity,
            term: pos.term,
            first_index: pos.index,
            previous_term,
            previous_last_index,
            salt: self.replayed.seams.rng.next_u64(),
        };
        let disk = &*self.replayed.seams.disk;
        let made = make_segment(disk, &self.replayed.dir, header, self.replayed.opts.segment_bytes)?;
        let (segment, file) = made;
        let path = segment.path.clone();
        // The new file replaces a segment of the same name without records, which an opening left that ended early.
        scan.segments.retain(|known| known.path != path);
        scan.segments.push(segment);
        self.segment = Some(Writing { header, path, file, offset: HEADER_BYTES as u64, pending: Vec::new() });
        Ok(())
    }

    /// Whether the rows in memory are so many that a checkpoint is due.
    pub fn is_checkpoint_due(&self) -> bool {
        self.replayed.layers.active.bytes > self.replayed.opts.memtable_bytes_max
    }

    /// Whether a checkpoint is being written.
    pub fn is_checkpointing(&self) -> bool {
        self.replayed.layers.frozen.is_some()
    }

    /// A checkpoint of everything that was taken in; `None` while one is being written.
    pub fn begin_checkpoint(&mut self) -> Result<Option<Checkpointing>> {
        if self.replayed.layers.frozen.is_some() {
            return Ok(None);
        }
        self.sync()?;
        let layers = &mut self.replayed.layers;
        let empty = Memtable::on_top_of(layers.active.last);
        let rows = Arc::new(std::mem::replace(&mut layers.active, empty));
        layers.frozen = Some(rows.clone());
        Ok(Some(Checkpointing { store: self.replayed.store.clone(), identity: self.replayed.identity, rows }))
    }

    /// The checkpoint was written. Segments that nobody needs any more go.
    pub fn end_checkpoint(&mut self, done: Checkpointed) {
        self.replayed.layers.view = Arc::new(done.view);
        self.replayed.layers.frozen = None;
        self.replayed.applied = done.applied;
        self.replayed.remove_needless();
    }

    /// The files as they are now, for [`crate::verify`].
    pub fn verifier(&self) -> Verifier {
        let (disk, sums) = (self.replayed.seams.disk.clone(), self.replayed.store.sums());
        Verifier::new(disk, &self.replayed.dir, sums, &self.replayed.scan.segments, self.synced)
    }

    /// The rows of the last checkpoint. A caller that has just written one finds all rows up to that moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.replayed.layers)
    }

    /// Begins a new segment of the log. The next checkpoint makes all earlier segments needless, whatever is damaged in them.
    pub fn renew_log(&mut self) -> Result<()> {
        let term = self.last().term.max(self.replayed.scan.term_max);
        self.begin_segment(LogPos { term, index: self.last().index + 1 })
    }

    /// Becomes a primary: durably takes a new term, above every term that it has seen.
    pub fn lead(mut self) -> Result<(Kv, OpenReport)> {
        self.sync()?;
        Kv::serve(self.replayed)
    }
}
