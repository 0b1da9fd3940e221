//! Names and attributes (promises 1, 2, 4).

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use brindle_tests::area::{Area, ctime, mode, mtime, names, nlink};
use brindle_tests::fails;
use brindle_tests::users::{ANN, run_as};
use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, RenameFlags, XattrFlags, fchmod, flistxattr, getxattr, lstat, mkdirat,
    mknodat, open, removexattr, setxattr,
};
use rustix::io::Errno;

use crate::both_ways;

/// Duration of looks and changes, in each direction.
const SHOWING: Duration = Duration::from_secs(4);

/// Number of moves of an entry that is looked at all the time; then the time that it stays in a place.
const MOVES: u64 = 12;
const BETWEEN_MOVES: Duration = Duration::from_millis(200);

fn missing(path: &Path) {
    assert_eq!(fails(fs::symlink_metadata(path)), Errno::NOENT);
    assert_eq!(fails(File::open(path)), Errno::NOENT);
}

#[test]
fn names_come_and_go_at_once() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        fs::create_dir(&there).unwrap();
        for n in 0..60 {
            let (new, seen) = (there.join(format!("f{n}")), here.join(format!("f{n}")));
            missing(&seen);
            fs::write(&new, format!("content {n}")).unwrap();
            assert_eq!(fs::read_to_string(&seen).unwrap(), format!("content {n}"));
            assert_eq!(names(&here).len(), n + 1);
        }
        for n in 0..60 {
            fs::remove_file(there.join(format!("f{n}"))).unwrap();
            missing(&here.join(format!("f{n}")));
            assert_eq!(names(&here).len(), 59 - n);
        }
        fs::remove_dir(&there).unwrap();
        missing(&here);
    }
}

#[test]
fn a_directory_that_is_open_shows_changes_when_rewound() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        fs::create_dir(&there).unwrap();
        let mut list =
            Dir::new(open(&here, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap();
        for n in 0..20 {
            fs::write(there.join(format!("f{n}")), "").unwrap();
            list.rewind();
            let mut count = 0;
            while let Some(entry) = list.read() {
                entry.unwrap();
                count += 1;
            }
            assert_eq!(count, n + 3, "with the two dots");
        }
        fs::remove_dir_all(&there).unwrap();
    }
}

#[test]
fn renames_are_seen_from_both_sides() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let moved = |path: &Path| path.with_file_name("g");
        fs::write(&there, "one").unwrap();
        let open_here = File::open(&here).unwrap();
        fs::rename(&there, moved(&there)).unwrap();
        missing(&here);
        assert_eq!(fs::read(moved(&here)).unwrap(), b"one");
        fs::write(&there, "two").unwrap();
        assert_eq!(fs::read(&here).unwrap(), b"two");
        fs::rename(&there, moved(&there)).unwrap();
        assert_eq!(fs::read(moved(&here)).unwrap(), b"two");
        assert_eq!(open_here.metadata().unwrap().nlink(), 0, "what was renamed over has no name");
        let mut text = String::new();
        (&open_here).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        fs::write(&there, "three").unwrap();
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, &there, cwd, moved(&there), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(
            (fs::read(&here).unwrap(), fs::read(moved(&here)).unwrap()),
            (b"two".to_vec(), b"three".to_vec())
        );
        fs::remove_file(&there).unwrap();
        fs::remove_file(moved(&there)).unwrap();
    }
}

#[test]
fn directories_move_with_all_below() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        fs::create_dir_all(there.join("a/b/c")).unwrap();
        fs::write(there.join("a/b/c/file"), "x").unwrap();
        assert_eq!(fs::read(here.join("a/b/c/file")).unwrap(), b"x");
        let inside = open(here.join("a/b"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        fs::rename(there.join("a"), there.join("z")).unwrap();
        missing(&here.join("a/b/c/file"));
        assert_eq!(fs::read(here.join("z/b/c/file")).unwrap(), b"x");
        mkdirat(&inside, "made", Mode::RWXU).unwrap();
        assert_eq!(names(&there.join("z/b")), ["c", "made"]);
        fs::remove_dir_all(there.join("z/b")).unwrap();
        assert_eq!(fails(mkdirat(&inside, "late", Mode::RWXU)), Errno::NOENT);
        assert_eq!((nlink(&here), nlink(&here.join("z"))), (3, 2));
        fs::remove_dir_all(&there).unwrap();
    }
}

