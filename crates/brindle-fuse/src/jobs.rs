//! Job of a request of the kernel: the value of a variable in the environment of the calling process, else
//! program and user.
//!
//! A thread's program is looked up at its first request, and compared again once in [`LOOK_AGAIN_MS`].
//!
//! Reading `/proc/TID/environ` waits for the lock of the process's memory map. While the process executes another program, it also waits
//! for the end of the exec (proc(5), `mm_access` of the kernel). A page fault may hold the first lock while it waits for a READ of ours;
//! exec closes descriptors and may hold the second while it waits for a FLUSH. The environment is therefore read only for requests that are
//! made under neither ([`is_safe`]). The reading happens away from the readers and in bounded time, since another thread of the process may
//! be in a page fault; a thread whose environment is slow is left alone for a minute. Other requests go by the job of the handle.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use brindle_client::Client;
use brindle_stdx::{Mono, Seams};
use brindle_wire::job::{JobTag, NAME_BYTES_MAX};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use tokio::sync::Semaphore;

use crate::ops::caller_syscall::CallerSyscalls;
use crate::request::{Op, Request};

/// Default variable that names the job.
const VARIABLE_DEFAULT: &str = "SLURM_JOB_ID";
/// Time for which a thread is taken for the same program without a look.
const LOOK_AGAIN_MS: u64 = 1_000;
/// Most threads that are remembered.
const KNOWN_MAX: usize = 4096;
/// Threads without a request for this long are forgotten when there are too many.
const KNOWN_IDLE_MS: u64 = 10_000;
/// Most of an environment that is read.
const ENVIRON_BYTES_MAX: usize = 256 << 10;
/// Longest wait for an environment. Usually the read takes some microseconds.
const ENVIRON_WAIT_MS: u64 = 1_000;
/// Environments that are read at once: each takes a thread. Where all are waited for nobody else waits.
const ENVIRONS_MAX: usize = 16;
/// Pause before the next try, for an environment that could not be read in time.
const ENVIRON_PAUSE_MS: u64 = 60_000;
/// Bytes that hold `/proc/TID/stat`.
const STAT_BYTES: usize = 1024;

/// The source of a job's name: the mount option `job_from=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFrom {
    /// The value of a variable in the environment of the process; program and user where it has none.
    Variable(String),
    /// Program and user: `dd.1000`.
    ProcnameUid,
    /// Requests belong to no job.
    Off,
}

impl Default for JobFrom {
    fn default() -> JobFrom {
        JobFrom::Variable(VARIABLE_DEFAULT.to_owned())
    }
}

impl FromStr for JobFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<JobFrom, String> {
        let is_variable = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match text {
            "off" | "disable" => Ok(JobFrom::Off),
            "procname_uid" => Ok(JobFrom::ProcnameUid),
            name if is_variable(name) => Ok(JobFrom::Variable(name.to_owned())),
            _ => Err("it must be the name of an environment variable, 'procname_uid' or 'off'".to_owned()),
        }
    }
}

impl fmt::Display for JobFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobFrom::Variable(name) => name,
            JobFrom::ProcnameUid => "procname_uid",
            JobFrom::Off => "off",
        })
    }
}

/// A thread as `/proc/TID/stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    /// Name of its program.
    program: String,
    /// Start of the process, in ticks since boot.
    started: u64,
}

/// A thread whose job is known.
struct Known {
    look: Look,
    /// The variable's value.
    value: Option<String>,
    looked: Mono,
    /// The environment could not be read in time: until then the thread is named by program and user.
    retry_at: Option<Mono>,
}

/// The jobs of those who ask.
pub(crate) struct Jobs {
    from: JobFrom,
    known: Mutex<BTreeMap<u32, Known>>,
    reading: Arc<Semaphore>,
    calls: Arc<CallerSyscalls>,
}

impl Jobs {
    pub fn new(from: JobFrom, calls: Arc<CallerSyscalls>) -> Jobs {
        Jobs { from, known: Mutex::default(), reading: Arc::new(Semaphore::new(ENVIRONS_MAX)), calls }
    }

