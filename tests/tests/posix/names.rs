//! Names, paths and links, up to their limits.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use brindle_tests::area::{Area, names, nlink};
use brindle_tests::fails;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, open, openat, statat, unlinkat};
use rustix::io::Errno;

/// Longest path, without its NUL.
const PATH_BYTES_MAX: usize = 4095;
/// Longest name.
const NAME_BYTES_MAX: usize = 255;

/// A path of exactly `len` bytes below the area, with every directory above it made.
fn long_path(area: &Area, len: usize) -> PathBuf {
    let mut path = area.root().to_path_buf();
    loop {
        let rest = len - path.as_os_str().len() - 1;
        if rest <= NAME_BYTES_MAX {
            return path.join("e".repeat(rest));
        }
        // Leave room for at least one more byte of name after the slash.
        path.push("d".repeat(NAME_BYTES_MAX.min(rest - 2)));
        fs::create_dir(&path).unwrap();
    }
}

#[test]
fn a_path_of_4095_bytes_works_and_4096_is_too_long() {
    let area = Area::new();
    let path = long_path(&area, PATH_BYTES_MAX);
    assert_eq!(path.as_os_str().len(), PATH_BYTES_MAX);
    fs::write(&path, "far down").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"far down");
    assert_eq!(fs::metadata(&path).unwrap().len(), 8);
    let other = path.with_file_name("f".repeat(path.file_name().unwrap().len()));
    fs::rename(&path, &other).unwrap();
    fs::hard_link(&other, &path).unwrap();
    fs::remove_file(&other).unwrap();
    fs::remove_file(&path).unwrap();
    symlink("target", &path).unwrap();
    assert_eq!(fs::read_link(&path).unwrap().as_os_str(), "target");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::remove_dir(&path).unwrap();

    let mut longer = path.into_os_string();
    longer.push("x");
    assert_eq!(fails(fs::write(&longer, "")), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::metadata(&longer)), Errno::NAMETOOLONG);
}

