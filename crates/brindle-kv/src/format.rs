//! Bytes of the log: segment headers and records. Golden bytes in `golden/` pin them; nothing here does I/O.
//!
//! A segment is a file `log-<term>-<first index>`: a header block of [`HEADER_BYTES`], then records, each padded to 8
//! bytes. All numbers are big-endian. A record's checksum begins with the salt of its term, so that neither bytes of
//! an older file in recycled blocks nor a record forged inside a row's value is taken for one.

use brindle_stdx::cast::{len_u16, len_u32};
use brindle_stdx::codec::Reader;
use brindle_stdx::{crc, crc_append};
use bytes::Bytes;

use crate::batch::{LogPos, RowChange};

/// Size of the header block of a segment; the first record begins behind it.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Version of the log format. 1: the first.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
/// Every record begins at a multiple of this.
pub(crate) const ALIGN: usize = 8;

const SEGMENT_MAGIC: &[u8; 8] = b"BRINLOG\n";
const RECORD_MAGIC: &[u8; 4] = b"Brec";
const HEADER_FIELDS_BYTES: usize = 80;
const PAYLOAD_VERSION: u8 = 1;
const OP_PUT: u8 = 1;
const OP_DELETE: u8 = 2;

/// Identity of the owner of these files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub fs_id: [u8; 16],
    pub target_uuid: [u8; 16],
}

/// Header block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub identity: Identity,
    pub term: u32,
    /// Index of the first record here. All records before it were durable when this header was written.
    pub first_index: u64,
    /// Term of the opening before this one (0: none), the same in all segments of a term.
    pub previous_term: u32,
    /// Last record of all earlier terms; what lies behind it in their segments is never believed.
    pub previous_last_index: u64,
    /// Begins the checksum of every record of the term.
    pub salt: u64,
}

/// Reason why a block is not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderWrong {
    /// Magic or checksum.
    Damaged,
    /// Written by another version of the format.
    Version(u32),
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
        out.extend_from_slice(&self.identity.fs_id);
        out.extend_from_slice(&self.identity.target_uuid);
        out.extend_from_slice(&self.term.to_be_bytes());
        out.extend_from_slice(&self.first_index.to_be_bytes());
        out.extend_from_slice(&self.previous_term.to_be_bytes());
        out.extend_from_slice(&self.previous_last_index.to_be_bytes());
        out.extend_from_slice(&self.salt.to_be_bytes());
        assert_eq!(out.len(), HEADER_FIELDS_BYTES - 4, "header fields moved");
        out.extend_from_slice(&crc(&out).to_be_bytes());
        out.resize(HEADER_BYTES, 0);
        out
    }

    pub fn decode(block: &[u8]) -> Result<SegmentHeader, HeaderWrong> {
        let fields = block.get(..HEADER_FIELDS_BYTES).ok_or(HeaderWrong::Damaged)?;
        let (body, sum) = fields.split_at(HEADER_FIELDS_BYTES - 4);
        if &body[..8] != SEGMENT_MAGIC || crc(body).to_be_bytes() != sum {
            return Err(HeaderWrong::Damaged);
        }
        let mut r = Reader::new(&body[8..]);
        let header = Self::decode_fields(&mut r).ok_or(HeaderWrong::Damaged)?;
        match header {
            (FORMAT_VERSION, header) => Ok(header),
            (version, _) => Err(HeaderWrong::Version(version)),
        }
    }

    fn decode_fields(r: &mut Reader<'_>) -> Option<(u32, SegmentHeader)> {
        let version = r.u32()?;
        let identity =
            Identity { fs_id: r.take(16)?.try_into().ok()?, target_uuid: r.take(16)?.try_into().ok()? };
        let header = SegmentHeader {
            identity,
            term: r.u32()?,
            first_index: r.u64()?,
            previous_term: r.u32()?,
            previous_last_index: r.u64()?,
            salt: r.u64()?,
        };
        Some((version, header))
    }

    /// Name of the segment's file.
    pub fn file_name(&self) -> String {
        segment_name(self.term, self.first_index)
    }

    /// Start value for the checksums of this term's records.
    pub fn seed(&self) -> u32 {
        seed_of(self.salt)
    }
}

/// Start value for the checksums of a term's records.
pub(crate) fn seed_of(salt: u64) -> u32 {
    crc(&salt.to_be_bytes())
}

/// Name of a segment's file; names sort like (term, index).
pub(crate) fn segment_name(term: u32, first_index: u64) -> String {
    format!("log-{term:08x}-{first_index:016x}")
}

/// Term and first index out of a file name; `None` for other files.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u32, u64)> {
    let (term, index) = name.strip_prefix("log-")?.split_once('-')?;
    if term.len() != 8 || index.len() != 16 {
        return None;
    }
    Some((u32::from_str_radix(term, 16).ok()?, u64::from_str_radix(index, 16).ok()?))
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub index: u64,
    /// Highest index known to be durable when the record was made.
    pub synced_index: u64,
    /// Size in the file, padding included.
    pub len_bytes: usize,
    payload: Bytes,
}

