//! An MDT with members on two hosts, each with a directory of its own. A host is lost with its disks, then the other one; a member hangs,
//! the primary hangs; another member is promoted. Clients write files with checksums and change names all the time: no program sees an
//! error, every byte is right, and every name is where it was put.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, sh, start_kept, succeeds, until};
use crate::dice::{rounds, seed};
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::{disk_fails, disk_for, until_served};
use crate::work::Work;

/// Script that makes the same changes of names in the file system and in a directory beside it, until a file
/// tells it to stop. Fails with the first error.
const NAMES: &str = "n=0; while ! test -e $S/stop; do for at in $M/names $S/names; do \
     mkdir -p $at/d$n && for i in 1 2 3 4 5 6 7 8 9; do echo $n-$i > $at/d$n/f$i || exit 1; done \
     && mv $at/d$n/f1 $at/d$n/g1 && ln $at/d$n/f2 $at/d$n/h2 && rm $at/d$n/f3 && ln -s f4 $at/d$n/s4 && chmod 640 $at/d$n/f5 \
     && mkdir $at/d$n/sub && mv $at/d$n/f6 $at/d$n/sub/ || exit 1; \
     if test $n -gt 3; then mv $at/d$((n-2)) $at/e$((n-2)) || exit 1; fi; if test $n -gt 4; then rm -r $at/e$((n-3)) || exit 1; fi; done; \
     n=$((n+1)); done";

/// Compared attributes: kind, mode, links, size and name of every entry.
const LISTED: &str =
    "find . -mindepth 1 -printf '%y %m %n %l %P\\n' | sort; find . -type f -exec cat {} + | sort | md5sum";

const ADD: &str = "target add --mdt --dir /var/lib/brindle/mdt0";

/// A client's work on names.
pub(crate) struct Names {
    child: Child,
    dir: PathBuf,
}

impl Names {
    pub(crate) fn begin(cluster: &Cluster, host: &'static str) -> Names {
        let dir = cluster.outside().join("names-of-work");
        fs::create_dir_all(&dir).unwrap();
        let script = format!("M={MOUNT}; S='{}'; {NAMES}", dir.display());
        let child = start_kept(cluster, host, &script, &dir.join("complaints"));
        Names { child, dir }
    }

    pub(crate) fn end(mut self, cluster: &Cluster, host: &str) {
        fs::write(self.dir.join("stop"), "").unwrap();
        succeeds(&mut self.child, &self.dir.join("complaints"));
        let listed = |at: &str| said(cluster, host, &format!("cd {at} && {LISTED}"));
        let wanted = listed(&format!("{}/names", self.dir.display()));
        let found = listed(&format!("{MOUNT}/names"));
        assert_eq!(found, wanted);
        assert!(wanted.lines().count() > 20, "{wanted}");
    }
}

/// The MGS and an OST on h1, the MDT on these hosts, a client behind them.
fn made(name: &str, mdt: &str, hosts: (&[&str], &str)) -> (Cluster, Vec<Child>) {
    made_on(name, mdt, hosts, |_| {})
}

