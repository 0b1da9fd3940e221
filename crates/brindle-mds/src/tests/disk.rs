//! A disk in memory: what was written is there, until a cut takes what was not synced.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use brindle_stdx::disk::{BootIdentity, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow};
use brindle_stdx::{BoxFuture, Disk, DiskFile};
use parking_lot::Mutex;

/// Ranges that are remembered one by one; beyond them all between counts as changed.
const RANGES_MAX: usize = 256;

/// Files are large and syncs are many: a sync copies what has changed.
#[derive(Default)]
struct Contents {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Ranges that have changed since the last sync.
    changed: Vec<Range<usize>>,
}

impl Contents {
    fn note(&mut self, range: Range<usize>) {
        self.changed.push(range);
        if self.changed.len() > RANGES_MAX {
            let from = self.changed.iter().map(|r| r.start).min().unwrap_or(0);
            let end = self.changed.iter().map(|r| r.end).max().unwrap_or(0);
            self.changed.clear();
            self.changed.push(from..end);
        }
    }

    fn set_len(&mut self, len: usize) {
        self.note(len..self.now.len().max(len));
        resize(&mut self.now, len);
    }

    fn sync(&mut self) {
        let len = self.now.len();
        resize(&mut self.synced, len);
        for range in std::mem::take(&mut self.changed) {
            let (from, end) = (range.start.min(len), range.end.min(len));
            self.synced[from..end].copy_from_slice(&self.now[from..end]);
        }
    }
}

/// Zeros of an empty file take no time: the allocator has pages of them.
fn resize(bytes: &mut Vec<u8>, len: usize) {
    match bytes.is_empty() {
        true => *bytes = vec![0; len],
        false => bytes.resize(len, 0),
    }
}

#[derive(Clone, Default)]
pub struct MemFile(Arc<Mutex<Contents>>);

#[derive(Default)]
pub struct MemDisk {
    files: Mutex<BTreeMap<String, MemFile>>,
    /// Answer of `space`.
    pub free_bytes: Mutex<Option<u64>>,
}

impl MemDisk {
    /// Every file loses its unsynced bytes. Names stay.
    pub fn power_cut(&self) {
        for file in self.files.lock().values() {
            let mut contents = file.0.lock();
            contents.now = contents.synced.clone();
            contents.changed.clear();
        }
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let contents = self.0.lock();
        let from = (offset as usize).min(contents.now.len());
        let n = buf.len().min(contents.now.len() - from);
        buf[..n].copy_from_slice(&contents.now[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = self.0.lock();
        let end = offset as usize + data.len();
        if contents.now.len() < end {
            contents.set_len(end);
        }
        contents.now[offset as usize..end].copy_from_slice(data);
        contents.note(offset as usize..end);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().sync();
        Ok(())
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        let done = self.sync_data();
        Box::pin(std::future::ready(done))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().now.len() as u64)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.lock().set_len(len_bytes as usize);
        Ok(())
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        let end = (offset + len_bytes) as usize;
        let mut contents = self.0.lock();
        if !keep_len && contents.now.len() < end {
            contents.set_len(end);
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let mut contents = self.0.lock();
        let len = contents.now.len();
        let (from, end) = ((offset as usize).min(len), ((offset + len_bytes) as usize).min(len));
        contents.now[from..end].fill(0);
        contents.note(from..end);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }

    fn next_hole(&self, _offset: u64) -> io::Result<u64> {
        self.len()
    }

    fn stat(&self) -> io::Result<DiskStat> {
        let len_bytes = self.len()?;
        Ok(DiskStat { len_bytes, allocated_bytes: len_bytes, is_dir: false, mtime_ns: 0 })
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files.lock();
        let kind = match (files.contains_key(path), how) {
            (true, OpenHow::CreateNew) => Some(io::ErrorKind::AlreadyExists),
            (false, OpenHow::Existing | OpenHow::ReadOnly) => Some(io::ErrorKind::NotFound),
            _ => None,
        };
        match kind {
            Some(kind) => Err(kind.into()),
            None => Ok(Arc::new(files.entry(path.to_owned()).or_default().clone())),
        }
    }

    fn create_dir_all(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.lock().remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let files = self.files.lock();
        let names = files.keys().filter_map(|p| p.strip_prefix(&prefix)).filter(|n| !n.contains('/'));
        Ok(names.map(str::to_owned).collect())
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        let files = self.files.lock();
        match files.get(path) {
            Some(file) => file.stat(),
            None if files.keys().any(|p| p.starts_with(&format!("{path}/"))) => {
                Ok(DiskStat { len_bytes: 0, allocated_bytes: 0, is_dir: true, mtime_ns: 0 })
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn space(&self, _path: &str) -> io::Result<DiskSpace> {
        let total_bytes = 1 << 40;
        let available_bytes = self.free_bytes.lock().unwrap_or(total_bytes);
        Ok(DiskSpace { total_bytes, available_bytes, ..DiskSpace::default() })
    }

    fn boot_identity(&self, _path: &str) -> io::Result<BootIdentity> {
        Ok(BootIdentity { boot_id: "boot".into(), mount_id: 1 })
    }

    fn admit(&self, _kind: IoKind, _bytes: usize) -> BoxFuture<'_, IoPermit> {
        Box::pin(std::future::ready(IoPermit(None)))
    }
}
