//! System calls that std does not offer.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

fn check(n: i64) -> io::Result<i64> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

pub fn lseek(f: &File, offset: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: plain call with an open descriptor.
    check(unsafe { libc::lseek(f.as_raw_fd(), offset, whence) })
}

pub fn flock(f: &File, op: i32) -> io::Result<i64> {
    // SAFETY: plain call with an open descriptor.
    check(unsafe { libc::flock(f.as_raw_fd(), op) }.into())
}

/// `cmd` is one of F_SETLK, F_SETLKW, F_GETLK and their OFD forms.
pub fn fcntl_lock(f: &File, cmd: i32, kind: i32, start: i64, len: i64) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the pointer is to a flock structure that lives through the call.
    check(unsafe { libc::fcntl(f.as_raw_fd(), cmd, &raw mut lock) }.into())?;
    Ok(lock)
}

pub fn copy_file_range(from: &File, to: &File, len: usize) -> io::Result<i64> {
    let (null, null2) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: null offsets mean the descriptors' own.
    check(unsafe { libc::copy_file_range(from.as_raw_fd(), null, to.as_raw_fd(), null2, len, 0) } as i64)
}

pub fn fallocate(f: &File, mode: i32, offset: i64, len: i64) -> io::Result<i64> {
    // SAFETY: plain call with an open descriptor.
    check(unsafe { libc::fallocate(f.as_raw_fd(), mode, offset, len) }.into())
}
