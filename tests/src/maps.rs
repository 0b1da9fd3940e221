//! A file mapped into memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A mapping; read and written byte by byte, because somebody else may change the file meanwhile.
pub struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Map {}

impl Map {
    /// Maps `len` bytes from `offset`, shared or private, writable or not.
    pub fn new(file: &File, offset: u64, len: usize, shared: bool, writable: bool) -> io::Result<Map> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        // SAFETY: a new mapping, which disturbs no other memory.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), offset as i64)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map { at: at.cast(), len })
    }

    /// A shared writable mapping of the first `len` bytes.
    pub fn shared(file: &File, len: usize) -> io::Result<Map> {
        Map::new(file, 0, len, true, true)
    }

    /// Copies `len` bytes out.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "inside the mapping");
        // SAFETY: inside the mapping; volatile, because the file may change.
        (offset..offset + len).map(|i| unsafe { self.at.add(i).read_volatile() }).collect()
    }

    /// Copies `data` in.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len, "inside the mapping");
        for (i, byte) in data.iter().enumerate() {
            // SAFETY: inside the mapping; volatile, because others look at the file.
            unsafe { self.at.add(offset + i).write_volatile(*byte) };
        }
    }

    /// msync of the whole mapping: synchronous, or with MS_INVALIDATE.
    pub fn sync(&self, flags: i32) -> io::Result<()> {
        // SAFETY: the whole mapping.
        match unsafe { libc::msync(self.at.cast(), self.len, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the mapping, for calls that take a buffer.
    pub fn address(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody uses any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
