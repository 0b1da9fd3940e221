//! The protocol layer against the real kernel. Needs root and /dev/fuse.
//!
//! Tests run one after the other: each has a mount of its own, but some count requests or measure time.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use brindle_fuse::abi::flags::{fopen, init};
use brindle_fuse::request::{Op, Setlk};
use brindle_fuse::session::{MountOptions, ServeOptions};
use brindle_fuse::{Connected, Ended, Notice, Outcome, Wanted};
use brindle_stdx::real::TokioSpawn;
use support::memfs::DIRECT;
use support::mount::{eventually, turn};
use support::{Mapping, MemFs, Mount, sys};

/// Well below the ten seconds for which a gate would hold a request back.
const AT_ONCE: Duration = Duration::from_secs(2);

fn rw(m: &Mount, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(m.path(name)).expect("open")
}

fn is_read(op: &Op) -> bool {
    matches!(op, Op::Read(_))
}

#[test]
fn files_directories_and_links_work() {
    let m = Mount::new();
    let n = m.session.negotiated();
    for feature in [init::POSIX_LOCKS, init::DIRECT_IO_ALLOW_MMAP, init::POSIX_ACL, init::HANDLE_KILLPRIV_V2]
    {
        assert!(n.has(feature), "{feature:#x}");
    }
    fs::create_dir(m.path("d")).expect("mkdir");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(m.path("d/a"), &data).expect("write");
    assert_eq!(fs::read(m.path("d/a")).expect("read"), data);
    std::os::unix::fs::symlink("d/a", m.path("s")).expect("symlink");
    assert_eq!(fs::metadata(m.path("s")).expect("stat").len(), data.len() as u64);
    fs::hard_link(m.path("d/a"), m.path("h")).expect("link");
    assert_eq!(fs::metadata(m.path("h")).expect("stat").nlink(), 2);
    fs::rename(m.path("h"), m.path("d/b")).expect("rename");
    let mut names: Vec<_> =
        fs::read_dir(m.path("d")).expect("readdir").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    fs::remove_file(m.path("d/a")).expect("unlink");
    fs::remove_file(m.path("d/b")).expect("unlink");
    fs::remove_dir(m.path("d")).expect("rmdir");
    assert_eq!(fs::read_dir(m.path("")).expect("readdir").count(), 1);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let line = mounts.lines().find(|l| l.contains(m.path("").to_str().expect("utf-8").trim_end_matches('/')));
    let line = line.expect("mounted");
    assert!(line.starts_with("memfs ") && line.contains(" fuse.brindle rw,"), "{line}");
    assert!(line.contains("default_permissions,allow_other") && !line.contains("nosuid"), "{line}");
}

#[test]
fn unmounting_ends_the_session() {
    let m = Mount::new();
    let f = File::create(m.path("f")).expect("create");
    let busy = m.session.unmount(false).expect_err("a file is open");
    assert_eq!(busy.code, brindle_types::Code::FileBusy);
    drop(f);
    m.session.unmount(false).expect("nothing is open");
    assert_eq!(m.runtime.block_on(m.session.ended()), Ended::Unmounted);
    assert_eq!(
        m.runtime.block_on(m.session.notifier().post(brindle_fuse::Notice::IncEpoch)),
        brindle_fuse::Outcome::Ended
    );
}

/// The kernel gives the number of a connection that has ended to the next one at once.
#[test]
fn what_is_mounted_in_the_place_of_an_ended_session_stays_when_that_goes() {
    let mut m = Mount::new();
    let number = m.session.connection();
    m.session.unmount(false).expect("nothing is open");
    assert_eq!(m.runtime.block_on(m.session.ended()), Ended::Unmounted);
    let next = Connected::mount(&MountOptions::new(m.path(""), "memfs"), &Wanted::default());
    let options = ServeOptions::default().in_runtime(m.runtime.handle().clone());
    let tasks = Arc::new(TokioSpawn(m.runtime.handle().clone()));
    let next = next.expect("mounted in its place").serve(&options, tasks, |notifier, _| MemFs::new(notifier));
    let before = std::mem::replace(&mut m.session, next.expect("served"));
    fs::write(m.path("f"), b"x").expect("it is there");
    drop(before);
    assert_eq!(fs::read(m.path("f")).expect("still there"), b"x", "both had the number {number:?}");
}

