//! The records of the appenders' log, and what may stand between them after a power cut.
//!
//! Without a cut the log is record after record. A cut may take the end of the file that nobody had synced: whole
//! blocks of it, and the length down to a block's edge. Appends go on where the file ends then, so that records behind
//! a cut begin anywhere.

use brindle_stdx::crc;

/// Bytes of a record; no multiple of a block or a stripe, so that records cross both.
pub const RECORD: usize = 700;
/// Bytes of a block of the servers' disks.
const BLOCK: usize = 4096;
/// Bytes of what tells whose record it is: magic, writer, number.
const HEAD: usize = 24;
const MAGIC: [u8; 8] = 0x4252_4e44_4c52_4543_u64.to_le_bytes();
/// Numbers of records that a writer may have given out besides those that the log can hold twice over: its appends that
/// failed.
const NUMBERS_SLACK: u64 = 1000;
/// Bytes before and behind a wrong place that a failure describes.
const AROUND: usize = 3 * BLOCK;

/// Piece of the log at some offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole record: its writer and its number.
    Whole(u64, u64),
    /// The first part of a record, up to a block's edge: the rest lay in a block that was lost.
    Head,
    /// Last part of a record at a block's edge; its first part was lost.
    Tail,
    /// Zeros: of a lost block, or of an append that ended with an error.
    Hole,
}

