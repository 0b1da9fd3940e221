//! The volatile state beside the rows: sessions, open handles, waiting operations. Reclaimed after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use brindle_net::Limits;
use brindle_stdx::Mono;
use brindle_types::{Ino, ObjectId, Pair, SessionId};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::stop::Event;
use crate::changelog::Known;
use crate::hsm::queue::Queue;
use crate::leases::Leases;
use crate::opens::Opens;
use crate::quota::QuotaTable;
use crate::store::session::Session;
use crate::store::usage::Owners;

/// Files that may wait for their objects to be asked what they have allocated. Of more the figure is an old one until they are written
/// again.
const RECOUNTS_MAX: usize = 1 << 16;

/// A session as the running MDT sees it.
#[derive(Clone, Debug)]
pub struct LiveSession {
    /// Row of the session.
    pub row: Session,
    /// Time of the last renewal of the lease, by the clock of [`crate::hearing`]. Long ago if its client has said
    /// that its cache is empty.
    pub renewed: Mono,
    /// Whether the session has yet to reclaim what it had before the MDT restarted.
    pub must_reclaim: bool,
    /// Limits of its host when the session was last heard; `None` for a host that is trusted fully.
    pub limits: Option<Arc<Limits>>,
}

/// Volatile state, under the writer lock.
#[derive(Default)]
pub struct Live {
    /// Sessions by id, ended ones too.
    pub sessions: BTreeMap<SessionId, LiveSession>,
    /// Leases of directories; given out by readers too, so under a lock of their own.
    pub leases: Mutex<Leases>,
    /// Open handles and the rights that come with them.
    pub opens: Opens,
    /// Inodes that an operation of several steps works on.
    pub busy: BTreeSet<Ino>,
    /// Inodes with a cut that a restart interrupted. Others wait until the cut is finished, so that nobody sees a file with
    /// its old size and finds it cut later.
    pub cut_short: BTreeSet<Ino>,
    /// Inodes with a recall under way: opens wait for its end.
    pub recalling: BTreeSet<Ino>,
    /// Sessions that may hold pages of inline data of a file somebody writes.
    pub inline_readers: BTreeMap<Ino, BTreeSet<SessionId>>,
    /// Number of recoveries due, by file. A recovery asks the file's objects for their length, since a vanished client may have
    /// written bytes that no report mentions. While one is due, closes do not end the write session: the last recovery ends it.
    pub recoveries: BTreeMap<Ino, usize>,
    /// Sessions whose end is under way.
    pub ending: BTreeSet<SessionId>,
    /// Ending sessions whose requests the MDT refuses already, and perhaps not yet every OST that answers.
    pub fencing: BTreeSet<SessionId>,
    /// Files whose name was given to another file a moment ago.
    pub replaced: Replaced,
    /// Files that are open for writing, and of which no writer knows how much all objects have allocated: that is asked when they are
    /// closed.
    pub uncounted: BTreeSet<Ino>,
    /// Files whose objects are to be asked how much they have allocated; no more than [`RECOUNTS_MAX`].
    pub recounts: BTreeSet<Ino>,
    /// File of `recounts` whose objects are being asked.
    pub recounting: Option<Ino>,
    /// Signalled when there are files in `recounts`.
    pub recounts_due: Arc<Notify>,
    /// Object of the destroy queue behind which the next round begins, by OST, where some before it are
    /// stuck.
    pub destroyed_up_to: BTreeMap<u16, ObjectId>,
    /// More clients are silent than are heard, and it is not known yet whether that is this side's fault (see `hearing`).
    pub hears_few: bool,
    /// Reclaim after a restart is under way (see `recovery`).
    pub recovering: bool,
    /// Limits of users and groups, and the reservations of mounts.
    pub limits: QuotaTable,
    /// Readers and size of the changelog.
    pub changelog: Known,
    /// Actions of tiering, and the agents that carry them out.
    pub hsm: Queue,
    /// Waits of requests.
    pub events: Events,
}

impl Live {
    /// The session, if it is alive under this epoch.
    pub fn session(&self, id: SessionId, epoch: Pair) -> Option<&LiveSession> {
        self.sessions.get(&id).filter(|s| !s.row.ended && s.row.epoch == epoch)
    }

    /// Limits of the host of a session; `None` for a host that is trusted fully.
    pub fn limits(&self, id: SessionId) -> Option<&Limits> {
        self.sessions.get(&id)?.limits.as_deref()
    }

