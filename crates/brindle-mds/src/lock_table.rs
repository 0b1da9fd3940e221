//! The lock table of one MDT: fcntl, OFD and flock locks of all clients, as a synchronous state machine.
//!
//! The MDS calls it under its writer lock: `set`, `test`, `cancel`, `drop_session`; every call that gives something up
//! returns the waiters that were granted by it, so that their parked requests can be answered. The table is volatile
//! and reclaimed by clients after a restart.
//!
//! Invariants: no two locks of different owners that overlap in one space conflict; a waiter is always behind at least
//! one lock that conflicts with it; both counts are bounded. OFD locks cannot be told from fcntl locks (the kernel
//! sends them alike, with the open file as owner), so deadlock detection sees them too.

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::{Ino, SessionId};
use brindle_wire::mds::lock::{LockKind, LockSpace, LockState};

/// Most locks held in one MDT.
pub const LOCKS_MAX: usize = 1 << 20;
/// Most requests waiting in one MDT.
pub const LOCK_WAITERS_MAX: usize = 1 << 16;

/// Owner of a lock, or of a request for one: a session, and the kernel's lock owner within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The client.
    pub session: SessionId,
    /// The owner within the client.
    pub owner: u64,
}

/// Names a waiting request: session and the request number of its `SetLockReq`.
pub type WaitId = (SessionId, u64);

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; these waiters were granted by it (an unlock or a downgrade lets others in).
    Granted(Vec<WaitId>),
    /// Another owner is in the way and the caller does not wait. A flock that was to be converted is given up, as on
    /// Linux; these waiters were granted by that.
    Conflict(Vec<WaitId>),
    /// Queued; a later call returns this request among the granted ones.
    Waiting(Vec<WaitId>),
    /// Waiting would close a circle.
    Deadlock,
    /// The table is full.
    TooMany,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    owner: Owner,
    write: bool,
    start: u64,
    end: u64,
    pid: u32,
}

#[derive(Clone, Debug)]
struct Waiter {
    id: WaitId,
    space: LockSpace,
    want: Held,
}

#[derive(Clone, Debug, Default)]
struct InodeLocks {
    posix: Vec<Held>,
    flock: Vec<Held>,
    waiters: Vec<Waiter>,
}

impl InodeLocks {
    fn space(&self, space: LockSpace) -> &Vec<Held> {
        match space {
            LockSpace::Posix => &self.posix,
            LockSpace::Flock => &self.flock,
        }
    }

    fn space_mut(&mut self, space: LockSpace) -> &mut Vec<Held> {
        match space {
            LockSpace::Posix => &mut self.posix,
            LockSpace::Flock => &mut self.flock,
        }
    }

    fn is_empty(&self) -> bool {
        self.posix.is_empty() && self.flock.is_empty() && self.waiters.is_empty()
    }
}

/// All locks of one MDT.
#[derive(Debug, Default)]
pub struct LockTable {
    inodes: BTreeMap<Ino, InodeLocks>,
    held: usize,
    waiting: usize,
}

fn conflicts(a: &Held, b: &Held) -> bool {
    a.owner != b.owner && (a.write || b.write) && a.start <= b.end && b.start <= a.end
}

/// Takes `[start, end]` of `owner` out of `list`, splitting what reaches over its edges.
fn carve(list: &mut Vec<Held>, owner: Owner, start: u64, end: u64) {
    let mut kept = Vec::with_capacity(list.len() + 1);
    for lock in list.drain(..) {
        if lock.owner != owner || lock.end < start || lock.start > end {
            kept.push(lock);
            continue;
        }
        if lock.start < start {
            kept.push(Held { end: start - 1, ..lock.clone() });
        }
        if lock.end > end {
            kept.push(Held { start: end + 1, ..lock });
        }
    }
    *list = kept;
}

