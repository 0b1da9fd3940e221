//! The `Disk` and `DiskFile` that one incarnation of a process works with.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use brindle_stdx::disk::{BootIdentity, DiskFile, DiskSpace, DiskStat, IoKind, IoPermit, OpenHow, parent};
use brindle_stdx::{BoxFuture, Clock};
use parking_lot::Mutex;

use super::names::Entry;
use super::{CAPACITY_DEFAULT_BYTES, DiskModel, DiskOp, INODES, InodeId, State, eio};
use crate::exec::{Group, Sleep};
use crate::rng::{mix, mix_text};
use crate::seams::SimClock;

/// Longest ordinary latency of one I/O in microseconds.
const IO_MAX_US: u64 = 150;
/// Bytes per nanosecond of the simulated device.
const BYTES_PER_NS: u64 = 2;

/// A simulated disk, as one incarnation of the process that uses it sees it. Clones share it.
#[derive(Clone)]
pub struct SimDisk {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) group: Arc<Group>,
    /// Of the simulation that the disk belongs to; absent for a disk alone.
    clock: Option<Arc<SimClock>>,
}

impl SimDisk {
    /// An empty disk alone: no simulation is needed around it, nothing takes time, and everything follows from `seed`.
    pub fn new(seed: u64, model: DiskModel) -> SimDisk {
        let state = Arc::new(Mutex::new(State::new("disk", seed, model)));
        SimDisk { state, group: Group::new("disk", 1), clock: None }
    }

    /// An empty disk of a node in a simulation.
    pub(crate) fn of_node(group: Arc<Group>, clock: Arc<SimClock>, seed: u64) -> SimDisk {
        let state = Arc::new(Mutex::new(State::new(group.node(), seed, DiskModel::default())));
        SimDisk { state, group, clock: Some(clock) }
    }

    /// The disk as another incarnation sees it.
    pub(crate) fn seen_by(&self, group: &Arc<Group>) -> SimDisk {
        SimDisk { group: group.clone(), ..self.clone() }
    }

    /// Leaves the disk as a killed process does.
    pub(crate) fn process_died(&self) {
        self.state.lock().process_died();
    }

    /// Leaves the disk as a power cut does.
    pub(crate) fn host_died(&self) {
        self.state.lock().power_cut();
    }

    pub(super) fn count_fault(&self, kind: &'static str) {
        if let Some(clock) = &self.clock {
            clock.sim.trace().count(kind);
        }
    }

    /// Records an operation that changed or synced something.
    fn note(&self, state: &mut State, what: &'static str, path: &str, numbers: &[u64]) {
        let named = mix_text(mix_text(state.ops_hash, what), path);
        state.ops_hash = numbers.iter().fold(named, |hash, n| mix(hash, *n));
        let Some(clock) = &self.clock else { return };
        let mut trace = clock.sim.trace();
        trace.event(what, numbers);
        trace.count("disk operations");
        trace.line(|| format!("{:>15} {} {what} {path} {numbers:?}", "", self.group.node()));
    }

    fn mtime_ns(&self) -> i64 {
        let Some(clock) = &self.clock else { return 0 };
        let t = clock.wall();
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
        change: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Write)?;
        change(&mut state)?;
        state.collect_some();
        let ops = state.ops;
        self.note(&mut state, what, path, &[ops]);
        Ok(())
    }
}

