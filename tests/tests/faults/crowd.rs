//! 64 processes at once through one mount: they get slow, and never errors; they read what they wrote, and the memory
//! of mount and servers stays within its bounds.

use brindle_tests::cluster::{Cluster, Options};
use serde_json::Value;

use crate::dice::seed;

/// Processes at once.
const CROWD: &str = "--ranks=64";
/// Most memory of a mount, under any load.
const MOUNT_BYTES_MAX: u64 = 512 << 20;
/// Most memory of an MDS, besides [`INODE_BYTES_MAX`] for each inode.
const MDS_BYTES_MAX: u64 = 1 << 30;
const INODE_BYTES_MAX: u64 = 200;
/// More inodes than this test has.
const INODES: u64 = 10_000;
/// Most memory of an OSS besides requests in flight, and of those: 64 processes, a call of 1 MiB each, which lies there
/// twice at most.
const OSS_BYTES_MAX: u64 = (512 << 20) + (64 << 20) * 2;

#[test]
fn a_crowd_gets_slow_and_never_errors() {
    seed("crowd");
    let cluster = Cluster::up("crowd", &Options { osts: 2, mounts: 1, ..Options::default() });
    let works: [&[&str]; 4] = [
        &["ior", CROWD, "--case=easy", "--size=4MiB"],
        &["ior", CROWD, "--case=hard", "--size=1MiB"],
        &["mdtest", CROWD, "--files=20"],
        &["random", CROWD, "--size=64MiB", "--seconds=2"],
    ];
    let of_this_cluster = format!("--cpu-of={}", cluster.outside().display());
    let at = cluster.a().display().to_string();
    for work in works {
        let common = ["--repeat=1", "--no-limit", "-o", "json", &of_this_cluster, &at];
        let words: Vec<&str> = ["bench"].into_iter().chain(work.iter().copied()).chain(common).collect();
        let run = cluster.brindle(&words);
        assert!(run.ok(), "{}: {run}", work.join(" "));
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let memory = document["memory"].as_array().unwrap();
        assert!(memory.len() >= 4, "{memory:?}");
        for process in memory {
            let name = process["process"].as_str().unwrap();
            let bytes_max = match name {
                mount if mount.starts_with("mount ") => MOUNT_BYTES_MAX,
                "serve mdt0" => MDS_BYTES_MAX + INODE_BYTES_MAX * INODES,
                _ => OSS_BYTES_MAX,
            };
            let peak = process["peak_bytes"].as_u64().unwrap();
            assert!(peak <= bytes_max, "{}: {name} took {peak} bytes, {bytes_max} allowed", work.join(" "));
        }
    }
    cluster.assert_sound();
}
