//! Write-behind: small writes travel together, all readers see them at once all the same, and acknowledged bytes find space.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, Process};
use brindle_tests::maps::Map;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::dice::seed;
use crate::leases::requests;
use crate::stripes::{self, BLOCK};

/// Small writes of one file.
const WRITES: u64 = 1000;
/// The lease of a session.
const LEASE: Duration = Duration::from_secs(6);
/// Slack for real processes.
const SLACK: Duration = Duration::from_secs(10);
/// Longest time that a process is stopped.
const STOPPED_MAX: Duration = Duration::from_secs(60);
/// Interval at which a test checks whether an action has begun.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval at which bytes are sent that have waited too long: one request more for each.
const SENT_EVERY_MS: u128 = 200;

/// A process that does not run until this is dropped, or for too long: a failed test would wait for it for ever.
struct Stopped {
    _running_again: mpsc::Sender<()>,
}

impl Stopped {
    fn stop(process: &Process) -> Stopped {
        let pid = process.pid.and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, Signal::STOP).unwrap();
        let (running_again, dropped) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            // Ends when the sender is dropped, or when the time is up.
            let _ = dropped.recv_timeout(STOPPED_MAX);
            // The process may have ended.
            let _ = kill_process(pid, Signal::CONT);
        });
        Stopped { _running_again: running_again }
    }
}

fn one_stripe(cluster: &Cluster, name: &str, ost: &str) -> std::path::PathBuf {
    let path = cluster.a().join(name);
    cluster.lfs(&["setstripe", "-c", "1", "-i", ost, &path.display().to_string()]);
    path
}

fn write_blocks(file: &File, id: u64, blocks: std::ops::Range<u64>) -> io::Result<()> {
    for index in blocks {
        file.write_all_at(&stripes::block(id, index, 1), index * BLOCK as u64)?;
    }
    Ok(())
}

/// A file on the first OST with 64 blocks, all of them durable; what is written next waits in the mount.
fn begun(cluster: &Cluster, name: &str) -> File {
    let path = one_stripe(cluster, name, "0");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    write_blocks(&file, 1, 0..64).unwrap();
    file.sync_all().unwrap();
    file
}

/// Waits until a thread sleeps in a system call.
pub fn wait_until_in_call(tid: i32, number: libc::c_long) {
    let begun = Instant::now();
    let is_there = || {
        let text = std::fs::read_to_string(format!("/proc/{tid}/syscall"));
        text.is_ok_and(|text| text.split(' ').next() == Some(&number.to_string()))
    };
    while !is_there() {
        assert!(begun.elapsed() < SLACK, "thread {tid} does not come to wait in call {number}");
        std::thread::sleep(LOOK_EVERY);
    }
}

fn check(path: &Path, id: u64, blocks: u64) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, blocks * BLOCK as u64, "{}", path.display());
    for (index, block) in (0..blocks).zip(bytes.chunks(BLOCK)) {
        assert_eq!(stripes::generation_of(block, id, index), Ok(1), "{}", path.display());
    }
}