impl brindle_stdx::Disk for SimDisk {
    fn open(&self, path: &str, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let found = match state.names.get(path) {
            Ok(Entry::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(Entry::File(id)) => Some(id),
            Err(_) => None,
        };
        let id = match (found, how) {
            (Some(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => {
                state.begin(&self.group, DiskOp::Read)?;
                id
            }
            (None, OpenHow::Existing | OpenHow::ReadOnly) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenHow::CreateNew | OpenHow::OpenOrCreate) => {
                state.begin(&self.group, DiskOp::Write)?;
                let block_bytes = state.model.block_bytes;
                state.reserve(block_bytes)?;
                let id = state.new_inode(self.mtime_ns());
                if let Err(e) = state.names.create(path, id) {
                    state.collect();
                    return Err(e);
                }
                self.note(&mut state, "create", path, &[id]);
                id
            }
        };
        state.inode(id)?.handles += 1;
        drop(state);
        Ok(self.file(id, path, how == OpenHow::ReadOnly))
    }

    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        self.change("mkdir", path, |state| state.names.create_dir_all(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change("rename", to, |state| state.names.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change("remove", path, |state| match state.failing.stuck.contains(path) {
            true => Err(eio("the file is stuck")),
            false => state.names.remove(path),
        })
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.change("rmdir", path, |state| state.names.remove_dir(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Sync)?;
        if !state.lies {
            state.names.sync_dir(path)?;
        }
        state.collect_some();
        let ops = state.ops;
        self.note(&mut state, "sync_dir", path, &[ops]);
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Read)?;
        state.names.list(path)
    }

    fn stat(&self, path: &str) -> io::Result<DiskStat> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Read)?;
        match state.names.get(path)? {
            Entry::Dir => Ok(DiskStat { len_bytes: 0, allocated_bytes: 0, is_dir: true, mtime_ns: 0 }),
            Entry::File(id) => stat_of(&mut state, id),
        }
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Read)?;
        state.names.get(path)?;
        let total_bytes = state.capacity_bytes.unwrap_or(CAPACITY_DEFAULT_BYTES);
        Ok(DiskSpace {
            total_bytes,
            available_bytes: total_bytes.saturating_sub(state.used_bytes()),
            total_inodes: INODES,
            free_inodes: INODES.saturating_sub(state.inodes.len() as u64),
            device_id: mix_text(0, &state.name),
        })
    }

    fn keep_room(&self, path: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Write)?;
        state.names.get(parent(path))?;
        let more = bytes.saturating_sub(state.kept_bytes);
        state.reserve(more)?;
        state.kept_bytes = bytes;
        Ok(())
    }

    fn kept_room(&self, _path: &str) -> io::Result<u64> {
        Ok(self.state.lock().kept_bytes)
    }

    fn boot_identity(&self, path: &str) -> io::Result<BootIdentity> {
        let mut state = self.state.lock();
        state.begin(&self.group, DiskOp::Read)?;
        state.names.get(path)?;
        Ok(BootIdentity { boot_id: state.boot_id(), mount_id: state.cuts + 1 })
    }

    fn admit(&self, _kind: IoKind, bytes: usize) -> BoxFuture<'_, IoPermit> {
        let mut state = self.state.lock();
        let latency_ns = state.rng.between(10_000, IO_MAX_US * 1_000);
        let permits = state.permits.clone();
        drop(state);
        let wait = self.clock.as_ref().map(|clock| {
            Sleep::new(clock.sim.clone(), clock.sim.now_ns() + latency_ns + bytes as u64 / BYTES_PER_NS)
        });
        Box::pin(async move {
            if let Some(wait) = wait {
                wait.await;
            }
            let Some(permits) = permits else { return IoPermit(None) };
            let permit = permits.acquire_owned().await.expect("nobody closes the permits");
            IoPermit(Some(Box::new(permit)))
        })
    }
}