/// Encodes one record. The caller owns the order: `pos.index` is one more than the last.
pub(crate) fn encode_record(seed: u32, pos: LogPos, synced_index: u64, changes: &[RowChange]) -> Vec<u8> {
    let len = RECORD_HEADER_BYTES + 5 + changes.iter().map(change_len).sum::<usize>();
    let mut out = Vec::with_capacity(len.next_multiple_of(ALIGN));
    out.extend_from_slice(RECORD_MAGIC);
    out.extend_from_slice(&len_u32(len - RECORD_HEADER_BYTES).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&pos.term.to_be_bytes());
    out.extend_from_slice(&pos.index.to_be_bytes());
    out.extend_from_slice(&synced_index.to_be_bytes());
    out.push(PAYLOAD_VERSION);
    out.extend_from_slice(&len_u32(changes.len()).to_be_bytes());
    for change in changes {
        out.push(if change.value.is_some() { OP_PUT } else { OP_DELETE });
        out.extend_from_slice(&len_u16(change.key.len()).to_be_bytes());
        out.extend_from_slice(&change.key);
        if let Some(value) = &change.value {
            out.extend_from_slice(&len_u32(value.len()).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
    assert_eq!(out.len(), len, "record length was computed wrongly");
    out.resize(len.next_multiple_of(ALIGN), 0);
    let sum = record_crc(seed, &out);
    out[8..12].copy_from_slice(&sum.to_be_bytes());
    out
}

fn change_len(change: &RowChange) -> usize {
    3 + change.key.len() + change.value.as_ref().map_or(0, |v| 4 + v.len())
}

/// Checksum over a whole record but its own four bytes.
fn record_crc(seed: u32, record: &[u8]) -> u32 {
    crc_append(crc_append(seed, &record[..8]), &record[12..])
}

/// The valid record of `term` at `offset` of a segment's bytes, or `None`.
pub(crate) fn decode_record(segment: &Bytes, offset: usize, seed: u32, term: u32) -> Option<Record> {
    let rest = segment.get(offset..)?;
    if rest.get(..4)? != RECORD_MAGIC {
        return None;
    }
    let mut r = Reader::new(&rest[4..]);
    let payload_len = r.u32()? as usize;
    let sum = r.u32()?;
    let (record_term, index, synced_index) = (r.u32()?, r.u64()?, r.u64()?);
    let len_bytes = (RECORD_HEADER_BYTES.checked_add(payload_len)?).checked_next_multiple_of(ALIGN)?;
    if record_term != term || record_crc(seed, rest.get(..len_bytes)?) != sum {
        return None;
    }
    let payload_at = offset + RECORD_HEADER_BYTES;
    Some(Record {
        index,
        synced_index,
        len_bytes,
        payload: segment.slice(payload_at..payload_at + payload_len),
    })
}

/// Size that the header of a record at `offset` claims, padding included; `None` where the header is not there as a whole.
pub(crate) fn claimed_len(bytes: &[u8], offset: usize) -> Option<usize> {
    let header = bytes.get(offset..)?.get(..RECORD_HEADER_BYTES)?;
    let payload_len = Reader::new(&header[4..]).u32()? as usize;
    RECORD_HEADER_BYTES.checked_add(payload_len)?.checked_next_multiple_of(ALIGN)
}

/// The record at `offset` of bytes that something else has checked, and its place in the log.
pub(crate) fn parse_record(bytes: &Bytes, offset: usize) -> Option<(LogPos, Record)> {
    let rest = bytes.get(offset..)?;
    if rest.get(..4)? != RECORD_MAGIC {
        return None;
    }
    let mut r = Reader::new(&rest[4..]);
    let (payload_len, _sum) = (r.u32()? as usize, r.u32()?);
    let (term, index, synced_index) = (r.u32()?, r.u64()?, r.u64()?);
    let len_bytes = (RECORD_HEADER_BYTES.checked_add(payload_len)?).checked_next_multiple_of(ALIGN)?;
    rest.get(..len_bytes)?;
    let payload_at = offset + RECORD_HEADER_BYTES;
    let payload = bytes.slice(payload_at..payload_at + payload_len);
    Some((LogPos { term, index }, Record { index, synced_index, len_bytes, payload }))
}

impl Record {
    /// The row changes of a record that [`encode_record`] has just made, as slices of it.
    pub fn changes_of_encoded(record: Bytes) -> Vec<RowChange> {
        let payload_len = u32::from_be_bytes([record[4], record[5], record[6], record[7]]) as usize;
        let payload = record.slice(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + payload_len);
        let record = Record { index: 0, synced_index: 0, len_bytes: record.len(), payload };
        record.changes().expect("what was just encoded decodes")
    }

    /// The row changes, as slices of the record; `None` if the payload is of a version that this release does not know.
    pub fn changes(&self) -> Option<Vec<RowChange>> {
        let mut r = Reader::new(&self.payload);
        if r.u8()? != PAYLOAD_VERSION {
            return None;
        }
        let count = r.u32()? as usize;
        let mut changes = Vec::with_capacity(count.min(self.payload.len()));
        for _ in 0..count {
            let op = r.u8()?;
            let key_len = r.u16()? as usize;
            let key = self.payload.slice_ref(r.take(key_len)?);
            let value = match op {
                OP_PUT => {
                    let value_len = r.u32()? as usize;
                    Some(self.payload.slice_ref(r.take(value_len)?))
                }
                OP_DELETE => None,
                _ => return None,
            };
            changes.push(RowChange { key, value });
        }
        r.is_empty().then_some(changes)
    }
}
