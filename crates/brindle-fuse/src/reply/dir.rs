//! The buffer of records that READDIR and READDIRPLUS are answered with.

use brindle_stdx::cast::len_u32;
use brindle_types::FileType;
use bytes::Bytes;
use zerocopy::IntoBytes;

use super::Entry;
use crate::abi::align8;
use crate::abi::outputs::{Dirent, EntryOut};

/// Records of a directory, as many as the kernel has room for.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    room: usize,
}

impl DirBuffer {
    /// An empty buffer for a request with this `size`.
    pub fn new(size: u32) -> DirBuffer {
        DirBuffer { bytes: Vec::new(), room: size as usize }
    }

    /// Adds a record of READDIR; false, and nothing added, when it does not fit. `cookie` is what the kernel sends
    /// as `offset` to continue behind this record; never 0.
    pub fn add(&mut self, name: &[u8], ino: u64, kind: FileType, cookie: u64) -> bool {
        self.record(None, name, ino, kind, cookie)
    }

    /// Adds a record of READDIRPLUS; false, and nothing added, when it does not fit. The kernel then holds one more
    /// reference to the inode, until FORGET, unless the name is `.` or `..`, for which see [`DirBuffer::add_plain`].
    pub fn add_plus(&mut self, name: &[u8], entry: &Entry, cookie: u64) -> bool {
        self.record(Some(entry.to_kernel()), name, entry.attr.ino.0, entry.attr.kind, cookie)
    }

    /// Adds a record of READDIRPLUS without attributes (`.`, `..`, or an inode whose attributes are not at hand):
    /// the kernel takes no reference and looks the name up when it needs to.
    pub fn add_plain(&mut self, name: &[u8], ino: u64, kind: FileType, cookie: u64) -> bool {
        self.record(Some(EntryOut::default()), name, ino, kind, cookie)
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The records.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(self.bytes)
    }

    fn record(&mut self, plus: Option<EntryOut>, name: &[u8], ino: u64, kind: FileType, cookie: u64) -> bool {
        assert!(cookie != 0, "a cookie of 0 would start the directory again");
        let head = if plus.is_some() { size_of::<EntryOut>() } else { 0 } + size_of::<Dirent>();
        let len = align8(head + name.len());
        if self.bytes.len() + len > self.room {
            return false;
        }
        let end = self.bytes.len() + len;
        if let Some(entry) = plus {
            self.bytes.extend_from_slice(entry.as_bytes());
        }
        let dirent = Dirent { ino, off: cookie, namelen: len_u32(name.len()), kind: kind.mode_bits() >> 12 };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}
