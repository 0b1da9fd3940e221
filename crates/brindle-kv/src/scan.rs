//! Reads the log back: which records survived, where the log ends, and whether a bad record is a torn end or damage.
//!
//! Called by opening and by the offline reader; writes nothing. A bad record is *damage* iff something durable says
//! that the record was there: a later record's `synced_index`, the header of the segment that follows, or the
//! checkpoint. Any other bad record is the torn end of the log: everything from there on is dropped, so that a prefix
//! survives.

use brindle_stdx::cast::to_usize;
use brindle_stdx::disk::{Disk, OpenHow, read_exact_at};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use crate::batch::{LogPos, RowChange};
use crate::fault::{log_damaged, log_io, log_missing};
use crate::format::{
    ALIGN, HEADER_BYTES, HeaderWrong, Identity, Record, SegmentHeader, decode_record, parse_segment_name,
};
use crate::options::Damage;

/// A segment whose header is valid.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub path: String,
    pub header: SegmentHeader,
}

/// Records at the end of the log that nothing durable mentions. Opening writes and syncs them again, because a
/// process that died of a failed fdatasync leaves pages in memory that only look clean.
pub(crate) struct Tail {
    pub path: String,
    pub offset: u64,
    pub bytes: Bytes,
}

/// Contents of the log.
#[derive(Default)]
pub(crate) struct Scan {
    /// All segments with a valid header, in order of (term, index).
    pub segments: Vec<Segment>,
    /// Segments before this one are wholly in the checkpoint.
    pub needed_from: usize,
    /// The last record that survived.
    pub last: LogPos,
    /// Highest term in any file name.
    pub term_max: u32,
    /// Records behind the checkpoint.
    pub replayed: u64,
    /// Bytes of the torn end.
    pub dropped_bytes: u64,
    pub tail: Option<Tail>,
    pub damage: Vec<Damage>,
}

/// Receives the records behind the checkpoint, in order.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(LogPos, &Record, Vec<RowChange>);

/// Reads the log of `dir` on top of a checkpoint that holds everything up to `applied`. Fails on I/O errors, on files
/// of another target and of a newer format; damage is collected.
pub(crate) fn scan_log(
    disk: &dyn Disk,
    dir: &str,
    identity: Option<Identity>,
    applied: LogPos,
    visit: Visit<'_>,
) -> Result<Scan> {
    let mut scan = Scan { last: applied, ..Scan::default() };
    read_headers(disk, dir, identity, &mut scan)?;
    if scan.segments.is_empty() {
        scan.damage.push(log_missing(dir, "there is no log segment"));
        return Ok(scan);
    }
    scan.needed_from = needed_from(&scan.segments, applied);
    let first = scan.segments[scan.needed_from].header;
    if first.first_index > applied.index + 1 {
        let why = format!(
            "the checkpoint ends with record {}, and the log begins with record {}",
            applied.index, first.first_index
        );
        scan.damage.push(log_missing(dir, why));
    }
    if applied.term > scan.term_max {
        let why = format!(
            "the checkpoint knows term {}, and the last segment is of term {}",
            applied.term, scan.term_max
        );
        scan.damage.push(log_missing(dir, why));
    }
    for i in scan.needed_from..scan.segments.len() {
        let segment = scan.segments[i].clone();
        let next = scan.segments.get(i + 1).map(|s| s.header);
        walk_segment(disk, dir, &segment, next, applied, visit, &mut scan)?;
    }
    Ok(scan)
}

/// Index of the last segment that begins at or before the first record behind the checkpoint.
pub(crate) fn needed_from(segments: &[Segment], applied: LogPos) -> usize {
    segments.iter().rposition(|s| s.header.first_index <= applied.index + 1).unwrap_or(0)
}

fn read_headers(disk: &dyn Disk, dir: &str, identity: Option<Identity>, scan: &mut Scan) -> Result<()> {
    let names = disk.list(dir).map_err(|e| log_io("cannot list the metadata log", dir, &e))?;
    for name in names {
        let Some((term, first_index)) = parse_segment_name(&name) else { continue };
        let path = format!("{dir}/{name}");
        scan.term_max = scan.term_max.max(term);
        let block = read_header_block(disk, &path)?;
        match SegmentHeader::decode(&block) {
            Ok(h) if identity.is_some_and(|i| i != h.identity) => return Err(foreign(&path)),
            Ok(header) if (header.term, header.first_index) == (term, first_index) => {
                scan.segments.push(Segment { path, header });
            }
            Ok(_) => {
                scan.damage.push(log_damaged(&path, 0, first_index, "its header belongs to another segment"));
            }
            Err(HeaderWrong::Version(version)) => {
                let why = format!("{path} has format {version}, this release knows 1");
                return Err(Fault::new(Code::NewerFormat).subject(dir.to_owned()).why(why));
            }
            Err(HeaderWrong::Damaged) => {
                // Headers are synced before a segment gets its name, so a bad one cannot be a torn creation.
                scan.damage.push(log_damaged(
                    &path,
                    0,
                    first_index,
                    "its header does not match its checksum",
                ));
            }
        }
    }
    Ok(())
}

fn read_header_block(disk: &dyn Disk, path: &str) -> Result<Vec<u8>> {
    let read = || {
        let file = disk.open(path, OpenHow::ReadOnly)?;
        let mut block = vec![0; HEADER_BYTES];
        let n = file.read_at(&mut block, 0)?;
        block.truncate(n);
        Ok(block)
    };
    read().map_err(|e| log_io("cannot read the metadata log", path, &e))
}

pub(crate) fn foreign(path: &str) -> Fault {
    Fault::new(Code::ForeignTarget).subject(path.to_owned()).why("the file was written for another target")
}

