//! get_lock, set_lock, cancel_lock: fcntl, OFD and flock locks of all clients.

use std::collections::BTreeSet;

use brindle_types::{Code, Fault, Ino, Result, SessionId};
use brindle_wire::mds::Empty;
use brindle_wire::mds::lock::{CancelLockReq, GetLockReq, GetLockResp, LockKind, LockSpace, SetLockReq};

use crate::ask;
use crate::locking::{Answer, Ended};
use crate::mdt::{Call, Mdt};
use crate::recovery;

/// Most clients that are asked for one request.
const ASKED_MAX: usize = 16;

/// Says which lock would be in the way.
pub async fn handle_get(mdt: &Mdt, call: &Call, req: GetLockReq) -> Result<GetLockResp> {
    recovery::over(mdt).await;
    let mut asked = Asked::default();
    let conflict = loop {
        let conflict = mdt.locks().test(req.ino, call.session, &req.lock);
        match &conflict {
            Some((holder, _)) if asked.closes(mdt, req.ino, *holder).await => {}
            _ => break conflict,
        }
    };
    let conflict = conflict.map(|(session, mut lock)| {
        if session != call.session {
            // A process number of another host means nothing here.
            lock.pid = 0;
        }
        lock
    });
    Ok(GetLockResp { conflict })
}

/// Sets or gives up a lock, waiting for it if asked to.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: SetLockReq) -> Result<Empty> {
    if req.lock.space == LockSpace::Posix && req.lock.start > req.lock.end {
        return Err(Fault::new(Code::InvalidArgument).why("the range ends before it starts"));
    }
    if req.lock.kind != LockKind::Unlock {
        recovery::over(mdt).await;
    }
    let mut asked = Asked::default();
    let answer = loop {
        let answer = set(mdt, call, &req)?;
        let is_refused = matches!(&answer, Answer::Now(Err(fault)) if fault.code == Code::LockConflict);
        let holder = mdt.locks().test(req.ino, call.session, &req.lock).filter(|_| is_refused);
        match holder {
            Some((holder, _)) if asked.closes(mdt, req.ino, holder).await => {}
            // The lock has become free since it was refused.
            None if is_refused && asked.once_more() => {}
            _ => break answer,
        }
    };
    let told = match answer {
        Answer::Now(outcome) => return outcome.map(|()| Empty {}),
        Answer::Later(told) => told,
    };
    let _listed = mdt.waits().enter("set_lock", || format!("a lock on {}", req.ino.fid()));
    match told.await {
        Ok(Ended::Granted) => Ok(Empty {}),
        Ok(Ended::Cancelled) => Err(Fault::new(Code::Interrupted)),
        Err(_) => Err(Fault::new(Code::Disconnected).why("the request was sent again, or its session ended")),
    }
}

fn set(mdt: &Mdt, call: &Call, req: &SetLockReq) -> Result<Answer> {
    // Under the state's lock, so that a session that ends now loses this lock too.
    let live = mdt.live();
    if live.session(call.session, call.epoch).is_none() {
        return Err(Fault::new(Code::StaleSession).subject(call.session.to_string()));
    }
    Ok(mdt.locks().set(req.ino, call.session, &req.lock, req.wait.then_some(req.request)))
}

/// Sessions that were asked to release closed files, for one request. A program that has closed a file holds no lock on it any more, but
/// its kernel tells the mount of the close a moment after close(2) has returned.
#[derive(Default)]
struct Asked {
    sessions: BTreeSet<SessionId>,
    was_free: bool,
}

impl Asked {
    /// Has a holder release handles that its programs have closed. `false`: that was done before, so that the lock is held by
    /// an open file.
    async fn closes(&mut self, mdt: &Mdt, ino: Ino, holder: SessionId) -> bool {
        if self.sessions.len() >= ASKED_MAX || !self.sessions.insert(holder) {
            return false;
        }
        ask::release_closed(mdt, ino, holder).await;
        true
    }

    /// Whether to try once more for a lock that has become free. Only once, since others may be faster again and
    /// again.
    fn once_more(&mut self) -> bool {
        !std::mem::replace(&mut self.was_free, true)
    }
}

/// Ends the waiting of a request.
pub async fn handle_cancel(mdt: &Mdt, call: &Call, req: CancelLockReq) -> Result<Empty> {
    mdt.locks().cancel(req.ino, call.session, req.request);
    Ok(Empty {})
}
