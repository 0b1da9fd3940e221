//! A cluster directory that an earlier release wrote, and whose processes were killed, opens with this one.
//!
//! The fixtures lie in `tests/fixtures/RELEASE`, each with the script that made it. Fixtures are never made
//! again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;

/// Command of the fixture's script that lists contents and attributes of all files.
const LIST: &str = "export LC_ALL=C
find . -type f | sort | xargs -d '\\n' sha256sum
find . -mindepth 1 -printf '%y %s %m %n %U %G %T@ %P\\n' | sort -k 8";

/// The MDT hears of a new map at once; three times slack and more.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// Interval of the tries.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn fixture(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(release)
}

fn list(mount: &Path) -> String {
    let out = Command::new("sh").args(["-c", LIST]).current_dir(mount).output().expect("sh runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out.stdout.escape_ascii().to_string()
}

#[test]
fn a_cluster_of_release_0_1_0_opens_and_goes_on() {
    let fixture = fixture("0.1.0");
    let cluster = Cluster::up_from("release 0.1.0", &fixture);
    let before = std::fs::read(fixture.join("files.txt")).expect("the fixture has files.txt");
    let before = before.escape_ascii().to_string();
    assert_eq!(list(cluster.a()), before, "contents and attributes as the earlier release showed them");

    let pools = cluster.brindle(&["pool", "list", &format!("--path={}", cluster.a().display())]);
    assert!(pools.ok() && pools.text.contains("quick"), "{pools}");
    assert_eq!(
        cluster.lfs(&["getstripe", "-c", &cluster.a().join("policy/f").display().to_string()]).trim(),
        "2"
    );

    // Every old row is changed once: renamed, written, cut, removed.
    let at = |name: &str| cluster.a().join(name);
    std::fs::rename(at("two-stripes"), at("dir/renamed")).unwrap();
    std::fs::write(at("small"), b"new").unwrap();
    std::fs::File::options().write(true).open(at("sparse")).unwrap().set_len(21 << 20).unwrap();
    std::fs::remove_file(at("open-for-writing")).unwrap();
    std::fs::copy(at("policy/f"), at("policy/g")).unwrap();
    cluster.down();
    let found = cluster.fsck();
    assert_eq!(found.code, 0, "fsck of what both releases wrote: {found}");
    cluster.up_again();
    assert_eq!(std::fs::read(at("dir/hard")).unwrap(), b"new");
    assert_eq!(std::fs::metadata(at("dir/renamed")).unwrap().len(), 3_000_000);
    assert_eq!(std::fs::metadata(at("dir/sub/deep")).unwrap().uid(), 1234);
    assert_eq!(std::fs::read(at("policy/f")).unwrap(), std::fs::read(at("policy/g")).unwrap());
    let sparse = std::fs::read(at("sparse")).unwrap();
    assert_eq!((sparse.len(), &sparse[20 << 20..(20 << 20) + 6]), (21 << 20, &b"middle"[..]));
    projects_after_an_upgrade(&cluster);
}

/// Features that the earlier release could not read are refused until all servers are new, and an
/// administrator raises the level.
fn projects_after_an_upgrade(cluster: &Cluster) {
    let dir = cluster.a().join("dir").display().to_string();
    let set: [&str; 7] = ["lfs", "project", "-p", "7", "-s", "-r", &dir];
    let refused = cluster.brindle(&set);
    assert!(!refused.ok() && refused.text.contains("brindle fs upgrade"), "{refused}");
    let upgraded = cluster.brindle(&["fs", "upgrade", &cluster.a().display().to_string()]);
    assert!(upgraded.ok(), "{upgraded}");
    let since = Instant::now();
    while !cluster.brindle(&set).ok() {
        assert!(since.elapsed() < TOLD_WITHIN, "the MDT does not hear of the level");
        std::thread::sleep(LOOK_EVERY);
    }
    std::fs::write(cluster.a().join("dir/new"), "in the project").unwrap();
    assert_eq!(cluster.lfs(&["project", "-c", "-r", &dir]), "");
    let limits = cluster.lfs(&["quota", "-q", "-u", "1234", &cluster.a().display().to_string()]);
    assert!(limits.contains("1048576"), "limits of the earlier release hold: {limits}");
    cluster.assert_sound();
}
