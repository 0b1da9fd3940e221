//! Tiering on real mounts: files go to an archive, are released and come back with the same bytes; agents and the MDT die in the middle of
//! an action; copies are damaged. No bytes are lost, doubled or made up.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::users::{ANN, BOB, run_as};
use brindle_tests::{bytes, same_bytes};

use crate::dice::seed;

/// An agent that was killed loses its work when its lease of 10 s is over; three times slack and more.
const DONE_WITHIN: Duration = Duration::from_secs(45);
/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Long enough at 4 MB a second to be in the middle of it.
pub const LONG_BYTES: usize = 24 << 20;
pub const ARCHIVED: &str = "(0x00000009) exists archived, archive_id:1";
pub const RELEASED: &str = "(0x0000000d) released exists archived, archive_id:1";

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

pub fn state(cluster: &Cluster, path: &Path) -> String {
    let line = cluster.lfs(&["hsm_state", text(path)]);
    line.trim().strip_prefix(&format!("{}: ", path.display())).expect("the path stands in front").to_owned()
}

pub fn action(cluster: &Cluster, path: &Path) -> String {
    let line = cluster.lfs(&["hsm_action", text(path)]);
    line.trim().strip_prefix(&format!("{}: ", path.display())).expect("the path stands in front").to_owned()
}

pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < DONE_WITHIN, "this does not happen: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

pub fn archive(cluster: &Cluster, path: &Path) {
    cluster.lfs(&["hsm_archive", "--archive", "1", text(path)]);
    wait("a file is archived", || state(cluster, path) == ARCHIVED);
}

pub fn release(cluster: &Cluster, path: &Path) {
    cluster.lfs(&["hsm_release", text(path)]);
    assert_eq!(state(cluster, path), RELEASED);
}

/// Files of every kind: in the MDT, of odd length, with holes in front, in the middle and behind.
pub fn make_files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for (name, len) in [("small", 10), ("inline", 8192), ("odd", (3 << 20) + 17), ("striped", 9 << 20)] {
        let (path, data) = (dir.join(name), bytes(len as u64, len));
        fs::write(&path, &data).unwrap();
        files.push((path, data));
    }
    let (path, mut data) = (dir.join("holes"), vec![0; 20 << 20]);
    let file = File::create(&path).unwrap();
    let island = bytes(5, 5000);
    file.write_all_at(&island, 7 << 20).unwrap();
    file.set_len(data.len() as u64).unwrap();
    data[7 << 20..(7 << 20) + 5000].copy_from_slice(&island);
    files.push((path, data));
    files
}

#[test]
fn files_go_to_the_archive_and_come_back_the_same() {
    seed("tiering");
    let options = Options { osts: 2, archive: true, ..Options::default() };
    let cluster = Cluster::up("tiering", &options);
    let files = make_files(cluster.a());
    let before: Vec<_> = files.iter().map(|(path, _)| path.metadata().unwrap()).collect();
    for (path, _) in &files {
        assert_eq!(state(&cluster, path), "(0x00000000)");
        archive(&cluster, path);
        assert_eq!(action(&cluster, path), "NOOP");
    }
    for ((path, _), before) in files.iter().zip(&before) {
        release(&cluster, path);
        let after = cluster.b().join(path.file_name().unwrap()).metadata().unwrap();
        assert_eq!((after.len(), after.blocks()), (before.len(), 1), "{}", path.display());
        assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
    }
    // The copies are where Lustre's tool has them, with the path beside.
    let odd = cluster.archive().join("shadow/odd");
    same_bytes(&fs::read(odd).unwrap(), &files[2].1, "the archive's copy");
    // A backup of released files takes none of them for holes.
    let backup = cluster.outside().join("backup.tar");
    let args = ["--sparse", "-cf", text(&backup), "-C", text(cluster.b()), "small", "odd", "holes"];
    let tar = Command::new("tar").args(args).status().unwrap();
    assert!(tar.success());
    let unpacked = cluster.outside().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let tar = Command::new("tar").args(["-xf", text(&backup), "-C", text(&unpacked)]).status().unwrap();
    assert!(tar.success());
    let copied = unpacked.join("striped");
    let cp = Command::new("cp").args(["--sparse=always", text(&files[3].0), text(&copied)]).status().unwrap();
    assert!(cp.success());
    for (path, data) in files.iter().filter(|(path, _)| !path.ends_with("inline")) {
        let copy = unpacked.join(path.file_name().unwrap());
        same_bytes(&fs::read(copy).unwrap(), data, "a backup of a released file");
        wait("it came back, and is as it was archived", || state(&cluster, path) == ARCHIVED);
    }
    // A partial truncate brings back what stays; a full one nothing.
    let inline = &files[1].0;
    let name = std::ffi::CString::new(text(inline)).unwrap();
    // SAFETY: the name is a string that lives as long as the call.
    assert_eq!(unsafe { libc::truncate(name.as_ptr(), 100) }, 0);
    let there = fs::read(cluster.b().join("inline")).unwrap();
    same_bytes(&there, &files[1].1[..100], "a released file that was cut");
    release(&cluster, &files[0].0);
    fs::write(cluster.b().join("small"), "new").unwrap();
    assert_eq!(fs::read(&files[0].0).unwrap(), b"new");
    users_and_damage(&cluster, &files[2]);
    cluster.assert_sound();
}

