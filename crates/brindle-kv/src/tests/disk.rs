//! A disk in memory whose power can be cut: unsynced sectors are dropped, kept, torn and reordered; names likewise.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};

use brindle_stdx::BoxFuture;
use brindle_stdx::disk::{
    BootIdentity, Disk, DiskFile, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow, parent,
};
use parking_lot::Mutex;

use super::sim::Chance;

const SECTOR: usize = 512;
const BLOCK: u64 = 4096;

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    blocks: BTreeSet<u64>,
}

#[derive(Clone)]
enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    next_inode: u64,
    capacity_bytes: u64,
    /// Handles of an earlier process are dead.
    process: u64,
    /// The process dies when this many more changing operations were done.
    dies_after: Option<u64>,
    dead: bool,
    fail_syncs: bool,
    hold_syncs: bool,
    held: Vec<Waker>,
    trace: u64,
    ops: u64,
}

/// The disk; clones share it.
#[derive(Clone)]
pub struct CrashDisk(Arc<Mutex<State>>, u64);

struct CrashFile {
    disk: CrashDisk,
    inode: u64,
    path: String,
    read_only: bool,
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => bytes.resize(*len as usize, 0),
        Change::Write(at, data) => {
            let end = *at as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at as usize..end].copy_from_slice(data);
        }
    }
}

fn apply_name(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
        NameChange::Unlink(name) => drop(names.remove(name)),
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl State {
    /// Counts a changing operation, and says whether the process still lives to do it.
    fn step(&mut self, process: u64, what: impl Hash) -> io::Result<()> {
        if self.dead || process != self.process {
            return Err(dead());
        }
        if self.dies_after == Some(0) {
            self.dead = true;
            return Err(dead());
        }
        self.dies_after = self.dies_after.map(|n| n - 1);
        self.ops += 1;
        let mut hasher = DefaultHasher::new();
        (self.trace, self.ops).hash(&mut hasher);
        what.hash(&mut hasher);
        self.trace = hasher.finish();
        Ok(())
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|i| i.blocks.len() as u64 * BLOCK).sum()
    }

    fn allocate(&mut self, inode: u64, offset: u64, len: u64) -> io::Result<()> {
        let wanted: Vec<u64> = (offset / BLOCK..(offset + len).div_ceil(BLOCK)).collect();
        let have = &self.inodes[&inode].blocks;
        let new = wanted.iter().filter(|b| !have.contains(b)).count() as u64;
        if self.used() + new * BLOCK > self.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inodes.get_mut(&inode).expect("an open inode").blocks.extend(wanted);
        Ok(())
    }

    fn change(&mut self, inode: u64, change: Change) {
        let inode = self.inodes.get_mut(&inode).expect("an open inode");
        apply(&mut inode.now, &change);
        if let Change::SetLen(len) = change {
            let _ = inode.blocks.split_off(&len.div_ceil(BLOCK));
        }
        inode.unsynced.push(change);
    }

    fn drop_unnamed(&mut self) {
        let named: BTreeSet<u64> = self.names.values().chain(self.durable_names.values()).copied().collect();
        self.inodes.retain(|n, _| named.contains(n));
    }
}

impl CrashDisk {
    pub fn new(capacity_bytes: u64) -> CrashDisk {
        CrashDisk(Arc::new(Mutex::new(State { capacity_bytes, ..State::default() })), 0)
    }

    /// The process dies, its files stay as the kernel has them. Returns the disk for the next process.
    pub fn kill(&self) -> CrashDisk {
        let mut state = self.0.lock();
        state.process += 1;
        (state.dead, state.dies_after) = (false, None);
        (state.fail_syncs, state.hold_syncs) = (false, false);
        let process = state.process;
        drop(state);
        CrashDisk(self.0.clone(), process)
    }

