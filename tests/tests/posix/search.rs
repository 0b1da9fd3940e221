//! Tests of `lfs find` and `brindle file du`, which ask the MDT: they find the same as find and du, which
//! walk the mount.
//!
//! On a local file system there is no MDT to ask, and the tests do nothing.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use brindle_tests::area::{Area, is_local};
use brindle_tests::child::output;
use brindle_tests::cluster::binary;
use brindle_tests::users::{ANN, BOB, run_as};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

/// Words that both commands understand, with units where their defaults differ.
const PREDICATES: &[&str] = &[
    "",
    "-name *.c",
    "-name file?[0-4]*",
    "-iname FILE*",
    "-name tree",
    "-type f",
    "-type d",
    "-type l",
    "-type f,l,p",
    "-size +4k",
    "-size -4k",
    "-size 1k",
    "-size +100c -size -70000c",
    "-size 0",
    "-mtime +3",
    "-mtime 3",
    "-mtime -3",
    "-mmin +60",
    "-uid 64001",
    "-user root",
    "-gid 64002",
    "-links 2",
    "-links +1 -type f",
    "-perm 600",
    "-perm -044",
    "-perm /111",
    "-maxdepth 0",
    "-maxdepth 1",
    "-mindepth 2 -maxdepth 2",
    "-mindepth 1 -name *e*",
    "! -type d",
    "! -name *.c -type f",
    "-type f -a ! -size -4k",
    "-name *.c -o -type l",
    "( -name *.c -o -name *.h ) -size +0",
    "-not ( -type f -o -type d )",
];

/// A tree with a bit of everything, whose root is named `tree`.
fn tree(area: &Area) -> PathBuf {
    let top = area.dir("tree", 0o755);
    for (dir, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/c", 0o711), ("e", 0o755), ("with space", 0o755)] {
        fs::create_dir(top.join(dir)).unwrap();
        fs::set_permissions(top.join(dir), PermissionsExt::from_mode(mode)).unwrap();
    }
    let sizes = [0, 1, 1000, 1024, 1025, 4096, 4097, 9000, 70_000, 1 << 20];
    for number in 0..120 {
        let dir = ["", "a", "a/b", "a/b/c", "with space"][number % 5];
        let suffix = [".c", ".h", ".C", "", "\n"][number % 7 % 5];
        let path = top.join(dir).join(format!("file{number}{suffix}"));
        fs::write(&path, vec![b'x'; sizes[number % sizes.len()]]).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode([0o644, 0o600, 0o755][number % 3])).unwrap();
        if number % 4 == 0 {
            chown(&path, Some(ANN.uid), Some(BOB.gid)).unwrap();
        }
        age(&path, number as i64 % 6);
        if number % 10 == 0 {
            fs::hard_link(&path, top.join(format!("a/link{number}.c"))).unwrap();
        }
    }
    symlink("nowhere", top.join("a/soft")).unwrap();
    rustix::fs::mknodat(CWD, top.join("fifo"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    top
}

/// Changed so many days and a half ago.
fn age(path: &Path, days: i64) {
    let now = fs::symlink_metadata(path).unwrap();
    let secs = std::os::unix::fs::MetadataExt::mtime(&now) - days * 86_400 - 43_200;
    let time = Timespec { tv_sec: secs, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn sorted(bytes: &[u8], end: u8) -> Vec<String> {
    let mut lines: Vec<String> =
        bytes.split(|b| *b == end).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    lines.sort();
    lines
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace()
}

fn lfs_find(program: &Path, top: &Path, line: &str) -> Output {
    let mut command = Command::new(program);
    command.args(["lfs", "find"]).arg(top).args(words(line)).arg("-print0");
    output(&mut command).unwrap()
}

fn find(top: &Path, line: &str) -> Output {
    // An action binds like a predicate: everything before it goes into brackets, options stay in front.
    let (options, tests): (Vec<&str>, Vec<&str>) = split_options(line);
    let mut command = Command::new("find");
    command.arg(top).args(options);
    if !tests.is_empty() {
        command.arg("(").args(tests).arg(")");
    }
    output(command.arg("-print0")).unwrap()
}

fn split_options(line: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut options, mut tests) = (Vec::new(), Vec::new());
    let mut all = words(line);
    while let Some(word) = all.next() {
        if word.ends_with("depth") {
            options.extend([Some(word), all.next()].into_iter().flatten());
        } else {
            tests.push(word);
        }
    }
    (options, tests)
}

fn same(program: &Path, top: &Path, line: &str) {
    let (asked, walked) = (lfs_find(program, top, line), find(top, line));
    assert_eq!(asked.status.success(), walked.status.success(), "{line}: {asked:?}");
    assert_eq!(sorted(&asked.stdout, 0), sorted(&walked.stdout, 0), "{line}");
}

#[test]
fn lfs_find_finds_what_find_finds() {
    if is_local() {
        return;
    }
    let area = Area::new();
    let top = tree(&area);
    for line in PREDICATES {
        same(&binary(), &top, line);
    }
    same(&binary(), &top, &format!("-newer {}", top.join("a/b/file7.c").display()));
    same(&binary(), &top.join("a/"), "-name *.c");
    same(&binary(), &top.join("fifo"), "-type p");
    let nowhere = lfs_find(&binary(), &top.join("nowhere"), "");
    assert_eq!((nowhere.status.code(), nowhere.stdout.len()), (Some(3), 0), "{nowhere:?}");
}

#[test]
fn lfs_find_shows_a_user_no_more_than_find() {
    if is_local() {
        return;
    }
    let area = Area::new();
    let top = tree(&area);
    let chmod =
        |name: &str, mode| fs::set_permissions(top.join(name), PermissionsExt::from_mode(mode)).unwrap();
    chmod("a/b", 0o700);
    chmod("with space", 0o750);
    chown(top.join("with space"), None, Some(64_101)).unwrap();
    // The directory is one in which every user may run the program.
    let dir = tempfile::Builder::new()
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .unwrap();
    let program = dir.path().join("brindle");
    fs::copy(binary(), &program).unwrap();
    for line in ["", "-type f", "-size +4k", "-name *.c"] {
        run_as(ANN, || same(&program, &top, line));
        run_as(BOB, || same(&program, &top, line));
    }
    let inner = run_as(BOB, || lfs_find(&program, &top.join("a/b/c"), ""));
    assert!(inner.stdout.is_empty() && !inner.status.success(), "{inner:?}");
}

#[test]
fn brindle_file_du_says_what_du_says() {
    if is_local() {
        return;
    }
    let area = Area::new();
    let top = tree(&area);
    for line in ["-s -B1", "-B1", "-s", "-h", "-B1 --max-depth=1", "-B1 -d 0"] {
        let run = |mut command: Command| output(command.args(words(line)).arg(&top)).unwrap();
        let walked = run(Command::new("du"));
        let mut ask = Command::new(binary());
        ask.args(["file", "du"]);
        let asked = run(ask);
        assert!(asked.status.success(), "{asked:?}");
        assert_eq!(sorted(&asked.stdout, b'\n'), sorted(&walked.stdout, b'\n'), "{line}");
    }
    // The order too: a directory after what is in it.
    let lines = output(Command::new(binary()).args(["file", "du"]).arg(&top)).unwrap().stdout;
    let last = lines.strip_suffix(b"\n").unwrap().rsplit(|b| *b == b'\n').next().unwrap().to_vec();
    assert!(last.ends_with(top.as_os_str().as_bytes()), "{}", String::from_utf8_lossy(&last));
}
