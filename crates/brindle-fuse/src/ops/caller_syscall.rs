//! System call of a thread on whose behalf the kernel sends a request.
//!
//! The kernel checks the permissions of each directory on a path before it opens, makes, removes or moves a name. For the check it asks for
//! attributes with the same message as for a stat. No program gets to see the size or the times of the directory from such a call. An
//! answer with the rights alone ([`brindle_types::attr::Rights`]) is therefore enough, and rights stay known while others change the
//! contents of the directory.
//!
//! `/proc/TID/syscall` (proc(5)) tells the number of the call, its arguments, the stack pointer and the program counter. The file says
//! `running` while the thread is not asleep yet. A process that may not trace the thread is refused, and does not look again for a while. A
//! call that is not understood counts as one that shows everything. A thread without a stack in user space counts likewise: a worker of an
//! io_uring keeps the number of the call in which it was made, whatever it does later.
//!
//! `/proc/TID/stat` tells every process whether a thread sleeps, and whether a signal would end the sleep. No thread sleeps like that
//! while it handles an answer of ours. (Exception: the instant in which it is about to sleep and sees that the answer is there.)
//!
//! A thread that waits for the lock of a directory ignores signals. `/proc/TID/wchan` names the kernel function in which a thread
//! waits, to a process that may trace it. The functions in [`WAITS_FOR_A_DIRECTORY`] run before a request to us, or after its answer
//! was used. The thread that holds the lock may itself wait for the caller that asks here, so that caller must not wait for the thread.
//!
//! Known exception: an overlay file system whose lower layer is a mount of ours copies the times of a directory up within such a call.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::Mono;
use rustix::fs::{Mode, OFlags};
use rustix::io::{self, Errno};

thread_local! {
    /// The thread that was looked at last: usually it is the next one, too.
    static LAST: RefCell<Option<(u32, OwnedFd)>> = const { RefCell::new(None) };
}

/// The thread that looks.
#[derive(Default)]
pub(crate) struct CallerSyscalls {
    /// Whether `/proc` is that of this process: numbers of another pid namespace would name strangers.
    own_proc: OnceLock<bool>,
    /// Time until which no thread is looked at, in nanoseconds.
    refused_until: AtomicU64,
}

/// Bytes that hold what is told: nine numbers; or a number, a name of at most 64 bytes and a letter.
const TEXT_BYTES: usize = 256;
/// Pause after a refusal, in which no thread is looked at.
const REFUSED_MS: u64 = 1_000;
/// Text of /proc/TID/syscall for a thread that does not wait.
const AWAKE: &[u8] = b"running";
/// Most looks at a thread that does not wait yet.
const LOOKS_MAX: usize = 4;

/// States of proc_pid_stat(5): sleeping until a signal comes, stopped, stopped by a tracer, ended.
const SLEEPING: &[u8] = b"STtZX";

/// Functions of the kernel (of the versions 5.4 to 6.18) that wait for the lock of a directory, of what is to be removed, moved or linked in one,
/// or for another thread that looks the same name up.
const WAITS_FOR_A_DIRECTORY: &[&[u8]] = &[
    b"__lookup_slow",
    b"__start_dirop",
    b"chmod_common",
    b"chown_common",
    b"d_alloc_parallel",
    b"do_renameat2",
    b"do_rmdir",
    b"do_unlinkat",
    b"filename_create",
    b"filename_renameat2",
    b"filename_rmdir",
    b"filename_unlinkat",
    b"iterate_dir",
    b"lock_rename",
    b"lock_two_directories",
    b"lookup_open",
    b"lookup_slow",
    b"open_last_lookups",
    b"path_openat",
    b"start_dirop",
    b"vfs_link",
    b"vfs_rename",
    b"vfs_rmdir",
    b"vfs_unlink",
    b"vfs_utimes",
    b"walk_component",
];

