//! In which system call a thread is that the kernel asks something for.
//!
//! Before a name is opened, made, removed or moved the kernel checks the permissions of each directory on the way, and asks for
//! their attributes with the same message as for a stat. Such a call shows nobody their size or their times: it does with
//! what says who may do what ([`brindle_types::attr::Rights`]), which stays known while others change what is in the directory.
//! And before a name is removed it is looked up, of which nothing is used but that there is something, and no directory.
//!
//! `/proc/TID/syscall` tells (proc(5)): the number of the call, its arguments, stack pointer and program counter; or `running` while
//! the thread has not gone to sleep yet; or nothing to who may not trace it, who then does not look again for a while. All that is
//! not understood counts as a call that shows everything. So do threads without a stack in user space: a worker of an io_uring
//! keeps the number of the call in which it was made, whatever it does later. Which name a call is to remove says the path that the
//! program gave it, in the program's memory: the same right to trace it opens that.
//!
//! One that cannot be told from others: an overlay whose lower layer is here copies the times of a directory up within such a call.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::Mono;
use rustix::fs::{Mode, OFlags};
use rustix::io::{self, Errno};

thread_local! {
    /// The thread that was looked at last: usually it is the next one, too.
    static LAST: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// A thread, and what is open to look at it.
struct Thread {
    tid: u32,
    call: OwnedFd,
    /// The memory of the program that it ran when that was first looked at.
    memory: Option<OwnedFd>,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: libc::c_long,
    args: [u64; ARGS],
    stack: u64,
}

/// Who looks.
#[derive(Default)]
pub(crate) struct Calls {
    /// Whether `/proc` is that of this process: numbers of another pid namespace would name strangers.
    own_proc: OnceLock<bool>,
    /// Until when nobody is looked at, in nanoseconds.
    refused_until: AtomicU64,
}

/// Bytes that hold what is told: nine numbers.
const TEXT_BYTES: usize = 256;
/// How long nobody is looked at after a refusal.
const REFUSED_MS: u64 = 1_000;
/// Arguments of a system call.
const ARGS: usize = 6;
/// Longest path that the kernel takes, with its end.
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;
/// Programs of 32 bits have no stack beyond it.
const STACK_MAX_32: u64 = u32::MAX as u64;
/// What is told of a thread that does not wait.
const AWAKE: &[u8] = b"running";
/// How often a thread is looked at that does not wait yet.
const LOOKS_MAX: usize = 4;

/// System calls that show no attributes of directories. None whose number is that of a call that shows some for a 32-bit
/// program, which that file does not tell from others (84: rmdir, and oldlstat).
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

impl Calls {
    /// Whether a thread waits in a system call that looks at nothing of a directory but its rights.
    pub fn looks_at_rights_only(&self, tid: u32, now: Mono) -> bool {
        let looking = || Ok(call(tid)?.is_some_and(|call| CALLS.contains(&call.number)));
        self.look(tid, now, looking)
    }

    /// Whether a thread waits in a system call that is to remove a file by a path that ends with `name`, which it meets only there.
    pub fn removes(&self, tid: u32, name: &[u8], now: Mono) -> bool {
        let looking = || match call(tid)?.and_then(Call::removed_path) {
            Some(path) => ends_with(tid, path, name),
            None => Ok(false),
        };
        self.look(tid, now, looking)
    }

    fn look(&self, tid: u32, now: Mono, looking: impl FnOnce() -> io::Result<bool>) -> bool {
        // 0 is the kernel itself, or a thread of a name space that it cannot name.
        if tid == 0 || now.0 < self.refused_until.load(Ordering::Relaxed) || !self.has_own_proc() {
            return false;
        }
        match looking() {
            Ok(seen) => seen,
            Err(Errno::PERM | Errno::ACCESS) => {
                self.refused_until.store(now.plus_ms(REFUSED_MS).0, Ordering::Relaxed);
                false
            }
            // It has ended.
            Err(_) => false,
        }
    }

    fn has_own_proc(&self) -> bool {
        *self.own_proc.get_or_init(|| {
            let own = rustix::process::getpid().as_raw_nonzero().to_string();
            rustix::fs::readlink("/proc/self", Vec::new()).is_ok_and(|link| link.to_bytes() == own.as_bytes())
        })
    }
}

impl Call {
    /// Where the path is of which it removes the last name, if that is one of a file.
    fn removed_path(self) -> Option<u64> {
        let [first, second, third, ..] = self.args;
        match self.number {
            _ if self.stack <= STACK_MAX_32 => None,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => Some(first),
            libc::SYS_unlinkat if third & libc::AT_REMOVEDIR as u64 == 0 => Some(second),
            _ => None,
        }
    }
}

/// The system call in which a thread waits, if it is sure to be one of a program.
fn call(tid: u32) -> io::Result<Option<Call>> {
    for _ in 0..LOOKS_MAX {
        let mut text = [0; TEXT_BYTES];
        let len = LAST.with_borrow_mut(|last| read_call(last, tid, &mut text))?;
        if !text[..len].starts_with(AWAKE) {
            return Ok(parse(&text[..len]));
        }
        // It has woken whoever asks here, and is just about to wait.
        std::thread::yield_now();
    }
    Ok(None)
}

/// The number, six arguments, the stack pointer and the program counter.
fn parse(text: &[u8]) -> Option<Call> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut hex = words.map_while(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let mut args = [0; ARGS];
    for arg in &mut args {
        *arg = hex.next()?;
    }
    let (stack, program) = (hex.next()?, hex.next()?);
    (stack != 0 && program != 0).then_some(Call { number, args, stack })
}

fn read_call(last: &mut Option<Thread>, tid: u32, text: &mut [u8]) -> io::Result<usize> {
    // That of a thread that has ended tells nothing, also when another one has its number now.
    let known = last.as_ref().filter(|known| known.tid == tid);
    if let Some(Ok(len)) = known.map(|known| io::pread(&known.call, &mut *text, 0)) {
        return Ok(len);
    }
    let known = last.insert(Thread { tid, call: open_of(tid, "syscall")?, memory: None });
    io::pread(&known.call, text, 0)
}

/// Whether the path at `at` in the memory of a thread, of which the call was just read, has a name at its end and only there.
fn ends_with(tid: u32, at: u64, name: &[u8]) -> io::Result<bool> {
    let mut path = [0; PATH_BYTES_MAX];
    let len = LAST.with_borrow_mut(|last| match last {
        Some(known) if known.tid == tid => read_memory(known, at, &mut path),
        _ => Ok(0),
    })?;
    let Some(end) = path[..len].iter().position(|byte| *byte == 0) else { return Ok(false) };
    let mut names = path[..end].rsplit(|byte| *byte == b'/');
    Ok(names.next() == Some(name) && names.all(|other| other != name))
}

fn read_memory(thread: &mut Thread, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    // Of a program that has been replaced by another one there is nothing to be read.
    if let Some(memory) = &thread.memory
        && let Ok(len @ 1..) = io::pread(memory, &mut *bytes, at)
    {
        return Ok(len);
    }
    let memory = thread.memory.insert(open_of(thread.tid, "mem")?);
    io::pread(memory, bytes, at)
}

fn open_of(tid: u32, file: &str) -> io::Result<OwnedFd> {
    rustix::fs::open(format!("/proc/{tid}/{file}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_calls_of_programs_count() {
        let line = |number: i64, places: &str| format!("{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 {places}\n");
        let seen = Call { number: 257, args: [3, 0x7ffd, 0, 0, 0, 0], stack: 0x7ffd9 };
        assert_eq!(parse(line(257, "0x7ffd9 0x7f00").as_bytes()), Some(seen));
        // A worker of an io_uring that was made while its program opened something; a thread of the kernel.
        assert_eq!(parse(line(257, "0x0 0x0").as_bytes()), None);
        assert_eq!(parse(b"-1 0x7ffd9 0x7f00\n"), None);
        assert_eq!((parse(b""), parse(b"257"), parse(b"x 0x0")), (None, None, None));
    }

    #[test]
    fn only_calls_that_remove_files_have_a_path_to_be_removed() {
        let stack = STACK_MAX_32 + 1;
        let call = |number, flags, stack| Call { number, args: [1, 2, flags, 0, 0, 0], stack }.removed_path();
        assert_eq!(call(libc::SYS_unlinkat, 0, stack), Some(2));
        assert_eq!(call(libc::SYS_unlinkat, libc::AT_REMOVEDIR as u64, stack), None);
        assert_eq!(call(libc::SYS_unlinkat, 0, STACK_MAX_32), None);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(call(libc::SYS_unlink, 7, stack), Some(1));
        for number in [libc::SYS_openat, libc::SYS_renameat2, libc::SYS_mkdirat, libc::SYS_linkat] {
            assert_eq!(call(number, 0, stack), None);
        }
    }

    #[test]
    fn a_path_is_read_from_the_memory_of_another_thread_up_to_where_that_ends() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

        let page = rustix::param::page_size();
        let (flags, access) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping of two pages, of which the second is given back at once; nothing refers to either.
        let pages = unsafe {
            let pages = mmap_anonymous(std::ptr::null_mut(), 2 * page, access, flags).expect("two pages");
            munmap(pages.byte_add(page), page).expect("one of them is given back");
            pages.cast::<u8>()
        };
        let place = |text: &[u8]| {
            // SAFETY: the text is shorter than the page, at whose end it is put.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), pages.add(page - text.len()), text.len()) };
            pages as u64 + (page - text.len()) as u64
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let ends = |text: &[u8], name: &[u8]| {
            call(tid).expect("it is seen");
            ends_with(tid, place(text), name)
        };
        assert_eq!(ends(b"/mnt/d/file\0", b"file"), Ok(true));
        assert_eq!(ends(b"file\0", b"file"), Ok(true));
        for other in [
            &b"/mnt/d/file/\0"[..],
            b"/mnt/file/x\0",
            b"/mnt/afile\0",
            b"file",
            b"\0",
            b"file/..\0",
            b"/file/d/file\0",
        ] {
            assert_eq!(ends(other, b"file"), Ok(false), "{other:?}");
        }
        assert_eq!(ends_with(tid, 8, b"file").map_err(|_| ()), Err(()), "nothing is there");
        // SAFETY: mapped above; nothing refers to it any more.
        unsafe { munmap(pages.cast(), page).expect("given back") };
    }

    #[test]
    fn a_thread_is_seen_in_the_call_in_which_it_waits() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).expect("a pipe");
        let (tell, told) = mpsc::channel();
        // It opens the pipe, which waits for the other end, then reads from it, which waits for bytes.
        let waiting = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).expect("somebody waits");
            let end = rustix::fs::open(fifo, OFlags::RDONLY, Mode::empty()).expect("opened");
            io::read(end, &mut [0]).expect("read")
        });
        let tid = told.recv().expect("its number");
        let (calls, now) = (Calls::default(), Mono::default());
        let until = Instant::now() + Duration::from_secs(20);
        while !calls.looks_at_rights_only(tid, now) {
            assert!(Instant::now() < until, "it is not seen to open, but in {:?}", call(tid));
        }
        let end = rustix::fs::open(dir.path().join("fifo"), OFlags::WRONLY, Mode::empty()).expect("opened");
        while call(tid).map(|call| call.map(|call| call.number)) != Ok(Some(libc::SYS_read)) {
            assert!(Instant::now() < until, "it is not seen to read");
        }
        assert!(!calls.looks_at_rights_only(tid, now));
        drop(end);
        assert_eq!(waiting.join().expect("it ends"), 0);
        assert!(!calls.looks_at_rights_only(tid, now), "it has ended");
        assert!(!calls.looks_at_rights_only(0, now) && !calls.looks_at_rights_only(u32::MAX, now));
        calls.refused_until.store(now.plus_ms(REFUSED_MS).0, Ordering::Relaxed);
        assert!(!calls.looks_at_rights_only(tid, now));
    }
}