#[test]
fn a_name_that_becomes_something_else() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "n") {
        fs::write(&there, "file").unwrap();
        assert!(fs::symlink_metadata(&here).unwrap().is_file());
        fs::remove_file(&there).unwrap();
        fs::create_dir(&there).unwrap();
        assert!(fs::symlink_metadata(&here).unwrap().is_dir());
        fs::remove_dir(&there).unwrap();
        symlink("first", &there).unwrap();
        assert_eq!(fs::read_link(&here).unwrap().as_os_str(), "first");
        fs::remove_file(&there).unwrap();
        symlink("second", &there).unwrap();
        assert_eq!(fs::read_link(&here).unwrap().as_os_str(), "second");
        fs::remove_file(&there).unwrap();
        for n in 0..20 {
            fs::write(&there, format!("version {n}")).unwrap();
            assert_eq!(fs::read_to_string(&here).unwrap(), format!("version {n}"));
            fs::remove_file(&there).unwrap();
        }
    }
}

#[test]
fn attributes_change_at_once() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let kept = File::open(&here).unwrap();
        for bits in [0o600, 0o4755, 0o000, 0o644] {
            fs::set_permissions(&there, PermissionsExt::from_mode(bits)).unwrap();
            assert_eq!((mode(&here), kept.metadata().unwrap().mode() & 0o7777), (bits, bits));
        }
        for id in [1, 70_000, 0] {
            chown(&there, Some(id), Some(id + 1)).unwrap();
            let found = fs::metadata(&here).unwrap();
            assert_eq!((found.uid(), found.gid(), kept.metadata().unwrap().uid()), (id, id + 1, id));
        }
        fs::hard_link(&there, there.with_extension("link")).unwrap();
        assert_eq!((nlink(&here), kept.metadata().unwrap().nlink()), (2, 2));
        fs::remove_file(there.with_extension("link")).unwrap();
        assert_eq!(kept.metadata().unwrap().nlink(), 1);
        for seconds in [1_000_000, 2_000_000] {
            let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 77);
            File::options().write(true).open(&there).unwrap().set_modified(time).unwrap();
            assert_eq!(
                (mtime(&here), kept.metadata().unwrap().mtime()),
                ((seconds as i64, 77), seconds as i64)
            );
        }
        assert_eq!(ctime(&here), ctime(&there));
        assert_eq!(fs::metadata(&here).unwrap().ino(), fs::metadata(&there).unwrap().ino());
        fs::remove_file(&there).unwrap();
    }
}

#[test]
fn rights_taken_away_by_one_are_gone_at_the_other() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        fs::create_dir(&there).unwrap();
        fs::write(there.join("f"), "x").unwrap();
        let set = |path: &Path, bits| fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
        for _ in 0..5 {
            set(&there.join("f"), 0o644);
            set(&there, 0o755);
            run_as(ANN, || drop(fs::read(here.join("f")).unwrap()));
            set(&there.join("f"), 0o600);
            run_as(ANN, || assert_eq!(fails(File::open(here.join("f"))), Errno::ACCESS));
            set(&there.join("f"), 0o644);
            run_as(ANN, || drop(fs::read(here.join("f")).unwrap()));
            set(&there, 0o700);
            run_as(ANN, || assert_eq!(fails(fs::metadata(here.join("f"))), Errno::ACCESS));
        }
        fs::remove_dir_all(&there).unwrap();
    }
}

