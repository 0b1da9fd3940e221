//! Hosts get other names under load (`brindle node rename`). Property: a renamed host keeps its targets, its seats in replica sets, its nodemap and its
//! spare directory; no program sees an error and every byte is there; the certificate for the former name is refused everywhere.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::bare_hosts::{said, sh, start, start_kept, succeeds, until, until_within};
use crate::enrolment::{MOUNT, brindle, done, end, join, mount};
use crate::replicas::{made, set, until_served};
use crate::work::Work;
use brindle_tests::cluster::{Cluster, binary};

/// Longest time until a host that was killed in the middle of a rename goes by its new name.
const RENAMED_LIMIT: Duration = Duration::from_secs(50);

/// The step at which a daemon has taken its new name.
const TAKEN: &str = "the name is taken";

/// A copy of an identity, as a thief, or a forgotten image of the host, would have it.
const KEPT: &str = "/var/lib/brindle/kept.pem";

fn state_of(cluster: &Cluster, host: &str) -> String {
    let shown = brindle(cluster, "h1", &format!("node show {host} -o json"));
    let parsed: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    parsed["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn renamed_hosts_keep_what_they_have_and_their_former_names_are_refused() {
    let (cluster, daemons) = made("renames");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    done(&cluster, "h1", "target add --node h3 --dir /var/lib/brindle/ost1");
    done(&cluster, "h1", "node spare h3 --spare-dir /var/lib/brindle/spare");
    done(&cluster, "h1", "nodemap add lab --host h3");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    work.goes_on();

    // What cannot be says why, and changes nothing.
    for (from, to, why) in [("h3", "h2", "a host has joined as h2"), ("h9", "a", "no host has joined as h9")]
    {
        let refused = brindle(&cluster, "h1", &format!("node rename {from} {to}"));
        assert!(!refused.ok() && refused.text.contains(why), "{refused}");
    }
    let plan = done(&cluster, "h1", "node rename h3 alpha --dry-run");
    assert!(plan.contains("would rename h3 to alpha") && plan.contains("scratch-OST0001"), "{plan}");
    assert_eq!(state_of(&cluster, "h3"), "up");

    // The follower of the set, which has a target of its own; then the primary.
    said(&cluster, "h3", &format!("cp /etc/brindle/identity.pem {KEPT}"));
    let renamed = done(&cluster, "h1", "node rename h3 alpha -o json");
    assert!(renamed.contains("\"state\": \"renamed\"") && renamed.contains("nodemap lab"), "{renamed}");
    work.goes_on();
    until_served(&cluster, "h2", "serving");
    let renamed = done(&cluster, "h1", "node rename h2 beta");
    assert!(renamed.contains("renamed h2 to beta") && renamed.contains("serves it"), "{renamed}");
    work.goes_on();
    until("both copies are complete", || set(&cluster)["state"] == "serving");

    let mut hosts: Vec<String> = set(&cluster)["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["host"].as_str().unwrap().to_owned())
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["alpha", "beta"]);
    let listed = done(&cluster, "h1", "node list");
    assert!(!listed.contains("h2") && !listed.contains("h3"), "{listed}");
    let targets = done(&cluster, "h1", "target list -o json");
    assert!(targets.contains("\"host\": \"alpha\"") && !targets.contains("\"h3\""), "{targets}");
    assert!(done(&cluster, "h1", "node spare").contains("alpha"));
    let nodemap = done(&cluster, "h1", "nodemap show lab");
    assert!(nodemap.contains("alpha") && !nodemap.contains("h3"), "{nodemap}");
    let events = done(&cluster, "h1", "events");
    assert!(events.contains("host.renamed") && events.contains("was h3 before"), "{events}");
    said(&cluster, "h1", "grep -q 'rename host' /var/lib/brindle/serve.log");
    said(&cluster, "h3", "grep -q 'host = \"alpha\"' /etc/brindle/cluster.toml");

    // The certificate for the former name is of no use, also at a server that is not the MGS.
    let old = sh(
        &cluster,
        "h3",
        &format!("BRINDLE_IDENTITY={KEPT} '{}' node list --mgs h1:9880", binary().display()),
    );
    assert!(!old.ok() && old.text.contains("another name"), "{old}");

    // The set outlives the loss of the renamed primary.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "alpha", "degraded");
    work.end(&cluster);
    let mut daemons = daemons;
    daemons.remove(1).wait().unwrap();
    end(cluster, daemons);
}

/// The daemon of a host, begun; it is waited for by the name that it comes to have.
fn daemon(cluster: &Cluster, host: &str) -> Child {
    start(cluster, host, &format!("exec '{}' serve --log /var/lib/brindle/serve.log", binary().display()))
}

fn until_up(cluster: &Cluster, name: &str) {
    until_within(RENAMED_LIMIT, &format!("{name} being up"), || state_of(cluster, name) == "up");
}

/// Number of lines with some words in the log of a host's daemon.
fn lines(cluster: &Cluster, host: &str, words: &str) -> u32 {
    let counted = sh(cluster, host, &format!("grep -c '{words}' /var/lib/brindle/serve.log"));
    counted.stdout.trim().parse().unwrap_or_default()
}

/// Kills the daemon of a host, and nothing else there.
fn kill_daemon(cluster: &Cluster, host: &str, daemon: &mut Child) {
    said(cluster, host, "pkill -KILL -f 'brindle serv[e]'");
    daemon.wait().unwrap();
}

#[test]
fn a_client_and_the_host_of_the_active_mgs_get_other_names_while_programs_go_on() {
    let (cluster, daemons) = made("renames-mgs");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    done(&cluster, "h1", "nodemap add lab --host h4");
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    work.goes_on();

    said(&cluster, "h4", &format!("cp /etc/brindle/identity.pem {KEPT}"));
    let told = done(&cluster, "h1", "node rename h4 login1");
    assert!(told.contains("brindle node take-name") && told.contains("nodemap lab"), "{told}");
    work.goes_on();
    let again = brindle(&cluster, "h1", "node rename login1 login2");
    assert!(!again.ok() && again.text.contains("it still shows h4"), "{again}");
    let taken = done(&cluster, "h4", "node take-name");
    assert_eq!(taken, "this host is login1 from now on; its former name h4 is refused");
    work.goes_on();
    assert_eq!(done(&cluster, "h4", "node take-name"), "this host goes by the name login1 already");
    let nodemap = done(&cluster, "h1", "nodemap show lab");
    assert!(nodemap.contains("login1") && !nodemap.contains("h4"), "{nodemap}");
    let old = format!("BRINDLE_IDENTITY={KEPT} '{}' target list --mgs h1:9880", binary().display());
    let old = sh(&cluster, "h4", &old);
    assert!(!old.ok() && old.text.contains("another name"), "{old}");
    let server = brindle(&cluster, "h2", "node take-name");
    assert!(!server.ok() && server.text.contains("its daemon takes the name by itself"), "{server}");

    // The host of the MGS, which serves the MDT, too.
    let renamed = done(&cluster, "h1", "node rename h1 mgs1");
    assert!(renamed.contains("renamed h1 to mgs1: its daemon goes by it"), "{renamed}");
    work.goes_on();
    until_up(&cluster, "mgs1");
    let targets = done(&cluster, "h1", "target list -o json");
    assert!(targets.contains("\"host\": \"mgs1\"") && !targets.contains("\"h1\""), "{targets}");
    assert!(!done(&cluster, "h1", "node list").contains("h1 "));
    // The renamed host can still change the cluster, and let others in.
    done(&cluster, "h1", "cluster token --role client");
    until_served(&cluster, "h2", "serving");
    work.end(&cluster);
    // A file that is made by a new mount of the renamed client.
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    mount(&cluster, "h4");
    said(&cluster, "h4", &format!("echo x > {MOUNT}/again && cat {MOUNT}/again"));
    end(cluster, daemons);
}

#[test]
fn a_rename_goes_on_whatever_is_killed_between_its_steps() {
    let (cluster, mut daemons) = made("renames-killed");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    let complaints = cluster.outside().join("complaints");
    let rename = |from: &str, to: &str| {
        let script = format!("exec '{}' node rename {from} {to}", binary().display());
        start_kept(&cluster, "h1", &script, &complaints)
    };
    let listed = |name: &str| brindle(&cluster, "h1", "node list").stdout.contains(name);

    // The primary is not told yet when the MGS is killed: nobody takes over from it.
    assert!(cluster.dev(&["host", "freeze", "h2"]).ok());
    let mut asked = rename("h2", "beta");
    until("the new name in the rows", || listed("beta"));
    kill_daemon(&cluster, "h1", &mut daemons[0]);
    daemons[0] = daemon(&cluster, "h1");
    until_up(&cluster, "h1");
    assert!(cluster.dev(&["host", "thaw", "h2"]).ok());
    until_up(&cluster, "beta");
    succeeds(&mut asked, &complaints);
    until_served(&cluster, "beta", "serving");
    work.goes_on();

    // The daemon is killed before it is told, when it was told, and when it has taken the name.
    let words = ["", "has given this host another name", TAKEN];
    let mut name = "h3".to_owned();
    for (n, word) in words.into_iter().enumerate() {
        let next = format!("alpha{n}");
        let before = lines(&cluster, "h3", word);
        if word.is_empty() {
            assert!(cluster.dev(&["host", "freeze", "h3"]).ok());
        }
        let mut asked = rename(&name, &next);
        match word {
            "" => {
                until("the new name in the rows", || listed(&next));
                assert!(cluster.dev(&["host", "thaw", "h3"]).ok());
            }
            word => {
                let said = || std::fs::read_to_string(&complaints).unwrap();
                let log = || sh(&cluster, "h3", "tail -n 30 /var/lib/brindle/serve.log").text;
                let since = Instant::now();
                // The log may lose its last line where the daemon starts anew; the file of the cluster is written before.
                let taken = format!("grep -q 'host = \"{next}\"' /etc/brindle/cluster.toml");
                let is_there = || match word {
                    TAKEN => sh(&cluster, "h3", &taken).ok(),
                    word => lines(&cluster, "h3", word) > before,
                };
                while !is_there() {
                    assert!(since.elapsed() < RENAMED_LIMIT, "{word} is not said: {}\n{}", said(), log());
                }
            }
        }
        kill_daemon(&cluster, "h3", &mut daemons[2]);
        daemons[2] = daemon(&cluster, "h3");
        until_up(&cluster, &next);
        succeeds(&mut asked, &complaints);
        assert!(!listed(&format!("{name} ")), "{word}");
        until_served(&cluster, "beta", "serving");
        work.goes_on();
        name = next;
    }
    work.end(&cluster);
    end(cluster, daemons);
}
