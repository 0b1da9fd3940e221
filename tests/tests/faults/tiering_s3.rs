//! Tiering with an archive in a bucket of a real S3 server. Files go there, are released and come back with the same bytes, and their
//! manifests have all other facts. Agents and the server die in the middle; objects are damaged; keys and buckets are wrong.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::s3::{SECRET_KEY, Server, program};
use brindle_tests::users::ANN;
use brindle_tests::{bytes, same_bytes};
use serde_json::Value;

use crate::dice::seed;
use crate::tiering::{
    ARCHIVED, Agent, FAST, LONG_BYTES, RELEASED, SLOW, action, archive, make_files, release, state, text,
    wait,
};

fn up(name: &str) -> (Cluster, Server, Vec<String>) {
    seed(name);
    let cluster = Cluster::up(name, &Options { osts: 2, ..Options::default() });
    let server = Server::start(&cluster.outside().join("s3"));
    let arguments = server.arguments(&server.credentials("keys", SECRET_KEY));
    (cluster, server, arguments)
}

/// Keys of the copies of a file, and that there is a manifest for each.
fn copies(cluster: &Cluster, server: &Server, path: &Path) -> Vec<String> {
    let fid = cluster.lfs(&["path2fid", text(path)]);
    let fid = fid.trim().trim_matches(['[', ']']).replace("0x", "").replace(':', "-");
    let keys: Vec<String> =
        server.keys().into_iter().filter(|key| key.contains(&format!("/{fid}/"))).collect();
    let data: Vec<String> = keys.iter().filter(|key| key.ends_with(".data")).cloned().collect();
    let manifests = data.iter().map(|key| key.replace(".data", ".json"));
    let mut expected: Vec<String> = data.iter().cloned().chain(manifests).collect();
    expected.sort();
    assert_eq!(keys, expected, "bytes and a manifest each");
    data
}

#[test]
fn files_go_to_a_bucket_and_come_back_the_same() {
    let (cluster, server, arguments) = up("tiering_s3");
    let _agent = Agent::start_with(&cluster, FAST, &arguments);
    let below = cluster.a().join("project/run 1");
    fs::create_dir_all(&below).unwrap();
    fs::set_permissions(&below, fs::Permissions::from_mode(0o750)).unwrap();
    let files = make_files(&below);
    let odd = &files[2].0;
    std::os::unix::fs::chown(odd, Some(ANN.uid), Some(ANN.gid)).unwrap();
    rustix::fs::setxattr(odd, "user.origin", b"a telescope", rustix::fs::XattrFlags::empty()).unwrap();
    let before: Vec<_> = files.iter().map(|(path, _)| path.metadata().unwrap()).collect();
    for (path, data) in &files {
        archive(&cluster, path);
        let copies = copies(&cluster, &server, path);
        assert_eq!(copies.len(), 1, "{copies:?}");
        same_bytes(&server.get(&copies[0]), data, "the object");
    }
    for ((path, data), before) in files.iter().zip(&before) {
        release(&cluster, path);
        let there = cluster.b().join("project/run 1").join(path.file_name().unwrap());
        assert_eq!(there.metadata().unwrap().len(), before.len());
        same_bytes(&fs::read(&there).unwrap(), data, "what came back");
        let after = there.metadata().unwrap();
        assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
        wait("all of it is here", || state(&cluster, path) == ARCHIVED);
    }
    manifest_says_it(&cluster, &server, odd);
    // Other contents: another object, and the older one goes.
    let old = copies(&cluster, &server, odd);
    fs::write(odd, "new").unwrap();
    archive(&cluster, odd);
    wait("the older copy goes", || server.keys().iter().all(|key| !old.contains(key)));
    let new = copies(&cluster, &server, odd);
    assert_eq!(server.get(&new[0]), b"new");
    damage(&cluster, &server, &files[3]);
    cluster.lfs(&["hsm_remove", text(odd)]);
    wait("the copy goes", || copies(&cluster, &server, odd).is_empty());
    assert_eq!(fs::read(odd).unwrap(), b"new");
    cluster.assert_sound();
}

/// Checks everything in the manifest but the bytes.
fn manifest_says_it(cluster: &Cluster, server: &Server, path: &Path) {
    let attr = path.metadata().unwrap();
    let data = copies(cluster, server, path).remove(0);
    let json = server.get(&data.replace(".data", ".json"));
    let manifest: Value = serde_json::from_slice(&json).unwrap();
    let number = |name: &str| manifest[name].as_u64().unwrap_or_else(|| panic!("{name} in {manifest}"));
    assert_eq!(manifest["paths"][0], "project/run 1/odd");
    assert_eq!(manifest["object"].as_str(), Some(data.as_str()));
    assert_eq!(
        (number("size_bytes"), number("uid"), number("gid")),
        (attr.len(), ANN.uid.into(), ANN.gid.into())
    );
    assert_eq!(number("mode"), u64::from(attr.mode() & 0o7777));
    assert_eq!(manifest["mtime"]["secs"].as_i64(), Some(attr.mtime()));
    let xattr = &manifest["xattrs"][0];
    assert_eq!((&xattr["name"], &xattr["value_base64"]), (&"user.origin".into(), &"YSB0ZWxlc2NvcGU=".into()));
    let above = &manifest["directories"];
    assert_eq!((&above[0]["path"], &above[1]["path"]), (&"project".into(), &"project/run 1".into()));
    assert_eq!(above[1]["mode"].as_u64(), Some(0o750));
}

