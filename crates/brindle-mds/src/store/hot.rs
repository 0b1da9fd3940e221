//! A cache of decoded inodes that batches have read lately: each create needs its directory, and the root with its default
//! layout.
//!
//! Invariant: a cached inode equals its row in the store. A batch that got into the log fills the cache under the writer
//! lock with the inodes that it has read and made; readers hold either lock.

use std::collections::{BTreeMap, HashMap};

use brindle_types::Ino;
use parking_lot::Mutex;

use super::Inode;

/// Most inodes in the cache; when it is full, it is emptied.
const INODES_MAX: usize = 1024;

/// The inodes.
#[derive(Debug, Default)]
pub struct Hot(Mutex<HashMap<Ino, Inode>>);

impl Hot {
    /// The inode, if it is in here.
    pub fn get(&self, ino: Ino) -> Option<Inode> {
        self.0.lock().get(&ino).cloned()
    }

    /// All of them.
    #[cfg(test)]
    pub fn all(&self) -> Vec<Inode> {
        self.0.lock().values().cloned().collect()
    }

    /// Takes in the inodes that a batch has read and made; `None` for a missing one. To be called with every batch that
    /// changes inodes, before anybody looks.
    pub fn learn(&self, inodes: BTreeMap<Ino, Option<Inode>>) {
        let mut hot = self.0.lock();
        if hot.len() + inodes.len() > INODES_MAX {
            hot.clear();
        }
        for (ino, inode) in inodes {
            match inode {
                Some(inode) => hot.insert(ino, inode),
                None => hot.remove(&ino),
            };
        }
    }
}
