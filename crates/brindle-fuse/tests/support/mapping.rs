//! A mapping of a file, in a process of its own.
//!
//! A process that serves a mount must never touch a mapping of a file on it: a page fault holds the address space's
//! lock until its READ is answered, and the server needs that lock to answer (any mmap or growing heap takes it).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use parking_lot::Mutex;

const GET: u8 = b'g';
const SET: u8 = b's';
const SYNC: u8 = b'y';
const BUSY: u8 = b'b';
const RANDOM: u8 = b'r';
const UNMAP: u8 = b'u';

/// A mapping; unmapped when dropped.
pub struct Mapping {
    pipe: Mutex<OwnedFd>,
    child: libc::pid_t,
}

type Command = [u8; 16];

impl Mapping {
    pub fn new(f: &File, len: usize, prot: i32, flags: i32) -> io::Result<Mapping> {
        let mut ends = [0; 2];
        // SAFETY: the pointer is to two descriptors.
        if unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())
        } < 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the child calls nothing but plain system calls until it exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: this is the child; it owns its copy of everything.
            unsafe { serve(ends[1], f.as_raw_fd(), len, prot, flags) }
        }
        // SAFETY: both descriptors are ours; the second is the child's alone from here on.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        drop(theirs);
        let mapping = Mapping { pipe: Mutex::new(ours), child };
        let failed = mapping.answer(&mapping.pipe.lock());
        match failed {
            Some(0) => Ok(mapping),
            Some(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
            None => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    pub fn shared(f: &File, len: usize) -> io::Result<Mapping> {
        Mapping::new(f, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }

    pub fn private(f: &File, len: usize) -> io::Result<Mapping> {
        Mapping::new(f, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)
    }

    /// The process that maps.
    pub fn pid(&self) -> libc::pid_t {
        self.child
    }

    /// A byte of the mapping; `None` when touching it killed the process (SIGBUS).
    pub fn try_get(&self, i: usize) -> Option<u8> {
        self.ask(GET, i, 0).map(|b| b as u8)
    }

    pub fn get(&self, i: usize) -> u8 {
        self.try_get(i).expect("the page exists")
    }

    pub fn set(&self, i: usize, value: u8) {
        self.ask(SET, i, value).expect("the page exists");
    }

    pub fn msync(&self) -> io::Result<()> {
        match self.ask(SYNC, 0, 0) {
            Some(0) => Ok(()),
            other => Err(io::Error::from_raw_os_error(other.unwrap_or(5) as i32)),
        }
    }

    /// No read-ahead: each fault sends a READ of its own and waits for it.
    pub fn without_read_ahead(self) -> Mapping {
        self.ask(RANDOM, 0, 0);
        self
    }

    /// Changes the first byte all the time until the next call.
    pub fn keep_busy(&self) {
        self.ask(BUSY, 0, 0);
    }

    fn ask(&self, what: u8, at: usize, value: u8) -> Option<i64> {
        let mut command: Command = [0; 16];
        command[0] = what;
        command[1] = value;
        command[8..].copy_from_slice(&at.to_ne_bytes());
        let pipe = self.pipe.lock();
        // SAFETY: the pointer is to 16 bytes. Without a process at the other end the call fails, and so does the
        // next one.
        unsafe { libc::send(pipe.as_raw_fd(), command.as_ptr().cast(), 16, libc::MSG_NOSIGNAL) };
        self.answer(&pipe)
    }

    fn answer(&self, pipe: &OwnedFd) -> Option<i64> {
        let mut answer = [0u8; 8];
        // SAFETY: the pointer is to 8 bytes.
        let n = unsafe { libc::recv(pipe.as_raw_fd(), answer.as_mut_ptr().cast(), 8, 0) };
        (n == 8).then(|| i64::from_ne_bytes(answer))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.ask(UNMAP, 0, 0);
        // SAFETY: our child, waited for once.
        unsafe { libc::waitpid(self.child, std::ptr::null_mut(), 0) };
    }
}

/// The child: maps, closes everything but its pipe, and does what it is told.
///
/// # Safety
/// Only in a process that was forked for it.
unsafe fn serve(pipe: i32, file: i32, len: usize, prot: i32, flags: i32) -> ! {
    // SAFETY: plain system calls on descriptors of this process; memory is accessed inside the mapping, or the process
    // dies of SIGBUS, which the parent sees.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, prot, flags, file, 0);
        let failed = if at == libc::MAP_FAILED { i64::from(*libc::__errno_location()) } else { 0 };
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::close_range(0, pipe as u32 - 1, 0);
        libc::close_range(pipe as u32 + 1, u32::MAX, 0);
        tell(pipe, failed);
        let at = at.cast::<u8>();
        let mut command: Command = [0; 16];
        while failed == 0 && libc::recv(pipe, command.as_mut_ptr().cast(), 16, 0) == 16 {
            let mut index = [0; 8];
            index.copy_from_slice(&command[8..]);
            let index = usize::from_ne_bytes(index);
            match command[0] {
                GET => tell(pipe, i64::from(at.add(index).read_volatile())),
                SET => {
                    at.add(index).write_volatile(command[1]);
                    tell(pipe, 0);
                }
                SYNC => {
                    let done = libc::msync(at.cast(), len, libc::MS_SYNC);
                    tell(pipe, if done < 0 { i64::from(*libc::__errno_location()) } else { 0 });
                }
                RANDOM => {
                    libc::madvise(at.cast(), len, libc::MADV_RANDOM);
                    tell(pipe, 0);
                }
                BUSY => {
                    tell(pipe, 0);
                    let mut poll = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
                    while libc::poll(&raw mut poll, 1, 0) == 0 {
                        for i in 0..100 {
                            at.write_volatile(i);
                        }
                    }
                }
                _ => {
                    libc::munmap(at.cast(), len);
                    tell(pipe, 0);
                    break;
                }
            }
        }
        libc::_exit(0)
    }
}

unsafe fn tell(pipe: i32, value: i64) {
    // SAFETY: the pointer is to the 8 bytes of `value`.
    unsafe { libc::send(pipe, (&raw const value).cast(), 8, libc::MSG_NOSIGNAL) };
}
