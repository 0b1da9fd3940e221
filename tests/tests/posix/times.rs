//! Times: which calls change them, their precision and range, and setting them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use brindle_tests::area::{Area, ctime, mtime, names};
use brindle_tests::fails;
use brindle_tests::users::{ANN, BOB, run_as};
use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, statx, utimensat};
use rustix::io::Errno;

fn at(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

fn set(path: &Path, access: Timespec, modification: Timespec) -> rustix::io::Result<()> {
    let times = Timestamps { last_access: access, last_modification: modification };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

fn atime(path: &Path) -> (i64, i64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.atime(), found.atime_nsec())
}

#[test]
fn times_go_from_1901_to_2446_with_nanoseconds() {
    let area = Area::new();
    area.file("file", "x");
    area.dir("dir", 0o755);
    symlink("x", area.at("link")).unwrap();
    let all = [
        (-2_147_483_000, 1),
        (-2, 999_999_999),
        (-1, 0),
        (0, 1),
        (2_147_483_648, 123_456_789),
        (15_000_000_000, 5),
    ];
    for name in ["file", "dir", "link"] {
        let path = area.at(name);
        for (seconds, nanoseconds) in all {
            set(&path, at(seconds, nanoseconds), at(seconds + 1, nanoseconds)).unwrap();
            assert_eq!(atime(&path), (seconds, nanoseconds), "atime of {name}");
            assert_eq!(mtime(&path), (seconds + 1, nanoseconds), "mtime of {name}");
        }
    }
    // A handle that was closed, and reading, leave them alone.
    fs::read(area.at("file")).unwrap();
    assert_eq!(mtime(&area.at("file")), (15_000_000_001, 5));
}

#[test]
fn now_and_omit() {
    let area = Area::new();
    let path = area.file("f", "x");
    set(&path, at(100, 1), at(200, 2)).unwrap();
    let changed = ctime(&path);
    area.tick();
    set(&path, OMIT, at(300, 3)).unwrap();
    assert_eq!((atime(&path), mtime(&path)), ((100, 1), (300, 3)));
    assert!(ctime(&path) > changed);
    set(&path, at(400, 4), OMIT).unwrap();
    assert_eq!((atime(&path), mtime(&path)), ((400, 4), (300, 3)));
    set(&path, NOW, OMIT).unwrap();
    assert_eq!(mtime(&path), (300, 3));
    assert!(atime(&path) >= changed);
    set(&path, OMIT, NOW).unwrap();
    assert!(mtime(&path) >= changed);
    let before = (atime(&path), mtime(&path), ctime(&path));
    area.tick();
    set(&path, OMIT, OMIT).unwrap();
    assert_eq!((atime(&path), mtime(&path), ctime(&path)), before);
    assert_eq!(fails(set(&path, at(0, 1_000_000_000), NOW)), Errno::INVAL);
    assert_eq!(fails(set(&area.at("missing"), NOW, NOW)), Errno::NOENT);
}

#[test]
fn who_may_set_times() {
    let area = Area::new();
    let path = area.file("f", "x");
    rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(ANN.uid)), None).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o646)).unwrap();
    run_as(ANN, || set(&path, at(1, 0), at(2, 0)).unwrap());
    run_as(BOB, || {
        set(&path, NOW, NOW).unwrap();
        assert_eq!(fails(set(&path, at(1, 0), at(2, 0))), Errno::PERM);
        assert_eq!(fails(set(&path, NOW, OMIT)), Errno::PERM);
        set(&path, OMIT, OMIT).unwrap();
    });
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    run_as(BOB, || assert_eq!(fails(set(&path, NOW, NOW)), Errno::ACCESS));
}

/// Asserts which of (ctime, mtime) of `path` `change` moves.
#[track_caller]
fn moves(area: &Area, path: &Path, wanted: (bool, bool), what: &str, change: impl FnOnce()) {
    let before = (ctime(path), mtime(path));
    area.tick();
    change();
    let found = (ctime(path) > before.0, mtime(path) > before.1);
    assert_eq!(found, wanted, "(ctime, mtime) moved by {what}");
}

