//! A disk in memory for tests. A process may die at any operation. A power cut drops, tears and reorders unsynced
//! writes, sector by sector.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;

use brindle_stdx::disk::{BootIdentity, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow, parent};
use brindle_stdx::{BoxFuture, Clock, Disk, DiskFile, Mono, Rng, Seams, Spawn, Task, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

type Sector = [u8; SECTOR as usize];

#[derive(Default, Clone)]
struct Inode {
    now: BTreeMap<u64, Sector>,
    len: u64,
    synced: BTreeMap<u64, Sector>,
    synced_len: u64,
    /// Every version of a sector since the last sync; `None` is a hole.
    history: BTreeMap<u64, Vec<Option<Sector>>>,
    /// Lengths since the last sync, and whether each was set as such.
    len_history: Vec<(u64, bool)>,
}

impl Inode {
    fn note(&mut self, sector: u64) {
        let version = self.now.get(&sector).copied();
        self.history.entry(sector).or_default().push(version);
    }

    fn write(&mut self, data: &[u8], offset: u64) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (sector, within) = (at / SECTOR, (at % SECTOR) as usize);
            let n = rest.len().min(SECTOR as usize - within);
            self.now.entry(sector).or_insert([0; SECTOR as usize])[within..within + n]
                .copy_from_slice(&rest[..n]);
            self.note(sector);
            at += n as u64;
            rest = &rest[n..];
        }
        self.len = self.len.max(at);
        let carried = self.len_history.last().map_or(self.synced_len, |(len, _)| *len);
        if at > carried {
            self.len_history.push((at, false));
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        let touched: Vec<u64> =
            self.now.range(start / SECTOR..end.div_ceil(SECTOR)).map(|(s, _)| *s).collect();
        for sector in touched {
            let (from, to) = (sector * SECTOR, (sector + 1) * SECTOR);
            if start <= from && to <= end {
                self.now.remove(&sector);
            } else if let Some(bytes) = self.now.get_mut(&sector) {
                let (a, b) = (start.max(from) - from, end.min(to) - from);
                bytes[a as usize..b as usize].fill(0);
            }
            self.note(sector);
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len);
        }
        self.len = len;
        self.len_history.push((len, true));
    }

    /// Makes a sync fail: written bytes count as clean and never reach the platter; holes and set lengths
    /// wait for the next sync.
    fn sync_failed(&mut self) {
        self.history.retain(|_, versions| {
            versions.retain(Option::is_none);
            !versions.is_empty()
        });
        self.len_history.retain(|(_, set)| *set);
    }

    fn sync(&mut self) {
        for (sector, mut versions) in std::mem::take(&mut self.history) {
            match versions.pop().flatten() {
                Some(bytes) => drop(self.synced.insert(sector, bytes)),
                None => drop(self.synced.remove(&sector)),
            }
        }
        self.synced_len = self.len_history.last().map_or(self.synced_len, |(len, _)| *len);
        self.len_history.clear();
    }

    fn cut(&mut self, random: &mut u64) {
        for (sector, versions) in std::mem::take(&mut self.history) {
            match draw(random) as usize % (versions.len() + 1) {
                0 => {}
                n => drop(match versions[n - 1] {
                    Some(bytes) => self.synced.insert(sector, bytes),
                    None => self.synced.remove(&sector),
                }),
            }
        }
        let lens = std::mem::take(&mut self.len_history);
        self.len = match draw(random) as usize % (lens.len() + 1) {
            0 => self.synced_len,
            n => lens[n - 1].0,
        };
        self.now = std::mem::take(&mut self.synced);
        let len = self.len;
        self.zero(len, u64::MAX);
        self.history.clear();
        self.synced = self.now.clone();
        self.synced_len = len;
    }
}

