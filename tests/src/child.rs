//! A second process of a test, in step with it: made by fork, so that the code of both processes is in one place.
//!
//! Invariant: a child never outlives its test, and no wait for it is without a limit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Longest wait for a child: for a byte from it, or for its end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which an ending child is checked.
const POLL: Duration = Duration::from_millis(2);
/// First message of a child: it has closed its copies of other descriptors.
const CLOSED: u8 = 0xcc;
/// Exit code of a child whose test has gone away.
const ORPHANED: i32 = 201;
/// Exit code of a child that failed without an errno.
const NO_ERRNO: i32 = 202;

/// Written while a new process still has copies of the descriptors of all tests.
static COPIES: RwLock<()> = RwLock::new(());

/// While this is held, no process holds copies of the caller's descriptors by accident: for tests of what happens when the last copy
/// is closed. The holder of the guard must not start processes.
pub fn no_copies() -> RwLockReadGuard<'static, ()> {
    COPIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end, and takes what it says; it has copies of no test's descriptors when it runs, and none is about while it
/// begins to.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let guard = copying();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(guard);
    child.wait_with_output()
}

/// Guard to be held while a process is made.
pub fn copying() -> RwLockWriteGuard<'static, ()> {
    COPIES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Ending of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The child ended by itself, with success.
    Ok,
    /// The work failed with this errno (or one of the codes above 200).
    Errno(i32),
    /// A signal ended it.
    Signal(i32),
    /// The child was still there after a minute, and was killed.
    Stuck,
}

/// The child, seen from the test.
pub struct Child {
    pid: i32,
    to: File,
    from: File,
    ended: bool,
}

/// The test, seen from the child.
pub struct Link {
    from: File,
    to: File,
}

impl Link {
    /// Sends one byte to the test.
    pub fn say(&mut self, byte: u8) -> io::Result<()> {
        self.to.write_all(&[byte])
    }

    /// Waits for a byte from the test.
    pub fn hear(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self.from.read(&mut byte) {
            Ok(1) => Ok(byte[0]),
            // SAFETY: ends this process without running anything of the test it was forked from.
            _ => unsafe { libc::_exit(ORPHANED) },
        }
    }
}

impl Child {
    /// Runs `work` in a new process, which has only the descriptors that `work` opens (and the first three).
    ///
    /// `work` must not panic and must not take locks that another thread may hold; system calls are fine.
    pub fn start(work: impl FnOnce(&mut Link) -> io::Result<()>) -> Child {
        let (child_from, to) = pipe();
        let (from, child_to) = pipe();
        let guard = copying();
        // SAFETY: the child only makes system calls and ends with _exit.
        let mut child = match unsafe { libc::fork() } {
            -1 => panic!("cannot fork: {}", io::Error::last_os_error()),
            0 => run(work, child_from, child_to),
            pid => Child { pid, to, from, ended: false },
        };
        drop((child_from, child_to));
        assert_eq!(child.hear(), CLOSED);
        drop(guard);
        child
    }

    /// The child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends one byte to the child.
    pub fn say(&mut self, byte: u8) {
        self.to.write_all(&[byte]).expect("the child listens");
    }

    /// Waits for a byte from the child.
    ///
    /// # Panics
    /// When none comes.
    pub fn hear(&mut self) -> u8 {
        assert!(self.speaks_within(PATIENCE), "the child says nothing");
        let mut byte = [0];
        self.from.read_exact(&mut byte).expect("the child ended before it spoke");
        byte[0]
    }

    /// Whether the child says something (or ends) within `time`; what it says stays unread.
    pub fn speaks_within(&self, time: Duration) -> bool {
        let mut wait = libc::pollfd { fd: self.from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut wait, 1, time.as_millis() as i32) == 1 }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is this child, which is not reaped yet.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ending {
        self.wait(PATIENCE)
    }

    /// Waits for its end, which has to be a success.
    ///
    /// # Panics
    /// When it was not.
    #[track_caller]
    pub fn ok(self) {
        let ending = self.end();
        let text = match ending {
            Ending::Errno(errno) => io::Error::from_raw_os_error(errno).to_string(),
            _ => String::new(),
        };
        assert_eq!(ending, Ending::Ok, "the child's work: {text}");
    }

    fn wait(&mut self, patience: Duration) -> Ending {
        let since = Instant::now();
        let mut status = 0;
        self.ended = true;
        loop {
            // SAFETY: waits for this child only; `status` is valid.
            if unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } == self.pid {
                return ending(status);
            }
            if since.elapsed() > patience {
                self.signal(libc::SIGKILL);
                // SAFETY: as above; a process in state D makes this wait, which the step's time limit ends.
                unsafe { libc::waitpid(self.pid, &mut status, 0) };
                return Ending::Stuck;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(libc::SIGKILL);
            self.wait(PATIENCE);
        }
    }
}

fn ending(status: i32) -> Ending {
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ending::Ok,
        (true, code) => Ending::Errno(code),
        _ => Ending::Signal(libc::WTERMSIG(status)),
    }
}

fn run(work: impl FnOnce(&mut Link) -> io::Result<()>, from: File, to: File) -> ! {
    /// Numbers of the two pipes, so that all descriptors above can be closed.
    const FROM: i32 = 3;
    const TO: i32 = 4;
    /// Out of the way of both.
    const HIGH: i32 = 60;
    // SAFETY: plain system calls on descriptors this process owns; the files above are forgotten, not closed twice.
    let mut link = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let from = libc::fcntl(from.into_raw_fd(), libc::F_DUPFD, HIGH);
        let to = libc::fcntl(to.into_raw_fd(), libc::F_DUPFD, HIGH);
        libc::dup2(from, FROM);
        libc::dup2(to, TO);
        libc::syscall(libc::SYS_close_range, TO + 1, u32::MAX, 0);
        Link { from: File::from_raw_fd(FROM), to: File::from_raw_fd(TO) }
    };
    let code = match link.say(CLOSED).and_then(|()| work(&mut link)) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(NO_ERRNO),
    };
    // SAFETY: ends this process without running anything of the test it was forked from.
    unsafe { libc::_exit(code) }
}

/// Read end, write end.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "cannot make a pipe: {}", io::Error::last_os_error());
    // SAFETY: both were just opened and belong to nobody else.
    unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) }
}

/// Makes `signal` interrupt system calls instead of ending the process.
pub fn interruptible(signal: i32) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; no SA_RESTART, so that calls answer EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}
