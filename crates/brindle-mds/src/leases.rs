//! Leases of directories: which session may answer from its own memory what is in a directory (design note 005).
//!
//! A lease covers the entries of a directory, names that are not there, its own attributes, and the attributes of every
//! file in it that has this one name and that nobody has open for writing. Volatile: after a restart, a change of
//! anything that a lease may cover waits until every client has declared itself again, and a client that does so has
//! emptied its cache.
//!
//! Invariants: a batch that changes entries or attributes under a lease gets into the log only when no session but the
//! caller's holds that lease; a lease that is being recalled is not granted.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::Mono;
use brindle_types::{Ino, SessionId};

/// Leases of all sessions together; beyond that everybody asks each time.
pub const LEASES_MAX: usize = 1 << 20;
/// Leases of one session.
pub const SESSION_LEASES_MAX: usize = 1 << 18;
/// Sessions that hold the lease of one directory.
pub const HOLDERS_MAX: usize = 64;
/// After a recall, a session is given the lease only if no other session has changed the directory for this long. A lease is
/// of no use while several clients change the directory. It is of use to a client that alone goes on changing it.
pub const CONTESTED_MS: u64 = 100;
/// Directories that are remembered as contested.
const CONTESTED_MAX: usize = 4_096;

/// Leases that must be recalled before a change: sessions by directory.
pub type Conflicts = Vec<(Ino, Vec<SessionId>)>;

/// All leases of one MDT.
#[derive(Debug, Default)]
pub struct Leases {
    holders: BTreeMap<Ino, BTreeSet<SessionId>>,
    by_session: BTreeMap<SessionId, BTreeSet<Ino>>,
    count: usize,
    recalling: BTreeSet<Ino>,
    contested: BTreeMap<Ino, Contest>,
}

/// The session whose change had a directory recalled.
#[derive(Clone, Copy, Debug)]
struct Contest {
    last: SessionId,
    /// Time of the change by `last`.
    at: Mono,
    /// Time of the last change by another session.
    others_at: Mono,
}

impl Contest {
    fn changed(&mut self, by: SessionId, now: Mono) {
        if self.last != by {
            self.others_at = self.at;
        }
        (self.last, self.at) = (by, now);
    }

    /// Whether nobody but `session` has changed the directory lately.
    fn is_over_for(&self, session: SessionId, now: Mono) -> bool {
        let others_at = if self.last == session { self.others_at } else { self.at };
        now >= others_at.plus_ms(CONTESTED_MS)
    }

    fn is_over(&self, now: Mono) -> bool {
        now >= self.at.plus_ms(CONTESTED_MS) && now >= self.others_at.plus_ms(CONTESTED_MS)
    }
}

impl Leases {
    /// Gives a session the lease of a directory if it may have it; whether it holds it now.
    pub fn grant(&mut self, dir: Ino, session: SessionId, now: Mono) -> bool {
        if self.recalling.contains(&dir) {
            return false;
        }
        let holders = self.holders.get(&dir);
        if holders.is_some_and(|holders| holders.contains(&session)) {
            return true;
        }
        if let Some(contest) = self.contested.get(&dir) {
            if !contest.is_over_for(session, now) {
                return false;
            }
            if contest.is_over(now) {
                self.contested.remove(&dir);
            }
        }
        let of_session = self.by_session.get(&session).map_or(0, BTreeSet::len);
        let full = holders.is_some_and(|holders| holders.len() >= HOLDERS_MAX)
            || self.count >= LEASES_MAX
            || of_session >= SESSION_LEASES_MAX;
        if full {
            return false;
        }
        self.holders.entry(dir).or_default().insert(session);
        self.by_session.entry(session).or_default().insert(dir);
        self.count += 1;
        true
    }

    /// Like [`Leases::grant`], however lately another session has changed the directory.
    #[cfg(test)]
    pub fn grant_now(&mut self, dir: Ino, session: SessionId) -> bool {
        self.contested.remove(&dir);
        self.grant(dir, session, Mono::default())
    }

    /// Whether a session holds a lease that is not being recalled.
    pub fn holds(&self, dir: Ino, session: SessionId) -> bool {
        !self.recalling.contains(&dir) && self.holders.get(&dir).is_some_and(|h| h.contains(&session))
    }

    /// Whether a session may still answer from its cache under a lease: the lease is held, or was not given back yet.
    pub fn may_use(&self, dir: Ino, session: SessionId) -> bool {
        self.holders.get(&dir).is_some_and(|holders| holders.contains(&session))
    }

    /// Holders of leases of `dirs`, without `session`.
    pub fn conflicts(&self, dirs: &BTreeSet<Ino>, session: SessionId) -> Conflicts {
        let others = |dir: &Ino| {
            let holders = self.holders.get(dir)?;
            let others: Vec<SessionId> = holders.iter().copied().filter(|s| *s != session).collect();
            (!others.is_empty()).then_some((*dir, others))
        };
        dirs.iter().filter_map(others).collect()
    }

    /// Begins to recall leases. If a recall of a directory is under way already, begins none and returns that
    /// directory.
    pub fn begin_recall(&mut self, dirs: impl Iterator<Item = Ino> + Clone) -> Option<Ino> {
        let under_way = dirs.clone().find(|dir| self.recalling.contains(dir));
        if under_way.is_none() {
            self.recalling.extend(dirs);
        }
        under_way
    }