/// Adds `new`, joining it with neighbours of the same owner and kind.
fn insert(list: &mut Vec<Held>, mut new: Held) {
    list.retain(|old| {
        let same = old.owner == new.owner && old.write == new.write;
        let touch = old.start <= new.end.saturating_add(1) && new.start <= old.end.saturating_add(1);
        if same && touch {
            new.start = new.start.min(old.start);
            new.end = new.end.max(old.end);
        }
        !(same && touch)
    });
    let at = list.partition_point(|l| (l.start, l.owner) < (new.start, new.owner));
    list.insert(at, new);
}

impl LockTable {
    /// The first lock in the way of `lock`, and whose it is.
    pub fn test(&self, ino: Ino, session: SessionId, lock: &LockState) -> Option<(SessionId, LockState)> {
        let want = held_of(session, lock);
        let found = self.inodes.get(&ino)?.space(lock.space).iter().find(|h| conflicts(h, &want))?;
        Some((found.owner.session, state_of(lock.space, found)))
    }

    /// Sets, converts or gives up a lock. With `wait`, a conflicting request is queued under that id; asking again
    /// under the same id finds the queued one.
    pub fn set(&mut self, ino: Ino, session: SessionId, lock: &LockState, wait: Option<WaitId>) -> Outcome {
        let want = held_of(session, lock);
        if lock.kind == LockKind::Unlock {
            self.release(ino, lock.space, &want);
            return Outcome::Granted(self.grant_waiters(ino));
        }
        if let Some(id) = wait
            && self.inodes.get(&ino).is_some_and(|i| i.waiters.iter().any(|w| w.id == id))
        {
            return Outcome::Waiting(Vec::new());
        }
        let blocked =
            self.inodes.get(&ino).is_some_and(|i| i.space(lock.space).iter().any(|h| conflicts(h, &want)));
        if !blocked {
            return self.grant(ino, lock.space, want);
        }
        let mut granted = Vec::new();
        if lock.space == LockSpace::Flock {
            // Linux converts a flock by giving the old one up first, whether the new one can be had or not.
            self.release(ino, LockSpace::Flock, &want);
            granted = self.grant_waiters(ino);
        }
        let Some(id) = wait else { return Outcome::Conflict(granted) };
        if lock.space == LockSpace::Posix && self.would_deadlock(ino, &want) {
            return Outcome::Deadlock;
        }
        if self.waiting >= LOCK_WAITERS_MAX {
            return Outcome::TooMany;
        }
        self.waiting += 1;
        let entry = self.inodes.entry(ino).or_default();
        entry.waiters.push(Waiter { id, space: lock.space, want });
        Outcome::Waiting(granted)
    }

    /// Ends a wait. `false` when nothing waits under this id (it was granted, or never there).
    pub fn cancel(&mut self, ino: Ino, id: WaitId) -> bool {
        let Some(entry) = self.inodes.get_mut(&ino) else { return false };
        let before = entry.waiters.len();
        entry.waiters.retain(|w| w.id != id);
        let removed = before - entry.waiters.len();
        self.waiting -= removed;
        self.drop_if_empty(ino);
        removed > 0
    }

    /// Gives up everything that a session holds or waits for; returns the inodes touched and the waiters granted.
    pub fn drop_session(&mut self, session: SessionId) -> Vec<WaitId> {
        let mut touched = Vec::new();
        for (ino, entry) in &mut self.inodes {
            let before = entry.posix.len() + entry.flock.len();
            let waiting = entry.waiters.len();
            entry.posix.retain(|h| h.owner.session != session);
            entry.flock.retain(|h| h.owner.session != session);
            entry.waiters.retain(|w| w.want.owner.session != session);
            self.held -= before - entry.posix.len() - entry.flock.len();
            self.waiting -= waiting - entry.waiters.len();
            touched.push(*ino);
        }
        touched.into_iter().flat_map(|ino| self.grant_waiters(ino)).collect()
    }

    /// Every lock of an inode, for status and tests: (session, lock).
    pub fn list(&self, ino: Ino) -> Vec<(SessionId, LockState)> {
        let Some(entry) = self.inodes.get(&ino) else { return Vec::new() };
        let posix = entry.posix.iter().map(|h| (h.owner.session, state_of(LockSpace::Posix, h)));
        let flock = entry.flock.iter().map(|h| (h.owner.session, state_of(LockSpace::Flock, h)));
        posix.chain(flock).collect()
    }

