//! File access for all workloads: faults that name files, aligned buffers, O_DIRECT, comparison of read
//! bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, Result};

use crate::pattern::{Mismatch, Pattern};

/// Alignment that O_DIRECT needs on every disk.
pub(crate) const ALIGN_BYTES: u64 = 4096;

/// A failed system call of the benchmark.
pub(crate) fn failed(what: &'static str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(Code::BenchmarkFailed, what, path.display().to_string(), e)
}

/// Opens for writing, making the file when it is missing.
pub(crate) fn open_write(path: &Path, direct: bool) -> Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false);
    open(path, how, direct, "cannot write")
}

/// Opens for reading.
pub(crate) fn open_read(path: &Path, direct: bool) -> Result<File> {
    let mut how = OpenOptions::new();
    how.read(true);
    open(path, how, direct, "cannot read")
}

fn open(path: &Path, mut how: OpenOptions, direct: bool, what: &'static str) -> Result<File> {
    if direct {
        how.custom_flags(libc::O_DIRECT);
    }
    let opened = how.open(path).or_else(|e| match e.kind() {
        // MooseFS says so to one of two clients that make a file at once, although nobody asked for a new one.
        io::ErrorKind::AlreadyExists => how.create(false).open(path),
        _ => Err(e),
    });
    opened.map_err(|e| {
        let fault = failed(what, path, &e);
        if direct && e.raw_os_error() == Some(libc::EINVAL) {
            fault.next("this file system has no O_DIRECT; run it again with --buffered")
        } else {
            fault
        }
    })
}

/// Writes all of `data`.
pub(crate) fn write_at(file: &File, path: &Path, data: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(data, offset).map_err(|e| failed("cannot write", path, &e).why(at(offset)))
}

/// Makes it durable, when that is wanted.
pub(crate) fn sync(file: &File, path: &Path, wanted: bool) -> Result<()> {
    if wanted { file.sync_all().map_err(|e| failed("cannot fsync", path, &e)) } else { Ok(()) }
}

/// Fills `buffer` from the file; an earlier end of the file is a fault.
pub(crate) fn read_at(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => return Err(too_short(path, offset + done as u64)),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("cannot read", path, &e).why(at(offset))),
        }
    }
    Ok(())
}

fn at(offset: u64) -> String {
    format!("at offset {offset}")
}

fn too_short(path: &Path, offset: u64) -> Fault {
    Fault::new(Code::WrongContents)
        .what("wrong contents of")
        .subject(path.display().to_string())
        .why(format!("at offset {offset}: expected more bytes, found the end of the file"))
}

/// A fault when `data`, read at `offset`, is not what was written.
pub(crate) fn compare(path: &Path, pattern: Pattern, offset: u64, data: &[u8]) -> Result<()> {
    match pattern.check(offset, data) {
        None => Ok(()),
        Some(Mismatch { offset, expected, found }) => Err(Fault::new(Code::WrongContents)
            .what("wrong contents of")
            .subject(path.display().to_string())
            .why(format!("at offset {offset}: expected {expected:016x}, found {found:016x} (8 bytes)"))),
    }
}

/// A buffer that O_DIRECT takes.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Buffer of `len` bytes.
    pub fn new(len: usize) -> Buffer {
        let memory = vec![0; len + to_usize(ALIGN_BYTES)];
        let start = memory.as_ptr().align_offset(to_usize(ALIGN_BYTES)).min(to_usize(ALIGN_BYTES));
        Buffer { memory, start, len }
    }

    /// Bytes of the buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_contents_are_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("data");
        let pattern = Pattern::of(1, 2);
        let mut buffer = Buffer::new(8192);
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN_BYTES as usize, 0);
        pattern.fill(0, buffer.bytes());
        let expected = u64::from_be_bytes(buffer.bytes()[4096..4104].try_into().expect("eight bytes"));
        buffer.bytes()[4096..4104].fill(0);
        let file = open_write(&path, false).expect("opens");
        write_at(&file, &path, buffer.bytes(), 0).expect("writes");
        let file = open_read(&path, false).expect("opens");
        read_at(&file, &path, buffer.bytes(), 0).expect("reads");
        let fault = compare(&path, pattern, 0, buffer.bytes()).expect_err("differs");
        assert_eq!(fault.code, Code::WrongContents);
        assert_eq!(fault.subject, path.display().to_string());
        let why = format!("at offset 4096: expected {expected:016x}, found 0000000000000000 (8 bytes)");
        assert_eq!(fault.why, [why]);
        let fault = read_at(&file, &path, buffer.bytes(), 4096).expect_err("too short");
        assert_eq!(fault.why, ["at offset 8192: expected more bytes, found the end of the file"]);
    }
}
