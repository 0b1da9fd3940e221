//! F13: bits flip in an object, an object is cut short, two are swapped, one is gone. Reads of damaged blocks fail with
//! EIO, and never return wrong bytes; everything else is readable; `fsck` names the damage.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::{Dice, seed};
use crate::stripes::{self, BLOCK};

/// Blocks of each file, all in one object of one region.
const BLOCKS: u64 = 256;
/// Position of the first block of data in an object's file: behind header and sums.
const DATA_AT: u64 = 2 * BLOCK as u64;
/// Exit code of `fsck` with findings.
const FINDINGS: i32 = 8;

/// A file and its object.
struct Victim {
    name: &'static str,
    id: u64,
    ino: u64,
    object: PathBuf,
}

#[test]
fn f13_damage_is_named_and_never_read() {
    let seed = seed("f13");
    let mut dice = Dice::new(seed);
    let cluster = Cluster::up("f13", &Options { osts: 2, ..Options::default() });
    let names = ["fine", "flipped", "short", "swapped1", "swapped2", "missing"];
    let files: Vec<Victim> =
        names.iter().enumerate().map(|(n, name)| make(&cluster, name, n as u64)).collect();
    let victim = |name: &str| files.iter().find(|v| v.name == name).unwrap();
    cluster.down();
    let clean = cluster.fsck();
    assert_eq!(clean.code, 0, "before the damage: {clean}");

    let flipped = flip(&victim("flipped").object, &mut dice);
    let short = cut_short(&victim("short").object, &mut dice);
    swap(&victim("swapped1").object, &victim("swapped2").object);
    std::fs::remove_file(&victim("missing").object).unwrap();

    let found = cluster.fsck();
    assert_eq!(found.code, FINDINGS, "damage was done: {found}");
    for damaged in files.iter().filter(|v| v.name != "fine") {
        assert!(names_it(&found.text, damaged), "fsck does not name {}: {found}", damaged.name);
    }
    assert!(!names_it(&found.text, victim("fine")), "fsck blames a good file: {found}");
    let again = cluster.fsck();
    assert_eq!(again.code, FINDINGS, "looking changed something: {again}");

    cluster.up_again();
    for mount in cluster.mounts() {
        assert_eq!(unreadable(mount, victim("fine")), Vec::<u64>::new());
        assert_eq!(unreadable(mount, victim("flipped")), vec![flipped]);
        assert_eq!(unreadable(mount, victim("short")), (short..BLOCKS).collect::<Vec<u64>>());
        for name in ["swapped1", "swapped2", "missing"] {
            assert_eq!(unreadable(mount, victim(name)), (0..BLOCKS).collect::<Vec<u64>>(), "{name}");
        }
    }
}

fn make(cluster: &Cluster, name: &'static str, id: u64) -> Victim {
    let path = cluster.a().join(name);
    cluster.lfs(&["setstripe", "-c", "1", &path.display().to_string()]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for index in 0..BLOCKS {
        file.write_all_at(&stripes::block(id, index, 1), index * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    let ino = file.metadata().unwrap().ino();
    let osts = cluster.processes().into_iter().filter(|p| p.kind == "ost");
    let found: Vec<PathBuf> = osts.flat_map(|ost| objects(&ost.data, ino)).collect();
    assert_eq!(found.len(), 1, "{name} has one object");
    Victim { name, id, ino, object: found[0].clone() }
}

/// The object files of an inode on one OST.
pub fn objects(data: &Path, ino: u64) -> Vec<PathBuf> {
    let wanted = format!("{ino:016x}.");
    let list = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let files = list(data.join("objects")).into_iter().flat_map(list);
    files.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&wanted))).collect()
}

/// Flips one bit of a block and gives the block's number.
fn flip(object: &Path, dice: &mut Dice) -> u64 {
    let index = dice.below(BLOCKS);
    let at = DATA_AT + index * BLOCK as u64 + dice.below(BLOCK as u64);
    let file = OpenOptions::new().read(true).write(true).open(object).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << dice.below(8);
    file.write_all_at(&byte, at).unwrap();
    index
}

/// Cuts the object and gives the number of the first block that is gone.
fn cut_short(object: &Path, dice: &mut Dice) -> u64 {
    let keep = dice.below(BLOCKS - 1);
    let file = OpenOptions::new().write(true).open(object).unwrap();
    file.set_len(DATA_AT + keep * BLOCK as u64).unwrap();
    keep
}

fn swap(one: &Path, other: &Path) {
    let temp = one.with_extension("swap");
    std::fs::rename(one, &temp).unwrap();
    // The objects may lie on different OSTs of one disk; each gets the other's bytes under its own name.
    std::fs::rename(other, one).unwrap();
    std::fs::rename(&temp, other).unwrap();
}

/// The blocks whose read fails with EIO; all others must be right.
fn unreadable(mount: &Path, victim: &Victim) -> Vec<u64> {
    let file = File::open(mount.join(victim.name)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), BLOCKS * BLOCK as u64, "size of {}", victim.name);
    let mut failed = Vec::new();
    for index in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK];
        match file.read_exact_at(&mut bytes, index * BLOCK as u64) {
            Ok(()) => {
                let generation = stripes::generation_of(&bytes, victim.id, index);
                assert_eq!(generation, Ok(1), "block {index} of {}", victim.name);
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EIO), "block {index} of {}: {e}", victim.name);
                failed.push(index);
            }
        }
    }
    failed
}