    /// The host loses power: any subset of the unsynced sectors survives.
    pub fn power_cut(&self, chance: &mut Chance) -> CrashDisk {
        let mut state = self.0.lock();
        let keep_of_names = chance.below(state.unsynced_names.len() as u64 + 1) as usize;
        let names: Vec<NameChange> = std::mem::take(&mut state.unsynced_names);
        let mut durable_names = std::mem::take(&mut state.durable_names);
        names[..keep_of_names].iter().for_each(|change| apply_name(&mut durable_names, change));
        state.names = durable_names.clone();
        state.durable_names = durable_names;
        for inode in state.inodes.values_mut() {
            let style = chance.below(4);
            for change in std::mem::take(&mut inode.unsynced) {
                match change {
                    Change::SetLen(_) if style == 0 => {}
                    Change::SetLen(_) => apply(&mut inode.durable, &change),
                    Change::Write(at, data) => {
                        for (offset, sector) in sectors(at, &data) {
                            let keep = match style {
                                0 => false,
                                1 => true,
                                2 => chance.below(2) == 0,
                                _ => chance.below(8) != 0,
                            };
                            if keep {
                                apply(&mut inode.durable, &Change::Write(offset, sector.to_vec()));
                            }
                        }
                    }
                }
            }
            inode.now = inode.durable.clone();
        }
        state.drop_unnamed();
        drop(state);
        self.kill()
    }

    /// The process dies in the middle of its work: after this many more changing operations.
    pub fn die_after(&self, ops: u64) {
        self.0.lock().dies_after = Some(ops);
    }

    pub fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// Makes every further sync fail.
    pub fn fail_syncs(&self) {
        self.0.lock().fail_syncs = true;
    }

    /// Async syncs do not return until this is taken back.
    pub fn hold_syncs(&self, hold: bool) {
        let mut state = self.0.lock();
        state.hold_syncs = hold;
        let held = std::mem::take(&mut state.held);
        drop(state);
        held.into_iter().for_each(Waker::wake);
    }

    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_bytes = bytes;
    }

    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// Hash over all changing operations so far, in their order.
    pub fn trace(&self) -> u64 {
        self.0.lock().trace
    }

    /// Every file with its contents.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.0.lock();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[inode].now.clone())).collect()
    }

    /// Changes a file behind everybody's back.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let inode = state.names[path];
        let inode = state.inodes.get_mut(&inode).expect("a named inode");
        edit(&mut inode.now);
        inode.durable = inode.now.clone();
        inode.unsynced.clear();
    }

    /// Puts a file there as it is.
    pub fn put(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        state.next_inode += 1;
        let n = state.next_inode;
        state.inodes.insert(n, Inode { now: bytes.clone(), durable: bytes, ..Inode::default() });
        state.names.insert(path.to_owned(), n);
        state.durable_names.insert(path.to_owned(), n);
    }
}

fn sectors(at: u64, data: &[u8]) -> Vec<(u64, &[u8])> {
    let mut out = Vec::new();
    let mut done = 0;
    while done < data.len() {
        let offset = at + done as u64;
        let n = (SECTOR - offset as usize % SECTOR).min(data.len() - done);
        out.push((offset, &data[done..done + n]));
        done += n;
    }
    out
}

impl CrashFile {
    fn state<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.0.lock();
        if state.dead || state.process != self.disk.1 {
            return Err(dead());
        }
        work(&mut state)
    }

    fn writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.state(|s| {
            s.step(self.disk.1, ("sync", &self.path))?;
            if s.fail_syncs {
                return Err(io::Error::other("the device does not answer"));
            }
            let inode = s.inodes.get_mut(&self.inode).ok_or_else(dead)?;
            for change in std::mem::take(&mut inode.unsynced) {
                apply(&mut inode.durable, &change);
            }
            assert!(inode.durable == inode.now, "the model of syncing is wrong");
            Ok(())
        })
    }
}

