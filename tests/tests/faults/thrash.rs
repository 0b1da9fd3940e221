//! Faults one after the other on a cluster of hosts whose MDT and OSTs have copies: hosts lose their power, hang, lose their links one way
//! or both, daemons start anew. A client works all the time: no program sees an error, every byte is right, and in the end every copy is
//! complete.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;

use crate::dice::{Dice, rounds, seed};
use crate::enrolment::{brindle, done, mount};
use crate::mdt_replicas::Names;
use crate::work::Work;

/// Faults of a round; `make soak` has many rounds.
const FAULTS: u64 = 7;
/// Longest time until copies are complete after a fault.
const COMPLETE_WITHIN: Duration = Duration::from_secs(60);
/// Targets with copies: the MDT, and the OSTs.
const SETS: usize = 4;

/// The replica sets, the MDT's first; none while the MGS is away.
fn sets(cluster: &Cluster) -> Vec<serde_json::Value> {
    let listed = brindle(cluster, "h1", "target replica list -o json").stdout;
    serde_json::Deserializer::from_str(&listed).into_iter().flatten().collect()
}

fn until_complete(cluster: &Cluster, after: &str) {
    let since = Instant::now();
    loop {
        if sets(cluster).iter().filter(|set| set["state"] == "serving").count() == SETS {
            return;
        }
        let status = || brindle(cluster, "h1", "status").text;
        assert!(since.elapsed() < COMPLETE_WITHIN, "after {after}: {}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Does a fault of a host that has copies of several targets, and ends it; returns a word for the fault.
fn of_a_server(cluster: &Cluster, work: &Work, dice: &mut Dice) -> String {
    let host = *dice.choose(&["h2", "h3", "h4"]).unwrap();
    let faults: [(&[&str], &[&str]); 5] = [
        (&["kill"], &["start"]),
        (&["freeze"], &["thaw"]),
        (&["cut"], &["heal"]),
        (&["cut", "--in"], &["heal"]),
        (&["cut", "--out"], &["heal"]),
    ];
    let (begin, end) = dice.choose(&faults).unwrap();
    let change = |words: &[&str]| {
        let done = cluster.dev(&[&["host"], words, &[host]].concat());
        assert!(done.ok(), "{done}");
    };
    change(begin);
    work.goes_on();
    change(end);
    format!("{} {host}", begin.join(" "))
}

/// The host of the MGS is away for a moment.
fn of_the_mgs(cluster: &Cluster, dice: &mut Dice) -> String {
    let (begin, end) = *dice.choose(&[("freeze", "thaw"), ("cut", "heal")]).unwrap();
    assert!(cluster.dev(&["host", begin, "h1"]).ok());
    std::thread::sleep(dice.millis(200, 2_000));
    assert!(cluster.dev(&["host", end, "h1"]).ok());
    format!("{begin} h1")
}

fn restart(cluster: &Cluster, dice: &mut Dice) -> String {
    let host = *dice.choose(&["h1", "h2", "h3", "h4"]).unwrap();
    let said = done(cluster, "h1", &format!("cluster restart --rolling --node {host}"));
    assert!(said.contains("serves again"), "{said}");
    format!("restart {host}")
}

#[test]
fn no_program_sees_one_fault_after_the_other() {
    let mut dice = Dice::new(seed("thrash"));
    let cluster = Cluster::up_with_copies("thrash", 4);
    mount(&cluster, "h5");
    let (work, names) = (Work::begin(&cluster, "h5"), Names::begin(&cluster, "h5"));
    for n in 0..rounds() * FAULTS {
        let since = Instant::now();
        let fault = match dice.below(8) {
            0 => of_the_mgs(&cluster, &mut dice),
            1 => restart(&cluster, &mut dice),
            _ => of_a_server(&cluster, &work, &mut dice),
        };
        until_complete(&cluster, &fault);
        work.goes_on();
        eprintln!("{n}: {fault}: {:.1} s", since.elapsed().as_secs_f64());
    }
    names.end(&cluster, "h5");
    work.end(&cluster);
    let served = |set: &serde_json::Value| {
        let (name, host) = (set["name"].as_str().unwrap(), set["primary"].as_str().unwrap());
        let kind = if name.contains("-MDT") { "mdt" } else { "ost" };
        (host.to_owned(), format!("{kind}{}", name.chars().last().unwrap()))
    };
    let served: Vec<(String, String)> = sets(&cluster).iter().map(served).collect();
    assert!(cluster.dev(&["down"]).ok());
    let hosts = cluster.dir().join("hosts");
    let dirs: Vec<PathBuf> =
        served.iter().map(|(host, dir)| hosts.join(host).join("lib").join(dir)).collect();
    let words: Vec<&str> =
        std::iter::once("fsck").chain(dirs.iter().map(|dir| dir.to_str().unwrap())).collect();
    let checked = cluster.brindle(&words);
    assert!(checked.ok(), "{checked}");
    cluster.down();
}