/// The first reader also takes answers of servers: also where one of those never lets it go requests are read.
#[test]
fn what_holds_the_lead_holds_up_no_request() {
    let m = Mount::new();
    let (free, is_free) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let holding = async move {
        tell.send(()).expect("the test waits for it");
        is_free.recv().expect_err("nothing is sent");
    };
    m.event_loop.tasks().spawn("held", Box::pin(holding));
    told.recv().expect("it is held");
    fs::write(m.path("f"), b"x").expect("others read");
    assert_eq!(fs::read(m.path("f")).expect("others read"), b"x");
    drop(free);
}

#[test]
fn an_abort_is_told_from_an_unmount() {
    let m = Mount::new();
    m.session.abort().expect("abort");
    assert_eq!(m.runtime.block_on(m.session.ended()), Ended::Aborted);
    assert!(fs::metadata(m.path("x")).is_err());
}

#[test]
fn write_then_read_through_one_descriptor() {
    let m = Mount::new();
    let mut f = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(m.path("f"))
        .expect("open");
    f.write_all(b"hello").expect("write");
    f.write_all_at(b"J", 0).expect("pwrite");
    let mut s = String::new();
    File::open(m.path("f")).expect("open").read_to_string(&mut s).expect("read");
    assert_eq!(s, "Jello");
    assert_eq!(f.metadata().expect("fstat").mode() & 0o777, 0o640);
}

#[test]
fn statx_brings_the_birth_time() {
    let m = Mount::new();
    m.put("f", b"x");
    let born = fs::metadata(m.path("f")).expect("statx").created().expect("btime");
    let since = born.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    assert_eq!((since.as_secs(), since.subsec_nanos()), (1_600_000_000, 123_456_789));
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let m = Mount::new();
    let tmp = OpenOptions::new().write(true).read(true).custom_flags(libc::O_TMPFILE).open(m.path(""));
    let mut tmp = tmp.expect("O_TMPFILE");
    tmp.write_all(b"late").expect("write");
    assert_eq!(tmp.metadata().expect("fstat").nlink(), 0);
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&tmp));
    rustix::fs::linkat(
        rustix::fs::CWD,
        from,
        rustix::fs::CWD,
        m.path("named"),
        rustix::fs::AtFlags::SYMLINK_FOLLOW,
    )
    .expect("linkat");
    assert_eq!(fs::read(m.path("named")).expect("read"), b"late");
}

#[test]
fn holes_are_found_and_space_is_allocated() {
    let m = Mount::new();
    m.put("f", &[&[1u8; 100][..], &[0; 100], &[1; 100]].concat());
    let f = rw(&m, "f");
    assert_eq!(sys::lseek(&f, 0, libc::SEEK_HOLE).expect("hole"), 100);
    assert_eq!(sys::lseek(&f, 150, libc::SEEK_DATA).expect("data"), 200);
    assert_eq!(sys::lseek(&f, 300, libc::SEEK_DATA).expect_err("end").raw_os_error(), Some(libc::ENXIO));
    sys::fallocate(&f, 0, 0, 5000).expect("fallocate");
    assert_eq!(f.metadata().expect("fstat").len(), 5000);
    sys::fallocate(&f, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 100).expect("punch");
    assert_eq!(sys::lseek(&f, 0, libc::SEEK_DATA).expect("data"), 200);
}

#[test]
fn copies_are_made_by_the_server() {
    let m = Mount::new();
    m.put("from", b"copied by the server");
    m.put("to", b"");
    let (from, to) = (rw(&m, "from"), rw(&m, "to"));
    assert_eq!(sys::copy_file_range(&from, &to, 100).expect("copy"), 20);
    let log = m.fs.take_log();
    let wide = log.iter().find_map(|s| if let Op::CopyFileRange(c) = &s.op { Some(c.wide) } else { None });
    assert_eq!(wide, Some(m.session.negotiated().minor >= 45));
    assert!(!log.iter().any(|s| is_read(&s.op)));
    assert_eq!(m.fs.contents(m.fs.ino("to")), b"copied by the server");
}