impl DiskFile for CrashFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.state(|s| {
            let bytes = &s.inodes[&self.inode].now;
            let from = (offset as usize).min(bytes.len());
            let n = buf.len().min(bytes.len() - from);
            buf[..n].copy_from_slice(&bytes[from..from + n]);
            Ok(n)
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        self.state(|s| {
            s.step(self.disk.1, ("write", &self.path, offset, data))?;
            s.allocate(self.inode, offset, data.len() as u64)?;
            s.change(self.inode, Change::Write(offset, data.to_vec()));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        let mut polls = 0;
        Box::pin(futures_util::future::poll_fn(move |cx| {
            polls += 1;
            let mut state = self.disk.0.lock();
            if state.hold_syncs {
                state.held.push(cx.waker().clone());
                return Poll::Pending;
            }
            drop(state);
            if polls < 3 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.sync())
        }))
    }

    fn len(&self) -> io::Result<u64> {
        self.state(|s| Ok(s.inodes[&self.inode].now.len() as u64))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.writable()?;
        self.state(|s| {
            s.step(self.disk.1, ("set_len", &self.path, len_bytes))?;
            let inode = s.inodes.get_mut(&self.inode).expect("an open inode");
            inode.blocks.retain(|b| b * BLOCK < len_bytes);
            s.change(self.inode, Change::SetLen(len_bytes));
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        self.writable()?;
        self.state(|s| {
            s.step(self.disk.1, ("allocate", &self.path, offset, len_bytes))?;
            s.allocate(self.inode, offset, len_bytes)?;
            if !keep_len && (s.inodes[&self.inode].now.len() as u64) < offset + len_bytes {
                s.change(self.inode, Change::SetLen(offset + len_bytes));
            }
            Ok(())
        })
    }

    fn punch_hole(&self, _offset: u64, _len_bytes: u64) -> io::Result<()> {
        unreachable!("the store punches no holes")
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        self.state(|state| {
            let inode = &state.inodes[&self.inode];
            let len = inode.now.len() as u64;
            let hole = (offset / BLOCK..len.div_ceil(BLOCK)).find(|block| !inode.blocks.contains(block));
            Ok(hole.map_or(len, |block| (block * BLOCK).min(len)).max(offset))
        })
    }

    fn stat(&self) -> io::Result<DiskStat> {
        self.state(|state| {
            let inode = &state.inodes[&self.inode];
            let allocated_bytes = inode.blocks.len() as u64 * BLOCK;
            Ok(DiskStat { len_bytes: inode.now.len() as u64, allocated_bytes, is_dir: false, mtime_ns: 0 })
        })
    }
}

impl CrashDisk {
    fn name_change(&self, change: NameChange, what: impl Hash) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step(self.1, what)?;
        apply_name(&mut state.names, &change);
        state.unsynced_names.push(change);
        Ok(())
    }

    fn has(&self, path: &str) -> io::Result<u64> {
        let state = self.0.lock();
        if state.dead || state.process != self.1 {
            return Err(dead());
        }
        state.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for CrashDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let inode = match (self.has(path), how) {
            (Ok(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(inode), _) => inode,
            (Err(e), OpenHow::CreateNew | OpenHow::OpenOrCreate) if e.kind() == io::ErrorKind::NotFound => {
                let inode = {
                    let mut state = self.0.lock();
                    state.next_inode += 1;
                    state.next_inode
                };
                self.name_change(NameChange::Link(path.to_owned(), inode), ("create", path))?;
                self.0.lock().inodes.insert(inode, Inode::default());
                inode
            }
            (Err(e), _) => return Err(e),
        };
        let read_only = how == OpenHow::ReadOnly;
        Ok(Arc::new(CrashFile { disk: self.clone(), inode, path: path.to_owned(), read_only }))
    }

    fn create_dir_all(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.has(from)?;
        self.name_change(NameChange::Rename(from.to_owned(), to.to_owned()), ("rename", from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let inode = self.has(path)?;
        self.name_change(NameChange::Unlink(path.to_owned()), ("remove", path))?;
        // Space comes back at once; the contents stay for as long as a power cut may bring the name back.
        if let Some(inode) = self.0.lock().inodes.get_mut(&inode) {
            inode.blocks.clear();
        }
        Ok(())
    }

    fn remove_dir(&self, _path: &str) -> io::Result<()> {
        unreachable!("the store removes no directories")
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step(self.1, ("sync_dir", path))?;
        if state.fail_syncs {
            return Err(io::Error::other("the device does not answer"));
        }
        state.unsynced_names.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        if state.dead || state.process != self.1 {
            return Err(dead());
        }
        Ok(state.names.keys().filter(|n| parent(n) == path).map(|n| n[path.len() + 1..].to_owned()).collect())
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        self.open(path, OpenHow::ReadOnly)?.stat()
    }

    fn space(&self, _path: &str) -> io::Result<DiskSpace> {
        let state = self.0.lock();
        Ok(DiskSpace {
            total_bytes: state.capacity_bytes,
            available_bytes: state.capacity_bytes.saturating_sub(state.used()),
            ..DiskSpace::default()
        })
    }

    fn boot_identity(&self, _path: &str) -> io::Result<BootIdentity> {
        Ok(BootIdentity::default())
    }

    fn admit(&self, _kind: IoKind, _bytes: usize) -> BoxFuture<'_, IoPermit> {
        Box::pin(std::future::ready(IoPermit(None)))
    }
}
