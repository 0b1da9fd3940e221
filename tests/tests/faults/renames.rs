//! Hosts get other names under load (`brindle node rename`). Property: a renamed host keeps its targets, its seats in replica sets, its nodemap and its
//! spare directory; no program sees an error and every byte is there; the certificate for the former name is refused everywhere.

use crate::bare_hosts::{said, sh, until};
use crate::enrolment::{brindle, done, end, join, mount};
use crate::replicas::{made, set, until_served};
use crate::work::Work;
use brindle_tests::cluster::binary;

/// A copy of an identity, as a thief, or a forgotten image of the host, would have it.
const KEPT: &str = "/var/lib/brindle/kept.pem";

fn state_of(cluster: &brindle_tests::cluster::Cluster, host: &str) -> String {
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

    // An impossible rename says why it is refused, and changes nothing.
    for (from, to, why) in [
        ("h3", "h2", "a host has joined as h2"),
        ("h9", "a", "no host has joined as h9"),
        ("h1", "a", "the active MGS"),
        ("h4", "a", "joined as client"),
    ] {
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
