//! `Disk`: the one way to local storage, below log, KV, superblock and objects.
//!
//! Everything that must survive a crash goes through this trait, so that the simulator's torn, lost and reordered
//! writes hit the real code. The contract is Linux's: what was written survives the death of the process; only what
//! was synced (file contents by [`DiskFile::sync_data`], names by [`Disk::sync_dir`]) survives a power cut, and
//! unsynced writes may survive in part, in any order, torn at 512 bytes.
//!
//! Calls are synchronous and return at page-cache speed; the two slow ones have async forms ([`DiskFile::sync_data_async`] and
//! [`Disk::admit`]) that do not hold a runtime thread.

use std::io;
use std::sync::Arc;

use crate::BoxFuture;
use crate::cast::to_usize;

/// Way in which [`Disk::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow {
    /// An existing file, read and write.
    Existing,
    /// An existing file, read only (fsck).
    ReadOnly,
    /// A file that must not exist yet.
    CreateNew,
    /// An existing file, or a new one.
    OpenOrCreate,
}

/// Answer of [`Disk::stat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskStat {
    /// Length in bytes.
    pub len_bytes: u64,
    /// Bytes allocated on the device.
    pub allocated_bytes: u64,
    /// Whether the entry is a directory.
    pub is_dir: bool,
    /// Time of the last change of contents, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// Space on the file system that holds a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Total bytes.
    pub total_bytes: u64,
    /// Bytes this process may still use.
    pub available_bytes: u64,
    /// Total inodes.
    pub total_inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Identity of the device, so that targets on one device are counted once.
    pub device_id: u64,
}

/// Identity of the boot of the host, and of the mount of the file system, through which a directory is seen.
/// Equal identities mean that no write in between can have been lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootIdentity {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// STATX_MNT_ID_UNIQUE of the directory.
    pub mount_id: u64,
}

/// Direction of an I/O that asks to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Read from the device.
    Read,
    /// Write to the device.
    Write,
}

/// The right to have one I/O in flight; given back when dropped.
pub struct IoPermit(pub Option<Box<dyn Send + Sync>>);

/// An open file. All methods may be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Reads at `offset` until `buf` is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Fills `buf` from `offset` if the bytes are in memory. Returns `false`, with undefined contents of `buf`, if the
    /// device would have to be read. A disk that cannot tell reads the bytes.
    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        Ok(self.read_at(buf, offset)? == buf.len())
    }
    /// Whether some of the range is in the page cache; begins no access to the device where that can be told without one.
    fn is_in_memory(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        let _ = (offset, len_bytes);
        Ok(false)
    }
    /// Begins to bring the range into the page cache. Does not wait for it.
    fn fetch(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let _ = (offset, len_bytes);
        Ok(())
    }
    /// Writes all of `data` at `offset`, extending the file where needed.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Writes as [`DiskFile::write_at`] does, but bypasses the page cache where the file system allows it.
    /// `data` begins at a multiple of [`crate::buffers::ALIGN_BYTES`], in memory and in the file, and is a
    /// multiple of it long. May block for as long as the device takes ([`crate::Seams::blocking`]). Makes
    /// nothing durable.
    fn write_direct(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(data, offset)
    }
    /// Reads as [`DiskFile::read_at`] does, but bypasses the page cache where the file system allows it:
    /// `buf` and `offset` as for [`DiskFile::write_direct`]. Finds bytes that were written either way. May
    /// block for as long as the device takes.
    fn read_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset)
    }
    /// Makes reads bring only the requested range into the page cache. For files with direct writes: bytes
    /// read ahead beside these may lie in one folio with bytes that are being written.
    fn read_no_further(&self) -> io::Result<()> {
        Ok(())
    }
    /// Makes contents and length durable; blocks the calling thread.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes contents and length durable without holding a runtime thread.
    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>>;
    /// Current length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with a hole) to `len_bytes`.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// Reserves space for the range without changing contents or, with `keep_len`, the length.
    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()>;
    /// Makes the range a hole that reads as zeros; the length stays.
    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()>;
    /// First offset at or after `offset` that holds data; `None` if only holes follow. May report holes as data.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>>;
    /// First offset at or after `offset` that is in a hole (the end of the file counts as one).
    fn next_hole(&self, offset: u64) -> io::Result<u64>;
    /// Length, allocation and times.
    fn stat(&self) -> io::Result<DiskStat>;
}

/// A tree of files. Paths are absolute, `/`-separated UTF-8.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes a directory and its missing parents.
    fn create_dir_all(&self, path: &str) -> io::Result<()>;
    /// Renames a file over `to`, atomically. Durable after `sync_dir` of both parents.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the entries of a directory durable; blocks the calling thread.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Names in a directory, sorted, without `.` and `..`.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Length, allocation and times of a name; `NotFound` if it does not exist.
    fn stat(&self, path: &str) -> io::Result<DiskStat>;
    /// Space on the file system that holds `path`.
    fn space(&self, path: &str) -> io::Result<DiskSpace>;
    /// Keeps room that nobody else gets: `path` becomes a file of `bytes`, all of them allocated, which is never read. `StorageFull`, and
    /// nothing is changed, if there is not so much; `Unsupported` where room cannot be allocated without being written.
    fn keep_room(&self, path: &str, bytes: u64) -> io::Result<()> {
        let _ = (path, bytes);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Number of bytes that are kept so; 0 if there is no such file.
    fn kept_room(&self, path: &str) -> io::Result<u64> {
        let _ = path;
        Ok(0)
    }
    /// Boot and mount that `path` is seen through.
    fn boot_identity(&self, path: &str) -> io::Result<BootIdentity>;
    /// Waits until an I/O of `bytes` may start: the bound on what is in flight at the device (and, in the simulator,
    /// its latency).
    fn admit(&self, kind: IoKind, bytes: usize) -> BoxFuture<'_, IoPermit>;
}

/// Reads exactly `buf.len()` bytes or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let n = file.read_at(buf, offset)?;
    if n < buf.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("wanted {} bytes at offset {offset}, file ended after {n}", buf.len()),
        ));
    }
    Ok(())
}

/// Replaces the file `path` by one that holds `data`, so that after a power cut it holds either the old or the new
/// contents: writes `path.new`, syncs it, renames it, syncs the directory.
pub fn replace_file(disk: &dyn Disk, path: &str, data: &[u8]) -> io::Result<()> {
    let temp = format!("{path}.new");
    match disk.remove(&temp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.open(&temp, OpenHow::CreateNew)?;
    file.write_at(data, 0)?;
    file.sync_data()?;
    disk.rename(&temp, path)?;
    disk.sync_dir(parent(path))
}

/// The whole contents of a file of at most `max_bytes`; `InvalidData` when it is longer.
pub fn read_file(disk: &dyn Disk, path: &str, max_bytes: usize) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenHow::ReadOnly)?;
    let len = file.len()?;
    if len > max_bytes as u64 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{path} has {len} bytes; at most {max_bytes} were expected"),
        ));
    }
    let mut buf = vec![0; to_usize(len)];
    read_exact_at(&*file, &mut buf, 0)?;
    Ok(buf)
}

/// The directory part of an absolute path.
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}
