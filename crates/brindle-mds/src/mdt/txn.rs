//! The view of an operation's closure: rows, volatile state, numbers, and the changes that it makes.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use brindle_types::attr::Time;
use brindle_types::{Change, FileType, Ino, Pair, Result, SessionId, StripePolicy};
use brindle_wire::cache_updates::{Covered, InodeUpdate, Leased, NameUpdate};
use bytes::Bytes;

use super::stop::{Event, Step, Stop};
use super::{Call, Live, Mdt};
use crate::ask::Notice;
use crate::opens::Writing;
use crate::osts::{Osts, Turn};
use crate::store::dirent::HashKey;
use crate::store::{Changes, Inode, Rows, inode};

/// A run of an operation under the writer lock. Rows change through it; volatile state changes in [`Txn::after`],
/// once the batch is in the log, so that a refused operation leaves no trace.
pub struct Txn<'a> {
    changes: Changes<'a>,
    mdt: &'a Mdt,
    live: &'a Live,
    after: Vec<After>,
    notices: Vec<(SessionId, Notice)>,
    noted: Vec<Change>,
    turns: Turns<'a>,
    /// Time of the operation.
    pub now: Time,
}

/// Turns that the batch took in the round of OSTs. A batch that does not come about gives them back: it is tried again, or fails, and would
/// leave OSTs out.
struct Turns<'a> {
    osts: &'a Osts,
    taken: RefCell<Vec<Turn>>,
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        self.taken.get_mut().drain(..).for_each(|turn| self.osts.give_back(&turn));
    }
}

/// Outcome of a closure.
pub(super) struct Parts<'a> {
    pub changes: Changes<'a>,
    pub after: Vec<After>,
    pub notices: Vec<(SessionId, Notice)>,
    pub noted: Vec<Change>,
}

/// A change of volatile state that happens with the batch.
pub(super) type After = Box<dyn FnOnce(&mut Live)>;

