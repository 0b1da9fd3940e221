//! [`Disk`] over the Linux file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::sync::Semaphore;

use crate::BoxFuture;
use crate::buffers::ALIGN_BYTES;
use crate::cast::to_usize;
use crate::disk::{BootIdentity, Disk, DiskFile, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow};

/// Most I/Os that may be in flight at the device at once, over all targets of the process.
const IO_IN_FLIGHT_MAX: usize = 64;

/// The local file system of this machine.
pub struct RealDisk {
    runtime: tokio::runtime::Handle,
    in_flight: Arc<Semaphore>,
}

impl RealDisk {
    /// Slow calls run on the blocking threads of `runtime`.
    pub fn new(runtime: tokio::runtime::Handle) -> RealDisk {
        RealDisk { runtime, in_flight: Arc::new(Semaphore::new(IO_IN_FLIGHT_MAX)) }
    }
}

struct RealFile {
    file: Arc<File>,
    /// The file opened for direct I/O, at the first direct request; `None` where there is none.
    direct: OnceLock<Option<File>>,
    runtime: tokio::runtime::Handle,
}

impl RealFile {
    fn new(file: File, runtime: tokio::runtime::Handle) -> RealFile {
        RealFile { file: Arc::new(file), direct: OnceLock::new(), runtime }
    }

    fn direct(&self) -> Option<&File> {
        let open = || {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            // A file system without direct I/O refuses; then everything goes through the page cache.
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_in_memory(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        let len = buf.len();
        let mut parts = [io::IoSliceMut::new(buf)];
        match rustix::io::preadv2(&*self.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) => Ok(n == len),
            // (AGAIN: none of the bytes are in memory.)
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::OPNOTSUPP) => Ok(self.read_at(buf, offset)? == len),
            Err(e) => Err(e.into()),
        }
    }

