//! Hosts whose users have other numbers than in the file system, through real mounts: two hosts with different mappings share a directory. (What such a
//! host gets with a client program of its own: `brindle-testkit/tests/sessions/id_maps.rs`.)

use brindle_tests::cluster::{Cluster, Output};

use crate::bare_hosts::{said, sh};
use crate::enrolment::{MOUNT, brindle, done, end, made, mount};
use crate::nodemaps::{eventually, refused};

/// A script of a user on a host, who is also in the group with the next number.
fn as_user(cluster: &Cluster, host: &str, uid: u32, script: &str) -> Output {
    let group = uid + 1;
    sh(cluster, host, &format!("setpriv --reuid {uid} --regid {uid} --groups {group} sh -c '{script}'"))
}

fn did(cluster: &Cluster, host: &str, uid: u32, script: &str) -> String {
    let out = as_user(cluster, host, uid, script);
    assert!(out.ok(), "{host}, user {uid}: {script}: {out}");
    out.stdout.trim().to_owned()
}

/// User and group of a file, as a host sees them.
fn owner(cluster: &Cluster, host: &str, file: &str) -> String {
    said(cluster, host, &format!("stat -c %u:%g {MOUNT}/{file}"))
}

#[test]
fn two_hosts_with_numbers_of_their_own_share_a_directory() {
    let (cluster, daemons) = made("id_maps");
    mount(&cluster, "h1");
    mount(&cluster, "h2");
    said(&cluster, "h1", &format!("mkdir -m 1777 {MOUNT}/shared && echo of root > {MOUNT}/shared/root"));
    map(&cluster);
    let on = |host: &str| owner(&cluster, host, "shared/root");
    for host in ["h2", "h3"] {
        let look = || sh(&cluster, host, &format!("stat -c %u:%g {MOUNT}/shared/root"));
        eventually("the mapping", look, |out| out.stdout.trim() == "65534:65534");
    }
    assert_eq!(on("h1"), "0:0");
    files(&cluster);
    acls(&cluster);
    strangers(&cluster);
    end(cluster, daemons);
}

fn map(cluster: &Cluster) {
    let dry = done(cluster, "h1", "nodemap add lab --host h3 --map-uid 1000-1009:5000 --dry-run");
    assert!(dry.contains("users 1000-1009:5000"), "{dry}");
    done(cluster, "h1", "nodemap add lab --host h3 --map-uid 1000-1009:5000 --map-gid 1000-1009:5000");
    done(
        cluster,
        "h1",
        "nodemap add office --host h2 --map-uid 2000-2009:5000 --map-gid 2000:5000,2001-2009:5001",
    );
    refused(&brindle(cluster, "h1", "nodemap set lab --map-uid 1009:9000"), "E5084");
    refused(&brindle(cluster, "h1", "nodemap set lab --map-uid 77:5003"), "onto one of the file system");
    refused(&brindle(cluster, "h1", "nodemap set lab --squash none"), "E5084");
    let shown: serde_json::Value =
        serde_json::from_str(&done(cluster, "h1", "nodemap show office -o json")).unwrap();
    assert_eq!(shown["map_gid"], serde_json::json!(["2000:5000", "2001-2009:5001"]), "{shown}");
    assert_eq!((&shown["squash"], &shown["deny_unknown"]), (&"root".into(), &false.into()), "{shown}");
    let text = done(cluster, "h1", "nodemap show lab");
    assert!(text.contains("users: 1000-1009:5000") && text.contains("others: squashed"), "{text}");
}

