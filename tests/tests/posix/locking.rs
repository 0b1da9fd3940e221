//! Locks: fcntl locks of processes and of open files, flock, waiting, deadlocks, and what ends a lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brindle_tests::area::Area;
use brindle_tests::child::{Child, Ending, interruptible, no_copies};
use brindle_tests::fails;
use brindle_tests::locks::{Held, Kind, Owner, conflict, lock, locker, open, try_lock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Long enough for a lock that should be given to be given.
const SOON: Duration = Duration::from_secs(20);
/// Long enough to see that nothing happens.
const A_WHILE: Duration = Duration::from_millis(150);

/// A process that holds this lock until it is told to end.
fn holder(path: &Path, owner: Owner, kind: Kind, start: i64, len: i64) -> Child {
    locker(path, move |file| try_lock(file, owner, kind, start, len), |_| Ok(()))
}

fn finish(mut child: Child) {
    child.say(1);
    assert_eq!(child.hear(), 2);
    child.say(1);
    child.ok();
}

#[test]
fn ranges_conflict_where_they_meet() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    let child = holder(&path, Owner::Process, Kind::Write, 10, 10);
    for (start, len, free) in
        [(0, 10, true), (20, 5, true), (0, 11, false), (19, 1, false), (0, 0, false), (20, 0, true)]
    {
        let got = try_lock(&file, Owner::Process, Kind::Write, start, len);
        if free {
            got.unwrap();
        } else {
            assert_eq!(fails(got), Errno::AGAIN, "{start}+{len}");
            let held = Held { kind: Kind::Write, start: 10, len: 10, pid: child.pid() };
            assert_eq!(conflict(&file, Owner::Process, Kind::Read, start, len).unwrap(), Some(held));
        }
    }
    assert_eq!(
        conflict(&file, Owner::Process, Kind::Write, 30, 5).unwrap(),
        None,
        "one's own are no conflict"
    );
    finish(child);
    try_lock(&file, Owner::Process, Kind::Write, 0, 0).unwrap();
}

#[test]
fn readers_share_and_locks_change_their_kind() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    let reader = holder(&path, Owner::Process, Kind::Read, 0, 100);
    try_lock(&file, Owner::Process, Kind::Read, 50, 100).unwrap();
    assert_eq!(fails(try_lock(&file, Owner::Process, Kind::Write, 50, 100)), Errno::AGAIN);
    finish(reader);
    try_lock(&file, Owner::Process, Kind::Write, 50, 100).unwrap();
    let mut other = locker(
        &path,
        |_| Ok(()),
        |file| {
            for (start, free) in [(49, true), (50, false), (99, false), (100, true), (149, true), (150, true)]
            {
                let kind = if start == 149 { Kind::Read } else { Kind::Write };
                if try_lock(file, Owner::Process, kind, start, 1).is_ok() != free {
                    return Err(io::Error::from_raw_os_error(150 + start as i32 - 49));
                }
            }
            Ok(())
        },
    );
    // A hole in the middle, and one part turned into a shared lock.
    try_lock(&file, Owner::Process, Kind::Unlock, 100, 20).unwrap();
    try_lock(&file, Owner::Process, Kind::Read, 120, 30).unwrap();
    other.say(1);
    assert_eq!(other.hear(), 2);
    other.say(1);
    other.ok();
}

#[test]
fn closing_any_descriptor_drops_the_locks_of_the_process() {
    let area = Area::new();
    let path = area.file("f", "x");
    let same = path.clone();
    let mut child = locker(
        &path,
        |file| try_lock(file, Owner::Process, Kind::Write, 0, 10),
        move |_| open(&same).map(drop),
    );
    let file = open(&path).unwrap();
    assert_eq!(fails(try_lock(&file, Owner::Process, Kind::Write, 0, 1)), Errno::AGAIN);
    child.say(1);
    assert_eq!(child.hear(), 2);
    try_lock(&file, Owner::Process, Kind::Write, 0, 10).unwrap();
    child.say(1);
    child.ok();
}

