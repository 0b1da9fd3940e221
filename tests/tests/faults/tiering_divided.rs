//! Long files that several agents share: each has a part in it, and whoever dies in the middle, no byte is lost, doubled or made up.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::s3::{SECRET_KEY, Server};
use brindle_tests::{bytes, same_bytes};
use serde_json::Value;

use crate::dice::seed;
use crate::tiering::{
    ARCHIVED, Agent, FAST, RELEASED, SLOW, action, archive, find, release, state, text, wait,
};

const MIB: usize = 1 << 20;
/// Files above this are divided in these clusters.
const DIVIDE_ABOVE: &str = "16MiB";
/// Twelve spans of an archive, and one that is shorter.
const SIZE_BYTES: usize = 96 * MIB + 12_345;

/// A cluster that divides files which are quick to copy, and the directory of the program that runs its commands, which has to outlive it.
fn up(name: &str) -> (tempfile::TempDir, Cluster) {
    seed(name);
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("brindle");
    let script =
        format!("#!/bin/sh\nBRINDLE_HSM_DIVIDE_ABOVE={DIVIDE_ABOVE} exec {} \"$@\"\n", binary().display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::up_by(&program, name, &Options { osts: 2, ..Options::default() });
    (dir, cluster)
}

/// Shares of agents in the action that was last on a file, in bytes.
fn shares(cluster: &Cluster, kind: &str) -> Vec<u64> {
    let out = cluster.brindle(&["hsm", "status", "-o", "json", text(cluster.a())]);
    let status: Value = serde_json::from_str(&out.text).unwrap_or_else(|e| panic!("{e}: {out}"));
    let divided = status["mdts"][0]["divided"].as_array().expect("a list");
    let last = divided.iter().rfind(|file| file["action"] == kind);
    let shares = last.and_then(|file| file["shares"].as_array()).cloned().unwrap_or_default();
    shares.iter().map(|share| share["moved_bytes"].as_u64().expect("a number")).collect()
}

/// Whether several agents have finished something of the file.
fn are_sharing(cluster: &Cluster, path: &Path, kind: &str, agents: usize) -> bool {
    action(cluster, path).contains("running") && shares(cluster, kind).len() >= agents
}

fn make(cluster: &Cluster) -> (PathBuf, Vec<u8>) {
    let (path, mut data) = (cluster.a().join("long"), bytes(23, SIZE_BYTES));
    // A hole in the middle, across spans.
    data[30 * MIB..50 * MIB].fill(0);
    let file = File::create(&path).unwrap();
    file.write_all_at(&data[..30 * MIB], 0).unwrap();
    file.write_all_at(&data[50 * MIB..], 50 * MIB as u64).unwrap();
    (path, data)
}

#[test]
fn three_agents_archive_and_restore_a_long_file_together() {
    let (_program, cluster) = up("tiering_divided");
    let (path, data) = make(&cluster);
    let agents: Vec<Agent> = (0..3).map(|_| Agent::start(&cluster, 2 * SLOW)).collect();
    wait("three agents work", || {
        cluster.brindle(&["hsm", "status", "-o", "json", text(cluster.a())]).text.matches("\"uuid\"").count()
            == 3
    });
    archive(&cluster, &path);
    let archived = shares(&cluster, "ARCHIVE");
    assert_eq!((archived.len(), archived.iter().sum()), (3, SIZE_BYTES as u64), "{archived:?}");
    assert!(archived.iter().all(|bytes| *bytes > 0), "{archived:?}");
    let fid = cluster.lfs(&["path2fid", text(&path)]);
    let copies = find(&cluster.archive(), fid.trim().trim_matches(['[', ']']));
    assert_eq!(copies.len(), 2, "two names of one copy: {copies:?}");
    same_bytes(&fs::read(&copies[0]).unwrap(), &data, "the copy");
    release(&cluster, &path);
    // The end first, and its reader does not wait for all of it.
    let file = File::open(cluster.b().join("long")).unwrap();
    let mut end = vec![0; MIB];
    file.read_exact_at(&mut end, (SIZE_BYTES - MIB) as u64).unwrap();
    same_bytes(&end, &data[SIZE_BYTES - MIB..], "the end of the file");
    assert_eq!(state(&cluster, &path), RELEASED, "most of it is still coming");
    same_bytes(&fs::read(&path).unwrap(), &data, "all of it");
    wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
    let restored = shares(&cluster, "RESTORE");
    assert_eq!((restored.len(), restored.iter().sum()), (3, SIZE_BYTES as u64), "{restored:?}");
    assert!(restored.iter().all(|bytes| *bytes > 0), "{restored:?}");
    same_bytes(&fs::read(cluster.b().join("long")).unwrap(), &data, "from the OSTs");
    drop(agents);
    cluster.assert_sound();
}

#[test]
fn agents_and_the_mdt_die_while_they_share_a_file_and_nothing_is_lost() {
    let (_program, cluster) = up("tiering_divided_kill");
    let (path, data) = make(&cluster);
    let start = || Agent::start(&cluster, SLOW);
    // A helper dies, then the MDT, then the agent that has the attempt: what is left goes on.
    let mut agents: Vec<Agent> = vec![start()];
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("the first agent has it", || action(&cluster, &path).contains("running"));
    agents.extend([start(), start()]);
    wait("three agents share it", || are_sharing(&cluster, &path, "ARCHIVE", 3));
    drop(agents.pop());
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    wait("it is archived without the dead one", || state(&cluster, &path) == ARCHIVED);
    let left = shares(&cluster, "ARCHIVE");
    assert!(!left.is_empty() && left.len() <= 3, "{left:?}");
    let fid = cluster.lfs(&["path2fid", text(&path)]);
    let copies = find(&cluster.archive(), fid.trim().trim_matches(['[', ']']));
    same_bytes(&fs::read(&copies[0]).unwrap(), &data, "the copy");
    // The agent that has the attempt dies while it restores; another one begins anew.
    release(&cluster, &path);
    agents.clear();
    agents.push(start());
    let read = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    wait("the first agent has it", || action(&cluster, &path).contains("running"));
    agents.extend([start(), start()]);
    wait("three agents share it", || are_sharing(&cluster, &path, "RESTORE", 3));
    drop(agents.remove(0));
    let _fast = Agent::start(&cluster, FAST);
    same_bytes(&read.join().unwrap(), &data, "what the reader waited for");
    wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
    same_bytes(&fs::read(cluster.b().join("long")).unwrap(), &data, "from the OSTs");
    cluster.assert_sound();
}

#[test]
fn an_agent_that_wakes_up_late_changes_nothing_of_a_copy_that_others_have_finished() {
    let (_program, cluster) = up("tiering_divided_late");
    let (path, data) = make(&cluster);
    let start = || Agent::start(&cluster, SLOW);
    let first = start();
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("the first agent has it", || action(&cluster, &path).contains("running"));
    let late = start();
    wait("both share it", || are_sharing(&cluster, &path, "ARCHIVE", 2));
    // Stopped with a span, or several: others copy them after its lease.
    late.signal(libc::SIGSTOP);
    wait("the other one archives all of it", || state(&cluster, &path) == ARCHIVED);
    let counted = shares(&cluster, "ARCHIVE");
    assert_eq!(counted.iter().sum::<u64>(), SIZE_BYTES as u64, "each span counts once: {counted:?}");
    let fid = cluster.lfs(&["path2fid", text(&path)]);
    let copy = find(&cluster.archive(), fid.trim().trim_matches(['[', ']'])).remove(0);
    let copied = || fs::read(&copy).unwrap();
    same_bytes(&copied(), &data, "the copy");
    drop(first);
    // A program writes the file, and only then the agent wakes up, with spans of the contents before.
    let file = File::options().write(true).open(cluster.b().join("long")).unwrap();
    for mib in 0..SIZE_BYTES / MIB {
        file.write_all_at(b"newer", (mib * MIB) as u64).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    late.signal(libc::SIGCONT);
    let other = cluster.a().join("other");
    fs::write(&other, bytes(5, 5000)).unwrap();
    archive(&cluster, &other);
    same_bytes(&copied(), &data, "the copy of the contents before, after the late agent has worked again");
    // And with nothing to share it archives the newer contents alone.
    archive(&cluster, &path);
    let newer = fs::read(&path).unwrap();
    let copies = find(&cluster.archive(), fid.trim().trim_matches(['[', ']']));
    same_bytes(&fs::read(&copies[0]).unwrap(), &newer, "the copy of the newer contents");
    drop(late);
    cluster.assert_sound();
}

#[test]
fn three_agents_upload_the_parts_of_one_object() {
    let (_program, cluster) = up("tiering_divided_s3");
    let server = Server::start(&cluster.outside().join("s3"));
    let arguments = server.arguments(&server.credentials("keys", SECRET_KEY));
    let (path, data) = make(&cluster);
    let start = || Agent::start_with(&cluster, SLOW, &arguments);
    let mut agents: Vec<Agent> = vec![start()];
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("the first agent has it", || action(&cluster, &path).contains("running"));
    agents.extend([start(), start()]);
    wait("three agents share it", || are_sharing(&cluster, &path, "ARCHIVE", 3));
    // A helper dies: others send its parts.
    drop(agents.pop());
    wait("it is archived", || state(&cluster, &path) == ARCHIVED);
    let objects: Vec<String> = server
        .keys()
        .into_iter()
        .filter(|key| Path::new(key).extension().is_some_and(|e| e == "data"))
        .collect();
    assert_eq!(objects.len(), 1, "{objects:?}");
    same_bytes(&server.get(&objects[0]), &data, "the object");
    release(&cluster, &path);
    same_bytes(&fs::read(cluster.b().join("long")).unwrap(), &data, "what came back");
    wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
    let restored = shares(&cluster, "RESTORE");
    assert!(restored.len() == 2 && restored.iter().all(|bytes| *bytes > 0), "{restored:?}");
    drop(agents);
    cluster.assert_sound();
}