/// Whether a text has the file's path, its FID, or its object's name.
fn names_it(text: &str, victim: &Victim) -> bool {
    let object = victim.object.file_name().unwrap().to_string_lossy().into_owned();
    let fid = brindle_types::Ino(victim.ino).fid().to_string();
    let path = format!("/{}", victim.name);
    text.contains(&object) || text.contains(&fid) || text.lines().any(|line| line.ends_with(&path))
}

/// Ways in which a test makes the bytes of a file durable.
const DURABLE: [&str; 4] = ["closed", "fsynced", "o_sync", "migrated"];
/// Length of a file that loses its object.
const LOST_BYTES: usize = 3_000_000;

/// Makes a file whose only object lies on OST 0.
fn make_durable(cluster: &Cluster, name: &str, how: &str) -> u64 {
    let path = cluster.a().join(name);
    let text = path.display().to_string();
    let first = if how == "migrated" { "1" } else { "0" };
    cluster.lfs(&["setstripe", "-c", "1", "-i", first, &text]);
    let sync = if how == "o_sync" { libc::O_SYNC } else { 0 };
    let mut file = OpenOptions::new().write(true).custom_flags(sync).open(&path).unwrap();
    file.write_all(&vec![0x5a; LOST_BYTES]).unwrap();
    if how == "fsynced" {
        file.sync_all().unwrap();
    }
    let ino = file.metadata().unwrap().ino();
    drop(file);
    if how == "migrated" {
        cluster.lfs(&["migrate", "-c", "1", "-i", "0", &text]);
    }
    ino
}

fn errno<T>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|e| e.raw_os_error())
}

/// Results of every way to use a file; all of them have to fail with EIO.
fn uses(path: &Path, copy: &Path) -> Vec<(&'static str, Option<i32>)> {
    let open = || OpenOptions::new().read(true).write(true).open(path).unwrap();
    let by_fd = |call: &dyn Fn(i32) -> i64| {
        let file = open();
        let done = call(file.as_raw_fd());
        let error = if done < 0 { std::io::Error::last_os_error().raw_os_error() } else { None };
        error.or(errno(file.sync_all()))
    };
    let write = |at: u64| {
        let file = open();
        errno(file.write_all_at(b"x", at)).or(errno(file.sync_all()))
    };
    // SAFETY: the descriptors are open, and no call writes memory of this process.
    unsafe {
        vec![
            ("read", errno(open().read_exact_at(&mut [0; 100], 1 << 20))),
            ("overwrite", write(5)),
            ("append", write(LOST_BYTES as u64)),
            ("shorten", errno(open().set_len(100))),
            ("extend", errno(open().set_len(8 << 20))),
            (
                "punch",
                by_fd(&|fd| {
                    libc::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 65536)
                        .into()
                }),
            ),
            ("zero range", by_fd(&|fd| libc::fallocate(fd, libc::FALLOC_FL_ZERO_RANGE, 0, 65536).into())),
            ("allocate", by_fd(&|fd| libc::fallocate(fd, 0, 0, 65536).into())),
            ("seek data", by_fd(&|fd| libc::lseek(fd, 0, libc::SEEK_DATA))),
            ("seek hole", by_fd(&|fd| libc::lseek(fd, 0, libc::SEEK_HOLE))),
            ("fsync", errno(open().sync_all())),
            ("copy", errno(std::fs::copy(path, copy))),
        ]
    }
}

#[test]
fn f13_a_missing_object_is_an_error_for_every_use_and_no_use_hides_it() {
    let cluster = Cluster::up("f13 missing", &Options { osts: 2, ..Options::default() });
    let ost = cluster.process("ost0");
    let objects_of = |ino| objects(&ost.data, ino);
    let inos: Vec<u64> = DURABLE.iter().map(|how| make_durable(&cluster, how, how)).collect();
    assert!(cluster.brindle(&["sync", &cluster.a().display().to_string()]).ok());

    cluster.kill(&["ost0"]);
    for object in inos.iter().flat_map(|ino| objects_of(*ino)) {
        std::fs::remove_file(object).unwrap();
    }
    let before = cluster.fsck();
    assert_eq!(before.code, FINDINGS, "{before}");
    for name in DURABLE {
        assert!(before.text.lines().any(|line| line.contains(&format!("/{name} "))), "{name}: {before}");
    }
    cluster.start(&["ost0"]);
    for name in DURABLE {
        let copy = cluster.outside().join("copy");
        for (what, error) in uses(&cluster.b().join(name), &copy) {
            assert_eq!(error, Some(libc::EIO), "{what} of {name}");
        }
        let moved = cluster.brindle(&[
            "lfs",
            "migrate",
            "-c",
            "1",
            "-i",
            "1",
            &cluster.b().join(name).display().to_string(),
        ]);
        assert!(!moved.ok(), "a file without its bytes is moved: {moved}");
        assert_eq!(std::fs::metadata(cluster.a().join(name)).unwrap().len(), LOST_BYTES as u64);
    }
    assert!(inos.iter().all(|ino| objects_of(*ino).is_empty()), "no object was made anew");
    cluster.down();
    let after = cluster.fsck();
    assert_eq!(after.code, FINDINGS, "{after}");
    for name in DURABLE {
        assert!(after.text.lines().any(|line| line.contains(&format!("/{name} "))), "{name}: {after}");
    }
    cluster.up_again();
    for name in DURABLE {
        std::fs::remove_file(cluster.a().join(name)).expect("what has lost its bytes can be removed");
    }
    cluster.assert_sound();
}
