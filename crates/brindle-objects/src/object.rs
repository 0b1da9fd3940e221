//! An object in memory, and the table of open objects.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use brindle_stdx::disk::{DiskFile, OpenHow};
use brindle_stdx::{Disk, Mono};
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, ObjectId};
use parking_lot::Mutex;

use crate::format::{HEADER_SECTOR, Header, HeaderState, blocks, object_len};
use crate::names;
use crate::ranges::RangeLock;

/// Most objects with an open file; those that are in use or unsynced come on top.
const OPEN_MAX: usize = 4096;
/// When the table is full, this part of it is given up at once.
const EVICT_PART: usize = 8;

/// An object, existing or not.
pub(crate) struct Object {
    pub id: ObjectId,
    /// Locks of block ranges. Every operation holds the blocks that it touches; an operation that changes the
    /// object's shape holds [`crate::ranges::ALL`].
    pub locks: RangeLock,
    /// Held while the object is synced or changes its shape; taken before `locks`.
    pub syncing: tokio::sync::Mutex<()>,
    pub state: Mutex<State>,
}

pub(crate) struct State {
    /// The object's file; there is one for mere fences, too.
    pub file: Option<Arc<dyn DiskFile>>,
    /// Header as in the file, except for `last_write`, which the file learns at the next sync.
    pub header: Header,
    pub len: u64,
    /// A file of this name exists whose header never reached the disk.
    pub leftover: bool,
    /// Boot term in which what a crash had left was put right.
    pub settled_term: u32,
    /// Removed: a task that still holds this entry looks the object up again.
    pub gone: bool,
    /// Counts changes; the object is clean while `synced_changes` is the same.
    pub changes: u64,
    pub synced_changes: u64,
    /// The file system was read-only when the file was opened: only reads go through it.
    pub is_read_only: bool,
    /// Overwrites of blocks below this need a write intent: synced, or about to be by a sync that runs.
    pub intent_floor: u64,
    /// The header was written behind the last sync.
    pub header_unsynced: bool,
    /// Bytes still to be read through the page cache, because a piece was read again ([`crate::recent`]).
    pub keep_bytes: u64,
}

impl State {
    pub fn exists(&self) -> bool {
        self.file.is_some() && !self.header.fence_only
    }

    pub fn clean(&self) -> bool {
        self.changes == self.synced_changes
    }

    /// Writes the header's sector.
    pub fn put_header(&mut self) -> io::Result<()> {
        self.header_unsynced = true;
        match &self.file {
            Some(file) => file.write_at(&self.header.encode(), 0),
            None => Ok(()),
        }
    }

    /// The file is shorter than its synced part, which no crash explains.
    pub fn cut_by_others(&self) -> bool {
        self.exists() && blocks(self.len) < self.header.synced_blocks && self.header.pending_cut.is_none()
    }

    /// Bytes that the object takes on the device, without headers and sums.
    pub fn allocated_bytes(&self) -> u64 {
        let Some(file) = self.file.as_ref().filter(|_| self.exists()) else { return 0 };
        let raw = file.stat().map_or(0, |s| s.allocated_bytes);
        crate::format::data_allocated(raw)
    }
}

impl Object {
    /// Reads the state of an object from the disk.
    fn load(disk: &dyn Disk, root: &str, fs_id: u64, id: ObjectId) -> Result<Object, Fault> {
        let path = names::path(root, &id);
        let io = |e: io::Error| Fault::io(Code::OstIo, "cannot open", format!("object {id}"), &e);
        let mut state = State {
            file: None,
            header: Header::new(id, fs_id),
            len: 0,
            leftover: false,
            settled_term: 0,
            gone: false,
            changes: 0,
            synced_changes: 0,
            keep_bytes: 0,
            intent_floor: 0,
            header_unsynced: false,
            is_read_only: false,
        };
        let opened = match disk.open(&path, OpenHow::Existing) {
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
                state.is_read_only = true;
                disk.open(&path, OpenHow::ReadOnly)
            }
            other => other,
        };
        match opened {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(io(e)),
            Ok(file) => {
                file.read_no_further().map_err(io)?;
                let mut sector = [0; HEADER_SECTOR];
                let n = file.read_at(&mut sector, 0).map_err(io)?;
                match Header::decode(&sector[..n]) {
                    HeaderState::Never => state.leftover = true,
                    HeaderState::Damaged(why) => return Err(damaged(id, why)),
                    HeaderState::Good(header) => state.adopt(file, header, id, fs_id)?,
                }
            }
        }
        Ok(Object {
            id,
            locks: RangeLock::default(),
            syncing: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
        })
    }
}

