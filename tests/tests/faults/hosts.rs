//! A cluster of hosts on one machine: hosts die, hang and lose their links, and nobody loses anything.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::{bytes, same_bytes};

const OPTIONS: Options = Options {
    osts: 4,
    mounts: 2,
    ost_size: None,
    mdt_size: None,
    image_fs: "ext4",
    hosts: Some(4),
    limit: Duration::from_secs(240),
};
/// Bytes of each file that is written meanwhile.
const FILE_BYTES: usize = 3 << 20;

/// `brindle dev host ARGS`, as JSON.
fn host(cluster: &Cluster, args: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = ["host"].iter().chain(args).copied().chain(["-o", "json"]).collect();
    let out = cluster.dev(&words);
    assert!(out.ok(), "{out}");
    serde_json::from_str(&out.stdout).unwrap()
}

fn namespaces(cluster: &Cluster) -> Vec<String> {
    let hosts = host(cluster, &["list"]);
    let hosts = hosts["hosts"].as_array().unwrap();
    hosts.iter().map(|host| host["namespace"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn hosts_that_die_hang_and_lose_their_links_lose_nothing() {
    let cluster = Cluster::up("hosts", &OPTIONS);
    let names = namespaces(&cluster);
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names.iter().all(|name| Path::new(name).exists()), "{names:?}");
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::SeqCst) {
                fs::write(cluster.a().join(format!("f{n}")), bytes(n, FILE_BYTES)).unwrap();
                fs::File::open(cluster.a().join(format!("f{n}"))).unwrap().sync_all().unwrap();
                n += 1;
            }
            n
        });
        let faults: [(&[&str], &[&str]); 6] = [
            (&["kill", "oss1"], &["start", "oss1"]),
            (&["freeze", "oss2"], &["thaw", "oss2"]),
            (&["kill", "mds2"], &["start", "mds2"]),
            (&["cut", "oss1", "--out"], &["heal", "oss1"]),
            (&["cut", "oss2", "--in"], &["heal", "oss2"]),
            (&["cut", "mds2"], &["heal", "mds2"]),
        ];
        for (fault, cure) in faults {
            let hit = host(&cluster, fault);
            let is_hit = hit["state"] != "running" || hit["link"] != "up";
            assert!(is_hit, "{fault:?}: {hit}");
            // The length of the fault; nothing is waited for by it.
            std::thread::sleep(Duration::from_millis(700));
            let cured = host(&cluster, cure);
            assert_eq!((&cured["state"], &cured["link"]), (&"running".into(), &"up".into()), "{cured}");
        }
        done.store(true, Ordering::SeqCst);
        writing.join().unwrap()
    });
    assert!(written > 0);
    for n in 0..written {
        let found = fs::read(cluster.b().join(format!("f{n}"))).unwrap();
        same_bytes(&found, &bytes(n, FILE_BYTES), &format!("f{n}"));
    }
    cluster.assert_sound();
    assert!(names.iter().all(|name| !Path::new(name).exists()), "no namespace is left: {names:?}");
}

#[test]
fn links_are_shaped_and_bad_wishes_change_nothing() {
    let cluster = Cluster::up("hosts-shape", &Options { hosts: Some(2), mounts: 1, ..OPTIONS });
    let shaped = host(&cluster, &["shape", "c1", "80mbit"]);
    assert_eq!(shaped["rate_bits_per_second"], 80_000_000);
    let begun = Instant::now();
    fs::write(cluster.a().join("f"), bytes(1, 8 << 20)).unwrap();
    fs::File::open(cluster.a().join("f")).unwrap().sync_all().unwrap();
    assert!(begun.elapsed() > Duration::from_millis(600), "10 MB a second: {:?}", begun.elapsed());
    assert_eq!(host(&cluster, &["shape", "c1", "none"])["rate_bits_per_second"], serde_json::Value::Null);
    for (words, told) in [
        (&["host", "kill", "oss9"][..], "did you mean 'oss1'"),
        (&["kill", "ost0"][..], "brindle dev host kill"),
        (&["start", "client1"][..], "no such process"),
        (&["add-ost"][..], "it is made of hosts"),
        (&["remove-ost", "ost0"][..], "it is made of hosts"),
        (&["host", "thaw", "c9"][..], "no such host"),
        (&["host", "shape", "c1", "fast"][..], "is not a rate"),
    ] {
        let out = cluster.dev(words);
        assert!(!out.ok() && out.text.contains(told), "{out}");
    }
    assert_eq!(host(&cluster, &["kill", "oss1"])["state"], "dead");
    let thawed = cluster.dev(&["host", "thaw", "oss1"]);
    assert!(!thawed.ok() && thawed.text.contains("dev host start"), "{thawed}");
    let status = cluster.brindle(&["status".to_owned(), format!("--dir={}", cluster.dir().display())]);
    assert!(status.text.contains("dev host start") && status.text.contains("oss1"), "{status}");
    host(&cluster, &["start", "oss1"]);
    cluster.down();
    // The same hosts start again, with their data; others are refused.
    let other = cluster.dev(&["up", "--hosts=3"]);
    assert!(!other.ok() && other.text.contains("keeps the hosts"), "{other}");
    for wish in ["--osts=9", "--mount=/mnt", "--no-mount"] {
        let other = cluster.dev(&["up", wish]);
        assert!(!other.ok() && other.text.contains("nothing was changed"), "{other}");
    }
    cluster.up_again();
    same_bytes(&fs::read(cluster.a().join("f")).unwrap(), &bytes(1, 8 << 20), "f");
    // Hosts that hang or are cut off end all the same.
    host(&cluster, &["freeze", "oss1"]);
    host(&cluster, &["cut", "c1"]);
    cluster.assert_sound();
}

/// `brindle dev up`, killed when it has told of so many hosts.
fn killed_start(cluster: &Cluster, hosts_told: usize) {
    let mut up = Command::new(binary())
        .args(["dev", "up"])
        .arg(format!("--dir={}", cluster.dir().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(up.stderr.take().unwrap()).lines();
    assert_eq!(told.take(hosts_told).filter(|line| line.is_ok()).count(), hosts_told);
    up.kill().unwrap();
    up.wait().unwrap();
}

/// Nothing of the hosts is left that had been started, or were about to be.
#[test]
fn a_start_that_was_killed_leaves_nothing_behind() {
    let cluster = Cluster::up("hosts-killed", &Options { mounts: 1, ..OPTIONS });
    let names = namespaces(&cluster);
    cluster.down();
    for hosts_told in [0, 1, 3] {
        killed_start(&cluster, hosts_told);
        let down = cluster.dev(&["down"]);
        assert!(down.ok(), "{down}");
        assert!(cluster.processes().iter().all(|process| !process.running()));
        assert!(names.iter().all(|name| !Path::new(name).exists()), "no namespace is left: {names:?}");
    }
    let stopped = cluster.dev(&["host", "kill", "oss1"]);
    assert!(!stopped.ok() && stopped.text.contains("the cluster is stopped"), "{stopped}");
    // What a killed start left does not keep the next one from starting either.
    killed_start(&cluster, 1);
    let again = cluster.dev(&["up"]);
    assert!(again.ok() || again.text.contains("a cluster runs there already"), "{again}");
    cluster.assert_sound();
}
