//! Files of a short life: made, filled, synced, written again through handles that are kept, read by everybody, removed.
//!
//! A file is written whole, by the client that made it only, so that each cell of it tells which write it is from. Names
//! are never used twice. A name therefore shows its own file, whatever a power cut takes or gives back, with the bytes of
//! it that were synced. No inode number is given out twice.

use std::collections::VecDeque;
use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::{Opened, WriteIn};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::Access;
use bytes::Bytes;
use parking_lot::Mutex;

use super::Life;
use crate::aim::Aim;
use crate::history::{Cuts, History};

/// Name of the directory.
pub const DIR: &str = "brief";
/// Bytes of a cell: a disk's sector, which a power cut does not tear.
const CELL: usize = 512;
/// Bytes of a piece of a file that is written piece by piece.
const PIECE: usize = 8 * CELL;
/// Handles that a task keeps.
const KEPT_MAX: usize = 3;

/// Shares of the operations, in percent; the rest are removals.
#[derive(Clone, Copy)]
struct Mix {
    /// Longest pause between two operations.
    pause_ms: u64,
    /// Number of the latest files that are read and removed.
    recent: usize,
    make: u64,
    write_again: u64,
    look: u64,
    /// New files that are synced.
    sync: u64,
    /// Cells of a file, as many files of the one as of the other length; sixteen fit into the MDT.
    cells: [usize; 2],
    /// Writes may find no room.
    is_full: bool,
}

impl Mix {
    fn of(aim: Aim) -> Mix {
        let general = Mix {
            pause_ms: 450,
            recent: 24,
            make: 30,
            write_again: 18,
            look: 27,
            sync: 67,
            cells: [8, 24],
            is_full: false,
        };
        match aim {
            Aim::Names => Mix { pause_ms: 100, ..general },
            // New files that just fit into the MDT and that outgrow it, and looks at those that somebody has just made.
            Aim::Restarts => Mix {
                pause_ms: 60,
                recent: 6,
                make: 40,
                write_again: 8,
                look: 46,
                sync: 5,
                cells: [16, 24],
                ..general
            },
            // More is made than removed.
            Aim::Full => Mix {
                pause_ms: 60,
                make: 55,
                write_again: 15,
                look: 8,
                sync: 10,
                cells: [24, 128],
                is_full: true,
                ..general
            },
            _ => general,
        }
    }
}

struct Write {
    value: u64,
    /// Life of the client that wrote it.
    life: u64,
    invoke_ns: u64,
    return_ns: Option<u64>,
    acked: bool,
    /// Whether the write has left the client's buffer for sure.
    sent: bool,
}

struct File {
    name: String,
    client: usize,
    cells: usize,
    ino: Ino,
    invoke_ns: u64,
    /// Writes, one after the other.
    writes: Vec<Write>,
    /// Fsyncs that succeeded: when they were answered, and how many writes were answered before they began.
    syncs: Vec<(u64, usize)>,
    /// Time at which its removal was first asked for.
    removing_ns: Option<u64>,
    /// Times at which a removal was asked for and answered.
    removed: Option<(u64, u64)>,
}

/// Content found under a name.
enum FoundContent {
    Nothing,
    Cells(Vec<Option<u64>>),
}

struct Look {
    file: usize,
    client: usize,
    invoke_ns: u64,
    return_ns: u64,
    found: FoundContent,
}

#[derive(Default)]
struct Record {
    files: Vec<File>,
    looks: Vec<Look>,
}

/// All files; outlives the clients.
#[derive(Clone)]
pub struct Brief {
    record: Arc<Mutex<Record>>,
    mix: Mix,
}

/// Open files of one task, the oldest first.
type Hands = VecDeque<(usize, Opened)>;

fn cell(value: u64, at: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(at as u64).to_le_bytes());
    bytes.repeat(CELL / 16)
}

/// The value of a cell, 0 for zeros; `None` for a mixture or something else.
fn value_of(bytes: &[u8], at: usize) -> Option<u64> {
    if bytes.iter().all(|b| *b == 0) {
        return Some(0);
    }
    let value = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == cell(value, at)).then_some(value)
}

impl Brief {
    /// No files yet.
    pub fn new(aim: Aim) -> Brief {
        Brief { record: Arc::default(), mix: Mix::of(aim) }
    }

