//! Directories whose attributes the kernel may keep, so that it need not ask for them at each step of a path.
//!
//! Attributes are kept only of node ids that the kernel has asked about by number: of those it has the inode, so that
//! what it is told to forget ([`crate::notify::Notice::InvalAttr`]) also voids answers that are still on their way to it:
//! its inodes count such notices, and answers to earlier questions are dropped.
//!
//! Invariant: a node id is noted here before the attributes that the kernel may keep are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use brindle_client::Client;
use brindle_types::{Attr, Ino};
use parking_lot::Mutex;

/// Directories at once; of more the kernel keeps nothing.
const DIRS_MAX: usize = 1 << 16;

/// Node ids by directory.
#[derive(Default)]
pub(crate) struct Shown(Mutex<BTreeMap<Ino, BTreeSet<u64>>>);

impl Shown {
    /// Attributes of a directory that the kernel asks for by `nodeid`, and how long it may keep them.
    pub fn show(&self, client: &Client, ino: Ino, nodeid: u64) -> Option<(Attr, Duration)> {
        client.lasting_attr(ino)?;
        if !self.note(ino, nodeid) {
            return None;
        }
        let (attr, left_ms) = client.lasting_attr(ino)?;
        Some((attr, Duration::from_millis(left_ms)))
    }

    /// The same for a directory found by name: only if the kernel has asked for it by `nodeid` since it was last told to
    /// forget it.
    pub fn show_again(&self, client: &Client, ino: Ino, nodeid: u64) -> Option<(Attr, Duration)> {
        let noted = self.0.lock().get(&ino).is_some_and(|nodeids| nodeids.contains(&nodeid));
        if !noted {
            return None;
        }
        let (attr, left_ms) = client.lasting_attr(ino)?;
        Some((attr, Duration::from_millis(left_ms)))
    }

    fn note(&self, ino: Ino, nodeid: u64) -> bool {
        let mut dirs = self.0.lock();
        if dirs.len() >= DIRS_MAX && !dirs.contains_key(&ino) {
            return false;
        }
        dirs.entry(ino).or_default().insert(nodeid);
        true
    }

    /// The node ids that are to forget a directory.
    pub fn take(&self, ino: Ino) -> BTreeSet<u64> {
        self.0.lock().remove(&ino).unwrap_or_default()
    }

    /// The same for all directories.
    pub fn take_all(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock()).into_values().flatten().collect()
    }

    /// The kernel refers to a directory no longer.
    pub fn forget(&self, ino: Ino, nodeid: u64) {
        let mut dirs = self.0.lock();
        let Some(nodeids) = dirs.get_mut(&ino) else { return };
        nodeids.remove(&nodeid);
        if nodeids.is_empty() {
            dirs.remove(&ino);
        }
    }
}
