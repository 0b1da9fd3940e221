//! GETLK, SETLK and SETLKW: fcntl, OFD and flock locks.

use std::pin::pin;

use brindle_client::{Cancel, Client, Ctx};
use brindle_types::Fault;
use brindle_wire::mds::lock::{LockKind as Kind, LockSpace, LockState};
use futures_util::future::{Either, select};

use crate::fs::{BrindleFs, Done, Undo, Who};
use crate::reply::Reply;
use crate::request::{Lock, LockKind, Setlk};

/// Last byte of a lock to the end of the file, as the kernel says it.
const KERNEL_END: u64 = i64::MAX as u64;

fn state(lock: &Lock) -> LockState {
    LockState {
        space: if lock.flock { LockSpace::Flock } else { LockSpace::Posix },
        owner: lock.owner,
        kind: match lock.kind {
            LockKind::Read => Kind::Read,
            LockKind::Write => Kind::Write,
            LockKind::Unlock => Kind::Unlock,
        },
        start: if lock.flock { 0 } else { lock.start },
        end: if lock.flock || lock.end >= KERNEL_END { u64::MAX } else { lock.end },
        pid: lock.pid,
    }
}

pub(crate) async fn get(client: &Client, who: &Who, op: Lock) -> Result<Reply, Fault> {
    let conflict = client.get_lock(who.ino, state(&op)).await?;
    let holder = conflict.map(|found| Lock {
        kind: match found.kind {
            Kind::Read => LockKind::Read,
            Kind::Write => LockKind::Write,
            Kind::Unlock => LockKind::Unlock,
        },
        start: found.start.min(KERNEL_END),
        end: found.end.min(KERNEL_END),
        pid: found.pid,
        ..op
    });
    Ok(Reply::lock(holder.as_ref()))
}

pub(crate) async fn set(fs: &BrindleFs, who: &Who, op: Setlk) -> Result<Done, Fault> {
    let lock = state(&op.lock);
    if lock.space == LockSpace::Posix && lock.kind != Kind::Unlock {
        // Before it is granted: the RELEASE may come while a killed caller's request is still under way.
        fs.owners.note(op.lock.fh, lock.owner);
    }
    // Other processes may have inherited the open file: the lock that it held before is theirs, too.
    let held = lock.space == LockSpace::Flock && fs.client.holds_locks(who.ino, lock.space, lock.owner);
    let cancel = Cancel::new();
    let ctx = Ctx { cred: who.ctx.cred.clone(), cancel: cancel.clone() };
    let mut setting = pin!(fs.client.set_lock(&ctx, who.ino, lock.clone(), op.wait));
    let outcome = match select(&mut setting, pin!(who.cancel.requested())).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => {
            cancel.cancel();
            setting.await
        }
    };
    outcome?;
    let shared = held.then_some(op.lock.fh);
    let undo = if lock.kind == Kind::Unlock { Undo::Nothing } else { Undo::Unlock(who.ino, lock, shared) };
    Ok(Done { reply: Reply::ok(), undo })
}