    /// Makes and removes files until it is told to stop.
    pub async fn run(self, life: Life) {
        let dir = life.find(DIR).await;
        let mut hands = Hands::new();
        while !life.stopping() {
            life.pause(self.mix.pause_ms).await;
            let Mix { make, write_again, look, .. } = self.mix;
            let dice = life.below(100);
            let done = if dice < make {
                self.make(&life, &mut hands, dir).await
            } else if dice < make + write_again {
                self.write_again(&life, &mut hands).await
            } else if dice < make + write_again + look {
                match self.recent(&life, true) {
                    Some(file) => self.look(&life, dir, file).await,
                    None => Ok(()),
                }
            } else {
                self.remove(&life, dir).await
            };
            if done.is_err() {
                close_all(&life, &mut hands).await;
            }
        }
        close_all(&life, &mut hands).await;
    }

    async fn make(&self, life: &Life, hands: &mut Hands, dir: Ino) -> Result<(), Fault> {
        let name = format!("b{}.{}", life.index, life.history.value());
        let cells = self.mix.cells[life.below(self.mix.cells.len() as u64) as usize];
        let create = CreateIn {
            parent: dir,
            name: name.as_bytes(),
            mode: 0o644,
            umask: 0,
            exclusive: true,
            access: Access { read: true, write: true, truncate: false, execute: false },
        };
        let invoke_ns = life.history.now_ns();
        let done = life.note(format!("create {name}"), life.client.create(&life.ctx, create)).await;
        let opened = done?.opened;
        let ino = opened.attr.ino;
        life.history.issued(ino, &name);
        let file = File {
            name,
            client: life.index,
            cells,
            ino,
            invoke_ns,
            writes: Vec::new(),
            syncs: Vec::new(),
            removing_ns: None,
            removed: None,
        };
        let at = {
            let mut record = self.record.lock();
            record.files.push(file);
            record.files.len() - 1
        };
        hands.push_back((at, opened.clone()));
        self.write(life, at, &opened, life.below(100) < self.mix.sync).await?;
        let keep = if life.below(3) == 0 { KEPT_MAX } else { hands.len() - 1 };
        while hands.len() > keep {
            let Some((at, opened)) = hands.pop_front() else { break };
            let (name, count) = {
                let file = &self.record.lock().files[at];
                (file.name.clone(), file.writes.len())
            };
            flush(life, &name, &opened).await?;
            self.record.lock().files[at].writes[..count].iter_mut().for_each(|write| write.sent = true);
            life.note(format!("close {name}"), life.client.close(opened.handle)).await?;
        }
        Ok(())
    }

    async fn write_again(&self, life: &Life, hands: &mut Hands) -> Result<(), Fault> {
        if hands.is_empty() {
            return Ok(());
        }
        let (at, opened) = hands[life.below(hands.len() as u64) as usize].clone();
        self.write(life, at, &opened, life.below(2) == 0).await
    }

    /// Writes a new value over all of a file.
    async fn write(&self, life: &Life, at: usize, opened: &Opened, sync: bool) -> Result<(), Fault> {
        let value = life.history.value();
        let (name, data) = {
            let mut record = self.record.lock();
            let file = &mut record.files[at];
            let invoke_ns = life.history.now_ns();
            let life = life.number;
            file.writes.push(Write { value, life, invoke_ns, return_ns: None, acked: false, sent: false });
            let data: Vec<u8> = (0..file.cells).flat_map(|n| cell(value, n)).collect();
            (file.name.clone(), data)
        };
        let len_bytes = data.len() as u64;
        let writing = self.write_pieces(life, opened, data.into());
        let writing = async {
            match writing.await {
                // The write was refused, so nothing was promised.
                Err(fault) if self.mix.is_full && fault.code == Code::OstFull => Ok(0),
                done => done,
            }
        };
        let done = life.note(format!("write {value} to {name}"), writing).await;
        let count = {
            let mut record = self.record.lock();
            let file = &mut record.files[at];
            if let Some(write) = file.writes.last_mut() {
                write.return_ns = Some(life.history.now_ns());
                write.acked = done.as_ref().is_ok_and(|written| *written == len_bytes);
            }
            file.writes.len()
        };
        done?;
        if sync {
            let synced = life.note(format!("fsync {name}"), life.client.fsync(opened.handle)).await;
            synced.inspect_err(|fault| lost(life, &name, fault))?;
            let file = &mut self.record.lock().files[at];
            file.syncs.push((life.history.now_ns(), count));
            file.writes[..count].iter_mut().for_each(|write| write.sent = true);
        }
        Ok(())
    }

