//! The operations of the kernel, one file each, and the table of them.

mod access;
pub(crate) mod beside;
pub(crate) mod caller_syscall;
mod copy_range;
mod create;
pub(crate) mod failed;
mod fallocate;
pub(crate) mod fast_path;
mod flush;
mod fsync;
mod getattr;
mod ioctl;
pub(crate) mod kernel_cache;
pub(crate) mod known;
mod link;
mod lock;
mod lookup;
mod mkdir;
mod mknod;
mod open;
pub(crate) mod owners;
mod read;
mod readdir;
mod readlink;
pub(crate) mod recent;
mod release;
pub(crate) mod releases;
mod rename;
mod rmdir;
mod seek;
mod setattr;
pub(crate) mod stale;
mod statfs;
mod symlink;
mod tmpfile;
mod unlink;
mod write;
mod xattr;

use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::cast::bounded_u32;
use brindle_types::{Attr, Code, Fault};

use self::kernel_cache::Habit;
use crate::fs::{BrindleFs, Done, Who};
use crate::reply::{Entry, Reply};
use crate::request::Op;

/// Name of an operation in the log.
pub(crate) fn name(op: &Op) -> &'static str {
    match op {
        Op::Lookup(_) => "lookup",
        Op::Getattr(_) => "getattr",
        Op::Statx(_) => "statx",
        Op::Setattr(_) => "setattr",
        Op::Readlink => "readlink",
        Op::Symlink(_) => "symlink",
        Op::Mknod(_) => "mknod",
        Op::Mkdir(_) => "mkdir",
        Op::Unlink(_) => "unlink",
        Op::Rmdir(_) => "rmdir",
        Op::Rename(_) => "rename",
        Op::Link(_) => "link",
        Op::Open(_) => "open",
        Op::Create(_) => "create",
        Op::Tmpfile(_) => "tmpfile",
        Op::Read(_) => "read",
        Op::Write(_) => "write",
        Op::Flush(_) => "flush",
        Op::Fsync(_) => "fsync",
        Op::Release(_) => "release",
        Op::Fallocate(_) => "fallocate",
        Op::Lseek(_) => "seek",
        Op::Ioctl(_) => "ioctl",
        Op::CopyFileRange(_) => "copy_range",
        Op::Getlk(_) => "getlk",
        Op::Setlk(_) => "setlk",
        Op::Setxattr(_) => "setxattr",
        Op::Getxattr(_) => "getxattr",
        Op::Listxattr(_) => "listxattr",
        Op::Removexattr(_) => "removexattr",
        Op::Opendir(_) => "opendir",
        Op::Readdir(_) => "readdir",
        Op::Releasedir(_) => "releasedir",
        Op::Fsyncdir(_) => "fsyncdir",
        Op::Statfs => "statfs",
        Op::Access(_) => "access",
    }
}

