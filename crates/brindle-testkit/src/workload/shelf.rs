//! Small files of one directory that all clients read one after the other, so that they are opened ahead. Now and then each
//! client writes some of them anew. A client that opens a file after a write was flushed reads that write, or a later one.
//!
//! A file holds the number of its last write, several times over.

use std::sync::Arc;

use brindle_client::WriteIn;
use brindle_client::namespace::create::CreateIn;
use brindle_types::{Fault, Ino};
use brindle_wire::mds::open::{Access, OpenMode};
use parking_lot::Mutex;

use super::Life;

/// Name of the directory.
pub const DIR: &str = "shelf";
/// Files in it.
const FILES: usize = 10;
/// Words of a file, all the same.
const WORDS: usize = 8;
/// Longest pause between two writes of one client; leases are given again 100 ms after one.
const WRITE_PAUSE_MS: u64 = 1_500;
/// Longest pause between two rounds of reading.
const ROUND_PAUSE_MS: u64 = 300;

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };

/// Knowledge about a file.
#[derive(Clone, Copy, Debug)]
struct Book {
    ino: Ino,
    /// Number of the last write that was flushed, and of the last that has begun.
    flushed: u64,
    begun: u64,
}

/// All files; outlives the clients.
#[derive(Clone, Default)]
pub struct Shelf {
    books: Arc<Mutex<Vec<Book>>>,
}

fn content(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(WORDS)
}

/// The number in a file; `None` if that is none.
fn number_in(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == content(number)).then_some(number)
}

impl Shelf {
    /// Makes the files.
    pub async fn make(&self, life: &Life, dir: Ino) -> Result<(), Fault> {
        let (client, ctx) = (&life.client, &life.ctx);
        for n in 0..FILES {
            let name = format!("b{n}");
            let create = CreateIn {
                parent: dir,
                name: name.as_bytes(),
                mode: 0o644,
                umask: 0,
                exclusive: true,
                access: WRITE,
            };
            let opened = client.create(ctx, create).await?.opened;
            let write = WriteIn { data: content(0).into(), ..WriteIn::default() };
            client.write(ctx, opened.handle, write).await?;
            client.flush(opened.handle, None).await?;
            client.close(opened.handle).await?;
            self.books.lock().push(Book { ino: opened.attr.ino, flushed: 0, begun: 0 });
        }
        Ok(())
    }

    /// Writes some and reads all until it is told to stop.
    pub async fn run(self, life: Life, clients: usize) {
        let dir = life.find(DIR).await;
        tokio::join!(self.write(&life, clients), self.read(&life, dir));
    }

    async fn write(&self, life: &Life, clients: usize) {
        while !life.stopping() {
            life.pause(WRITE_PAUSE_MS).await;
            let n = life.below((FILES / clients.max(1)).max(1) as u64) as usize * clients + life.index;
            if n < FILES {
                // A failed write may have happened; a later one overwrites it.
                let _ = self.write_one(life, n).await;
            }
        }
    }

    async fn write_one(&self, life: &Life, n: usize) -> Result<(), Fault> {
        let (ino, number) = {
            let book = &mut self.books.lock()[n];
            book.begun += 1;
            (book.ino, book.begun)
        };
        let opened = life.note(format!("open b{n}"), life.client.open(&life.ctx, ino, WRITE, false)).await?;
        let write = WriteIn { data: content(number).into(), ..WriteIn::default() };
        let writing = life.client.write(&life.ctx, opened.handle, write);
        let written = life.note(format!("write {number} to b{n}"), writing).await;
        let flushed = life.note(format!("flush b{n}"), life.client.flush(opened.handle, None)).await;
        if written.is_ok() && flushed.is_ok() {
            let book = &mut self.books.lock()[n];
            book.flushed = book.flushed.max(number);
        }
        life.note(format!("close b{n}"), life.client.close(opened.handle)).await?;
        written.map(drop).and(flushed)
    }

    async fn read(&self, life: &Life, dir: Ino) {
        while !life.stopping() {
            life.pause(ROUND_PAUSE_MS).await;
            // The listing makes the attributes known.
            if life.client.readdir(dir, 0, FILES as u32, true).await.is_err() {
                continue;
            }
            for n in 0..FILES {
                if life.stopping() {
                    return;
                }
                let _ = self.read_one(life, n).await;
            }
        }
    }

    async fn read_one(&self, life: &Life, n: usize) -> Result<(), Fault> {
        let before = self.books.lock()[n];
        let opened = life.client.open(&life.ctx, before.ino, READ, false).await?;
        let is_page = opened.mode == OpenMode::Cached;
        let read = life.client.read(opened.handle, 0, 2 * content(0).len() as u64, is_page).await;
        let bytes = read.map(brindle_client::ReadOut::into_bytes);
        life.client.close(opened.handle).await?;
        let bytes = bytes?;
        let wrong = match number_in(&bytes) {
            Some(number) if number >= before.flushed => return Ok(()),
            Some(number) => format!("read {number} in b{n} after {} had been flushed", before.flushed),
            None => format!("read a mixture in b{n}: {bytes:?}"),
        };
        // A power cut takes back states that were seen.
        if life.history.cuts().of("mdt0") == 0 {
            life.history.violation(format!("I2: c{} {wrong}", life.index));
        }
        Ok(())
    }
}
