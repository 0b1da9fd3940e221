//! Shared files of small blocks that say who wrote them: whole blocks written by everybody over each other.
//!
//! A block is a register: a read must show the last write that was answered before it began, or one that was under way
//! or has an unknown outcome. A power cut of the block's OST may take writes that no fsync covered. Blocks are smaller
//! than a checksum block and larger than a byte, so that neighbours of different writers share checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_client::{Opened, SetAttr, WriteIn};
use brindle_types::{Code, Fault, Ino, Layout, LayoutPolicy, ObjectId, StripePolicy};
use brindle_wire::mds::migrate::MigrateReq;
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;
use crate::aim::Aim;
use crate::cluster::Options;
use crate::history::{Cuts, History};

/// Names of the files, in `data`.
pub const FILES: [&str; 4] = ["f0", "f1", "f2", "f3"];
/// The file that is also truncated.
const CUT_FILE: usize = 3;
/// Files whose bytes are also moved from OST to OST.
const MOVED_FILES: [usize; 2] = [0, CUT_FILE];
/// Start and length of the pieces.
const PIECE: u64 = 64 << 10;
/// Bytes of a block: a disk's sector, which a power cut does not tear.
const BLOCK: u64 = 512;
/// Blocks of a file.
pub const BLOCKS: u64 = 400;
/// First blocks of the places where everybody works: some lie on the borders of stripes.
const PLACES: [u64; 4] = [0, 125, 253, 390];
/// Blocks written at once, at most.
const BLOCKS_MAX: u64 = 24;
/// Steps that follow a read, at most.
const STEPS_MAX: u64 = 6;
/// Blocks that share a checksum.
const SHARE_SUM: u64 = 4096 / BLOCK;

/// Shares of the operations, in percent; the rest are cuts and moves.
#[derive(Clone, Copy)]
struct Mix {
    files: &'static [usize],
    places: &'static [u64],
    /// Most blocks of one read or write.
    blocks_max: u64,
    /// Longest pause between two operations.
    pause_ms: u64,
    write: u64,
    read: u64,
    sync: u64,
    close_writer: u64,
    close_reader: u64,
    cut: u64,
}

impl Mix {
    fn of(aim: Aim) -> Mix {
        let general = Mix {
            files: &[0, 1, 2, CUT_FILE],
            places: &PLACES,
            blocks_max: 6,
            pause_ms: 120,
            write: 36,
            read: 38,
            sync: 8,
            close_writer: 6,
            close_reader: 5,
            cut: 3,
        };
        match aim {
            Aim::General | Aim::Full => general,
            Aim::Names | Aim::Restarts => Mix { pause_ms: 400, ..general },
            // Writers come and go, so that readers are given pages again and again.
            Aim::Pages => Mix {
                files: &[1],
                places: &PLACES[1..2],
                pause_ms: 60,
                write: 11,
                read: 58,
                sync: 2,
                close_writer: 24,
                close_reader: 5,
                ..general
            },
            Aim::Late => Mix {
                files: &[0, CUT_FILE],
                places: &PLACES[..2],
                pause_ms: 80,
                // A range lies in one stripe or in two.
                blocks_max: 12,
                write: 34,
                read: 40,
                sync: 2,
                close_writer: 14,
                close_reader: 3,
                cut: 7,
            },
            // A range that was cut off needs room again.
            Aim::Room => {
                Mix { files: &[0, CUT_FILE, CUT_FILE], pause_ms: 60, write: 45, read: 24, cut: 9, ..general }
            }
            Aim::Moves => Mix {
                files: &[0],
                places: &PLACES[..2],
                blocks_max: 12,
                pause_ms: 60,
                write: 22,
                read: 48,
                sync: 2,
                close_writer: 12,
                close_reader: 2,
                cut: 0,
            },
            // Whole checksummed blocks are written, too: only they repair damaged ones.
            Aim::Rot => Mix { files: &[0, 1, 2], blocks_max: BLOCKS_MAX, ..general },
        }
    }
}

/// Change that puts a value into blocks: a write, or a cut (value 0).
struct Write {
    value: u64,
    file: usize,
    blocks: std::ops::Range<u64>,
    client: usize,
    handle: (u64, u64),
    invoke_ns: u64,
    return_ns: Option<u64>,
    acked: bool,
}

