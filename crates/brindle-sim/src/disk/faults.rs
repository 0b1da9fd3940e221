//! Faults of a simulated disk, and what tests look at. All of it works whatever incarnation runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use brindle_stdx::disk::parent;
use tokio::sync::Semaphore;

use super::names::Entry;
use super::{InodeId, SimDisk, State};

/// Kinds of disk operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOp {
    /// Reads, opens of existing files, listings.
    Read,
    /// All operations that change contents or names.
    Write,
    /// Syncs of files and directories.
    Sync,
    /// Syncs of files.
    SyncFile,
}

/// Size of a disk whose room is limited: what OSTs keep back of it is more than they write in a run.
pub const LIMITED_BYTES: u64 = 64 << 20;

impl State {
    fn file(&self, path: &str) -> Option<InodeId> {
        match self.names.get(path) {
            Ok(Entry::File(id)) => Some(id),
            _ => None,
        }
    }
}

impl SimDisk {
    /// The process that uses the disk is killed; what it wrote stays. Returns the disk for the next process.
    pub fn kill(&self) -> SimDisk {
        self.group.die();
        self.state.lock().process_died();
        self.seen_by(&self.group.next())
    }

    /// The host loses power: the process is gone, and of what it did not sync goes what [`super::Survival`] says.
    /// Returns the disk for the next process.
    pub fn power_cut(&self) -> SimDisk {
        self.group.die();
        self.state.lock().power_cut();
        self.seen_by(&self.group.next())
    }

    /// After `ops` more operations that change or sync something, every operation of this incarnation fails: a crash
    /// point between any two operations. Forgotten when the process dies.
    pub fn die_after(&self, ops: u64) {
        self.state.lock().freeze_after = Some(ops);
    }

    /// Like [`SimDisk::die_after`], and `tell` is called when the point is reached, with the disk locked.
    pub fn die_after_and(&self, ops: u64, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.freeze_after = Some(ops);
        state.on_freeze = Some(Box::new(tell));
    }

    /// Whether the crash point was reached.
    pub fn is_dead(&self) -> bool {
        self.state.lock().frozen
    }

    /// Power cuts so far.
    pub fn cuts(&self) -> u64 {
        self.state.lock().cuts
    }

    /// Operations so far that changed or synced something.
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// Hash of all operations so far that changed or synced something, in their order.
    pub fn ops_hash(&self) -> u64 {
        self.state.lock().ops_hash
    }

    /// Makes the next `count` operations of a kind fail with EIO. After a failed sync the pages count as clean, and
    /// never reach the platter unless they are written again.
    pub fn fail_next(&self, op: DiskOp, count: u64) {
        self.fail_later(op, 0, count);
    }

    /// Like [`SimDisk::fail_next`], after `good` operations of that kind that succeed.
    pub fn fail_later(&self, op: DiskOp, good: u64, count: u64) {
        self.count_fault(match op {
            DiskOp::Read => "disk read error",
            DiskOp::Write => "disk write error",
            DiskOp::Sync | DiskOp::SyncFile => "disk sync error",
        });
        self.state.lock().failing.next.insert(op, (good, count));
    }

    /// The next `count` writes to a file that begin at `offset` fail and change nothing.
    pub fn fail_writes_at(&self, path: &str, offset: u64, count: u64) {
        let mut state = self.state.lock();
        let id = state.file(path).expect("the file exists");
        state.failing.writes_at.insert((id, offset), count);
    }

    /// Reads of these bytes of a file fail from now on, as of a sector that the medium has lost, until all of them are written.
    pub fn fail_reads(&self, path: &str, bytes: Range<u64>) {
        let mut state = self.state.lock();
        let id = state.file(path).expect("the file exists");
        state.failing.lost.push((id, bytes));
    }

    /// The file cannot be removed from now on.
    pub fn stick(&self, path: &str) {
        self.state.lock().failing.stuck.insert(path.to_owned());
    }

    /// Files cannot be set to be longer from now on.
    pub fn limit_len(&self, len_max: u64) {
        self.state.lock().failing.len_max = Some(len_max);
    }

    /// Simulates a failed writeback from now on: the page cache has bytes that the device lacks.
    pub fn make_direct_reads_stale(&self) {
        self.state.lock().failing.stale_direct = true;
    }

    /// Sets how often an asynchronous sync lets other tasks run ([`super::DiskModel::sync_pauses`]).
    pub fn set_sync_pauses(&self, pauses: u32) {
        self.state.lock().model.sync_pauses = pauses;
    }