#[test]
fn rename_flags_arrive() {
    let m = Mount::new();
    m.put("a", b"A");
    m.put("b", b"B");
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let taken =
        renameat_with(CWD, m.path("a"), CWD, m.path("b"), RenameFlags::NOREPLACE).expect_err("exists");
    assert_eq!(taken, rustix::io::Errno::EXIST);
    renameat_with(CWD, m.path("a"), CWD, m.path("b"), RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!(fs::read(m.path("a")).expect("read"), b"B");
}

#[test]
fn extended_attributes_and_statfs() {
    let m = Mount::new();
    m.put("f", b"");
    let mut room = [0u8; 64];
    rustix::fs::setxattr(m.path("f"), "user.colour", b"green", rustix::fs::XattrFlags::CREATE)
        .expect("setxattr");
    let len = rustix::fs::getxattr(m.path("f"), "user.colour", &mut room).expect("getxattr");
    assert_eq!(&room[..len], b"green");
    let len = rustix::fs::listxattr(m.path("f"), &mut room).expect("listxattr");
    assert_eq!(&room[..len], b"user.colour\0");
    let short = rustix::fs::getxattr(m.path("f"), "user.colour", &mut room[..2]).expect_err("no room");
    assert_eq!(short, rustix::io::Errno::RANGE);
    rustix::fs::removexattr(m.path("f"), "user.colour").expect("removexattr");
    let gone = rustix::fs::getxattr(m.path("f"), "user.colour", &mut room).expect_err("removed");
    assert_eq!(gone, rustix::io::Errno::NODATA);
    let s = rustix::fs::statvfs(m.path("")).expect("statvfs");
    assert_eq!((s.f_blocks, s.f_bavail, s.f_files, s.f_namemax), (1000, 800, 70, 255));
}

#[test]
fn a_listing_brings_attributes_and_forgets_what_it_brought() {
    let m = Mount::new();
    for i in 0..300 {
        File::create(m.path(&format!("file{i:03}"))).expect("create");
    }
    m.fs.policy(|p| p.attr_valid = Duration::from_secs(60));
    m.fs.policy(|p| p.entry_valid = Duration::from_secs(60));
    m.fs.take_log();
    let listed = fs::read_dir(m.path("")).expect("readdir");
    let sizes: Vec<u64> = listed.map(|e| e.expect("entry").metadata().expect("stat").len()).collect();
    assert_eq!(sizes.len(), 300);
    let log = m.fs.take_log();
    let plus = log.iter().filter(|s| matches!(&s.op, Op::Readdir(r) if r.plus)).count();
    let lookups = log.iter().filter(|s| matches!(s.op, Op::Lookup(_))).count();
    assert!(plus > 0 && lookups < 300, "{plus} READDIRPLUS, {lookups} LOOKUP");
    let inos: Vec<u64> = (0..300).map(|i| m.fs.ino(&format!("file{i:03}"))).collect();
    m.notify(Notice::IncEpoch);
    // Dropping the names lets the kernel forget the inodes.
    for i in 0..300 {
        let name = format!("file{i:03}").into();
        m.notify(Notice::InvalEntry { parent: 1, name, expire_only: false });
    }
    m.notify(Notice::Prune { inodes: inos.clone() });
    eventually("every reference is given back", || inos.iter().all(|i| m.fs.lookups(*i) == 0));
}

#[test]
fn lock_kinds_are_told_apart() {
    let m = Mount::new();
    m.put("f", &[0; 100]);
    let (a, b) = (rw(&m, "f"), rw(&m, "f"));
    m.fs.take_log();
    sys::flock(&a, libc::LOCK_EX).expect("flock");
    let busy = sys::flock(&b, libc::LOCK_SH | libc::LOCK_NB).expect_err("taken");
    assert_eq!(busy.raw_os_error(), Some(libc::EWOULDBLOCK));
    // A lock of the other lock space does not conflict.
    sys::fcntl_lock(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 10).expect("OFD");
    let busy = sys::fcntl_lock(&a, libc::F_SETLK, libc::F_WRLCK, 15, 10).expect_err("overlaps");
    assert_eq!(busy.raw_os_error(), Some(libc::EAGAIN));
    sys::fcntl_lock(&a, libc::F_SETLK, libc::F_WRLCK, 20, 10).expect("beside it");
    let holder = sys::fcntl_lock(&a, libc::F_GETLK, libc::F_WRLCK, 0, 0).expect("getlk");
    assert_eq!((holder.l_type, holder.l_start, holder.l_len), (libc::F_WRLCK as i16, 10, 10));
    let log = m.fs.take_log();
    let locks: Vec<_> =
        log.iter().filter_map(|s| if let Op::Setlk(l) = &s.op { Some(l.lock) } else { None }).collect();
    assert_eq!(locks.iter().map(|l| l.flock).collect::<Vec<_>>(), [true, true, false, false, false]);
    // An OFD lock carries the owner that flock uses for the open file.
    assert_eq!(locks[1].owner, locks[2].owner);
    assert_ne!(locks[2].owner, locks[3].owner);
    assert_eq!((locks[0].start, locks[0].end), (0, i64::MAX as u64));
}

#[test]
fn closing_drops_the_locks_of_the_process_and_of_the_open_file() {
    let m = Mount::new();
    m.put("f", &[0; 100]);
    let (a, b, c) = (rw(&m, "f"), rw(&m, "f"), rw(&m, "f"));
    sys::fcntl_lock(&a, libc::F_SETLK, libc::F_WRLCK, 0, 10).expect("fcntl");
    sys::fcntl_lock(&b, libc::F_OFD_SETLK, libc::F_WRLCK, 20, 10).expect("OFD");
    sys::flock(&b, libc::LOCK_EX).expect("flock");
    let taken =
        |start| sys::fcntl_lock(&c, libc::F_OFD_GETLK, libc::F_WRLCK, start, 1).expect("getlk").l_type;
    assert_eq!((taken(0), taken(20)), (libc::F_WRLCK as i16, libc::F_WRLCK as i16));
    // Any close by the process drops its fcntl locks; FLUSH carries their owner.
    drop(a);
    eventually("the process's lock is gone", || taken(0) == libc::F_UNLCK as i16);
    assert_eq!(taken(20), libc::F_WRLCK as i16);
    m.fs.take_log();
    drop(b);
    eventually("the open file's lock is gone", || taken(20) == libc::F_UNLCK as i16);
    let log = m.fs.take_log();
    let release =
        log.iter().find_map(|s| if let Op::Release(r) = &s.op { Some(*r) } else { None }).expect("RELEASE");
    assert!(release.flock_owner.is_some(), "a flock was taken through it");
}

/// A thread that gets SIGUSR1 once the request has arrived at the gate.
fn interrupted<T: Send + 'static>(
    arrived: impl Fn() -> bool,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing; without SA_RESTART, calls return EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    let caller = thread::spawn(call);
    eventually("the request arrives", arrived);
    let start = Instant::now();
    let target = std::os::unix::thread::JoinHandleExt::as_pthread_t(&caller);
    // SAFETY: the thread is not joined yet, so its handle is valid.
    unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
    let result = caller.join().expect("the caller ends");
    assert!(start.elapsed() < AT_ONCE, "took {:?}", start.elapsed());
    result
}

