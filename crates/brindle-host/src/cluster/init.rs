//! The init of a bare host: the process with pid 1 in the host's pid namespace.
//!
//! `brindle dev host-init`, started in the network namespace and under the name of the host, calls [`keep`]. The process makes the mount and
//! pid namespaces, forks the init, and ends when the command that started it has heard of the init. The init reaps orphans until SIGTERM.
//!
//! Invariant: the kernel kills every process of the host when the init ends, whatever ended it. The mounts of the host go with its last process.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::announcement::Booted;
use crate::mounts;

/// Directories of a host below [`files_of`], and where the host has them.
pub const MOUNT_POINTS: [(&str, &str); 3] =
    [("etc", "/etc/brindle"), ("lib", "/var/lib/brindle"), ("run", "/run/brindle")];
/// The file with the names of all hosts, below [`files_of`].
pub const HOSTS_FILE: &str = "etc-hosts";
/// Path of that file on a host.
const ETC_HOSTS: &str = "/etc/hosts";

/// Directory of the files of a bare host on the machine.
pub fn files_of(dir: &Path, host: &str) -> PathBuf {
    dir.join("hosts").join(host)
}

/// Boots the host whose files are given, tells its init through `say`, and keeps it until SIGTERM. Returns in the init when the host is to
/// end, and in the calling process when its starter has heard. Call it while the process has one thread.
pub fn keep(files: &Path, say: impl FnOnce(Booted)) -> Result<()> {
    make_namespaces().map_err(|e| cannot("cannot make the namespaces of", files, &e))?;
    mount_own(files)?;
    // Signals wait from before the fork, because the kernel drops those that an init neither handles nor blocks.
    let signals = Signals::block();
    // SAFETY: the process has one thread, so the child may do whatever the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(cannot("cannot start the init of", files, &std::io::Error::last_os_error())),
        0 => {
            say(boot(files)?);
            signals.reap_until_term();
            Ok(())
        }
        child => {
            signals.unblock();
            wait_for_starter(child).map_err(|e| cannot("cannot watch the init of", files, &e))
        }
    }
}

fn cannot(what: &'static str, files: &Path, e: &std::io::Error) -> Fault {
    let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
    let code = if denied { Code::NeedsRoot } else { Code::ProcessFailed };
    Fault::io(code, what, files.display().to_string(), e)
}

/// A mount namespace of its own, whose mounts are nobody else's; children are in a pid namespace of their own.
fn make_namespaces() -> std::io::Result<()> {
    // SAFETY: neither flag changes the table of files, which is what makes unshare unsafe.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID) }?;
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Mounts the host's own files, and takes the machine's Brindle mounts away: an empty machine has none.
fn mount_own(files: &Path) -> Result<()> {
    for line in mounts::ours() {
        // A mount that cannot be removed does no harm.
        let _ = unmount(&line.mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    for (from, to) in MOUNT_POINTS.into_iter().chain([(HOSTS_FILE, ETC_HOSTS)]) {
        let from = files.join(from);
        mount_bind(&from, to).map_err(|e| {
            let subject = format!("{} at {to}", from.display());
            Fault::io(Code::MountFailed, "cannot mount", subject, &e.into())
        })?;
    }
    Ok(())
}

/// Mounts /proc of the new pid namespace; the pid of this process outside.
fn boot(files: &Path) -> Result<Booted> {
    // The machine's /proc says what the pid is there.
    let this = std::fs::read_link("/proc/self")
        .map_err(|e| cannot("cannot find the pid of the init of", files, &e))?;
    let pid = this.to_str().and_then(|text| text.parse().ok());
    let pid = pid.ok_or_else(|| {
        Fault::new(Code::ProcessFailed)
            .what("cannot read the pid in")
            .subject("/proc/self")
            .why("it is no number")
    })?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
        .map_err(|e| Fault::io(Code::MountFailed, "cannot mount", "/proc", &e.into()))?;
    Ok(Booted { pid })
}

/// Returns when the starter has closed the pipe of standard output, or the init has ended.
fn wait_for_starter(init: libc::pid_t) -> std::io::Result<()> {
    let gone = || std::io::Error::from_raw_os_error(libc::ESRCH);
    let init = pidfd_open(Pid::from_raw(init).ok_or_else(gone)?, PidfdFlags::empty())?;
    let stdout = std::io::stdout();
    loop {
        // A pipe without a reader is an error, which is reported without being asked for.
        let mut waited = [PollFd::new(&stdout, PollFlags::empty()), PollFd::new(&init, PollFlags::IN)];
        match poll(&mut waited, None) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled.map(drop)?),
        }
    }
}

/// The signals of an init, blocked so that they are waited for.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Signals {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset fills the set in; the others get valid sets and signals, so they cannot fail.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            set.assume_init()
        };
        Signals(set)
    }

    fn unblock(&self) {
        // SAFETY: a valid set.
        unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const self.0, std::ptr::null_mut()) };
    }

    /// Reaps whatever ends, until SIGTERM.
    fn reap_until_term(&self) {
        let mut signal = 0;
        while signal != libc::SIGTERM {
            // A single SIGCHLD may stand for several ends.
            while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            // SAFETY: a valid set, and a place for the signal.
            unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        }
    }
}
