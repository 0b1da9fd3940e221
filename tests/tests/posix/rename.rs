//! Rename and its effects on both names, on links, and on open files.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use brindle_tests::area::{Area, ctime, mtime, names, nlink};
use brindle_tests::fails;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags)
}

#[test]
fn over_a_hard_link_of_itself_does_nothing() {
    let area = Area::new();
    let a = area.file("a", "x");
    fs::hard_link(&a, area.at("b")).unwrap();
    fs::rename(&a, area.at("b")).unwrap();
    assert_eq!(names(area.root()), ["a", "b"]);
    assert_eq!(nlink(&a), 2);
}

#[test]
fn over_one_of_several_links_takes_one_away() {
    let area = Area::new();
    let victim = area.file("victim", "old");
    fs::hard_link(&victim, area.at("other")).unwrap();
    let moved = area.file("moved", "new");
    let before = ctime(&victim);
    area.tick();
    fs::rename(&moved, &victim).unwrap();
    assert_eq!(nlink(&area.at("other")), 1);
    assert_eq!(nlink(&victim), 1);
    assert!(ctime(&area.at("other")) > before, "losing a name changes the status");
    assert_eq!(fs::read(area.at("other")).unwrap(), b"old");
    assert_eq!(fs::read(&victim).unwrap(), b"new");
}

#[test]
fn times_of_the_moved_and_of_both_directories() {
    let area = Area::new();
    let (from, to) = (area.dir("from", 0o755), area.dir("to", 0o755));
    fs::write(from.join("f"), "x").unwrap();
    let before = (mtime(&from), mtime(&to), ctime(&from.join("f")), mtime(&from.join("f")));
    area.tick();
    fs::rename(from.join("f"), to.join("g")).unwrap();
    assert!(mtime(&from) > before.0 && mtime(&to) > before.1);
    assert!(ctime(&from) > before.0 && ctime(&to) > before.1);
    assert!(ctime(&to.join("g")) > before.2, "ext4 stamps the moved file");
    assert_eq!(mtime(&to.join("g")), before.3);
}

#[test]
fn an_overwritten_file_stays_usable_for_who_has_it_open() {
    let area = Area::new();
    let victim = area.file("victim", "old content");
    let mut open = OpenOptions::new().read(true).write(true).open(&victim).unwrap();
    fs::rename(area.file("moved", "new"), &victim).unwrap();
    let found = open.metadata().unwrap();
    assert_eq!((found.nlink(), found.len()), (0, 11));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old content");
    open.write_all(b", longer").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 19);
    open.set_len(3).unwrap();
    open.sync_all().unwrap();
    assert_eq!(open.metadata().unwrap().len(), 3);
    assert_eq!(fs::read(&victim).unwrap(), b"new");
}

#[test]
fn a_file_open_for_writing_takes_its_writers_along() {
    let area = Area::new();
    let mut open = File::create(area.at("a")).unwrap();
    open.write_all(b"one ").unwrap();
    area.dir("d", 0o755);
    fs::rename(area.at("a"), area.at("d/b")).unwrap();
    open.write_all(b"two").unwrap();
    assert_eq!(fs::read(area.at("d/b")).unwrap(), b"one two");
}