fn read_segment(disk: &dyn Disk, path: &str) -> Result<Bytes> {
    let read = || {
        let file = disk.open(path, OpenHow::ReadOnly)?;
        let mut bytes = vec![0; to_usize(file.len()?)];
        read_exact_at(&*file, &mut bytes, 0)?;
        Ok(Bytes::from(bytes))
    };
    read().map_err(|e| log_io("cannot read the metadata log", path, &e))
}

/// Index behind the last record of `segment`, as the next header tells.
pub(crate) fn bound(segment: &SegmentHeader, next: &SegmentHeader) -> u64 {
    if next.term == segment.term { next.first_index } else { next.previous_last_index + 1 }
}

fn check_chain(dir: &str, segment: &SegmentHeader, next: &SegmentHeader, scan: &mut Scan) {
    if next.term != segment.term && next.previous_term != segment.term {
        let why = format!(
            "the log of term {} is missing between {} and {}",
            next.previous_term,
            segment.file_name(),
            next.file_name()
        );
        scan.damage.push(log_missing(dir, why));
    } else if next.first_index > bound(segment, next) {
        let why = format!(
            "records {} to {} of term {} are in no segment",
            bound(segment, next),
            next.first_index - 1,
            next.term
        );
        scan.damage.push(log_missing(dir, why));
    }
}

fn walk_segment(
    disk: &dyn Disk,
    dir: &str,
    segment: &Segment,
    next: Option<SegmentHeader>,
    applied: LogPos,
    visit: Visit<'_>,
    scan: &mut Scan,
) -> Result<()> {
    let header = &segment.header;
    let bytes = read_segment(disk, &segment.path)?;
    let end = next.as_ref().map(|next| bound(header, next));
    let durable_to = end.map_or(0, |end| end - 1).max(applied.index);
    let (mut at, mut index) = (HEADER_BYTES, header.first_index);
    let mut known_synced = durable_to.max(header.first_index - 1);
    while end.is_none_or(|end| index < end) {
        let record = decode_record(&bytes, at, header.seed(), header.term).filter(|r| r.index == index);
        let changes = record.as_ref().and_then(Record::changes);
        if let (Some(record), Some(changes)) = (record, changes) {
            known_synced = known_synced.max(record.synced_index);
            at += record.len_bytes;
            index += 1;
            accept(LogPos { index: record.index, term: header.term }, &record, changes, applied, visit, scan);
            continue;
        }
        let later = Later::find(&bytes, at + ALIGN, header, index);
        match later.verdict(index, durable_to) {
            Some(why) => scan.damage.push(log_damaged(&segment.path, at as u64, index, why)),
            None => {
                scan.dropped_bytes += torn_bytes(&bytes, at);
                if !crate::planted("log_apply_torn_tail") {
                    break;
                }
            }
        }
        let Some((offset, later_index)) = later.first else { break };
        (at, index) = (offset, later_index);
    }
    match &next {
        Some(next) => check_chain(dir, header, next, scan),
        None => scan.tail = tail_of(segment, &bytes, at, known_synced),
    }
    Ok(())
}

fn accept(
    pos: LogPos,
    record: &Record,
    changes: Vec<RowChange>,
    applied: LogPos,
    visit: Visit<'_>,
    scan: &mut Scan,
) {
    if pos.index > applied.index {
        scan.last = pos;
        scan.replayed += 1;
        visit(pos, record, changes);
    }
}

/// Records behind a bad one.
#[derive(Default)]
struct Later {
    /// Offset and index of the next valid record.
    first: Option<(usize, u64)>,
    /// Highest `synced_index` of all valid records behind, and the record that says so.
    synced: Option<(u64, u64)>,
}

impl Later {
    fn find(bytes: &Bytes, from: usize, header: &SegmentHeader, bad_index: u64) -> Later {
        let mut later = Later::default();
        let mut at = from;
        while at < bytes.len() {
            match decode_record(bytes, at, header.seed(), header.term).filter(|r| r.index > bad_index) {
                Some(record) => {
                    later.first.get_or_insert((at, record.index));
                    if later.synced.is_none_or(|(synced, _)| synced < record.synced_index) {
                        later.synced = Some((record.synced_index, record.index));
                    }
                    at += record.len_bytes;
                }
                None => at += ALIGN,
            }
        }
        later
    }

    /// Reason why a bad record is damage, or `None` if it is the torn end.
    fn verdict(&self, index: u64, durable_to: u64) -> Option<String> {
        let bad = format!("record {index} does not match its checksum");
        if index <= durable_to {
            return Some(format!("{bad}, and the checkpoint or the next segment says that it was synced"));
        }
        match self.synced {
            Some((synced, by)) if synced >= index => {
                Some(format!("{bad}, and record {by} behind it says that it was synced"))
            }
            _ => None,
        }
    }
}

/// Bytes from `at` to the last one that is not zero.
fn torn_bytes(bytes: &Bytes, at: usize) -> u64 {
    bytes[at.min(bytes.len())..].iter().rposition(|&b| b != 0).map_or(0, |last| last as u64 + 1)
}

/// The records of the last segment behind `known_synced`, which end at `end`.
fn tail_of(segment: &Segment, bytes: &Bytes, end: usize, known_synced: u64) -> Option<Tail> {
    let header = &segment.header;
    let mut at = HEADER_BYTES;
    while at < end {
        let record = decode_record(bytes, at, header.seed(), header.term)?;
        if record.index > known_synced {
            return Some(Tail { path: segment.path.clone(), offset: at as u64, bytes: bytes.slice(at..end) });
        }
        at += record.len_bytes;
    }
    None
}