    /// Numbers of locks held and of requests that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.held, self.waiting)
    }

    fn grant(&mut self, ino: Ino, space: LockSpace, want: Held) -> Outcome {
        if self.held >= LOCKS_MAX {
            return Outcome::TooMany;
        }
        let list = self.inodes.entry(ino).or_default().space_mut(space);
        let before = list.len();
        carve(list, want.owner, want.start, want.end);
        insert(list, want);
        let after = list.len();
        self.held = self.held + after - before;
        // A downgrade may let others in.
        Outcome::Granted(self.grant_waiters(ino))
    }

    fn release(&mut self, ino: Ino, space: LockSpace, what: &Held) {
        let Some(entry) = self.inodes.get_mut(&ino) else { return };
        let list = entry.space_mut(space);
        let before = list.len();
        carve(list, what.owner, what.start, what.end);
        let after = list.len();
        self.held = self.held + after - before;
        self.drop_if_empty(ino);
    }

    fn grant_waiters(&mut self, ino: Ino) -> Vec<WaitId> {
        let mut granted = Vec::new();
        while let Some(entry) = self.inodes.get_mut(&ino) {
            let free = |w: &Waiter| !entry.space(w.space).iter().any(|h| conflicts(h, &w.want));
            let Some(at) = entry.waiters.iter().position(free) else { break };
            let waiter = entry.waiters.remove(at);
            self.waiting -= 1;
            let list = entry.space_mut(waiter.space);
            let before = list.len();
            carve(list, waiter.want.owner, waiter.want.start, waiter.want.end);
            insert(list, waiter.want);
            let after = list.len();
            self.held = self.held + after - before;
            granted.push(waiter.id);
        }
        self.drop_if_empty(ino);
        granted
    }

    /// Whether some owner in the way of `want` waits, directly or through others, for the owner of `want`.
    fn would_deadlock(&self, ino: Ino, want: &Held) -> bool {
        let mut seen = BTreeSet::new();
        let mut open: Vec<Owner> = self.blockers(ino, want);
        while let Some(owner) = open.pop() {
            if owner == want.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for (ino, entry) in &self.inodes {
                for w in entry.waiters.iter().filter(|w| w.want.owner == owner && w.space == LockSpace::Posix)
                {
                    open.extend(self.blockers(*ino, &w.want));
                }
            }
        }
        false
    }

    fn blockers(&self, ino: Ino, want: &Held) -> Vec<Owner> {
        let Some(entry) = self.inodes.get(&ino) else { return Vec::new() };
        entry.posix.iter().filter(|h| conflicts(h, want)).map(|h| h.owner).collect()
    }

    fn drop_if_empty(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(InodeLocks::is_empty) {
            self.inodes.remove(&ino);
        }
    }
}

fn held_of(session: SessionId, lock: &LockState) -> Held {
    let whole = lock.space == LockSpace::Flock;
    Held {
        owner: Owner { session, owner: lock.owner },
        write: lock.kind == LockKind::Write,
        start: if whole { 0 } else { lock.start },
        end: if whole { u64::MAX } else { lock.end },
        pid: lock.pid,
    }
}

