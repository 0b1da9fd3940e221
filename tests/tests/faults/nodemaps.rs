//! Hosts that are not trusted fully, through real mounts: root that is nobody, hosts that only read, and nodemaps that change meanwhile. (What such a
//! host gets with a client program of its own: `brindle-testkit/tests/sessions/nodemaps.rs`.)

use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Output};

use crate::bare_hosts::{said, sh};
use crate::enrolment::{MOUNT, brindle, done, end, made, mount};

/// Longest time until servers hear of a nodemap, and a mount begins a new session.
const LIMIT: Duration = Duration::from_secs(90);
/// A user of every host.
const ALICE: u32 = 1234;

/// A script of a user on a host.
fn as_user(cluster: &Cluster, host: &str, uid: u32, script: &str) -> Output {
    sh(cluster, host, &format!("setpriv --reuid {uid} --regid {uid} --clear-groups sh -c '{script}'"))
}

pub(crate) fn eventually(what: &str, mut tried: impl FnMut() -> Output, is_so: impl Fn(&Output) -> bool) {
    let since = Instant::now();
    loop {
        let last = tried();
        if is_so(&last) {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{what} does not happen: {last}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn refused(out: &Output, why: &str) {
    assert!(!out.ok() && out.text.contains(why), "not refused with '{why}': {out}");
}

#[test]
fn a_host_does_no_more_than_its_nodemap_says() {
    let (cluster, daemons) = made("nodemaps");
    mount(&cluster, "h1");
    let m = MOUNT;
    let make = format!(
        "cd {m} && mkdir -m 0700 alice && head -c 300000 /dev/urandom > alice/secret && echo small > alice/small && \
         chmod 600 alice/* && mkdir -m 1777 tmp && chown -R {ALICE}:{ALICE} alice && head -c 300000 /dev/urandom > all && sync"
    );
    said(&cluster, "h1", &make);
    let list = done(&cluster, "h1", "nodemap list");
    assert!(list.contains("default") && list.contains("trusted fully"), "{list}");
    said(&cluster, "h3", &format!("cat {m}/alice/secret {m}/alice/small > /run/brindle/trusted"));
    squashed_root(&cluster);
    read_only(&cluster);
    one_tree(&cluster);
    let removed = done(&cluster, "h1", "nodemap remove lab");
    assert!(removed.contains("default nodemap"), "{removed}");
    let write = || sh(&cluster, "h3", &format!("echo again > {m}/of-root"));
    eventually("trust", write, Output::ok);
    said(
        &cluster,
        "h3",
        &format!("cmp {m}/of-root /dev/stdin <<EOF\nagain\nEOF\ncat {m}/alice/secret > /dev/null"),
    );
    let audit = said(&cluster, "h1", "grep -c 'audit=true.*nodemap' /var/lib/brindle/serve.log");
    assert!(audit.parse::<u32>().unwrap() >= 3, "{audit}");
    end(cluster, daemons);
}

fn squashed_root(cluster: &Cluster) {
    let m = MOUNT;
    let dry = done(cluster, "h1", "nodemap add lab --host h3 --squash root --dry-run");
    assert!(dry.starts_with("would make lab"), "{dry}");
    refused(&brindle(cluster, "h1", "nodemap show lab"), "E5083");
    refused(&brindle(cluster, "h3", "nodemap list --mgs h1"), "E1021");
    done(cluster, "h1", "nodemap add lab --host h3 --squash root");
    refused(&brindle(cluster, "h1", "nodemap add other --host h3"), "E5084");
    refused(&brindle(cluster, "h1", "nodemap add other --host h1 --read-only"), "E5084");
    let read = || sh(cluster, "h3", &format!("cat {m}/alice/secret"));
    eventually("squashing", read, |out| !out.ok() && out.text.contains("Permission denied"));
    for script in [
        format!("cat {m}/alice/small"),
        format!("echo x > {m}/new"),
        format!("echo x >> {m}/all"),
        format!("chown 0:0 {m}/all"),
        format!("chmod 777 {m}/all"),
        format!("rm -f {m}/all"),
        format!("mv {m}/all {m}/tmp/taken"),
        format!("touch {m}/alice/x"),
    ] {
        let out = sh(cluster, "h3", &script);
        let is_refused = !out.ok() && ["denied", "not permitted"].iter().any(|why| out.text.contains(why));
        assert!(is_refused, "{script}: {out}");
    }
    // Root of the host is a user like others, and other users keep their numbers.
    let made = said(
        cluster,
        "h3",
        &format!("cd {m} && cmp all all && echo x > tmp/nobodys && stat -c %u:%g tmp/nobodys"),
    );
    assert_eq!(made, "65534:65534");
    let alice = as_user(
        cluster,
        "h3",
        ALICE,
        &format!("cd {m}/alice && cat secret small && echo more > more && rm more"),
    );
    assert!(alice.ok(), "{alice}");
    let after = format!("cat {m}/alice/secret {m}/alice/small > /run/brindle/after");
    refused(&sh(cluster, "h3", &after), "Permission denied");
    let shown: serde_json::Value =
        serde_json::from_str(&done(cluster, "h1", "nodemap show lab -o json")).unwrap();
    assert_eq!((&shown["squash"], &shown["hosts"][0]), (&"root".into(), &"h3".into()), "{shown}");
}

fn read_only(cluster: &Cluster) {
    let m = MOUNT;
    done(cluster, "h1", "nodemap set lab --read-only yes");
    let write = || as_user(cluster, "h3", ALICE, &format!("echo x > {m}/alice/more"));
    eventually("reading only", write, |out| out.text.contains("Read-only file system"));
    for script in [
        format!("echo x >> {m}/alice/small"),
        format!("mkdir {m}/tmp/d"),
        format!("rm -f {m}/alice/small"),
        format!("mv {m}/alice/small {m}/alice/other"),
        format!("ln {m}/alice/small {m}/alice/other"),
        format!("ln -s x {m}/alice/other"),
        format!("chmod 644 {m}/alice/small"),
        format!("touch {m}/alice/small"),
        format!("truncate -s 1 {m}/alice/small"),
    ] {
        refused(&as_user(cluster, "h3", ALICE, &script), "Read-only file system");
    }
    let read = as_user(cluster, "h3", ALICE, &format!("cat {m}/alice/secret {m}/alice/small {m}/all"));
    assert!(read.ok(), "{read}");
    // Other hosts are not affected.
    said(cluster, "h1", &format!("cd {m} && echo x > alice/of-h1 && cat alice/small"));
}

fn one_tree(cluster: &Cluster) {
    let m = MOUNT;
    let told = done(cluster, "h1", "nodemap set lab --read-only no --squash none --subtree /alice");
    assert!(told.contains("/alice only"), "{told}");
    let outside = || sh(cluster, "h3", &format!("cat {m}/all"));
    eventually("a tree of its own", outside, |out| !out.ok() && out.text.contains("Permission denied"));
    for script in [
        format!("ls {m}"),
        format!("ls {m}/tmp"),
        format!("echo x > {m}/new"),
        format!("mv {m}/alice/small {m}/tmp/x"),
    ] {
        refused(&sh(cluster, "h3", &script), "Permission denied");
    }
    said(cluster, "h3", &format!("cat {m}/alice/small && echo x > {m}/alice/of-h3 && rm {m}/alice/of-h3"));
    let brindle = brindle_tests::cluster::binary();
    let mount = format!(
        "mkdir -p /run/brindle/t && '{0}' mount h1:/scratch/alice /run/brindle/t && cat /run/brindle/t/small && '{0}' umount /run/brindle/t",
        brindle.display()
    );
    assert_eq!(said(cluster, "h3", &mount).lines().find(|line| *line == "small"), Some("small"));
    refused(&sh(cluster, "h3", &mount.replace("scratch/alice", "scratch/tmp")), "tmp");
}