    /// Whether the session is alive under any epoch.
    pub fn is_alive(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|s| !s.row.ended)
    }

    /// Whether the lease of the session may be renewed: nobody has begun to end it.
    pub fn may_renew(&self, id: SessionId) -> bool {
        self.is_alive(id) && !self.ending.contains(&id)
    }

    /// Notes that one more recovery of a file is due (see [`crate::expire::recover`]).
    pub fn recovery_due(&mut self, ino: Ino) {
        *self.recoveries.entry(ino).or_default() += 1;
    }

    /// Notes that one recovery is done, also if there was nothing to do or the file is gone.
    pub fn recovery_done(&mut self, ino: Ino) {
        if let Some(due) = self.recoveries.get_mut(&ino) {
            *due -= 1;
            if *due == 0 {
                self.recoveries.remove(&ino);
            }
        }
    }

    /// Number of recoveries of a file that are still to come.
    pub fn recoveries_due(&self, ino: Ino) -> usize {
        self.recoveries.get(&ino).copied().unwrap_or(0)
    }

    /// The objects of a file are to be asked how much they have allocated.
    pub fn recount(&mut self, ino: Ino) {
        if self.recounts.len() < RECOUNTS_MAX {
            self.recounts.insert(ino);
            self.recounts_due.notify_one();
        }
    }

    /// The next file of `recounts` behind `last`.
    pub fn next_recount(&mut self, last: Ino) -> Option<Ino> {
        let behind = self.recounts.range((Bound::Excluded(last), Bound::Unbounded)).next();
        self.recounting = behind.or_else(|| self.recounts.first()).copied();
        self.recounting.inspect(|next| _ = self.recounts.remove(next))
    }

    /// Notes that no client knows any more how much the objects of a file have allocated. `owners`: owners of the
    /// file.
    pub fn uncount(&mut self, ino: Ino, owners: Owners) {
        if self.uncounted.insert(ino) {
            self.limits.doubt(owners);
        }
    }

    /// Notes that a file has other owners. Bytes of the file that only the OSTs know now belong to them.
    pub fn owners_changed(&mut self, ino: Ino, owners: Owners) {
        if self.is_uncounted(ino) {
            self.limits.doubt(owners);
        }
    }

    /// Files of which only the OSTs know what they have allocated.
    pub fn all_uncounted(&self) -> BTreeSet<Ino> {
        let counted_later = self.recounts.iter().chain(&self.recounting).chain(self.recoveries.keys());
        self.uncounted.iter().chain(counted_later).copied().collect()
    }

    /// Whether only the OSTs know how much a file has allocated.
    pub fn is_uncounted(&self, ino: Ino) -> bool {
        let is_counted_later = self.recounts.contains(&ino) || self.recounting == Some(ino);
        self.uncounted.contains(&ino) || is_counted_later || self.recoveries.contains_key(&ino)
    }

    /// Whether an inode without a name may go at once: nobody has it open, or could still reclaim or open it.
    pub fn may_purge(&self, ino: Ino) -> bool {
        !self.recovering && !self.opens.is_open(ino) && !self.replaced.holds(ino)
    }
}

/// Files that a rename has replaced, kept for a moment. A process that has just looked the name up opens the old file
/// next, and a replaced name must never seem to be missing. The rows hold them as orphans, so that a restart lets
/// them go.
#[derive(Default)]
pub struct Replaced {
    queue: VecDeque<(Mono, Ino)>,
    inodes: BTreeSet<Ino>,
}

impl Replaced {
    /// Time for which a replaced file is kept. Kernels look a name up once more when an open comes too late.
    const KEEP_MS: u64 = 1_000;
    /// Most files that are kept; further ones are removed at once.
    const MAX: usize = 4096;

    /// Whether another one can be kept.
    pub fn has_room(&self) -> bool {
        self.inodes.len() < Self::MAX
    }

    /// Keeps a file.
    pub fn keep(&mut self, ino: Ino, now: Mono) {
        if self.inodes.insert(ino) {
            self.queue.push_back((now.plus_ms(Self::KEEP_MS), ino));
        }
    }

    /// Whether the file is kept.
    pub fn holds(&self, ino: Ino) -> bool {
        self.inodes.contains(&ino)
    }

    /// Time at which the next file may go.
    pub fn next_due(&self) -> Option<Mono> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Takes one out that may go.
    pub fn take_due(&mut self, now: Mono) -> Option<Ino> {
        let (_, ino) = *self.queue.front().filter(|(due, _)| *due <= now)?;
        self.queue.pop_front();
        self.inodes.remove(&ino);
        Some(ino)
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

    /// The event happened: everybody who waited looks again.
    pub fn fire(&mut self, event: Event) {
        // Dropping the senders wakes the receivers.
        drop(self.waiting.remove(&event));
    }
}