fn stat_of(state: &mut State, id: InodeId) -> io::Result<DiskStat> {
    let inode = state.inode(id)?;
    Ok(DiskStat {
        len_bytes: inode.content.len(),
        allocated_bytes: inode.content.allocated_bytes(),
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
        change: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::from_raw_os_error(9));
        }
        let mut state = self.disk.state.lock();
        state.begin(&self.disk.group, DiskOp::Write)?;
        change(&mut state)?;
        state.inode(self.id)?.mtime_ns = self.disk.mtime_ns();
        self.disk.note(&mut state, what, &self.path, numbers);
        Ok(())
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        state.begin(&self.disk.group, DiskOp::Read)?;
        look(&mut state)
    }

    /// Ends a sync that began at `mark`.
    fn finish_sync(&self, mark: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        match state.begin(&self.disk.group, DiskOp::SyncFile) {
            Ok(()) if state.lies => {}
            Ok(()) => state.inode(self.id)?.content.sync(mark),
            Err(e) => {
                if self.disk.group.is_alive() && !state.frozen {
                    state.inode(self.id)?.content.sync_failed(mark);
                }
                return Err(e);
            }
        }
        self.disk.note(&mut state, "sync", &self.path, &[self.id, mark]);
        Ok(())
    }

    /// Waits for as long as an asynchronous sync takes.
    async fn take_time(&self, delay_ns: u64) {
        match &self.disk.clock {
            Some(clock) => Sleep::new(clock.sim.clone(), clock.sim.now_ns() + delay_ns).await,
            None => {
                let pauses = self.disk.state.lock().model.sync_pauses;
                for _ in 0..pauses {
                    pause().await;
                }
            }
        }
        let held = |cx: &mut std::task::Context<'_>| match &mut self.disk.state.lock().held_syncs {
            Some(held) => {
                held.push(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        };
        std::future::poll_fn(held).await;
    }
}

/// Lets other tasks run once.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.look(|state| {
            let end = offset.saturating_add(buf.len() as u64);
            let lost = &state.failing.lost;
            if lost.iter().any(|(id, lost)| *id == self.id && lost.start < end && offset < lost.end) {
                return Err(eio("the medium has lost it"));
            }
            Ok(state.inode(self.id)?.content.read(buf, offset))
        })
    }

    fn read_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.read_at(buf, offset)?;
        if self.disk.state.lock().failing.stale_direct {
            buf[..read].fill(0);
        }
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (len, sum) = (data.len() as u64, u64::from(brindle_stdx::crc(data)));
        self.change("write", &[self.id, offset, len, sum], |state| {
            if state.failing.hits_write(self.id, offset) {
                return Err(eio("injected"));
            }
            let room = state.room_bytes();
            let content = &mut state.inode(self.id)?.content;
            // As on Linux, a write to a full disk takes what fits.
            let fits = if room == u64::MAX { len } else { content.fitting_bytes(offset, len, room) };
            content.write(&data[..fits as usize], offset);
            let end = offset + fits;
            state.failing.lost.retain(|(id, lost)| *id != self.id || lost.start < offset || end < lost.end);
            if fits < len { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mark = self.look(|state| Ok(state.inode(self.id)?.content.begin_sync()))?;
        self.finish_sync(mark)
    }

    fn sync_data_async(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let (mark, delay_ns) = self.look(|state| {
                let (low_ms, high_ms) = state.sync_ms;
                let delay_ns = 100_000 + state.rng.between(low_ms * 1_000_000, high_ms * 1_000_000);
                Ok((state.inode(self.id)?.content.begin_sync(), delay_ns))
            })?;
            self.take_time(delay_ns).await;
            self.finish_sync(mark)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.look(|state| Ok(state.inode(self.id)?.content.len()))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.change("set_len", &[self.id, len_bytes], |state| {
            if state.failing.len_max.is_some_and(|max| len_bytes > max) {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            state.inode(self.id)?.content.set_len(len_bytes);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        self.change("allocate", &[self.id, offset, len_bytes], |state| {
            let missing = state.inode(self.id)?.content.missing_bytes(offset, len_bytes);
            state.reserve(missing)?;
            state.inode(self.id)?.content.allocate(offset, len_bytes, keep_len);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.change("punch", &[self.id, offset, len_bytes], |state| {
            state.inode(self.id)?.content.punch(offset, len_bytes);
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.look(|state| Ok(state.inode(self.id)?.content.next_data(offset)))
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        self.look(|state| Ok(state.inode(self.id)?.content.next_hole(offset)))
    }

    fn stat(&self) -> io::Result<DiskStat> {
        self.look(|state| stat_of(state, self.id))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        // After the death of the process its handles do not count any more.
        if !self.disk.group.is_alive() {
            return;
        }
        if let Ok(inode) = state.inode(self.id) {
            inode.handles -= 1;
            if inode.handles == 0 {
                state.collect_some();
            }
        }
    }
}