/// The record `number` of `writer`.
pub fn record(writer: u64, number: u64) -> Vec<u8> {
    let mut bytes = brindle_tests::bytes(writer << 32 | number, RECORD);
    bytes[..8].copy_from_slice(&MAGIC);
    for (place, word) in [(1, writer), (2, number)] {
        bytes[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc(&bytes[..RECORD - 4]);
    bytes[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Pieces of the log of `writers` writers, with their offsets, in order. Fails at bytes that neither they nor
/// a power cut can have left.
pub fn pieces(log: &[u8], writers: u64) -> Result<Vec<(usize, Piece)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let (end, piece) = piece_at(log, at)
            .or_else(|| tail_at(log, at, writers))
            .ok_or_else(|| format!("no record at {at}; {}", around(log, at)))?;
        found.push((at, piece));
        at = end;
    }
    Ok(found)
}

/// Piece at the offset `at`, and its end; `None` for bytes that could only be the end of a record.
fn piece_at(log: &[u8], at: usize) -> Option<(usize, Piece)> {
    let edge = edge_behind(log, at);
    let end = at + log[at..edge].iter().take_while(|byte| **byte == 0).count();
    if end == at {
        return record_at(log, at);
    }
    (end == edge || record_at(log, end).is_some()).then_some((end, Piece::Hole))
}

/// The record that begins at `at`, whole or up to a block's edge, and where that ends.
fn record_at(log: &[u8], at: usize) -> Option<(usize, Piece)> {
    if let Some((writer, number)) = head(&log[at..])
        && log[at..].starts_with(&record(writer, number))
    {
        return Some((at + RECORD, Piece::Whole(writer, number)));
    }
    let edge = edge_behind(log, at);
    let is_head = edge.is_multiple_of(BLOCK) && edge - at < RECORD && begins_record(&log[at..edge]);
    is_head.then_some((edge, Piece::Head))
}

/// End of the block of `at`, or of the log.
fn edge_behind(log: &[u8], at: usize) -> usize {
    log.len().min((at / BLOCK + 1) * BLOCK)
}

/// The last part of a record at `at`, and where it ends: where something else begins.
fn tail_at(log: &[u8], at: usize, writers: u64) -> Option<(usize, Piece)> {
    if !at.is_multiple_of(BLOCK) {
        return None;
    }
    let ends_record = |end: usize| {
        let numbers = NUMBERS_SLACK + 2 * (log.len() / RECORD) as u64;
        let all = (0..writers).flat_map(|writer| (0..numbers).map(move |number| (writer, number)));
        all.into_iter().any(|(writer, number)| record(writer, number).ends_with(&log[at..end]))
    };
    let mut ends = at + 1..log.len().min(at + RECORD - 1) + 1;
    let end = ends.find(|end| *end == log.len() || piece_at(log, *end).is_some())?;
    ends_record(end).then_some((end, Piece::Tail))
}

fn head(bytes: &[u8]) -> Option<(u64, u64)> {
    let word = |n: usize| Some(u64::from_le_bytes(bytes.get(n * 8..n * 8 + 8)?.try_into().ok()?));
    bytes.starts_with(&MAGIC).then_some(())?;
    Some((word(1)?, word(2)?))
}

/// Whether all of `bytes`, fewer than a record has, are the beginning of one, as far as that can be told.
fn begins_record(bytes: &[u8]) -> bool {
    match head(bytes) {
        Some((writer, number)) => record(writer, number).starts_with(bytes),
        None => bytes.len() < HEAD && bytes.iter().zip(MAGIC).all(|(a, b)| *a == b),
    }
}

/// Surroundings of a wrong place, for people: everything near it that begins like a record.
fn around(log: &[u8], at: usize) -> String {
    let mut lines = String::new();
    for start in at.saturating_sub(AROUND)..log.len().min(at + AROUND) {
        let Some((writer, number)) = head(&log[start..]) else { continue };
        let there = &log[start..log.len().min(start + RECORD)];
        let right = record(writer, number).iter().zip(there).take_while(|(a, b)| a == b).count();
        lines += &format!("\n  at {start}: number {number} of writer {writer}, {right} bytes of it");
    }
    format!("the file has {} bytes; near that place:{lines}", log.len())
}

#[test]
fn what_a_power_cut_leaves_is_told_from_what_it_cannot() {
    let log: Vec<u8> = (0..8).flat_map(|number| record(3, number)).collect();
    let wholes: Vec<(usize, Piece)> = (0..8).map(|n| (n as usize * RECORD, Piece::Whole(3, n))).collect();
    assert_eq!(pieces(&log, 5), Ok(wholes));

    // Number 5 (3500..4200) crosses the edge at 4096.
    let at_edge = |piece: Piece| move |found: Vec<(usize, Piece)>| found.contains(&(BLOCK, piece));
    let mut second_lost = log.clone();
    second_lost[BLOCK..].fill(0);
    assert!(pieces(&second_lost, 5).is_ok_and(at_edge(Piece::Hole)));
    let mut first_lost = log.clone();
    first_lost[..BLOCK].fill(0);
    assert!(pieces(&first_lost, 5).is_ok_and(at_edge(Piece::Tail)));

    // The length was lost down to the edge, and the next append begins there.
    let goes_on = [&log[..BLOCK], &record(4, 0), &record(4, 1)].concat();
    assert!(pieces(&goes_on, 5).is_ok_and(at_edge(Piece::Whole(4, 0))));

    // Two appends at one place: the later one covers the head of the other.
    let mut overlap = goes_on.clone();
    overlap[3500..3500 + RECORD].copy_from_slice(&record(3, 5));
    assert!(pieces(&overlap, 5).is_err_and(|why| why.starts_with("no record at 4200;")));
    let mut damaged = log.clone();
    damaged[1000] ^= 1;
    assert!(pieces(&damaged, 5).is_err_and(|why| why.starts_with("no record at 700;")));
    let mut cut_inside = log.clone();
    cut_inside[1000..1400].fill(0);
    assert!(pieces(&cut_inside, 5).is_err());
    let mut strange_tail = first_lost;
    strange_tail[BLOCK + 50] ^= 1;
    assert!(pieces(&strange_tail, 5).is_err_and(|why| why.starts_with("no record at 4096;")));
    assert!(pieces(&log[..1000], 5).is_err_and(|why| why.starts_with("no record at 700;")), "no edge");
}
