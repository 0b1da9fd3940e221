//! The `Disk` and `DiskFile` that one incarnation of a node works with.

use std::io;
use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_stdx::disk::{BootIdentity, DiskFile, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow};
use parking_lot::Mutex;

use super::names::Entry;
use super::{Disk, DiskOp, INODES, InodeId, SECTOR_LEN};
use crate::sim::exec::{Group, Sleep};
use crate::sim::seams::SimClock;
use crate::sim::world::Shared;

/// Longest ordinary latency of one I/O in microseconds.
const IO_MAX_US: u64 = 150;
/// Bytes per nanosecond of the simulated device.
const BYTES_PER_NS: u64 = 2;

/// An incarnation's view of its node's disk.
#[derive(Clone)]
pub(in crate::sim) struct SimDisk {
    pub shared: Arc<Shared>,
    pub group: Arc<Group>,
    pub disk: Arc<Mutex<Disk>>,
    pub clock: Arc<SimClock>,
}

impl SimDisk {
    fn note(&self, what: &'static str, path: &str, numbers: &[u64]) {
        let mut trace = self.shared.trace.lock();
        trace.event(what, numbers);
        trace.count("disk operations");
        trace.line(|| format!("{:>15} {} {what} {path} {numbers:?}", "", self.group.node));
    }

    fn mtime_ns(&self) -> i64 {
        let t = brindle_stdx::Clock::wall(&*self.clock);
        t.secs * 1_000_000_000 + i64::from(t.nanos)
    }

    fn file(&self, id: InodeId, path: &str, read_only: bool) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), id, path: path.to_owned(), read_only })
    }

    /// Checks that the process may change names now, and changes them.
    fn change(
        &self,
        what: &'static str,
        path: &str,
        change: impl FnOnce(&mut Disk) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Write)?;
        change(&mut disk)?;
        disk.collect_some();
        let ops = disk.ops;
        drop(disk);
        self.note(what, path, &[ops]);
        Ok(())
    }
}