#[test]
fn what_moves_the_times_of_a_file() {
    let area = Area::new();
    let path = area.file("f", "content");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let both = (true, true);
    let status = (true, false);
    moves(&area, &path, both, "write", || file.write_all_at(b"x", 0).unwrap());
    moves(&area, &path, both, "append", || file.write_all_at(b"x", 1000).unwrap());
    moves(&area, &path, both, "ftruncate", || file.set_len(3).unwrap());
    moves(&area, &path, both, "ftruncate to the same size", || file.set_len(3).unwrap());
    moves(&area, &path, both, "open with O_TRUNC", || drop(File::create(&path).unwrap()));
    moves(&area, &path, (false, false), "read", || assert_eq!(fs::read(&path).unwrap(), b""));
    moves(&area, &path, (false, false), "fsync", || file.sync_all().unwrap());
    moves(&area, &path, status, "chmod", || {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap()
    });
    moves(&area, &path, status, "chown", || std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap());
    moves(&area, &path, status, "link", || fs::hard_link(&path, area.at("g")).unwrap());
    moves(&area, &path, status, "unlink", || fs::remove_file(area.at("g")).unwrap());
    moves(&area, &path, status, "rename", || {
        fs::rename(&path, area.at("h")).and_then(|()| fs::rename(area.at("h"), &path)).unwrap()
    });
    moves(&area, &path, status, "setxattr", || {
        rustix::fs::setxattr(&path, "user.x", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    });
    moves(&area, &path, status, "removexattr", || rustix::fs::removexattr(&path, "user.x").unwrap());
}

#[test]
fn what_moves_the_times_of_a_directory() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    let both = (true, true);
    moves(&area, &dir, both, "create", || fs::write(dir.join("f"), "").unwrap());
    moves(&area, &dir, (false, false), "write in it", || fs::write(dir.join("f"), "x").unwrap());
    moves(&area, &dir, (false, false), "lookup and list", || assert_eq!(names(&dir), ["f"]));
    moves(&area, &dir, both, "link", || fs::hard_link(dir.join("f"), dir.join("g")).unwrap());
    moves(&area, &dir, both, "symlink", || symlink("x", dir.join("s")).unwrap());
    moves(&area, &dir, both, "rename", || fs::rename(dir.join("f"), dir.join("h")).unwrap());
    moves(&area, &dir, both, "unlink", || fs::remove_file(dir.join("h")).unwrap());
    moves(&area, &dir, both, "mkdir", || fs::create_dir(dir.join("sub")).unwrap());
    moves(&area, &dir, (false, false), "mkdir below", || fs::create_dir(dir.join("sub/x")).unwrap());
    moves(&area, &dir, both, "rmdir", || fs::remove_dir_all(dir.join("sub")).unwrap());
    moves(&area, &dir, (false, false), "a create that fails", || {
        drop(File::create_new(dir.join("g")).unwrap_err())
    });
}

#[test]
fn times_are_the_same_through_every_door() {
    let area = Area::new();
    let path = area.at("f");
    let writer = File::create(&path).unwrap();
    let reader = File::open(&path).unwrap();
    for round in 0..20 {
        writer.write_all_at(b"x", round).unwrap();
        let by_writer = writer.metadata().unwrap();
        for found in [reader.metadata().unwrap(), fs::metadata(&path).unwrap()] {
            assert_eq!((found.mtime(), found.mtime_nsec()), (by_writer.mtime(), by_writer.mtime_nsec()));
            assert_eq!((found.ctime(), found.ctime_nsec()), (by_writer.ctime(), by_writer.ctime_nsec()));
        }
    }
    let last = mtime(&path);
    drop((writer, reader));
    assert_eq!(mtime(&path), last, "closing moves nothing");
}

#[test]
fn set_times_stay_although_the_file_was_written_before() {
    let area = Area::new();
    let path = area.at("f");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    set(&path, at(1_000, 0), at(2_000, 7)).unwrap();
    assert_eq!(mtime(&path), (2_000, 7));
    drop(file);
    assert_eq!((atime(&path), mtime(&path)), ((1_000, 0), (2_000, 7)));
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    drop(file);
    assert_eq!(mtime(&path), (2_000, 7), "an open for writing that writes nothing");
}

#[test]
fn the_time_of_birth_does_not_move() {
    let area = Area::new();
    let path = area.at("f");
    let birth = |path: &Path| {
        let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).unwrap();
        assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0, "there is a time of birth");
        (found.stx_btime.tv_sec, i64::from(found.stx_btime.tv_nsec))
    };
    area.tick();
    area.file("before", "");
    area.tick();
    area.file("f", "");
    let born = birth(&path);
    assert!(born >= mtime(&area.at("before")) && born <= ctime(&path));
    area.tick();
    fs::write(&path, "x").unwrap();
    set(&path, at(5, 5), at(5, 5)).unwrap();
    fs::rename(&path, area.at("g")).unwrap();
    assert_eq!(birth(&area.at("g")), born);
}

/// make, ninja and rsync compare times of files that one program wrote one after the other.
#[test]
fn mtime_is_when_the_program_wrote_whatever_becomes_of_the_bytes_later() {
    let area = Area::new();
    for round in 0..40 {
        let (large, small) = (area.at(format!("large{round}")), area.at(format!("small{round}")));
        fs::write(&large, vec![1; 70_000]).unwrap();
        // (Local file systems take their times from a clock that ticks.)
        let closed = std::time::SystemTime::now();
        fs::write(&small, b"stamp").unwrap();
        let of = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
        assert!(of(&large) <= of(&small), "round {round}: what was written first is newer");
        assert!(of(&large) <= closed, "round {round}: newer than the return of close");
    }
    let path = area.at("held");
    let file = File::create(&path).unwrap();
    for round in 0..20u8 {
        file.write_all_at(&[round; 9000], u64::from(round) * 9000).unwrap();
        let shown = file.metadata().unwrap().modified().unwrap();
        area.tick();
        assert_eq!(
            fs::metadata(&path).unwrap().modified().unwrap(),
            shown,
            "round {round}: nothing has changed it"
        );
    }
    let shown = file.metadata().unwrap().modified().unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), shown, "close changes nothing");
}
