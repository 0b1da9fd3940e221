//! In which system call a thread is that the kernel asks something for.
//!
//! Before a name is opened, made, removed or moved the kernel checks the permissions of each directory on the way, and asks for
//! their attributes with the same message as for a stat. Such a call shows nobody their size or their times: it does with
//! what says who may do what ([`brindle_types::attr::Rights`]), which stays known while others change what is in the directory.
//!
//! `/proc/TID/syscall` tells (proc(5)): the number of the call, or `running` while the thread has not gone to sleep yet, or nothing
//! to who may not trace it. All that is not understood counts as a call that shows everything.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io;

thread_local! {
    /// The thread that was looked at last: usually it is the next one, too.
    static LAST: RefCell<Option<(u32, OwnedFd)>> = const { RefCell::new(None) };
}

/// Bytes that hold the longest number.
const NUMBER_BYTES: usize = 24;
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

/// Whether a thread waits in a system call that looks at nothing of a directory but its rights.
pub(crate) fn looks_at_rights_only(tid: u32) -> bool {
    number(tid).is_some_and(|number| CALLS.contains(&number))
}

fn number(tid: u32) -> Option<libc::c_long> {
    if tid == 0 {
        // The kernel itself, or a thread of a name space that it cannot name.
        return None;
    }
    for _ in 0..LOOKS_MAX {
        let mut text = [0; NUMBER_BYTES];
        let len = LAST.with_borrow_mut(|last| look(last, tid, &mut text)).ok()?;
        let number = text[..len].split(|byte| byte.is_ascii_whitespace()).next()?;
        if number != AWAKE {
            return std::str::from_utf8(number).ok()?.parse().ok();
        }
        // It has woken whoever asks here, and is just about to wait.
        std::thread::yield_now();
    }
    None
}

fn look(last: &mut Option<(u32, OwnedFd)>, tid: u32, text: &mut [u8]) -> io::Result<usize> {
    // That of a thread that has ended tells nothing, also when another one has its number now.
    let known = last.as_ref().filter(|(of, _)| *of == tid);
    if let Some(Ok(len)) = known.map(|(_, file)| io::pread(file, &mut *text, 0)) {
        return Ok(len);
    }
    let file =
        rustix::fs::open(format!("/proc/{tid}/syscall"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (_, file) = last.insert((tid, file));
    io::pread(file, text, 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until a thread is in any system call.
    fn in_call(tid: u32) -> libc::c_long {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match number(tid) {
                Some(number) => return number,
                None => assert!(Instant::now() < until, "thread {tid} is in no system call"),
            }
            std::thread::yield_now();
        }
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
        let until = Instant::now() + Duration::from_secs(20);
        while !looks_at_rights_only(tid) {
            assert!(Instant::now() < until, "it is not seen to open, but in {:?}", number(tid));
        }
        let end = rustix::fs::open(dir.path().join("fifo"), OFlags::WRONLY, Mode::empty()).expect("opened");
        while in_call(tid) != libc::SYS_read {
            assert!(Instant::now() < until, "it is not seen to read");
        }
        assert!(!looks_at_rights_only(tid));
        drop(end);
        assert_eq!(waiting.join().expect("it ends"), 0);
        assert!(!looks_at_rights_only(tid), "it has ended");
        assert!(!looks_at_rights_only(0) && !looks_at_rights_only(u32::MAX));
    }
}