    /// The job of a request.
    pub async fn of(&self, client: &Client, request: &Request) -> Option<JobTag> {
        let (tid, uid, now) = (request.pid, request.uid, client.seams().now());
        if self.from == JobFrom::Off {
            return None;
        }
        // The kernel asks for itself, or for a process that it has no number for here.
        if tid == 0 || !self.calls.has_own_proc() {
            return handle(&request.op).and_then(|number| client.job_of(number));
        }
        if let Some(Known { look, value, .. }) =
            self.known.lock().get(&tid).filter(|known| now.ms_since(known.looked) < LOOK_AGAIN_MS)
        {
            return Some(tag(value.as_deref(), look, uid));
        }
        let look = look(tid)?;
        if let Some(known) = self.known.lock().get_mut(&tid)
            && (known.look.started, &known.look.program) == (look.started, &look.program)
            && known.retry_at.is_none_or(|at| now < at)
        {
            known.looked = now;
            return Some(tag(known.value.as_deref(), &look, uid));
        }
        let value = match &self.from {
            JobFrom::Variable(name) if is_safe(&request.op) => {
                self.variable(client.seams(), tid, name.clone()).await
            }
            JobFrom::Variable(_) => Environ::NotNow,
            _ => Environ::Read(None),
        };
        let (value, retry_at) = match value {
            Environ::Read(value) => (Some(value), None),
            Environ::TooSlow => (Some(None), Some(now.plus_ms(ENVIRON_PAUSE_MS))),
            Environ::NotNow => (None, None),
        };
        let Some(value) = value else {
            // The next request at which the environment may be read will tell.
            let of_handle = handle(&request.op).and_then(|number| client.job_of(number));
            return of_handle.or_else(|| Some(tag(None, &look, uid)));
        };
        let found = tag(value.as_deref(), &look, uid);
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, known| now.ms_since(known.looked) < KNOWN_IDLE_MS);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(tid, Known { look, value, looked: now, retry_at });
        Some(found)
    }

    async fn variable(&self, seams: &Seams, tid: u32, name: String) -> Environ {
        let Ok(permit) = self.reading.clone().try_acquire_owned() else { return Environ::NotNow };
        let read = move || {
            let value = variable(tid, &name);
            drop(permit);
            value
        };
        match seams.timeout_ms(ENVIRON_WAIT_MS, seams.run_blocking(read)).await {
            Some(Some(value)) => Environ::Read(value),
            Some(None) => Environ::NotNow,
            None => Environ::TooSlow,
        }
    }
}

/// Outcome of a look at an environment.
enum Environ {
    /// The variable's value; `None` where it is not set.
    Read(Option<String>),
    /// The kernel did not give it in time.
    TooSlow,
    /// Too many are being read: a later request finds the job out.
    NotNow,
}

fn tag(value: Option<&str>, look: &Look, uid: u32) -> JobTag {
    match value {
        Some(value) => JobTag::new(value, uid),
        None => JobTag::of_program(&look.program, uid),
    }
}

/// Whether the thread that asks holds nothing that reading its environment waits for, and is not about to become another program.
fn is_safe(op: &Op) -> bool {
    !matches!(
        op,
        Op::Read(_)
            | Op::Write(_)
            | Op::Flush(_)
            | Op::Fsync(_)
            | Op::Release(_)
            | Op::Releasedir(_)
            | Op::Getlk(_)
            | Op::Setlk(_)
            | Op::Fallocate(_)
            | Op::CopyFileRange(_)
    )
}

/// The handle that a request is made through.
fn handle(op: &Op) -> Option<u64> {
    match op {
        Op::Read(op) => Some(op.fh),
        Op::Write(op) => Some(op.fh),
        Op::Flush(op) => Some(op.fh),
        Op::Fsync(op) => Some(op.fh),
        Op::Release(op) => Some(op.fh),
        Op::Fallocate(op) => Some(op.fh),
        _ => None,
    }
}

