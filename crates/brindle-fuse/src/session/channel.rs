//! Descriptors of /dev/fuse: reading messages, writing answers and notifications.
//!
//! With cloned descriptors a request belongs to the one it was read from: its answer must go there.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use brindle_stdx::cast::{from_i64, len_u32};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::DEV_IOC_CLONE;
use crate::abi::outputs::OutHeader;
use crate::reply::Reply;

/// Path of the device.
pub const DEVICE: &str = "/dev/fuse";

/// Time to get a message above which the reader must have waited for it: a message that is there is copied in
/// one or two microseconds.
const WAITED_NS: u64 = 4_000;
/// Copying messages of this length takes long enough itself.
const COPIED_LEN: usize = 64 << 10;

/// A descriptor of the device, bound to a connection.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
}

/// End of a connection, by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Unmounted, and the last open file is gone.
    Unmounted,
    /// Aborted through sysfs or by [`super::Session::abort`]: all callers got an error.
    Aborted,
    /// Reading the device failed with this errno.
    Failed(i32),
}

/// Opens the device, not bound to anything.
pub fn open_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

impl Channel {
    /// Takes a descriptor that is bound to a connection.
    pub fn new(fd: OwnedFd) -> Channel {
        Channel { fd }
    }

    /// A further descriptor of this connection, with a queue of its own.
    pub fn try_clone(&self) -> io::Result<Channel> {
        let fd = open_device()?;
        let master: u32 = self.fd.as_raw_fd().cast_unsigned();
        // SAFETY: the ioctl reads one u32, the number of an open descriptor, from the pointer.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), DEV_IOC_CLONE as libc::Ioctl, &raw const master) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Channel { fd }) }
    }

    /// Waits for the next message; gives its length, and whether it had to wait, as far as that can be told.
    pub fn read(&self, room: &mut [u8]) -> Result<(usize, bool), Ended> {
        let since_ns = now_ns();
        loop {
            match rustix::io::read(&self.fd, &mut *room) {
                Ok(len) => {
                    let waited = len < COPIED_LEN && now_ns() - since_ns >= WAITED_NS;
                    return Ok((len, waited));
                }
                Err(Errno::AGAIN) => continue,
                Err(e) => ended_by(e)?,
            }
        }
    }

    /// The length of the next message if there is one; after [`Channel::do_not_wait`] only.
    pub fn try_read(&self, room: &mut [u8]) -> Result<Option<usize>, Ended> {
        loop {
            match rustix::io::read(&self.fd, &mut *room) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(e) => ended_by(e)?,
            }
        }
    }

    /// Makes reads return at once when there is no message.
    pub fn do_not_wait(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        Ok(rustix::fs::fcntl_setfl(&self.fd, flags | OFlags::NONBLOCK)?)
    }

    /// Writes the answer to request `unique`. ENOENT means that nobody waits for it any more.
    pub fn reply(&self, unique: u64, reply: &Reply) -> Result<(), Errno> {
        let head = reply.head(unique);
        if reply.data.is_empty() {
            return self.send(&[IoSlice::new(head.as_bytes()), IoSlice::new(&reply.fixed)]);
        }
        let mut parts = Vec::with_capacity(2 + reply.data.len());
        parts.extend([IoSlice::new(head.as_bytes()), IoSlice::new(&reply.fixed)]);
        parts.extend(reply.data.iter().map(|d| IoSlice::new(d)));
        self.send(&parts)
    }

    /// Writes an answer without a body.
    pub fn answer(&self, unique: u64, errno: i32) -> Result<(), Errno> {
        let head = OutHeader { len: len_u32(size_of::<OutHeader>()), error: -errno, unique };
        self.send(&[IoSlice::new(head.as_bytes())])
    }

    /// Writes a notification: its code and its parts. Waits until the kernel has acted on it.
    pub fn notify(&self, code: u32, parts: &[&[u8]]) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
        let head = OutHeader { len: len_u32(len), error: code.cast_signed(), unique: 0 };
        let mut slices = vec![IoSlice::new(head.as_bytes())];
        slices.extend(parts.iter().map(|p| IoSlice::new(p)));
        self.send(&slices)
    }

    /// The descriptor, given away.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// A message is taken by the kernel whole, or not at all.
    fn send(&self, parts: &[IoSlice]) -> Result<(), Errno> {
        loop {
            match rustix::io::writev(&self.fd, parts) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            }
        }
    }
}

/// Meaning of an error of a read; `None` if the next read may succeed.
fn ended_by(error: Errno) -> Result<(), Ended> {
    match error {
        // ENOENT: the request was interrupted before it was read.
        Errno::INTR | Errno::NOENT => Ok(()),
        Errno::NODEV => Err(Ended::Unmounted),
        Errno::CONNABORTED => Err(Ended::Aborted),
        e => Err(Ended::Failed(e.raw_os_error())),
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    from_i64(now.tv_sec) * 1_000_000_000 + from_i64(now.tv_nsec)
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
