//! L4: programs on both mounts that append records to one file and fsync now and then.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use brindle_stdx::crc;

use crate::dice::Dice;
use crate::load::{Ground, Worker, unexpected};

/// Bytes of a record; no multiple of a block or a stripe, so that records cross both.
const RECORD: usize = 700;
/// Bytes of a block of the servers' disks.
const BLOCK: usize = 4096;
const MAGIC: u64 = 0x4252_4e44_4c52_4543;

fn record(writer: u64, number: u64) -> Vec<u8> {
    let mut bytes = brindle_tests::bytes(writer << 32 | number, RECORD);
    for (place, word) in [MAGIC, writer, number].into_iter().enumerate() {
        bytes[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc(&bytes[..RECORD - 4]);
    bytes[RECORD - 4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What stands where a record may stand.
#[derive(Debug, PartialEq)]
enum Found {
    /// A whole record: its writer and its number.
    Whole(u64, u64),
    Hole,
    /// Part of a record, the rest zeros from or up to a block's edge: what a power cut leaves of a record whose two
    /// halves lay in different blocks, or on different OSTs, when only one of them was on disk.
    Torn,
}

fn parse(bytes: &[u8], at: usize) -> Result<Found, String> {
    if is_zero(bytes) {
        return Ok(Found::Hole);
    }
    let word = |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("eight bytes"));
    let sound = |bytes: &[u8]| word(0) == MAGIC && *bytes == record(word(1), word(2))[..bytes.len()];
    if bytes.len() == RECORD && sound(bytes) {
        return Ok(Found::Whole(word(1), word(2)));
    }
    // A record is smaller than a block, so at most one edge lies in it.
    let edge = BLOCK - at % BLOCK;
    if edge < bytes.len() {
        let (before, behind) = bytes.split_at(edge);
        if is_zero(before) || is_zero(behind) && before.len() >= 24 && sound(before) {
            return Ok(Found::Torn);
        }
    }
    Err(format!("no whole record at {at}"))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn only_an_edge_of_blocks_tears_a_record() {
    let (at, mut bytes) = (BLOCK - 100, record(3, 4));
    assert_eq!(parse(&bytes, at), Ok(Found::Whole(3, 4)));
    bytes[100..].fill(0);
    assert_eq!(parse(&bytes, at), Ok(Found::Torn));
    assert!(parse(&bytes, at + 1).is_err());
    bytes = record(3, 4);
    bytes[..100].fill(0);
    assert_eq!(parse(&bytes, at), Ok(Found::Torn));
    assert!(parse(&bytes, at - 1).is_err() && parse(&bytes, 0).is_err());
    assert_eq!(parse(&[0; RECORD], at), Ok(Found::Hole));
}

/// One writer.
pub struct AppendWorker {
    name: String,
    ground: Ground,
    dice: Dice,
    path: PathBuf,
    file: File,
    writer: u64,
    next: u64,
    /// Numbers whose call was answered with success.
    answered: BTreeSet<u64>,
    /// Numbers below this one were made durable by this writer's fsync, if they were answered.
    durable: u64,
    certain_at: u64,
    /// Records that a cut may have taken.
    may_be_gone: BTreeSet<u64>,
    pub losses: u64,
}

/// Makes the file that all writers append to.
pub fn make(dir: &Path) -> PathBuf {
    let path = dir.join("log");
    let made = File::create_new(&path).and_then(|file| file.sync_all());
    made.and_then(|()| File::open(dir)?.sync_all()).expect("the log can be made");
    path
}

impl AppendWorker {
    /// A writer on the file `path` that [`make`] made, seen through its own mount.
    pub fn new(ground: &Ground, path: &Path, writer: u64, dice: Dice) -> AppendWorker {
        let opened = OpenOptions::new().append(true).open(path);
        AppendWorker {
            name: format!("append{writer}"),
            ground: ground.clone(),
            dice,
            path: path.to_owned(),
            file: opened.expect("the log can be opened"),
            writer,
            next: 0,
            answered: BTreeSet::new(),
            durable: 0,
            certain_at: ground.cuts(),
            may_be_gone: BTreeSet::new(),
            losses: 0,
        }
    }

    fn was_cut(&self) -> bool {
        self.ground.cuts() > self.certain_at
    }

    fn may_lose(&self, error: &io::Error) -> bool {
        self.was_cut() && error.raw_os_error() == Some(libc::EIO)
    }

    fn append(&mut self) -> Result<(), String> {
        let number = self.next;
        self.next += 1;
        let bytes = record(self.writer, number);
        let what = format!("append {number}");
        let (_, result) = self.ground.history.record(&self.name, &what, || self.file.write(&bytes));
        match result {
            Ok(RECORD) => {
                self.answered.insert(number);
                Ok(())
            }
            Ok(short) => Err(format!("{what}: only {short} of {RECORD} bytes")),
            Err(e) if self.may_lose(&e) => self.lost(),
            other => unexpected(what, other.map(drop)),
        }
    }

    fn sync(&mut self) -> Result<(), String> {
        let (cuts, before) = (self.ground.cuts(), self.next);
        let (_, result) = self.ground.history.record(&self.name, "fsync", || self.file.sync_all());
        match result {
            Ok(()) => {
                self.durable = before;
                self.certain_at = cuts.max(self.certain_at);
                Ok(())
            }
            Err(e) if self.may_lose(&e) => self.lost(),
            other => unexpected("fsync", other),
        }
    }

    fn lost(&mut self) -> Result<(), String> {
        self.losses += 1;
        self.certain_at = self.ground.cuts();
        self.may_be_gone.extend(self.durable..self.next);
        let opened = OpenOptions::new().append(true).open(&self.path);
        self.file = unexpected("open again after a loss", opened)?;
        Ok(())
    }
}

impl Worker for AppendWorker {
    fn name(&self) -> &str {
        &self.name
    }

    fn step(&mut self) -> Result<(), String> {
        if self.dice.once_in(10) { self.sync() } else { self.append() }
    }

    fn settle(&mut self) -> Result<(), String> {
        let losses = self.losses;
        self.sync()?;
        if self.losses > losses { self.sync() } else { Ok(()) }
    }

    fn verify(&self, mount: &Path) -> Result<(), String> {
        let dir = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let bytes = unexpected("read the log", std::fs::read(mount.join(dir).join("log")))?;
        let mut found = BTreeSet::new();
        let mut last = None;
        for (place, chunk) in bytes.chunks(RECORD).enumerate() {
            let at = place * RECORD;
            match parse(chunk, at)? {
                Found::Hole | Found::Torn if self.ground.cuts() == 0 => {
                    return Err(format!("no record at {at}"));
                }
                Found::Whole(writer, number) if writer == self.writer => {
                    if !found.insert(number) {
                        return Err(format!("record {number} is there twice, again at {at}"));
                    }
                    if self.ground.cuts() == 0 && last.is_some_and(|last| number < last) {
                        return Err(format!("record {number} stands behind {last:?}"));
                    }
                    last = Some(number);
                }
                _ => {}
            }
        }
        let gone: Vec<&u64> =
            self.answered.iter().filter(|n| !found.contains(n) && !self.may_be_gone.contains(n)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        Err(format!("{} records that were answered are missing, the first {:?}", gone.len(), gone[0]))
    }
}
