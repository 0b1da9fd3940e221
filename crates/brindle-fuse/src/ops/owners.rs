//! Owners of fcntl locks, by the open file that they took them through.
//!
//! The kernel does not tell whose an fcntl lock is. A lock of a process goes when that process closes any
//! descriptor of the file. An OFD lock goes with its open file, and no unlock is sent. A lock that no FLUSH
//! has named by the time of the RELEASE was an OFD lock.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Lock owners by open file.
#[derive(Default)]
pub(crate) struct Owners(Mutex<BTreeMap<u64, BTreeSet<u64>>>);

impl Owners {
    /// `owner` takes a lock through `fh`.
    pub fn note(&self, fh: u64, owner: u64) {
        self.0.lock().entry(fh).or_default().insert(owner);
    }

    /// `owner` closed a descriptor of `fh`.
    pub fn forget(&self, fh: u64, owner: u64) {
        let mut table = self.0.lock();
        if let Some(owners) = table.get_mut(&fh) {
            owners.remove(&owner);
            if owners.is_empty() {
                table.remove(&fh);
            }
        }
    }

    /// Whether somebody took a lock through `fh`.
    pub fn has(&self, fh: u64) -> bool {
        self.0.lock().contains_key(&fh)
    }

    /// `fh` is gone: the owners that are left.
    pub fn take(&self, fh: u64) -> BTreeSet<u64> {
        self.0.lock().remove(&fh).unwrap_or_default()
    }
}