/// The kernel keeps attributes of directories while nobody else changes them; by descriptor it asks for no name, whose
/// answer would bring new ones.
#[test]
fn what_is_kept_of_a_directory_goes_when_it_changes() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        fs::create_dir_all(there.join("sub")).unwrap();
        let (sub, seen) = (there.join("sub"), here.join("sub"));
        let dir = File::open(&seen).unwrap();
        let look = || dir.metadata().unwrap();
        let deadline = Instant::now() + SHOWING;
        for round in 0u32.. {
            if Instant::now() > deadline {
                break;
            }
            // Looked at often enough to be leased and kept. After a change by the other the MDT gives no lease for a second:
            // now and then the looks are spread over more than that, a millisecond apart.
            for _ in 0..if round % 10 == 0 { 1200 } else { round % 7 * 3 } {
                look();
                std::thread::sleep(Duration::from_millis(u64::from(round % 10 == 0)));
            }
            match round % 4 {
                0 => {
                    let wanted = 0o700 + round / 4 % 0o77;
                    fs::set_permissions(&sub, fs::Permissions::from_mode(wanted)).unwrap();
                    assert_eq!(look().mode() & 0o7777, wanted);
                }
                1 => {
                    fs::create_dir(sub.join("d")).unwrap();
                    assert_eq!(look().nlink(), 3);
                }
                2 => {
                    fs::remove_dir(sub.join("d")).unwrap();
                    assert_eq!((look().nlink(), nlink(&sub)), (2, 2));
                }
                _ => {
                    fs::write(seen.join("f"), "").unwrap();
                    assert_eq!((look().mtime(), look().mtime_nsec()), (times(&sub).0, times(&sub).1));
                    let before = mtime(&sub);
                    fs::remove_file(sub.join("f")).unwrap();
                    assert_eq!((look().mtime(), look().mtime_nsec()), (times(&sub).0, times(&sub).1));
                    assert!(mtime(&sub) > before);
                }
            }
        }
        fs::remove_dir_all(&there).unwrap();
    }
}

/// The kernel keeps names for a tick where they are asked for again and again. A client that moves their
/// target waits until they have run out.
fn is_elsewhere_as_soon_as_it_was_moved(area: &Area, name: &str, below: &str) {
    for (there, here) in both_ways(area, name) {
        let place = |above: &Path, n: u64| above.join(format!("x{}", n % 2));
        fs::create_dir(&there).unwrap();
        if below.is_empty() {
            fs::write(place(&there, 0), "").unwrap();
        } else {
            fs::create_dir(place(&there, 0)).unwrap();
            fs::write(place(&there, 0).join(below), "").unwrap();
        }
        let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        // `join` of nothing would add a slash.
        let path = |n| if below.is_empty() { place(&here, n) } else { place(&here, n).join(below) };
        let walk = || {
            while !stop.load(Ordering::SeqCst) {
                let moved = done.load(Ordering::SeqCst);
                let look = |n| {
                    let path = path(n);
                    (fs::symlink_metadata(&path).is_ok(), getxattr(&path, "user.none", &mut [0u8; 8]))
                };
                let (before, now) = (look(moved + 1), look(moved));
                if begun.load(Ordering::SeqCst) == moved {
                    assert_eq!(before, (false, Err(Errno::NOENT)), "after {moved} moves");
                    assert_eq!(now, (true, Err(Errno::NODATA)), "after {moved} moves");
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(walk);
            scope.spawn(walk);
            for n in 0..MOVES {
                // The lease is given back meanwhile.
                std::thread::sleep(BETWEEN_MOVES);
                begun.store(n + 1, Ordering::SeqCst);
                fs::rename(place(&there, n), place(&there, n + 1)).unwrap();
                done.store(n + 1, Ordering::SeqCst);
            }
            stop.store(true, Ordering::SeqCst);
        });
        fs::remove_dir_all(&there).unwrap();
    }
}

#[test]
fn a_directory_that_is_walked_through_is_elsewhere_as_soon_as_it_was_moved() {
    is_elsewhere_as_soon_as_it_was_moved(&Area::on_two_mounts(), "dir", "f");
}

#[test]
fn a_file_that_is_listed_again_and_again_is_elsewhere_as_soon_as_it_was_moved() {
    is_elsewhere_as_soon_as_it_was_moved(&Area::on_two_mounts(), "dir", "");
}

/// A client that moves a name takes its kernel's cached entries along, into a directory that the other client
/// may change without asking.
#[test]
fn what_is_moved_into_a_directory_of_nobody_and_replaced_there_is_seen_at_once() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "d") {
        fs::create_dir(&there).unwrap();
        for n in 0..MOVES {
            let [from, to] = ["from", "to"].map(|dir| format!("{dir}{n}"));
            fs::create_dir(here.join(&from)).unwrap();
            fs::create_dir(here.join(&to)).unwrap();
            let (old, new) = (here.join(&from).join("f"), there.join(format!("new{n}")));
            fs::write(&old, "").unwrap();
            fs::write(&new, "new").unwrap();
            // Changed by both in turns, so that neither has its lease.
            for (mount, name) in [(&there, "a"), (&here, "b"), (&there, "c")] {
                fs::write(mount.join(&to).join(name), "").unwrap();
            }
            look_closely(&old);
            fs::rename(&old, here.join(&to).join("f")).unwrap();
            fs::rename(&new, there.join(&to).join("f")).unwrap();
            assert_eq!(fs::symlink_metadata(here.join(&to).join("f")).unwrap().len(), 3, "round {n}");
        }
        fs::remove_dir_all(&there).unwrap();
    }
}

