//! A replica: a store that takes in the records of a primary, under the primary's terms, and has none of its own.
//!
//! States: *following* ([`Replica`]) until [`Replica::lead`] takes a new term and makes a [`Kv`] of it. Calls block on the disk; whoever
//! uses a replica runs them where that is allowed.
//!
//! Invariants: records are taken in order and without a gap; what [`Replica::sync`] returned for survives a power cut; a replica never
//! holds a record that its primary did not make.

use std::sync::Arc;

use brindle_stdx::{DiskFile, Seams};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use crate::batch::{Batch, LogPos};
use crate::fault::log_io;
use crate::format::{HEADER_BYTES, Record, SegmentHeader, encode_record};
use crate::kv::Kv;
use crate::memtable::Found;
use crate::open::{Replayed, replay};
use crate::options::{KvOptions, OpenReport};
use crate::segment::make_segment;

/// A store that follows.
pub struct Replica {
    replayed: Replayed,
    /// Where records go; `None` before the first one since the opening.
    segment: Option<Writing>,
    /// Everything up to here is on the device.
    synced: u64,
}

/// The segment that grows.
struct Writing {
    header: SegmentHeader,
    path: String,
    file: Arc<dyn DiskFile>,
    /// Where the next record goes.
    offset: u64,
}

impl Replica {
    /// Opens the store as it is, without a term. Fails as [`Kv::open`] does.
    pub fn open(seams: Seams, dir: &str, opts: KvOptions) -> Result<Replica> {
        let replayed = replay(seams, dir, opts)?;
        let synced = replayed.scan.last.index;
        Ok(Replica { replayed, segment: None, synced })
    }

    /// The last record that it has.
    pub fn last(&self) -> LogPos {
        self.replayed.scan.last
    }

    /// The value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.replayed.layers.find(key) {
            Found::Here(value) => Ok(value),
            Found::Below(view) => view.get(key),
        }
    }

    /// Takes in the record behind the last one, at the primary's position of it. One that it has already is left out; one with a gap
    /// before it, or of an earlier term, is refused.
    pub fn apply(&mut self, pos: LogPos, batch: &Batch) -> Result<()> {
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
            writing.header.term == pos.term && writing.offset + len as u64 <= segment_bytes
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
        let synced = self.synced;
        let Some(writing) = self.segment.as_mut() else {
            return Err(Fault::new(Code::Bug).what("a segment was begun, and is not there"));
        };
        let record = Bytes::from(encode_record(writing.header.seed(), pos, synced, &batch.changes));
        let written = writing.file.write_at(&record, writing.offset);
        written.map_err(|e| log_io("cannot write the metadata log", &writing.path, &e))?;
        writing.offset += record.len() as u64;
        self.replayed.layers.active.apply(pos, record.len(), Record::changes_of_encoded(record));
        self.replayed.scan.last = pos;
        self.replayed.scan.term_max = self.replayed.scan.term_max.max(pos.term);
        if self.replayed.layers.active.bytes > self.replayed.opts.memtable_bytes_max {
            self.sync()?;
            self.replayed.checkpoint()?;
        }
        Ok(())
    }

    /// Everything that was taken in is on the device on return.
    pub fn sync(&mut self) -> Result<()> {
        if let Some(writing) = &self.segment {
            let synced = writing.file.sync_data();
            synced.map_err(|e| log_io("cannot sync the metadata log", &writing.path, &e))?;
        }
        self.synced = self.last().index;
        Ok(())
    }

    /// Begins a segment with the record of `pos`. What the one before holds is synced first: its end is what the new header says.
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
        // One without records, of an opening that came to nothing, was replaced.
        scan.segments.retain(|known| known.path != path);
        scan.segments.push(segment);
        self.segment = Some(Writing { header, path, file, offset: HEADER_BYTES as u64 });
        Ok(())
    }

    /// Becomes a primary: durably takes a new term, above every term that it has seen.
    pub fn lead(mut self) -> Result<(Kv, OpenReport)> {
        self.sync()?;
        Kv::serve(self.replayed)
    }
}
