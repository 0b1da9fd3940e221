//! What Lustre's own tests of its HSM expect of `lfs` and an agent: flags of files that change, requests that have nothing to do or are
//! refused, what programs may do with a file that is just coming back, copies of files that are gone, records of the changelog.
//!
//! What differs, and why: docs/operations/tiering.md, *Beside Lustre's*.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use brindle_tests::cluster::{Cluster, Options, Output, binary};
use brindle_tests::users::{ANN, run_as};
use brindle_tests::{bytes, same_bytes};

use crate::dice::seed;
use crate::tiering::{
    ARCHIVED, Agent, FAST, RELEASED, SLOW, action, archive, find, release, state, text, wait,
};

const DIRTY: &str = "(0x0000000b) exists dirty archived, archive_id:1";
const NONE: &str = "(0x00000000)";
/// A record of a restore, of a release, of a removal, and of changed flags, in the changelog.
const RECORDS: [&str; 4] = ["0x80", "0x180", "0x200", "0x280"];

fn up(name: &str) -> Cluster {
    seed(name);
    Cluster::up(name, &Options { osts: 2, ..Options::default() })
}

fn file(cluster: &Cluster, name: &str, content: &[u8]) -> PathBuf {
    let path = cluster.a().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Whether `lfs` with these words does it for a user.
fn does_as_ann(words: &[&str]) -> bool {
    run_as(ANN, || {
        let lfs = Command::new(binary()).arg("lfs").args(words).stderr(Stdio::null()).status();
        lfs.unwrap().success()
    })
}

/// `lfs` with these words; whatever comes of it.
fn lfs(cluster: &Cluster, words: &[&str]) -> Output {
    cluster.brindle(&[&["lfs"], words].concat())
}

fn fid(cluster: &Cluster, path: &Path) -> String {
    cluster.lfs(&["path2fid", text(path)]).trim().to_owned()
}

fn copies(cluster: &Cluster, fid: &str) -> usize {
    find(&cluster.archive(), fid.trim_matches(['[', ']'])).len()
}

fn param(cluster: &Cluster, words: &[&str]) -> String {
    let dir = format!("--dir={}", cluster.dir().display());
    let done = cluster.brindle(&[&["lctl"], words, &[&dir]].concat());
    assert!(done.ok(), "{done}");
    done.text
}

#[test]
fn flags_follow_what_programs_do() {
    let cluster = up("hsm_flags");
    let _agent = Agent::start(&cluster, FAST);
    let path = file(&cluster, "f", &bytes(1, 5000));
    archive(&cluster, &path);
    // Neither attributes nor a read.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    std::os::unix::fs::chown(&path, Some(ANN.uid), Some(ANN.gid)).unwrap();
    drop(fs::read(&path).unwrap());
    assert_eq!(state(&cluster, &path), ARCHIVED);
    let changes: [(&str, fn(&Path)); 4] = [
        ("append", |path| File::options().append(true).open(path).unwrap().write_all(b"x").unwrap()),
        ("write", |path| File::options().write(true).open(path).unwrap().write_all_at(b"x", 7).unwrap()),
        ("empty", |path| drop(File::create(path).unwrap())),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(1).unwrap()),
    ];
    for (name, change) in changes {
        let path = file(&cluster, name, &bytes(2, 5000));
        archive(&cluster, &path);
        change(&path);
        assert_eq!(state(&cluster, &path), DIRTY, "{name}");
    }
    // Somebody else may write it, too.
    run_as(ANN, || fs::write(&path, "of another user").unwrap());
    assert_eq!(state(&cluster, &path), DIRTY);
    let restored = lfs(&cluster, &["hsm_restore", text(&path)]);
    assert!(!restored.ok() && restored.text.contains("newer than those of the copy"), "{restored}");
    archive(&cluster, &path);
    for (flag, value) in
        [("--norelease", "(0x00000019)"), ("--noarchive", "(0x00000029)"), ("--dirty", "(0x0000000b)")]
    {
        assert!(does_as_ann(&["hsm_set", flag, text(&path)]));
        assert!(state(&cluster, &path).starts_with(value), "{}", state(&cluster, &path));
        let released = lfs(&cluster, &["hsm_release", text(&path)]);
        assert!(flag == "--noarchive" || !released.ok(), "{flag}: {released}");
        if flag == "--noarchive" {
            drop(fs::read(&path).unwrap());
            wait("it came back", || state(&cluster, &path).starts_with(value));
        }
        assert!(does_as_ann(&["hsm_clear", flag, text(&path)]));
    }
    assert!(!does_as_ann(&["hsm_set", "--lost", text(&path)]), "root alone");
    assert!(lfs(&cluster, &["hsm_set", "--lost", text(&path)]).ok());
    assert!(!lfs(&cluster, &["hsm_release", text(&path)]).ok(), "its copy is lost");
    cluster.assert_sound();
}

