//! The table of open handles, and the rights that come with them: volatile, reclaimed by clients after a restart.
//!
//! State of an inode (ARCHITECTURE, "Sessions, opens, modes"):
//!
//! | state | how it comes | how it goes |
//! |---|---|---|
//! | nobody writes | last write handle gone | first write handle |
//! | one session writes, exclusive | it is the only one with readable or writable handles | its last write handle, or a recall |
//! | shared | a write handle beside handles of other sessions, or a recall | last write handle |

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::{Ino, SessionId};
use brindle_wire::mds::open::{Access, OpenMode};
use brindle_wire::notify::Recall;

/// Handles of all sessions together.
pub const OPENS_MAX: usize = 1 << 20;

/// An open handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Whether the handle is open for reading.
    pub read: bool,
    /// Whether the handle is open for writing.
    pub write: bool,
    /// Whether the handle is open for executing.
    pub execute: bool,
}

impl Handle {
    /// The handle of an open with this access.
    pub fn of(access: Access) -> Handle {
        Handle { read: access.read, write: access.write, execute: access.execute }
    }

    /// Whether an open with this access makes the same handle.
    pub fn is_of(self, access: Access) -> bool {
        self == Handle::of(access)
    }
}

/// Writers of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// No session writes.
    Nobody,
    /// One session, which is the authority for size and times.
    Exclusive(SessionId),
    /// One or several sessions; objects and MDT are the authority for size and times.
    Shared,
}

/// Decision on an open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The open gets a handle of this mode.
    Grant(OpenMode),
    /// First these sessions give this right back.
    Recall(Recall, Vec<SessionId>),
}

#[derive(Clone, Debug, Default)]
struct InodeOpens {
    handles: BTreeMap<(SessionId, u64), Handle>,
    /// While somebody writes: the exclusive holder.
    exclusive: Option<SessionId>,
    /// Sessions that may cache pages that they read. The right is the session's, not the handle's that came with it:
    /// it stays until it is recalled or the session's last handle goes.
    cached: BTreeSet<SessionId>,
    /// Number of the last report of each session with handles.
    reported: BTreeMap<SessionId, u64>,
}

impl InodeOpens {
    fn has_session(&self, session: SessionId) -> bool {
        self.handles.range((session, 0)..=(session, u64::MAX)).next().is_some()
    }

    fn writing(&self) -> Writing {
        if !self.handles.values().any(|h| h.write) {
            return Writing::Nobody;
        }
        self.exclusive.map_or(Writing::Shared, Writing::Exclusive)
    }

    fn sessions(&self, wanted: impl Fn(SessionId, &Handle) -> bool) -> Vec<SessionId> {
        let mut found: Vec<SessionId> =
            self.handles.iter().filter(|((s, _), h)| wanted(*s, h)).map(|((s, _), _)| *s).collect();
        found.dedup();
        found
    }
}

/// All open handles of one MDT.
#[derive(Clone, Debug, Default)]
pub struct Opens {
    inodes: BTreeMap<Ino, InodeOpens>,
    by_session: BTreeMap<SessionId, BTreeSet<(Ino, u64)>>,
    count: usize,
}

impl Opens {
    /// Decision on an open by `session`. `marked`: the inode was open for writing when the MDT stopped, and
    /// its size is not recovered yet.
    pub fn decide(&self, ino: Ino, session: SessionId, access: Access, marked: bool) -> Decision {
        let none = InodeOpens::default();
        let opens = self.inodes.get(&ino).unwrap_or(&none);
        match opens.writing() {
            Writing::Exclusive(holder) if holder != session => {
                Decision::Recall(Recall::Exclusive, vec![holder])
            }
            Writing::Exclusive(_) if access.write => Decision::Grant(OpenMode::Exclusive),
            Writing::Exclusive(_) | Writing::Shared => Decision::Grant(OpenMode::Direct),
            Writing::Nobody if marked => Decision::Grant(OpenMode::Direct),
            Writing::Nobody if !access.write => Decision::Grant(OpenMode::Cached),
            Writing::Nobody => {
                let cached: Vec<SessionId> = opens.cached.iter().copied().filter(|s| *s != session).collect();
                let readable = opens.handles.iter().any(|((s, _), h)| h.read && *s != session);
                match (cached.is_empty(), readable) {
                    (false, _) => Decision::Recall(Recall::ReadCache, cached),
                    (true, true) => Decision::Grant(OpenMode::Direct),
                    (true, false) => Decision::Grant(OpenMode::Exclusive),
                }
            }
        }
    }

    /// Sessions whose handles forbid another session this access: a running program must not be written
    /// (ETXTBSY), and a file open for writing must not be started. (Within a session the client's kernel sees
    /// to that.)
    pub fn forbid(&self, ino: Ino, session: SessionId, access: Access) -> Vec<SessionId> {
        let Some(opens) = self.inodes.get(&ino) else { return Vec::new() };
        let changes = access.write || access.truncate;
        opens.sessions(|s, h| s != session && (access.execute && h.write || changes && h.execute))
    }

