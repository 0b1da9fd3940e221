//! Faults of a simulated disk, and what tests look at.

use std::sync::Arc;

use brindle_stdx::disk::parent;
use parking_lot::Mutex;

use super::names::Entry;
use super::{CAPACITY_DEFAULT_BYTES, Disk};
use crate::sim::world::Shared;

/// Kinds of disk operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOp {
    /// Reads, opens of existing files, listings.
    Read,
    /// All operations that change contents or names.
    Write,
    /// Syncs of files and directories.
    Sync,
}

/// A test's hand on the disk of a node; works at any time, whatever incarnation runs.
#[derive(Clone)]
pub struct DiskControl {
    pub(in crate::sim) shared: Arc<Shared>,
    pub(in crate::sim) disk: Arc<Mutex<Disk>>,
}

/// Size of a disk whose room is limited: what OSTs keep back of it is more than they write in a run.
pub const LIMITED_BYTES: u64 = 64 << 20;

impl DiskControl {
    /// After `ops` more operations that change or sync something, every operation of this incarnation fails: a crash
    /// point between any two operations. [`crate::sim::World::crash_after`] makes the crash follow at once.
    pub fn fail_after(&self, ops: u64) {
        self.disk.lock().freeze_after = Some(ops);
    }

    pub(in crate::sim) fn on_freeze(&self, tell: impl FnOnce() + Send + 'static) {
        self.disk.lock().on_freeze = Some(Box::new(tell));
    }

    /// Whether the disk is frozen.
    pub fn is_frozen(&self) -> bool {
        self.disk.lock().frozen
    }

    /// Power cuts so far.
    pub fn cuts(&self) -> u64 {
        self.disk.lock().cuts
    }

    /// Operations so far that changed or synced something.
    pub fn ops(&self) -> u64 {
        self.disk.lock().ops
    }

    /// Makes the next `count` operations of a kind fail with EIO. After a failed sync the pages count as clean, and
    /// never reach the platter unless they are written again.
    pub fn fail_next(&self, op: DiskOp, count: u64) {
        self.shared.trace.lock().count(match op {
            DiskOp::Read => "disk read error",
            DiskOp::Write => "disk write error",
            DiskOp::Sync => "disk sync error",
        });
        self.disk.lock().fail_next.insert(op, count);
    }

    /// Leaves this much room on a disk of [`LIMITED_BYTES`] (ENOSPC beyond it); `None` for the usual, very large disk.
    pub fn set_room_bytes(&self, bytes: Option<u64>) {
        let mut disk = self.disk.lock();
        // A disk of that size would never have had room for it; the node finds out.
        disk.kept_bytes = 0;
        disk.filled_bytes = 0;
        disk.capacity_bytes = CAPACITY_DEFAULT_BYTES;
        let Some(bytes) = bytes else { return };
        let used = disk.used_bytes();
        disk.capacity_bytes = LIMITED_BYTES.max(used + bytes);
        disk.filled_bytes = disk.capacity_bytes - used - bytes;
        drop(disk);
        self.shared.trace.lock().count("disk full");
    }

    /// Sets the duration of an asynchronous sync, in milliseconds.
    pub fn set_sync_ms(&self, shortest: u64, longest: u64) {
        if longest > 100 {
            self.shared.trace.lock().count("slow disk");
        }
        self.disk.lock().sync_ms = (shortest, longest.max(shortest));
    }

    /// Flips a bit of the stored byte at `offset` of a file; false if there is none.
    pub fn rot(&self, path: &str, offset: u64) -> bool {
        let mut disk = self.disk.lock();
        let Ok(Entry::File(id)) = disk.names.get(path) else { return false };
        let hit = disk.inode(id).is_ok_and(|inode| inode.content.rot(offset));
        drop(disk);
        if hit {
            self.shared.trace.lock().count("bit rot");
        }
        hit
    }

    /// Takes a file away, with what a power cut could bring back of its name; false if there is none.
    pub fn lose(&self, path: &str) -> bool {
        let mut disk = self.disk.lock();
        let is_lost = disk.names.remove(path).is_ok() && disk.names.sync_dir(parent(path)).is_ok();
        drop(disk);
        if is_lost {
            self.shared.trace.lock().count("file lost");
        }
        is_lost
    }

    /// Contents of a file as a process would read them; `None` if it does not exist.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut disk = self.disk.lock();
        let Ok(Entry::File(id)) = disk.names.get(path) else { return None };
        let content = &disk.inode(id).ok()?.content;
        let mut bytes = vec![0; content.len() as usize];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Paths of all files.
    pub fn files(&self) -> Vec<String> {
        let disk = self.disk.lock();
        let files = disk.names.live().filter(|(_, e)| matches!(e, Entry::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }
}