/// System calls that show no attributes of directories. The list leaves out every number that for a 32-bit program is a call that shows
/// attributes (84: rmdir, and oldlstat): the file `syscall` does not tell 32-bit programs from others.
const CALLS: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
];

impl CallerSyscalls {
    /// The number of the system call in which a thread waits, if that can be told.
    pub fn number(&self, tid: u32) -> Option<libc::c_long> {
        if tid == 0 || !self.has_own_proc() { None } else { call(tid).ok()? }
    }

    /// Whether a thread waits in a system call that looks at nothing of a directory but its rights.
    pub fn looks_at_rights_only(&self, tid: u32, now: Mono) -> bool {
        // 0 is the kernel itself, or a thread of a name space that it cannot name.
        if tid == 0 || now.0 < self.refused_until.load(Ordering::Relaxed) || !self.has_own_proc() {
            return false;
        }
        match call(tid) {
            Ok(number) => number.is_some_and(|number| CALLS.contains(&number)),
            Err(Errno::PERM | Errno::ACCESS) => {
                self.refused_until.store(now.plus_ms(REFUSED_MS).0, Ordering::Relaxed);
                false
            }
            // The thread has ended.
            Err(_) => false,
        }
    }

    /// Whether a thread is seen in a sleep that a signal would end, is stopped, or has ended. A thread that has been given an answer does
    /// not sleep like that before it has taken the answer in. Until then it may wait for a processor, or for pages that are being read or
    /// written, and signals do not end such waits.
    pub fn sleeps(&self, tid: u32) -> bool {
        tid != 0 && self.has_own_proc() && state(tid).is_some_and(|state| SLEEPING.contains(&state))
    }

    /// Whether a thread that the kernel has an answer for has made use of it: it waits for something else, or will never go on.
    pub fn has_gone_on(&self, tid: u32) -> bool {
        self.sleeps(tid) || tid != 0 && self.has_own_proc() && waits_for_a_directory(tid)
    }

    /// Whether `/proc` is that of this process.
    pub fn has_own_proc(&self) -> bool {
        *self.own_proc.get_or_init(|| {
            let own = rustix::process::getpid().as_raw_nonzero().to_string();
            rustix::fs::readlink("/proc/self", Vec::new()).is_ok_and(|link| link.to_bytes() == own.as_bytes())
        })
    }
}

/// The number of the system call in which a thread waits, if it is sure to be one of a program.
fn call(tid: u32) -> io::Result<Option<libc::c_long>> {
    for _ in 0..LOOKS_MAX {
        let mut text = [0; TEXT_BYTES];
        let len = LAST.with_borrow_mut(|last| look(last, tid, &mut text))?;
        if !text[..len].starts_with(AWAKE) {
            return Ok(parse(&text[..len]));
        }
        // The thread has woken the reader that asks here, and is just about to wait.
        std::thread::yield_now();
    }
    Ok(None)
}

/// The state of a thread: a letter.
fn state(tid: u32) -> Option<u8> {
    let mut text = [0; TEXT_BYTES];
    let file = open(tid, "stat").ok()?;
    let len = io::pread(file, &mut text, 0).ok()?;
    // Behind the name, which may hold anything.
    let end = text[..len].iter().rposition(|byte| *byte == b')')?;
    text[..len].get(end + 2).copied()
}

/// Whether a thread waits until others leave a directory.
fn waits_for_a_directory(tid: u32) -> bool {
    let mut text = [0; TEXT_BYTES];
    let Ok(len) = open(tid, "wchan").and_then(|file| io::pread(file, &mut text, 0)) else { return false };
    is_wait_for_a_directory(&text[..len])
}

/// The compiler appends the kind of a copy of a function to its name, behind a point.
fn is_wait_for_a_directory(function: &[u8]) -> bool {
    let name = function.split(|byte| matches!(byte, b'.' | b'\n')).next().unwrap_or(function);
    WAITS_FOR_A_DIRECTORY.contains(&name)
}

