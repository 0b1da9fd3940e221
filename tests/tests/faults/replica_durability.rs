//! `brindle target set --durability` for targets with two copies, and power cuts: of one host, then of all. Property: a power cut of one host takes nothing
//! in any mode; one of all hosts takes nothing that targets in mode `sync` have answered; each copy knows the mode, so that one which is promoted goes by
//! it.

use std::process::Child;
use std::time::Duration;

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, sh, until, until_within};
use crate::dice::seed;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::disk_for;

/// Longest time until copies are complete again.
const SETTLED_LIMIT: Duration = Duration::from_secs(60);
const DIRS: [&str; 2] = ["/var/lib/brindle/mdt0", "/var/lib/brindle/ost0"];
const COPIES: [(usize, &str); 2] = [(1, "h2"), (2, "h3")];

/// The MGS on h1, both targets with copies on h2 and h3 that lie on disks of their own, a client on h4.
fn made(name: &str) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, 4);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for (_, host) in COPIES {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
        DIRS.iter().for_each(|dir| disk_for(&cluster, host, dir));
    }
    done(&cluster, "h1", &format!("target add --mdt --copies 2 --node h2 --node h3 --dir {}", DIRS[0]));
    done(&cluster, "h1", &format!("target add --copies 2 --node h2 --node h3 --dir {}", DIRS[1]));
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    (cluster, daemons)
}

/// Waits until both sets are served by this host, and are in this state.
fn until_served(cluster: &Cluster, primary: &str, state: &str) {
    let is_so = || {
        let listed = brindle(cluster, "h1", "target replica list -o json").stdout;
        let sets = serde_json::Deserializer::from_str(&listed).into_iter::<serde_json::Value>();
        let sets: Vec<_> = sets.filter_map(Result::ok).collect();
        sets.len() == 2 && sets.iter().all(|set| set["primary"] == *primary && set["state"] == *state)
    };
    until_within(SETTLED_LIMIT, &format!("both sets {state} on {primary}"), is_so);
}

/// The mode of both targets, as who serves them says.
fn modes(cluster: &Cluster) -> Vec<String> {
    let status: serde_json::Value =
        serde_json::from_str(&done(cluster, "h1", "status -o json")).unwrap_or_default();
    let targets = status["file_systems"][0]["targets"].as_array().cloned().unwrap_or_default();
    let is_data = |target: &&serde_json::Value| !target["name"].as_str().unwrap_or_default().contains("MGT");
    let mode = |target: &serde_json::Value| target["durability"].as_str().unwrap_or_default().to_owned();
    targets.iter().filter(is_data).map(mode).collect()
}

/// Sets the mode of both targets, and waits until every copy has it on its disk.
fn set_mode(cluster: &Cluster, mode: &str) {
    let said_so = done(cluster, "h1", &format!("target set --durability {mode} MDT0000 OST0000"));
    assert!(said_so.contains("in force"), "{said_so}");
    assert_eq!(modes(cluster), [mode; 2]);
    let sums = || {
        let of = |host: &&str| sh(cluster, host, &format!("cd {} && md5sum < durability", DIRS[0])).stdout;
        ["h2", "h3"].iter().map(of).collect::<Vec<_>>()
    };
    until("the follower's file having the mode", || {
        let sums = sums();
        !sums[0].is_empty() && sums[0] == sums[1]
    });
}

/// Makes names and writes bytes past the page cache of the client, without any sync: everything of it was answered by servers.
fn write(cluster: &Cluster, round: &str) {
    let script = format!(
        "cd {MOUNT} && mkdir {round} && for n in 1 2 3 4; do \
         head -c 1000000 /dev/urandom > /run/brindle/{round}-$n && \
         dd if=/run/brindle/{round}-$n of={round}/f$n bs=100000 oflag=direct status=none && \
         mv {round}/f$n {round}/g$n && ln {round}/g$n {round}/h$n || exit 1; done && mv {round} {round}-moved"
    );
    said(cluster, "h4", &script);
}

fn check(cluster: &Cluster, rounds: &[&str]) {
    for round in rounds {
        let script = format!(
            "cd {MOUNT}/{round}-moved && test \"$(ls | wc -l)\" = 8 && \
             for n in 1 2 3 4; do cmp g$n /run/brindle/{round}-$n && cmp h$n g$n || exit 1; done"
        );
        let found = sh(cluster, "h4", &script);
        assert!(found.ok(), "{round}: {found}");
    }
}

/// A host whose power was cut comes back with what its disks have.
fn come_back(cluster: &Cluster, daemons: &mut [Child], (n, host): (usize, &str)) {
    daemons[n].wait().unwrap();
    assert!(cluster.dev(&["host", "start", host]).ok());
    for dir in DIRS {
        said(
            cluster,
            host,
            &format!(
                "! mountpoint -q {dir} || umount {dir}; mount -o loop,errors=remount-ro {dir}.img {dir}"
            ),
        );
    }
    daemons[n] = serve(cluster, host);
}

#[test]
fn copies_keep_what_their_mode_promises_when_one_host_and_when_all_hosts_lose_their_power() {
    let (cluster, mut daemons) = made("replica-durability");
    // One host: nothing is lost, whatever the mode is.
    let mut rounds = Vec::new();
    let (mut serving, mut other) = (COPIES[0], COPIES[1]);
    for mode in ["scratch", "relaxed"] {
        set_mode(&cluster, mode);
        write(&cluster, mode);
        rounds.push(mode);
        assert!(cluster.dev(&["host", "kill", serving.1]).ok());
        until_served(&cluster, other.1, "degraded");
        check(&cluster, &rounds);
        assert_eq!(modes(&cluster), [mode; 2], "the promoted copies go by it");
        come_back(&cluster, &mut daemons, serving);
        until_served(&cluster, other.1, "serving");
        (serving, other) = (other, serving);
    }
    // All of them, and the client, which could send again what was answered.
    set_mode(&cluster, "sync");
    write(&cluster, "sync");
    rounds.push("sync");
    for (_, host) in COPIES {
        assert!(cluster.dev(&["host", "kill", host]).ok());
    }
    said(&cluster, "h4", &format!("pkill -KILL -f 'brindle moun[t]'; umount -l {MOUNT}"));
    for host in COPIES {
        come_back(&cluster, &mut daemons, host);
    }
    mount(&cluster, "h4");
    check(&cluster, &["sync"]);
    end(cluster, daemons);
}