#[derive(Default)]
struct Tree {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    dirs: BTreeSet<String>,
    synced_names: BTreeMap<String, usize>,
    synced_dirs: BTreeSet<String>,
    random: u64,
    boot: u64,
    ops: u64,
    die_at: Option<u64>,
    fail_syncs: u32,
    /// Syncs of files that succeed before the next failure.
    syncs_before_failure: u32,
    /// Other tasks run during a sync.
    slow_syncs: bool,
    /// Files whose next writes of their first bytes fail, and how many of them.
    fail_begins: BTreeMap<usize, u32>,
    /// I/Os that may be in flight at once, if that is bounded.
    permits: Option<Arc<Semaphore>>,
    /// Direct reads do not see written bytes.
    stale_direct: bool,
    capacity: Option<u64>,
    /// Bytes kept by [`Disk::keep_room`].
    kept: u64,
    len_max: Option<u64>,
    stuck: BTreeSet<String>,
    /// Bytes of files that cannot be read.
    lost: Vec<(usize, std::ops::Range<u64>)>,
}

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Tree {
    /// Counts an operation that changes something; after the one at which the process dies, none has an effect.
    fn op(&mut self) -> io::Result<()> {
        self.ops += 1;
        match self.die_at {
            Some(at) if self.ops >= at => Err(Error::other("the process is dead")),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        let live: BTreeSet<usize> = self.names.values().copied().collect();
        let used: u64 = live.iter().map(|i| self.inodes[*i].now.len() as u64 * SECTOR).sum();
        used + self.kept
    }

    fn power_cut(&mut self) {
        let mut random = self.random;
        let all: BTreeSet<String> = self.names.keys().chain(self.synced_names.keys()).cloned().collect();
        let mut names = BTreeMap::new();
        let mut dirs = self.synced_dirs.clone();
        for dir in &self.dirs {
            if draw(&mut random).is_multiple_of(2) {
                dirs.insert(dir.clone());
            }
        }
        let whole = |dirs: &BTreeSet<String>, path: &str| {
            let mut at = parent(path);
            while at != "/" && dirs.contains(at) {
                at = parent(at);
            }
            at == "/"
        };
        let dirs: BTreeSet<String> = dirs.iter().filter(|d| whole(&dirs, d)).cloned().collect();
        for path in all {
            let (now, synced) = (self.names.get(&path), self.synced_names.get(&path));
            let kept = if draw(&mut random).is_multiple_of(2) { now } else { synced };
            if let Some(inode) = kept.filter(|_| whole(&dirs, &path)) {
                names.insert(path, *inode);
            }
        }
        self.inodes.iter_mut().for_each(|i| i.cut(&mut random));
        self.names = names.clone();
        self.synced_names = names;
        self.dirs = dirs.clone();
        self.synced_dirs = dirs;
        self.random = random;
        self.boot += 1;
        self.die_at = None;
    }
}

/// The disk.
pub(crate) struct CrashDisk {
    tree: Arc<Mutex<Tree>>,
}

impl CrashDisk {
    pub fn new(seed: u64) -> Arc<CrashDisk> {
        let tree = Tree { random: seed, ..Tree::default() };
        Arc::new(CrashDisk { tree: Arc::new(Mutex::new(tree)) })
    }

    /// Cuts the power: unsynced bytes survive in part, and the host boots anew.
    pub fn power_cut(&self) {
        self.tree.lock().power_cut();
    }

    /// From the n-th operation on nothing has an effect any more.
    pub fn die_after(&self, n: u64) {
        let mut t = self.tree.lock();
        t.die_at = Some(t.ops + n);
    }

    /// The process is gone; a new one may use the disk.
    pub fn revive(&self) {
        self.tree.lock().die_at = None;
    }

    /// Simulates a failed writeback: the page cache has bytes that the device lacks.
    pub fn stale_direct(&self) {
        self.tree.lock().stale_direct = true;
    }

    /// The next `n` syncs of files fail, and lose what they should have written.
    pub fn fail_syncs(&self, n: u32) {
        self.tree.lock().fail_syncs = n;
    }

    /// Like [`CrashDisk::fail_syncs`] for one sync, after `n` that succeed.
    pub fn fail_sync_after(&self, n: u32) {
        let mut t = self.tree.lock();
        (t.syncs_before_failure, t.fail_syncs) = (n, 1);
    }

    /// Lets other tasks run during a sync; their writes may or may not be covered.
    pub fn slow_syncs(&self) {
        self.tree.lock().slow_syncs = true;
    }

    /// The next `n` writes of the first bytes of a file fail and change nothing.
    pub fn fail_begins(&self, path: &str, n: u32) {
        let mut t = self.tree.lock();
        let inode = t.names[path];
        t.fail_begins.insert(inode, n);
    }

    /// At most `n` I/Os are in flight at once from now on.
    pub fn limit_in_flight(&self, n: usize) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(n));
        self.tree.lock().permits = Some(permits.clone());
        permits
    }

    /// Files cannot be set to be longer from now on.
    pub fn limit_len(&self, len_max: u64) {
        self.tree.lock().len_max = Some(len_max);
    }

    /// Reads of these bytes of a file fail from now on, as of a sector that the medium has lost, until they are written.
    pub fn fail_reads(&self, path: &str, bytes: std::ops::Range<u64>) {
        let mut t = self.tree.lock();
        let inode = t.names[path];
        t.lost.push((inode, bytes));
    }

    /// A file that cannot be removed.
    pub fn stick(&self, path: String) {
        self.tree.lock().stuck.insert(path);
    }

    pub fn limit(&self, capacity: u64) {
        self.tree.lock().capacity = Some(capacity);
    }

    /// Inverts a byte where it lies, as rotten media do.
    pub fn flip(&self, path: &str, offset: u64) {
        let mut t = self.tree.lock();
        let inode = t.names[path];
        let inode = &mut t.inodes[inode];
        for map in [&mut inode.now, &mut inode.synced] {
            map.entry(offset / SECTOR).or_insert([0; SECTOR as usize])[(offset % SECTOR) as usize] ^= 0xff;
        }
    }

    fn inode_of(&self, path: &str) -> io::Result<usize> {
        self.tree.lock().names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

struct CrashFile {
    tree: Arc<Mutex<Tree>>,
    inode: usize,
}

impl DiskFile for CrashFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let t = self.tree.lock();
        let wanted = offset..offset + buf.len() as u64;
        let is_lost = |lost: &std::ops::Range<u64>| lost.start < wanted.end && wanted.start < lost.end;
        if t.lost.iter().any(|(inode, lost)| *inode == self.inode && is_lost(lost)) {
            return Err(Error::other("the medium has lost it"));
        }
        let inode = &t.inodes[self.inode];
        let n = (inode.len.saturating_sub(offset) as usize).min(buf.len());
        let buf = &mut buf[..n];
        buf.fill(0);
        let end = offset + n as u64;
        for (sector, bytes) in inode.now.range(offset / SECTOR..end.div_ceil(SECTOR)) {
            let at = sector * SECTOR;
            let (from, to) = (offset.max(at), end.min(at + SECTOR));
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(n)
    }

    fn read_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.read_at(buf, offset)?;
        if self.tree.lock().stale_direct {
            buf[..read].fill(0);
        }
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        let written = offset..offset + data.len() as u64;
        let is_within = |lost: &std::ops::Range<u64>| written.start <= lost.start && lost.end <= written.end;
        t.lost.retain(|(inode, lost)| *inode != self.inode || !is_within(lost));
        if offset == 0
            && let Some(left) = t.fail_begins.get_mut(&self.inode)
            && *left > 0
        {
            *left -= 1;
            return Err(Error::other("the disk failed"));
        }
        if let Some(capacity) = t.capacity {
            let mut left = capacity.saturating_sub(t.used());
            let mut at = offset;
            while at < offset + data.len() as u64 {
                let page_end = (at / PAGE + 1) * PAGE;
                let stop = page_end.min(offset + data.len() as u64);
                let inode = &mut t.inodes[self.inode];
                let have = inode.now.range(at / SECTOR..page_end / SECTOR).count() > 0;
                if !have && left < PAGE {
                    return Err(ErrorKind::StorageFull.into());
                }
                left -= if have { 0 } else { PAGE };
                inode.write(&data[(at - offset) as usize..(stop - offset) as usize], at);
                at = stop;
            }
            return Ok(());
        }
        t.inodes[self.inode].write(data, offset);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        if t.fail_syncs > 0 && t.syncs_before_failure > 0 {
            t.syncs_before_failure -= 1;
        } else if t.fail_syncs > 0 {
            t.fail_syncs -= 1;
            t.inodes[self.inode].sync_failed();
            return Err(Error::other("the disk failed"));
        }
        t.inodes[self.inode].sync();
        Ok(())
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            let (is_slow, is_early) = {
                let mut t = self.tree.lock();
                (t.slow_syncs, draw(&mut t.random).is_multiple_of(2))
            };
            if !is_slow {
                return self.sync_data();
            }
            if is_early {
                let synced = self.sync_data();
                tokio::task::yield_now().await;
                return synced;
            }
            tokio::task::yield_now().await;
            self.sync_data()
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.tree.lock().inodes[self.inode].len)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        if t.len_max.is_some_and(|max| len_bytes > max) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        t.inodes[self.inode].set_len(len_bytes);
        Ok(())
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        if let Some(capacity) = t.capacity {
            let pages: BTreeSet<u64> = t.inodes[self.inode].now.keys().map(|s| s * SECTOR / PAGE).collect();
            let wanted = offset / PAGE..(offset + len_bytes).div_ceil(PAGE);
            let missing = wanted.filter(|p| !pages.contains(p)).count() as u64;
            if missing * PAGE > capacity.saturating_sub(t.used()) {
                return Err(ErrorKind::StorageFull.into());
            }
        }
        let inode = &mut t.inodes[self.inode];
        if !keep_len && inode.len < offset + len_bytes {
            inode.set_len(offset + len_bytes);
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        t.inodes[self.inode].zero(offset, offset + len_bytes);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let t = self.tree.lock();
        let inode = &t.inodes[self.inode];
        let first = inode.now.range(offset / PAGE * PAGE / SECTOR..).next();
        let at = first.map(|(s, _)| (s * SECTOR / PAGE * PAGE).max(offset));
        Ok(at.filter(|at| *at < inode.len))
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        let t = self.tree.lock();
        let inode = &t.inodes[self.inode];
        let mut at = offset;
        while at < inode.len {
            let page = at / PAGE * PAGE;
            if inode.now.range(page / SECTOR..(page + PAGE) / SECTOR).next().is_none() {
                return Ok(at);
            }
            at = page + PAGE;
        }
        Ok(inode.len.max(offset))
    }

    fn stat(&self) -> io::Result<DiskStat> {
        let t = self.tree.lock();
        let inode = &t.inodes[self.inode];
        let pages: BTreeSet<u64> = inode.now.keys().map(|s| s * SECTOR / PAGE).collect();
        let allocated_bytes = pages.len() as u64 * PAGE;
        Ok(DiskStat { len_bytes: inode.len, allocated_bytes, is_dir: false, mtime_ns: 0 })
    }
}

