//! A host with copies of several targets is lost for good, and several spare hosts are there: each gets some of the copies, all at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use brindle_tests::cluster::Cluster;
use serde_json::Value;

use crate::bare_hosts::{said, until_within};
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::made_of;
use crate::work::Work;

const OSTS: usize = 3;
const SPARES: [&str; 3] = ["h4", "h5", "h6"];
/// Longest time until all copies are given up, after 10 s, and made anew.
const REPLACED_WITHIN: Duration = Duration::from_secs(90);

/// All sets.
fn sets(cluster: &Cluster) -> Vec<Value> {
    let listed = brindle(cluster, "h1", "target replica list -o json");
    serde_json::Deserializer::from_str(&listed.stdout).into_iter::<Value>().map_while(Result::ok).collect()
}

/// Hosts of a set.
fn hosts(set: &Value) -> BTreeSet<String> {
    let members = set["members"].as_array().cloned().unwrap_or_default();
    members.iter().map(|member| member["host"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn copies_of_a_lost_host_are_made_anew_on_all_spare_hosts_under_load() {
    let (cluster, mut daemons) = made_of("many-to-many", 6);
    for host in SPARES {
        assert!(join(&cluster, host, "server,client").ok());
        daemons.push(serve(&cluster, host));
        done(&cluster, "h1", &format!("node spare {host} --spare-dir /var/lib/brindle/spare --after 10"));
    }
    for n in 0..OSTS {
        done(
            &cluster,
            "h1",
            &format!("target add --copies 2 --node h3 --node h2 --dir /var/lib/brindle/ost{n}"),
        );
    }
    mount(&cluster, "h6");
    done(&cluster, "h6", &format!("lfs setstripe -c {OSTS} {MOUNT}/f"));
    said(
        &cluster,
        "h6",
        &format!(
            "head -c 24M /dev/urandom > /tmp/many-to-many.f && cat /tmp/many-to-many.f > {MOUNT}/f && sync {MOUNT}/f"
        ),
    );
    let work = Work::begin(&cluster, "h6");
    assert!(cluster.dev(&["host", "kill", "--destroy-disks", "h2"]).ok());
    daemons.remove(1).wait().unwrap();
    work.goes_on();
    let is_rebuilt = || {
        let sets = sets(&cluster);
        sets.len() == OSTS && sets.iter().all(|set| set["state"] == "serving" && !hosts(set).contains("h2"))
    };
    until_within(REPLACED_WITHIN, "all copies on spare hosts", is_rebuilt);
    let sets = sets(&cluster);
    let spare = |host: &&str| sets.iter().filter(|set| hosts(set).contains(*host)).count();
    assert_eq!(SPARES.iter().map(spare).collect::<Vec<_>>(), [1; 3], "{sets:?}");
    work.goes_on();
    said(&cluster, "h6", &format!("cmp /tmp/many-to-many.f {MOUNT}/f && rm /tmp/many-to-many.f"));
    work.end(&cluster);
    end(cluster, daemons);
}
