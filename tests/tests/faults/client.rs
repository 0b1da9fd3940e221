//! F15: the daemon of a mount dies while it holds locks, leases, removed open files and unsynced data. Others wait for its lease
//! at most; its data is there, with a size; no resource of it stays behind. In other tests only a program is killed, and the
//! operation that it has begun goes on.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::child::{Child, Ending};
use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::{bytes, locks, same_bytes};

use crate::crew::striped_dir;
use crate::dice::seed;
use crate::stripes::{self, BLOCK};

/// Longest time for which a silent client may hold others up: its lease.
const LEASE: Duration = Duration::from_secs(6);
/// Additional time.
const SLACK: Duration = Duration::from_secs(10);
/// Longest time until the space of a file is free that only the dead client had open.
const RECLAIM_LIMIT: Duration = Duration::from_secs(30);
/// Blocks of the file that was not synced to its end.
const BLOCKS: u64 = 640;
/// Number of these blocks that were synced.
const SYNCED_BLOCKS: u64 = 320;

#[test]
fn f15_killed_client_leaves_no_lock_orphan_or_hole() {
    seed("f15");
    let cluster = Cluster::up("f15", &Options::default());
    striped_dir(&cluster, "data");
    let [locked, flocked] = ["posix", "flock"].map(|name| {
        File::create(cluster.a().join("data").join(name)).unwrap();
        name
    });
    let hold_posix = open(&cluster.a().join("data").join(locked));
    locks::try_lock(&hold_posix, locks::Owner::OpenFile, locks::Kind::Write, 0, 0).unwrap();
    let hold_flock = open(&cluster.a().join("data").join(flocked));
    rustix::fs::flock(&hold_flock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let unsynced = write_unsynced(&cluster.a().join("data/unsynced"));
    let (orphan, orphan_ino) = removed_but_open(&cluster.a().join("data/removed"));
    assert!(objects_of(&cluster, orphan_ino) > 0, "a removed file that is open keeps its objects");

    let killed = Instant::now();
    cluster.kill(&["client0"]);
    std::thread::scope(|scope| {
        let b = cluster.b();
        let posix = scope.spawn(move || {
            let file = open(&b.join("data").join(locked));
            locks::lock(&file, locks::Owner::OpenFile, locks::Kind::Write, 0, 0).unwrap();
            killed.elapsed()
        });
        let flock = scope.spawn(move || {
            let file = open(&b.join("data").join(flocked));
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
            killed.elapsed()
        });
        let data = scope.spawn(move || {
            check_unsynced(&b.join("data/unsynced"));
            killed.elapsed()
        });
        for (what, waiter) in [("a POSIX lock", posix), ("flock", flock), ("the data", data)] {
            let took = waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            println!("f15: {what} after {:.1} s", took.as_secs_f64());
            assert!(took < LEASE + SLACK, "{what} came only after {took:?}");
        }
    });
    while objects_of(&cluster, orphan_ino) > 0 {
        assert!(killed.elapsed() < RECLAIM_LIMIT, "objects of a removed file are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((hold_posix, hold_flock, unsynced, orphan));
    cluster.start(&["client0"]);
    let end = check_unsynced(&cluster.a().join("data/unsynced"));
    let mut again = OpenOptions::new().append(true).open(cluster.a().join("data/unsynced")).unwrap();
    again.write_all(b"and more").unwrap();
    drop(again);
    assert_eq!(std::fs::metadata(cluster.b().join("data/unsynced")).unwrap().len(), end + 8);
    cluster.assert_sound();
}

/// The kernel drops the pages behind the new end when it is told of the success. In this test it is told that the caller was
/// killed.
#[test]
fn a_cut_whose_caller_was_killed_takes_the_pages_of_its_own_mount_too() {
    const LEN: usize = 64 << 10;
    const CUT: usize = 100;
    const BEHIND: u64 = 50_000;
    seed("killed-cut");
    let cluster = Cluster::up("killed-cut", &Options { osts: 1, ..Options::default() });
    let (a, b) = (cluster.a().join("f"), cluster.b().join("f"));
    std::fs::write(&b, bytes(1, LEN)).unwrap();
    let reader = File::open(&a).unwrap();
    let mut page = vec![0; LEN];
    reader.read_exact_at(&mut page, 0).unwrap();
    same_bytes(&page, &bytes(1, LEN), "written by the other mount");

    cluster.kill(&["ost0"]);
    let path = CString::new(a.as_os_str().as_bytes()).unwrap();
    let mut child = Child::start(move |link| {
        link.say(1)?;
        // SAFETY: the path ends with a NUL.
        match unsafe { libc::truncate(path.as_ptr(), CUT as libc::off_t) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    assert_eq!(child.hear(), 1);
    assert!(!child.speaks_within(Duration::from_secs(1)), "the file was cut without its OST");
    child.signal(libc::SIGKILL);
    assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
    cluster.start(&["ost0"]);
    let since = Instant::now();
    while std::fs::metadata(&b).unwrap().len() != CUT as u64 {
        assert!(since.elapsed() < SLACK, "what the killed program had begun is not done");
        std::thread::sleep(Duration::from_millis(10));
    }

    // No call here asks for attributes.
    page.truncate(4096);
    while reader.read_at(&mut page, BEHIND).unwrap() > 0 {
        assert!(since.elapsed() < SLACK, "bytes of before the cut are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    let len = reader.read_at(&mut page, 0).unwrap();
    same_bytes(&page[..len], &bytes(1, CUT), "in front of the cut");
    drop(reader);
    cluster.assert_sound();
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Written by the sole writer, and synced up to the middle.
fn write_unsynced(path: &Path) -> File {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    for index in 0..BLOCKS {
        file.write_all_at(&stripes::block(1, index, 1), index * BLOCK as u64).unwrap();
        if index + 1 == SYNCED_BLOCKS {
            file.sync_all().unwrap();
        }
    }
    file
}

/// Every block that was synced is there. Of the others the dead client may have had some in its buffer; none is torn. The length.
fn check_unsynced(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() as u64 >= SYNCED_BLOCKS * BLOCK as u64, "only {} bytes are there", bytes.len());
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let lost = index as u64 >= SYNCED_BLOCKS && block.iter().all(|byte| *byte == 0);
        assert!(lost || stripes::generation_of(block, 1, index as u64) == Ok(1), "block {index}");
    }
    bytes.len() as u64
}

fn removed_but_open(path: &Path) -> (File, u64) {
    let file = write_unsynced(path);
    std::fs::remove_file(path).unwrap();
    let ino = file.metadata().unwrap().ino();
    (file, ino)
}

/// Number of object files of an inode on all OSTs.
pub fn objects_of(cluster: &Cluster, ino: u64) -> usize {
    let osts = cluster.processes().into_iter().filter(|p| p.kind == "ost");
    osts.map(|ost| crate::damage::objects(&ost.data, ino).len()).sum()
}