    /// Asynchronous syncs do not return until this is taken back.
    pub fn hold_syncs(&self, hold: bool) {
        let mut state = self.state.lock();
        let held = if hold {
            state.held_syncs.get_or_insert_default();
            None
        } else {
            state.held_syncs.take()
        };
        drop(state);
        held.into_iter().flatten().for_each(Waker::wake);
    }

    /// The disk lies from now on: syncs return at once, and what they should have synced is lost in a power cut as if nobody had asked.
    pub fn lie(&self, lies: bool) {
        if lies {
            self.count_fault("lying disk");
        }
        self.state.lock().lies = lies;
    }

    /// At most `count` I/Os are in flight at once from now on.
    pub fn limit_in_flight(&self, count: usize) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(count));
        self.state.lock().permits = Some(permits.clone());
        permits
    }

    /// Leaves this much room on a disk of [`LIMITED_BYTES`] (ENOSPC beyond it); `None` for a disk that is never full.
    pub fn set_room_bytes(&self, bytes: Option<u64>) {
        let mut state = self.state.lock();
        // A disk of that size would never have had room for it; the node finds out.
        state.kept_bytes = 0;
        state.filled_bytes = 0;
        state.capacity_bytes = None;
        let Some(bytes) = bytes else { return };
        let used = state.used_bytes();
        let capacity = LIMITED_BYTES.max(used + bytes);
        state.capacity_bytes = Some(capacity);
        state.filled_bytes = capacity - used - bytes;
        drop(state);
        self.count_fault("disk full");
    }

    /// Sets the size of the disk; `None` for one that is never full.
    pub fn set_capacity_bytes(&self, bytes: Option<u64>) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// Sets the duration of an asynchronous sync, in milliseconds. Only disks of a simulation have one.
    pub fn set_sync_ms(&self, shortest: u64, longest: u64) {
        if longest > 100 {
            self.count_fault("slow disk");
        }
        self.state.lock().sync_ms = (shortest, longest.max(shortest));
    }

    /// Flips a bit of the stored byte at `offset` of a file; false if it takes no space.
    pub fn rot(&self, path: &str, offset: u64) -> bool {
        let mut state = self.state.lock();
        let Some(id) = state.file(path) else { return false };
        let hit = state.inode(id).is_ok_and(|inode| {
            let has_space = inode.content.has_space(offset);
            if has_space {
                inode.content.flip(offset, 0x10);
            }
            has_space
        });
        drop(state);
        if hit {
            self.count_fault("bit rot");
        }
        hit
    }

    /// Inverts the byte at `offset` of a file where it lies, in a hole as well.
    pub fn flip(&self, path: &str, offset: u64) {
        self.edit_content(path, |content| content.flip(offset, 0xff));
    }

    /// Takes a file away, with what a power cut could bring back of its name; false if there is none.
    pub fn lose(&self, path: &str) -> bool {
        let mut state = self.state.lock();
        let is_lost = state.names.remove(path).is_ok() && state.names.sync_dir(parent(path)).is_ok();
        drop(state);
        if is_lost {
            self.count_fault("file lost");
        }
        is_lost
    }

    /// Contents of a file as a process would read them; `None` if it does not exist.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let content = &state.inodes.get(&state.file(path)?)?.content;
        let mut bytes = vec![0; content.len() as usize];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Paths of all files.
    pub fn files(&self) -> Vec<String> {
        let state = self.state.lock();
        let files = state.names.live().filter(|(_, e)| matches!(e, Entry::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Every file with its contents.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.files().into_iter().filter_map(|path| self.read(&path).map(|bytes| (path, bytes))).collect()
    }

    /// Puts a durable directory there.
    pub fn put_dir(&self, path: &str) {
        self.state.lock().names.put(path, Entry::Dir);
    }

    /// Puts a durable file there, in directories that are made where they are missing.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let id = state.new_inode(0);
        state.names.put(path, Entry::File(id));
        if let Some(inode) = state.inodes.get_mut(&id) {
            inode.content.replace(bytes);
        }
    }

    /// Changes a file behind everybody's back, on the platter as well.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(path).expect("the file exists");
        edit(&mut bytes);
        self.edit_content(path, |content| content.replace(&bytes));
    }

    fn edit_content(&self, path: &str, edit: impl FnOnce(&mut super::Content)) {
        let mut state = self.state.lock();
        let id = state.file(path).expect("the file exists");
        edit(&mut state.inode(id).expect("a named file has contents").content);
    }
}