#[test]
fn small_writes_travel_together_and_are_seen_at_once() {
    seed("behind");
    let options = Options { osts: 2, ..Options::default() };
    let cluster = Cluster::up("behind", &options);
    let path = one_stripe(&cluster, "small", "0");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // The first goes to the MDT, the next ones move the file to its OST, and bring a grant.
    write_blocks(&file, 1, 0..8).unwrap();
    file.sync_all().unwrap();
    let (before, since) = (requests(&cluster, "write"), Instant::now());
    write_blocks(&file, 1, 8..WRITES).unwrap();
    file.sync_all().unwrap();
    let sent = requests(&cluster, "write") - before;
    let most =
        (WRITES * BLOCK as u64).div_ceil(1 << 20) + 2 + (since.elapsed().as_millis() / SENT_EVERY_MS) as u64;
    assert!(sent <= most, "{WRITES} writes of {BLOCK} bytes were {sent} requests, and may be {most}");

    // Buffered bytes are part of the file for all clients.
    let end = WRITES * BLOCK as u64;
    file.write_all_at(b"one", end).unwrap();
    assert_eq!(file.metadata().unwrap().size(), end + 3);
    file.write_all_at(b"two", end + 3).unwrap();
    assert_eq!(std::fs::metadata(cluster.b().join("small")).unwrap().size(), end + 6);
    let mut own = OpenOptions::new().read(true).open(&path).unwrap();
    let mut tail = [0; 6];
    own.read_exact_at(&mut tail, end).unwrap();
    assert_eq!(&tail, b"onetwo");
    drop(own);
    file.write_all_at(b"TWO", end + 3).unwrap();
    own = OpenOptions::new().read(true).open(cluster.b().join("small")).unwrap();
    own.read_exact_at(&mut tail, end).unwrap();
    assert_eq!(&tail, b"oneTWO");
    // The second mount has the file open now: no write is buffered any more.
    file.write_all_at(b"ONE", end).unwrap();
    own.read_exact_at(&mut tail, end).unwrap();
    assert_eq!(&tail, b"ONETWO");
    drop((own, file));

    // A truncate, an append and a rename come after what was written before them.
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.set_len(8 * BLOCK as u64).unwrap();
    file.write_all(&stripes::block(1, 8, 1)).unwrap();
    file.write_all(&stripes::block(1, 9, 1)).unwrap();
    std::fs::rename(&path, cluster.a().join("renamed")).unwrap();
    check(&cluster.b().join("renamed"), 1, 10);
    drop(file);
    cluster.assert_sound();
}

#[test]
fn direct_writes_are_acknowledged_by_an_ost() {
    seed("behind-direct");
    let cluster = Cluster::up("behind-direct", &Options { osts: 1, ..Options::default() });
    let path = one_stripe(&cluster, "direct", "0");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    write_blocks(&file, 1, 0..8).unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let before = requests(&cluster, "write");
    write_blocks(&direct, 1, 8..48).unwrap();
    assert!(requests(&cluster, "write") - before >= 40, "each is a request");
    drop((direct, file));
    check(&cluster.b().join("direct"), 1, 48);
    cluster.assert_sound();
}

#[test]
fn a_recall_waits_for_an_ost_that_is_away_and_costs_nobody_the_session() {
    seed("behind-away");
    let cluster = Cluster::up("behind-away", &Options { osts: 2, ..Options::default() });
    let file = begun(&cluster, "away");
    let other = File::create(cluster.a().join("other")).unwrap();
    other.write_all_at(b"kept", 0).unwrap();

    let stopped = Stopped::stop(&cluster.process("ost0"));
    write_blocks(&file, 1, 64..96).unwrap();
    let (tell, told) = mpsc::channel();
    let theirs = cluster.b().join("away");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = File::open(&theirs).and_then(|mut file| file.read_to_end(&mut bytes));
        // After a failed test nobody listens.
        let _ = tell.send(read.map(|_| bytes));
    });
    let early = told.recv_timeout(LEASE + Duration::from_secs(3));
    assert!(
        early.is_err(),
        "bytes were read that no server had: {:?}",
        early.map(|read| read.map(|b| b.len()))
    );
    drop(stopped);
    let bytes = told.recv_timeout(SLACK).expect("the OST is back").unwrap();
    assert_eq!(bytes.len(), 96 * BLOCK);
    for (index, block) in (0..96).zip(bytes.chunks(BLOCK)) {
        assert_eq!(stripes::generation_of(block, 1, index), Ok(1));
    }
    reader.join().unwrap();
    // The writer's session has outlived its lease several times over what it could not send.
    file.sync_all().expect("nothing was lost");
    other.write_all_at(b"still", 4).and_then(|()| other.sync_all()).expect("the session is alive");
    drop((file, other));
    cluster.assert_sound();
}

