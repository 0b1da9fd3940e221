//! The table of open files: the numbers that the kernel (or a library's user) names them by.
//!
//! Invariant: a number is never used twice in the life of a client, so a handle of an ended session can never be
//! taken for a new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_session::{Identity, Options};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use crate::inodes::Hold;

/// One open file.
pub(crate) struct Handle {
    pub number: u64,
    pub access: Access,
    pub inode: Hold,
    /// Whether the kernel may keep pages under it.
    pub cached: bool,
    /// The session that it was opened in: nothing is written through it in another.
    pub session: Identity,
    /// Why it is dead or has lost data: the answer to what comes on it until it is closed.
    trouble: Mutex<Trouble>,
}

#[derive(Default)]
struct Trouble {
    dead: Option<Fault>,
    lost: Option<Fault>,
}

impl Handle {
    pub fn new(number: u64, access: Access, inode: Hold, cached: bool, session: Identity) -> Handle {
        Handle { number, access, inode, cached, session, trouble: Mutex::default() }
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

    /// What a look through the handle has found; if the handle has died meanwhile that counts, whatever was found: it
    /// may come from a time when others had the locks that went with it.
    pub fn seen<T>(&self, found: Result<T, Fault>) -> Result<T, Fault> {
        self.alive().and(found)
    }

    /// What a change through the handle has come to. That the file is gone has its reason in the death of the handle.
    pub fn changed<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        match done {
            Err(fault) if fault.code == Code::NotFound => self.alive().and(Err(fault)),
            done => done,
        }
    }

    /// Nothing works on it any more.
    pub fn kill(&self, fault: &Fault) {
        self.trouble.lock().dead.get_or_insert_with(|| fault.clone());
    }

    /// Data written through it is lost: fsync and close say so until it is closed.
    pub fn lose(&self, fault: &Fault) {
        self.trouble.lock().lost.get_or_insert_with(|| fault.clone());
    }
}

/// All open files.
#[derive(Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    table: Mutex<BTreeMap<u64, Arc<Handle>>>,
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
        self.table.lock().insert(handle.number, handle.clone());
        handle
    }

    pub fn get(&self, number: u64) -> Result<Arc<Handle>, Fault> {
        let found = self.table.lock().get(&number).cloned();
        found.ok_or_else(|| Fault::new(Code::BadHandle).why(format!("handle {number}")))
    }

    /// Why a handle on an inode is dead, if one is.
    pub fn death_on(&self, ino: Ino) -> Option<Fault> {
        self.table.lock().values().filter(|h| h.inode.ino == ino).find_map(|h| h.alive().err())
    }

    /// Takes a handle out, to close it.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let handle = self.table.lock().remove(&number)?;
        if handle.access.write {
            let mut state = handle.inode.lock();
            state.writers -= 1;
            if state.writers == 0 {
                // The write session ends with this close; somebody else may write as soon as the MDT has it.
                state.no_longer_exclusive();
            }
        }
        Some(handle)
    }

    /// Every handle, in order of number.
    pub fn all(&self) -> Vec<Arc<Handle>> {
        self.table.lock().values().cloned().collect()
    }
}