    /// A recall is over.
    pub fn end_recall(&mut self, dir: Ino) {
        self.recalling.remove(&dir);
    }

    /// Notes that a session gave a lease back, because another session changes the directory.
    pub fn revoke(&mut self, dir: Ino, session: SessionId, now: Mono) {
        self.remove(dir, session);
        if self.contested.len() >= CONTESTED_MAX {
            self.contested.retain(|_, contest| !contest.is_over(now));
        }
        if self.contested.len() < CONTESTED_MAX {
            self.contested.insert(dir, Contest { last: session, at: now, others_at: now });
        }
    }

    /// Notes that a session has changed entries or attributes under the lease of a directory.
    pub fn changed(&mut self, dir: Ino, session: SessionId, now: Mono) {
        if let Some(contest) = self.contested.get_mut(&dir) {
            contest.changed(session, now);
        }
    }

    fn remove(&mut self, dir: Ino, session: SessionId) {
        let Some(holders) = self.holders.get_mut(&dir) else { return };
        if !holders.remove(&session) {
            return;
        }
        self.count -= 1;
        if holders.is_empty() {
            self.holders.remove(&dir);
        }
        if let Some(dirs) = self.by_session.get_mut(&session) {
            dirs.remove(&dir);
            if dirs.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// A directory is no more.
    pub fn forget_dir(&mut self, dir: Ino) {
        let holders: Vec<SessionId> = self.holders.get(&dir).into_iter().flatten().copied().collect();
        holders.into_iter().for_each(|session| self.remove(dir, session));
        self.contested.remove(&dir);
    }

    /// Forgets a session that has ended, or has lost everything.
    pub fn forget_session(&mut self, session: SessionId) {
        let dirs: Vec<Ino> = self.by_session.get(&session).into_iter().flatten().copied().collect();
        dirs.into_iter().for_each(|dir| self.remove(dir, session));
    }

    /// Leases of all sessions.
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(7);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    #[test]
    fn a_lease_is_held_until_somebody_else_changes_the_directory() {
        let (mut leases, now) = (Leases::default(), Mono::default());
        assert!(leases.grant(D, A, now) && leases.grant(D, A, now) && leases.grant(D, B, now));
        assert_eq!(leases.count(), 2);
        let dirs = BTreeSet::from([D, Ino(8)]);
        assert_eq!(leases.conflicts(&dirs, A), [(D, vec![B])], "its own lease bothers nobody");
        assert_eq!(leases.begin_recall([D].into_iter()), None);
        assert_eq!(leases.begin_recall([Ino(8), D].into_iter()), Some(D));
        assert!(!leases.holds(D, A) && !leases.grant(D, A, now), "nothing is told meanwhile");
        leases.revoke(D, B, now);
        leases.end_recall(D);
        assert!(leases.holds(D, A) && !leases.holds(D, B));
        assert!(!leases.grant(D, B, now.plus_ms(CONTESTED_MS - 1)), "it is contested");
        assert!(leases.grant(D, B, now.plus_ms(CONTESTED_MS)));
        assert!(leases.contested.is_empty());
        leases.forget_session(A);
        assert!(!leases.holds(D, A) && leases.holds(D, B));
        leases.forget_dir(D);
        assert_eq!((leases.count(), leases.conflicts(&dirs, A)), (0, vec![]));
        assert!(leases.by_session.is_empty() && leases.holders.is_empty());
    }

    #[test]
    fn who_alone_changes_a_directory_is_given_its_lease_and_who_looks_waits() {
        let mut leases = Leases::default();
        let ms = |ms: u64| Mono::default().plus_ms(ms);
        assert!(leases.grant(D, A, ms(0)));
        leases.revoke(D, A, ms(1000));
        // Both sessions change the directory in turns: the lease is of no use to either.
        for n in 0..20 {
            leases.changed(D, B, ms(1000 + 60 * n));
            leases.changed(D, A, ms(1030 + 60 * n));
            assert!(!leases.grant(D, A, ms(1031 + 60 * n)) && !leases.grant(D, B, ms(1031 + 60 * n)));
        }
        // Now only one session changes the directory, all the time.
        let last = 1030 + 60 * 19;
        for n in 1..10 {
            leases.changed(D, B, ms(last + n * 10));
            assert!(!leases.grant(D, A, ms(last + n * 10)) && !leases.grant(D, B, ms(last + n * 10)));
        }
        assert!(leases.grant(D, B, ms(last + CONTESTED_MS)));
        leases.changed(D, B, ms(last + CONTESTED_MS));
        assert!(!leases.grant(D, A, ms(last + CONTESTED_MS + 1)), "that would be taken back at once");
        assert!(leases.grant(D, A, ms(last + 2 * CONTESTED_MS)), "nobody changes it");
    }

    #[test]
    fn there_are_bounds() {
        let (mut leases, now) = (Leases::default(), Mono::default());
        for session in 0..HOLDERS_MAX as u64 {
            assert!(leases.grant(D, SessionId(session), now));
        }
        assert!(!leases.grant(D, SessionId(1000), now) && leases.grant(D, SessionId(0), now));
        for dir in 0..2 * CONTESTED_MAX as u64 {
            leases.revoke(Ino(dir), A, now);
        }
        assert_eq!(leases.contested.len(), CONTESTED_MAX);
    }
}