#[test]
fn a_tree_may_be_deeper_than_any_path() {
    let area = Area::new();
    let name = "d".repeat(NAME_BYTES_MAX);
    let mut dir = open(area.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..40 {
        mkdirat(&dir, &name, Mode::RWXU).unwrap();
        dir = openat(&dir, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let file = openat(&dir, "bottom", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    assert_eq!(rustix::io::write(&file, b"10 KiB down").unwrap(), 11);
    assert_eq!(statat(&dir, "bottom", AtFlags::empty()).unwrap().st_size, 11);
    unlinkat(&dir, "bottom", AtFlags::empty()).unwrap();
}

#[test]
fn names_of_255_bytes_work_everywhere_and_256_nowhere() {
    let area = Area::new();
    let (long, longer) = ("n".repeat(NAME_BYTES_MAX), "n".repeat(NAME_BYTES_MAX + 1));
    let (a, b) = (area.at(&long), area.at("m".repeat(NAME_BYTES_MAX)));
    let bad = area.at(&longer);
    fs::write(&a, "x").unwrap();
    fs::rename(&a, &b).unwrap();
    fs::hard_link(&b, &a).unwrap();
    fs::remove_file(&b).unwrap();
    symlink("x", &b).unwrap();
    assert_eq!(names(area.root()), ["m".repeat(255), long]);

    assert_eq!(fails(fs::write(&bad, "")), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::create_dir(&bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(symlink("x", &bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::hard_link(&a, &bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::rename(&a, &bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::rename(&bad, &a)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::remove_file(&bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::remove_dir(&bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::metadata(&bad)), Errno::NAMETOOLONG);
    assert_eq!(fails(fs::metadata(bad.join("below"))), Errno::NAMETOOLONG);
}

#[test]
fn every_byte_but_two_may_stand_in_a_name() {
    let area = Area::new();
    let all: Vec<u8> = (1..=255u8).filter(|b| *b != b'/').collect();
    for byte in &all {
        fs::write(area.at(OsStr::from_bytes(&[b'<', *byte, b'>'])), [*byte]).unwrap();
    }
    let mut found: Vec<Vec<u8>> =
        fs::read_dir(area.root()).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
    found.sort();
    let wanted: Vec<Vec<u8>> = all.iter().map(|b| vec![b'<', *b, b'>']).collect();
    assert_eq!(found, wanted);
    for byte in &all {
        assert_eq!(fs::read(area.at(OsStr::from_bytes(&[b'<', *byte, b'>']))).unwrap(), [*byte]);
    }
}

#[test]
fn a_symlink_holds_4095_bytes() {
    let area = Area::new();
    for len in [1, 59, 60, 61, 255, 1000, 4094, PATH_BYTES_MAX] {
        let target = "t".repeat(len);
        let link = area.at(format!("l{len}"));
        symlink(&target, &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap().as_os_str(), &*target);
        assert_eq!(fs::symlink_metadata(&link).unwrap().len(), len as u64);
    }
    assert_eq!(fails(symlink("t".repeat(PATH_BYTES_MAX + 1), area.at("no"))), Errno::NAMETOOLONG);
    assert_eq!(fails(symlink("", area.at("no"))), Errno::NOENT);
    let mut small = [0u8; 10];
    let filled = rustix::fs::readlinkat_raw(CWD, area.at("l1000"), &mut small[..]).unwrap();
    assert_eq!((filled, &small), (10, b"tttttttttt"));
}

#[test]
fn loops_and_chains_of_symlinks() {
    let area = Area::new();
    symlink("b", area.at("a")).unwrap();
    symlink("a", area.at("b")).unwrap();
    assert_eq!(fails(fs::metadata(area.at("a"))), Errno::LOOP);
    assert_eq!(fails(fs::File::open(area.at("a"))), Errno::LOOP);
    assert_eq!(fails(fs::metadata(area.at("a/x"))), Errno::LOOP);
    assert_eq!(fails(fs::write(area.at("a"), "")), Errno::LOOP);

    area.file("s0", "end");
    for n in 1..=41 {
        symlink(format!("s{}", n - 1), area.at(format!("s{n}"))).unwrap();
    }
    assert_eq!(fs::read(area.at("s40")).unwrap(), b"end");
    assert_eq!(fails(fs::read(area.at("s41"))), Errno::LOOP);

    let no_follow = OFlags::RDONLY | OFlags::NOFOLLOW;
    assert_eq!(fails(open(area.at("s1"), no_follow, Mode::empty())), Errno::LOOP);
    let handle = open(area.at("s1"), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::fstat(&handle).unwrap().st_size, 2);
}

#[test]
fn creating_through_a_dangling_symlink_makes_its_target() {
    let area = Area::new();
    symlink("target", area.at("link")).unwrap();
    let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    assert_eq!(fails(open(area.at("link"), exclusive, Mode::RUSR)), Errno::EXIST);
    assert_eq!(fails(fs::create_dir(area.at("link"))), Errno::EXIST);
    fs::write(area.at("link"), "through").unwrap();
    assert_eq!(fs::read(area.at("target")).unwrap(), b"through");
    assert!(fs::symlink_metadata(area.at("link")).unwrap().is_symlink());
}

#[test]
fn a_component_that_is_not_a_directory() {
    let area = Area::new();
    let file = area.file("file", "x");
    let (below, slash) = (file.join("below"), area.at("file/"));
    assert_eq!(fails(fs::metadata(&below)), Errno::NOTDIR);
    assert_eq!(fails(fs::File::open(&below)), Errno::NOTDIR);
    assert_eq!(fails(fs::write(&below, "")), Errno::NOTDIR);
    assert_eq!(fails(fs::create_dir(&below)), Errno::NOTDIR);
    assert_eq!(fails(fs::remove_file(&below)), Errno::NOTDIR);
    assert_eq!(fails(fs::remove_dir(&below)), Errno::NOTDIR);
    assert_eq!(fails(fs::rename(&below, area.at("x"))), Errno::NOTDIR);
    assert_eq!(fails(fs::rename(&file, &below)), Errno::NOTDIR);
    assert_eq!(fails(fs::hard_link(&file, &below)), Errno::NOTDIR);
    assert_eq!(fails(symlink("x", &below)), Errno::NOTDIR);
    assert_eq!(fails(fs::read_dir(&file)), Errno::NOTDIR);
    assert_eq!(fails(fs::metadata(&slash)), Errno::NOTDIR);
    assert_eq!(fails(fs::File::open(&slash)), Errno::NOTDIR);
    assert_eq!(fails(fs::remove_dir(&file)), Errno::NOTDIR);
    assert_eq!(fails(open(&file, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())), Errno::NOTDIR);
    symlink("file", area.at("link")).unwrap();
    assert_eq!(fails(fs::metadata(area.at("link/below"))), Errno::NOTDIR);
    assert_eq!(fails(fs::metadata(area.at("link/"))), Errno::NOTDIR);
}

#[test]
fn directories_where_files_are_wanted() {
    let area = Area::new();
    let dir = area.dir("dir", 0o755);
    assert_eq!(fails(fs::write(&dir, "")), Errno::ISDIR);
    assert_eq!(fails(open(&dir, OFlags::RDWR, Mode::empty())), Errno::ISDIR);
    assert_eq!(fails(open(&dir, OFlags::RDONLY | OFlags::CREATE, Mode::empty())), Errno::ISDIR);
    assert_eq!(fails(fs::remove_file(&dir)), Errno::ISDIR);
    assert_eq!(fails(fs::hard_link(&dir, area.at("link"))), Errno::PERM);
    let handle = open(&dir, OFlags::RDONLY, Mode::empty()).unwrap();
    let mut byte = [0];
    assert_eq!(fails(rustix::io::read(&handle, &mut byte)), Errno::ISDIR);
    assert_eq!(fails(rustix::fs::ftruncate(&handle, 0)), Errno::INVAL);
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::truncate(path.as_ptr(), 0) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EISDIR));
}

#[test]
fn dots_and_slashes() {
    let area = Area::new();
    area.dir("d", 0o755);
    fs::create_dir(area.at("d/new/")).unwrap();
    fs::rename(area.at("d/new/"), area.at("d/newer/")).unwrap();
    assert_eq!(names(&area.at("d")), ["newer"]);
    // Through raw calls: the standard library's paths drop dots.
    let raw = |text: &str| area.root().to_str().unwrap().to_owned() + "/" + text;
    let rmdir = |text: &str| unlinkat(CWD, raw(text), AtFlags::REMOVEDIR);
    assert_eq!(fails(rmdir("d/.")), Errno::INVAL);
    assert_eq!(fails(rmdir("d/..")), Errno::NOTEMPTY);
    assert_eq!(fails(rmdir("d")), Errno::NOTEMPTY);
    assert_eq!(fails(mkdirat(CWD, raw("d/."), Mode::RWXU)), Errno::EXIST);
    assert_eq!(fails(mkdirat(CWD, raw("d/.."), Mode::RWXU)), Errno::EXIST);
    assert_eq!(fails(mkdirat(CWD, raw("d/missing/x"), Mode::RWXU)), Errno::NOENT);
    assert_eq!(fails(mkdirat(CWD, "", Mode::RWXU)), Errno::NOENT);
    assert_eq!(fails(rustix::fs::renameat(CWD, raw("d/newer"), CWD, raw("d/."))), Errno::BUSY);
    let (a, b) =
        (statat(CWD, raw("d/newer/.."), AtFlags::empty()), statat(CWD, raw("d/."), AtFlags::empty()));
    assert_eq!(a.unwrap().st_ino, b.unwrap().st_ino);
    rmdir("d/newer").unwrap();
    assert_eq!(fails(rmdir("d/newer")), Errno::NOENT);
}

#[test]
fn hard_links_share_everything_and_are_counted() {
    let area = Area::new();
    let first = area.file("first", "content");
    area.dir("dir", 0o755);
    let all: Vec<PathBuf> = (0..200).map(|n| area.at(format!("dir/link{n}"))).collect();
    for link in &all {
        fs::hard_link(&first, link).unwrap();
    }
    assert_eq!(nlink(&first), 201);
    fs::write(&all[100], "changed").unwrap();
    assert_eq!(fs::read(&first).unwrap(), b"changed");
    assert_eq!(fs::metadata(&all[7]).unwrap().ino(), fs::metadata(&first).unwrap().ino());
    assert_eq!(fails(fs::hard_link(&first, &all[0])), Errno::EXIST);
    fs::remove_file(&first).unwrap();
    assert_eq!(nlink(&all[199]), 200);
    for link in &all[1..] {
        fs::remove_file(link).unwrap();
    }
    assert_eq!(nlink(&all[0]), 1);
    assert_eq!(fs::read(&all[0]).unwrap(), b"changed");
}

#[test]
fn a_link_to_a_symlink_is_of_the_symlink_unless_followed() {
    let area = Area::new();
    let file = area.file("file", "x");
    symlink("file", area.at("soft")).unwrap();
    linkat(CWD, area.at("soft"), CWD, area.at("hard"), AtFlags::empty()).unwrap();
    assert!(fs::symlink_metadata(area.at("hard")).unwrap().is_symlink());
    assert_eq!(nlink(&area.at("soft")), 2);
    linkat(CWD, area.at("soft"), CWD, area.at("followed"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(nlink(&file), 2);
}

#[test]
fn a_removed_directory_that_is_still_open_takes_no_names() {
    let area = Area::new();
    area.dir("d", 0o755);
    let handle = open(area.at("d"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    fs::remove_dir(area.at("d")).unwrap();
    assert_eq!(fails(mkdirat(&handle, "x", Mode::RWXU)), Errno::NOENT);
    assert_eq!(fails(openat(&handle, "x", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)), Errno::NOENT);
    assert_eq!(rustix::fs::fstat(&handle).unwrap().st_nlink, 0);
    fs::create_dir(area.at("d")).unwrap();
    assert_eq!(fails(mkdirat(&handle, "x", Mode::RWXU)), Errno::NOENT);
    assert_eq!(names(&area.at("d")), Vec::<String>::new());
}

#[test]
fn inode_numbers_name_files_for_their_life() {
    let area = Area::new();
    let file = area.file("a", "x");
    let before = fs::metadata(&file).unwrap();
    fs::rename(&file, area.at("b")).unwrap();
    area.dir("d", 0o755);
    fs::rename(area.at("b"), area.at("d/c")).unwrap();
    fs::write(area.at("d/c"), "y".repeat(100_000)).unwrap();
    let after = fs::metadata(area.at("d/c")).unwrap();
    assert_eq!((before.ino(), before.dev()), (after.ino(), after.dev()));
    let other = area.file("other", "x");
    assert_ne!(fs::metadata(other).unwrap().ino(), after.ino());
}