fn look(tid: u32) -> Option<Look> {
    let mut text = [0; STAT_BYTES];
    let file = open(tid, "stat")?;
    let len = rustix::io::pread(file, &mut text, 0).ok()?;
    parse(&text[..len])
}

/// The line of proc_pid_stat(5): the program stands in parentheses, and may itself have some; 19 fields behind them is the start.
fn parse(text: &[u8]) -> Option<Look> {
    let begin = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let program = String::from_utf8_lossy(text.get(begin + 1..end)?).into_owned();
    let fields = std::str::from_utf8(&text[end + 1..]).ok()?;
    let started = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Look { program, started })
}

/// A variable of the environment that a process was started with; `None` if it has none of that name, or an empty one.
fn variable(tid: u32, name: &str) -> Option<String> {
    let file = open(tid, "environ")?;
    let mut environ = Vec::new();
    let mut room = [0; 4096];
    while environ.len() < ENVIRON_BYTES_MAX {
        // The reading is not allowed, or the thread has ended: then it is named by its program.
        let len = rustix::io::read(&file, &mut room).ok()?;
        if len == 0 {
            break;
        }
        environ.extend_from_slice(&room[..len]);
    }
    value(&environ, name)
}

/// The value of a variable among words that end in NUL.
fn value(environ: &[u8], name: &str) -> Option<String> {
    let of = |word: &'_ [u8]| {
        let value = word.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        let kept = &value[..value.len().min(NAME_BYTES_MAX)];
        (!kept.is_empty()).then(|| String::from_utf8_lossy(kept).into_owned())
    };
    environ.split(|byte| *byte == 0).find_map(of)
}

fn open(tid: u32, name: &str) -> Option<std::os::fd::OwnedFd> {
    rustix::fs::open(format!("/proc/{tid}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_shown_alike() {
        for text in ["SLURM_JOB_ID", "_x1", "procname_uid", "off"] {
            assert_eq!(text.parse::<JobFrom>().expect("known").to_string(), text);
        }
        assert_eq!("disable".parse(), Ok(JobFrom::Off), "as in Lustre");
        for bad in ["", "1A", "A-B", "PATH=x", "procname uid"] {
            assert!(bad.parse::<JobFrom>().is_err(), "{bad}");
        }
        assert_eq!(JobFrom::default().to_string(), VARIABLE_DEFAULT);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = b"A=1\0XSLURM_JOB_ID=2\0SLURM_JOB_ID_X=3\0SLURM_JOB_ID=4711\0SLURM_JOB_ID=5\0EMPTY=\0";
        assert_eq!(value(environ, "SLURM_JOB_ID").as_deref(), Some("4711"));
        assert_eq!((value(environ, "EMPTY"), value(environ, "B"), value(b"", "A")), (None, None, None));
    }

    #[test]
    fn the_program_may_have_any_name() {
        let line = |name: &str| {
            format!(
                "12 ({name}) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 777 9 10 18446744073709551615"
            )
        };
        for name in ["dd", "a) S 1 (b", ""] {
            let look = parse(line(name).as_bytes()).expect("a line of stat");
            assert_eq!(look, Look { program: name.to_owned(), started: 777 });
        }
        assert_eq!((parse(b""), parse(b"1 (x) S 1")), (None, None));
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let look = look(tid).expect("this thread");
        assert!(look.started > 0 && !look.program.is_empty(), "{look:?}");
        let path = std::env::var("PATH").expect("a test has a PATH");
        let kept = &path[..path.len().min(NAME_BYTES_MAX)];
        assert_eq!(variable(tid, "PATH").as_deref(), Some(kept));
        assert_eq!(variable(u32::MAX, "PATH"), None);
        let named = tag(None, &look, 5);
        assert!(named.name().ends_with(".5") && tag(Some("77"), &look, 5).name() == "77");
    }
}
