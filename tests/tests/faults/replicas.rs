//! OSTs with members on two hosts, each with a directory of its own: a host is lost with its disks, then the other one; a member hangs, the
//! primary hangs. A client writes, overwrites and renames files with checksums all the time: no program sees an error, and every byte is right.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, until_within};
use crate::dice::seed;
use crate::enrolment::{brindle, done, end, join, mount, serve};
use crate::work::Work;

/// Longest time to fill a member in these tests.
const RESYNC_LIMIT: Duration = Duration::from_secs(40);

/// The MGS and the MDT on h1; h2 and h3 are to have an OST together; h4 is a client.
pub(crate) fn made(name: &str) -> (Cluster, Vec<Child>) {
    made_of(name, 4)
}

/// The same with another number of hosts.
pub(crate) fn made_of(name: &str, hosts: u8) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, hosts);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    done(&cluster, "h1", "target add --mdt --node h1 --dir /var/lib/brindle/mdt0");
    (cluster, daemons)
}

/// Gives a host a disk of its own for a directory: an image with ext4.
pub(crate) fn disk_for(cluster: &Cluster, host: &str, dir: &str) {
    let script = format!(
        "mkdir -p {dir} && truncate -s 1G {dir}.img && mkfs.ext4 -q {dir}.img \
         && mount -o loop,errors=remount-ro {dir}.img {dir} && rmdir {dir}/lost+found"
    );
    said(cluster, host, &script);
}

/// The disk of that directory finds an error, and takes no writes any more.
pub(crate) fn disk_fails(cluster: &Cluster, host: &str, dir: &str) {
    let device = said(cluster, host, &format!("findmnt -no SOURCE {dir}"));
    let name = device.strip_prefix("/dev/").unwrap();
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").unwrap();
}

/// The set of OST0000, as `brindle target replica list -o json` has it.
pub(crate) fn set(cluster: &Cluster) -> serde_json::Value {
    let listed = brindle(cluster, "h1", "target replica list -o json");
    serde_json::from_str(&listed.stdout).unwrap_or_default()
}

fn state(cluster: &Cluster) -> (String, String) {
    let set = set(cluster);
    let text = |key: &str| set[key].as_str().unwrap_or_default().to_owned();
    (text("primary"), text("state"))
}

pub(crate) fn until_served(cluster: &Cluster, primary: &str, state_wanted: &str) {
    let (wanted, since) = ((primary.to_owned(), state_wanted.to_owned()), Instant::now());
    while state(cluster) != wanted {
        let shown = brindle(cluster, "h1", "status").text;
        assert!(since.elapsed() < RESYNC_LIMIT, "not {wanted:?}: {}\n{shown}", set(cluster));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A host comes back without what was on its disks: it joins again, and the cluster gives it a copy anew.
fn come_back_empty(cluster: &Cluster, daemons: &mut [Child], (n, host): (usize, &str)) {
    daemons[n].wait().unwrap();
    done(cluster, "h1", &format!("target replica remove OST0000 --node {host}"));
    assert!(cluster.dev(&["host", "start", host]).ok());
    daemons[n] = serve(cluster, host);
    let added = done(cluster, "h1", &format!("target replica add OST0000 --node {host}"));
    assert!(added.contains("complete on"), "{added}");
}

#[test]
fn hosts_are_lost_with_their_disks_one_after_the_other_and_every_byte_is_there() {
    let (cluster, mut daemons) = made("replicas");
    let refused =
        brindle(&cluster, "h1", "target add --copies 2 --node h2 --node h2 --dir /var/lib/brindle/ost0");
    assert!(!refused.ok() && refused.text.contains("a host of its own"), "{refused}");
    let added = done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(added.ends_with("serving on h2, complete on h2, h3"), "{added}");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    assert!(cluster.dev(&["host", "kill", "--destroy-disks", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    let status = brindle(&cluster, "h1", "status").text;
    assert!(status.contains("target replica remove OST0000 --node h2"), "{status}");
    come_back_empty(&cluster, &mut daemons, (1, "h2"));
    work.goes_on();
    assert!(cluster.dev(&["host", "kill", "--destroy-disks", "h3"]).ok());
    work.goes_on();
    until_served(&cluster, "h2", "degraded");
    work.end(&cluster);
    daemons[2].wait().unwrap();
    end(cluster, daemons);
}

#[test]
fn the_disk_of_the_serving_copy_fails_under_load_and_the_other_copy_serves() {
    let dir = "/var/lib/brindle/ost0";
    let (cluster, daemons) = made("replicas-disk");
    disk_for(&cluster, "h2", dir);
    done(&cluster, "h1", &format!("target add --copies 2 --node h2 --node h3 --dir {dir}"));
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    disk_fails(&cluster, "h2", dir);
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    until_within(RESYNC_LIMIT, "status says that the copy has failed", || {
        brindle(&cluster, "h1", "status").text.contains("failed")
    });
    work.goes_on();
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn a_member_hangs_then_the_primary_hangs_and_both_come_back_by_themselves() {
    let (cluster, daemons) = made("replicas-hang");
    done(&cluster, "h1", "target add --node h2 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    // A set of one copy grows to two under load.
    let added = done(&cluster, "h1", "target replica add OST0000 --node h3");
    assert!(added.ends_with("serving on h2, complete on h2, h3"), "{added}");
    assert!(cluster.dev(&["host", "freeze", "h3"]).ok());
    work.goes_on();
    until_served(&cluster, "h2", "degraded");
    assert!(cluster.dev(&["host", "thaw", "h3"]).ok());
    until_served(&cluster, "h2", "serving");
    assert!(cluster.dev(&["host", "freeze", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    assert!(cluster.dev(&["host", "thaw", "h2"]).ok());
    until_served(&cluster, "h3", "serving");
    // The set goes back to one member.
    done(&cluster, "h1", "target replica remove OST0000 --node h2");
    until_served(&cluster, "h3", "serving");
    work.goes_on();
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn a_copy_that_is_away_for_too_long_is_made_anew_on_a_spare_host() {
    let (cluster, mut daemons) = made("replicas-spare");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "server,client").ok());
    daemons.push(serve(&cluster, "h4"));
    let refused = brindle(&cluster, "h1", "node spare h4");
    assert!(!refused.ok() && refused.text.contains("add --spare-dir DIR"), "{refused}");
    let refused = brindle(&cluster, "h1", "node spare h4 --spare-dir /var/lib/brindle/spare --after 3");
    assert!(!refused.ok() && refused.text.contains("3 s are not from 10 s"), "{refused}");
    let said = done(&cluster, "h1", "node spare h4 --spare-dir /var/lib/brindle/spare --after 10");
    assert!(said.contains("h4 gets the copies"), "{said}");
    let listed = done(&cluster, "h1", "node spare");
    assert!(listed.contains("h4") && listed.contains("after 10 s"), "{listed}");
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "h3", "serving");
    let hosts: Vec<String> = set(&cluster)["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["host"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(hosts, ["h3", "h4"]);
    // The host that was away finds out that it has no copy any more, and is not touched.
    daemons[1].wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons[1] = serve(&cluster, "h2");
    assert!(cluster.dev(&["host", "kill", "h3"]).ok());
    work.goes_on();
    until_served(&cluster, "h4", "degraded");
    done(&cluster, "h1", "node spare h4 --none");
    work.end(&cluster);
    daemons[2].wait().unwrap();
    end(cluster, daemons);
}
