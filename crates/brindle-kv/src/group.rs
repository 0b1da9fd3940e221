//! The group buffer: records that were appended and not yet written, with where each goes. Pure; `log.rs` does the I/O.

use std::collections::VecDeque;

use brindle_stdx::Mono;

use crate::format::HEADER_BYTES;

/// Ages of unsynced records are kept this finely.
const SAMPLE_MS: u64 = 50;

/// Records that are written with one call, all into one segment.
pub(crate) struct Chunk {
    /// The chunk begins a new segment, which has to be made first.
    pub begins_segment: bool,
    pub first_index: u64,
    pub last_index: u64,
    pub bytes: Vec<u8>,
}

/// Whether the next segment is there in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// The spare segment is there.
    Ready,
    /// The spare segment was used up, or never made.
    Wanted,
    /// The spare segment could not be made at this time, because the device is full.
    NoSpace(Mono),
}

/// See the module.
pub(crate) struct GroupBuffer {
    chunks: VecDeque<Chunk>,
    /// Index of the next record.
    pub next_index: u64,
    /// `synced_index` of the last record pushed.
    pub claimed: u64,
    pub spare: Spare,
    /// The device is down to the reserve.
    pub space_low: bool,
    /// Bytes pushed since the device was asked for its space.
    pub bytes_since_space_check: u64,
    /// Offset of the next record, in the segment of the last chunk.
    end_offset: u64,
    segment_bytes: u64,
    /// (index, time): records from `index` on, up to the next sample, are at most this old.
    samples: VecDeque<(u64, Mono)>,
}

impl GroupBuffer {
    pub fn new(next_index: u64, segment_bytes: u64) -> GroupBuffer {
        GroupBuffer {
            chunks: VecDeque::new(),
            next_index,
            claimed: next_index - 1,
            spare: Spare::Wanted,
            space_low: false,
            bytes_since_space_check: u64::MAX,
            end_offset: HEADER_BYTES as u64,
            segment_bytes,
            samples: VecDeque::new(),
        }
    }

    /// Index of the last record pushed.
    pub fn last_index(&self) -> u64 {
        self.next_index - 1
    }

    /// Whether a record of this size begins a new segment.
    pub fn needs_segment(&self, record_bytes: usize) -> bool {
        self.end_offset + record_bytes as u64 > self.segment_bytes
    }

    /// Makes the next record begin a new segment. A segment is named by its first record, so the present one must have a record.
    pub fn end_segment(&mut self) {
        assert!(
            self.end_offset > HEADER_BYTES as u64,
            "an empty segment would be replaced by one of its name"
        );
        self.end_offset = self.segment_bytes;
    }

    /// Adds the record of index `next_index`. `now` is when it was made; `None` for one that needs no syncing.
    pub fn push(&mut self, record: &[u8], now: Option<Mono>) {
        let index = self.next_index;
        self.next_index += 1;
        let begins_segment = self.needs_segment(record.len());
        if begins_segment {
            self.end_offset = HEADER_BYTES as u64;
        }
        self.end_offset += record.len() as u64;
        self.bytes_since_space_check = self.bytes_since_space_check.saturating_add(record.len() as u64);
        match self.chunks.back_mut() {
            Some(chunk) if !begins_segment => {
                chunk.last_index = index;
                chunk.bytes.extend_from_slice(record);
            }
            _ => self.chunks.push_back(Chunk {
                begins_segment,
                first_index: index,
                last_index: index,
                bytes: record.to_vec(),
            }),
        }
        if let Some(now) = now
            && self.samples.back().is_none_or(|(_, at)| now.ms_since(*at) >= SAMPLE_MS)
        {
            self.samples.push_back((index, now));
        }
    }

    /// Takes the records that can be written now.
    pub fn take_writable(&mut self) -> Option<Chunk> {
        if self.has_writable() { self.chunks.pop_front() } else { None }
    }

    pub fn has_writable(&self) -> bool {
        self.chunks.front().is_some_and(|c| !c.begins_segment)
    }

    /// First index of the segment that has to be made before anything more can be written.
    pub fn segment_due(&self) -> Option<u64> {
        self.chunks.front().filter(|c| c.begins_segment).map(|c| c.first_index)
    }

    /// The segment that was due is there.
    pub fn segment_made(&mut self) {
        if let Some(chunk) = self.chunks.front_mut() {
            chunk.begins_segment = false;
        }
    }

    /// Notes that all records up to `index` are durable.
    pub fn synced_to(&mut self, index: u64) {
        while self.samples.get(1).map_or(self.next_index, |(next, _)| *next) <= index + 1 {
            if self.samples.pop_front().is_none() {
                break;
            }
        }
    }

    /// Time at which the oldest unsynced record was made, or a little earlier.
    pub fn oldest(&self) -> Option<Mono> {
        self.samples.front().map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Option<Mono> {
        Some(Mono::default().plus_ms(ms))
    }

    #[test]
    fn age_is_that_of_the_oldest_unsynced_record() {
        let mut group = GroupBuffer::new(1, 1 << 20);
        group.push(&[0; 8], at(0));
        group.push(&[0; 8], at(10));
        group.push(&[0; 8], at(100));
        assert_eq!(group.oldest(), at(0));
        group.synced_to(1);
        assert_eq!(group.oldest(), at(0), "record 2 shares the sample of record 1");
        group.synced_to(2);
        assert_eq!(group.oldest(), at(100));
        group.synced_to(3);
        assert_eq!(group.oldest(), None);
        group.push(&[0; 8], None);
        assert_eq!(group.oldest(), None, "marks have no age");
        group.push(&[0; 8], at(500));
        group.synced_to(4);
        assert_eq!(group.oldest(), at(500));
    }

    #[test]
    fn a_full_segment_begins_the_next() {
        let mut group = GroupBuffer::new(7, HEADER_BYTES as u64 + 16);
        for _ in 0..3 {
            group.push(&[1; 8], at(0));
        }
        let first = group.take_writable().expect("two records fit");
        assert_eq!((first.first_index, first.last_index, first.bytes.len()), (7, 8, 16));
        assert!(group.take_writable().is_none());
        assert_eq!(group.segment_due(), Some(9));
        group.segment_made();
        assert_eq!(group.take_writable().map(|c| c.last_index), Some(9));
    }
}