#[test]
fn the_end_of_a_process_ends_its_locks() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    for owner in [Owner::Process, Owner::OpenFile] {
        let child = holder(&path, owner, Kind::Write, 0, 0);
        assert_eq!(fails(try_lock(&file, owner, Kind::Read, 5, 1)), Errno::AGAIN);
        child.signal(libc::SIGKILL);
        assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
        let since = Instant::now();
        while let Err(e) = try_lock(&file, owner, Kind::Read, 5, 1) {
            assert_eq!(e.raw_os_error(), Some(libc::EAGAIN));
            assert!(since.elapsed() < SOON, "the lock of a killed process stays");
        }
        try_lock(&file, owner, Kind::Unlock, 0, 0).unwrap();
    }
}

#[test]
fn a_child_does_not_inherit_locks_of_its_parent() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    try_lock(&file, Owner::Process, Kind::Write, 0, 10).unwrap();
    let parent = std::process::id() as i32;
    let inside = path.clone();
    Child::start(move |_| {
        let file = open(&inside)?;
        let held = conflict(&file, Owner::Process, Kind::Write, 0, 1)?;
        let wanted = Some(Held { kind: Kind::Write, start: 0, len: 10, pid: parent });
        if held == wanted { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPROTO)) }
    })
    .ok();
}

#[test]
fn waiting_ends_when_the_lock_is_free() {
    let area = Area::new();
    let path = area.file("f", "x");
    for owner in [Owner::Process, Owner::OpenFile] {
        let file = open(&path).unwrap();
        try_lock(&file, owner, Kind::Write, 0, 10).unwrap();
        let mut child = locker(&path, |_| Ok(()), move |file| lock(file, owner, Kind::Write, 5, 10));
        child.say(1);
        assert!(!child.speaks_within(A_WHILE), "the lock is held");
        try_lock(&file, owner, Kind::Unlock, 0, 5).unwrap();
        assert!(!child.speaks_within(A_WHILE), "a part of it is still held");
        try_lock(&file, owner, Kind::Unlock, 5, 5).unwrap();
        assert!(child.speaks_within(SOON), "the lock is free");
        assert_eq!(child.hear(), 2);
        child.say(1);
        child.ok();
    }
}

#[test]
fn a_signal_ends_the_wait() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    try_lock(&file, Owner::Process, Kind::Write, 0, 0).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let waits: [fn(&File) -> io::Result<()>; 3] = [
        |file| lock(file, Owner::Process, Kind::Write, 0, 1),
        |file| lock(file, Owner::OpenFile, Kind::Read, 0, 1),
        |file| Ok(flock(file, FlockOperation::LockShared)?),
    ];
    for wait in waits {
        let mut child = locker(
            &path,
            |_| {
                interruptible(libc::SIGUSR1);
                Ok(())
            },
            move |file| match wait(file) {
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => Ok(()),
                Err(e) => Err(e),
                Ok(()) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
            },
        );
        child.say(1);
        // A signal before the wait began is lost, so one is sent again and again.
        let since = Instant::now();
        while !child.speaks_within(Duration::from_millis(30)) {
            assert!(since.elapsed() < SOON, "the wait goes on in spite of signals");
            child.signal(libc::SIGUSR1);
        }
        assert_eq!(child.hear(), 2);
        child.say(1);
        child.ok();
    }
    // The ended waits leave no locks behind.
    try_lock(&file, Owner::Process, Kind::Unlock, 0, 0).unwrap();
    let other = open(&path).unwrap();
    try_lock(&other, Owner::OpenFile, Kind::Write, 0, 0).unwrap();
}

#[test]
fn a_killed_waiter_goes_away() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    try_lock(&file, Owner::Process, Kind::Write, 0, 0).unwrap();
    let mut child = locker(&path, |_| Ok(()), |file| lock(file, Owner::Process, Kind::Write, 0, 0));
    child.say(1);
    assert!(!child.speaks_within(A_WHILE));
    child.signal(libc::SIGKILL);
    assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
    try_lock(&file, Owner::Process, Kind::Unlock, 0, 0).unwrap();
    finish(holder(&path, Owner::Process, Kind::Write, 0, 0));
}

