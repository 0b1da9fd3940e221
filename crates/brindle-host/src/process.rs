//! Processes of this machine, started, watched and ended by identity rather than by bare number.
//!
//! A pid may be given to another process once the first is gone. A process is therefore remembered by pid **and**
//! start time, and signals go through a pidfd whose identity was compared.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_stdx::cast::to_i64;
use brindle_types::{Code, Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::network::Within;

/// Longest line that a started process may announce itself with.
const READY_MAX_BYTES: usize = 64 << 10;
/// Lines of a failed process's log that are shown.
const LOG_TAIL_LINES: usize = 8;
/// Most bytes of a log that are read to find its last lines.
const LOG_TAIL_BYTES: u64 = 16 << 10;

/// A process, not to be mistaken for a later one of the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The pid.
    pub pid: u32,
    /// Start of the process, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
}

impl Identity {
    /// The live process with this pid: one that has a thread which has not ended. Until then it holds its files, locks
    /// and ports, also when its first thread is a zombie.
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = procfs::process::Process::new(i32::try_from(pid).ok()?)
            .and_then(|process| process.stat())
            .ok()?;
        if stat.state == 'X' || (stat.state == 'Z' && stat.num_threads <= 1) {
            return None;
        }
        Some(Identity { pid, start_ticks: stat.starttime })
    }

    /// Number of the process for the kernel; `None` for one that no process can have. (To the kernel, negative ones mean groups, and any child.)
    fn raw(self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }

    /// Whether it still runs.
    pub fn alive(self) -> bool {
        Identity::of(self.pid) == Some(self)
    }

    /// A handle that cannot come to mean another process; `None` when it has ended.
    pub(crate) fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(self.raw()?, PidfdFlags::empty()).ok()?;
        self.alive().then_some(fd)
    }

    /// Sends a signal; nothing happens when it has ended already.
    pub fn signal(self, signal: Signal) {
        // A caller that waits for the end of the process sees whether the signal had effect.
        let _ = self.try_signal(signal);
    }

    /// Sends a signal; fails where this user may not.
    pub fn try_signal(self, signal: Signal) -> std::io::Result<()> {
        let Some(fd) = self.open() else { return Ok(()) };
        match pidfd_send_signal(fd, signal) {
            // The process has ended at this moment, which is as good.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Whether this process may forget it: it has ended, and is not left as a zombie if it was a child of this one.
    pub fn is_gone(self) -> bool {
        if self.alive() {
            return false;
        }
        if let Some(pid) = self.raw() {
            // An error says that it is no child of this process, or that its status was taken before.
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        }
        true
    }

    /// Waits until it has ended, for `limit` at most; says whether it has.
    pub fn wait_end(self, limit: Duration) -> bool {
        self.open().is_none_or(|fd| readable(&fd, limit) || !self.alive())
    }
}

/// Whether `fd` becomes readable (or is closed at the other end) within `limit`.
fn readable(fd: &impl AsFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: to_i64(left.as_secs()), tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Announcement of a started process to the one that started it: a line of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said<T> {
    /// The process is usable.
    Ready(T),
    /// The process runs, and waits for other servers before it is usable; another line follows.
    Waiting,
    /// The process cannot be used, and ends.
    Failed(Fault),
}

/// A process that was started and has not said yet that it is ready.
pub struct Starting {
    child: Child,
    name: String,
    log: PathBuf,
    since: Instant,
}

impl Starting {
    /// Starts `program` with `arguments`, in a session of its own and in `/`: the process outlives the terminal and
    /// keeps no mount busy. Standard error goes to the end of `log`.
    pub fn spawn(program: &Path, name: &str, arguments: &[String], log: &Path) -> Result<Starting> {
        Starting::spawn_within(None, program, name, arguments, log)
    }

    /// Like [`Starting::spawn`], on a host with a network namespace of its own.
    pub fn spawn_within(
        within: Option<&Within>,
        program: &Path,
        name: &str,
        arguments: &[String],
        log: &Path,
    ) -> Result<Starting> {
        let failed = |what: &'static str, subject: String, e: &std::io::Error| {
            Fault::io(Code::ProcessFailed, what, subject, e)
        };
        let opened = OpenOptions::new().create(true).append(true).open(log);
        let stderr = opened
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", log.display().to_string(), &e))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let enters = within.map(Entrance::of).transpose()?;
        // SAFETY: what is done is async-signal-safe and touches no memory but what was made before the fork.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                enters.as_ref().map_or(Ok(()), Entrance::enter)
            });
        }
        let child = command.spawn().map_err(|e| failed("cannot start", name.to_owned(), &e))?;
        Ok(Starting { child, name: name.to_owned(), log: log.to_owned(), since: Instant::now() })
    }

    /// Waits until it says that it is usable.
    pub fn ready<T: DeserializeOwned>(self, limit: Duration) -> Result<(Identity, T)> {
        let (identity, said) = self.ready_or_waiting(limit, false)?;
        let nothing = || Fault::new(Code::Bug).why("a process that waits was taken for one that is usable");
        Ok((identity, said.ok_or_else(nothing)?))
    }

    /// Waits until it says that it is usable or, with `or_waiting`, that it waits for other servers (`None`).
    pub fn ready_or_waiting<T: DeserializeOwned>(
        mut self,
        limit: Duration,
        or_waiting: bool,
    ) -> Result<(Identity, Option<T>)> {
        let Some(stdout) = self.child.stdout.take() else { return Err(self.failed(limit)) };
        let mut lines = Lines { stdout, read: Vec::new(), deadline: self.since + limit };
        while let Some(line) = lines.next() {
            match (serde_json::from_str(&line), Identity::of(self.child.id())) {
                (Ok(Said::Ready(announced)), Some(identity)) => return Ok((identity, Some(announced))),
                (Ok(Said::Waiting), Some(identity)) if or_waiting => return Ok((identity, None)),
                // The process may have ended since; its next message tells why.
                (Ok(Said::Waiting), _) => {}
                (Ok(Said::Failed(fault)), _) => {
                    self.abandon();
                    return Err(fault);
                }
                _ => break,
            }
        }
        Err(self.failed(limit))
    }

    /// Ends it and says why it was not usable.
    fn failed(&mut self, limit: Duration) -> Fault {
        let ended = self.child.try_wait().ok().flatten();
        let how = match ended {
            Some(status) => format!("it ended: {status}"),
            None if self.since.elapsed() >= limit => format!("it was not ready after {} s", limit.as_secs()),
            None => "it ended before it was ready".to_owned(),
        };
        self.abandon();
        let fault = Fault::new(Code::ProcessFailed).what("cannot start").subject(self.name.clone()).why(how);
        let said = tail(&self.log).into_iter().fold(fault, Fault::why);
        said.next(format!("read {}", self.log.display()))
    }

    /// Ends a process whose start is given up.
    pub fn abandon(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The way of a new process into the network of its host, under its name.
pub(crate) struct Entrance {
    netns: File,
    host_name: Vec<u8>,
}

impl Entrance {
    pub(crate) fn of(within: &Within) -> Result<Entrance> {
        let netns = File::open(&within.netns).map_err(|e| {
            Fault::io(Code::ProcessFailed, "cannot enter the network of", within.host_name.clone(), &e)
        })?;
        Ok(Entrance { netns, host_name: within.host_name.clone().into_bytes() })
    }

    /// Takes the calling process there: another network, another host name. Async-signal-safe.
    pub(crate) fn enter(&self) -> std::io::Result<()> {
        let done = |outcome: libc::c_int| match outcome {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: system calls on an open file and on bytes that live as long as this.
        unsafe {
            done(libc::setns(self.netns.as_raw_fd(), libc::CLONE_NEWNET))?;
            done(libc::unshare(libc::CLONE_NEWUTS))?;
            done(libc::sethostname(self.host_name.as_ptr().cast(), self.host_name.len()))
        }
    }
}

/// Lines of a pipe, until a moment.
struct Lines {
    stdout: ChildStdout,
    read: Vec<u8>,
    deadline: Instant,
}

impl Lines {
    fn next(&mut self) -> Option<String> {
        let mut part = [0; 4096];
        while self.read.len() < READY_MAX_BYTES {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let rest = self.read.split_off(end + 1);
                self.read.truncate(end);
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).ok();
            }
            if !readable(&self.stdout, self.deadline.saturating_duration_since(Instant::now())) {
                return None;
            }
            match self.stdout.read(&mut part) {
                Ok(0) => return None,
                Ok(n) => self.read.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> Vec<String> {
    let read = || -> std::io::Result<String> {
        use std::os::unix::fs::FileExt;
        let file = File::open(log)?;
        let len = file.metadata()?.len();
        let mut bytes = vec![0; len.min(LOG_TAIL_BYTES) as usize];
        let from = len - bytes.len() as u64;
        file.read_exact_at(&mut bytes, from)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].iter().map(|l| format!("log: {l}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_pid() {
        let me = Identity::of(std::process::id()).expect("this process runs");
        assert!(me.alive());
        let other = Identity { start_ticks: me.start_ticks + 1, ..me };
        assert!(!other.alive());
        other.signal(Signal::KILL);
        assert!(other.wait_end(Duration::ZERO), "what is not there has ended");
        assert!(!me.wait_end(Duration::ZERO));
    }

    #[test]
    fn a_number_that_no_process_can_have_takes_the_status_of_no_child() {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let mut child = Command::new("true").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("it ends");
        // As a signed number this is -1, which means any child to waitpid(2).
        let nobody = Identity { pid: u32::MAX, start_ticks: 1 };
        assert!(nobody.is_gone());
        assert!(child.wait().expect("its status is still there").success());
    }

    extern "C" fn end_thread(_: libc::c_int) {
        // SAFETY: ends the thread that got the signal, and no other uses anything of it any more.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }

    /// The first thread of the process, which waits for the one of the test, ends; this one goes on until its standard
    /// input is closed.
    fn first_thread_ends() -> ! {
        // SAFETY: the handler makes one system call; the signal goes to a thread of this process.
        unsafe {
            libc::signal(libc::SIGUSR1, end_thread as *const () as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::getpid(), libc::SIGUSR1);
        }
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive() {
        const CHILD: &str = "BRINDLE_TEST_FIRST_THREAD_ENDS";
        if std::env::var_os(CHILD).is_some() {
            first_thread_ends();
        }
        let this = "process::tests::a_process_whose_first_thread_has_ended_is_alive";
        let arguments = ["--exact", this, "--test-threads=2"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command
            .args(arguments)
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        let since = Instant::now();
        while state() != 'Z' {
            assert!(since.elapsed() < Duration::from_secs(30), "its first thread has not ended");
            std::thread::yield_now();
        }
        let identity = Identity::of(child.id()).expect("its second thread runs");
        assert!(!identity.wait_end(Duration::ZERO));
        drop(child.stdin.take());
        assert!(identity.wait_end(Duration::from_secs(30)));
        assert_eq!(Identity::of(child.id()), None, "what is left is for its parent only");
        child.wait().unwrap();
    }

    #[test]
    fn what_ignores_sigterm_is_waited_for_and_killed() {
        let script = "trap '' TERM; echo; while :; do sleep 1; done";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        let identity = Identity::of(child.id()).unwrap();
        identity.signal(Signal::TERM);
        assert!(!identity.wait_end(Duration::from_millis(100)));
        identity.signal(Signal::KILL);
        assert!(identity.wait_end(Duration::from_secs(10)));
        child.wait().unwrap();
    }
}