#[test]
fn a_signal_ends_a_blocked_read_and_a_waiting_lock() {
    let m = Mount::new();
    m.fs.open_with(DIRECT);
    m.put("f", &[1; 100]);
    let gate = Arc::new(m.fs.gate(|s| is_read(&s.op)));
    let (f, held) = (rw(&m, "f"), gate.clone());
    let read = interrupted(move || held.arrived() > 0, move || f.read_at(&mut [0; 10], 0));
    assert_eq!(read.expect_err("interrupted").raw_os_error(), Some(libc::EINTR));
    gate.open();

    let (a, b) = (rw(&m, "f"), rw(&m, "f"));
    sys::fcntl_lock(&a, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).expect("OFD");
    m.fs.take_log();
    let fs = m.fs.clone();
    let waits = move || fs.count(|s| matches!(s.op, Op::Setlk(Setlk { wait: true, .. }))) > 0;
    let waited =
        interrupted(waits, move || sys::fcntl_lock(&b, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 0).map(|_| ()));
    assert_eq!(waited.expect_err("interrupted").raw_os_error(), Some(libc::EINTR));
}

/// Signals hit requests that are just being read from the device, registered, handled or answered.
#[test]
fn a_storm_of_signals_ends_every_read() {
    const READS: usize = 500;
    let m = Mount::new();
    m.fs.open_with(DIRECT);
    m.put("f", &[1; 100]);
    let _never_opens = m.fs.gate(|s| is_read(&s.op));
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let f = rw(&m, "f");
            thread::spawn(move || {
                for _ in 0..READS {
                    let e = f.read_at(&mut [0; 10], 0).expect_err("only a signal ends it");
                    assert_eq!(e.raw_os_error(), Some(libc::EINTR));
                }
            })
        })
        .collect();
    while readers.iter().any(|r| !r.is_finished()) {
        for reader in &readers {
            let target = std::os::unix::thread::JoinHandleExt::as_pthread_t(reader);
            // SAFETY: not joined yet, so the handle is valid.
            unsafe { libc::pthread_kill(target, libc::SIGUSR2) };
        }
    }
    readers.into_iter().for_each(|r| r.join().expect("reader"));
}