/// A file has an owner, whose number differs on three hosts.
fn files(cluster: &Cluster) {
    let f = format!("{MOUNT}/shared/f");
    did(cluster, "h3", 1000, &format!("umask 022; echo one > {f}; mkdir {MOUNT}/shared/d"));
    let owners = |file: &str| ["h1", "h2", "h3"].map(|host| owner(cluster, host, file));
    assert_eq!(owners("shared/f"), ["5000:5000", "2000:2000", "1000:1000"]);
    assert_eq!(owners("shared/d"), ["5000:5000", "2000:2000", "1000:1000"]);
    did(cluster, "h2", 2000, &format!("echo two >> {f}"));
    refused(&as_user(cluster, "h2", 2001, &format!("echo three >> {f}")), "denied");
    refused(&as_user(cluster, "h2", 5000, &format!("echo three >> {f}")), "denied");
    assert_eq!(did(cluster, "h3", 1000, &format!("cat {f}")), "one\ntwo");
    did(cluster, "h3", 1000, &format!("chgrp 1001 {f}"));
    assert_eq!(owners("shared/f"), ["5000:5001", "2000:2001", "1000:1001"]);
    did(cluster, "h2", 2000, &format!("chgrp 2000 {f} && chown 2000 {f}"));
    assert_eq!(owners("shared/f"), ["5000:5000", "2000:2000", "1000:1000"]);
    // No user can give a file to a number that the file system does not know.
    for script in [format!("chgrp 4242 {f}"), format!("chown 4242 {f}")] {
        refused(&sh(cluster, "h3", &script), "not permitted");
        refused(&as_user(cluster, "h3", 1000, &script), "not permitted");
    }
    // Numbers of strangers: root of the host, and users without a mapping.
    did(cluster, "h3", 4000, &format!("echo x > {MOUNT}/shared/of-nobody"));
    assert_eq!(owners("shared/of-nobody"), ["65534:65534", "65534:65534", "65534:65534"]);
}

/// `os.setxattr` or `os.getxattr` of an access ACL with one named user.
fn acl(user: u32) -> String {
    format!(
        "struct.pack(\"<I\", 2) + b\"\".join(struct.pack(\"<HHI\", *e) for e in [(1,6,2**32-1),(2,6,{user}),(4,4,2**32-1),(16,6,2**32-1),(32,0,2**32-1)])"
    )
}

fn acls(cluster: &Cluster) {
    let f = format!("{MOUNT}/shared/f");
    let set = format!(
        "python3 -c \"import os,struct; os.setxattr(\\\"{f}\\\", \\\"system.posix_acl_access\\\", {})\"",
        acl(1001).replace('"', "\\\"")
    );
    did(cluster, "h3", 1000, &set);
    for (host, user) in [("h1", 5001), ("h2", 2001), ("h3", 1001)] {
        let look = format!(
            "python3 -c 'import os,struct; assert os.getxattr(\"{f}\", \"system.posix_acl_access\") == {}'",
            acl(user)
        );
        said(cluster, host, &look);
    }
    did(cluster, "h2", 2001, &format!("echo by the colleague >> {f}"));
    refused(&as_user(cluster, "h2", 2002, &format!("cat {f}")), "denied");
    let stranger = set.replace("1001", "4242");
    refused(&as_user(cluster, "h3", 1000, &stranger), "not permitted");
    did(cluster, "h3", 1000, &format!("chmod 644 {f}"));
}

fn strangers(cluster: &Cluster) {
    let f = format!("{MOUNT}/shared/root");
    did(cluster, "h3", 4000, &format!("cat {f}"));
    let told = done(cluster, "h1", "nodemap set lab --deny-unknown");
    assert!(told.contains("others refused"), "{told}");
    let read = || as_user(cluster, "h3", 4000, &format!("cat {f}"));
    eventually("refusing strangers", read, |out| !out.ok() && out.text.contains("Permission denied"));
    eventually("serving the others", || as_user(cluster, "h3", 1000, &format!("cat {f}")), Output::ok);
    done(
        cluster,
        "h1",
        "nodemap set lab --unmap-uid 1000-1009:5000 --unmap-gid 1000-1009:5000 --squash none",
    );
    let look = || sh(cluster, "h3", &format!("stat -c %u:%g {MOUNT}/shared/f"));
    eventually("the end of the mapping", look, |out| out.stdout.trim() == "5000:5000");
}