/// The same, with something done on the hosts before they get the MDT.
pub(crate) fn made_on(
    name: &str,
    mdt: &str,
    (hosts, client): (&[&str], &str),
    before: impl FnOnce(&Cluster),
) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, hosts.len() as u8 + 2);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in hosts {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    before(&cluster);
    let added = done(&cluster, "h1", mdt);
    let all = format!("serving on h2, complete on {}", hosts.join(", "));
    assert!(!mdt.contains("--copies") || added.ends_with(&all), "{added}");
    done(&cluster, "h1", "target add --node h1 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, client, "client").ok());
    mount(&cluster, client);
    (cluster, daemons)
}

#[test]
fn hosts_with_the_mdt_are_lost_with_their_disks_one_after_the_other_and_every_name_is_there() {
    let (cluster, mut daemons) =
        made("mdt-replicas", &format!("{ADD} --copies 2 --node h2 --node h3"), (&["h2", "h3"], "h4"));
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    assert!(cluster.dev(&["host", "kill", "--destroy-disks", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    let status = brindle(&cluster, "h1", "status").text;
    assert!(status.contains("target replica remove MDT0000 --node h2"), "{status}");
    // The host comes back with empty disks, and gets a copy anew.
    daemons[1].wait().unwrap();
    done(&cluster, "h1", "target replica remove MDT0000 --node h2");
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons[1] = serve(&cluster, "h2");
    let added = done(&cluster, "h1", "target replica add MDT0000 --node h2");
    assert!(added.contains("complete on"), "{added}");
    work.goes_on();
    assert!(cluster.dev(&["host", "kill", "--destroy-disks", "h3"]).ok());
    work.goes_on();
    until_served(&cluster, "h2", "degraded");
    names.end(&cluster, "h4");
    work.end(&cluster);
    daemons[2].wait().unwrap();
    end(cluster, daemons);
}

#[test]
fn one_copy_of_the_mdt_becomes_two_a_member_hangs_the_primary_hangs_and_another_is_promoted() {
    let (cluster, daemons) = made("mdt-replicas-hang", &format!("{ADD} --node h2"), (&["h2", "h3"], "h4"));
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    for _ in 0..rounds() {
        let added = done(&cluster, "h1", "target replica add MDT0000 --node h3");
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
        let promoted = done(&cluster, "h1", "target replica promote MDT0000 --node h2");
        assert!(promoted.contains("serving on h2"), "{promoted}");
        work.goes_on();
        until_served(&cluster, "h2", "serving");
        // The set goes back to one member.
        done(&cluster, "h1", "target replica remove MDT0000 --node h3");
        until_served(&cluster, "h2", "serving");
        work.goes_on();
    }
    names.end(&cluster, "h4");
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn the_disk_of_the_serving_copy_of_the_mdt_fails_under_load_and_the_other_copy_serves() {
    let dir = "/var/lib/brindle/mdt0";
    let mdt = format!("{ADD} --copies 2 --node h2 --node h3");
    let hosts: (&[&str], _) = (&["h2", "h3"], "h4");
    let (cluster, daemons) =
        made_on("mdt-replicas-disk", &mdt, hosts, |cluster| disk_for(cluster, "h2", dir));
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    disk_fails(&cluster, "h2", dir);
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    names.end(&cluster, "h4");
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn programs_that_wait_for_a_lock_do_not_keep_the_mdt_from_becoming_a_set_and_get_the_lock() {
    let (cluster, daemons) = made("mdt-replicas-locks", &format!("{ADD} --node h2"), (&["h2", "h3"], "h4"));
    let lock = |work: &str| format!("cd {MOUNT} && exec flock -x lock {work}");
    let complaints = |name: &str| cluster.outside().join(name);
    let held = "sh -c 'echo > held; while ! test -e end; do sleep 0.1; done'";
    let mut holder = start_kept(&cluster, "h4", &lock(held), &complaints("holder"));
    until("the lock being held", || sh(&cluster, "h4", &format!("test -e {MOUNT}/held")).ok());
    let mut waiter = start_kept(&cluster, "h4", &lock("touch got"), &complaints("waiter"));
    until("a program waiting", || brindle(&cluster, "h4", &format!("waits {MOUNT}")).text.contains("lock"));
    for _ in 0..2 {
        done(&cluster, "h1", "target replica add MDT0000 --node h3");
        until_served(&cluster, "h2", "serving");
        done(&cluster, "h1", "target replica promote MDT0000 --node h3");
        until_served(&cluster, "h3", "serving");
        done(&cluster, "h1", "target replica promote MDT0000 --node h2");
        done(&cluster, "h1", "target replica remove MDT0000 --node h3");
    }
    assert!(!sh(&cluster, "h4", &format!("test -e {MOUNT}/got")).ok(), "the lock was given to two");
    said(&cluster, "h4", &format!("touch {MOUNT}/end"));
    succeeds(&mut holder, &complaints("holder"));
    succeeds(&mut waiter, &complaints("waiter"));
    said(&cluster, "h4", &format!("test -e {MOUNT}/got"));
    end(cluster, daemons);
}

#[test]
fn processes_and_hosts_of_three_copies_of_the_mdt_die_and_come_back_with_what_they_had() {
    let nodes = "--copies 3 --node h2 --node h3 --node h4";
    let (cluster, mut daemons) =
        made("mdt-replicas-three", &format!("{ADD} {nodes}"), (&["h2", "h3", "h4"], "h5"));
    let (work, names) = (Work::begin(&cluster, "h5"), Names::begin(&cluster, "h5"));
    // The primary's process: it goes on under another term, and the others get what was on its way.
    let kill = |host: &str| said(&cluster, host, "pkill -KILL -f 'brindle serv[e]'");
    kill("h2");
    daemons[1].wait().unwrap();
    daemons[1] = serve(&cluster, "h2");
    work.goes_on();
    until_served(&cluster, "h2", "serving");
    // A member's process.
    kill("h4");
    daemons[3].wait().unwrap();
    work.goes_on();
    daemons[3] = serve(&cluster, "h4");
    until_served(&cluster, "h2", "serving");
    // The primary's host loses what was not synced, and comes back behind the others.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    work.goes_on();
    daemons[1].wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons[1] = serve(&cluster, "h2");
    until_served(&cluster, "h3", "serving");
    // Two of three at once.
    assert!(cluster.dev(&["host", "kill", "h3"]).ok());
    assert!(cluster.dev(&["host", "kill", "h4"]).ok());
    work.goes_on();
    until_served(&cluster, "h2", "degraded");
    for (n, host) in [(2, "h3"), (3, "h4")] {
        daemons[n].wait().unwrap();
        assert!(cluster.dev(&["host", "start", host]).ok());
        daemons[n] = serve(&cluster, host);
    }
    until_served(&cluster, "h2", "serving");
    names.end(&cluster, "h5");
    work.end(&cluster);
    end(cluster, daemons);
}