/// Starts `program` on the file and gives it once its request has arrived.
fn blocked_child(m: &Mount, args: &[&str], arrived: impl Fn() -> bool) -> std::process::Child {
    let mut command = std::process::Command::new(args[0]);
    command.args(&args[1..]).arg(m.path("f")).stdout(std::process::Stdio::null());
    let child = command.spawn().expect("start");
    eventually("the request arrives", arrived);
    child
}

#[test]
fn a_killed_reader_is_gone_at_once() {
    let m = Mount::new();
    m.put("f", &[1; 100_000]);
    for flags in [0, DIRECT] {
        m.fs.open_with(flags);
        m.notify(Notice::InvalInode { ino: m.fs.ino("f"), offset: 0, len: 0 });
        let gate = m.fs.gate(|s| is_read(&s.op));
        let mut child = blocked_child(&m, &["cat"], || gate.arrived() > 0);
        assert!(!brindle_fuse::kill_pending(child.id()));
        let start = Instant::now();
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(start.elapsed() < AT_ONCE, "took {:?} with open flags {flags}", start.elapsed());
    }
}

#[test]
fn a_killed_lock_waiter_is_gone_at_once() {
    let m = Mount::new();
    m.put("f", b"");
    let f = rw(&m, "f");
    sys::flock(&f, libc::LOCK_EX).expect("flock");
    m.fs.take_log();
    let waits = || m.fs.count(|s| matches!(s.op, Op::Setlk(Setlk { wait: true, .. }))) > 0;
    let mut command = std::process::Command::new("flock");
    let mut child = command.arg("-x").arg(m.path("f")).arg("true").spawn().expect("start");
    eventually("it waits", waits);
    let start = Instant::now();
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(start.elapsed() < AT_ONCE, "took {:?}", start.elapsed());
}

#[test]
fn a_pending_kill_is_seen() {
    let m = Mount::new();
    m.put("f", &[1; 100]);
    // A gate that takes no notice of signals: the handler below never sees `cancel`.
    let gate = m.fs.stubborn_gate(|s| is_read(&s.op));
    let mut child = blocked_child(&m, &["cat"], || gate.arrived() > 0);
    let tid = m.fs.take_log().iter().find(|s| is_read(&s.op)).expect("READ").pid;
    assert!(!brindle_fuse::kill_pending(tid));
    child.kill().expect("kill");
    eventually("the kill is pending", || brindle_fuse::kill_pending(tid));
    assert!(child.try_wait().expect("wait").is_none(), "it waits for the answer");
    gate.open();
    child.wait().expect("wait");
    assert!(!brindle_fuse::kill_pending(tid));
}