/// Runs one operation that [`fast_path`] has no answer to.
///
/// Rare and long operations are in boxes of their own, because each request allocates room for the largest branch.
pub(crate) async fn dispatch(fs: Arc<BrindleFs>, who: Who, op: Op) -> Result<Done, Fault> {
    let client = &fs.client;
    if !matches!(op, Op::Getxattr(_) | Op::Listxattr(_)) {
        fs.recent.forget(who.tid, who.ino, client.seams().now());
    }
    let reply = match op {
        Op::Open(op) => return open::handle(client, &who, op).await.map_err(gone),
        Op::Create(op) => return create::handle(&fs, &who, op).await,
        Op::Tmpfile(op) => return tmpfile::handle(&fs, &who, op).await,
        Op::Setlk(op) => return Box::pin(lock::set(&fs, &who, op)).await,
        Op::Lookup(op) => lookup::handle(&fs, &who, op).await,
        Op::Symlink(op) => entry(&fs, symlink::handle(client, &who, op).await),
        Op::Mknod(op) => entry(&fs, mknod::handle(client, &who, op).await),
        Op::Mkdir(op) => mkdir::handle(&fs, &who, op).await,
        Op::Link(op) => entry(&fs, link::handle(client, &who, op).await),
        Op::Getattr(_) => {
            getattr::handle(&fs, &who).await.map(|(a, kept)| Reply::attr(&a, kept)).map_err(gone)
        }
        Op::Statx(_) => {
            getattr::handle(&fs, &who).await.map(|(a, kept)| Reply::statx(&a, kept)).map_err(gone)
        }
        Op::Setattr(op) => setattr::handle(&fs, &who, op).await.map_err(gone),
        Op::Readlink => readlink::handle(client, &who).await.map_err(gone),
        Op::Unlink(op) => unlink::handle(client, &who, op).await,
        Op::Rmdir(op) => rmdir::handle(client, &who, op).await,
        Op::Rename(op) => rename::handle(&fs, &who, op).await,
        Op::Read(op) => {
            if op.lock_owner.is_none() {
                fs.beside.fills(who.ino, op.offset..op.offset.saturating_add(op.size.into()));
            }
            read::handle(client, &who, op).await
        }
        Op::Write(op) => {
            let (fh, len_bytes) = (op.fh, op.data.len() as u64);
            let written = write::handle(&fs, &who, op).await;
            match written == Ok(len_bytes) {
                true => fs.failed.made(who.tid, fh),
                false => fs.failed.note(who.tid, fh, client.seams().now()),
            }
            written.map(|written| Reply::written(bounded_u32(written)))
        }
        Op::Flush(op) => flush::handle(&fs, &who, op).await,
        Op::Fsync(op) => Box::pin(fsync::handle(client, op)).await,
        Op::Release(op) => release::handle(&fs, &who, op).await,
        Op::Fallocate(op) => Box::pin(fallocate::handle(client, &who, op)).await,
        Op::Lseek(op) => seek::handle(client, op).await,
        Op::Ioctl(op) => ioctl::handle(client, &who, op).await.map_err(gone),
        Op::CopyFileRange(op) => Box::pin(copy_range::handle(client, &who, op)).await,
        Op::Getlk(op) => lock::get(client, &who, op).await,
        Op::Setxattr(op) => {
            let set = xattr::set(client, &who, op).await;
            fs.recent.forget_extras();
            set.map_err(gone)
        }
        Op::Getxattr(op) => xattr::get(&fs, &who, op).await.map_err(gone),
        Op::Listxattr(op) => xattr::list(&fs, &who, op).await.map_err(gone),
        Op::Removexattr(op) => {
            let removed = xattr::remove(client, &who, op).await;
            fs.recent.forget_extras();
            removed.map_err(gone)
        }
        Op::Opendir(_) => Ok(open::directory()),
        Op::Readdir(op) => readdir::handle(client, &who, op).await,
        Op::Releasedir(_) => Ok(Reply::ok()),
        Op::Fsyncdir(_) => fsync::directory(client, &who).await,
        Op::Statfs => statfs::handle(client, &who).await,
        Op::Access(_) => Ok(access::handle()),
    };
    reply.map(Done::from)
}

/// Whether the thread that sends it waits for it, and so has taken in the answer to what it asked before. The others may have been sent
/// in the background, and be read late.
fn goes_on(op: &Op) -> bool {
    !matches!(op, Op::Read(_) | Op::Write(_) | Op::Release(_) | Op::Releasedir(_))
}

/// The habit of a program, as far as one request tells: which requests probably follow.
fn habit(op: &Op, nodeid: u64) -> Habit {
    match op {
        Op::Lookup(_) | Op::Create(_) | Op::Unlink(_) | Op::Mkdir(_) | Op::Rmdir(_) | Op::Rename(_) => {
            Habit::Walks(nodeid)
        }
        Op::Getxattr(_) => Habit::LooksAtXattrs,
        _ => Habit::None,
    }
}

/// Lifetime in the kernel of entries and attributes that no lease covers.
pub(crate) const NOT_KEPT: Duration = Duration::ZERO;

/// The answer of operations that find or make a name.
fn entry(fs: &BrindleFs, found: Result<Attr, Fault>) -> Result<Reply, Fault> {
    let attr = found?;
    fs.known.note(&attr);
    Ok(Reply::entry(&Entry::uncached(&attr)))
}

/// The inode itself is gone, not a name: somebody removed it after the kernel had found it. The kernel looks the path
/// up again.
fn gone(fault: Fault) -> Fault {
    if fault.code == Code::NotFound { Fault { code: Code::HandleStale, ..fault } } else { fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most bytes that the work on one request may take: they are allocated and copied for each. Once it had grown to four times as much.
    const WORK_MAX_BYTES: usize = 8 << 10;

    fn size_of_work<W>(_: fn(Arc<BrindleFs>, Who, Op) -> W) -> usize {
        size_of::<W>()
    }

    #[test]
    fn the_work_on_a_request_stays_small() {
        let size = size_of_work(dispatch);
        assert!(size <= WORK_MAX_BYTES, "{size} bytes");
    }
}