    /// (A read with RWF_NOWAIT starts readahead of missing pages, so it is only the fallback.)
    fn is_in_memory(&self, offset: u64, len_bytes: u64) -> io::Result<bool> {
        match cached_pages(&self.file, offset, len_bytes) {
            Ok(pages) => Ok(pages > 0),
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
                let len_bytes = to_usize(len_bytes.min(ALIGN_BYTES as u64));
                self.read_in_memory(&mut [0; ALIGN_BYTES][..len_bytes], offset)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn fetch(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let len = std::num::NonZeroU64::new(len_bytes);
        Ok(rustix::fs::fadvise(&*self.file, offset, len, rustix::fs::Advice::WillNeed)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn write_direct(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(direct) = self.direct().filter(|_| done < data.len()) {
            match direct.write_at(&data[done..], offset + done as u64) {
                Ok(n) if n > 0 && n % ALIGN_BYTES == 0 => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() != io::ErrorKind::InvalidInput => return Err(e),
                // The device wants another alignment, or the rest is less than a block of it.
                _ => break,
            }
        }
        self.write_at(&data[done..], offset + done as u64)
    }

    fn read_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(direct) = self.direct().filter(|_| done < buf.len()) {
            match direct.read_at(&mut buf[done..], offset + done as u64) {
                Ok(n) if n > 0 && n % ALIGN_BYTES == 0 => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() != io::ErrorKind::InvalidInput => return Err(e),
                // The file ends there, or the device wants another alignment.
                Ok(n) => {
                    done += n;
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(done + self.read_at(&mut buf[done..], offset + done as u64)?)
    }

    fn read_no_further(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&*self.file, 0, None, rustix::fs::Advice::Random)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        let file = self.file.clone();
        let job = self.runtime.spawn_blocking(move || file.sync_data());
        Box::pin(async move { job.await.map_err(io::Error::other)? })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.file.set_len(len_bytes)
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        let flags = if keep_len { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        Ok(rustix::fs::fallocate(self.file.as_fd(), flags, offset, len_bytes)?)
    }

    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(self.file.as_fd(), flags, offset, len_bytes)?)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        match rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::Hole(offset)) {
            Ok(at) => Ok(at),
            Err(rustix::io::Errno::NXIO) => Ok(offset.max(self.len()?)),
            Err(e) => Err(e.into()),
        }
    }

    fn stat(&self) -> io::Result<DiskStat> {
        Ok(stat_of(&self.file.metadata()?))
    }
}

fn stat_of(m: &std::fs::Metadata) -> DiskStat {
    DiskStat {
        len_bytes: m.len(),
        allocated_bytes: m.blocks() * 512,
        is_dir: m.is_dir(),
        mtime_ns: m.mtime().saturating_mul(1_000_000_000).saturating_add(m.mtime_nsec()),
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut o = OpenOptions::new();
        o.read(true).write(how != OpenHow::ReadOnly);
        match how {
            OpenHow::Existing | OpenHow::ReadOnly => {}
            OpenHow::CreateNew => {
                o.create_new(true);
            }
            OpenHow::OpenOrCreate => {
                o.create(true);
            }
        }
        Ok(Arc::new(RealFile::new(o.open(path)?, self.runtime.clone())))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        Ok(stat_of(&std::fs::metadata(path)?))
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let s = rustix::fs::statvfs(path)?;
        Ok(DiskSpace {
            // Without what is kept for root, so that what is not available is what is used, as df(1) counts.
            total_bytes: s.f_blocks.saturating_sub(s.f_bfree.saturating_sub(s.f_bavail)) * s.f_frsize,
            available_bytes: s.f_bavail * s.f_frsize,
            total_inodes: s.f_files,
            free_inodes: s.f_ffree,
            device_id: std::fs::metadata(path)?.dev(),
        })
    }

    fn keep_room(&self, path: &str, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let stat = file.metadata()?;
        if bytes <= stat.len() {
            return file.set_len(bytes);
        }
        // From the beginning, should a power cut have kept the length without the blocks.
        match rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            Err(e) => {
                // Gives back what was taken before there was no more.
                file.set_len(stat.len())?;
                Err(e.into())
            }
        }
    }

    fn kept_room(&self, path: &str) -> io::Result<u64> {
        match std::fs::metadata(path) {
            Ok(stat) => Ok(stat.len().min(stat.blocks() * 512)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn boot_identity(&self, path: &str) -> io::Result<BootIdentity> {
        /// STATX_MNT_ID_UNIQUE of linux/stat.h (since 6.8); older kernels answer STATX_MNT_ID, which a remount may
        /// give out again, so that the boot id alone decides there.
        const MNT_ID_UNIQUE: u32 = 0x4000;
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let dir = File::open(path)?;
        let flags = StatxFlags::from_bits_retain(MNT_ID_UNIQUE);
        let s = rustix::fs::statx(&dir, "", AtFlags::EMPTY_PATH, flags)?;
        Ok(BootIdentity { boot_id, mount_id: s.stx_mnt_id })
    }

    fn admit(&self, _kind: IoKind, _bytes: usize) -> BoxFuture<'_, IoPermit> {
        let in_flight = self.in_flight.clone();
        Box::pin(async move {
            let permit = in_flight.acquire_owned().await.ok();
            IoPermit(permit.map(|p| Box::new(p) as Box<dyn Send + Sync>))
        })
    }
}

/// Pages of the range that are in the page cache (`cachestat(2)`, Linux 6.5; one number on all architectures).
fn cached_pages(file: &File, offset: u64, len_bytes: u64) -> Result<u64, Errno> {
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        offset: u64,
        len_bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct ListedEntry {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let (range, mut found) = (Range { offset, len_bytes }, ListedEntry::default());
    // SAFETY: the call reads one structure and fills the other, which have the layout that it expects.
    let done = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) };
    if done == 0 {
        return Ok(found.cached);
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffer;

    /// A new file beside the program, on a disk: what is in memory only has no direct I/O. With its directory and its path.
    fn new_file(runtime: &tokio::runtime::Runtime) -> (tempfile::TempDir, String, Arc<dyn DiskFile>) {
        let near = std::env::current_exe().expect("this program");
        let dir = tempfile::tempdir_in(near.parent().expect("its directory")).expect("a directory");
        let path = dir.path().join("f").display().to_string();
        let file = RealDisk::new(runtime.handle().clone()).open(&path, OpenHow::CreateNew).expect("made");
        (dir, path, file)
    }

    #[test]
    fn what_is_not_in_memory_is_told_and_can_be_fetched() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (_dir, path, file) = new_file(&runtime);
        file.write_at(&[7; 64 << 10], 0).expect("written");
        file.sync_data().expect("synced");
        let mut buf = [0; 4096];
        assert!(file.read_in_memory(&mut buf, 4096).expect("read") && buf == [7; 4096]);
        assert!(!file.read_in_memory(&mut buf, 64 << 10).expect("read"), "there is nothing behind the end");
        let raw = File::open(&path).expect("opened");
        rustix::fs::fadvise(&raw, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
        let is_there = || file.is_in_memory(8192, 4096).expect("told");
        if is_there() {
            return println!("this file system keeps everything in memory");
        }
        assert!((0..1000).all(|_| !is_there()), "looking brings it there");
        file.fetch(0, 64 << 10).expect("begun");
        let mut found = [0; 4096];
        assert_eq!(file.read_at(&mut found, 8192).expect("read"), 4096);
        assert!(found == [7; 4096] && is_there());
        assert!(file.read_in_memory(&mut buf, 8192).expect("read"));
    }

    /// Whole blocks, and their neighbours through the page cache: whichever way bytes went, both ways show them.
    #[test]
    fn direct_and_buffered_io_of_one_file_see_each_other() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (_dir, _, file) = new_file(&runtime);
        let mut expected = vec![0u8; 64 * ALIGN_BYTES];
        for round in 0..200u64 {
            let (from, blocks) = ((round * 7 % 50) as usize, 1 + (round % 13) as usize);
            let (at, len) = (from * ALIGN_BYTES, blocks * ALIGN_BYTES);
            let mut data = Buffer::new(len);
            data.fill(round as u8);
            if round % 3 == 0 {
                // The range is not aligned: the neighbouring blocks stay in the page cache.
                file.write_at(&data[..len - 100], at as u64 + 50).expect("written");
                expected[at + 50..at + len - 50].fill(round as u8);
            } else {
                file.write_direct(&data, at as u64).expect("written");
                expected[at..at + len].fill(round as u8);
            }
            let mut found = Buffer::new(expected.len());
            let reading =
                if round % 2 == 0 { file.read_at(&mut found, 0) } else { file.read_direct(&mut found, 0) };
            let read = reading.expect("read");
            found[read..].fill(0);
            assert_eq!(read as u64, file.len().expect("a length"));
            assert!(found[..read] == expected[..read], "round {round}");
            assert!(expected[read..].iter().all(|byte| *byte == 0), "round {round}");
        }
    }

    #[test]
    fn direct_io_of_what_has_none_goes_through_the_page_cache() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let disk = RealDisk::new(runtime.handle().clone());
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let file = disk.open(&dir.path().join("f").display().to_string(), OpenHow::CreateNew).expect("made");
        let mut data = Buffer::new(2 * ALIGN_BYTES);
        data.fill(9);
        file.write_direct(&data, 0).expect("written");
        // Neither the offset nor the memory is aligned: the kernel refuses, or takes a part.
        file.write_direct(&data[1..1025], 513).expect("written");
        let mut found = Buffer::new(3 * ALIGN_BYTES);
        assert_eq!(file.read_direct(&mut found, 0).expect("read"), 2 * ALIGN_BYTES);
        assert_eq!(file.read_direct(&mut found[1..1025], 513).expect("read"), 1024);
        assert_eq!(file.len().expect("a length"), 2 * ALIGN_BYTES as u64);
    }
}
