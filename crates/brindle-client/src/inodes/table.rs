//! All inodes with handles, or with an open under way: no notice for one of them is missed.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_types::{Ino, Pair};
use parking_lot::Mutex;

use super::meanwhile::Meanwhile;
use super::{Asked, ClosedEnd, Inode, Naming, Numbers};

/// Later than any change.
const CHANGED_MAX: Pair = Pair { term: u32::MAX, counter: u64::MAX };
/// Most files without handles whose state at the MDT is remembered.
const LEFT_MAX: usize = 1 << 16;

/// All inodes with handles.
#[derive(Default)]
pub(crate) struct Inodes {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    inodes: BTreeMap<Ino, (Arc<Inode>, usize)>,
    numbers: Numbers,
    /// Inodes that a notice named while creates were under way, whose inode number is not known yet.
    unclaimed: Meanwhile,
    /// [`State::changed`] of files that have no handle any more; at most [`LEFT_MAX`].
    closed_unsynced: BTreeMap<Ino, Pair>,
    /// End up to which this client has written files that lie in objects; at most [`LEFT_MAX`], too.
    ends: BTreeMap<Ino, ClosedEnd>,
}

impl Table {
    /// Notes that the last handle is gone. Changes that the MDT has made and not synced are remembered: the next open learns
    /// whether a power cut has taken them.
    fn leave(&mut self, inode: &Inode) {
        self.inodes.remove(&inode.ino);
        let state = inode.lock();
        // A loss that was found and not reported is found again.
        if let Some(changed) = if state.lost { Some(CHANGED_MAX) } else { state.changed } {
            self.closed_unsynced.insert(inode.ino, changed);
        }
        if let Some(end) = state.left_end() {
            self.ends.insert(inode.ino, end);
        }
        drop(state);
        // The answer to a create under way may be older than this.
        self.unclaimed.note(inode.ino);
        while self.closed_unsynced.len() > LEFT_MAX {
            self.closed_unsynced.pop_first();
        }
        while self.ends.len() > LEFT_MAX {
            self.ends.pop_first();
        }
    }

    /// Notes the first handle.
    fn enter(&mut self, ino: Ino) -> (Arc<Inode>, usize) {
        let inode = Inode::new(ino, self.numbers.clone());
        let mut state = inode.lock();
        state.closed_end = self.ends.remove(&ino);
        if let Some(changed) = self.closed_unsynced.remove(&ino) {
            state.changed = Some(changed);
            state.recheck = true;
        }
        drop(state);
        (Arc::new(inode), 0)
    }
}

/// Keeps an inode in the table.
pub(crate) struct Hold {
    table: Arc<Inodes>,
    inode: Arc<Inode>,
}

/// A create under way.
pub(crate) struct Creating {
    table: Arc<Inodes>,
}

impl Inodes {
    /// Keeps `ino` in the table; made if it is not there.
    pub fn hold(self: &Arc<Self>, ino: Ino) -> Hold {
        let mut table = self.table.lock();
        if !table.inodes.contains_key(&ino) {
            let entered = table.enter(ino);
            table.inodes.insert(ino, entered);
        }
        let (inode, users) = table.inodes.get_mut(&ino).expect("it was there, or has just been entered");
        *users += 1;
        Hold { table: self.clone(), inode: inode.clone() }
    }

    /// The inode, if it has handles.
    pub fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.table.lock().inodes.get(&ino).map(|(inode, _)| inode.clone())
    }

    /// Every inode with handles, in order.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.table.lock().inodes.values().map(|(inode, _)| inode.clone()).collect()
    }

    /// Begins a create: from now on notices for unknown inodes are remembered.
    pub fn creating(self: &Arc<Self>) -> Creating {
        self.table.lock().unclaimed.begin();
        Creating { table: self.clone() }
    }

    /// The inode that a notice names, counted as noticed; `None` if it has no handles here.
    pub fn notice(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.asked_about(ino).inspect(|inode| inode.lock().noticed())
    }

    /// The inode that a notice names which takes no right. If the inode has no handles here it may just be being created: the
    /// answer to the create is then older than the notice.
    pub fn asked_about(&self, ino: Ino) -> Option<Arc<Inode>> {
        let mut table = self.table.lock();
        let known = table.inodes.get(&ino).map(|(inode, _)| inode.clone());
        if known.is_none() {
            table.unclaimed.note(ino);
        }
        known
    }

    /// Taken before a request to the MDT about an inode by name.
    pub fn naming(&self) -> Naming {
        self.table.lock().numbers.naming()
    }

    /// Whether the MDT's answer about `ino` may be older than an answer that programs here got before the request.
    pub fn is_older(&self, naming: &Naming, ino: Ino) -> bool {
        let has_news = self.get(ino).is_some_and(|inode| inode.lock().has_news());
        // The order matters: changes are noted as heard before they stop being due.
        has_news || naming.was_told(ino)
    }
}

impl Creating {
    /// Notes that the create made `ino`. Returns the inode, and the moment before the create was sent.
    pub fn made(&self, ino: Ino) -> (Hold, Asked) {
        let known = self.table.get(ino).is_some();
        let hold = self.table.hold(ino);
        let table = self.table.table.lock();
        let crossed = known || table.unclaimed.has(ino);
        drop(table);
        let notices = hold.lock().notices;
        // A moment that never was makes every answer a crossed one.
        (hold, Asked { notices: if crossed { u64::MAX } else { notices } })
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        self.table.table.lock().unclaimed.end();
    }
}

impl std::ops::Deref for Hold {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        self.table.hold(self.inode.ino)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.table.table.lock();
        if let Some((_, users)) = table.inodes.get_mut(&self.inode.ino) {
            *users -= 1;
            if *users == 0 {
                table.leave(&self.inode);
            }
        }
    }
}
