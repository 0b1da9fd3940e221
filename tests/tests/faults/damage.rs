//! F13: bits flip in an object, an object is cut short, two are swapped, one is gone. Reads of what is damaged fail with
//! EIO, never with other bytes; everything else is readable; `fsck` names what is damaged.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::{Dice, seed};
use crate::stripes::{self, BLOCK};

/// Blocks of each file, all in one object of one region.
const BLOCKS: u64 = 256;
/// Where the first block of data lies in an object's file: behind header and sums.
const DATA_AT: u64 = 2 * BLOCK as u64;
/// What `fsck` exits with when it found something.
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
    // They may lie on different OSTs of one disk; each gets the other's bytes under its own name.
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