#[test]
fn invalidation_drops_pages_and_names() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 10_000]);
    let f = File::open(m.path("f")).expect("open");
    let read = || {
        let mut all = vec![0; 10_000];
        f.read_exact_at(&mut all, 0).expect("read");
        all
    };
    assert_eq!(read()[5000], b'a');
    m.fs.remote_write(ino, 5000, b"B", false);
    assert_eq!(read()[5000], b'a', "served from the page cache");
    assert_eq!(m.notify(Notice::InvalInode { ino, offset: 5000, len: 1 }), Outcome::Done);
    m.fs.take_log();
    assert_eq!(read()[5000], b'B');
    let offsets: Vec<_> =
        m.fs.take_log()
            .iter()
            .filter_map(|s| if let Op::Read(r) = &s.op { Some(r.offset) } else { None })
            .collect();
    assert_eq!(offsets, [4096], "only the page that was invalidated is read again");
    assert_eq!(m.notify(Notice::InvalInode { ino: 999, offset: 0, len: 0 }), Outcome::NotCached);
    let store = Notice::Store { ino, offset: 0, data: vec![b'S'; 4096].into() };
    assert_eq!(m.notify(store), Outcome::Done);
    assert_eq!((read()[0], m.fs.count(|s| is_read(&s.op))), (b'S', 0));
    let entry = Notice::InvalEntry { parent: 1, name: "f".into(), expire_only: false };
    assert_eq!(m.notify(entry), Outcome::Done);
    assert_eq!(
        m.notify(Notice::Delete { parent: 1, child: ino, name: "nothing".into() }),
        Outcome::NotCached
    );
}

#[test]
fn direct_writes_arrive_in_parallel_and_in_aligned_buffers() {
    let m = Mount::new();
    m.fs.open_with(DIRECT);
    m.put("f", &vec![0; 8 << 20]);
    let gate = m.fs.gate(|s| matches!(s.op, Op::Write(_)));
    let writers: Vec<_> = (0..4u64)
        .map(|i| {
            let f = rw(&m, "f");
            thread::spawn(move || f.write_all_at(&vec![i as u8 + 1; 1 << 20], i << 20).expect("write"))
        })
        .collect();
    eventually("four writes are in flight", || gate.arrived() == 4);
    gate.open();
    for writer in writers {
        writer.join().expect("writer");
    }
    // The last bytes of a buffer that begins within a page come in a request of their own, wherever that lies.
    let large = |s: &support::memfs::Seen| matches!(&s.op, Op::Write(w) if w.data.len() > 4096);
    let aligned = |s: &support::memfs::Seen| matches!(&s.op, Op::Write(w) if w.data.len() > 4096 && (w.data.as_ptr() as usize).is_multiple_of(4096));
    assert_eq!((m.fs.count(large), m.fs.count(aligned)), (4, 4));
    let data = m.fs.contents(m.fs.ino("f"));
    assert!((0..4).all(|i| data[i << 20..(i + 1) << 20].iter().all(|b| *b == i as u8 + 1)));
}

#[test]
fn a_direct_file_can_be_mapped() {
    let m = Mount::new();
    m.fs.open_with(DIRECT);
    let ino = m.put("f", &[b'a'; 8192]);
    let map = Mapping::shared(&rw(&m, "f"), 8192).expect("mmap");
    assert_eq!(map.get(5000), b'a');
    map.set(5000, b'b');
    map.msync().expect("msync");
    assert_eq!(m.fs.contents(ino)[5000], b'b');
}

#[test]
fn a_stream_cannot_seek() {
    let m = Mount::new();
    m.put("f", b"abc");
    m.fs.open_with(fopen::STREAM | fopen::NONSEEKABLE | fopen::DIRECT_IO);
    let f = File::open(m.path("f")).expect("open");
    assert_eq!(
        sys::lseek(&f, 1, libc::SEEK_SET).expect_err("no position").raw_os_error(),
        Some(libc::ESPIPE)
    );
}