/// An fsync that succeeded.
struct Sync {
    file: usize,
    client: usize,
    handle: (u64, u64),
    invoke_ns: u64,
    return_ns: u64,
}

/// An fsync that failed: it may have told of a loss, and is the only one that does, but for those through the handle that wrote.
struct FailedFsync {
    file: usize,
    life: u64,
    return_ns: u64,
}

/// A flush or fsync that succeeded: earlier writes through the handle have left its client's buffer.
struct Flush {
    client: usize,
    handle: (u64, u64),
    invoke_ns: u64,
}

/// A block that was read.
struct Read {
    file: usize,
    block: u64,
    value: u64,
    client: usize,
    invoke_ns: u64,
    return_ns: u64,
}

#[derive(Default)]
struct Record {
    writes: Vec<Write>,
    syncs: Vec<Sync>,
    told: Vec<FailedFsync>,
    flushes: Vec<Flush>,
    /// Places of writes that a client may have lost before it sent them; found when the record is complete.
    unsent: BTreeSet<u64>,
    reads: Vec<Read>,
    layouts: BTreeMap<usize, (Ino, Layout)>,
}

/// History of the files; outlives the clients.
#[derive(Clone)]
pub struct Blocks {
    record: Arc<Mutex<Record>>,
    mix: Mix,
}

/// A task's open files.
#[derive(Default)]
struct Hands {
    readers: BTreeMap<usize, Opened>,
    writers: BTreeMap<usize, Opened>,
}

/// Bytes of a block that holds `value`.
fn block_bytes(value: u64, file: usize, block: u64) -> Vec<u8> {
    let mut cell = Vec::with_capacity(16);
    cell.extend_from_slice(&value.to_le_bytes());
    cell.extend_from_slice(&(file as u32).to_le_bytes());
    cell.extend_from_slice(&(block as u32).to_le_bytes());
    cell.repeat(BLOCK as usize / cell.len())
}

/// The value that bytes hold; `None` for a mixture or something else.
fn value_of(bytes: &[u8], file: usize, block: u64) -> Option<u64> {
    if bytes.iter().all(|b| *b == 0) {
        return Some(0);
    }
    let value = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == block_bytes(value, file, block)).then_some(value)
}

impl Blocks {
    /// Empty history.
    pub fn new(aim: Aim) -> Blocks {
        Blocks { record: Arc::default(), mix: Mix::of(aim) }
    }

    /// Place of a byte of a file that is never cut or moved, near one of the places where all clients work:
    /// OST, object, offset. `choose` gives a random number below its argument.
    /// `choose` gives a random number below its argument.
    pub fn victim(&self, choose: impl Fn(u64) -> u64) -> Option<(u16, ObjectId, u64)> {
        let file = 1 + choose(CUT_FILE as u64 - 1) as usize;
        let (ino, layout) = self.record.lock().layouts.get(&file)?.clone();
        let block = PLACES[choose(PLACES.len() as u64) as usize] + choose(8);
        let at = block.min(BLOCKS - 1) * BLOCK + choose(BLOCK);
        let part = *brindle_layout::object_ranges(&layout, at..at + 1).first()?;
        Some((part.ost, ObjectId::of(ino, part.stripe), part.object_offset))
    }

    /// Fills the files, which are open for writing, and syncs them.
    pub async fn fill(&self, life: &Life, data: Ino) -> Result<(), Fault> {
        for (file, name) in FILES.iter().enumerate() {
            let create = brindle_client::namespace::create::CreateIn {
                parent: data,
                name: name.as_bytes(),
                mode: 0o644,
                umask: 0,
                exclusive: true,
                access: Access { read: true, write: true, truncate: false, execute: false },
            };
            let opened = life.client.create(&life.ctx, create).await?.opened;
            self.write(life, &opened, file, 0..BLOCKS).await?;
            self.sync(life, &opened, file).await?;
            let layout = life.client.get_stripe(opened.attr.ino).await?.layout;
            self.record.lock().layouts.extend(layout.map(|l| (file, (opened.attr.ino, l))));
            life.client.close(opened.handle).await?;
        }
        Ok(())
    }

    /// Reads and writes until it is told to stop.
    pub async fn run(self, life: Life) {
        let mut inos = Vec::new();
        for name in FILES {
            inos.push(life.find(&format!("data/{name}")).await);
        }
        let mut hands = Hands::default();
        while !life.stopping() {
            life.pause(self.mix.pause_ms).await;
            let file = self.mix.files[life.below(self.mix.files.len() as u64) as usize];
            if self.step(&life, &mut hands, file, inos[file]).await.is_err() {
                // Handles of the file are dead, or say from now on that data was lost.
                hands.drop_all(&life).await;
            }
        }
        hands.drop_all(&life).await;
    }

