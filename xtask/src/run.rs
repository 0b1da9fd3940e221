//! Runs one command with a log file and a time limit.
//!
//! Called by every step and suite. Invariant: when [`Cmd::run`] returns, all processes of the command's process group
//! have ended (or are named as unkillable); Ctrl-C ends the command, not the clean-up after it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which a running command is checked.
const POLL: Duration = Duration::from_millis(20);
/// Longest time for a killed command to disappear, before it is called unkillable.
const GRACE: Duration = Duration::from_secs(10);
/// Lines of a failed command's output that are shown.
pub const TAIL_LINES: usize = 60;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Makes SIGINT, SIGTERM and SIGHUP end the running command instead of this process, so that clean-up still runs.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, on_signal as *const () as libc::sighandler_t) };
    }
}

/// Whether a signal has asked this run to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended by itself with this exit code (128 + signal number where a signal ended it).
    Code(i32),
    /// The command took longer than its limit and was killed.
    TimedOut,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The command was killed and did not go away.
    Unkillable,
}

/// A finished command.
pub struct Finished {
    /// End of the command.
    pub end: End,
    /// File with the output.
    pub log: PathBuf,
}

impl Finished {
    /// Exit code 0.
    pub fn ok(&self) -> bool {
        self.end == End::Code(0)
    }

    /// All output of the command.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A paragraph for a person: how the command ended, its last lines, and where the rest is.
    pub fn explain(&self) -> String {
        let how = match self.end {
            End::Code(code) => format!("exit code {code}"),
            End::TimedOut => "killed: it took longer than its time limit".to_owned(),
            End::Interrupted => "interrupted".to_owned(),
            End::Unkillable => "did not go away when killed (state D?)".to_owned(),
        };
        format!("{}\n({how}; whole log: {})", tail(&self.output(), TAIL_LINES), self.log.display())
    }
}

/// The last `lines` lines of `text`.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A command being put together.
pub struct Cmd {
    inner: Command,
    limit: Duration,
    even_when_interrupted: bool,
}

impl Cmd {
    /// `program` with a time limit of ten minutes.
    pub fn new(program: impl AsRef<OsStr>) -> Cmd {
        let mut inner = Command::new(program);
        inner.stdin(Stdio::null());
        Cmd { inner, limit: Duration::from_secs(600), even_when_interrupted: false }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Cmd {
        self.inner.args(args);
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Cmd {
        self.inner.arg(arg);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Cmd {
        self.inner.env(key, value);
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: &Path) -> Cmd {
        self.inner.current_dir(dir);
        self
    }

    /// Sets the time limit.
    pub fn limit_secs(mut self, secs: u64) -> Cmd {
        self.limit = Duration::from_secs(secs);
        self
    }

    /// Runs to its end although somebody pressed Ctrl-C: for cleaning up.
    pub fn even_when_interrupted(mut self) -> Cmd {
        self.even_when_interrupted = true;
        self
    }

    /// Runs it to its end, output going to `log`.
    pub fn run(mut self, log: &Path) -> Finished {
        let finished = |end| Finished { end, log: log.to_owned() };
        let heeds_signals = !self.even_when_interrupted;
        if heeds_signals && interrupted() {
            return finished(End::Interrupted);
        }
        let name = self.inner.get_program().to_string_lossy().into_owned();
        match self.spawn(log) {
            Ok(child) => finished(wait(child, self.limit, heeds_signals)),
            Err(e) => {
                let _ = std::fs::write(log, format!("cannot start {name}: {e}\n"));
                finished(End::Code(127))
            }
        }
    }

    fn spawn(&mut self, log: &Path) -> std::io::Result<Child> {
        if let Some(parent) = log.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let out = File::create(log)?;
        self.inner.stdout(out.try_clone()?).stderr(out).process_group(0).spawn()
    }
}

fn wait(mut child: Child, limit: Duration, heeds_signals: bool) -> End {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return End::Code(code_of(status)),
            Ok(None) => std::thread::sleep(POLL),
            Err(_) => return End::Code(127),
        }
        let why = if heeds_signals && interrupted() {
            End::Interrupted
        } else if started.elapsed() > limit {
            End::TimedOut
        } else {
            continue;
        };
        return if kill_group(&mut child) { why } else { End::Unkillable };
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Kills the child's process group; false when the child is still there after [`GRACE`].
pub fn kill_group(child: &mut Child) -> bool {
    let group = -(child.id() as libc::pid_t);
    for (signal, patience) in [(libc::SIGTERM, Duration::from_secs(2)), (libc::SIGKILL, GRACE)] {
        // SAFETY: kill has no memory effects; the group is the one this child was started in and is not reaped yet.
        unsafe { libc::kill(group, signal) };
        let since = Instant::now();
        while since.elapsed() < patience {
            if matches!(child.try_wait(), Ok(Some(_))) {
                // SAFETY: as above; ends grandchildren that ignored SIGTERM, if the group still exists.
                unsafe { libc::kill(group, libc::SIGKILL) };
                return true;
            }
            std::thread::sleep(POLL);
        }
    }
    false
}

/// The output of a short command, or `None` when it cannot be started or fails.
pub fn capture(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-run-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let path = log("hang");
        let done = Cmd::new("sh").args(["-c", "sleep 77 & echo $!; wait"]).limit_secs(1).run(&path);
        assert_eq!(done.end, End::TimedOut);
        let pid: u32 = done.output().trim().parse().unwrap();
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "the grandchild is still alive: {state}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn exit_codes_and_output_are_kept() {
        let path = log("code");
        let done = Cmd::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).run(&path);
        assert_eq!(done.end, End::Code(3));
        assert_eq!(done.output(), "out\nerr\n");
        assert!(done.explain().contains("exit code 3"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_program_is_named() {
        let path = log("missing");
        let done = Cmd::new("no-such-program-here").run(&path);
        assert_eq!(done.end, End::Code(127));
        assert!(done.output().starts_with("cannot start no-such-program-here:"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("", 2), "");
    }
}
