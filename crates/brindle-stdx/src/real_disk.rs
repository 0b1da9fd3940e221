//! [`Disk`] over the Linux file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
use tokio::sync::Semaphore;

use crate::BoxFuture;
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
    runtime: tokio::runtime::Handle,
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

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
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
        Ok(Arc::new(RealFile { file: Arc::new(o.open(path)?), runtime: self.runtime.clone() }))
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