#[test]
fn requests_without_work_leave_nothing_behind() {
    let cluster = up("hsm_requests");
    let agent = Agent::start(&cluster, FAST);
    let path = file(&cluster, "f", &bytes(3, 70_000));
    let actions = |word: &str| {
        let all = param(&cluster, &["get_param", "-n", "mdt.*.hsm.actions"]);
        let fid = fid(&cluster, &path);
        all.lines().filter(|line| line.contains(&fid) && line.contains(&format!("action={word}"))).count()
    };
    assert!(
        lfs(&cluster, &["hsm_cancel", text(&path)]).ok() && lfs(&cluster, &["hsm_restore", text(&path)]).ok()
    );
    assert_eq!((actions("CANCEL"), actions("RESTORE")), (0, 0));
    archive(&cluster, &path);
    assert!(
        lfs(&cluster, &["hsm_archive", text(&path)]).ok()
            && lfs(&cluster, &["hsm_restore", text(&path)]).ok()
    );
    assert_eq!((actions("ARCHIVE"), actions("RESTORE")), (1, 0), "it is archived, and here");
    let before = path.metadata().unwrap();
    release(&cluster, &path);
    assert!(lfs(&cluster, &["hsm_release", text(&path)]).ok(), "twice is as good as once");
    let after = path.metadata().unwrap();
    let of = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.atime(), m.atime_nsec());
    assert_eq!(of(&before), of(&after));
    let removed = lfs(&cluster, &["hsm_remove", text(&path)]);
    assert!(!removed.ok() && removed.text.contains("the only one"), "{removed}");
    // Sizes stay right over and over.
    for _ in 0..3 {
        assert!(lfs(&cluster, &["hsm_restore", text(&path)]).ok());
        wait("it is here", || state(&cluster, &path) == ARCHIVED);
        release(&cluster, &path);
        assert_eq!(cluster.b().join("f").metadata().unwrap().len(), 70_000);
    }
    // A move to other OSTs changes neither the copy nor the flags.
    drop(fs::read(&path).unwrap());
    wait("it is here", || state(&cluster, &path) == ARCHIVED);
    cluster.lfs(&["migrate", "-n", "-i", "1", text(&path)]);
    release(&cluster, &path);
    same_bytes(&fs::read(&path).unwrap(), &bytes(3, 70_000), "what was moved before it was released");
    // What is written or cut while it is being archived is no copy; attributes are no change.
    for (name, is_copy) in [("written", false), ("shortened", false), ("of-another", true)] {
        let path = file(&cluster, name, &bytes(4, 3 << 20));
        agent.signal(libc::SIGSTOP);
        cluster.lfs(&["hsm_archive", text(&path)]);
        match name {
            "written" => File::options().append(true).open(&path).unwrap().write_all(b"foo").unwrap(),
            "shortened" => File::options().write(true).open(&path).unwrap().set_len(1024).unwrap(),
            _ => std::os::unix::fs::chown(&path, Some(ANN.uid), None).unwrap(),
        }
        agent.signal(libc::SIGCONT);
        wait("the action ends", || action(&cluster, &path) == "NOOP");
        if is_copy {
            assert_eq!(state(&cluster, &path), ARCHIVED);
        } else {
            assert!(!lfs(&cluster, &["hsm_release", text(&path)]).ok(), "{name}");
        }
    }
    // Cut short of its middle, longer, or empty: what was released is right afterwards.
    for len in [0, 35_000, 140_000] {
        let path = file(&cluster, &format!("to-{len}"), &bytes(5, 70_000));
        archive(&cluster, &path);
        release(&cluster, &path);
        File::options().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
        let mut wanted = bytes(5, 70_000);
        wanted.resize(len, 0);
        same_bytes(
            &fs::read(cluster.b().join(format!("to-{len}"))).unwrap(),
            &wanted,
            "a released file that was cut",
        );
        assert_eq!(state(&cluster, &path), DIRTY);
    }
    cluster.assert_sound();
}

