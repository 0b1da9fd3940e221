//! The table of open files: the numbers that the kernel (or a library's user) names them by.
//!
//! Invariant: a number is never used twice in the life of a client, so a handle of an ended session can never be
//! taken for a new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brindle_net::job;
use brindle_targets::{Identity, Options};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::job::JobTag;
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use crate::inodes::Hold;
use crate::readahead::Follow;

/// An open file.
pub(crate) struct Handle {
    pub number: u64,
    pub access: Access,
    pub inode: Hold,
    /// Whether the kernel may keep pages under it.
    pub cached: bool,
    /// Under which number the version of the contents that it was opened under counts as soon as the kernel uses it
    /// ([`crate::cache::KeptVersions::returned`]); 0 if there is nothing to tell.
    pub version_found: AtomicU64,
    /// Pattern of the reads through the handle.
    pub follow: Mutex<Follow>,
    /// Whether changes through it are durable when the call returns (O_SYNC, O_DSYNC), also where the kernel does not say so with the
    /// call.
    pub is_synchronous: AtomicBool,
    /// Reads through it leave the time of the last access as it is (O_NOATIME).
    pub keeps_atime: AtomicBool,
    /// The kernel may have pages that were filled through it, or kept for it: it reads them without telling anybody.
    pub has_pages: AtomicBool,
    /// The session that it was opened in: nothing is written through it in another.
    pub session: Identity,
    /// Job that the handle was opened for.
    pub job: Option<JobTag>,
    /// Reason why the handle is dead or has lost data: the answer to every call on it until it is closed.
    trouble: Mutex<Trouble>,
    /// Processes whose close of a descriptor waits for bytes that are on their way.
    writers: Mutex<Writers>,
}

/// Processes that have written through a handle, by the number that the kernel gives their table of descriptors.
#[derive(Default)]
struct Writers {
    /// Numbers of the processes, at most [`WRITERS_MAX`].
    known: Vec<u64>,
    /// Whether there are more writers, or one without a number has written (a mapped page, a copy).
    unknown: bool,
}

impl Writers {
    fn note(&mut self, process: Option<u64>) {
        match process {
            Some(process) if self.known.contains(&process) => {}
            Some(process) if self.known.len() < WRITERS_MAX => self.known.push(process),
            _ => self.unknown = true,
        }
    }

    fn may_include(&self, process: u64) -> bool {
        self.unknown || self.known.contains(&process)
    }
}

/// Processes remembered for a handle. Files written by more through one descriptor are rare; all their closes wait.
const WRITERS_MAX: usize = 8;

#[derive(Default)]
struct Trouble {
    dead: Option<Fault>,
    lost: Option<Fault>,
    heard: Option<Fault>,
}

impl Handle {
    pub fn new(number: u64, access: Access, inode: Hold, cached: bool, session: Identity) -> Handle {
        Handle {
            number,
            access,
            inode,
            cached,
            version_found: AtomicU64::default(),
            follow: Mutex::default(),
            is_synchronous: AtomicBool::default(),
            keeps_atime: AtomicBool::default(),
            has_pages: AtomicBool::default(),
            session,
            job: job::current(),
            trouble: Mutex::default(),
            writers: Mutex::default(),
        }
    }

    /// A process writes through the handle; `None`: which is not known.
    pub fn written_by(&self, process: Option<u64>) {
        self.writers.lock().note(process);
    }

    /// Whether a process may have written through the handle.
    pub fn may_be_written_by(&self, process: u64) -> bool {
        self.writers.lock().may_include(process)
    }

    /// Options of requests that are done only in the session of the handle.
    pub fn options(&self) -> Options {
        Options { only_as: Some(self.session), ..Options::default() }
    }

    /// Fails when the handle is dead.
    pub fn alive(&self) -> Result<(), Fault> {
        self.trouble.lock().dead.clone().map_or(Ok(()), Err)
    }

    /// Fails when the handle is dead, or when data written before is lost.
    pub fn intact(&self) -> Result<(), Fault> {
        let trouble = self.trouble.lock();
        trouble.dead.clone().or_else(|| trouble.lost.clone()).map_or(Ok(()), Err)
    }

    /// Data that is lost, through whichever handle of the file it was written.
    pub fn loss(&self) -> Option<Fault> {
        let trouble = self.trouble.lock();
        trouble.lost.clone().or_else(|| trouble.heard.clone())
    }

    /// Result of a read or query through the handle. If the handle has died meanwhile, its fault counts
    /// instead: the result may be from a time when other clients had the locks that died with it.
    pub fn seen<T>(&self, found: Result<T, Fault>) -> Result<T, Fault> {
        self.alive().and(found)
    }

    /// Result of a change through the handle. If the file is gone because the handle has died, the fault of
    /// the handle counts.
    pub fn changed<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        match done {
            Err(fault) if fault.code == Code::NotFound => self.alive().and(Err(fault)),
            done => done,
        }
    }

    /// Makes every further call on the handle fail with `fault`.
    pub fn kill(&self, fault: &Fault) {
        self.trouble.lock().dead.get_or_insert_with(|| fault.clone());
        self.read_no_more();
    }

    /// Drops the bytes that were read ahead for the handle.
    fn read_no_more(&self) {
        self.follow.lock().end();
        self.inode.chunks.lock().leave(self.number);
    }

    /// Data written through it is lost: fsync and close say so until it is closed.
    fn lose(&self, fault: &Fault) {
        self.trouble.lock().lost.get_or_insert_with(|| fault.clone());
    }

    /// Data written through another handle of the file is lost: fsync says so until this one is closed.
    fn hear(&self, fault: &Fault) {
        self.trouble.lock().heard.get_or_insert_with(|| fault.clone());
    }
}

