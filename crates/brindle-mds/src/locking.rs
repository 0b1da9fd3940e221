//! Locks of programs: the lock table, and the requests that wait in it.
//!
//! Volatile: clients reclaim their locks after a restart. A waiting request is answered when the lock is granted, when
//! the client cancels it, or when its session ends. A request that is sent again (the connection was lost) finds the
//! queued one, or the granted lock.

use std::collections::{BTreeMap, VecDeque};

use brindle_types::{Code, Fault, Ino, SessionId};
use brindle_wire::mds::lock::LockState;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::lock_table::{LockTable, Outcome, WaitId};

/// Cancels that came before their request, or after its answer; the oldest are forgotten.
const CANCELS_KEPT_MAX: usize = 1024;

/// Outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lock is held.
    Granted,
    /// The program gave up.
    Cancelled,
}

/// The immediate answer to a request.
pub enum Answer {
    /// The request is done, or refused.
    Now(Result<(), Fault>),
    /// The request waits. The sender is dropped without a word when the session ends or the request is sent again.
    Later(oneshot::Receiver<Ended>),
}

#[derive(Default)]
struct Inner {
    table: LockTable,
    waiters: BTreeMap<WaitId, oneshot::Sender<Ended>>,
    cancelled: VecDeque<WaitId>,
}

impl Inner {
    fn wake(&mut self, granted: Vec<WaitId>) {
        for id in granted {
            if let Some(waiter) = self.waiters.remove(&id) {
                // The request may have gone away; then its client asks again and finds the lock held.
                let _ = waiter.send(Ended::Granted);
            }
        }
    }
}

/// All locks of one MDT and who waits for them.
#[derive(Default)]
pub struct LockService {
    inner: Mutex<Inner>,
}

impl LockService {
    /// The first lock in the way of `lock`.
    pub fn test(&self, ino: Ino, session: SessionId, lock: &LockState) -> Option<(SessionId, LockState)> {
        self.inner.lock().table.test(ino, session, lock)
    }

    /// Sets or gives up a lock; with `wait`, queues a conflicting request under that number.
    pub fn set(&self, ino: Ino, session: SessionId, lock: &LockState, wait: Option<u64>) -> Answer {
        let mut inner = self.inner.lock();
        let id = wait.map(|request| (session, request));
        if let Some(id) = id
            && let Some(at) = inner.cancelled.iter().position(|c| *c == id)
        {
            inner.cancelled.remove(at);
            return Answer::Now(Err(Fault::new(Code::Interrupted)));
        }
        match inner.table.set(ino, session, lock, id) {
            Outcome::Granted(granted) => {
                inner.wake(granted);
                Answer::Now(Ok(()))
            }
            Outcome::Conflict(granted) => {
                inner.wake(granted);
                Answer::Now(Err(Fault::new(Code::LockConflict)))
            }
            Outcome::Waiting(granted) => {
                inner.wake(granted);
                let (tell, told) = oneshot::channel();
                let id = id.expect("only a request with a number is queued");
                inner.waiters.insert(id, tell);
                Answer::Later(told)
            }
            Outcome::Deadlock => Answer::Now(Err(Fault::new(Code::WouldDeadlock))),
            Outcome::TooMany => Answer::Now(Err(Fault::new(Code::TooManyLocks))),
        }
    }

    /// Ends a wait; one that has not come yet is refused when it comes.
    pub fn cancel(&self, ino: Ino, session: SessionId, request: u64) {
        let mut inner = self.inner.lock();
        let id = (session, request);
        if inner.table.cancel(ino, id) {
            if let Some(waiter) = inner.waiters.remove(&id) {
                let _ = waiter.send(Ended::Cancelled);
            }
            return;
        }
        if inner.cancelled.len() == CANCELS_KEPT_MAX {
            inner.cancelled.pop_front();
        }
        inner.cancelled.push_back(id);
    }

    /// Gives up everything of a session that was ended or closed.
    pub fn drop_session(&self, session: SessionId) {
        let mut inner = self.inner.lock();
        let granted = inner.table.drop_session(session);
        inner.wake(granted);
        inner.waiters.retain(|id, _| id.0 != session);
        inner.cancelled.retain(|id| id.0 != session);
    }

    /// Locks held, requests waiting.
    pub fn counts(&self) -> (usize, usize) {
        self.inner.lock().table.counts()
    }
}