impl State {
    fn adopt(
        &mut self,
        file: Arc<dyn DiskFile>,
        header: Header,
        id: ObjectId,
        fs_id: u64,
    ) -> Result<(), Fault> {
        if header.object != id {
            return Err(damaged(id, format!("its file holds object {}", header.object)));
        }
        if header.fs_id != fs_id {
            return Err(damaged(id, format!("it belongs to file system {:016x}", header.fs_id)));
        }
        let stat =
            file.stat().map_err(|e| Fault::io(Code::OstIo, "cannot open", format!("object {id}"), &e))?;
        self.len = object_len(stat.len_bytes);
        self.header = header;
        self.intent_floor = self.header.synced_blocks;
        if self.header.dirty || !self.header.linked {
            self.changes = 1;
        }
        if self.header.dirty {
            // The time in the header is that of the first write since the sync; the file system knows the last.
            let (epoch, time) = self.header.last_write.unwrap_or_default();
            self.header.last_write = Some((epoch, time.max(Time::from_ns(stat.mtime_ns))));
        }
        self.file = Some(file);
        Ok(())
    }
}

/// The fault of an object whose file is not what it should be.
pub(crate) fn damaged(id: ObjectId, why: String) -> Fault {
    Fault::new(Code::ObjectDamaged)
        .subject(format!("object {id}"))
        .why(why)
        .data("nothing of it was returned")
}

/// The objects that are open.
#[derive(Default)]
pub(crate) struct Table {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<ObjectId, (u64, Arc<Object>)>,
    tick: u64,
}

impl Table {
    /// The object, loaded if need be.
    pub fn get(&self, disk: &dyn Disk, root: &str, fs_id: u64, id: ObjectId) -> Result<Arc<Object>, Fault> {
        let mut inner = self.inner.lock();
        inner.tick += 1;
        let tick = inner.tick;
        if let Some((last_use, object)) = inner.objects.get_mut(&id) {
            *last_use = tick;
            return Ok(object.clone());
        }
        if inner.objects.len() >= OPEN_MAX {
            inner.evict();
        }
        let object = Arc::new(Object::load(disk, root, fs_id, id)?);
        inner.objects.insert(id, (tick, object.clone()));
        Ok(object)
    }

    /// Forgets a removed object.
    pub fn forget(&self, object: &Arc<Object>) {
        let mut inner = self.inner.lock();
        if inner.objects.get(&object.id).is_some_and(|(_, o)| Arc::ptr_eq(o, object)) {
            inner.objects.remove(&object.id);
        }
    }
}

impl Inner {
    fn evict(&mut self) {
        let idle = |o: &Arc<Object>| Arc::strong_count(o) == 1;
        let mut old: Vec<(u64, ObjectId)> =
            self.objects.iter().filter(|(_, (_, o))| idle(o)).map(|(id, (tick, _))| (*tick, *id)).collect();
        old.sort_unstable();
        for (_, id) in old.iter().take(OPEN_MAX / EVICT_PART) {
            self.objects.remove(id);
        }
    }
}

/// Objects that have something to sync, with the time since when; they stay open.
pub(crate) type DirtyList = Mutex<BTreeMap<ObjectId, (Mono, Arc<Object>)>>;