impl brindle_stdx::Disk for SimDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut disk = self.disk.lock();
        let found = match disk.names.get(path) {
            Ok(Entry::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(Entry::File(id)) => Some(id),
            Err(_) => None,
        };
        let id = match (found, how) {
            (Some(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => {
                disk.begin(&self.group, DiskOp::Read)?;
                id
            }
            (None, OpenHow::Existing | OpenHow::ReadOnly) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenHow::CreateNew | OpenHow::OpenOrCreate) => {
                disk.begin(&self.group, DiskOp::Write)?;
                disk.reserve(1)?;
                let id = disk.new_inode(self.mtime_ns());
                if let Err(e) = disk.names.create(path, id) {
                    disk.collect();
                    return Err(e);
                }
                self.note("create", path, &[id]);
                id
            }
        };
        disk.inode(id)?.handles += 1;
        drop(disk);
        Ok(self.file(id, path, how == OpenHow::ReadOnly))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        self.change("mkdir", path, |disk| disk.names.create_dir_all(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change("rename", to, |disk| disk.names.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change("remove", path, |disk| disk.names.remove(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.change("rmdir", path, |disk| disk.names.remove_dir(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Sync)?;
        disk.names.sync_dir(path)?;
        disk.collect_some();
        let ops = disk.ops;
        drop(disk);
        self.note("sync_dir", path, &[ops]);
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Read)?;
        disk.names.list(path)
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Read)?;
        match disk.names.get(path)? {
            Entry::Dir => Ok(DiskStat { len_bytes: 0, allocated_bytes: 0, is_dir: true, mtime_ns: 0 }),
            Entry::File(id) => stat_of(&mut disk, id),
        }
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Read)?;
        disk.names.get(path)?;
        Ok(DiskSpace {
            total_bytes: disk.capacity_bytes,
            available_bytes: disk.capacity_bytes.saturating_sub(disk.used_bytes()),
            total_inodes: INODES,
            free_inodes: INODES.saturating_sub(disk.inodes.len() as u64),
            device_id: crate::sim::rng::mix_text(0, &disk.node),
        })
    }

    fn keep_room(&self, path: &str, bytes: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Write)?;
        disk.names.get(path.rsplit_once('/').map_or("/", |(dir, _)| dir))?;
        let others = disk.used_bytes() - disk.kept_bytes;
        if bytes > disk.kept_bytes && others + bytes > disk.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.kept_bytes = bytes;
        Ok(())
    }

    fn kept_room(&self, _path: &str) -> io::Result<u64> {
        Ok(self.disk.lock().kept_bytes)
    }

    fn boot_identity(&self, path: &str) -> io::Result<BootIdentity> {
        let mut disk = self.disk.lock();
        disk.begin(&self.group, DiskOp::Read)?;
        disk.names.get(path)?;
        Ok(BootIdentity { boot_id: disk.boot_id(), mount_id: disk.cuts + 1 })
    }

    fn admit(&self, _kind: IoKind, bytes: usize) -> BoxFuture<'_, IoPermit> {
        let latency_ns = self.disk.lock().rng.between(10_000, IO_MAX_US * 1_000);
        let at_ns = self.shared.now_ns() + latency_ns + bytes as u64 / BYTES_PER_NS;
        Box::pin(async move {
            Sleep::new(self.shared.clone(), at_ns).await;
            IoPermit(None)
        })
    }
}

fn stat_of(disk: &mut Disk, id: InodeId) -> io::Result<DiskStat> {
    let inode = disk.inode(id)?;
    Ok(DiskStat {
        len_bytes: inode.content.len(),
        allocated_bytes: (inode.content.sectors() * SECTOR_LEN) as u64,
        is_dir: false,
        mtime_ns: inode.mtime_ns,
    })
}

struct SimFile {
    disk: SimDisk,
    id: InodeId,
    /// The name it was opened under, for traces.
    path: String,
    read_only: bool,
}

impl SimFile {
    /// Checks that the process may change the file now, changes it, and records that.
    fn change(
        &self,
        what: &'static str,
        numbers: &[u64],
        change: impl FnOnce(&mut Disk) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::from_raw_os_error(9));
        }
        let mut disk = self.disk.disk.lock();
        disk.begin(&self.disk.group, DiskOp::Write)?;
        change(&mut disk)?;
        disk.inode(self.id)?.mtime_ns = self.disk.mtime_ns();
        drop(disk);
        self.disk.note(what, &self.path, numbers);
        Ok(())
    }

    fn read<T>(&self, read: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.disk.lock();
        disk.begin(&self.disk.group, DiskOp::Read)?;
        read(&mut disk)
    }

    /// Ends a sync that began at `mark`.
    fn finish_sync(&self, mark: u64) -> io::Result<()> {
        let mut disk = self.disk.disk.lock();
        match disk.begin(&self.disk.group, DiskOp::Sync) {
            Ok(()) => disk.inode(self.id)?.content.sync(mark),
            Err(e) => {
                if self.disk.group.is_alive() && !disk.frozen {
                    disk.inode(self.id)?.content.sync_failed(mark);
                }
                return Err(e);
            }
        }
        drop(disk);
        self.disk.note("sync", &self.path, &[self.id, mark]);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(|disk| Ok(disk.inode(self.id)?.content.read(buf, offset)))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let sum = u64::from(brindle_stdx::crc(data));
        self.change("write", &[self.id, offset, data.len() as u64, sum], |disk| {
            let missing = disk.inode(self.id)?.content.missing(offset, data.len() as u64);
            disk.reserve(missing)?;
            disk.inode(self.id)?.content.write(data, offset);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mark = self.read(|disk| Ok(disk.inode(self.id)?.content.begin_sync()))?;
        self.finish_sync(mark)
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let (mark, delay_ns) = self.read(|disk| {
                let (low_ms, high_ms) = disk.sync_ms;
                let delay_ns = 100_000 + disk.rng.between(low_ms * 1_000_000, high_ms * 1_000_000);
                Ok((disk.inode(self.id)?.content.begin_sync(), delay_ns))
            })?;
            let shared = self.disk.shared.clone();
            let at_ns = shared.now_ns() + delay_ns;
            Sleep::new(shared, at_ns).await;
            self.finish_sync(mark)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.read(|disk| Ok(disk.inode(self.id)?.content.len()))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.change("set_len", &[self.id, len_bytes], |disk| {
            disk.inode(self.id)?.content.set_len(len_bytes);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        self.change("allocate", &[self.id, offset, len_bytes], |disk| {
            let missing = disk.inode(self.id)?.content.missing(offset, len_bytes);
            disk.reserve(missing)?;
            disk.inode(self.id)?.content.allocate(offset, len_bytes, keep_len);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.change("punch", &[self.id, offset, len_bytes], |disk| {
            disk.inode(self.id)?.content.punch(offset, len_bytes);
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.read(|disk| Ok(disk.inode(self.id)?.content.next_data(offset)))
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        self.read(|disk| Ok(disk.inode(self.id)?.content.next_hole(offset)))
    }

    fn stat(&self) -> io::Result<DiskStat> {
        self.read(|disk| stat_of(disk, self.id))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.disk.disk.lock();
        // After the death of the process its handles do not count any more.
        if !self.disk.group.is_alive() {
            return;
        }
        if let Ok(inode) = disk.inode(self.id) {
            inode.handles -= 1;
            if inode.handles == 0 {
                disk.collect_some();
            }
        }
    }
}
