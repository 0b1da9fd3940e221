//! Locks between clients (promises 17 and 18).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::area::Area;
use brindle_tests::child::{Child, Ending, no_copies};
use brindle_tests::fails;
use brindle_tests::locks::{Kind, Owner, conflict, lock, locker, open, try_lock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::both_ways;

/// Long enough for a lock that should be given to be given.
const SOON: Duration = Duration::from_secs(20);
/// Long enough to see that nothing happens.
const A_WHILE: Duration = Duration::from_millis(150);

#[test]
fn flock_and_open_file_locks_hold_across_clients() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let _guard = no_copies();
        fs::write(&there, "x").unwrap();
        let (a, b) = (open(&there).unwrap(), open(&here).unwrap());
        flock(&a, FlockOperation::LockShared).unwrap();
        flock(&b, FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(fails(flock(&b, FlockOperation::NonBlockingLockExclusive)), Errno::AGAIN);
        flock(&a, FlockOperation::Unlock).unwrap();
        flock(&b, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(fails(flock(&a, FlockOperation::NonBlockingLockShared)), Errno::AGAIN);
        drop(b);
        flock(&a, FlockOperation::NonBlockingLockExclusive).unwrap();

        let b = open(&here).unwrap();
        try_lock(&a, Owner::OpenFile, Kind::Write, 100, 50).unwrap();
        try_lock(&b, Owner::OpenFile, Kind::Write, 150, 50).unwrap();
        assert_eq!(fails(try_lock(&b, Owner::OpenFile, Kind::Read, 149, 1)), Errno::AGAIN);
        let held = conflict(&b, Owner::OpenFile, Kind::Read, 0, 150).unwrap().unwrap();
        assert_eq!((held.kind, held.start, held.len, held.pid), (Kind::Write, 100, 50, -1));
        drop(a);
        try_lock(&b, Owner::OpenFile, Kind::Read, 0, 0).unwrap();
    }
}

/// A caller that asks after close has returned finds the lock free, on the same mount and on another one.
#[test]
fn a_lock_is_gone_when_close_has_returned() {
    const ROUNDS: usize = 150;
    let area = Area::on_two_mounts();
    let path = area.file("closed", "x");
    for looks in [path.clone(), area.other("closed")] {
        let _guard = no_copies();
        for round in 0..ROUNDS {
            let (a, b) = (open(&path).unwrap(), open(&looks).unwrap());
            flock(&a, FlockOperation::LockExclusive).unwrap();
            try_lock(&a, Owner::OpenFile, Kind::Write, 0, 10).unwrap();
            drop(a);
            let got = flock(&b, FlockOperation::NonBlockingLockExclusive);
            assert!(got.is_ok(), "round {round}: {got:?} through {}", looks.display());
            assert_eq!(conflict(&b, Owner::OpenFile, Kind::Write, 0, 10).unwrap(), None, "round {round}");
            try_lock(&b, Owner::OpenFile, Kind::Write, 0, 10).unwrap();
        }
    }
}

#[test]
fn process_locks_hold_across_clients_and_go_with_their_process() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let child = locker(&there, |f| try_lock(f, Owner::Process, Kind::Write, 10, 10), |_| Ok(()));
        let file = open(&here).unwrap();
        try_lock(&file, Owner::Process, Kind::Write, 0, 10).unwrap();
        assert_eq!(fails(try_lock(&file, Owner::Process, Kind::Read, 15, 1)), Errno::AGAIN);
        let held = conflict(&file, Owner::Process, Kind::Read, 12, 1).unwrap().unwrap();
        assert_eq!((held.kind, held.start, held.len), (Kind::Write, 10, 10));
        child.signal(libc::SIGKILL);
        assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
        let since = Instant::now();
        while let Err(e) = try_lock(&file, Owner::Process, Kind::Write, 0, 0) {
            assert_eq!(e.raw_os_error(), Some(libc::EAGAIN));
            assert!(since.elapsed() < SOON, "the lock of a killed process stays");
        }
    }
}

#[test]
fn a_close_at_the_other_client_drops_its_locks_only() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let same = there.clone();
        let mut child = locker(
            &there,
            |f| try_lock(f, Owner::Process, Kind::Write, 0, 10),
            move |_| open(&same).map(drop),
        );
        let file = open(&here).unwrap();
        try_lock(&file, Owner::Process, Kind::Write, 20, 10).unwrap();
        assert_eq!(fails(try_lock(&file, Owner::Process, Kind::Write, 5, 1)), Errno::AGAIN);
        child.say(1);
        assert_eq!(child.hear(), 2);
        try_lock(&file, Owner::Process, Kind::Write, 0, 10).unwrap();
        child.say(1);
        child.ok();
    }
}

#[test]
fn a_waiter_at_the_other_client_gets_the_lock() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let waits: [fn(&File) -> io::Result<()>; 3] = [
            |file| lock(file, Owner::Process, Kind::Write, 0, 0),
            |file| lock(file, Owner::OpenFile, Kind::Read, 3, 5),
            |file| Ok(flock(file, FlockOperation::LockExclusive)?),
        ];
        for wait in waits {
            let file = open(&here).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            try_lock(&file, Owner::OpenFile, Kind::Write, 0, 0).unwrap();
            let mut child = locker(&there, |_| Ok(()), wait);
            child.say(1);
            assert!(!child.speaks_within(A_WHILE), "the lock is held");
            drop(file);
            assert!(child.speaks_within(SOON), "the lock is free");
            assert_eq!(child.hear(), 2);
            child.say(1);
            child.ok();
        }
    }
}

#[test]
fn a_ring_over_two_clients_is_a_deadlock() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let member = |path: &Path, own: i64, wanted: i64| {
            locker(
                path,
                move |f| try_lock(f, Owner::Process, Kind::Write, own, 1),
                move |f| lock(f, Owner::Process, Kind::Write, wanted, 1),
            )
        };
        let (mut first, mut second) = (member(&there, 0, 1), member(&here, 1, 0));
        first.say(1);
        assert!(!first.speaks_within(A_WHILE), "it waits");
        second.say(1);
        assert_eq!(second.end(), Ending::Errno(libc::EDEADLK));
        assert_eq!(first.hear(), 2);
        first.say(1);
        first.ok();
    }
}

/// Processes on both clients add to a number in a file, each time under a lock: locks and data together.
fn count_under(take: fn(&File) -> io::Result<()>, give: fn(&File) -> io::Result<()>) {
    const EACH: u64 = 50;
    let area = Area::on_two_mounts();
    fs::write(area.at("f"), 0u64.to_le_bytes()).unwrap();
    let add = |n| {
        let path = if n % 2 == 0 { area.at("f") } else { area.other("f") };
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
    let children: Vec<Child> = (0..6).map(add).collect();
    children.into_iter().for_each(Child::ok);
    assert_eq!(fs::read(area.other("f")).unwrap(), (6 * EACH).to_le_bytes());
}

#[test]
fn counting_under_process_locks() {
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
