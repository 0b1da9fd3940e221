//! The file of a backup of an MDT.
//!
//! ```text
//! 0   "BRDLMDTB"
//! 8   format version   u32, big-endian
//! 12  blocks: kind u8, length u32, CRC32C of kind, length and body, body
//! ```
//!
//! Kind 1 is the header (the first block), 2 are rows, 3 is the end (the last block) with the number of rows. Bodies are in
//! postcard. Invariant: a file without a sound end is no backup; a file gets its name only when its end is sound and
//! durable.

use std::io;
use std::sync::Arc;

use brindle_stdx::cast::to_usize;
use brindle_stdx::codec;
use brindle_stdx::disk::{Disk, OpenHow, parent, read_exact_at};
use brindle_stdx::{DiskFile, crc, crc_append};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const MAGIC: &[u8; 8] = b"BRDLMDTB";
/// Format that this release writes.
const VERSION: u32 = 1;
/// Bytes in front of the first block.
const HEAD_BYTES: u64 = 12;
/// Bytes in front of a block's body.
const BLOCK_HEAD_BYTES: usize = 9;
/// Largest body that is believed: a page of rows, of which one may be long.
const BODY_BYTES_MAX: usize = 4 << 20;
const HEADER: u8 = 1;
const ROWS: u8 = 2;
const END: u8 = 3;

/// The first block: which MDT was backed up, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The superblock of the MDT, as its file has it.
    pub superblock: Vec<u8>,
    /// Time of the backup, in seconds since 1970.
    pub taken_at_s: i64,
    /// Term of the MDT then.
    pub term: u32,
}

/// Rows: keys and values.
pub type Rows = Vec<(Bytes, Bytes)>;

/// A file in the making, under a name of its own.
pub struct Writer<'a> {
    disk: &'a dyn Disk,
    path: String,
    file: Arc<dyn DiskFile>,
    at: u64,
    rows: u64,
}