/// Looks at a path as `ls -l` does: then the kernel keeps the name for a moment. (Programs that want the
/// birth time ask for that as well.)
fn look_closely(path: &Path) {
    assert_eq!(getxattr(path, "user.none", &mut [0u8; 8]), Err(Errno::NODATA));
    lstat(path).unwrap();
}

/// Makes a file that nobody has open, so that a lease covers it.
fn make(path: &Path) {
    mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// Longer than any of them needs.
const LOOKING_MAX: Duration = Duration::from_secs(20);

/// A thread that has looked at a file may not ask for anything for a long time.
#[test]
fn a_move_to_another_directory_waits_for_nobody_who_has_looked_and_gone_on() {
    let area = Area::on_two_mounts();
    let [from, to] = ["from", "to"].map(|name| area.at(name));
    for dir in [&from, &to] {
        fs::create_dir(dir).unwrap();
    }
    let moved = |name: &str| {
        let since = Instant::now();
        fs::rename(from.join(name), to.join(name)).unwrap();
        // The mount would count on two seconds.
        assert!(since.elapsed() < Duration::from_secs(1), "{name}: {:?}", since.elapsed());
    };
    for n in 0..20 {
        let [asleep, other] = ["asleep", "other"].map(|name| format!("{name}{n}"));
        for name in [&asleep, &other] {
            make(&from.join(name));
        }
        let (tell, told) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (is_over, from, name) = (&is_over, &from, &asleep);
            let sleeper = scope.spawn(move || {
                look_closely(&from.join(name));
                tell.send(()).unwrap();
                thread::park_timeout(LOOKING_MAX);
            });
            told.recv().unwrap();
            moved(&asleep);
            let (tell, told) = mpsc::channel();
            make(&from.join(name));
            scope.spawn(move || {
                look_closely(&from.join(name));
                tell.send(()).unwrap();
                // The thread only computes.
                let since = Instant::now();
                while !is_over.load(Ordering::Relaxed) && since.elapsed() < LOOKING_MAX {
                    std::hint::spin_loop();
                }
            });
            told.recv().unwrap();
            moved(&other);
            is_over.store(true, Ordering::Relaxed);
            sleeper.thread().unpark();
        });
    }
}

/// The other client makes the change, which first takes back the names that this client may keep.
#[test]
fn a_change_waits_for_nobody_who_has_looked_at_what_is_gone() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "dir") {
        for n in 0..3 {
            fs::create_dir(&here).unwrap();
            let file = here.join("f");
            make(&file);
            let (tell, told) = mpsc::channel();
            thread::scope(|scope| {
                let path = &file;
                let sleeper = scope.spawn(move || {
                    lstat(path).unwrap();
                    tell.send(()).unwrap();
                    thread::park_timeout(LOOKING_MAX);
                });
                told.recv().unwrap();
                fs::remove_file(&file).unwrap();
                let since = Instant::now();
                fs::write(there.join("new"), "").unwrap();
                assert!(since.elapsed() < Duration::from_secs(1), "round {n}: {:?}", since.elapsed());
                sleeper.thread().unpark();
            });
            fs::remove_dir_all(&there).unwrap();
        }
    }
}