#[test]
fn noreplace_replaces_nothing() {
    let area = Area::new();
    let (a, b) = (area.file("a", "a"), area.file("b", "b"));
    assert_eq!(fails(rename(&a, &b, RenameFlags::NOREPLACE)), Errno::EXIST);
    assert_eq!(fails(rename(&a, &a, RenameFlags::NOREPLACE)), Errno::EXIST);
    rename(&a, &area.at("c"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(names(area.root()), ["b", "c"]);
    assert_eq!(fs::read(&b).unwrap(), b"b");
}

#[test]
fn exchange_swaps_anything_with_anything() {
    let area = Area::new();
    let (left, right) = (area.dir("left", 0o755), area.dir("right", 0o755));
    fs::write(left.join("file"), "content").unwrap();
    fs::create_dir(right.join("dir")).unwrap();
    fs::write(right.join("dir/inside"), "x").unwrap();
    symlink("nowhere", left.join("link")).unwrap();
    assert_eq!((nlink(&left), nlink(&right)), (2, 3));
    rename(&left.join("file"), &right.join("dir"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!((nlink(&left), nlink(&right)), (3, 2));
    assert_eq!(fs::read(right.join("dir")).unwrap(), b"content");
    assert_eq!(names(&left.join("file")), ["inside"]);
    let parent = fs::metadata(left.join("file/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(&left).unwrap().ino(), "'..' of a moved directory is its new parent");
    rename(&left.join("link"), &right.join("dir"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(left.join("link")).unwrap(), b"content");
    rename(&left, &left, RenameFlags::EXCHANGE).unwrap();

    let exchange = |a: &Path, b: &Path| fails(rename(a, b, RenameFlags::EXCHANGE));
    assert_eq!(exchange(&left, &area.at("missing")), Errno::NOENT);
    assert_eq!(exchange(&area.at("missing"), &left), Errno::NOENT);
    assert_eq!(exchange(&left, &left.join("file")), Errno::INVAL);
    assert_eq!(exchange(&left.join("file"), &left), Errno::INVAL);
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(fails(rename(&left, &right, both)), Errno::INVAL);
}

#[test]
fn whiteout_is_done_rightly_or_refused_without_effect() {
    let area = Area::new();
    let (a, b) = (area.file("a", "x"), area.at("b"));
    match rename(&a, &b, RenameFlags::WHITEOUT) {
        Ok(()) => {
            let left = fs::symlink_metadata(&a).unwrap();
            assert!(left.file_type().is_char_device());
            assert_eq!(left.rdev(), 0);
            assert_eq!(fs::read(&b).unwrap(), b"x");
        }
        Err(refused) => {
            assert_eq!(refused, Errno::INVAL);
            assert_eq!(names(area.root()), ["a"]);
        }
    }
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(fails(rename(&area.file("c", ""), &area.file("d", ""), both)), Errno::INVAL);
}

#[test]
fn kinds_that_do_not_fit() {
    let area = Area::new();
    let file = area.file("file", "x");
    let (empty, full) = (area.dir("empty", 0o755), area.dir("full", 0o755));
    fs::write(full.join("x"), "").unwrap();
    assert_eq!(fails(fs::rename(&file, &empty)), Errno::ISDIR);
    assert_eq!(fails(fs::rename(&empty, &file)), Errno::NOTDIR);
    assert_eq!(fails(fs::rename(&empty, &full)), Errno::NOTEMPTY);
    assert_eq!(fails(fs::rename(&full, full.join("below"))), Errno::INVAL);
    assert_eq!(fails(fs::rename(full.join("x"), &full)), Errno::NOTEMPTY);
    assert_eq!(fails(fs::rename(area.at("missing"), &file)), Errno::NOENT);
    assert_eq!(fails(fs::rename(&file, area.at("missing/x"))), Errno::NOENT);
    fs::rename(&full, &empty).unwrap();
    assert_eq!(names(area.root()), ["empty", "file"]);
    assert_eq!(names(&empty), ["x"]);
    fs::create_dir(area.at("deep")).unwrap();
    fs::create_dir_all(area.at("deep/1/2/3")).unwrap();
    assert_eq!(fails(fs::rename(area.at("deep"), area.at("deep/1/2/3/4"))), Errno::INVAL);
}

#[test]
fn a_moved_directory_has_its_new_parent_and_counts_there() {
    let area = Area::new();
    let (a, b) = (area.dir("a", 0o755), area.dir("b", 0o755));
    fs::create_dir(a.join("d")).unwrap();
    fs::write(a.join("d/f"), "x").unwrap();
    fs::rename(a.join("d"), b.join("d")).unwrap();
    assert_eq!((nlink(&a), nlink(&b)), (2, 3));
    assert_eq!(fs::metadata(b.join("d/..")).unwrap().ino(), fs::metadata(&b).unwrap().ino());
    assert_eq!(fs::read(b.join("d/../d/f")).unwrap(), b"x");
    fs::create_dir(a.join("e")).unwrap();
    fs::create_dir(b.join("e")).unwrap();
    fs::rename(a.join("e"), b.join("e")).unwrap();
    assert_eq!((nlink(&a), nlink(&b)), (2, 4));
}

#[test]
fn names_swapped_round_and_round_by_two_threads_are_never_lost() {
    let area = Area::new();
    let (a, b) = (area.file("a", "content"), area.at("b"));
    let turn = |from: &Path, to: &Path| {
        for _ in 0..500 {
            match fs::rename(from, to) {
                Ok(()) => {}
                Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOENT)),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| turn(&a, &b));
        scope.spawn(|| turn(&b, &a));
    });
    let left = names(area.root());
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read(area.at(&left[0])).unwrap(), b"content");
}

#[test]
fn a_whiteout_stands_where_the_moved_name_was() {
    let area = Area::new();
    let (old, new) = (area.file("old", b"moved"), area.at("new"));
    fs::write(&new, b"replaced").unwrap();
    for round in 0..2 {
        renameat_with(CWD, &old, CWD, &new, RenameFlags::WHITEOUT).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"moved", "round {round}");
        let whiteout = fs::symlink_metadata(&old).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0 && whiteout.nlink() == 1);
        fs::remove_file(&old).unwrap();
        // The new name is free in the second round.
        fs::rename(&new, &old).unwrap();
    }
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(fails(renameat_with(CWD, &old, CWD, &old, both)), Errno::INVAL);
}