#[test]
fn a_ring_of_waiters_is_a_deadlock() {
    let area = Area::new();
    let path = area.file("f", "x");
    for size in [2, 3] {
        // Each holds its own byte and then waits for the next one's; the last to wait is told.
        let members: Vec<Child> = (0..size)
            .map(|n| {
                locker(
                    &path,
                    move |file| try_lock(file, Owner::Process, Kind::Write, n, 1),
                    move |file| lock(file, Owner::Process, Kind::Write, (n + 1) % size, 1),
                )
            })
            .collect();
        let mut members = members;
        let last = members.len() - 1;
        for member in &mut members[..last] {
            member.say(1);
            assert!(!member.speaks_within(A_WHILE), "it waits");
        }
        members[last].say(1);
        let closer = members.pop().unwrap();
        assert_eq!(closer.end(), Ending::Errno(libc::EDEADLK), "a ring of {size}");
        // With the last one gone, the others get their locks one after the other.
        for mut member in members.into_iter().rev() {
            assert_eq!(member.hear(), 2);
            member.say(1);
            member.ok();
        }
    }
}

#[test]
fn locks_of_open_files_belong_to_the_open_file() {
    let _guard = no_copies();
    let area = Area::new();
    let path = area.file("f", "x");
    let (a, b) = (open(&path).unwrap(), open(&path).unwrap());
    try_lock(&a, Owner::OpenFile, Kind::Write, 0, 10).unwrap();
    assert_eq!(fails(try_lock(&b, Owner::OpenFile, Kind::Read, 9, 1)), Errno::AGAIN);
    assert_eq!(fails(try_lock(&b, Owner::Process, Kind::Read, 9, 1)), Errno::AGAIN);
    let held = Held { kind: Kind::Write, start: 0, len: 10, pid: -1 };
    assert_eq!(conflict(&b, Owner::OpenFile, Kind::Read, 0, 0).unwrap(), Some(held));
    // F_GETLK on FUSE shows the process that set it: the kernel does not tell the server whose lock it is.
    let seen = conflict(&b, Owner::Process, Kind::Read, 0, 0).unwrap().unwrap();
    assert_eq!((seen.kind, seen.start, seen.len), (held.kind, held.start, held.len));
    assert!(seen.pid == -1 || seen.pid == std::process::id() as i32, "{}", seen.pid);
    drop(open(&path).unwrap());
    assert_eq!(
        fails(try_lock(&b, Owner::OpenFile, Kind::Read, 0, 1)),
        Errno::AGAIN,
        "another close drops nothing"
    );
    let dup = a.try_clone().unwrap();
    drop(a);
    assert_eq!(
        fails(try_lock(&b, Owner::OpenFile, Kind::Read, 0, 1)),
        Errno::AGAIN,
        "the duplicate holds it"
    );
    drop(dup);
    try_lock(&b, Owner::OpenFile, Kind::Write, 0, 0).unwrap();
}

#[test]
fn flock_is_of_the_open_file_and_apart_from_fcntl() {
    let _guard = no_copies();
    let area = Area::new();
    let path = area.file("f", "x");
    let (a, b) = (open(&path).unwrap(), open(&path).unwrap());
    let try_flock = |file: &File, exclusive: bool| {
        let how = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        flock(file, how)
    };
    try_flock(&a, false).unwrap();
    try_flock(&b, false).unwrap();
    assert_eq!(fails(try_flock(&a, true)), Errno::AGAIN);
    flock(&b, FlockOperation::Unlock).unwrap();
    try_flock(&a, true).unwrap();
    try_flock(&a, true).unwrap();
    assert_eq!(fails(try_flock(&b, false)), Errno::AGAIN);
    try_lock(&b, Owner::OpenFile, Kind::Write, 0, 0).unwrap();
    drop(File::open(&path).unwrap());
    let dup = a.try_clone().unwrap();
    drop(a);
    assert_eq!(fails(try_flock(&b, false)), Errno::AGAIN, "the duplicate holds it");
    flock(&dup, FlockOperation::Unlock).unwrap();
    try_flock(&b, true).unwrap();
    // A directory and a read-only descriptor can be locked too.
    let dir = File::open(area.root()).unwrap();
    try_flock(&dir, true).unwrap();
    assert_eq!(fails(try_flock(&File::open(area.root()).unwrap(), false)), Errno::AGAIN);
}