#[test]
fn noflush_closes_without_flush() {
    let m = Mount::new();
    m.put("f", b"abc");
    let flushes = |flags| {
        m.fs.open_with(flags);
        m.fs.take_log();
        drop(File::open(m.path("f")).expect("open"));
        eventually("RELEASE", || m.fs.count(|s| matches!(s.op, Op::Release(_))) == 1);
        m.fs.count(|s| matches!(s.op, Op::Flush(_)))
    };
    assert_eq!((flushes(0), flushes(fopen::NOFLUSH)), (1, 0));
}

#[test]
fn a_panic_in_a_handler_is_an_io_error() {
    let m = Mount::new();
    m.put("f", b"abc");
    let _panics = m.fs.gate(|s| matches!(s.op, Op::Statfs) && panic!("on purpose"));
    assert_eq!(rustix::fs::statvfs(m.path("")).err(), Some(rustix::io::Errno::IO));
    assert_eq!(fs::read(m.path("f")).expect("read"), b"abc");
}

#[test]
fn the_group_that_matters_comes_with_a_create() {
    let m = Mount::new();
    if !m.session.negotiated().has(init::CREATE_SUPP_GROUP) {
        return;
    }
    fs::create_dir(m.path("shared")).expect("mkdir");
    rustix::fs::chownat(
        rustix::fs::CWD,
        m.path("shared"),
        None,
        Some(rustix::fs::Gid::from_raw(4321)),
        rustix::fs::AtFlags::empty(),
    )
    .expect("chown");
    std::fs::set_permissions(m.path("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o2775))
        .expect("chmod");
    m.fs.take_log();
    let made = std::process::Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--groups=4321,77", "touch"])
        .arg(m.path("shared/new"))
        .status()
        .expect("setpriv");
    assert!(made.success());
    let log = m.fs.take_log();
    let create = log.iter().find(|s| matches!(s.op, Op::Create(_))).expect("CREATE");
    assert_eq!(create.groups, [4321]);
}

#[test]
fn another_server_takes_the_connection_over() {
    let turn = turn();
    let dir = tempfile::Builder::new().prefix("brindle-fuse-test").tempdir().expect("a directory");
    let first = Connected::mount(&MountOptions::new(dir.path(), "memfs"), &Wanted::default()).expect("mount");
    let (device, negotiated, mounted) = first.into_parts();
    if !negotiated.has(init::HAS_RESEND) {
        return;
    }
    let path = dir.path().to_owned();
    let caller =
        thread::spawn(move || fs::metadata(path.join("x")).expect_err("no such file").raw_os_error());
    // The first server reads the request and dies.
    let mut room = vec![0; 1 << 21];
    let len = rustix::io::read(&device, &mut room).expect("a request");
    assert!(len > 40);
    let m = Mount::serve(Connected::attach(device, negotiated, mounted), dir, turn);
    assert_eq!(m.notify(Notice::Resend), Outcome::Done);
    assert_eq!(caller.join().expect("caller"), Some(libc::ENOENT));
    assert_eq!(m.fs.count(|s| s.resent), 1);
}

#[test]
fn nothing_is_mounted_on_a_file_or_on_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f");
    fs::write(&file, b"").expect("write");
    for (path, why) in [
        (file, "Not a directory (os error 20)"),
        (dir.path().join("x"), "No such file or directory (os error 2)"),
    ] {
        let fault =
            Connected::mount(&MountOptions::new(&path, "memfs"), &Wanted::default()).expect_err("refused");
        let text = format!(
            "cannot mount on {}\n  why:  {why}\n  code: E1011 (brindle explain E1011)",
            path.display()
        );
        assert_eq!(fault.to_string(), text);
    }
}

#[test]
fn read_ahead_is_raised() {
    let m = Mount::new();
    let kib = fs::read_to_string(format!(
        "/sys/class/bdi/0:{}/read_ahead_kb",
        m.session.connection().expect("ours")
    ));
    assert_eq!(kib.expect("sysfs").trim(), "16384");
    let _: &Arc<MemFs> = &m.fs;
}