    /// Reads everything once through a fresh handle.
    pub async fn read_all(&self, life: &Life) -> Result<(), Fault> {
        for (file, name) in FILES.iter().enumerate() {
            let ino = life.find(&format!("data/{name}")).await;
            let mut hands = Hands::default();
            hands.open(life, file, ino, false).await?;
            let opened = hands.readers[&file].clone();
            let rotten = life.history.has_rot();
            let step = if rotten { SHARE_SUM } else { BLOCKS };
            for first in (0..BLOCKS).step_by(step as usize) {
                match self.read(life, &opened, file, first..(first + step).min(BLOCKS)).await {
                    // Said, and not returned.
                    Err(fault) if rotten && fault.code == Code::ObjectDamaged => {}
                    read => read?,
                }
            }
            hands.drop_all(life).await;
        }
        Ok(())
    }

    async fn step(&self, life: &Life, hands: &mut Hands, file: usize, ino: Ino) -> Result<(), Fault> {
        let mix = &self.mix;
        let first = mix.places[life.below(mix.places.len() as u64) as usize] + life.below(4);
        let blocks = first..(first + 1 + life.below(mix.blocks_max)).min(BLOCKS);
        let dice = life.below(100);
        let mut below = 0;
        let mut is = |percent: u64| {
            below += percent;
            dice < below
        };
        if is(mix.write) {
            let opened = hands.open(life, file, ino, true).await?;
            self.write(life, &opened, file, blocks).await
        } else if is(mix.read) {
            let opened = hands.open(life, file, ino, false).await?;
            self.read_on(life, &opened, file, blocks).await
        } else if is(mix.sync) {
            match hands.writers.get(&file).cloned() {
                Some(opened) => self.sync(life, &opened, file).await,
                None => Ok(()),
            }
        } else if is(mix.close_writer) {
            hands.close(self, life, file, true).await
        } else if is(mix.close_reader) {
            hands.close(self, life, file, false).await
        } else if is(mix.cut) {
            if file == CUT_FILE { self.cut(life, ino, blocks.start).await } else { Ok(()) }
        } else if MOVED_FILES.contains(&file) {
            self.move_piece(life, ino, file).await
        } else {
            Ok(())
        }
    }

    /// Moves a piece of a file to other OSTs, or gives it another form.
    async fn move_piece(&self, life: &Life, ino: Ino, file: usize) -> Result<(), Fault> {
        let offset = life.below(5) * PIECE;
        let (policy, avoid) = match life.below(3) {
            0 => (None, Vec::new()),
            1 => (None, vec![life.below(4) as u16]),
            _ => {
                let count = Some(1 + life.below(3) as i32);
                let stripe =
                    StripePolicy { count, size_bytes: Some(PIECE as u32), ..StripePolicy::default() };
                (Some(LayoutPolicy::from(stripe)), Vec::new())
            }
        };
        let copy_max_bytes = (1 + life.below(4)) * PIECE;
        let what = format!(
            "move {} from {offset}, {copy_max_bytes} bytes, to {policy:?}, off {avoid:?}",
            FILES[file]
        );
        let request = MigrateReq { ino, offset, policy, avoid, copy_max_bytes, cred: life.ctx.cred.clone() };
        let moving = async {
            match life.client.migrate(request).await {
                // Called off because a server is away, or because all others are.
                Err(fault) if [Code::StaleLayout, Code::OstFull].contains(&fault.code) => Ok(()),
                done => done.map(drop),
            }
        };
        life.note(what, moving).await
    }

