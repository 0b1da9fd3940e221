//! L2: a program that writes and reads blocks of a striped file of its own. Every block has its file, place, generation
//! and checksum, so that an old, misplaced, mixed or damaged block is told from the right one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brindle_stdx::crc;

use crate::dice::Dice;
use crate::load::{Ground, Worker, unexpected};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Blocks of a file: 8 MiB, so that it spans all stripes.
pub const BLOCKS: u64 = 2048;
/// Most blocks of one write or read.
const RUN_MAX: u64 = 48;
const MAGIC: u64 = 0x4252_4e44_4c42_4c4b;

/// The bytes of a block.
pub fn block(file: u64, index: u64, generation: u64) -> Vec<u8> {
    let seed = file.wrapping_mul(31).wrapping_add(index).wrapping_mul(1_000_003).wrapping_add(generation);
    let mut bytes = brindle_tests::bytes(seed, BLOCK);
    for (place, word) in [MAGIC, file, index, generation].into_iter().enumerate() {
        bytes[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc(&bytes[..BLOCK - 4]);
    bytes[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The generation of the block that these bytes are: 0 for a hole; `Err` for anything that is not a whole block of this
/// place.
pub fn generation_of(bytes: &[u8], file: u64, index: u64) -> Result<u64, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    let word = |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("eight bytes"));
    let (sum, body) = (&bytes[BLOCK - 4..], &bytes[..BLOCK - 4]);
    if word(0) != MAGIC || crc(body).to_le_bytes() != sum {
        return Err(format!("block {index} is damaged: begins with {:02x?}", &bytes[..32]));
    }
    if (word(1), word(2)) != (file, index) {
        return Err(format!("block {index} of file {file} is block {} of file {}", word(2), word(1)));
    }
    Ok(word(3))
}

/// Knowledge about a block; generation 0 is a hole.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Generation that an fsync made durable.
    durable: u64,
    /// Generations written since.
    since: Vec<u64>,
}

impl Known {
    fn newest(&self) -> u64 {
        *self.since.last().unwrap_or(&self.durable)
    }

    fn may_be(&self, generation: u64) -> bool {
        generation == self.durable || self.since.contains(&generation)
    }
}

/// The worker.
pub struct StripeWorker {
    name: String,
    ground: Ground,
    dice: Dice,
    path: PathBuf,
    file: File,
    id: u64,
    blocks: BTreeMap<u64, Known>,
    generation: u64,
    /// Cuts that had happened when everything was last known for certain.
    certain_at: u64,
    /// Times that the file system said that data was lost.
    pub losses: u64,
}

impl StripeWorker {
    /// A worker on a new file in `dir`, whose default layout is striped.
    pub fn new(ground: &Ground, dir: &Path, id: u64, dice: Dice) -> StripeWorker {
        let name = format!("{}/stripes{id}", dir.file_name().unwrap_or_default().to_string_lossy());
        let path = dir.join(format!("stripes{id}"));
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = made.expect("the worker's file can be made");
        let synced = file.sync_all().and_then(|()| File::open(dir)?.sync_all());
        synced.expect("the worker's file can be synced");
        StripeWorker {
            name,
            ground: ground.clone(),
            dice,
            path,
            file,
            id,
            blocks: BTreeMap::new(),
            generation: 0,
            certain_at: ground.cuts(),
            losses: 0,
        }
    }

    fn known(&self, index: u64) -> Known {
        self.blocks.get(&index).cloned().unwrap_or_default()
    }

    /// Whether power was cut since everything was last known for certain.
    fn was_cut(&self) -> bool {
        self.ground.cuts() > self.certain_at
    }

    fn run(&mut self) -> std::ops::Range<u64> {
        let start = self.dice.below(BLOCKS);
        start..(start + 1 + self.dice.below(RUN_MAX)).min(BLOCKS)
    }

    fn write(&mut self) -> Result<(), String> {
        let run = self.run();
        self.generation += 1;
        let generation = self.generation;
        let bytes: Vec<u8> = run.clone().flat_map(|index| block(self.id, index, generation)).collect();
        // From here on the blocks may be there, whatever the call says.
        run.clone().for_each(|index| self.blocks.entry(index).or_default().since.push(generation));
        let at = run.start * BLOCK as u64;
        let what = format!("write blocks {run:?} generation {generation}");
        let (_, result) =
            self.ground.history.record(&self.name, &what, || self.file.write_all_at(&bytes, at));
        match result {
            Err(e) if self.may_lose(&e) => self.lost(),
            other => unexpected(what, other),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let run = self.run();
        let found = match read_run(&self.file, run.clone()) {
            Err(e) if self.may_lose(&e) => return self.lost(),
            other => unexpected(format!("read blocks {run:?}"), other)?,
        };
        self.compare(run, &found, self.was_cut())
    }

    /// Compares blocks that were read; after a cut they may be older ones.
    fn compare(&self, run: std::ops::Range<u64>, found: &[u8], after_cut: bool) -> Result<(), String> {
        for (index, bytes) in run.zip(found.chunks(BLOCK)) {
            let known = self.known(index);
            let generation = generation_of(bytes, self.id, index)?;
            let fine = if after_cut { known.may_be(generation) } else { generation == known.newest() };
            if !fine {
                let cut = if after_cut { ", and power was cut" } else { "" };
                return Err(format!("block {index} has generation {generation}; known: {known:?}{cut}"));
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        let cuts = self.ground.cuts();
        let (_, result) = self.ground.history.record(&self.name, "fsync", || self.file.sync_all());
        match result {
            Ok(()) => {
                self.blocks.values_mut().for_each(|known| {
                    known.durable = known.newest();
                    known.since.clear();
                });
                // A cut that came after the call was asked leaves what it made durable, and nothing else was written.
                self.certain_at = cuts.max(self.certain_at);
                Ok(())
            }
            Err(e) if self.may_lose(&e) => self.lost(),
            other => unexpected("fsync", other),
        }
    }

    fn may_lose(&self, error: &io::Error) -> bool {
        self.was_cut() && error.raw_os_error() == Some(libc::EIO)
    }

    /// The file system said that unsynced data is lost. Opens the file again and looks what is there.
    fn lost(&mut self) -> Result<(), String> {
        self.losses += 1;
        let cuts = self.ground.cuts();
        let opened = OpenOptions::new().read(true).write(true).open(&self.path);
        self.file = unexpected("open again after a loss", opened)?;
        let found = unexpected("read after a loss", read_run(&self.file, 0..BLOCKS))?;
        self.compare(0..BLOCKS, &found, true)?;
        for (index, bytes) in (0..BLOCKS).zip(found.chunks(BLOCK)) {
            let generation = generation_of(bytes, self.id, index)?;
            if let Some(known) = self.blocks.get_mut(&index)
                && known.newest() != generation
            {
                known.since.push(generation);
            }
        }
        // The found contents stay, unless power is cut again; they are durable after the next fsync.
        self.certain_at = cuts;
        Ok(())
    }
}

/// Blocks of a file; behind its end there are holes.
fn read_run(file: &File, run: std::ops::Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (run.end - run.start) as usize * BLOCK];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], run.start * BLOCK as u64 + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}

impl Worker for StripeWorker {
    fn name(&self) -> &str {
        &self.name
    }

    fn step(&mut self) -> Result<(), String> {
        match self.dice.below(24) {
            0..14 => self.write(),
            14..23 => self.read(),
            _ => self.sync(),
        }
    }

    fn settle(&mut self) -> Result<(), String> {
        let losses = self.losses;
        self.sync()?;
        if self.losses > losses {
            // The handle is a new one, and nothing was cut since.
            self.sync()?;
        }
        Ok(())
    }

    fn verify(&self, mount: &Path) -> Result<(), String> {
        let dir = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let path = mount.join(dir).join(self.path.file_name().unwrap_or_default());
        let file = unexpected("open", File::open(&path))?;
        let found = unexpected("read", read_run(&file, 0..BLOCKS))?;
        self.compare(0..BLOCKS, &found, false)?;
        let end = self.blocks.iter().rev().find(|(_, known)| known.newest() > 0);
        let wanted = end.map_or(0, |(index, _)| (index + 1) * BLOCK as u64);
        let size = unexpected("stat", file.metadata())?.len();
        if size < wanted { Err(format!("its size is {size}, at least {wanted} was written")) } else { Ok(()) }
    }
}

#[test]
fn a_block_tells_what_is_wrong_with_it() {
    let good = block(3, 5, 7);
    assert_eq!(generation_of(&good, 3, 5), Ok(7));
    assert_eq!(generation_of(&[0; BLOCK], 3, 5), Ok(0));
    assert!(generation_of(&good, 3, 6).unwrap_err().contains("is block 5 of file 3"));
    let mut bad = good.clone();
    bad[2000] ^= 1;
    assert!(generation_of(&bad, 3, 5).unwrap_err().contains("damaged"));
    let mixed: Vec<u8> = good[..2048].iter().chain(&block(3, 5, 8)[2048..]).copied().collect();
    assert!(generation_of(&mixed, 3, 5).unwrap_err().contains("damaged"));
}