/// A program that reads a file.
fn reader(path: &Path) -> Child {
    Command::new("md5sum").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn programs_do_as_they_like_with_a_file_that_comes_back() {
    let cluster = up("hsm_meanwhile");
    let agent = Agent::start(&cluster, SLOW);
    let content = bytes(6, 200_000);
    for name in ["killed", "removed", "replaced", "renamed"] {
        let path = file(&cluster, name, &content);
        archive(&cluster, &path);
        release(&cluster, &path);
        agent.signal(libc::SIGSTOP);
        let mut reads = reader(&path);
        wait("somebody waits for it", || action(&cluster, &path) != "NOOP");
        match name {
            "killed" => reads.kill().unwrap(),
            "removed" => fs::remove_file(&path).unwrap(),
            "replaced" => fs::rename(file(&cluster, "new", b"new"), &path).unwrap(),
            _ => fs::rename(&path, cluster.a().join("renamed.new")).unwrap(),
        }
        if name == "killed" {
            // It goes before the agent goes on.
            reads.wait().unwrap();
        }
        agent.signal(libc::SIGCONT);
        let ended = reads.wait().unwrap();
        assert_eq!(ended.success(), name != "killed", "{name}: {ended}");
        match name {
            "removed" => assert!(!path.exists()),
            "replaced" => assert_eq!(fs::read(&path).unwrap(), b"new"),
            "renamed" => same_bytes(&fs::read(cluster.a().join("renamed.new")).unwrap(), &content, "renamed"),
            _ => same_bytes(&fs::read(&path).unwrap(), &content, "read again"),
        }
    }
    // A program that is released is run; sizes are right for those who look while it comes back.
    let program = cluster.a().join("true");
    fs::copy("/bin/true", &program).unwrap();
    archive(&cluster, &program);
    release(&cluster, &program);
    assert!(Command::new(&program).status().unwrap().success());
    wait("it is here", || state(&cluster, &program) == ARCHIVED);
    let long = file(&cluster, "long", &bytes(7, 9 << 20));
    archive(&cluster, &long);
    release(&cluster, &long);
    let mut reads = reader(&long);
    while reads.try_wait().unwrap().is_none() {
        assert_eq!(cluster.b().join("long").metadata().unwrap().len(), 9 << 20);
    }
    wait("it is here", || state(&cluster, &long) == ARCHIVED);
    // An append to a released file, and its size as the other mount sees it.
    release(&cluster, &long);
    File::options().append(true).mode(0o644).open(&long).unwrap().write_all(b"wwww").unwrap();
    assert_eq!(cluster.b().join("long").metadata().unwrap().len(), (9 << 20) + 4);
    cluster.assert_sound();
}

#[test]
fn copies_of_files_that_are_gone_are_removed_when_somebody_asks() {
    let cluster = up("hsm_gone");
    let _agent = Agent::start(&cluster, FAST);
    let files: Vec<(PathBuf, String)> = (0..4)
        .map(|n| {
            let path = file(&cluster, &format!("f{n}"), &bytes(n, 9000));
            archive(&cluster, &path);
            let fid = fid(&cluster, &path);
            assert!(copies(&cluster, &fid) > 0);
            (path, fid)
        })
        .collect();
    // The removal waits; then the file goes.
    param(&cluster, &["set_param", "mdt.*.hsm_control=disabled"]);
    cluster.lfs(&["hsm_remove", text(&files[0].0)]);
    fs::remove_file(&files[0].0).unwrap();
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    param(&cluster, &["set_param", "mdt.*.hsm_control=enabled"]);
    wait("its copy is removed", || copies(&cluster, &files[0].1) == 0);
    // By its FID, and by a list of FIDs.
    for (path, _) in &files[1..] {
        fs::remove_file(path).unwrap();
    }
    let mount = text(cluster.a());
    let remove = |words: &[&str]| lfs(&cluster, &[&["hsm_remove", "-m", mount], words].concat());
    assert!(remove(&["-a", "1", &files[1].1]).ok());
    wait("its copy is removed", || copies(&cluster, &files[1].1) == 0);
    let list = cluster.outside().join("list");
    fs::write(&list, format!("{}\n{}\n", files[2].1, files[3].1)).unwrap();
    assert!(remove(&["-a", "1", "--filelist", text(&list)]).ok());
    wait("their copies are removed", || files.iter().all(|(_, fid)| copies(&cluster, fid) == 0));
    // What cannot be meant, and who may not.
    for words in [
        &["-a", "33", &files[1].1][..],
        &["-a", "0", &files[1].1],
        &[&files[1].1],
        &["-a", "1", "/qwerty/uyt"],
        &["-a", "1", "[0x1:0x2:0x3]"],
    ] {
        let refused = remove(words);
        assert!(!refused.ok() && refused.text.contains("error:"), "{words:?}: {refused}");
    }
    let kept = file(&cluster, "kept", b"kept");
    archive(&cluster, &kept);
    let kept_fid = fid(&cluster, &kept);
    assert!(!remove(&["-a", "2", &kept_fid]).ok(), "its copy lies elsewhere");
    for fid in [&kept_fid, &files[1].1] {
        assert!(!does_as_ann(&["hsm_remove", "-m", mount, "-a", "1", fid]), "root alone");
    }
    assert_eq!(state(&cluster, &kept), ARCHIVED);
    cluster.assert_sound();
}

#[test]
fn the_changelog_tells_of_copies() {
    let cluster = up("hsm_records");
    let _agent = Agent::start(&cluster, FAST);
    let dir = format!("--dir={}", cluster.dir().display());
    let lctl = |words: &[&str]| {
        let done = cluster.brindle(&[&["lctl", "--device", "dev-MDT0000"], words, &[&dir]].concat());
        assert!(done.ok(), "{done}");
    };
    lctl(&["changelog_register"]);
    let path = file(&cluster, "f", &bytes(8, 9000));
    archive(&cluster, &path);
    release(&cluster, &path);
    drop(fs::read(&path).unwrap());
    wait("it is here", || state(&cluster, &path) == ARCHIVED);
    cluster.lfs(&["hsm_remove", text(&path)]);
    wait("its copy is gone", || state(&cluster, &path) == NONE);
    cluster.lfs(&["hsm_set", "--norelease", text(&path)]);
    let listed = cluster.brindle(&["lfs", "changelog", "dev-MDT0000", &dir]);
    let fid = fid(&cluster, &path);
    let flags: Vec<&str> = listed
        .text
        .lines()
        .filter(|line| line.contains("16HSM") && line.contains(&fid))
        .filter_map(|line| line.split_whitespace().nth(4))
        .collect();
    assert_eq!(flags.first(), Some(&"0x0"), "it was archived: {listed}");
    for wanted in RECORDS {
        assert!(flags.contains(&wanted), "{wanted} of {flags:?}");
    }
    assert_ne!(state(&cluster, &path), RELEASED);
    cluster.assert_sound();
}