    /// Writes a file whole, one time in two piece by piece as stdio does: a new one outgrows the MDT on the way.
    async fn write_pieces(&self, life: &Life, opened: &Opened, data: Bytes) -> Result<u64, Fault> {
        let piece = if life.below(2) == 0 { PIECE } else { data.len() };
        let mut written = 0;
        while written < data.len() {
            let data = data.slice(written..data.len().min(written + piece));
            let write = WriteIn { offset: written as u64, data, ..WriteIn::default() };
            written += life.client.write(&life.ctx, opened.handle, write).await? as usize;
        }
        Ok(written as u64)
    }

    /// Picks one of the latest files; `removed`: also of those that were removed.
    fn recent(&self, life: &Life, removed: bool) -> Option<usize> {
        let record = self.record.lock();
        let from = record.files.len().saturating_sub(self.mix.recent);
        let files = (from..record.files.len()).filter(|n| removed || record.files[*n].removing_ns.is_none());
        let files: Vec<usize> = files.collect();
        if files.is_empty() { None } else { Some(files[life.below(files.len() as u64) as usize]) }
    }

    async fn remove(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        let Some(at) = self.recent(life, false) else { return Ok(()) };
        let invoke_ns = life.history.now_ns();
        let name = {
            let mut record = self.record.lock();
            let file = &mut record.files[at];
            file.removing_ns = Some(invoke_ns);
            file.name.clone()
        };
        let removing = life.client.unlink(&life.ctx, dir, name.as_bytes());
        let done = life.note(format!("unlink {name}"), removing).await;
        match done {
            Ok(()) => {
                self.record.lock().files[at].removed = Some((invoke_ns, life.history.now_ns()));
                Ok(())
            }
            // A power cut took it. Whether one may have is for the looks to find.
            Err(fault) if fault.code == Code::NotFound => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Reads a file by its name.
    async fn look(&self, life: &Life, dir: Ino, at: usize) -> Result<(), Fault> {
        let (name, ino, cells) = {
            let record = self.record.lock();
            let file = &record.files[at];
            (file.name.clone(), file.ino, file.cells)
        };
        let invoke_ns = life.history.now_ns();
        let looking = life.client.lookup(dir, name.as_bytes());
        let found = match life.note(format!("lookup {name}"), looking).await {
            Err(fault) if fault.code == Code::NotFound => FoundContent::Nothing,
            Err(fault) => return Err(fault),
            Ok(attr) if attr.ino != ino => {
                let text = format!("I3: {name} was made as {ino:?} and is {:?}", attr.ino);
                life.history.violation(text);
                return Ok(());
            }
            Ok(_) => {
                let access = Access { read: true, ..Access::default() };
                let opening = life.client.open(&life.ctx, ino, access, false);
                let opened = match life.note(format!("open {name}"), opening).await {
                    // Removed in between.
                    Err(fault) if fault.code == Code::NotFound => return Ok(()),
                    opened => opened?,
                };
                let reading = life.client.read(opened.handle, 0, (cells * CELL) as u64, false);
                let read = life.note(format!("read {name}"), reading).await;
                let closed = life.note(format!("close {name}"), life.client.close(opened.handle)).await;
                let mut bytes = read?.into_bytes().to_vec();
                closed?;
                bytes.resize(cells * CELL, 0);
                FoundContent::Cells(
                    bytes.chunks(CELL).enumerate().map(|(n, bytes)| value_of(bytes, n)).collect(),
                )
            }
        };
        let return_ns = life.history.now_ns();
        self.record.lock().looks.push(Look { file: at, client: life.index, invoke_ns, return_ns, found });
        Ok(())
    }

    /// Looks at every file a last time, then at the findings of all clients; returns the violations.
    pub async fn check(&self, life: &Life, cuts: &Cuts) -> Result<Vec<String>, Fault> {
        let dir = life.find(DIR).await;
        let count = self.record.lock().files.len();
        for at in 0..count {
            self.look(life, dir, at).await?;
        }
        let record = self.record.lock();
        Ok(record
            .looks
            .iter()
            .filter_map(|look| check_look(&record.files[look.file], look, &life.history, cuts))
            .collect())
    }
}

fn check_look(file: &File, look: &Look, history: &History, cuts: &Cuts) -> Option<String> {
    let when = format!(
        "c{} looked at {} of c{} between {:.6} and {:.6} s",
        look.client,
        file.name,
        file.client,
        look.invoke_ns as f64 / 1e9,
        look.return_ns as f64 / 1e9
    );
    match &look.found {
        FoundContent::Nothing => {
            let removed = file.removing_ns.is_some_and(|at| at <= look.return_ns);
            let synced = file.syncs.iter().any(|(at, _)| *at < look.invoke_ns);
            let lost = !synced && cuts.between("mdt0", file.invoke_ns, look.return_ns);
            let why = if synced { "was synced" } else { "was made" };
            (!removed && !lost).then(|| format!("I1: {when}: it {why}, and is gone"))
        }
        FoundContent::Cells(cells) => {
            // The model of `tree` knows how late a power cut may take a change of names back.
            if let Some((from_ns, until_ns)) = file.removed
                && until_ns < look.invoke_ns
                && !cuts.between("mdt0", from_ns, look.return_ns)
            {
                return Some(format!("I3: {when}: it was removed at {:.6} s", until_ns as f64 / 1e9));
            }
            let floor = file.floor(look, history, cuts);
            let odd = cells.iter().enumerate().find(|(_, value)| !file.allows(**value, floor, look))?;
            let (at, found) = odd;
            let found = found.map_or_else(|| "a mixture".to_owned(), |value| format!("{value}"));
            let least = floor.map_or(0, |n| file.writes[n].value);
            Some(format!("I2: {when}: cell {at} holds {found}, and {least} cannot have been lost"))
        }
    }
}

impl File {
    /// The last write that must be seen, unless a later one is.
    fn floor(&self, look: &Look, history: &History, cuts: &Cuts) -> Option<usize> {
        let synced = self.syncs.iter().filter(|(at, _)| *at < look.invoke_ns).map(|(_, count)| *count).max();
        let held = |n: usize, w: &Write| {
            let cut = || cuts.by_node.keys().any(|node| cuts.between(node, w.invoke_ns, look.return_ns));
            let client = format!("c{}", self.client);
            let unsent = !w.sent && history.buffer_lost(&client, w.life, w.return_ns.unwrap_or(0));
            w.acked
                && !unsent
                && w.return_ns.is_some_and(|at| at < look.invoke_ns)
                && (synced.is_some_and(|count| n < count) || !cut())
        };
        (0..self.writes.len()).rev().find(|n| held(*n, &self.writes[*n]))
    }

    /// Whether a cell may hold this.
    fn allows(&self, value: Option<u64>, floor: Option<usize>, look: &Look) -> bool {
        match value {
            None => false,
            Some(0) => floor.is_none(),
            Some(value) => {
                self.writes.iter().position(|w| w.value == value).is_some_and(|n| {
                    floor.is_none_or(|f| n >= f) && self.writes[n].invoke_ns < look.return_ns
                })
            }
        }
    }
}

async fn close_all(life: &Life, hands: &mut Hands) {
    for (at, opened) in std::mem::take(hands) {
        // The handles are given up; what they had to say was said to the operation that failed.
        let _ = flush(life, &format!("file {at}"), &opened).await;
        let _ = life.client.close(opened.handle).await;
    }
}

async fn flush(life: &Life, name: &str, opened: &Opened) -> Result<(), Fault> {
    let flushed = life.client.flush(opened.handle, None).await;
    flushed.inspect_err(|fault| lost(life, name, fault))
}

/// A flush or an fsync has reported that writes are lost. The reason is never a lack of space: space was promised.
fn lost(life: &Life, name: &str, fault: &Fault) {
    life.history.unsent(&life.node.name, life.number);
    if fault.code == Code::OstFull {
        life.history
            .violation(format!("I1: no room for what was written to {name} and acknowledged: {fault:?}"));
    }
}
