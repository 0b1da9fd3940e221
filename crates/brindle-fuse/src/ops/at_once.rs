//! What is known without a server is answered on the reader's own thread, without a future and its memory: most of what the
//! kernel asks on its way to a CREATE, an UNLINK or a READ.
//!
//! Invariants: an answer from here is the one that [`super::dispatch`] would give; without one nothing is noted that the
//! dispatch would not note again.

use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::lock::LockSpace;

use super::getattr;
use super::recent::Extras;
use super::shown::Moment;
use super::{NOT_KEPT, goes_on, habit, lookup, name, open};
use crate::fs::{BrindleFs, refuse};
use crate::reply::Reply;
use crate::request::{Asked, Flush, Getxattr, Lookup, Op, Release};

/// The answer, if it is known.
pub(crate) fn answer(fs: &BrindleFs, asked: Asked, op: &Op) -> Option<Reply> {
    let could_be = matches!(
        op,
        Op::Lookup(_)
            | Op::Getattr(_)
            | Op::Statx(_)
            | Op::Getxattr(_)
            | Op::Open(_)
            | Op::Flush(_)
            | Op::Release(_)
            | Op::Opendir(_)
            | Op::Releasedir(_)
            | Op::Access(_)
    );
    if !could_be {
        return None;
    }
    let ino = fs.places.ino(asked.nodeid);
    if goes_on(op) {
        let now = Moment::now(fs.client.seams());
        fs.shown.gone_on(asked.pid, habit(op, asked.nodeid), now);
    }
    let known = match op {
        Op::Lookup(op) => lookup(fs, asked, ino, op),
        Op::Getattr(_) => attributes(fs, asked, ino).map(|(attr, kept)| Reply::attr(&attr, kept)),
        Op::Statx(_) => getattr::at_once(fs, ino, asked.nodeid).map(|(attr, kept)| Reply::statx(&attr, kept)),
        Op::Getxattr(op) => return lacking(fs, asked, ino, op),
        Op::Open(op) => open::at_once(fs, ino, *op),
        Op::Flush(op) => flushed(fs, ino, *op),
        Op::Release(op) => released(fs, ino, *op),
        Op::Opendir(_) => Some(open::directory()),
        Op::Releasedir(_) => Some(Reply::ok()),
        _ => Some(super::access::handle()),
    };
    if known.is_some() && !matches!(op, Op::Lookup(_)) {
        // The thread asks for something else than what its last request was about.
        fs.recent.forget(asked.pid, ino, fs.client.seams().now());
    }
    known
}

fn lookup(fs: &BrindleFs, asked: Asked, ino: Ino, op: &Lookup) -> Option<Reply> {
    let now = fs.client.seams().now();
    let known = fs.client.known_lead(ino, &op.name)?;
    fs.recent.forget(asked.pid, ino, now);
    Some(match known {
        Ok(attr) => lookup::found(fs, (ino, asked.nodeid), asked.pid, &op.name, attr, now),
        Err(fault) => refuse(name(&Op::Lookup(op.clone())), ino, &fault),
    })
}

/// Of what the thread has just made: what it was told then.
fn attributes(fs: &BrindleFs, asked: Asked, ino: Ino) -> Option<(brindle_types::Attr, std::time::Duration)> {
    let just_made = fs.recent.forget(asked.pid, ino, fs.client.seams().now());
    just_made.map(|attr| (attr, NOT_KEPT)).or_else(|| getattr::at_once(fs, ino, asked.nodeid))
}

/// An extended attribute that is known not to exist.
fn lacking(fs: &BrindleFs, asked: Asked, ino: Ino, op: &Getxattr) -> Option<Reply> {
    let just_told = fs.recent.extras(asked.pid, ino, fs.client.seams().now());
    let covered = || fs.client.lasting_attr(ino).map(|(attr, _)| Extras::of(&attr));
    let lacks = just_told.or_else(covered).is_some_and(|extras| extras.lack(&op.name));
    lacks.then(|| Reply::fault(&Fault::new(Code::NoXattr)))
}

/// A descriptor was closed through which its process has written nothing, and which leaves no lock behind.
fn flushed(fs: &BrindleFs, ino: Ino, op: Flush) -> Option<Reply> {
    if !fs.client.has_nothing_to_flush(op.fh, op.lock_owner)
        || fs.client.holds_locks(ino, LockSpace::Posix, op.lock_owner)
    {
        return None;
    }
    fs.owners.forget(op.fh, op.lock_owner);
    Some(Reply::ok())
}

/// An open file is closed that has nothing in the buffer and no lock.
fn released(fs: &BrindleFs, ino: Ino, op: Release) -> Option<Reply> {
    let flock = op.flock_owner.is_some_and(|owner| fs.client.holds_locks(ino, LockSpace::Flock, owner));
    if flock || fs.owners.has(op.fh) || fs.client.is_behind(op.fh) {
        return None;
    }
    Some(match fs.client.close_later(op.fh) {
        Ok(taken) => {
            // Nobody waits for the answer of the MDT.
            drop(taken);
            Reply::ok()
        }
        Err(fault) => refuse("release", ino, &fault),
    })
}
