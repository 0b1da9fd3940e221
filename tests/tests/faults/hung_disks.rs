//! Disks that hang: no error comes, and what was asked never returns. The file system below a copy is frozen (`fsfreeze`), so that whoever writes to it
//! waits. Property: another copy serves, the copy on the hung disk is put out of the set and named, no program sees an error, and the copy comes back by
//! itself when its disk answers.

use std::time::Duration;

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, sh, until_within};
use crate::enrolment::{brindle, done, end, join, mount};
use crate::mdt_replicas::{self, Names};
use crate::replicas::{disk_for, made, set, until_served};
use crate::work::Work;

/// Longest time until a disk that hangs is named.
const TOLD_LIMIT: Duration = Duration::from_secs(20);

/// A file system that takes no writes; it is thawed in any case.
struct Frozen<'a> {
    cluster: &'a Cluster,
    host: &'static str,
    dir: &'static str,
}

impl<'a> Frozen<'a> {
    fn new(cluster: &'a Cluster, host: &'static str, dir: &'static str) -> Frozen<'a> {
        said(cluster, host, &format!("fsfreeze -f {dir}"));
        Frozen { cluster, host, dir }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thawed = sh(self.cluster, self.host, &format!("fsfreeze -u {}", self.dir));
        assert!(thawed.ok() || std::thread::panicking(), "{thawed}");
    }
}

/// Waits until the status names the disk of a host that hangs.
fn until_told(cluster: &Cluster, host: &str) {
    until_within(TOLD_LIMIT, &format!("telling that the disk of {host} hangs"), || {
        let members = set(cluster)["members"].as_array().cloned().unwrap_or_default();
        let of_host = |member: &&serde_json::Value| member["host"] == *host;
        members.iter().find(of_host).is_some_and(|member| member["why"].to_string().contains("E4016"))
    });
}

/// The disk of the copy that serves hangs, then that of the copy that follows.
fn each_hangs(cluster: &Cluster, dir: &'static str, work: &Work) {
    let frozen = Frozen::new(cluster, "h2", dir);
    until_served(cluster, "h3", "degraded");
    work.goes_on();
    until_told(cluster, "h2");
    drop(frozen);
    until_served(cluster, "h3", "serving");
    work.goes_on();
    let frozen = Frozen::new(cluster, "h2", dir);
    until_served(cluster, "h3", "degraded");
    until_told(cluster, "h2");
    work.goes_on();
    drop(frozen);
    until_served(cluster, "h3", "serving");
    let events = done(cluster, "h1", "events");
    assert!(events.contains("h3"), "{events}");
}

#[test]
fn the_disks_of_the_copies_of_an_ost_hang_under_load_one_after_the_other() {
    let dir = "/var/lib/brindle/ost0";
    let (cluster, daemons) = made("hung-ost");
    disk_for(&cluster, "h2", dir);
    done(&cluster, "h1", &format!("target add --copies 2 --node h2 --node h3 --dir {dir}"));
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    each_hangs(&cluster, dir, &work);
    work.end(&cluster);
    // A copy whose disk hangs while nobody writes is put out, too: it could not take over.
    let frozen = Frozen::new(&cluster, "h2", dir);
    until_served(&cluster, "h3", "degraded");
    until_told(&cluster, "h2");
    let status = brindle(&cluster, "h1", "status").text;
    assert!(status.contains("does not answer"), "{status}");
    drop(frozen);
    until_served(&cluster, "h3", "serving");
    end(cluster, daemons);
}

#[test]
fn the_disks_of_the_copies_of_an_mdt_hang_under_load_one_after_the_other() {
    let dir = "/var/lib/brindle/mdt0";
    let (cluster, daemons) = mdt_replicas::made_on(
        "hung-mdt",
        "target add --mdt --dir /var/lib/brindle/mdt0 --copies 2 --node h2 --node h3",
        (&["h2", "h3"], "h4"),
        |cluster| disk_for(cluster, "h2", dir),
    );
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    each_hangs(&cluster, dir, &work);
    names.end(&cluster, "h4");
    work.end(&cluster);
    end(cluster, daemons);
}