#[test]
fn waiting_for_flock() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut child = locker(&path, |_| Ok(()), |file| Ok(flock(file, FlockOperation::LockShared)?));
    child.say(1);
    assert!(!child.speaks_within(A_WHILE));
    drop(file);
    assert_eq!(child.hear(), 2);
    child.signal(libc::SIGKILL);
    assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
    flock(open(&path).unwrap(), FlockOperation::LockExclusive).unwrap();
}

#[test]
fn odd_ranges_and_wrong_descriptors() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = open(&path).unwrap();
    let process = Owner::Process;
    try_lock(&file, process, Kind::Write, i64::MAX - 1, 1).unwrap();
    try_lock(&file, process, Kind::Write, 100, -10).unwrap();
    let child = locker(
        &path,
        |_| Ok(()),
        move |file| {
            let held = conflict(file, process, Kind::Write, 0, 1000)?;
            let wanted = held.is_some_and(|h| (h.start, h.len) == (90, 10));
            let far = conflict(file, process, Kind::Read, 5000, 0)?;
            let wanted = wanted && far.is_some_and(|h| h.start == i64::MAX - 1);
            if wanted { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPROTO)) }
        },
    );
    finish(child);
    assert_eq!(fails(try_lock(&file, process, Kind::Write, -1, 10)), Errno::INVAL);
    assert_eq!(fails(try_lock(&file, process, Kind::Write, 5, -10)), Errno::INVAL);
    assert_eq!(fails(try_lock(&File::open(&path).unwrap(), process, Kind::Write, 0, 1)), Errno::BADF);
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(fails(try_lock(&writer, process, Kind::Read, 0, 1)), Errno::BADF);
}

/// Eight processes add to a number in a file, each time under a lock.
fn count_under(take: fn(&File) -> io::Result<()>, give: fn(&File) -> io::Result<()>) {
    const EACH: u64 = 50;
    let area = Area::new();
    let path: PathBuf = area.file("f", 0u64.to_le_bytes());
    let add = |_| {
        let path = path.clone();
        Child::start(move |_| {
            let file = open(&path)?;
            for _ in 0..EACH {
                take(&file)?;
                let mut number = [0; 8];
                file.read_exact_at(&mut number, 0)?;
                file.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0)?;
                give(&file)?;
            }
            Ok(())
        })
    };
    let children: Vec<Child> = (0..8).map(add).collect();
    children.into_iter().for_each(Child::ok);
    assert_eq!(fs::read(&path).unwrap(), (8 * EACH).to_le_bytes());
}

#[test]
fn counting_under_fcntl_locks() {
    count_under(
        |file| lock(file, Owner::Process, Kind::Write, 0, 8),
        |file| try_lock(file, Owner::Process, Kind::Unlock, 0, 8),
    );
}

#[test]
fn counting_under_open_file_locks() {
    count_under(
        |file| lock(file, Owner::OpenFile, Kind::Write, 0, 0),
        |file| try_lock(file, Owner::OpenFile, Kind::Unlock, 0, 0),
    );
}

#[test]
fn counting_under_flock() {
    count_under(
        |file| Ok(flock(file, FlockOperation::LockExclusive)?),
        |file| Ok(flock(file, FlockOperation::Unlock)?),
    );
}
