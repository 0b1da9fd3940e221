//! Copies of targets move to other hosts while clients work: one copy of an OST, the primary of two, an MDT. The command is killed in the middle, and
//! repeated. No program sees an error, every byte is right, and there are never fewer complete copies than before.

use std::process::Child;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, binary};

use crate::bare_hosts::{sh, start, until};
use crate::enrolment::{brindle, done, end, join, mount, serve};
use crate::replicas::{made, set, until_served};
use crate::work::Work;

/// Longest time for a move in these tests.
const MOVE_LIMIT: Duration = Duration::from_secs(60);

fn hosts(cluster: &Cluster) -> Vec<String> {
    let set = set(cluster);
    let members = set["members"].as_array().cloned().unwrap_or_default();
    members.iter().map(|member| member["host"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Hosts of members that have everything.
fn complete(cluster: &Cluster) -> usize {
    let set = set(cluster);
    let members = set["members"].as_array().cloned().unwrap_or_default();
    members
        .iter()
        .filter(|m| ["primary", "in-sync"].contains(&m["role"].as_str().unwrap_or_default()))
        .count()
}

fn refused(cluster: &Cluster, args: &str, why: &str) {
    let refused = brindle(cluster, "h1", &format!("target replica move {args}"));
    assert!(!refused.ok() && refused.text.contains(why), "{refused}");
}

/// h2 to h4 are servers, h4 is a client besides; a client's work.
fn at_work(name: &str, ost: &str) -> (Cluster, Vec<Child>, Work) {
    let (cluster, mut daemons) = made(name);
    done(&cluster, "h1", ost);
    assert!(join(&cluster, "h4", "server,client").ok());
    daemons.push(serve(&cluster, "h4"));
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    (cluster, daemons, work)
}

#[test]
fn the_only_copy_of_an_ost_moves_under_load_and_what_cannot_be_is_refused() {
    let (cluster, daemons, work) = at_work("moves-one", "target add --node h2 --dir /var/lib/brindle/ost0");
    refused(&cluster, "OST0000 --from h2 --to h2", "is both the host that it leaves");
    refused(&cluster, "OST0000 --from h2 --to h9", "no host has joined as");
    refused(&cluster, "OST0000 --from h9 --to h3", "no host has joined as");
    refused(&cluster, "OST0000 --from h3 --to h4", "h3 has no copy of it");
    let would = done(&cluster, "h1", "target replica move OST0000 --from h2 --to h3 --dry-run");
    assert!(
        would.contains("1. make a complete copy on h3") && would.contains("3. take the copy on h2 away"),
        "{would}"
    );
    assert!(hosts(&cluster).is_empty(), "nothing was changed");
    let moved = done(&cluster, "h1", "target replica move OST0000 --from h2 --to h3");
    assert!(moved.contains("the copy of h2 is on h3 now"), "{moved}");
    assert_eq!(hosts(&cluster), ["h3"]);
    let again = done(&cluster, "h1", "target replica move OST0000 --from h2 --to h3 -o json");
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((again["done"].as_bool(), again["to"].as_str()), (Some(true), Some("h3")));
    // The way back: what lies there still is compared, and only what differs is copied.
    let back = done(&cluster, "h1", "target replica move OST0000 --from h3 --to h2");
    assert!(back.contains("the copy of h3 is on h2 now"), "{back}");
    until_served(&cluster, "h2", "serving");
    work.goes_on();
    // The MDT, from the host of the MGS.
    let moved = done(&cluster, "h1", "target replica move MDT0000 --from h1 --to h4");
    assert!(moved.contains("the copy of h1 is on h4 now"), "{moved}");
    work.goes_on();
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn the_primary_of_two_copies_moves_though_its_command_is_killed_and_a_host_is_frozen() {
    let add = "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0";
    let (cluster, daemons, work) = at_work("moves-two", add);
    refused(&cluster, "OST0000 --from h2 --to h3", "h3 has a copy of it already");
    let order = "target replica move OST0000 --from h2 --to h4 --replica-dir /var/lib/brindle/ost0-moved";
    let mut command = start(&cluster, "h1", &format!("exec '{}' {order}", binary().display()));
    until("the order", || hosts(&cluster).len() == 3);
    command.kill().unwrap();
    command.wait().unwrap();
    refused(&cluster, "OST0000 --from h3 --to h4", "its copy on h2 moves to h4 now");
    let since = Instant::now();
    while hosts(&cluster) != ["h3", "h4"] {
        assert!(complete(&cluster) >= 2 || hosts(&cluster) == ["h3", "h4"], "{}", set(&cluster));
        assert!(since.elapsed() < MOVE_LIMIT, "{}", set(&cluster));
        std::thread::sleep(Duration::from_millis(50));
    }
    let moved = done(&cluster, "h1", order);
    assert!(
        moved.contains("nothing to do: h4 has a copy of scratch-OST0000") && moved.contains("h2 has none"),
        "{moved}"
    );
    until_served(&cluster, "h4", "serving");
    work.goes_on();
    // A move that is taken back leaves everything as it was.
    let away = "target replica move OST0000 --from h3 --to h2 --replica-dir /var/lib/brindle/ost0-away";
    assert!(cluster.dev(&["host", "freeze", "h2"]).ok());
    let mut command = start(&cluster, "h1", &format!("'{}' {away}", binary().display()));
    until("the order", || hosts(&cluster).len() == 3);
    work.goes_on();
    done(&cluster, "h1", "target replica remove OST0000 --node h2");
    assert!(!command.wait().unwrap().success(), "the command says that it was taken back");
    assert_eq!(hosts(&cluster), ["h3", "h4"]);
    assert!(cluster.dev(&["host", "thaw", "h2"]).ok());
    until_served(&cluster, "h4", "serving");
    work.end(&cluster);
    assert!(
        sh(&cluster, "h2", "test -d /var/lib/brindle/ost0/objects").ok(),
        "what was moved away stays there"
    );
    end(cluster, daemons);
}
