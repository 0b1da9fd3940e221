//! [`Blocks`]: clients that write blocks of their files on a replicated OST, and read each other's. A block has one writer, and is given up once
//! the outcome of a write is not known: that write may come later.

use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_types::{Fault, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use super::clients::{Acked, Clients, Life, mount};
use super::cluster::CLIENTS;

/// Bytes of a block, and blocks of a file: more than an MDT keeps itself.
const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 96;
/// One operation in so many is a sync of the file.
const SYNC_ONE_IN: u64 = 8;

/// A write of a block.
#[derive(Clone, Copy)]
struct Write {
    value: u64,
    /// Its times; `None` while the outcome is not known.
    acked: Option<Acked>,
}

/// Writes of each block of a file, in their order.
#[derive(Default)]
struct File {
    writes: Vec<Vec<Write>>,
    next: u64,
}

/// See the module. Cloning gives another handle to the same work.
#[derive(Clone)]
pub struct Blocks {
    /// The clients.
    pub clients: Arc<Clients>,
    files: Arc<Vec<(Ino, Mutex<File>)>>,
}

fn data(value: u64) -> Vec<u8> {
    value.to_be_bytes().repeat(BLOCK_BYTES as usize / 8)
}

impl Blocks {
    /// Makes a file for each client, durably.
    pub async fn prepare(clients: Arc<Clients>, client: &Client) -> Result<Blocks, Fault> {
        let (ctx, mut files) = (Ctx::root(), Vec::new());
        for name in CLIENTS {
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let name = name.as_bytes();
            let create =
                CreateIn { parent: client.root(), name, mode: 0o644, umask: 0, exclusive: true, access };
            let made = client.create(&ctx, create).await?;
            let (handle, ino) = (made.opened.handle, made.opened.attr.ino);
            let data = data(0).repeat(BLOCKS as usize);
            client.write(&ctx, handle, WriteIn { data: data.into(), ..WriteIn::default() }).await?;
            client.fsync(handle).await?;
            client.close(handle).await?;
            let writes = (0..BLOCKS).map(|_| Vec::new()).collect();
            files.push((ino, Mutex::new(File { writes, next: 1 })));
        }
        client.fsync_dir(client.root()).await?;
        Ok(Blocks { clients, files: Arc::new(files) })
    }

    /// Lets a life work. Writes of an earlier life may still come.
    pub fn begin(&self, life: Life) {
        let seams = life.node.seams.clone();
        let (writer, reader, own, other) = (life.clone(), life, self.clone(), self.clone());
        seams.spawn("work.write", async move { own.write(writer).await });
        seams.spawn("work.read", async move { other.read(reader).await });
    }

    /// Compares what is there with what was acknowledged.
    pub async fn verdict(&self) -> Result<(), Fault> {
        let client = mount(&self.clients.cluster().world().node("witness")).await;
        for (index, (ino, file)) in self.files.iter().enumerate() {
            let opened = client.open(&Ctx::root(), *ino, reading(), false).await?;
            for block in 0..BLOCKS {
                let words = words(&client, opened.handle, block).await?;
                let writes = file.lock().writes[block as usize].clone();
                if let Some(why) = self.wrong(index, (&writes, &writes), &words) {
                    let text = format!("R1: block {block} of {}: {why}", CLIENTS[index]);
                    self.clients.witness().history().violation(text);
                }
            }
            client.close(opened.handle).await?;
        }
        client.unmount().await;
        Ok(())
    }

    /// The broken promise about the words of a block, if one is: each must be of the newest write that may not be lost, or of a later one. `before`: the writes
    /// that were acknowledged before it was read.
    fn wrong(&self, index: usize, (before, now): (&[Write], &[Write]), words: &[u64]) -> Option<String> {
        let kept = before.iter().enumerate().rev().find_map(|(at, write)| {
            let why = self.clients.must_be_kept(index, &write.acked?)?;
            Some((at, write.value, why))
        });
        let from = kept.as_ref().map_or(0, |(at, _, _)| *at);
        let mut allowed: Vec<u64> = now[from.min(now.len())..].iter().map(|write| write.value).collect();
        allowed.extend(kept.is_none().then_some(0));
        let word = words.iter().find(|word| !allowed.contains(word));
        let word = word.or(words.is_empty().then_some(&u64::MAX))?;
        let expected = kept.map_or_else(String::new, |(_, value, why)| format!(", and {value} was {why}"));
        Some(format!("it has {word}{expected}"))
    }

    async fn write(self, life: Life) {
        let (ino, file) = &self.files[life.index];
        while life.goes_on() {
            life.pause().await;
            let access = Access { read: false, write: true, truncate: false, execute: false };
            let ctx = Ctx::root();
            let opening = life.client.open(&ctx, *ino, access, false);
            let (Ok(opened), _) = life.asked("open to write".to_owned(), opening).await else { continue };
            for _ in 0..1 + life.choose(12) {
                if !life.goes_on() || self.write_one(&life, opened.handle, file).await.is_err() {
                    break;
                }
                life.pause().await;
            }
            // Whatever becomes of the handle, the next round opens the file anew.
            let _ = life.asked("close".to_owned(), life.client.close(opened.handle)).await;
        }
        life.ended();
    }

    async fn write_one(&self, life: &Life, handle: u64, file: &Mutex<File>) -> Result<(), Fault> {
        if life.choose(SYNC_ONE_IN) == 0 {
            let (done, acked) = life.asked("fsync".to_owned(), life.client.fsync(handle)).await;
            done?;
            self.clients.synced(life.index, acked);
            return Ok(());
        }
        let begun = {
            let mut file = file.lock();
            let usable = |writes: &Vec<Write>| writes.last().is_none_or(|write| write.acked.is_some());
            let blocks: Vec<usize> = (0..file.writes.len()).filter(|n| usable(&file.writes[*n])).collect();
            (!blocks.is_empty()).then(|| {
                // Few blocks, so that most are written again and again.
                let block = blocks[life.choose(blocks.len().min(6) as u64) as usize];
                let value = file.next;
                file.next += 1;
                file.writes[block].push(Write { value, acked: None });
                (block, value)
            })
        };
        let Some((block, value)) = begun else { return Ok(()) };
        let (offset, data, ctx) = (block as u64 * BLOCK_BYTES, data(value).into(), Ctx::root());
        let write = WriteIn { offset, data, direct: true, ..WriteIn::default() };
        let writing = life.client.write(&ctx, handle, write);
        let (done, acked) = life.asked(format!("write {value} to block {block}"), writing).await;
        if done? == BLOCK_BYTES
            && let Some(write) = file.lock().writes[block].last_mut()
        {
            write.acked = Some(acked);
        }
        Ok(())
    }

    async fn read(self, life: Life) {
        let other = 1 - life.index;
        let (ino, file) = &self.files[other];
        while life.goes_on() {
            life.pause().await;
            let ctx = Ctx::root();
            let opening = life.client.open(&ctx, *ino, reading(), false);
            let (Ok(opened), _) = life.asked("open to read".to_owned(), opening).await else { continue };
            for _ in 0..1 + life.choose(12) {
                let block = life.choose(8);
                let before = file.lock().writes[block as usize].clone();
                let reading = words(&life.client, opened.handle, block);
                let (Ok(words), _) = life.asked(format!("read block {block}"), reading).await else { break };
                let now = file.lock().writes[block as usize].clone();
                if let Some(why) = self.wrong(other, (&before, &now), &words) {
                    let text =
                        format!("R5: {} reads block {block} of {}: {why}", life.node.name, CLIENTS[other]);
                    life.history().violation(text);
                }
                life.pause().await;
            }
            let _ = life.asked("close".to_owned(), life.client.close(opened.handle)).await;
        }
        life.ended();
    }
}

fn reading() -> Access {
    Access { read: true, write: false, truncate: false, execute: false }
}

/// The words of a block.
async fn words(client: &Client, handle: u64, block: u64) -> Result<Vec<u64>, Fault> {
    let read = client.read(handle, block * BLOCK_BYTES, BLOCK_BYTES, false).await?;
    let bytes = read.pieces.concat();
    let words =
        bytes.chunks_exact(8).map(|word| word.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
    Ok(words.collect())
}