/// A client has a directory open that another one has moved: it sees the changes made by the new path.
#[test]
fn what_is_removed_by_the_new_path_of_a_directory_is_gone_from_the_old_one() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "d") {
        fs::create_dir(&there).unwrap();
        fs::create_dir(there.join("to")).unwrap();
        for n in 0..MOVES {
            let [old, new] = [format!("old{n}"), format!("to/new{n}")];
            fs::create_dir(here.join(&old)).unwrap();
            let dir = open(here.join(&old), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
            let by_old = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join("f");
            fs::write(&by_old, "").unwrap();
            fs::rename(there.join(&old), there.join(&new)).unwrap();
            // Again and again, so that it has a lease.
            for _ in 0..3 {
                look_closely(&by_old);
            }
            fs::remove_file(here.join(&new).join("f")).unwrap();
            missing(&by_old);
        }
        fs::remove_dir_all(&there).unwrap();
    }
}

#[test]
fn extended_attributes_of_an_open_file_are_those_that_it_has_now() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&here).unwrap();
        for n in 0..20u32 {
            let name = format!("user.a{n}");
            fchmod(&file, Mode::from_raw_mode(0o600 + (n & 1))).unwrap();
            setxattr(&there, &name, b"1", XattrFlags::empty()).unwrap();
            let mut list = [0u8; 1024];
            let len = flistxattr(&file, &mut list[..]).unwrap();
            let has = list[..len].split(|byte| *byte == 0).any(|listed| listed == name.as_bytes());
            assert!(has, "round {n}");
        }
        fs::remove_file(&there).unwrap();
    }
}

fn times(path: &Path) -> (i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.mtime(), meta.mtime_nsec())
}

#[test]
fn extended_attributes_change_at_once() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, "x").unwrap();
        let get = |name: &str| {
            let mut buf = [0u8; 64];
            getxattr(&here, name, &mut buf[..]).map(|len| buf[..len].to_vec())
        };
        for n in 0..20u8 {
            assert_eq!(fails(get("user.a")), Errno::NODATA);
            setxattr(&there, "user.a", &[n; 5], XattrFlags::empty()).unwrap();
            assert_eq!(get("user.a").unwrap(), [n; 5]);
            setxattr(&there, "user.a", &[n; 6], XattrFlags::REPLACE).unwrap();
            assert_eq!(get("user.a").unwrap(), [n; 6]);
            removexattr(&there, "user.a").unwrap();
        }
        // A list for others: the right it gives is there at once.
        fs::set_permissions(&there, PermissionsExt::from_mode(0o600)).unwrap();
        run_as(ANN, || assert_eq!(fails(File::open(&here)), Errno::ACCESS));
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, u32::MAX), (2, 4, ANN.uid), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            list.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        setxattr(&there, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
        run_as(ANN, || drop(fs::read(&here).unwrap()));
        removexattr(&there, "system.posix_acl_access").unwrap();
        run_as(ANN, || assert_eq!(fails(File::open(&here)), Errno::ACCESS));
        fs::remove_file(&there).unwrap();
    }
}

#[test]
fn times_agree_on_both() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let file = File::create(&there).unwrap();
        for n in 0..20 {
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", n * 1000).unwrap();
            assert_eq!((mtime(&there), ctime(&there)), (mtime(&here), ctime(&here)), "write {n}");
        }
        drop(file);
        assert_eq!(mtime(&there), mtime(&here));
        fs::remove_file(&there).unwrap();
        let dir = |path: &Path| mtime(path.parent().unwrap());
        assert_eq!(dir(&there), dir(&here));
    }
}