    /// Adds a handle in a mode that [`Opens::decide`] granted.
    pub fn add(&mut self, ino: Ino, session: SessionId, handle: u64, access: Access, mode: OpenMode) {
        let opens = self.inodes.entry(ino).or_default();
        let entry = Handle::of(access);
        match mode {
            OpenMode::Exclusive => opens.exclusive = Some(session),
            OpenMode::Cached => _ = opens.cached.insert(session),
            OpenMode::Direct => {}
        }
        if opens.handles.insert((session, handle), entry).is_none() {
            self.count += 1;
        }
        self.by_session.entry(session).or_default().insert((ino, handle));
    }

    /// Removes a handle.
    pub fn remove(&mut self, ino: Ino, session: SessionId, handle: u64) -> Option<Handle> {
        let opens = self.inodes.get_mut(&ino)?;
        let removed = opens.handles.remove(&(session, handle))?;
        if opens.writing() == Writing::Nobody {
            opens.exclusive = None;
        }
        if !opens.has_session(session) {
            opens.reported.remove(&session);
            opens.cached.remove(&session);
        }
        if opens.handles.is_empty() {
            self.inodes.remove(&ino);
        }
        self.count -= 1;
        if let Some(of_session) = self.by_session.get_mut(&session) {
            of_session.remove(&(ino, handle));
            if of_session.is_empty() {
                self.by_session.remove(&session);
            }
        }
        Some(removed)
    }

    /// A handle.
    pub fn get(&self, ino: Ino, session: SessionId, handle: u64) -> Option<&Handle> {
        self.inodes.get(&ino)?.handles.get(&(session, handle))
    }

    /// Rights of a session's open handles of an inode, taken together; `None` without a handle.
    pub fn held(&self, ino: Ino, session: SessionId) -> Option<Handle> {
        let handles = &self.inodes.get(&ino)?.handles;
        let own = handles.range((session, 0)..=(session, u64::MAX)).map(|(_, handle)| *handle);
        own.reduce(|a, b| Handle {
            read: a.read || b.read,
            write: a.write || b.write,
            execute: a.execute || b.execute,
        })
    }

    /// Writers of an inode.
    pub fn writing(&self, ino: Ino) -> Writing {
        self.inodes.get(&ino).map_or(Writing::Nobody, InodeOpens::writing)
    }

    /// Whether anybody has a writable handle.
    pub fn is_written(&self, ino: Ino) -> bool {
        self.writing(ino) != Writing::Nobody
    }

    /// Whether a session has a writable handle.
    pub fn is_written_by(&self, ino: Ino, session: SessionId) -> bool {
        let is_writer = |((of, _), handle): (&(SessionId, u64), &Handle)| handle.write && *of == session;
        self.inodes.get(&ino).is_some_and(|opens| opens.handles.iter().any(is_writer))
    }

    /// Whether anybody has a handle.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// Whether the write session of an inode ends with this handle.
    pub fn is_last_writer(&self, ino: Ino, session: SessionId, handle: u64) -> bool {
        let Some(opens) = self.inodes.get(&ino) else { return false };
        let mut writers = opens.handles.iter().filter(|(_, h)| h.write).map(|(key, _)| *key);
        writers.next() == Some((session, handle)) && writers.next().is_none()
    }

    /// Whether this is the only handle of an inode.
    pub fn is_last(&self, ino: Ino, session: SessionId, handle: u64) -> bool {
        self.inodes
            .get(&ino)
            .is_some_and(|opens| opens.handles.len() == 1 && opens.handles.contains_key(&(session, handle)))
    }

    /// The mode that a session's writes and reads of an inode have now.
    pub fn mode(&self, ino: Ino, session: SessionId) -> OpenMode {
        let none = InodeOpens::default();
        let opens = self.inodes.get(&ino).unwrap_or(&none);
        match opens.writing() {
            Writing::Exclusive(holder) if holder == session => OpenMode::Exclusive,
            Writing::Nobody if opens.cached.contains(&session) => OpenMode::Cached,
            _ => OpenMode::Direct,
        }
    }

    /// Sessions with a handle on the inode, `session` left out, in order.
    pub fn others(&self, ino: Ino, session: SessionId) -> Vec<SessionId> {
        self.inodes.get(&ino).map_or(Vec::new(), |o| o.sessions(|s, _| s != session))
    }

    /// Sessions with a readable handle on the inode, `session` left out, in order.
    pub fn other_readers(&self, ino: Ino, session: SessionId) -> Vec<SessionId> {
        self.inodes.get(&ino).map_or(Vec::new(), |o| o.sessions(|s, h| h.read && s != session))
    }

    /// Sessions with a writable handle on the inode, `session` left out, in order.
    pub fn other_writers(&self, ino: Ino, session: SessionId) -> Vec<SessionId> {
        self.inodes.get(&ino).map_or(Vec::new(), |o| o.sessions(|s, h| h.write && s != session))
    }