impl<'a> Txn<'a> {
    pub(super) fn new(mdt: &'a Mdt, live: &'a Live) -> Txn<'a> {
        let now = mdt.time();
        Txn {
            changes: mdt.engine().changes(),
            mdt,
            live,
            after: Vec::new(),
            notices: Vec::new(),
            noted: Vec::new(),
            turns: Turns { osts: mdt.osts(), taken: RefCell::default() },
            now,
        }
    }

    pub(super) fn into_parts(self) -> Parts<'a> {
        self.turns.taken.borrow_mut().clear();
        Parts { changes: self.changes, after: self.after, notices: self.notices, noted: self.noted }
    }

    /// The MDT: configuration and placement.
    pub fn mdt(&self) -> &'a Mdt {
        self.mdt
    }

    /// Volatile state as it was when the closure began.
    pub fn live(&self) -> &'a Live {
        self.live
    }

    /// Key of the order of directories.
    pub fn hash_key(&self) -> HashKey {
        self.mdt.engine().format().hash_key
    }

    /// A number that is never given out twice.
    pub fn pair(&self) -> Pair {
        self.mdt.numbers().pair()
    }

    /// An inode number that is never given out twice.
    pub fn new_ino(&self) -> Step<Ino> {
        let ino = self.mdt.numbers().ino().ok_or(Stop::RetryAfter(Event::Inodes))?;
        self.changes.number_is_new(ino);
        Ok(ino)
    }

    /// Changes volatile state once the batch is in the log, before anybody else looks.
    pub fn after(&mut self, change: impl FnOnce(&mut Live) + 'static) {
        self.after.push(Box::new(change));
    }

    /// Tells a client something once the batch is in the log; the answer of the operation waits for the client's.
    pub fn notify(&mut self, session: SessionId, notice: Notice) {
        self.notices.push((session, notice));
    }

    /// Gives the caller the lease of a directory if it may have it, and tells it so; whether it holds it.
    pub fn lease(&self, call: &Call, dir: Ino) -> bool {
        if call.session == SessionId(0) || self.live.recovering {
            return false;
        }
        let granted = self.live.leases.lock().grant(dir, call.session, self.mdt.seams().now());
        if granted {
            let at = self.place();
            call.tell(|news| news.leased.push(Leased { dir, at, is_new: false }));
        }
        granted
    }

    /// Tells the caller what a name leads to, if it holds the lease of the directory or has not given it back.
    pub fn tell_name(&self, call: &Call, dir: Ino, name: &[u8], to: Option<(Ino, FileType)>) {
        if self.live.leases.lock().may_use(dir, call.session) {
            let at = self.place();
            call.tell(|news| news.names.push(NameUpdate { dir, name: name.to_vec(), to, at }));
        }
    }

    /// Adds a cache update of an inode to the caller's reply: the attributes, if a lease covers them that the caller holds or gets
    /// now for a directory; or the rights of a directory, if the caller holds the lease of its parent. If no lease covers an inode
    /// that the caller has open for writing, the update says so.
    pub fn tell_inode(&self, call: &Call, inode: &Inode) -> Result<()> {
        let holds = |by: &Ino| self.live.leases.lock().holds(*by, call.session);
        let held = |by: &Ino| if inode.is_dir() { self.lease(call, *by) } else { holds(by) };
        let Some(covered) = inode::covered(self, inode)? else {
            if self.live.opens.is_written_by(inode.ino, call.session) {
                self.tell_not_covered(call, inode.ino);
            }
            return Ok(());
        };
        let by = Some(covered).filter(held);
        if let Some(by) = by.or_else(|| inode.rights_covered_by().filter(holds)) {
            let (ino, at) = (inode.ino, self.place());
            let known = Some(Covered { attr: inode.attr(), by });
            call.tell(|news| news.inodes.push(InodeUpdate { ino, at, known }));
        }
        Ok(())
    }

    /// Tells the caller that no lease covers the attributes of an inode.
    pub fn tell_not_covered(&self, call: &Call, ino: Ino) {
        let at = self.place();
        call.tell(|news| news.inodes.push(InodeUpdate { ino, at, known: None }));
    }

    /// Chooses OSTs for a component; none while no OST is known.
    pub fn choose_osts(&self, asked: &StripePolicy) -> Result<Vec<u16>> {
        let (osts, turn) = self.mdt.osts().place(asked)?;
        self.turns.taken.borrow_mut().push(turn);
        Ok(osts)
    }

    /// Position in the log of the state that this batch sees.
    pub fn place(&self) -> u64 {
        self.mdt.engine().last_pos().index
    }

    /// Puts a record of the changelog into the batch (see [`crate::changelog::note`]).
    pub fn noted(&mut self, change: Change) {
        self.noted.push(change);
    }

    /// Goes on only if every client that may hold pages of the inode is known. While clients declare what they had open
    /// before a restart, only an exclusive holder can be sure to be alone.
    pub fn settled(&self, ino: Ino, session: SessionId) -> Step<()> {
        let alone = self.live.opens.writing(ino) == Writing::Exclusive(session);
        if self.live.recovering && !alone { Err(Stop::RetryAfter(Event::Recovered)) } else { Ok(()) }
    }

    /// Goes on only if no operation of several steps works on the inode.
    pub fn idle(&self, ino: Ino) -> Step<()> {
        let busy = self.live.busy.contains(&ino) || self.live.cut_short.contains(&ino);
        if busy { Err(Stop::RetryAfter(Event::Idle(ino))) } else { Ok(()) }
    }
}

impl<'a> Deref for Txn<'a> {
    type Target = Changes<'a>;

    fn deref(&self) -> &Changes<'a> {
        &self.changes
    }
}

impl<'a> DerefMut for Txn<'a> {
    fn deref_mut(&mut self) -> &mut Changes<'a> {
        &mut self.changes
    }
}

impl Rows for Txn<'_> {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        self.changes.inode(ino)
    }

    fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.changes.row(key)
    }

    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.changes.rows(prefix, after, limit)
    }
}
