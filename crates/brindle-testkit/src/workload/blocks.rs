//! Shared files of small blocks that say who wrote them: whole blocks written by everybody over each other.
//!
//! A block is a register: a read must show the last write that was answered before it began, or one that was under way
//! or has an unknown outcome. A power cut of the block's OST may take writes that no fsync covered. Blocks are smaller
//! than a checksum block and larger than a byte, so that neighbours of different writers share checksums.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::{Opened, SetAttr, WriteIn};
use brindle_types::{Fault, Ino, Layout};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::Life;
use crate::history::Cuts;

/// Names of the files, in `data`.
pub const FILES: [&str; 4] = ["f0", "f1", "f2", "f3"];
/// The file that is also truncated.
const CUT_FILE: usize = 3;
/// Bytes of a block: a disk's sector, which a power cut does not tear.
const BLOCK: u64 = 512;
/// Blocks of a file.
pub const BLOCKS: u64 = 400;
/// First blocks of the places where everybody works: some lie on the borders of stripes.
const PLACES: [u64; 4] = [0, 125, 253, 390];
/// Most blocks of one read or write.
const BLOCKS_MAX: u64 = 6;
/// Longest pause between two operations.
const PAUSE_MS: u64 = 120;

/// Something that puts a value into blocks: a write, or a cut (value 0).
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
    reads: Vec<Read>,
    layouts: BTreeMap<usize, Layout>,
}

/// Everything that happened to the files; outlives the clients.
#[derive(Clone, Default)]
pub struct Blocks {
    record: Arc<Mutex<Record>>,
}

/// One task's open files.
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
    /// Fills the files, which are open for writing, and syncs them.
    pub async fn fill(&self, life: &Life, data: Ino) -> Result<(), Fault> {
        for (file, name) in FILES.iter().enumerate() {
            let create = brindle_client::namespace::create::CreateIn {
                parent: data,
                name: name.as_bytes(),
                mode: 0o644,
                umask: 0,
                exclusive: true,
                access: Access { read: true, write: true, truncate: false },
            };
            let opened = life.client.create(&life.ctx, create).await?.opened;
            self.write(life, &opened, file, 0..BLOCKS).await?;
            self.sync(life, &opened, file).await?;
            let layout = life.client.get_stripe(opened.attr.ino).await?.layout;
            self.record.lock().layouts.extend(layout.map(|l| (file, l)));
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
            life.pause(PAUSE_MS).await;
            let file = life.below(FILES.len() as u64) as usize;
            if self.step(&life, &mut hands, file, inos[file]).await.is_err() {
                // Its handles are dead, or say from now on that data was lost.
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
            self.read(life, &opened, file, 0..BLOCKS).await?;
            hands.drop_all(life).await;
        }
        Ok(())
    }

    async fn step(&self, life: &Life, hands: &mut Hands, file: usize, ino: Ino) -> Result<(), Fault> {
        let first = PLACES[life.below(PLACES.len() as u64) as usize] + life.below(4);
        let blocks = first..first + 1 + life.below(BLOCKS_MAX);
        match life.below(100) {
            0..38 => {
                let opened = hands.open(life, file, ino, true).await?;
                self.write(life, &opened, file, blocks).await
            }
            38..78 => {
                let opened = hands.open(life, file, ino, false).await?;
                self.read(life, &opened, file, blocks).await
            }
            78..86 => match hands.writers.get(&file).cloned() {
                Some(opened) => self.sync(life, &opened, file).await,
                None => Ok(()),
            },
            86..92 => hands.close(life, file, true).await,
            92..97 => hands.close(life, file, false).await,
            _ if file == CUT_FILE => self.cut(life, ino, blocks.start).await,
            _ => Ok(()),
        }
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
        // Where one OST could not take its part, only the bytes before it count as written.
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
        life.note(what, life.client.fsync(opened.handle)).await?;
        let (client, handle, return_ns) = (life.index, (life.number, opened.handle), life.history.now_ns());
        self.record.lock().syncs.push(Sync { file, client, handle, invoke_ns, return_ns });
        Ok(())
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
        // What lies behind the end was cut off.
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

    /// Every read against every write; what is wrong, if anything is.
    pub fn check(&self, cuts: &Cuts) -> Vec<String> {
        let record = self.record.lock();
        let mut by_block: BTreeMap<(usize, u64), Vec<&Write>> = BTreeMap::new();
        for write in &record.writes {
            for block in write.blocks.clone() {
                by_block.entry((write.file, block)).or_default().push(write);
            }
        }
        record.reads.iter().filter_map(|read| record.check_read(read, &by_block, cuts)).collect()
    }

    /// How many reads and writes there were.
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

    /// Whether nothing that happened before the read excuses the loss of an acknowledged write.
    fn is_held(&self, write: &Write, read: &Read, cuts: &Cuts) -> bool {
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
            // The writer's own fsync says so if a cut took the write before; another one's can cover only what is there.
            (s.client == write.client && s.handle == write.handle)
                || !lost_between(write.invoke_ns, s.return_ns)
        })
    }

    /// Nodes whose power cut can take a block: its OST; for a size also the MDT and every OST.
    fn nodes_of(&self, file: usize, block: u64, size: bool) -> Vec<String> {
        let Some(layout) = self.layouts.get(&file) else { return Vec::new() };
        let node = |ost: u16| format!("ost{ost}");
        if size || file == CUT_FILE {
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
        let access = Access { read: !write, write, truncate: false };
        let what = format!("open {} for {}", FILES[file], if write { "writing" } else { "reading" });
        let opened = life.note(what, life.client.open(&life.ctx, ino, access, false)).await?;
        if !write {
            life.pages.opened(&opened);
        }
        table.insert(file, opened.clone());
        Ok(opened)
    }

    async fn close(&mut self, life: &Life, file: usize, write: bool) -> Result<(), Fault> {
        let table = if write { &mut self.writers } else { &mut self.readers };
        let Some(opened) = table.remove(&file) else { return Ok(()) };
        let flushed = life.client.flush(opened.handle).await;
        let what = format!("close {} handle {}", FILES[file], opened.handle);
        life.note(what, life.client.close(opened.handle)).await?;
        flushed
    }

    async fn drop_all(&mut self, life: &Life) {
        let (readers, writers) = (std::mem::take(&mut self.readers), std::mem::take(&mut self.writers));
        for opened in readers.into_values().chain(writers.into_values()) {
            // The handle is given up; what it had to say was said to the operation that failed.
            let _ = life.client.flush(opened.handle).await;
            let _ = life.client.close(opened.handle).await;
        }
    }
}
