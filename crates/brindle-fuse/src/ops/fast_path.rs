//! The fast path: a request whose answer is known without a server is answered on the reader's own thread, without a future and its memory.
//! Most requests on the kernel's way to a CREATE, an UNLINK or a READ are such requests.
//!
//! The fast path sees every request, before [`super::dispatch`]. The fast path therefore also notes that a thread has gone on, and that an
//! open has returned.
//!
//! Invariant: an answer from here is the one that the dispatch would give. Exception: sizes and times of directories where the kernel only
//! checks permissions, and shows them to nobody.

use std::time::Duration;

use brindle_types::{Attr, Fault, FileType, Ino};
use brindle_wire::mds::lock::LockSpace;

use super::getattr;
use super::kernel_cache::Moment;
use super::stale::part;
use super::{NOT_KEPT, goes_on, habit, lookup, open, xattr};
use crate::fs::{BrindleFs, refuse};
use crate::reply::Reply;
use crate::request::{Asked, Flush, Getxattr, Lookup, Op, Read, Release};

/// The answer, if it is known.
pub(crate) fn answer(fs: &BrindleFs, asked: Asked, op: &Op) -> Option<Reply> {
    let ino = fs.node_ids.ino(asked.nodeid);
    if goes_on(op) {
        fs.stale.asked(asked.pid, asked.nodeid, op);
        let now = Moment::now(fs.client.seams());
        fs.kernel_cache.gone_on(asked.pid, habit(op, asked.nodeid), now);
    }
    if let Op::Read(Read { fh, .. }) | Op::Flush(Flush { fh, .. }) = op {
        fs.client.open_returned(*fh);
    }
    let known = match op {
        Op::Lookup(op) => lookup(fs, asked, ino, op),
        Op::Getattr(_) => attributes(fs, asked, ino).map(|(attr, kept)| Reply::attr(&attr, kept)),
        Op::Statx(_) => {
            getattr::fast_path(fs, ino, asked.nodeid).map(|(attr, kept)| Reply::statx(&attr, kept))
        }
        Op::Getxattr(op) => return lacking(fs, asked, ino, op),
        Op::Open(op) => open::fast_path(fs, ino, *op),
        Op::Flush(op) => flushed(fs, ino, *op),
        Op::Release(op) => released(fs, ino, *op),
        Op::Opendir(_) => Some(open::directory()),
        Op::Releasedir(_) => Some(Reply::ok()),
        Op::Access(_) => Some(super::access::handle()),
        _ => None,
    };
    if known.is_some() && !matches!(op, Op::Lookup(_)) {
        fs.stale_answered(asked.pid, part(op), ino);
        // The thread asks for something other than the object of its last request.
        fs.recent.forget(asked.pid, ino, fs.client.seams().now());
    }
    known
}

fn lookup(fs: &BrindleFs, asked: Asked, ino: Ino, op: &Lookup) -> Option<Reply> {
    let now = fs.client.seams().now();
    // For a directory the rights will do: the kernel keeps none of the attributes, so it asks again before it
    // shows any.
    let rights = || fs.client.known_dir(ino, &op.name).inspect(|attr| fs.known.note_first(attr)).map(Ok);
    let known = fs.client.known_lead(ino, &op.name);
    known.iter().flatten().for_each(|attr| fs.known.note(attr));
    let known = known.or_else(rights)?;
    fs.recent.forget(asked.pid, ino, now);
    Some(match known {
        Ok(attr) => {
            let nodeid = match attr.kind {
                FileType::Directory => fs.node_ids.found_unmoved(asked.nodeid, &op.name, attr.ino)?,
                _ => attr.ino.0,
            };
            lookup::found(fs, (ino, asked.nodeid), asked.pid, (&op.name, nodeid), attr, now)
        }
        Err(fault) => {
            fs.stale.absent(asked.pid);
            refuse("lookup", ino, &fault)
        }
    })
}

/// Attributes of a file that the thread has just made: those that it was told then.
fn attributes(fs: &BrindleFs, asked: Asked, ino: Ino) -> Option<(Attr, Duration)> {
    let just_made = fs.recent.forget(asked.pid, ino, fs.client.seams().now());
    // A second thread may have opened and written the file meanwhile.
    if let Some(attr) = just_made.filter(|attr| fs.client.is_as_made(attr)) {
        return Some((attr, NOT_KEPT));
    }
    getattr::fast_path(fs, ino, asked.nodeid).or_else(|| rights(fs, asked, ino).map(|attr| (attr, NOT_KEPT)))
}

/// Rights of a directory that several clients change, for a thread that only has its permissions checked.
fn rights(fs: &BrindleFs, asked: Asked, ino: Ino) -> Option<Attr> {
    fs.client.rights(ino)?;
    // Looking at the thread may take a while: the answer has the facts that are known after the look.
    let looks = fs.calls.looks_at_rights_only(asked.pid, fs.client.seams().now());
    fs.client.rights(ino).filter(|_| looks)
}

/// An extended attribute that is known not to exist.
fn lacking(fs: &BrindleFs, asked: Asked, ino: Ino, op: &Getxattr) -> Option<Reply> {
    let lacks = xattr::extras(fs, asked.pid, ino).is_some_and(|extras| extras.lack(&op.name));
    lacks.then(|| Reply::fault(&Fault::new(xattr::lack(&op.name))))
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
            // The answer of the MDT is not awaited.
            drop(taken);
            Reply::ok()
        }
        Err(fault) => refuse("release", ino, &fault),
    })
}