impl Writer<'_> {
    /// Begins a file; there must be none of the name.
    pub fn create<'a>(disk: &'a dyn Disk, path: &str, header: &Header) -> Result<Writer<'a>> {
        if disk.stat(path).is_ok() {
            return Err(Fault::new(Code::NotWritable)
                .what("cannot write the backup")
                .subject(path.to_owned())
                .why("there is a file of this name")
                .data("nothing was changed")
                .next("give another name"));
        }
        let temporary = temporary(path);
        // A backup that was cut off may have left its temporary file.
        match disk.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(cannot_write(path, &e)),
            _ => {}
        }
        let file = disk.open(&temporary, OpenHow::CreateNew).map_err(|e| cannot_write(path, &e))?;
        let mut writer = Writer { disk, path: path.to_owned(), file, at: 0, rows: 0 };
        let head = [&MAGIC[..], &VERSION.to_be_bytes()].concat();
        writer.put(&head)?;
        writer.block(HEADER, header)?;
        Ok(writer)
    }

    /// Adds rows.
    pub fn rows(&mut self, rows: Rows) -> Result<()> {
        self.rows += rows.len() as u64;
        self.block(ROWS, &rows)
    }

    /// Bytes written so far.
    pub fn len_bytes(&self) -> u64 {
        self.at
    }

    /// Ends the file, makes it durable and gives it its name; its rows and bytes.
    pub fn finish(mut self) -> Result<(u64, u64)> {
        let rows = self.rows;
        self.block(END, &rows)?;
        let end = || {
            self.file.sync_data()?;
            self.disk.rename(&temporary(&self.path), &self.path)?;
            self.disk.sync_dir(parent(&self.path))
        };
        end().map_err(|e| cannot_write(&self.path, &e))?;
        Ok((rows, self.at))
    }

    /// Gives it up.
    pub fn discard(self) {
        // A temporary file that stays is overwritten by the next backup of this name.
        let _ = self.disk.remove(&temporary(&self.path));
    }

    fn block<T: Serialize>(&mut self, kind: u8, body: &T) -> Result<()> {
        let body = postcard::to_stdvec(body)
            .map_err(|e| Fault::new(Code::Bug).what("cannot write a block of a backup").why(e.to_string()))?;
        let len = u32::try_from(body.len()).map_err(|_| Fault::new(Code::Bug).why("a block of 4 GiB"))?;
        let mut block = vec![kind];
        block.extend_from_slice(&len.to_be_bytes());
        let sum = crc_append(crc(&block), &body);
        block.extend_from_slice(&sum.to_be_bytes());
        block.extend_from_slice(&body);
        self.put(&block)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.at).map_err(|e| cannot_write(&self.path, &e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn temporary(path: &str) -> String {
    format!("{path}.part")
}

fn cannot_write(path: &str, e: &io::Error) -> Fault {
    Fault::io(Code::NotWritable, "cannot write the backup", path.to_owned(), e)
}

/// A file that is read from its beginning to its end.
pub struct Reader {
    path: String,
    file: Arc<dyn DiskFile>,
    len: u64,
    at: u64,
    header: Header,
    rows: u64,
    is_over: bool,
}

impl Reader {
    /// Opens a file and reads its header.
    pub fn open(disk: &dyn Disk, path: &str) -> Result<Reader> {
        let cannot = |e: &io::Error| Fault::io(Code::BadBackup, "cannot read", path.to_owned(), e);
        let file = disk.open(path, OpenHow::ReadOnly).map_err(|e| cannot(&e))?;
        let len = file.len().map_err(|e| cannot(&e))?;
        let mut head = [0; to_usize(HEAD_BYTES)];
        let is_one = read_exact_at(&*file, &mut head, 0).is_ok() && head.starts_with(MAGIC);
        if !is_one {
            return Err(bad(path, "it does not begin as a backup does".to_owned()));
        }
        let version = codec::Reader::new(&head[MAGIC.len()..]).u32().unwrap_or(0);
        if version != VERSION {
            return Err(Fault::new(Code::NewerFormat)
                .what("cannot read the backup")
                .subject(path.to_owned())
                .why(format!("it has format {version}, this release knows {VERSION}")));
        }
        let none = Header { superblock: Vec::new(), taken_at_s: 0, term: 0 };
        let (path, at) = (path.to_owned(), HEAD_BYTES);
        let mut reader = Reader { path, file, len, at, header: none, rows: 0, is_over: false };
        let (kind, body) = reader.block()?;
        if kind != HEADER {
            return Err(reader.bad("its first block is no header"));
        }
        reader.header = reader.decode(&body)?;
        Ok(reader)
    }

    /// First block of the backup.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Rows that were read.
    pub fn rows_read(&self) -> u64 {
        self.rows
    }

    /// Bytes that were read.
    pub fn read_bytes(&self) -> u64 {
        self.at
    }

    /// Length of the file.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// The next rows; `None` at the end, whose number of rows is compared with the rows read.
    pub fn rows(&mut self) -> Result<Option<Rows>> {
        if self.is_over {
            return Ok(None);
        }
        let (kind, body) = self.block()?;
        match kind {
            ROWS => {
                let rows: Rows = self.decode(&body)?;
                self.rows += rows.len() as u64;
                Ok(Some(rows))
            }
            END => {
                let rows: u64 = self.decode(&body)?;
                if rows != self.rows || self.at != self.len {
                    return Err(self.bad("its end does not fit what is in front of it"));
                }
                self.is_over = true;
                Ok(None)
            }
            _ => Err(self.bad("it has a block of an unknown kind")),
        }
    }

    fn block(&mut self) -> Result<(u8, Vec<u8>)> {
        let cut_off = || self.bad("it is cut off");
        let mut head = [0; BLOCK_HEAD_BYTES];
        read_exact_at(&*self.file, &mut head, self.at).map_err(|_| cut_off())?;
        let mut fields = codec::Reader::new(&head);
        let (kind, len, sum) =
            (|| Some((fields.u8()?, fields.u32()? as usize, fields.u32()?)))().ok_or_else(cut_off)?;
        if len > BODY_BYTES_MAX {
            return Err(self.bad("a block is too long"));
        }
        let mut body = vec![0; len];
        read_exact_at(&*self.file, &mut body, self.at + BLOCK_HEAD_BYTES as u64).map_err(|_| cut_off())?;
        if crc_append(crc(&head[..5]), &body) != sum {
            return Err(self.bad("a checksum is wrong"));
        }
        self.at += (BLOCK_HEAD_BYTES + len) as u64;
        Ok((kind, body))
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        postcard::from_bytes(body).map_err(|e| self.bad(&format!("a block does not decode: {e}")))
    }

    fn bad(&self, why: &str) -> Fault {
        bad(&self.path, format!("{why}, at byte {}", self.at))
    }
}

fn bad(path: &str, why: String) -> Fault {
    Fault::new(Code::BadBackup).subject(path.to_owned()).why(why).data("nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_rows(n: u8) -> Rows {
        (0..20).map(|i| (Bytes::from(vec![n, i]), Bytes::from(vec![i; 100]))).collect()
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_every_cut_and_flip_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("b").to_str().expect("UTF-8").to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = brindle_stdx::real::seams(runtime.handle().clone()).disk;
        let header = Header { superblock: vec![1, 2, 3], taken_at_s: 77, term: 5 };
        let mut writer = Writer::create(&*disk, &path, &header).expect("created");
        (1..4).for_each(|n| writer.rows(some_rows(n)).expect("written"));
        assert!(disk.stat(&path).is_err(), "it has no name before it is whole");
        assert_eq!(writer.finish().expect("whole").0, 60);
        assert!(Writer::create(&*disk, &path, &header).is_err(), "nothing is written over");

        let read = |path: &str| -> Result<u64> {
            let mut reader = Reader::open(&*disk, path)?;
            assert_eq!(reader.header(), &header);
            let mut n = 1;
            while let Some(rows) = reader.rows()? {
                assert_eq!(rows, some_rows(n));
                n += 1;
            }
            Ok(reader.rows_read())
        };
        assert_eq!(read(&path), Ok(60));
        let bytes = std::fs::read(&path).expect("readable");
        let bad = dir.path().join("bad").to_str().expect("UTF-8").to_owned();
        for cut in 0..bytes.len() {
            std::fs::write(&bad, &bytes[..cut]).expect("written");
            assert_eq!(read(&bad).expect_err("cut off").code, Code::BadBackup, "{cut}");
        }
        for at in (12..bytes.len()).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            std::fs::write(&bad, &flipped).expect("written");
            assert_eq!(read(&bad).expect_err("damaged").code, Code::BadBackup, "{at}");
        }
    }
}