/// An object that has other bytes, another length, or is gone: none of it is taken for the file's, and the file stays.
fn damage(cluster: &Cluster, server: &Server, (path, data): &(std::path::PathBuf, Vec<u8>)) {
    release(cluster, path);
    let key = copies(cluster, server, path).remove(0);
    let mut wrong = data.clone();
    wrong[5 << 20] ^= 1;
    let cases: [(&str, &dyn Fn()); 3] = [
        ("checksum", &|| server.put(&key, &wrong)),
        ("bytes, ", &|| server.put(&key, &data[..1 << 20])),
        ("not there", &|| server.delete(&key)),
    ];
    for (why, harm) in cases {
        harm();
        let failed = fs::read(path).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{why}");
        assert_eq!(state(cluster, path), RELEASED);
        let status = cluster.brindle(&["hsm", "status", text(cluster.a())]);
        assert!(status.text.contains(why) && status.text.contains("E6005"), "{why}: {status}");
        server.put(&key, data);
    }
    same_bytes(&fs::read(path).unwrap(), data, "the copy is good again");
}

#[test]
fn agents_and_the_s3_server_die_in_the_middle_and_nothing_is_lost() {
    let (cluster, mut server, arguments) = up("tiering_s3_kill");
    let (path, data) = (cluster.a().join("long"), bytes(7, LONG_BYTES));
    fs::write(&path, &data).unwrap();
    let is_moving =
        || action(&cluster, &path).contains("running (") && !action(&cluster, &path).contains("(0 bytes");
    // Killed in the middle of an upload.
    let slow = Agent::start_with(&cluster, SLOW, &arguments);
    cluster.lfs(&["hsm_archive", text(&path)]);
    wait("it is being archived", is_moving);
    drop(slow);
    assert_eq!(state(&cluster, &path), "(0x00000000)");
    assert_eq!(copies(&cluster, &server, &path), [""; 0], "an upload that did not end is no object");
    let fast = Agent::start_with(&cluster, FAST, &arguments);
    wait("another agent archives it", || state(&cluster, &path) == ARCHIVED);
    assert_eq!(copies(&cluster, &server, &path).len(), 1);
    release(&cluster, &path);
    // The server is away: that is said, and the file stays.
    server.kill();
    let failed = fs::read(&path).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EIO));
    let status = cluster.brindle(&["hsm", "status", text(cluster.a())]);
    assert!(status.text.contains("E6022"), "{status}");
    assert_eq!(state(&cluster, &path), RELEASED);
    server.start_again();
    drop(fast);
    // Killed while it restores, with a reader that waits.
    let slow = Agent::start_with(&cluster, SLOW / 4, &arguments);
    let read = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    wait("it is being restored", is_moving);
    let (last, mut end) = (LONG_BYTES - (1 << 20), vec![0; 1 << 20]);
    let file = fs::File::open(cluster.b().join("long")).unwrap();
    file.read_exact_at(&mut end, last as u64).unwrap();
    same_bytes(&end, &data[last..], "the end of the file");
    assert_eq!(state(&cluster, &path), RELEASED, "most of it is still coming");
    drop(slow);
    assert!(state(&cluster, &path).starts_with("(0x0000000d)"), "released until all of it is here");
    let _fast = Agent::start_with(&cluster, FAST, &arguments);
    same_bytes(&read.join().unwrap(), &data, "what the reader waited for");
    wait("all of it is here", || state(&cluster, &path) == ARCHIVED);
    cluster.assert_sound();
}

#[test]
fn wrong_keys_buckets_and_addresses_are_told_apart() {
    seed("tiering_s3_wrong");
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("s3"));
    let keys = server.credentials("keys", SECRET_KEY);
    let refused = |arguments: &[String], code: &str| {
        // The agent looks at its archive before it looks for the file system.
        let done = Command::new(binary())
            .args(["agent", "--archive=1", "127.0.0.1:1:/none"])
            .args(arguments)
            .output();
        let done = done.unwrap();
        let said =
            String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
        assert!(!done.status.success() && said.contains(code), "{code}: {said}");
        assert!(!said.contains("secret-of") && said.contains("next"), "{said}");
    };
    let wrong = server.credentials("wrong", "wrong-secret-of-the-tester");
    refused(&server.arguments(&wrong), "E6021");
    let mut arguments = server.arguments(&keys);
    arguments[0] = "--backend=s3://nosuchbucket".to_owned();
    refused(&arguments, "E6020");
    refused(&arguments[..2], "--s3-credentials");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o640)).unwrap();
    refused(&server.arguments(&keys), "E6025");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(server.keys(), [""; 0], "nothing was left");
    server.kill();
    refused(&server.arguments(&keys), "E6022");
}

/// `brindle dev up --archive s3`: everything that is needed comes with the cluster, and goes with it.
#[test]
fn a_development_cluster_brings_its_own_bucket() {
    seed("tiering_s3_dev");
    let cluster = Cluster::up("tiering_s3_dev", &Options { osts: 1, mounts: 1, ..Options::default() });
    cluster.down();
    let up = || {
        let dir = format!("--dir={}", cluster.dir().display());
        let args = ["dev", "up", &dir, "--archive=s3"];
        let done = Command::new(binary()).env("BRINDLE_S3_SERVER", program()).args(args).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    up();
    let keys = cluster.dir().join("s3/credentials");
    assert_eq!(keys.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let path = cluster.a().join("f");
    let data = bytes(1, 1 << 20);
    fs::write(&path, &data).unwrap();
    archive(&cluster, &path);
    release(&cluster, &path);
    cluster.down();
    assert!(cluster.processes().iter().all(|process| !process.running()), "the server ends with the cluster");
    up();
    assert_eq!(state(&cluster, &path), RELEASED);
    same_bytes(&fs::read(&path).unwrap(), &data, "a file from the bucket, after a restart of everything");
    cluster.assert_sound();
}
