//! POSIX access control lists, through the attributes that libacl uses.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use brindle_tests::area::{Area, mode};
use brindle_tests::child::Child;
use brindle_tests::fails;
use brindle_tests::users::{ANN, BOB, CID, run_as};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

// Tags of entries, as the kernel numbers them.
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

type Entry = (u16, u16, u32);
/// Entries without a number.
const NOBODY: u32 = u32::MAX;

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(bits.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

fn set(path: &Path, name: &str, entries: &[Entry]) -> rustix::io::Result<()> {
    setxattr(path, name, &encode(entries), XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<Entry>> {
    let mut buf = [0u8; 1000];
    let len = getxattr(path, name, &mut buf[..])?;
    let entry = |part: &[u8]| {
        let number = |i: usize| u16::from_le_bytes([part[i], part[i + 1]]);
        (number(0), number(2), u32::from_le_bytes([part[4], part[5], part[6], part[7]]))
    };
    Ok(buf[4..len].chunks(8).map(entry).collect())
}

/// An owner's, a named user's, the group's, the mask's and the others' rights.
fn list(owner: u16, named: (u32, u16), group: u16, mask: u16, other: u16) -> Vec<Entry> {
    vec![
        (USER_OBJ, owner, NOBODY),
        (USER, named.1, named.0),
        (GROUP_OBJ, group, NOBODY),
        (MASK, mask, NOBODY),
        (OTHER, other, NOBODY),
    ]
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_named_user_gets_what_the_mask_lets_through() {
    let area = Area::new();
    let path = area.file("f", "content");
    chmod(&path, 0o600);
    run_as(BOB, || assert_eq!(fails(fs::read(&path)), Errno::ACCESS));
    let wanted = list(6, (BOB.uid, 6), 4, 6, 0);
    set(&path, ACCESS, &wanted).unwrap();
    assert_eq!(get(&path, ACCESS).unwrap(), wanted);
    assert_eq!(mode(&path), 0o660, "the group's bits show the mask");
    run_as(BOB, || fs::write(&path, "by bob").unwrap());
    run_as(ANN, || assert_eq!(fails(fs::read(&path)), Errno::ACCESS));
    // chmod of the group's bits is of the mask.
    chmod(&path, 0o640);
    assert_eq!(get(&path, ACCESS).unwrap(), list(6, (BOB.uid, 6), 4, 4, 0));
    run_as(BOB, || {
        fs::read(&path).unwrap();
        assert_eq!(fails(fs::write(&path, "")), Errno::ACCESS);
    });
    // A change of the mask is a change of the mode.
    set(&path, ACCESS, &list(7, (BOB.uid, 6), 4, 1, 5)).unwrap();
    assert_eq!(mode(&path), 0o715);
}

#[test]
fn named_groups_count_for_their_members() {
    let area = Area::new();
    let path = area.file("f", "content");
    let entries = [
        (USER_OBJ, 6, NOBODY),
        (GROUP_OBJ, 0, NOBODY),
        (GROUP, 4, ANN.groups[0]),
        (MASK, 7, NOBODY),
        (OTHER, 0, NOBODY),
    ];
    set(&path, ACCESS, &entries).unwrap();
    assert_eq!(mode(&path), 0o670);
    run_as(ANN, || fs::read(&path).unwrap());
    run_as(CID, || fs::read(&path).unwrap());
    run_as(CID, || assert_eq!(fails(fs::write(&path, "")), Errno::ACCESS));
    run_as(BOB, || assert_eq!(fails(fs::read(&path)), Errno::ACCESS));
}

#[test]
fn a_list_that_says_no_more_than_the_mode_is_the_mode() {
    let area = Area::new();
    let path = area.file("f", "");
    set(&path, ACCESS, &list(7, (BOB.uid, 7), 7, 7, 7)).unwrap();
    set(&path, ACCESS, &[(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 1, NOBODY)]).unwrap();
    assert_eq!(mode(&path), 0o641);
    assert_eq!(fails(get(&path, ACCESS)), Errno::NODATA);
    set(&path, ACCESS, &list(6, (BOB.uid, 7), 4, 5, 0)).unwrap();
    removexattr(&path, ACCESS).unwrap();
    assert_eq!(fails(get(&path, ACCESS)), Errno::NODATA);
    run_as(BOB, || assert_eq!(fails(fs::read(&path)), Errno::ACCESS));
}

#[test]
fn new_entries_inherit_the_default_list() {
    let area = Area::new();
    let dir = area.dir("d", 0o777);
    let wanted = list(7, (BOB.uid, 7), 5, 7, 0);
    set(&dir, DEFAULT, &wanted).unwrap();
    assert_eq!(mode(&dir), 0o777, "a default list is for others");
    fs::write(dir.join("f"), "x").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    // The mode asked for (0666, 0777) limits owner, mask and others.
    assert_eq!(get(&dir.join("f"), ACCESS).unwrap(), list(6, (BOB.uid, 7), 5, 6, 0));
    assert_eq!(mode(&dir.join("f")), 0o660);
    assert_eq!(get(&dir.join("sub"), ACCESS).unwrap(), wanted);
    assert_eq!(get(&dir.join("sub"), DEFAULT).unwrap(), wanted);
    assert_eq!(fails(get(&dir.join("f"), DEFAULT)), Errno::NODATA);
    fs::write(dir.join("sub/deep"), "x").unwrap();
    assert_eq!(get(&dir.join("sub/deep"), ACCESS).unwrap(), list(6, (BOB.uid, 7), 5, 6, 0));
    run_as(BOB, || fs::write(dir.join("sub/deep"), "by bob").unwrap());
    std::os::unix::fs::symlink("f", dir.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(get(&dir.join("fifo"), ACCESS).unwrap(), list(6, (BOB.uid, 7), 5, 0, 0));
    removexattr(&dir, DEFAULT).unwrap();
    fs::write(dir.join("plain"), "").unwrap();
    assert_eq!(fails(get(&dir.join("plain"), ACCESS)), Errno::NODATA);
    assert_eq!(mode(&dir.join("plain")), 0o666);
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let area = Area::new();
    let dir = area.dir("d", 0o777);
    set(&dir, DEFAULT, &[(USER_OBJ, 7, NOBODY), (GROUP_OBJ, 7, NOBODY), (OTHER, 5, NOBODY)]).unwrap();
    let (inside, outside) = (dir.join("f"), area.at("g"));
    let paths = (inside.clone(), outside.clone());
    Child::start(move |_| {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        fs::write(paths.0, "")?;
        fs::write(paths.1, "")
    })
    .ok();
    assert_eq!((mode(&inside), mode(&outside)), (0o664, 0o600));
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let area = Area::new();
    let (path, dir) = (area.file("f", ""), area.dir("d", 0o755));
    let no_mask = [(USER_OBJ, 7, NOBODY), (USER, 7, 5), (GROUP_OBJ, 5, NOBODY), (OTHER, 0, NOBODY)];
    assert_eq!(fails(set(&path, ACCESS, &no_mask)), Errno::INVAL);
    assert_eq!(fails(set(&path, ACCESS, &[(USER_OBJ, 7, NOBODY)])), Errno::INVAL);
    let bits = [(USER_OBJ, 8, NOBODY), (GROUP_OBJ, 5, NOBODY), (OTHER, 0, NOBODY)];
    assert_eq!(fails(set(&path, ACCESS, &bits)), Errno::INVAL);
    assert_eq!(fails(set(&path, DEFAULT, &list(7, (5, 7), 5, 7, 0))), Errno::ACCESS);
    let cut = &encode(&list(7, (5, 7), 5, 7, 0))[..17];
    assert_eq!(fails(setxattr(&dir, DEFAULT, cut, XattrFlags::empty())), Errno::INVAL);
    chown(&path, Some(ANN.uid), None).unwrap();
    run_as(BOB, || assert_eq!(fails(set(&path, ACCESS, &list(7, (BOB.uid, 7), 7, 7, 7))), Errno::PERM));
    run_as(ANN, || set(&path, ACCESS, &list(7, (BOB.uid, 7), 7, 7, 7)).unwrap());
}
