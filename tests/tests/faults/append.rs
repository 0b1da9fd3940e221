//! L4: programs on both mounts that append records to one file and fsync now and then.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::dice::Dice;
use crate::load::{Ground, Worker, unexpected};
use crate::records::{Piece, RECORD, pieces, record};

/// Writers of one log.
pub const WRITERS: u64 = 3;

/// A writer.
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
        for (at, piece) in pieces(&bytes, WRITERS)? {
            match piece {
                Piece::Whole(writer, number) if writer == self.writer => {
                    if !found.insert(number) {
                        return Err(format!("record {number} is there twice, again at {at}"));
                    }
                    if self.ground.cuts() == 0 && last.is_some_and(|last| number < last) {
                        return Err(format!("record {number} stands behind {last:?}"));
                    }
                    last = Some(number);
                }
                Piece::Whole(..) => {}
                _ if self.ground.cuts() == 0 => return Err(format!("no whole record at {at}: {piece:?}")),
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
