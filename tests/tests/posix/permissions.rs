//! Tests of permissions: modes, groups, set-id bits, sticky directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use brindle_tests::area::{Area, mode};
use brindle_tests::child::output;
use brindle_tests::fails;
use brindle_tests::users::{ANN, BOB, CID, User, run_as};
use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, accessat, fallocate, open};
use rustix::io::Errno;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A file of `owner` with this mode.
fn owned(area: &Area, name: &str, owner: User, mode: u32) -> std::path::PathBuf {
    let path = area.file(name, "content");
    chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
    chmod(&path, mode);
    path
}

fn may(path: &Path, access: Access) -> rustix::io::Result<()> {
    accessat(CWD, path, access, AtFlags::empty())
}

#[test]
fn root_may_all_but_execute_what_nobody_may() {
    let area = Area::new();
    let path = area.file("f", "x");
    chmod(&path, 0);
    may(&path, Access::READ_OK | Access::WRITE_OK).unwrap();
    assert_eq!(fails(may(&path, Access::EXEC_OK)), Errno::ACCESS);
    assert_eq!(fails(output(&mut std::process::Command::new(&path))), Errno::ACCESS);
    for bit in [0o100, 0o010, 0o001] {
        chmod(&path, bit);
        may(&path, Access::EXEC_OK).unwrap();
    }
    let dir = area.dir("d", 0);
    may(&dir, Access::EXEC_OK | Access::READ_OK | Access::WRITE_OK).unwrap();
    fs::write(dir.join("f"), "").unwrap();
}

#[test]
fn the_first_class_that_fits_decides() {
    let area = Area::new();
    // The owner may nothing although the others may all.
    let path = owned(&area, "f", ANN, 0o077);
    run_as(ANN, || assert_eq!(fails(may(&path, Access::READ_OK)), Errno::ACCESS));
    run_as(ANN, || assert_eq!(fails(fs::File::open(&path)), Errno::ACCESS));
    run_as(BOB, || drop(fs::read(&path).unwrap()));
    // The group may nothing; membership by a supplementary group counts.
    chown(&path, Some(0), Some(ANN.groups[0])).unwrap();
    chmod(&path, 0o604);
    run_as(CID, || assert_eq!(fails(fs::File::open(&path)), Errno::ACCESS));
    run_as(BOB, || drop(fs::read(&path).unwrap()));
    chmod(&path, 0o060);
    run_as(CID, || fs::write(&path, "by a member of the group").unwrap());
    run_as(BOB, || assert_eq!(fails(fs::write(&path, "")), Errno::ACCESS));
}

#[test]
fn directories_are_searched_listed_and_changed_by_their_own_bits() {
    let area = Area::new();
    let dir = area.dir("d", 0o711);
    fs::write(dir.join("f"), "x").unwrap();
    chmod(&dir.join("f"), 0o666);
    run_as(BOB, || {
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"x");
        assert_eq!(fails(fs::read_dir(&dir)), Errno::ACCESS);
        assert_eq!(fails(fs::write(dir.join("new"), "")), Errno::ACCESS);
        assert_eq!(fails(fs::remove_file(dir.join("f"))), Errno::ACCESS);
        assert_eq!(fails(fs::rename(dir.join("f"), dir.join("g"))), Errno::ACCESS);
        assert_eq!(fails(fs::hard_link(dir.join("f"), dir.join("g"))), Errno::ACCESS);
    });
    chmod(&dir, 0o744);
    run_as(BOB, || {
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(fails(fs::metadata(dir.join("f"))), Errno::ACCESS);
        assert_eq!(fails(fs::metadata(dir.join("missing"))), Errno::ACCESS);
    });
    chmod(&dir, 0o733);
    run_as(BOB, || {
        fs::write(dir.join("new"), "").unwrap();
        fs::remove_file(dir.join("f")).unwrap();
    });
    assert_eq!(fs::metadata(dir.join("new")).unwrap().uid(), BOB.uid);
}