    /// Writable handles on the inode, those of `session` left out, in order.
    pub fn other_write_handles(&self, ino: Ino, session: SessionId) -> Vec<(SessionId, u64)> {
        let Some(opens) = self.inodes.get(&ino) else { return Vec::new() };
        let others = opens.handles.iter().filter(|((s, _), h)| h.write && *s != session);
        others.map(|(key, _)| *key).collect()
    }

    /// A session gave a right back.
    pub fn revoke(&mut self, ino: Ino, session: SessionId, right: Recall) {
        let Some(opens) = self.inodes.get_mut(&ino) else { return };
        match right {
            Recall::Exclusive if opens.exclusive == Some(session) => opens.exclusive = None,
            Recall::Exclusive => {}
            Recall::ReadCache => _ = opens.cached.remove(&session),
        }
    }

    /// Number of the last report of a session, 0 if it made none; `None` if it has no handle on the inode.
    pub fn reported(&self, ino: Ino, session: SessionId) -> Option<u64> {
        let opens = self.inodes.get(&ino).filter(|opens| opens.has_session(session))?;
        Some(opens.reported.get(&session).copied().unwrap_or(0))
    }

    /// A session made a report.
    pub fn set_reported(&mut self, ino: Ino, session: SessionId, number: u64) {
        if let Some(opens) = self.inodes.get_mut(&ino).filter(|opens| opens.has_session(session)) {
            opens.reported.insert(session, number);
        }
    }

    /// Handles of a session, in order: (inode, handle).
    pub fn of_session(&self, session: SessionId) -> Vec<(Ino, u64)> {
        self.by_session.get(&session).map_or(Vec::new(), |s| s.iter().copied().collect())
    }

    /// Inodes that somebody has open, in order.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.inodes.keys().copied()
    }

    /// Number of handles.
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Ino = Ino(7);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const R: Access = Access { read: true, write: false, truncate: false, execute: false };
    const W: Access = Access { read: false, write: true, truncate: false, execute: false };

    fn open(opens: &mut Opens, session: SessionId, handle: u64, access: Access) -> OpenMode {
        loop {
            match opens.decide(F, session, access, false) {
                Decision::Grant(mode) => {
                    opens.add(F, session, handle, access, mode);
                    return mode;
                }
                Decision::Recall(right, from) => from.iter().for_each(|s| opens.revoke(F, *s, right)),
            }
        }
    }

    #[test]
    fn the_table_of_modes_holds() {
        let mut o = Opens::default();
        assert_eq!(open(&mut o, A, 1, R), OpenMode::Cached);
        assert_eq!(open(&mut o, A, 2, W), OpenMode::Exclusive, "own readers do not count");
        assert_eq!(open(&mut o, A, 3, R), OpenMode::Direct, "somebody writes");
        assert_eq!(o.decide(F, B, R, false), Decision::Recall(Recall::Exclusive, vec![A]));
        assert_eq!(open(&mut o, B, 1, R), OpenMode::Direct);
        assert_eq!(o.writing(F), Writing::Shared);
        assert_eq!(open(&mut o, A, 4, W), OpenMode::Direct, "once shared, always shared");
        o.remove(F, A, 2);
        assert!(o.is_last_writer(F, A, 4));
        o.remove(F, A, 4);
        assert_eq!(o.writing(F), Writing::Nobody);
        assert_eq!(open(&mut o, A, 5, R), OpenMode::Cached, "a new time without writers");
    }

    #[test]
    fn the_right_to_keep_pages_outlives_the_handle_it_came_with() {
        let mut o = Opens::default();
        open(&mut o, A, 1, R);
        open(&mut o, B, 1, W);
        o.remove(F, B, 1);
        assert_eq!(open(&mut o, A, 2, R), OpenMode::Cached);
        o.remove(F, A, 2);
        assert_eq!(
            o.decide(F, B, W, false),
            Decision::Recall(Recall::ReadCache, vec![A]),
            "handle 1 has it too"
        );
        o.remove(F, A, 1);
        assert_eq!(o.decide(F, B, W, false), Decision::Grant(OpenMode::Exclusive));
    }

    #[test]
    fn readers_of_others_forbid_exclusive_even_after_their_recall() {
        let mut o = Opens::default();
        open(&mut o, B, 1, R);
        assert_eq!(o.decide(F, A, W, false), Decision::Recall(Recall::ReadCache, vec![B]));
        assert_eq!(open(&mut o, A, 1, W), OpenMode::Direct);
        let mut o = Opens::default();
        open(&mut o, B, 1, W);
        o.remove(F, B, 1);
        assert_eq!(open(&mut o, A, 1, W), OpenMode::Exclusive);
        assert_eq!((o.count(), o.is_last(F, A, 1)), (1, true));
        assert_eq!(Opens::default().decide(F, A, R, true), Decision::Grant(OpenMode::Direct), "marked");
    }
}
