//! get_lock, set_lock, cancel_lock: fcntl, OFD and flock locks of all clients.

use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::lock::{CancelLockReq, GetLockReq, GetLockResp, LockKind, LockSpace, SetLockReq};

use crate::locking::{Answer, Ended};
use crate::mdt::{Call, Mdt};
use crate::recovery;

/// Says which lock would be in the way.
pub async fn handle_get(mdt: &Mdt, call: &Call, req: GetLockReq) -> Result<GetLockResp> {
    recovery::over(mdt).await;
    let conflict = mdt.locks().test(req.ino, call.session, &req.lock).map(|(session, mut lock)| {
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
    let answer = {
        // Under the state's lock, so that a session that ends now loses this lock too.
        let live = mdt.live();
        if live.session(call.session, call.epoch).is_none() {
            return Err(Fault::new(Code::StaleSession).subject(call.session.to_string()));
        }
        mdt.locks().set(req.ino, call.session, &req.lock, req.wait.then_some(req.request))
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

/// Ends the waiting of a request.
pub async fn handle_cancel(mdt: &Mdt, call: &Call, req: CancelLockReq) -> Result<Empty> {
    mdt.locks().cancel(req.ino, call.session, req.request);
    Ok(Empty {})
}