fn state_of(space: LockSpace, held: &Held) -> LockState {
    LockState {
        space,
        owner: held.owner.owner,
        kind: if held.write { LockKind::Write } else { LockKind::Read },
        start: held.start,
        end: held.end,
        pid: held.pid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INO: Ino = Ino(7);

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockState {
        LockState { space: LockSpace::Posix, owner, kind, start, end, pid: owner as u32 }
    }

    fn set(t: &mut LockTable, session: u64, l: &LockState, wait: Option<u64>) -> Outcome {
        let s = SessionId(session);
        t.set(INO, s, l, wait.map(|w| (s, w)))
    }

    #[test]
    fn a_waiter_is_granted_when_the_conflict_goes() {
        let mut t = LockTable::default();
        assert_eq!(set(&mut t, 1, &lock(1, LockKind::Write, 0, 9), None), Outcome::Granted(vec![]));
        assert_eq!(set(&mut t, 2, &lock(1, LockKind::Read, 5, 5), None), Outcome::Conflict(vec![]));
        assert_eq!(set(&mut t, 2, &lock(1, LockKind::Read, 5, 5), Some(8)), Outcome::Waiting(vec![]));
        let freed = set(&mut t, 1, &lock(1, LockKind::Unlock, 4, 6), None);
        assert_eq!(freed, Outcome::Granted(vec![(SessionId(2), 8)]));
        assert_eq!(t.counts(), (3, 0), "the writer's two rests and the reader");
    }

    #[test]
    fn a_circle_of_waits_is_refused() {
        let mut t = LockTable::default();
        for owner in 1..=3 {
            let got = set(&mut t, owner, &lock(owner, LockKind::Write, owner, owner), None);
            assert_eq!(got, Outcome::Granted(vec![]));
        }
        assert_eq!(set(&mut t, 1, &lock(1, LockKind::Write, 2, 2), Some(1)), Outcome::Waiting(vec![]));
        assert_eq!(set(&mut t, 2, &lock(2, LockKind::Write, 3, 3), Some(1)), Outcome::Waiting(vec![]));
        assert_eq!(set(&mut t, 3, &lock(3, LockKind::Write, 1, 1), Some(1)), Outcome::Deadlock);
        assert_eq!(t.drop_session(SessionId(3)), vec![(SessionId(2), 1)]);
    }

    #[test]
    fn converting_a_flock_gives_the_old_one_up_first() {
        let mut t = LockTable::default();
        let flock = |owner, kind| LockState { space: LockSpace::Flock, ..lock(owner, kind, 0, 0) };
        assert_eq!(set(&mut t, 1, &flock(1, LockKind::Read), None), Outcome::Granted(vec![]));
        assert_eq!(set(&mut t, 2, &flock(1, LockKind::Read), None), Outcome::Granted(vec![]));
        assert_eq!(set(&mut t, 1, &flock(1, LockKind::Write), Some(1)), Outcome::Waiting(vec![]));
        // The first gave its shared lock up while it waits, so the second converts at once: no deadlock.
        assert_eq!(set(&mut t, 2, &flock(1, LockKind::Write), Some(1)), Outcome::Granted(vec![]));
        let freed = set(&mut t, 2, &flock(1, LockKind::Unlock), None);
        assert_eq!(freed, Outcome::Granted(vec![(SessionId(1), 1)]));
    }

    /// Lock kind of each owner on each of 16 bytes.
    type Model = BTreeMap<(u64, u64), bool>;

    fn model_conflict(m: &Model, owner: u64, write: bool, start: u64, end: u64) -> bool {
        m.iter().any(|((o, byte), w)| *o != owner && (start..=end).contains(byte) && (write || *w))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_table_agrees_with_a_map_of_bytes(
            steps in prop::collection::vec((0u64..4, 0u8..3, 0u64..16, 0u64..16), 1..60)
        ) {
            let mut table = LockTable::default();
            let mut model = Model::new();
            for (owner, kind, a, b) in steps {
                let (start, end) = (a.min(b), a.max(b));
                let kind = [LockKind::Read, LockKind::Write, LockKind::Unlock][kind as usize];
                let write = kind == LockKind::Write;
                let got = set(&mut table, owner, &lock(0, kind, start, end), None);
                let refused = kind != LockKind::Unlock && model_conflict(&model, owner, write, start, end);
                prop_assert_eq!(matches!(got, Outcome::Conflict(_)), refused);
                if !refused {
                    for byte in start..=end {
                        model.remove(&(owner, byte));
                        if kind != LockKind::Unlock {
                            model.insert((owner, byte), write);
                        }
                    }
                }
                let mut seen = Model::new();
                for (session, l) in table.list(INO) {
                    for byte in l.start..=l.end {
                        seen.insert((session.0, byte), l.kind == LockKind::Write);
                    }
                }
                prop_assert_eq!(&seen, &model);
            }
        }
    }
}