impl Disk for CrashDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut t = self.tree.lock();
        let inode = match (t.names.get(path).copied(), how) {
            (Some(_), OpenHow::CreateNew) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => inode,
            (None, OpenHow::Existing | OpenHow::ReadOnly) => return Err(ErrorKind::NotFound.into()),
            (None, _) => {
                t.op()?;
                if parent(path) != "/" && !t.dirs.contains(parent(path)) {
                    return Err(ErrorKind::NotFound.into());
                }
                t.inodes.push(Inode::default());
                let inode = t.inodes.len() - 1;
                t.names.insert(path.to_owned(), inode);
                inode
            }
        };
        Ok(Arc::new(CrashFile { tree: self.tree.clone(), inode }))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        let mut at = path;
        while at != "/" {
            t.dirs.insert(at.to_owned());
            if t.boot == 0 && at.matches('/').count() == 1 {
                t.synced_dirs.insert(at.to_owned());
            }
            at = parent(at);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        let inode = t.names.remove(from).ok_or(ErrorKind::NotFound)?;
        t.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut t = self.tree.lock();
        if !t.names.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        t.op()?;
        if t.stuck.contains(path) {
            return Err(Error::other("the disk failed"));
        }
        t.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.tree.lock().dirs.remove(path);
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut t = self.tree.lock();
        t.op()?;
        let t = &mut *t;
        let here = |p: &String| parent(p) == path;
        t.synced_names.retain(|p, _| !here(p));
        t.synced_names.extend(t.names.iter().filter(|(p, _)| here(p)).map(|(p, i)| (p.clone(), *i)));
        t.synced_dirs.extend(t.dirs.iter().filter(|p| here(p)).cloned());
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let t = self.tree.lock();
        if !t.dirs.contains(path) {
            return Err(ErrorKind::NotFound.into());
        }
        let all = t.names.keys().chain(&t.dirs).filter(|p| parent(p) == path);
        let mut names: Vec<String> = all.map(|p| p[path.len() + 1..].to_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        let inode = self.inode_of(path)?;
        CrashFile { tree: self.tree.clone(), inode }.stat()
    }

    fn space(&self, _path: &str) -> io::Result<DiskSpace> {
        let t = self.tree.lock();
        let total_bytes = t.capacity.unwrap_or(1 << 40);
        let available_bytes = total_bytes.saturating_sub(t.used());
        Ok(DiskSpace { total_bytes, available_bytes, total_inodes: 0, free_inodes: 0, device_id: 1 })
    }

    fn keep_room(&self, _path: &str, bytes: u64) -> io::Result<()> {
        let mut t = self.tree.lock();
        let others = t.used() - t.kept;
        if bytes > t.kept && t.capacity.is_some_and(|capacity| others + bytes > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        t.kept = bytes;
        Ok(())
    }

    fn kept_room(&self, _path: &str) -> io::Result<u64> {
        Ok(self.tree.lock().kept)
    }

    fn boot_identity(&self, _path: &str) -> io::Result<BootIdentity> {
        Ok(BootIdentity { boot_id: format!("boot-{}", self.tree.lock().boot), mount_id: 1 })
    }

    fn admit(&self, _kind: IoKind, _bytes: usize) -> BoxFuture<'_, IoPermit> {
        let permits = self.tree.lock().permits.clone();
        Box::pin(async move {
            let Some(permits) = permits else { return IoPermit(None) };
            let permit = permits.acquire_owned().await.ok();
            IoPermit(permit.map(|p| Box::new(p) as Box<dyn Send + Sync>))
        })
    }
}

/// Time that moves when a test says so.
#[derive(Default)]
pub(crate) struct TestClock(pub Mutex<Mono>);

impl TestClock {
    pub fn advance_ms(&self, ms: u64) {
        let mut now = self.0.lock();
        *now = now.plus_ms(ms);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Mono {
        *self.0.lock()
    }
    fn wall(&self) -> Timestamp {
        let ns = self.now().0;
        Timestamp::new((ns / 1_000_000_000) as i64 + 1_000_000, (ns % 1_000_000_000) as u32)
    }
    fn sleep_until(&self, _at: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

struct NoRng;

impl Rng for NoRng {
    fn next_u64(&self) -> u64 {
        4
    }
}

struct NoTasks;

impl Spawn for NoTasks {
    fn spawn(&self, _name: &'static str, task: Task) {
        drop(task);
    }
}

/// Seams over a disk, with a clock of the test's own and no background tasks.
pub(crate) fn seams(disk: Arc<dyn Disk>, clock: Arc<TestClock>) -> Seams {
    Seams { clock, rng: Arc::new(NoRng), tasks: Arc::new(NoTasks), disk }
}

/// Runs a future that waits for nothing outside.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work)
}
