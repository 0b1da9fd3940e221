//! Reading released files while they are still coming back: readers get their part before the rest is there, whatever dies meanwhile, and
//! never a byte that was not archived.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::maps::Map;
use brindle_tests::{bytes, same_bytes};

use crate::dice::seed;
use crate::tiering::{
    ARCHIVED, Agent, FAST, RELEASED, SLOW, action, archive, find, release, state, text, wait,
};

const MIB: usize = 1 << 20;
/// At 1 MB a second, many times longer than a reader may wait for its part.
const SIZE_BYTES: usize = 48 * MIB;
const VERY_SLOW: u64 = SLOW / 4;
/// Readers of one file.
const READERS: usize = 100;

/// A released file, and its contents.
fn released(cluster: &Cluster, size_bytes: usize) -> (std::path::PathBuf, Vec<u8>) {
    let (path, data) = (cluster.a().join("long"), bytes(11, size_bytes));
    fs::write(&path, &data).unwrap();
    let _fast = Agent::start(cluster, FAST);
    archive(cluster, &path);
    release(cluster, &path);
    (path, data)
}

/// Bytes of a file that its agent has copied, as the MDT has heard; the whole size when it is not being restored any more.
fn moved_bytes(cluster: &Cluster, path: &Path) -> usize {
    let line = action(cluster, path);
    let moved = line.strip_prefix("RESTORE running (").and_then(|rest| rest.split(' ').next());
    moved.map_or(usize::MAX, |bytes| bytes.parse().expect("a number"))
}

fn read_at(file: &File, offset: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    file.read_exact_at(&mut out, offset as u64).unwrap();
    out
}

#[test]
fn readers_go_on_while_most_of_the_file_is_still_coming() {
    seed("tiering_read");
    let cluster = Cluster::up("tiering_read", &Options { osts: 2, ..Options::default() });
    let (path, data) = released(&cluster, SIZE_BYTES);
    let slow = Agent::start(&cluster, VERY_SLOW);
    let file = File::open(cluster.b().join("long")).unwrap();
    let is_coming = |what: &str| {
        assert_eq!(state(&cluster, &path), RELEASED, "{what}");
        let moved = moved_bytes(&cluster, &path);
        assert!(moved < SIZE_BYTES / 2, "{what}: {moved} bytes have been copied");
    };
    // Where its holes were is not known yet: all of it counts as data, and nobody waits to hear that.
    let seek = |from: u64| rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(from)).unwrap();
    assert_eq!((seek(0), seek(5 * MIB as u64)), (0, 5 * MIB as u64));
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(hole, SIZE_BYTES as u64);
    is_coming("holes were asked for");
    // The last bytes first, then the first ones, and a page of a mapping in the middle.
    let last = SIZE_BYTES - MIB;
    same_bytes(&read_at(&file, last, MIB), &data[last..], "the end of the file");
    is_coming("the end was asked for first");
    same_bytes(&read_at(&file, 0, 4096), &data[..4096], "the beginning of the file");
    is_coming("the beginning was asked for");
    let middle = SIZE_BYTES / 2;
    let map = Map::new(&file, middle as u64, 4096, false, false).unwrap();
    same_bytes(&map.read(0, 4096), &data[middle..middle + 4096], "a page of a mapping");
    is_coming("a page of a mapping was asked for");
    // The agent dies in the middle of it, and so does what it had brought. Readers go on with another one.
    let ready = Barrier::new(READERS + 1);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (cluster, data, ready) = (&cluster, &data, &ready);
            scope.spawn(move || {
                let mount = if reader % 2 == 0 { cluster.a() } else { cluster.b() };
                let file = File::open(mount.join("long")).unwrap();
                ready.wait();
                let at = reader * 7 * MIB % SIZE_BYTES;
                let len = (2 * MIB).min(SIZE_BYTES - at);
                same_bytes(&read_at(&file, at, len), &data[at..at + len], "one of a hundred readers");
            });
        }
        ready.wait();
        drop(slow);
        let _fast = Agent::start(&cluster, FAST);
        same_bytes(&fs::read(&path).unwrap(), &data, "all of it");
        wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
        let dir = format!("--dir={}", cluster.dir().display());
        let agents = cluster.brindle(&["lctl", "get_param", "mdt.*.hsm.agents", &dir]);
        assert!(agents.text.contains("requests=[current:0 ok:1 errors:0]"), "one restore: {agents}");
    });
    drop(map);
    same_bytes(&read_at(&file, 0, SIZE_BYTES), &data, "through the handle that saw it come");
    cluster.assert_sound();
}

#[test]
fn a_damaged_part_is_an_error_and_nobody_waits_for_ever() {
    seed("tiering_read_bad");
    let cluster = Cluster::up("tiering_read_bad", &Options { osts: 2, ..Options::default() });
    let (path, data) = released(&cluster, 24 * MIB);
    let fid = cluster.lfs(&["path2fid", text(&path)]);
    let copy = find(&cluster.archive(), fid.trim().trim_matches(['[', ']'])).remove(0);
    let damaged = File::options().write(true).open(&copy).unwrap();
    let bad = 20 * MIB + 5;
    damaged.write_all_at(&[!data[bad]], bad as u64).unwrap();
    let slow = Agent::start(&cluster, SLOW);
    let file = File::open(&path).unwrap();
    same_bytes(&read_at(&file, 3 * MIB, MIB), &data[3 * MIB..4 * MIB], "a good part");
    let failed = file.read_exact_at(&mut [0; 4096], (20 * MIB) as u64).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EIO), "nothing of the damaged part is returned");
    assert_eq!(state(&cluster, &path), RELEASED);
    let status = cluster.brindle(&["hsm", "status", text(cluster.a())]);
    assert!(status.text.contains("its bytes 20971520 to 22020096"), "it says which: {status}");
    damaged.write_all_at(&data[bad..=bad], bad as u64).unwrap();
    drop((file, slow));
    no_agent(&cluster, &path);
    cluster.assert_sound();
}

/// Whether a program is in read(2), which has the number 0.
fn is_in_read(program: &Child) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", program.id())).unwrap_or_default();
    call.starts_with("0 0x3 ")
}

/// While nobody brings the bytes, a reader can be killed, and a program that empties the file does not wait for readers.
fn no_agent(cluster: &Cluster, path: &Path) {
    let is_asked_for = || action(cluster, path).contains("RESTORE");
    let reader = || {
        let args = ["-c", "1", text(path)];
        let child = Command::new("head").args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap();
        wait("the bytes are asked for", || is_asked_for() && is_in_read(&child));
        child
    };
    let mut killed = reader();
    killed.kill().unwrap();
    wait("a killed reader ends", || killed.try_wait().unwrap().is_some());
    let mut reader = reader();
    fs::write(cluster.b().join("long"), "new").unwrap();
    wait("the reader ends", || reader.try_wait().unwrap().is_some());
    assert_eq!(action(cluster, path), "NOOP", "the restore is cancelled");
    assert_eq!(fs::read(path).unwrap(), b"new");
}