/// Rights, and a copy that is not what it was.
fn users_and_damage(cluster: &Cluster, (path, data): &(PathBuf, Vec<u8>)) {
    std::os::unix::fs::chown(path, Some(ANN.uid), Some(ANN.gid)).unwrap();
    let try_as = |user, verb: &str| {
        run_as(user, || {
            let args = ["lfs", verb, text(path)];
            Command::new(binary()).args(args).stderr(Stdio::null()).status().unwrap().success()
        })
    };
    assert!(!try_as(BOB, "hsm_release"), "it is not his");
    assert!(try_as(ANN, "hsm_release"));
    assert!(!try_as(ANN, "hsm_remove"), "the copy is the only one");
    let fid = cluster.lfs(&["path2fid", text(path)]);
    let fid = fid.trim().trim_matches(['[', ']']).to_owned();
    let copies = find(&cluster.archive(), &fid);
    assert_eq!(copies.len(), 2, "two names of one copy: {copies:?}");
    let file = File::options().write(true).open(&copies[0]).unwrap();
    file.write_all_at(b"X", 1 << 20).unwrap();
    let failed = fs::read(path).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EIO), "nothing of it is returned");
    assert_eq!(state(cluster, path), RELEASED);
    let status = cluster.brindle(&["hsm", "status", text(cluster.a())]);
    assert!(status.text.contains("checksum"), "it says why: {status}");
    file.write_all_at(&data[1 << 20..=1 << 20], 1 << 20).unwrap();
    same_bytes(&fs::read(path).unwrap(), data, "the copy is good again");
}

/// Files below a directory whose names begin with this; without manifests.
pub fn find(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(find(&entry.path(), name));
        } else if kind.is_file()
            && entry.file_name().to_str().is_some_and(|n| n.starts_with(name) && !n.ends_with(".json"))
        {
            found.push(entry.path());
        }
    }
    found
}

/// An agent beside the cluster; killed when it goes.
pub struct Agent(Child);

impl Agent {
    pub fn start(cluster: &Cluster, bytes_per_sec: u64) -> Agent {
        fs::create_dir_all(cluster.archive()).unwrap();
        let backend = format!("--backend=posix:{}", cluster.archive().display());
        Agent::start_with(cluster, bytes_per_sec, &[backend])
    }

    pub fn start_with(cluster: &Cluster, bytes_per_sec: u64, backend: &[String]) -> Agent {
        let log = format!("--log={}", cluster.outside().join("agent.log").display());
        let pace = format!("--bandwidth={bytes_per_sec}");
        let args = ["agent", "--archive=1", &pace, &log, text(cluster.a())];
        let child = Command::new(binary()).args(args).args(backend).stdin(Stdio::null()).spawn().unwrap();
        Agent(child)
    }
}

impl Agent {
    /// Stops the process where it is, or lets it go on: SIGSTOP, SIGCONT.
    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.0.id()).expect("a process number");
        // SAFETY: the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub const SLOW: u64 = 4 << 20;
pub const FAST: u64 = 1 << 30;

#[test]
fn agents_and_the_mdt_die_in_the_middle_and_nothing_is_lost() {
    seed("tiering_kill");
    let cluster = Cluster::up("tiering_kill", &Options { osts: 2, ..Options::default() });
    let (path, data) = (cluster.a().join("long"), bytes(7, LONG_BYTES));
    fs::write(&path, &data).unwrap();
    let is_moving =
        || action(&cluster, &path).contains("running (") && !action(&cluster, &path).contains("(0 bytes");
    // Killed while it archives.
    let slow = Agent::start(&cluster, SLOW);
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("it is being archived", is_moving);
    drop(slow);
    assert_eq!(state(&cluster, &path), "(0x00000000)");
    let fast = Agent::start(&cluster, FAST);
    wait("another agent archives it", || state(&cluster, &path) == ARCHIVED);
    drop(fast);
    let fid = cluster.lfs(&["path2fid", text(&path)]);
    let copies = find(&cluster.archive(), fid.trim().trim_matches(['[', ']']));
    assert_eq!(copies.len(), 2, "what the killed one left is gone: {copies:?}");
    // Killed while it restores, with a reader that waits for it, and the MDT with it.
    release(&cluster, &path);
    let slow = Agent::start(&cluster, SLOW);
    let read = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    wait("it is being restored", is_moving);
    let other = cluster.b().join("other");
    fs::write(&other, "other files are not held up").unwrap();
    drop(slow);
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    assert!(state(&cluster, &path).starts_with("(0x0000000d)"), "released until all of it is here");
    let _fast = Agent::start(&cluster, FAST);
    same_bytes(&read.join().unwrap(), &data, "what the reader waited for");
    wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
    cluster.assert_sound();
}

#[test]
fn a_file_that_is_written_meanwhile_is_not_archived() {
    seed("tiering_write");
    let cluster = Cluster::up("tiering_write", &Options { osts: 2, ..Options::default() });
    let (path, data) = (cluster.a().join("f"), bytes(8, LONG_BYTES));
    fs::write(&path, &data).unwrap();
    let _slow = Agent::start(&cluster, 2 * SLOW);
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("it is being archived", || action(&cluster, &path).contains("running"));
    let file = File::options().write(true).open(cluster.b().join("f")).unwrap();
    file.write_all_at(b"changed", 5).unwrap();
    drop(file);
    wait("the action ends", || action(&cluster, &path) == "NOOP");
    assert_eq!(state(&cluster, &path), "(0x00000000)");
    let refused = cluster.brindle(&["lfs", "hsm_release", text(&path)]);
    assert!(!refused.ok() && refused.text.contains("not archived"), "{refused}");
    assert_eq!(&fs::read(&path).unwrap()[..12], [&data[..5], b"changed"].concat());
    let params = cluster.brindle(&[
        "lctl",
        "get_param",
        "mdt.*.hsm.agents",
        &format!("--dir={}", cluster.dir().display()),
    ]);
    assert!(params.text.contains("archive_id=1 requests=[current:0 ok:0 errors:1]"), "{params}");
    cluster.assert_sound();
}
