//! The last attributes of the inodes that the kernel refers to, for the time after their removal.

use std::collections::BTreeMap;

use brindle_stdx::cast::to_usize;
use brindle_types::{Attr, FileType, Ino};
use parking_lot::Mutex;

/// Inodes remembered in one shard; beyond them the lowest number goes.
const SHARD_MAX: usize = 8192;
/// Shards, so that readers seldom meet.
const SHARDS: usize = 16;

/// Last attributes by inode.
#[derive(Default)]
pub(crate) struct Known {
    shards: [Mutex<BTreeMap<Ino, Attr>>; SHARDS],
}

impl Known {
    /// The kernel is told these attributes.
    pub fn note(&self, attr: &Attr) {
        let mut shard = self.shard(attr.ino).lock();
        if shard.len() >= SHARD_MAX && !shard.contains_key(&attr.ino) {
            shard.pop_first();
        }
        shard.insert(attr.ino, attr.clone());
    }

    /// Like the above, where nothing was told before: the attributes may be older than a fresh answer.
    pub fn note_first(&self, attr: &Attr) {
        if !self.shard(attr.ino).lock().contains_key(&attr.ino) {
            self.note(attr);
        }
    }

    /// Notes that the inode is gone; returns its last attributes, without links.
    pub fn removed(&self, ino: Ino) -> Option<Attr> {
        let last = self.shard(ino).lock().get(&ino).cloned()?;
        Some(Attr { nlink: 0, ..last })
    }

    /// Whether it is known to be a directory.
    pub fn is_dir(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|attr| attr.kind == FileType::Directory)
    }

    /// The kernel refers to it no longer.
    pub fn forget(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }

    fn shard(&self, ino: Ino) -> &Mutex<BTreeMap<Ino, Attr>> {
        &self.shards[to_usize(ino.0) % SHARDS]
    }
}
