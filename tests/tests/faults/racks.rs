//! Racks of real hosts (`brindle node label`). Property: copies of a target are put into one rack only on an explicit order, and a spare
//! host of another rack comes first.

use std::time::Duration;

use crate::bare_hosts::until_within;
use crate::enrolment::{brindle, done, end, join, serve};
use crate::replicas::{made, set};

/// Longest time until a lost copy is given up, after 10 s, and made anew.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);

fn hosts(cluster: &brindle_tests::cluster::Cluster) -> Vec<String> {
    let set = set(cluster);
    let members = set["members"].as_array().cloned().unwrap_or_default();
    let mut hosts: Vec<String> =
        members.iter().map(|member| member["host"].as_str().unwrap_or_default().to_owned()).collect();
    hosts.sort();
    hosts
}

#[test]
fn copies_are_in_different_racks_and_so_is_the_spare_host_that_gets_one() {
    let (cluster, mut daemons) = made("racks");
    assert!(join(&cluster, "h4", "server").ok());
    daemons.push(serve(&cluster, "h4"));
    for (host, rack) in [("h1", "R2"), ("h2", "R1"), ("h3", "R1"), ("h4", "R2")] {
        let labelled = done(&cluster, "h1", &format!("node label {host} rack={rack}"));
        assert!(labelled.contains(&format!("{host} in the rack {rack}")), "{labelled}");
    }
    assert!(!brindle(&cluster, "h1", "node label h2 floor=3").ok());
    let listed = done(&cluster, "h1", "node list");
    assert!(listed.contains("RACK") && listed.contains("R2"), "{listed}");

    let pair = "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0";
    let refused = brindle(&cluster, "h1", pair);
    assert!(
        !refused.ok() && refused.text.contains("rack R1 with h2") && refused.text.contains("--same-rack"),
        "{refused}"
    );
    done(&cluster, "h1", &format!("{pair} --same-rack --dry-run"));
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h4 --dir /var/lib/brindle/ost0");
    assert_eq!(hosts(&cluster), ["h2", "h4"]);
    let file = done(&cluster, "h1", "cluster export");
    assert!(file.contains("rack = \"R1\""), "{file}");

    // h1 comes first by name, and is in the rack of the copy that is left.
    for host in ["h1", "h3"] {
        done(&cluster, "h1", &format!("node spare {host} --spare-dir /var/lib/brindle/spare --after 10"));
    }
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    daemons[1].wait().unwrap();
    let is_replaced = || hosts(&cluster) == ["h3", "h4"] && set(&cluster)["state"] == "serving";
    until_within(REPLACED_WITHIN, "the copy on the spare host in another rack", is_replaced);
    daemons.remove(1);
    end(cluster, daemons);
}
