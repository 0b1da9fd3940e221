//! Small files that are opened ahead: a program that reads them one after the other asks the MDT once for many, and still
//! sees every change at once.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;
use crate::leases::{leased, requests, settle};

/// Files of a directory.
const FILES: usize = 1200;
/// Files of a directory of which one is changed, and how many of those.
const IN_A_TURN: usize = 40;
const TURNS: usize = 24;
/// Longest time for opening ahead.
const AHEAD_LIMIT: Duration = Duration::from_secs(10);

fn name(n: usize) -> String {
    format!("f{n}")
}

fn content(n: usize, generation: usize) -> Vec<u8> {
    format!("file {n} of generation {generation}\n").repeat(100).into_bytes()
}

fn make(dir: &Path, n: usize, generation: usize) {
    File::create(dir.join(name(n))).unwrap().write_all(&content(n, generation)).unwrap();
}

/// Opens of either kind so far.
fn opens(cluster: &Cluster) -> u64 {
    requests(cluster, "open") + requests(cluster, "open_ahead")
}

#[test]
fn small_files_that_are_read_one_after_the_other_are_opened_many_at_once() {
    seed("spares");
    let cluster = Cluster::up("spares", &Options { osts: 1, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("d"), cluster.mounts()[1].join("d"));
    fs::create_dir(&a).unwrap();
    (0..FILES).for_each(|n| make(&a, n, 0));
    leased(&cluster, &b);
    let listed = fs::read_dir(&b).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(listed.filter(|len| *len > 0).count(), FILES);

    let before = opens(&cluster);
    (0..FILES).for_each(|n| assert_eq!(fs::read(b.join(name(n))).unwrap(), content(n, 0)));
    let spent = opens(&cluster) - before;
    assert!((FILES as u64 / 64..=FILES as u64 / 8).contains(&spent), "{spent} requests");
    // Unused prefetched handles are given back.
    settle(&cluster);

    // A file that is read alone is opened alone.
    let (a, b) = (cluster.a().join("alone"), cluster.mounts()[1].join("alone"));
    fs::create_dir(&a).unwrap();
    (0..IN_A_TURN).for_each(|n| make(&a, n, 0));
    leased(&cluster, &b);
    fs::read_dir(&b).unwrap().for_each(|entry| assert!(entry.unwrap().metadata().is_ok()));
    let before = requests(&cluster, "open_ahead");
    assert_eq!(fs::read(b.join(name(7))).unwrap(), content(7, 0));
    settle(&cluster);
    assert_eq!(requests(&cluster, "open_ahead"), before);
    cluster.assert_sound();
}

/// The first mount has the files of a directory open ahead, the second changes one of them.
fn turn(cluster: &Cluster, turn: usize) {
    let dir = format!("d{turn}");
    let (a, b) = (cluster.a().join(&dir), cluster.mounts()[1].join(&dir));
    fs::create_dir(&a).unwrap();
    (0..IN_A_TURN).for_each(|n| make(&a, n, 0));
    leased(cluster, &b);
    fs::read_dir(&b).unwrap().for_each(|entry| assert!(entry.unwrap().metadata().is_ok()));
    let (before, since) = (requests(cluster, "open_ahead"), Instant::now());
    (0..4).for_each(|n| assert_eq!(fs::read(b.join(name(n))).unwrap(), content(n, 0)));
    while requests(cluster, "open_ahead") == before {
        assert!(since.elapsed() < AHEAD_LIMIT, "nothing is opened ahead");
        std::thread::yield_now();
    }
    let changed = 5 + turn;
    let (there, here) = (a.join(name(changed)), b.join(name(changed)));
    match turn % 6 {
        0 => {
            make(&a, changed, 1);
            assert_eq!(fs::read(&here).unwrap(), content(changed, 1));
        }
        1 => {
            File::options().write(true).open(&there).unwrap().set_len(5).unwrap();
            assert_eq!(fs::read(&here).unwrap(), b"file ");
        }
        2 => {
            fs::remove_file(&there).unwrap();
            assert_eq!(fs::read(&here).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        }
        3 => {
            make(&a, IN_A_TURN, 1);
            fs::rename(a.join(name(IN_A_TURN)), &there).unwrap();
            assert_eq!(fs::read(&here).unwrap(), content(IN_A_TURN, 1));
        }
        4 => {
            // By the mount that has it open ahead, while a program has it open.
            let mut open = File::open(&here).unwrap();
            make(&b, changed, 1);
            let mut text = Vec::new();
            open.read_to_end(&mut text).unwrap();
            assert_eq!(text, content(changed, 1));
            fs::remove_file(&here).unwrap();
        }
        _ => {
            // Without a file open: cut by its path.
            let cut = std::ffi::CString::new(there.display().to_string()).unwrap();
            // SAFETY: the path ends with a NUL.
            assert_eq!(unsafe { libc::truncate(cut.as_ptr(), 3) }, 0);
            assert_eq!(fs::read(&here).unwrap(), b"fil");
        }
    }
    assert_eq!(fs::read(b.join(name(IN_A_TURN - 1))).unwrap(), content(IN_A_TURN - 1, 0));
}

#[test]
fn what_is_opened_ahead_shows_every_change_and_is_given_back() {
    seed("spares-changes");
    let cluster = Cluster::up("spares-changes", &Options { osts: 1, mounts: 2, ..Options::default() });
    (0..TURNS).for_each(|n| turn(&cluster, n));
    settle(&cluster);
    cluster.assert_sound();
}