#[test]
fn a_sticky_directory_protects_entries_of_others() {
    let area = Area::new();
    let dir = area.dir("tmp", 0o1777);
    let path = dir.join("f");
    run_as(ANN, || fs::write(&path, "ann's").unwrap());
    run_as(ANN, || fs::create_dir(dir.join("d")).unwrap());
    run_as(BOB, || {
        assert_eq!(fails(fs::remove_file(&path)), Errno::PERM);
        assert_eq!(fails(fs::rename(&path, dir.join("stolen"))), Errno::PERM);
        assert_eq!(fails(fs::remove_dir(dir.join("d"))), Errno::PERM);
        fs::write(dir.join("mine"), "bob's").unwrap();
        assert_eq!(fails(fs::rename(dir.join("mine"), &path)), Errno::PERM);
        fs::rename(dir.join("mine"), dir.join("renamed")).unwrap();
        fs::remove_file(dir.join("renamed")).unwrap();
    });
    // The owner of the directory may.
    chown(&dir, Some(BOB.uid), None).unwrap();
    run_as(BOB, || fs::rename(&path, dir.join("g")).unwrap());
    run_as(BOB, || fs::remove_file(dir.join("g")).unwrap());
}

#[test]
fn a_directory_of_another_owner_may_not_change_its_parent() {
    let area = Area::new();
    let (a, b) = (area.dir("a", 0o777), area.dir("b", 0o777));
    fs::create_dir(a.join("d")).unwrap();
    chmod(&a.join("d"), 0o755);
    run_as(BOB, || {
        fs::rename(a.join("d"), a.join("e")).unwrap();
        assert_eq!(fails(fs::rename(a.join("e"), b.join("e"))), Errno::ACCESS);
    });
}

#[test]
fn owners_and_groups_are_changed_by_who_may() {
    let area = Area::new();
    let path = owned(&area, "f", ANN, 0o644);
    run_as(BOB, || {
        assert_eq!(fails(fs::set_permissions(&path, PermissionsExt::from_mode(0o666))), Errno::PERM);
        assert_eq!(fails(chown(&path, Some(BOB.uid), None)), Errno::PERM);
        assert_eq!(fails(chown(&path, None, Some(BOB.gid))), Errno::PERM);
    });
    run_as(ANN, || {
        assert_eq!(fails(chown(&path, Some(BOB.uid), None)), Errno::PERM);
        assert_eq!(fails(chown(&path, None, Some(BOB.gid))), Errno::PERM);
        chown(&path, None, Some(ANN.groups[0])).unwrap();
        chown(&path, Some(ANN.uid), None).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    });
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (ANN.uid, ANN.groups[0]));
    chown(&path, None, None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().uid(), ANN.uid);
    let big = u32::MAX - 1;
    chown(&path, Some(big), Some(big)).unwrap();
    assert_eq!((fs::metadata(&path).unwrap().uid(), fs::metadata(&path).unwrap().gid()), (big, big));
}

#[test]
fn a_setgid_directory_hands_on_its_group() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    chown(&dir, None, Some(ANN.groups[0])).unwrap();
    chmod(&dir, 0o2777);
    run_as(BOB, || {
        fs::write(dir.join("f"), "").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        std::os::unix::fs::symlink("x", dir.join("link")).unwrap();
    });
    for name in ["f", "sub", "link"] {
        let found = fs::symlink_metadata(dir.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (BOB.uid, ANN.groups[0]), "{name}");
    }
    assert_eq!(mode(&dir.join("sub")), 0o2777, "a directory below hands it on too");
    assert_eq!(mode(&dir.join("f")) & 0o2000, 0);
    // A file that asks for the bit gets it only from a member of the group.
    run_as(BOB, || {
        drop(open(dir.join("g"), OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o2770)).unwrap())
    });
    run_as(CID, || {
        drop(open(dir.join("h"), OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o2770)).unwrap())
    });
    assert_eq!((mode(&dir.join("g")), mode(&dir.join("h"))), (0o770, 0o2770));
}