/// Bytes changed through a mapping are written back before their page can go.
#[test]
fn a_recall_waits_for_pages_of_a_mapping_whose_ost_is_away_and_costs_nobody_the_session() {
    seed("behind-mapped");
    let cluster = Cluster::up("behind-mapped", &Options { osts: 2, ..Options::default() });
    drop(begun(&cluster, "mapped"));
    let file = OpenOptions::new().read(true).write(true).open(cluster.a().join("mapped")).unwrap();
    let map = Map::shared(&file, BLOCK).unwrap();
    map.read(0, 1);
    let other = File::create(cluster.a().join("other")).unwrap();
    other.write_all_at(b"kept", 0).unwrap();

    let stopped = Stopped::stop(&cluster.process("ost0"));
    map.write(0, b"changed");
    let (tell, told) = mpsc::channel();
    let theirs = cluster.b().join("mapped");
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 7];
        let read = File::open(&theirs).and_then(|file| file.read_exact_at(&mut bytes, 0));
        // After a failed test nobody listens.
        let _ = tell.send(read.map(|()| bytes));
    });
    let early = told.recv_timeout(LEASE + Duration::from_secs(3));
    assert!(early.is_err(), "bytes were read that no server had: {early:?}");
    drop(stopped);
    assert_eq!(&told.recv_timeout(SLACK).expect("the OST is back").unwrap(), b"changed");
    reader.join().unwrap();
    map.sync(libc::MS_SYNC).expect("nothing was lost");
    other.write_all_at(b"still", 4).and_then(|()| other.sync_all()).expect("the session is alive");
    drop((map, file, other));
    cluster.assert_sound();
}

/// The file is open for writing on both mounts, so no right is recalled. The second mount empties the file while a page of the
/// first is on its way.
#[test]
fn who_empties_a_file_waits_for_pages_of_a_mapping_whose_ost_is_away_and_costs_nobody_the_session() {
    seed("behind-emptied");
    let cluster = Cluster::up("behind-emptied", &Options { osts: 1, ..Options::default() });
    drop(begun(&cluster, "mapped"));
    let open = |mount: &Path| OpenOptions::new().read(true).write(true).open(mount.join("mapped")).unwrap();
    let (file, theirs) = (open(cluster.a()), open(cluster.b()));
    let map = Map::shared(&file, BLOCK).unwrap();
    map.read(0, 1);
    let other = File::create(cluster.a().join("other")).unwrap();
    other.write_all_at(b"kept", 0).unwrap();

    let stopped = Stopped::stop(&cluster.process("ost0"));
    map.write(0, b"changed");
    let (tell, told) = mpsc::channel();
    let syncing = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        map.sync(libc::MS_SYNC)
    });
    wait_until_in_call(told.recv().unwrap(), libc::SYS_msync);
    let (tell, told) = mpsc::channel();
    let emptying = std::thread::spawn(move || {
        // After a failed test nobody listens.
        let _ = tell.send(theirs.set_len(0));
    });
    let early = told.recv_timeout(LEASE + Duration::from_secs(3));
    assert!(early.is_err(), "{early:?} while another client may still show a page of before");
    drop(stopped);
    told.recv_timeout(SLACK).expect("the OST is back").unwrap();
    emptying.join().unwrap();
    syncing.join().unwrap().expect("its session is alive");
    other.write_all_at(b"still", 4).and_then(|()| other.sync_all()).expect("the session is alive");
    drop((file, other));
    cluster.assert_sound();
}

/// Starting a program closes the descriptors that it is not to have, in the new process, under locks of the kernel for
/// which ps(1) waits. The process that wrote waits with its own close.
#[test]
fn programs_start_while_written_bytes_wait_for_an_ost_that_is_away() {
    seed("behind-exec");
    let cluster = Cluster::up("behind-exec", &Options { osts: 1, ..Options::default() });
    let file = begun(&cluster, "log");

    let stopped = Stopped::stop(&cluster.process("ost0"));
    write_blocks(&file, 1, 64..96).unwrap();
    let (tell, told) = mpsc::channel();
    let copy = file.try_clone().unwrap();
    let other = std::thread::spawn(move || {
        // After a failed test nobody listens.
        let _ = tell.send(Command::new("true").status().map(drop));
        drop(copy);
        let _ = tell.send(Ok(()));
    });
    let started = told.recv_timeout(SLACK);
    let closed = told.recv_timeout(Duration::from_secs(1));
    drop(stopped);
    started.expect("it waits for the OST").unwrap();
    assert!(closed.is_err(), "a close of the process that wrote has returned before an OST had its bytes");
    told.recv_timeout(SLACK).expect("the OST is back").unwrap();
    other.join().unwrap();
    drop(file);
    check(&cluster.b().join("log"), 1, 96);
    cluster.assert_sound();
}