    /// Moves all bytes of the files that are moved, while nothing is wrong.
    pub async fn move_all(&self, life: &Life) -> Result<(), Fault> {
        for file in MOVED_FILES {
            let ino = life.find(&format!("data/{}", FILES[file])).await;
            let mut offset = Some(0);
            while let Some(at) = offset {
                let (cred, copy_max_bytes) = (life.ctx.cred.clone(), PIECE);
                let request =
                    MigrateReq { ino, offset: at, policy: None, avoid: Vec::new(), copy_max_bytes, cred };
                let what = format!("move {} from {at}", FILES[file]);
                offset = life.note(what, life.client.migrate(request)).await?.next;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        life: &Life,
        opened: &Opened,
        file: usize,
        blocks: std::ops::Range<u64>,
    ) -> Result<(), Fault> {
        let value = life.history.value();
        let data: Vec<u8> = blocks.clone().flat_map(|b| block_bytes(value, file, b)).collect();
        let offset = blocks.start * BLOCK;
        let what = format!("write {value} to {} blocks {blocks:?} handle {}", FILES[file], opened.handle);
        let at = self.begin_write(life, value, file, blocks, opened.handle);
        let len_bytes = data.len() as u64;
        life.pages.wrote(opened.attr.ino, offset, len_bytes);
        let write = WriteIn { offset, data: data.into(), ..WriteIn::default() };
        let done = life.note(what, life.client.write(&life.ctx, opened.handle, write)).await;
        life.pages.wrote(opened.attr.ino, offset, len_bytes);
        // If one OST could not take its part, only the bytes before it count as written.
        self.end_write(life, at, done.as_ref().is_ok_and(|written| *written == len_bytes));
        done.map(drop)
    }

    /// Cuts the file in front of a block, and lets it grow again when somebody writes behind it.
    async fn cut(&self, life: &Life, ino: Ino, block: u64) -> Result<(), Fault> {
        let at = self.begin_write(life, 0, CUT_FILE, block..BLOCKS + BLOCKS_MAX, 0);
        let set = SetAttr { size_bytes: Some(block * BLOCK), ..SetAttr::default() };
        let what = format!("cut {} to {block} blocks", FILES[CUT_FILE]);
        let done = life.note(what, life.client.setattr(&life.ctx, ino, set)).await;
        life.pages.wrote(ino, block * BLOCK, u64::MAX);
        self.end_write(life, at, done.is_ok());
        done.map(drop)
    }

    fn begin_write(
        &self,
        life: &Life,
        value: u64,
        file: usize,
        blocks: std::ops::Range<u64>,
        handle: u64,
    ) -> usize {
        let invoke_ns = life.history.now_ns();
        let handle = (life.number, handle);
        let (client, acked) = (life.index, false);
        let mut record = self.record.lock();
        record.writes.push(Write { value, file, blocks, client, handle, invoke_ns, return_ns: None, acked });
        record.writes.len() - 1
    }

    fn end_write(&self, life: &Life, at: usize, acked: bool) {
        let write = &mut self.record.lock().writes[at];
        write.return_ns = Some(life.history.now_ns());
        write.acked = acked;
    }

    async fn sync(&self, life: &Life, opened: &Opened, file: usize) -> Result<(), Fault> {
        let invoke_ns = life.history.now_ns();
        let what = format!("fsync {} handle {}", FILES[file], opened.handle);
        let synced = life.note(what, life.client.fsync(opened.handle)).await;
        if let Err(fault) = synced {
            life.history.unsent(&life.node.name, life.number);
            let return_ns = life.history.now_ns();
            self.record.lock().told.push(FailedFsync { file, life: life.number, return_ns });
            return Err(fault);
        }
        self.flushed(life, opened, invoke_ns);
        let (client, handle, return_ns) = (life.index, (life.number, opened.handle), life.history.now_ns());
        self.record.lock().syncs.push(Sync { file, client, handle, invoke_ns, return_ns });
        Ok(())
    }

    fn flushed(&self, life: &Life, opened: &Opened, invoke_ns: u64) {
        let flush = Flush { client: life.index, handle: (life.number, opened.handle), invoke_ns };
        self.record.lock().flushes.push(flush);
    }

    /// Reads some blocks, and now and then those that follow, in steps, as programs do that read a file from its beginning.
    async fn read_on(
        &self,
        life: &Life,
        opened: &Opened,
        file: usize,
        mut blocks: std::ops::Range<u64>,
    ) -> Result<(), Fault> {
        let step = blocks.end - blocks.start;
        let mut more = if life.below(3) == 0 { 1 + life.below(STEPS_MAX) } else { 0 };
        loop {
            self.read(life, opened, file, blocks.clone()).await?;
            blocks = blocks.end..(blocks.end + step).min(BLOCKS);
            if more == 0 || blocks.is_empty() {
                return Ok(());
            }
            more -= 1;
            life.pause(self.mix.pause_ms / 4).await;
        }
    }

    async fn read(
        &self,
        life: &Life,
        opened: &Opened,
        file: usize,
        blocks: std::ops::Range<u64>,
    ) -> Result<(), Fault> {
        let invoke_ns = life.history.now_ns();
        let what = format!("read {} blocks {blocks:?} {:?}", FILES[file], opened.mode);
        let (offset, len) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        let reading = life.pages.read(&life.client, opened, offset, len);
        let mut bytes = life.note(what, reading).await?;
        // Bytes behind the end were cut off.
        bytes.resize(len as usize, 0);
        let return_ns = life.history.now_ns();
        for (block, bytes) in blocks.zip(bytes.chunks(BLOCK as usize)) {
            match value_of(bytes, file, block) {
                Some(value) => {
                    let client = life.index;
                    let read = Read { file, block, value, client, invoke_ns, return_ns };
                    self.record.lock().reads.push(read);
                }
                None => life.history.violation(format!(
                    "I2: c{} read a mixture in block {block} of {}: starts {:02x?}, ends {:02x?}",
                    life.index,
                    FILES[file],
                    &bytes[..16],
                    &bytes[bytes.len() - 16..]
                )),
            }
        }
        Ok(())
    }

    /// Compares every read with every write; returns the violations.
    pub fn check(&self, history: &History, cuts: &Cuts) -> Vec<String> {
        let mut record = self.record.lock();
        record.find_unsent(history);
        let record = &*record;
        let mut by_block: BTreeMap<(usize, u64), Vec<&Write>> = BTreeMap::new();
        for write in &record.writes {
            for block in write.blocks.clone() {
                by_block.entry((write.file, block)).or_default().push(write);
            }
        }
        let mut wrong: Vec<String> =
            record.reads.iter().filter_map(|read| record.check_read(read, &by_block, cuts)).collect();
        wrong.extend(record.check_halves(&by_block, cuts));
        let mut reads: BTreeMap<(usize, u64), Vec<&Read>> = BTreeMap::new();
        for read in &record.reads {
            reads.entry((read.file, read.block)).or_default().push(read);
        }
        for (place, reads) in &reads {
            let writes = by_block.get(place).map_or(&[][..], Vec::as_slice);
            wrong.extend(reads.iter().filter_map(|read| record.check_return(read, reads, writes, cuts)));
        }
        wrong
    }

    /// Numbers of reads and writes.
    pub fn len(&self) -> (usize, usize) {
        let record = self.record.lock();
        (record.reads.len(), record.writes.len())
    }

    /// Whether nothing was read or written.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}

impl Record {
    /// Finds acknowledged writes that a client may have had in its buffer when it died, or lost its session.
    fn find_unsent(&mut self, history: &History) {
        let lost = |w: &&Write| {
            let Some(end_ns) = w.return_ns.filter(|_| w.acked && w.handle.1 != 0) else { return false };
            let same = |f: &Flush| (f.client, f.handle) == (w.client, w.handle) && f.invoke_ns >= end_ns;
            let sent = self.flushes.iter().any(same);
            !sent && history.buffer_lost(&format!("c{}", w.client), w.handle.0, end_ns)
        };
        self.unsent = self.writes.iter().filter(lost).map(|w| w.value).collect();
    }

    fn check_read(
        &self,
        read: &Read,
        by_block: &BTreeMap<(usize, u64), Vec<&Write>>,
        cuts: &Cuts,
    ) -> Option<String> {
        let writes = by_block.get(&(read.file, read.block)).map_or(&[][..], Vec::as_slice);
        let place = format!("c{} read block {} of {}", read.client, read.block, FILES[read.file]);
        let when = format!("between {:.6} and {:.6} s", secs(read.invoke_ns), secs(read.return_ns));
        let sources: Vec<&&Write> =
            writes.iter().filter(|w| w.value == read.value && w.invoke_ns < read.return_ns).collect();
        if sources.is_empty() {
            return Some(format!("I2: {place} {when}: {} was never written there", read.value));
        }
        let overwriting = |source: &Write| {
            let end_ns = source.return_ns?;
            writes.iter().find(|w| {
                w.acked
                    && w.invoke_ns > end_ns
                    && w.return_ns.is_some_and(|r| r < read.invoke_ns)
                    && self.is_held(w, read, cuts)
            })
        };
        // The value may have several sources only if it is the 0 of cuts: one that explains it is enough.
        let mut newer = None;
        for source in sources {
            newer = Some(overwriting(source)?);
        }
        newer.map(|w| {
            format!(
                "I2: {place} {when}: value {}, but c{} had written {} between {:.6} and {:.6} s",
                read.value,
                w.client,
                w.value,
                secs(w.invoke_ns),
                secs(w.return_ns.unwrap_or(0))
            )
        })
    }

    /// A value that was seen to be replaced after its write had ended must not come back once what replaced it is
    /// acknowledged: that came later on the object, and everybody sees what has returned. Until then a reader elsewhere may
    /// still show the old value. Zeros have several sources, and a power cut may bring back what a lost write had replaced.
    fn check_return(&self, read: &Read, reads: &[&Read], writes: &[&Write], cuts: &Cuts) -> Option<String> {
        let source = writes.iter().find(|w| w.value == read.value && w.value != 0)?;
        let end_ns = source.return_ns?;
        // All changes that may have put the other value there have returned.
        let settled = |seen: &Read| {
            let mut by = writes.iter().filter(|w| w.value == seen.value && w.invoke_ns < seen.return_ns);
            by.all(|w| w.acked && w.return_ns.is_some_and(|at| at < read.invoke_ns))
        };
        let other = |r: &&&Read| {
            r.invoke_ns > end_ns && r.return_ns < read.invoke_ns && r.value != read.value && settled(r)
        };
        let seen = reads.iter().find(other)?;
        let nodes = self.nodes_of(read.file, read.block, false);
        let cut = nodes.iter().any(|n| cuts.between(n, source.invoke_ns, read.return_ns));
        (!cut).then(|| {
            format!(
                "I2: c{} read {} in block {} of {} between {:.6} and {:.6} s; its write had ended at {:.6} s, and c{} read \
                 {} between {:.6} and {:.6} s",
                read.client,
                read.value,
                read.block,
                FILES[read.file],
                secs(read.invoke_ns),
                secs(read.return_ns),
                secs(end_ns),
                seen.client,
                seen.value,
                secs(seen.invoke_ns),
                secs(seen.return_ns)
            )
        })
    }

    /// When a write and the cuts beside it are over, all of the write that lies behind a cut is gone, or all of it is there:
    /// a cut that took the block before also covers the block behind. Looked for within one read, which no cut overlaps.
    fn check_halves(&self, by_block: &BTreeMap<(usize, u64), Vec<&Write>>, cuts: &Cuts) -> Vec<String> {
        let cutting: Vec<&Write> =
            self.writes.iter().filter(|w| w.file == CUT_FILE && w.value == 0).collect();
        let one_read = |a: &Read, b: &Read| {
            (a.file, a.client, a.invoke_ns, a.return_ns) == (b.file, b.client, b.invoke_ns, b.return_ns)
        };
        let torn = |gone: &Read, there: &Read| {
            let writes = by_block.get(&(there.file, there.block))?;
            let source = writes.iter().find(|w| w.value == there.value && w.blocks.contains(&gone.block))?;
            let over = source.acked && source.return_ns.is_some_and(|at| at < there.invoke_ns);
            // A cut that failed may have been made, or may be made yet.
            let open = |w: &&&Write| {
                let end_ns = w.return_ns.filter(|_| w.acked).unwrap_or(u64::MAX);
                w.invoke_ns < there.return_ns && end_ns >= there.invoke_ns
            };
            let nodes = self.nodes_of(CUT_FILE, gone.block, true);
            let lost = nodes.iter().any(|n| cuts.between(n, source.invoke_ns, there.return_ns));
            (over && !lost && !self.unsent.contains(&source.value) && !cutting.iter().any(|w| open(&w))).then(|| {
                format!(
                    "I2: c{} read between {:.6} and {:.6} s that block {} of {} was cut off, and {} in block {}, which one \
                     write of c{} had put into both until {:.6} s",
                    there.client,
                    secs(there.invoke_ns),
                    secs(there.return_ns),
                    gone.block,
                    FILES[CUT_FILE],
                    there.value,
                    there.block,
                    source.client,
                    secs(source.return_ns.unwrap_or(0))
                )
            })
        };
        let of_file = self.reads.chunk_by(one_read).filter(|read| read.iter().all(|r| r.file == CUT_FILE));
        let pairs = of_file.flat_map(|read| {
            let gone = read.iter().filter(|r| r.value == 0);
            gone.flat_map(|g| read.iter().filter(|r| r.value != 0 && r.block > g.block).map(move |r| (g, r)))
        });
        pairs.filter_map(|(gone, there)| torn(gone, there)).collect()
    }

    /// Whether nothing that happened before the read excuses the loss of an acknowledged write.
    fn is_held(&self, write: &Write, read: &Read, cuts: &Cuts) -> bool {
        if self.unsent.contains(&write.value) {
            return false;
        }
        let nodes = self.nodes_of(read.file, read.block, write.value == 0);
        let lost_between = |from_ns, until_ns| nodes.iter().any(|n| cuts.between(n, from_ns, until_ns));
        if !lost_between(write.invoke_ns, read.return_ns) {
            return true;
        }
        let end_ns = write.return_ns.unwrap_or(u64::MAX);
        let covering = self
            .syncs
            .iter()
            .filter(|s| s.file == write.file && s.invoke_ns >= end_ns && s.return_ns <= read.invoke_ns);
        covering.into_iter().any(|s| {
            // An fsync through the writer's handle says so if a cut took the write before, and so does the first through any handle of
            // its mount, unless the bytes have been moved since; another one's can cover only what is there.
            let (life, moved) = (write.handle.0, MOVED_FILES.contains(&read.file));
            let is_told = |t: &FailedFsync| {
                t.life == life && t.file == write.file && (end_ns..=s.return_ns).contains(&t.return_ns)
            };
            let by_mount = s.handle.0 == life && !moved && !self.told.iter().any(is_told);
            s.client == write.client && (s.handle == write.handle || by_mount)
                || !lost_between(write.invoke_ns, s.return_ns)
        })
    }

    /// Nodes whose power cut can take a block: its OST; for a size also the MDT and every OST.
    fn nodes_of(&self, file: usize, block: u64, size: bool) -> Vec<String> {
        let Some((_, layout)) = self.layouts.get(&file) else { return Vec::new() };
        let node = |ost: u16| format!("ost{ost}");
        if MOVED_FILES.contains(&file) {
            return (0..Options::default().osts).map(node).chain(["mdt0".to_owned()]).collect();
        }
        if size {
            return layout.stripes().map(|(_, ost)| node(ost)).chain(["mdt0".to_owned()]).collect();
        }
        let range = block * BLOCK..(block + 1) * BLOCK;
        brindle_layout::object_ranges(layout, range).iter().map(|part| node(part.ost)).collect()
    }
}

fn secs(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Hands {
    async fn open(&mut self, life: &Life, file: usize, ino: Ino, write: bool) -> Result<Opened, Fault> {
        let table = if write { &mut self.writers } else { &mut self.readers };
        if let Some(opened) = table.get(&file) {
            return Ok(opened.clone());
        }
        let access = Access { read: !write, write, truncate: false, execute: false };
        let what = format!("open {} for {}", FILES[file], if write { "writing" } else { "reading" });
        let opened = life.note(what, life.client.open(&life.ctx, ino, access, false)).await?;
        if !write {
            life.pages.opened(&opened);
        }
        table.insert(file, opened.clone());
        Ok(opened)
    }

    async fn close(&mut self, blocks: &Blocks, life: &Life, file: usize, write: bool) -> Result<(), Fault> {
        let table = if write { &mut self.writers } else { &mut self.readers };
        let Some(opened) = table.remove(&file) else { return Ok(()) };
        let invoke_ns = life.history.now_ns();
        let flushed = life.client.flush(opened.handle, None).await;
        match &flushed {
            Ok(()) if write => blocks.flushed(life, &opened, invoke_ns),
            Ok(()) => {}
            Err(_) => life.history.unsent(&life.node.name, life.number),
        }
        let what = format!("close {} handle {}", FILES[file], opened.handle);
        life.note(what, life.client.close(opened.handle)).await?;
        flushed
    }

    async fn drop_all(&mut self, life: &Life) {
        let (readers, writers) = (std::mem::take(&mut self.readers), std::mem::take(&mut self.writers));
        for opened in readers.into_values().chain(writers.into_values()) {
            // The handle is given up; what it had to say was said to the operation that failed.
            if life.client.flush(opened.handle, None).await.is_err() {
                life.history.unsent(&life.node.name, life.number);
            }
            let _ = life.client.close(opened.handle).await;
        }
    }
}
