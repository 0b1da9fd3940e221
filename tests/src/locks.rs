//! fcntl locks on byte ranges, which the standard library does not have.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use crate::child::{Child, Link};

/// Change of a lock on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// No lock.
    Unlock,
}

/// Owner of a lock: the process, or the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `F_SETLK` and its kin.
    Process,
    /// `F_OFD_SETLK` and its kin.
    OpenFile,
}

/// A lock that stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Shared or exclusive.
    pub kind: Kind,
    /// First byte.
    pub start: i64,
    /// Number of bytes; 0 is to the end of all files.
    pub len: i64,
    /// The process that holds it; -1 for one of an open file.
    pub pid: i32,
}

fn call(fd: RawFd, command: i32, kind: Kind, start: i64, len: i64) -> io::Result<libc::flock> {
    // SAFETY: an all-zero flock is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
        Kind::Unlock => libc::F_UNLCK,
    } as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: `lock` is valid for the call.
    match unsafe { libc::fcntl(fd, command, &mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

/// Sets a lock, or says EAGAIN.
pub fn try_lock(file: &impl AsRawFd, owner: Owner, kind: Kind, start: i64, len: i64) -> io::Result<()> {
    let command = if owner == Owner::Process { libc::F_SETLK } else { libc::F_OFD_SETLK };
    call(file.as_raw_fd(), command, kind, start, len).map(drop)
}

/// Sets a lock, waiting for it.
pub fn lock(file: &impl AsRawFd, owner: Owner, kind: Kind, start: i64, len: i64) -> io::Result<()> {
    let command = if owner == Owner::Process { libc::F_SETLKW } else { libc::F_OFD_SETLKW };
    call(file.as_raw_fd(), command, kind, start, len).map(drop)
}

/// The first lock that stands in the way of this one.
pub fn conflict(
    file: &impl AsRawFd,
    owner: Owner,
    kind: Kind,
    start: i64,
    len: i64,
) -> io::Result<Option<Held>> {
    let command = if owner == Owner::Process { libc::F_GETLK } else { libc::F_OFD_GETLK };
    let found = call(file.as_raw_fd(), command, kind, start, len)?;
    let kind = match i32::from(found.l_type) {
        libc::F_RDLCK => Kind::Read,
        libc::F_WRLCK => Kind::Write,
        _ => return Ok(None),
    };
    Ok(Some(Held { kind, start: found.l_start, len: found.l_len, pid: found.l_pid }))
}

/// Opens a file for locks of both kinds.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// A process that opens the file, runs `first` (mostly: takes a lock), says 1, waits for a word, runs `then`, says 2, and ends at the
/// next word. Returns once `first` is done.
pub fn locker(
    path: &Path,
    first: impl FnOnce(&File) -> io::Result<()>,
    then: impl FnOnce(&File) -> io::Result<()>,
) -> Child {
    let path = path.to_owned();
    let mut child = Child::start(move |link: &mut Link| {
        let file = open(&path)?;
        first(&file)?;
        link.say(1)?;
        link.hear()?;
        then(&file)?;
        link.say(2)?;
        link.hear().map(drop)
    });
    child.hear();
    child
}
