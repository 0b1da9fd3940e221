//! Listing directories while they change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};

use brindle_tests::area::{Area, names, nlink};
use brindle_tests::fails;
use rustix::fs::{Dir, FileType, Mode, OFlags, open};
use rustix::io::Errno;

/// Entries of a large directory.
const MANY: usize = 10_000;

fn listing(area: &Area, dir: &str) -> Dir {
    Dir::new(open(area.at(dir), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap()
}

fn is_dot(name: &str) -> bool {
    name == "." || name == ".."
}

#[test]
fn ten_thousand_entries_deleted_while_they_are_listed() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    for n in 0..MANY {
        File::create(dir.join(format!("entry-{n:05}"))).unwrap();
    }
    let mut seen = BTreeSet::new();
    let mut list = listing(&area, "d");
    while let Some(entry) = list.read() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        if is_dot(&name) {
            continue;
        }
        // The entry just seen is removed, as by `rm -r`: no other entry may disappear from the listing.
        fs::remove_file(dir.join(&name)).unwrap();
        assert!(seen.insert(name.clone()), "{name} came twice");
    }
    assert_eq!(seen.len(), MANY);
    assert_eq!(names(&dir), Vec::<String>::new());
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn what_stays_is_listed_once_whatever_comes_and_goes() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    for n in 0..2000 {
        File::create(dir.join(format!("stays-{n}"))).unwrap();
        File::create(dir.join(format!("goes-{n}"))).unwrap();
    }
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut list = listing(&area, "d");
    let mut step = 0;
    while let Some(entry) = list.read() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        *counts.entry(name).or_default() += 1;
        if step < 2000 {
            fs::remove_file(dir.join(format!("goes-{}", 1999 - step))).unwrap();
            File::create(dir.join(format!("comes-{step}"))).unwrap();
            if step % 10 == 0 {
                fs::rename(dir.join(format!("comes-{step}")), dir.join(format!("renamed-{step}"))).unwrap();
            }
        }
        step += 1;
    }
    for n in 0..2000 {
        assert_eq!(counts.get(&format!("stays-{n}")), Some(&1), "stays-{n}");
    }
    let twice: Vec<&String> = counts.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name).collect();
    assert_eq!(twice, Vec::<&String>::new(), "listed twice");
}

#[test]
fn positions_lead_back_to_their_entries() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    for n in 0..3000 {
        File::create(dir.join(format!("entry-{n}"))).unwrap();
    }
    let mut list = listing(&area, "d");
    let mut order: Vec<(String, i64)> = Vec::new();
    while let Some(entry) = list.read() {
        let entry = entry.unwrap();
        order.push((entry.file_name().to_str().unwrap().to_owned(), entry.offset()));
    }
    assert_eq!(order.len(), 3002);
    // The offset of an entry is the place behind it. Forwards and backwards, far and near.
    for index in (0..3001).step_by(97).chain((0..3001).rev().step_by(211)) {
        list.seek(order[index].1).unwrap();
        let next = list.read().unwrap().unwrap();
        assert_eq!(next.file_name().to_str().unwrap(), order[index + 1].0);
    }
    list.seek(order[3001].1).unwrap();
    assert!(list.read().is_none(), "behind the last entry is the end");
    // A position outlives the entry before it.
    list.seek(order[1500].1).unwrap();
    let gone = &order[1500].0;
    if !is_dot(gone) {
        fs::remove_file(dir.join(gone)).unwrap();
    }
    list.seek(order[1500].1).unwrap();
    assert_eq!(list.read().unwrap().unwrap().file_name().to_str().unwrap(), order[1501].0);
}

#[test]
fn rewinding_shows_what_is_there_now() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    File::create(dir.join("old")).unwrap();
    let mut list = listing(&area, "d");
    let mut all = || {
        let mut found = BTreeSet::new();
        list.rewind();
        while let Some(entry) = list.read() {
            found.insert(entry.unwrap().file_name().to_str().unwrap().to_owned());
        }
        found.into_iter().filter(|name| !is_dot(name)).collect::<Vec<_>>()
    };
    assert_eq!(all(), ["old"]);
    fs::rename(dir.join("old"), dir.join("new")).unwrap();
    File::create(dir.join("newer")).unwrap();
    assert_eq!(all(), ["new", "newer"]);
}

#[test]
fn entries_tell_kind_and_inode() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    fs::write(dir.join("file"), "x").unwrap();
    fs::create_dir(dir.join("dir")).unwrap();
    symlink("nowhere", dir.join("link")).unwrap();
    let special = |name: &str, kind| {
        rustix::fs::mknodat(rustix::fs::CWD, dir.join(name), kind, Mode::RUSR, rustix::fs::makedev(1, 3))
            .unwrap();
    };
    special("fifo", FileType::Fifo);
    special("socket", FileType::Socket);
    special("char", FileType::CharacterDevice);
    special("block", FileType::BlockDevice);
    let mut found = BTreeMap::new();
    let mut list = listing(&area, "d");
    while let Some(entry) = list.read() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        let path = dir.join(&name);
        assert_eq!(entry.ino(), fs::symlink_metadata(path).unwrap().ino(), "inode of {name}");
        found.insert(name, format!("{:?}", entry.file_type()));
    }
    let found: Vec<String> = found.into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let wanted = [
        ". Directory",
        ".. Directory",
        "block BlockDevice",
        "char CharacterDevice",
        "dir Directory",
        "fifo Fifo",
        "file RegularFile",
        "link Symlink",
        "socket Socket",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn directories_count_their_subdirectories() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    for n in 0..50 {
        fs::create_dir(dir.join(format!("{n}"))).unwrap();
        fs::write(dir.join(format!("f{n}")), "").unwrap();
    }
    assert_eq!(nlink(&dir), 52);
    for n in 0..25 {
        fs::remove_dir(dir.join(format!("{n}"))).unwrap();
    }
    assert_eq!(nlink(&dir), 27);
    assert_eq!(nlink(&dir.join("30")), 2);
}

#[test]
fn long_names_in_a_large_directory() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    let wanted: Vec<String> = (0..1500).map(|n| format!("{n:0>255}")).collect();
    for name in &wanted {
        File::create(dir.join(name)).unwrap();
    }
    assert_eq!(names(&dir), wanted);
    let inos: BTreeSet<u64> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().ino()).collect();
    assert_eq!(inos.len(), 1500);
}

#[test]
fn threads_creating_side_by_side_lose_nothing() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let dir = &dir;
            scope.spawn(move || {
                for n in 0..150 {
                    fs::write(dir.join(format!("{thread}-{n}")), format!("{thread} {n}")).unwrap();
                    if n % 3 == 0 {
                        fs::remove_file(dir.join(format!("{thread}-{n}"))).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(names(&dir).len(), 8 * 100);
    assert_eq!(fs::read_to_string(dir.join("7-149")).unwrap(), "7 149");
}

#[test]
fn of_many_mkdirs_one_wins() {
    let area = Area::new();
    for round in 0..20 {
        let path = area.at(format!("d{round}"));
        let made: u32 = std::thread::scope(|scope| {
            let all: Vec<_> = (0..6).map(|_| scope.spawn(|| fs::create_dir(&path).is_ok() as u32)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(made, 1);
    }
    assert_eq!(fails(fs::create_dir(area.at("d0"))), Errno::EXIST);
}