/// Most files that are remembered until an fsync has told that bytes of them are lost.
const UNTOLD_MAX: usize = 1 << 16;

/// All open files.
#[derive(Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    table: Mutex<Table>,
    /// Files that have lost bytes, and whom no fsync has told of it: who opens one now may want to sync what others wrote,
    /// as the checkpointer of a database does. At most [`UNTOLD_MAX`].
    untold: Mutex<BTreeMap<Ino, Fault>>,
    /// The last loss that no sync of the whole mount has told.
    unsaid: Mutex<Option<Fault>>,
}

/// Handles by number, and their numbers by file.
#[derive(Default)]
struct Table {
    handles: BTreeMap<u64, Arc<Handle>>,
    of_files: BTreeSet<(Ino, u64)>,
}

impl Table {
    fn of_file(&self, ino: Ino) -> impl Iterator<Item = &Arc<Handle>> {
        let numbers = self.of_files.range((ino, 0)..=(ino, u64::MAX));
        numbers.filter_map(|(_, number)| self.handles.get(number))
    }
}

impl Handles {
    /// A number for a handle that is about to be opened.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn insert(&self, handle: Handle) -> Arc<Handle> {
        let handle = Arc::new(handle);
        if handle.access.write {
            handle.inode.lock().writers += 1;
        }
        {
            let mut table = self.table.lock();
            table.handles.insert(handle.number, handle.clone());
            table.of_files.insert((handle.inode.ino, handle.number));
        }
        if let Some(fault) = self.untold.lock().get(&handle.inode.ino) {
            handle.hear(fault);
        }
        handle
    }

    /// Bytes of a file are lost: handles that may have written them answer fsync and close with the fault from now on, all
    /// others, and those that are opened until an fsync has said so, answer fsync with it.
    pub fn lose(&self, ino: Ino, fault: &Fault) {
        {
            let mut untold = self.untold.lock();
            if untold.len() >= UNTOLD_MAX
                && !untold.contains_key(&ino)
                && let Some((other, _)) = untold.pop_first()
            {
                tracing::warn!(
                    ino = other.0,
                    "too many files have lost bytes: who opens this one now is not told"
                );
            }
            untold.insert(ino, fault.clone());
        }
        *self.unsaid.lock() = Some(fault.clone());
        let handles: Vec<_> = self.table.lock().of_file(ino).cloned().collect();
        for handle in handles {
            if handle.access.write { handle.lose(fault) } else { handle.hear(fault) }
        }
    }

    /// A loss, for whoever syncs the whole mount: each time once.
    pub fn take_unsaid(&self) -> Option<Fault> {
        self.unsaid.lock().take()
    }

    /// An fsync has said that bytes of a file are lost.
    pub fn told(&self, ino: Ino) {
        self.untold.lock().remove(&ino);
    }

    pub fn get(&self, number: u64) -> Result<Arc<Handle>, Fault> {
        let found = self.table.lock().handles.get(&number).cloned();
        found.ok_or_else(|| Fault::new(Code::BadHandle).why(format!("handle {number}")))
    }

    /// Reason why a handle on an inode is dead, if one is.
    pub fn death_on(&self, ino: Ino) -> Option<Fault> {
        self.table.lock().of_file(ino).find_map(|h| h.alive().err())
    }

    /// Whether a file has a handle that is alive.
    pub fn has_live(&self, ino: Ino) -> bool {
        self.table.lock().of_file(ino).any(|h| h.alive().is_ok())
    }

    /// Takes a handle out, to close it.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let handle = {
            let mut table = self.table.lock();
            let handle = table.handles.remove(&number)?;
            table.of_files.remove(&(handle.inode.ino, number));
            handle
        };
        handle.read_no_more();
        if handle.access.write {
            let mut state = handle.inode.lock();
            state.writers -= 1;
            if state.writers == 0 {
                // The write session ends with this close; somebody else may write as soon as the MDT has it.
                state.count_allocated();
                state.no_longer_exclusive();
                state.abandon_calls();
            }
        }
        Some(handle)
    }

    /// Every handle, in order of number.
    pub fn all(&self) -> Vec<Arc<Handle>> {
        self.table.lock().handles.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_wrote_waits_unless_too_many_did_or_nobody_knows_who() {
        let mut writers = Writers::default();
        assert!(!writers.may_include(1));
        (1..=WRITERS_MAX as u64)
            .cycle()
            .take(3 * WRITERS_MAX)
            .for_each(|process| writers.note(Some(process)));
        assert!(writers.may_include(1) && writers.may_include(WRITERS_MAX as u64));
        assert!(!writers.may_include(100));
        writers.note(Some(99));
        assert!(writers.may_include(100), "one of too many");

        let mut writers = Writers::default();
        writers.note(None);
        assert!(writers.may_include(100));
    }
}
