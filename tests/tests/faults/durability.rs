//! `brindle target set --durability`, while programs go on. Property: if targets in mode `sync` have answered a change, it is there after a
//! power cut of all servers at once and the death of the client that wrote it, without any fsync. The mode survives restarts, and each
//! target reports its mode.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;
use crate::leases::requests;

/// Power cuts in a row.
const ROUNDS: usize = 2;
/// Files that are written before each.
const FILES: usize = 4;
const SERVERS: [&str; 4] = ["mgs", "mdt0", "ost0", "ost1"];

fn brindle(cluster: &Cluster, words: &[&str]) -> String {
    let dir = format!("--dir={}", cluster.dir().display());
    let words: Vec<&str> = words.iter().copied().chain([dir.as_str()]).collect();
    let out = cluster.brindle(&words);
    assert!(out.ok(), "{out}");
    out.text
}

fn set(cluster: &Cluster, mode: &str) -> String {
    brindle(cluster, &["target", "set", "--durability", mode, "MDT0000", "OST0000", "OST0001"])
}

/// The mode of each target, as its server says.
fn modes(cluster: &Cluster) -> Vec<String> {
    let status: serde_json::Value =
        serde_json::from_str(&brindle(cluster, &["status", "-o", "json"])).unwrap();
    let targets = status["file_systems"][0]["targets"].as_array().unwrap();
    let is_data = |target: &&serde_json::Value| !target["name"].as_str().unwrap().contains("MGT");
    targets.iter().filter(is_data).map(|target| target["durability"].as_str().unwrap().to_owned()).collect()
}

/// Bytes that no two files share.
fn content(round: usize, n: usize) -> Vec<u8> {
    (0..1_048_576_usize).map(|at| (at * 31 + at / 4096 + round * 7 + n * 13) as u8).collect()
}

/// Copies a file past the page cache, so that each block is answered by an OST.
fn copy_direct(from: &Path, to: &Path) {
    let copied = Command::new("dd")
        .args(["bs=65536", "oflag=direct", "status=none"])
        .arg(format!("if={}", from.display()))
        .arg(format!("of={}", to.display()))
        .status()
        .unwrap();
    assert!(copied.success());
}

#[test]
fn what_sync_targets_have_answered_outlives_a_power_cut_of_all_servers() {
    seed("durability");
    let cluster = Cluster::up(
        "durability",
        &Options {
            image_fs: "ext4",
            osts: 2,
            ost_size: Some("256MiB"),
            mdt_size: Some("256MiB"),
            limit: Duration::from_secs(300),
            ..Options::default()
        },
    );
    assert_eq!(modes(&cluster), ["relaxed"; 3]);
    let said = set(&cluster, "sync");
    assert!(said.contains("in force") && !said.contains("does not go by it"), "{said}");
    assert_eq!(modes(&cluster), ["sync"; 3]);
    assert!(brindle(&cluster, &["status"]).contains("durability sync"));
    let source = cluster.outside().join("source");
    for round in 0..ROUNDS {
        let dir = format!("d{round}");
        fs::create_dir(cluster.a().join(&dir)).unwrap();
        for n in 0..FILES {
            fs::write(&source, content(round, n)).unwrap();
            copy_direct(&source, &cluster.a().join(&dir).join(format!("f{n}")));
        }
        fs::rename(cluster.a().join(&dir), cluster.a().join(format!("e{round}"))).unwrap();
        // (They have gone to the OSTs: small files written at once lie in the MDT.)
        assert!(requests(&cluster, "write") > 0);
        cluster.cut_power(&SERVERS);
        // The client dies too, so that acknowledged writes cannot be sent again.
        cluster.kill(&["client0"]);
        cluster.start(&SERVERS);
        cluster.start(&["client0"]);
        assert_eq!(modes(&cluster), ["sync"; 3], "it stays after a restart");
        for (round, n) in (0..=round).flat_map(|round| (0..FILES).map(move |n| (round, n))) {
            let found = fs::read(cluster.b().join(format!("e{round}/f{n}"))).unwrap();
            assert!(found == content(round, n), "e{round}/f{n} has {} bytes, or others", found.len());
        }
    }
    // And back, without a restart: then a write waits for no sync.
    let said = set(&cluster, "scratch");
    assert!(said.contains("in force"), "{said}");
    assert_eq!(modes(&cluster), ["scratch"; 3]);
    assert!(brindle(&cluster, &["status"]).contains("durability scratch"));
    fs::write(cluster.a().join("last"), content(9, 9)).unwrap();
    fs::File::open(cluster.a().join("last")).unwrap().sync_all().unwrap();
    set(&cluster, "relaxed");
    assert_eq!(modes(&cluster), ["relaxed"; 3]);
    assert_eq!(fs::read(cluster.b().join("last")).unwrap(), content(9, 9));
    let refused = cluster.brindle(&[
        "target",
        "set",
        "--durability",
        "sync",
        "OST0007",
        &format!("--dir={}", cluster.dir().display()),
    ]);
    assert!(!refused.ok() && refused.text.contains("OST0007"), "{refused}");
    cluster.assert_sound();
}