/// A foreign program takes every block of the file systems below the OSTs, after bytes were acknowledged and before they are
/// sent. The acknowledged bytes have their space: it was allocated when it was promised.
#[test]
fn what_was_acknowledged_finds_room_where_others_fill_the_disk_below() {
    const ACKNOWLEDGED: u64 = 64;
    seed("behind-others");
    let options = Options { osts: 2, mounts: 1, ost_size: Some("128MiB"), ..Options::default() };
    let cluster = Cluster::up("behind-others", &options);
    let path = cluster.a().join("f");
    let file = File::create(&path).unwrap();
    // The grant comes back with these writes.
    for round in 0..8 {
        write_blocks(&file, 1, round * 8..(round + 1) * 8).unwrap();
        file.sync_all().unwrap();
    }
    let osts = ["ost0", "ost1"].map(|name| cluster.process(name));
    let signal = |signal| {
        for ost in &osts {
            kill_process(ost.pid.and_then(Pid::from_raw).unwrap(), signal).unwrap();
        }
    };
    signal(Signal::STOP);
    write_blocks(&file, 1, 64..64 + ACKNOWLEDGED).unwrap();
    for ost in &osts {
        take_every_block(&ost.data.join("somebody-elses"));
    }
    signal(Signal::CONT);
    file.sync_all().expect("what was acknowledged finds its room");
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, (64 + ACKNOWLEDGED) * BLOCK as u64);
    for (index, block) in (0..).zip(bytes.chunks(BLOCK)) {
        assert_eq!(stripes::generation_of(block, 1, index), Ok(1), "block {index}");
    }
    for ost in &osts {
        std::fs::remove_file(ost.data.join("somebody-elses")).unwrap();
    }
    cluster.assert_sound();
}

fn take_every_block(path: &std::path::Path) {
    let file = File::create(path).unwrap();
    let mut len = 0;
    let mut step = 16 << 20;
    while step >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), len, step) {
            Ok(()) => len += step,
            Err(Errno::NOSPC) => step /= 2,
            Err(e) => panic!("{}: {e}", path.display()),
        }
    }
    file.sync_all().unwrap();
}

#[test]
fn what_was_acknowledged_finds_room_on_osts_that_two_mounts_fill() {
    seed("behind-full");
    let options = Options { osts: 2, ost_size: Some("96MiB"), ..Options::default() };
    let cluster = Cluster::up("behind-full", &options);
    let mounts = [cluster.a().to_owned(), cluster.b().to_owned()];
    let filling = |(id, mount): (u64, &std::path::PathBuf)| {
        let path = mount.join(format!("fill{id}"));
        std::thread::spawn(move || {
            let file = File::create(&path).unwrap();
            let mut done = 0;
            let full = loop {
                match write_blocks(&file, id, done..done + 1) {
                    Ok(()) => done += 1,
                    Err(e) => break e,
                }
            };
            assert_eq!(full.raw_os_error(), Some(libc::ENOSPC), "{full}");
            file.sync_all().unwrap_or_else(|e| panic!("{done} blocks were acknowledged: {e}"));
            done
        })
    };
    let writers: Vec<_> = (1..).zip(&mounts).map(filling).collect();
    let written: Vec<u64> = writers.into_iter().map(|w| w.join().unwrap()).collect();
    assert!(written.iter().sum::<u64>() * BLOCK as u64 > 64 << 20, "only {written:?} blocks fitted");
    for (id, done) in (1..).zip(&written) {
        // The last write may have been made in part.
        let path = cluster.outside().join(format!("fill{id}"));
        let copied =
            Command::new("cp").arg(mounts[2 - id as usize].join(format!("fill{id}"))).arg(&path).status();
        assert!(copied.unwrap().success());
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() as u64 >= done * BLOCK as u64);
        for (index, block) in (0..*done).zip(bytes.chunks(BLOCK)) {
            assert_eq!(stripes::generation_of(block, id, index), Ok(1), "fill{id}");
        }
        std::fs::remove_file(path).unwrap();
    }
    mounts.iter().zip(1..).for_each(|(m, id)| std::fs::remove_file(m.join(format!("fill{id}"))).unwrap());
    cluster.assert_sound();
}
