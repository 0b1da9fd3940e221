//! The volatile state beside the rows: who is connected, what is open, who waits for what. Reclaimed after a restart.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::Mono;
use brindle_types::{Ino, Pair, SessionId};
use tokio::sync::oneshot;

use super::stop::Event;
use crate::opens::Opens;
use crate::store::session::Session;

/// A session as the running MDT sees it.
#[derive(Clone, Debug)]
pub struct LiveSession {
    /// Its row.
    pub row: Session,
    /// When its lease was last renewed.
    pub renewed: Mono,
    /// It has not finished reclaiming what it had before the MDT restarted.
    pub must_reclaim: bool,
}

/// Everything volatile, under the writer lock.
#[derive(Default)]
pub struct Live {
    /// Sessions by id, ended ones too.
    pub sessions: BTreeMap<SessionId, LiveSession>,
    /// Open handles and the rights that come with them.
    pub opens: Opens,
    /// Inodes that an operation of several steps works on.
    pub busy: BTreeSet<Ino>,
    /// Inodes with a recall under way: opens wait for its end.
    pub recalling: BTreeSet<Ino>,
    /// Sessions that may hold pages of inline data of a file somebody writes.
    pub inline_readers: BTreeMap<Ino, BTreeSet<SessionId>>,
    /// Sessions whose end is under way.
    pub ending: BTreeSet<SessionId>,
    /// Reclaim after a restart is under way (see `recovery`).
    pub recovering: bool,
    /// Who waits for what.
    pub events: Events,
}

impl Live {
    /// The session, if it is alive under this epoch.
    pub fn session(&self, id: SessionId, epoch: Pair) -> Option<&LiveSession> {
        self.sessions.get(&id).filter(|s| !s.row.ended && s.row.epoch == epoch)
    }

    /// Whether the session is alive under any epoch.
    pub fn is_alive(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|s| !s.row.ended)
    }

    /// Whether an inode without a name may go at once: nobody has it open, or could still reclaim it.
    pub fn may_purge(&self, ino: Ino) -> bool {
        !self.recovering && !self.opens.is_open(ino)
    }
}

/// Waiters by event. Each is woken once and then looks again by itself.
#[derive(Default)]
pub struct Events {
    waiting: BTreeMap<Event, Vec<oneshot::Sender<()>>>,
}

impl Events {
    /// Registers a waiter; the receiver ends when the event happens.
    pub fn wait(&mut self, event: Event) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let waiters = self.waiting.entry(event).or_default();
        waiters.retain(|w| !w.is_closed());
        waiters.push(tell);
        told
    }

    /// It happened: everybody who waited looks again.
    pub fn fire(&mut self, event: Event) {
        // Dropping the senders wakes the receivers.
        drop(self.waiting.remove(&event));
    }
}