#[test]
fn chmod_by_an_outsider_of_the_group_drops_setgid() {
    let area = Area::new();
    let path = owned(&area, "f", BOB, 0o755);
    chown(&path, None, Some(ANN.gid)).unwrap();
    run_as(BOB, || chmod(&path, 0o2755));
    assert_eq!(mode(&path), 0o755);
    chown(&path, None, Some(BOB.gid)).unwrap();
    run_as(BOB, || chmod(&path, 0o6755));
    assert_eq!(mode(&path), 0o6755);
}

#[test]
fn changing_a_file_clears_its_set_id_bits() {
    let area = Area::new();
    let path = owned(&area, "f", ANN, 0o6777);
    let again = || chmod(&path, 0o6777);
    let cleared = |what: &str| {
        assert_eq!(mode(&path), 0o777, "{what}");
        again();
    };
    chown(&path, Some(ANN.uid), Some(ANN.gid)).unwrap();
    cleared("chown, even by root");
    run_as(ANN, || chown(&path, None, Some(ANN.groups[0])).unwrap());
    cleared("chgrp by the owner");
    let file = run_as(BOB, || open(&path, OFlags::RDWR, Mode::empty()).unwrap());
    run_as(BOB, || assert_eq!(rustix::io::pwrite(&file, b"x", 0).unwrap(), 1));
    cleared("a write by another user");
    run_as(ANN, || assert_eq!(rustix::io::pwrite(&file, b"x", 100_000).unwrap(), 1));
    cleared("a write by the owner");
    run_as(BOB, || rustix::fs::ftruncate(&file, 5).unwrap());
    cleared("ftruncate");
    run_as(BOB, || drop(open(&path, OFlags::WRONLY | OFlags::TRUNC, Mode::empty()).unwrap()));
    cleared("open with O_TRUNC");
    run_as(BOB, || fallocate(&file, FallocateFlags::empty(), 0, 10_000).unwrap());
    cleared("fallocate");
    assert_eq!(rustix::io::pwrite(&file, b"root", 0).unwrap(), 4);
    assert_eq!(mode(&path), 0o6777, "a write by root keeps them");
    let dir = area.dir("d", 0o6777);
    chown(&dir, Some(ANN.uid), Some(ANN.gid)).unwrap();
    assert_eq!(mode(&dir), 0o6777, "a directory keeps them");
}

#[test]
fn new_files_belong_to_their_maker() {
    let area = Area::new();
    let dir = area.dir("d", 0o777);
    run_as(CID, || {
        fs::write(dir.join("f"), "").unwrap();
        fs::create_dir(dir.join("d")).unwrap();
        rustix::fs::mknodat(CWD, dir.join("p"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let tmp = open(&dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
        assert_eq!(rustix::fs::fstat(&tmp).unwrap().st_uid, CID.uid);
        let device =
            rustix::fs::mknodat(CWD, dir.join("c"), rustix::fs::FileType::CharacterDevice, Mode::RUSR, 1);
        assert_eq!(fails(device), Errno::PERM);
    });
    for name in ["f", "d", "p"] {
        let found = fs::metadata(dir.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (CID.uid, CID.gid), "{name}");
    }
}

#[test]
fn every_mode_bit_is_kept() {
    let area = Area::new();
    let (file, dir) = (area.file("f", ""), area.dir("d", 0o755));
    for bits in (0..0o10000).step_by(0o123).chain([0o7777, 0o4000, 0o2000, 0o1000]) {
        chmod(&file, bits);
        chmod(&dir, bits);
        assert_eq!((mode(&file), mode(&dir)), (bits, bits));
    }
    for bits in [0o000, 0o421, 0o777, 0o4755, 0o1644] {
        let path = area.at(format!("new-{bits:o}"));
        drop(open(&path, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(bits)).unwrap());
        assert_eq!(mode(&path), bits);
    }
}