/// The number, six arguments, the stack pointer and the program counter.
fn parse(text: &[u8]) -> Option<libc::c_long> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut node_ids = words.skip(6).map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
    let (stack, program) = (node_ids.next()?.ok()?, node_ids.next()?.ok()?);
    (stack != 0 && program != 0).then_some(number)
}

fn open(tid: u32, name: &str) -> io::Result<OwnedFd> {
    rustix::fs::open(format!("/proc/{tid}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn look(last: &mut Option<(u32, OwnedFd)>, tid: u32, text: &mut [u8]) -> io::Result<usize> {
    // The file of a thread that has ended tells nothing, even when another thread has its number now.
    let known = last.as_ref().filter(|(of, _)| *of == tid);
    if let Some(Ok(len)) = known.map(|(_, file)| io::pread(file, &mut *text, 0)) {
        return Ok(len);
    }
    let (_, file) = last.insert((tid, open(tid, "syscall")?));
    io::pread(file, text, 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_calls_of_programs_count() {
        let line = |number: i64, node_ids: &str| format!("{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 {node_ids}\n");
        assert_eq!(parse(line(257, "0x7ffd9 0x7f00").as_bytes()), Some(257));
        // A worker of an io_uring that was made while its program opened something; a thread of the kernel.
        assert_eq!(parse(line(257, "0x0 0x0").as_bytes()), None);
        assert_eq!(parse(b"-1 0x7ffd9 0x7f00\n"), None);
        assert_eq!((parse(b""), parse(b"257"), parse(b"x 0x0")), (None, None, None));
    }

    #[test]
    fn who_waits_for_a_directory_is_told_by_the_function() {
        assert!(
            is_wait_for_a_directory(b"filename_create") && is_wait_for_a_directory(b"lookup_slow.isra.0")
        );
        for other in [b"0".as_slice(), b"", b"request_wait_answer", b"folio_wait_bit_common", b"path_openat2"]
        {
            assert!(!is_wait_for_a_directory(other), "{}", other.escape_ascii());
        }
        assert!(!waits_for_a_directory(rustix::thread::gettid().as_raw_nonzero().get() as u32));
    }

    #[test]
    fn a_thread_is_seen_in_the_call_in_which_it_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).expect("a pipe");
        let (tell, told) = mpsc::channel();
        // The thread opens the pipe, which waits for the other end. Then it reads from the pipe, which waits
        // for bytes.
        let waiting = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).expect("somebody waits");
            let end = rustix::fs::open(fifo, OFlags::RDONLY, Mode::empty()).expect("opened");
            io::read(end, &mut [0]).expect("read")
        });
        let tid = told.recv().expect("its number");
        let (calls, now) = (CallerSyscalls::default(), Mono::default());
        let until = Instant::now() + Duration::from_secs(20);
        while !calls.looks_at_rights_only(tid, now) {
            assert!(Instant::now() < until, "it is not seen to open, but in {:?}", call(tid));
        }
        let end = rustix::fs::open(dir.path().join("fifo"), OFlags::WRONLY, Mode::empty()).expect("opened");
        while call(tid) != Ok(Some(libc::SYS_read)) {
            assert!(Instant::now() < until, "it is not seen to read");
        }
        assert!(!calls.looks_at_rights_only(tid, now) && calls.sleeps(tid));
        drop(end);
        assert_eq!(waiting.join().expect("it ends"), 0);
        assert!(!calls.looks_at_rights_only(tid, now), "it has ended");
        assert!(!calls.looks_at_rights_only(0, now) && !calls.looks_at_rights_only(u32::MAX, now));
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!calls.sleeps(this) && !calls.sleeps(0) && !calls.sleeps(u32::MAX));
        calls.refused_until.store(now.plus_ms(REFUSED_MS).0, Ordering::Relaxed);
        assert!(!calls.looks_at_rights_only(tid, now));
    }
}
