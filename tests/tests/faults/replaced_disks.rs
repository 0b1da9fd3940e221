//! Something else lies where a copy was: an older copy of the same disk, the disk of another target, zeros, nothing. Property: the copy is refused by
//! name, what lies there is not changed, the other copy serves, and the right disk is taken in again.

use std::process::Child;

use brindle_tests::cluster::{Cluster, binary};

use crate::bare_hosts::{said, sh, start, until};
use crate::dice::seed;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};

const OTHER: &str = "/var/lib/brindle/ost9";

/// The MGS on h1, copies of an MDT and of an OST on h2 and h3, another target on h3, a client on h4.
fn made(name: &str) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, 4);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    done(&cluster, "h1", "target add --mdt --copies 2 --node h2 --node h3 --dir /var/lib/brindle/mdt0");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    done(&cluster, "h1", &format!("target add --index 9 --node h3 --dir {OTHER}"));
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    (cluster, daemons)
}

/// State of a set, and of its copy on h3 with the reason.
fn stands(cluster: &Cluster, target: &str) -> (String, String, String) {
    stands_on(cluster, target, "h3")
}

/// State of a set, and of its copy on a host with the reason.
fn stands_on(cluster: &Cluster, target: &str, host: &str) -> (String, String, String) {
    let listed = brindle(cluster, "h1", "target replica list -o json").stdout;
    let sets = serde_json::Deserializer::from_str(&listed).into_iter::<serde_json::Value>();
    let is_it = |set: &serde_json::Value| set["name"].as_str().is_some_and(|name| name.ends_with(target));
    let set = sets.filter_map(Result::ok).find(is_it).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let members = set["members"].as_array().cloned().unwrap_or_default();
    let own = members.iter().find(|member| member["host"] == host).cloned().unwrap_or_default();
    (text(&set["state"]), text(&own["state"]), text(&own["why"]))
}

fn kill_daemon(cluster: &Cluster, daemon: &mut Child) {
    kill_daemon_on(cluster, "h3", daemon);
}

fn kill_daemon_on(cluster: &Cluster, host: &str, daemon: &mut Child) {
    said(cluster, host, "pkill -KILL -f 'brindle serv[e]'");
    daemon.wait().unwrap();
}

fn start_daemon(cluster: &Cluster) -> Child {
    start_daemon_on(cluster, "h3")
}

fn start_daemon_on(cluster: &Cluster, host: &str) -> Child {
    start(cluster, host, &format!("exec '{}' serve --log /var/lib/brindle/serve.log", binary().display()))
}

/// Sums of all that lies in a directory. Who has locked it is no part of the target.
fn sums(cluster: &Cluster, dir: &str) -> String {
    sums_on(cluster, "h3", dir)
}

fn sums_on(cluster: &Cluster, host: &str, dir: &str) -> String {
    said(
        cluster,
        host,
        &format!("cd {dir} && find . -type f ! -name lock ! -name '*.lock' -exec md5sum {{}} + | sort -k2"),
    )
}

/// Puts something in the place of the copy on h3, has its daemon look at it, and puts the right disk back.
fn replaced(
    cluster: &Cluster,
    daemon: &mut Child,
    (target, dir): (&str, &str),
    (with, words): (&str, &[&str]),
) {
    kill_daemon(cluster, daemon);
    said(cluster, "h3", &format!("mv {dir} {dir}.right && D={dir} && {with}"));
    let before = sums(cluster, dir);
    *daemon = start_daemon(cluster);
    until(&format!("{target}: {with}: refused"), || {
        let (set, own, why) = stands(cluster, target);
        set == "degraded" && own == "failed" && words.iter().all(|word| why.contains(word))
    });
    said(cluster, "h4", &format!("cd {MOUNT} && echo x > during && cat during && rm during"));
    kill_daemon(cluster, daemon);
    assert_eq!(sums(cluster, dir), before, "{target}: {with}");
    said(cluster, "h3", &format!("rm -r {dir} && mv {dir}.right {dir}"));
    *daemon = start_daemon(cluster);
    until(&format!("{target} being complete again"), || stands(cluster, target).0 == "serving");
}

#[test]
fn what_is_not_the_disk_of_a_copy_is_refused_by_name_and_left_alone() {
    let (cluster, mut daemons) = made("replaced-disks");
    for (target, dir) in [("OST0000", "/var/lib/brindle/ost0"), ("MDT0000", "/var/lib/brindle/mdt0")] {
        let daemon = &mut daemons[2];
        until("both copies", || stands(&cluster, target).0 == "serving");
        // The set goes on while the host is away, so that the copy of the disk is an older one.
        kill_daemon(&cluster, daemon);
        said(&cluster, "h3", &format!("cp -a {dir} {dir}.older"));
        until("going on without it", || stands(&cluster, target).0 == "degraded");
        *daemon = start_daemon(&cluster);
        until("both copies again", || stands(&cluster, target).0 == "serving");
        let zeros = "cp -a $D.right $D && find $D -type f | while read f; do n=$(stat -c %s $f); \
                     truncate -s 0 $f && truncate -s $n $f; done";
        for replacement in [
            ("cp -a $D.older $D", &["this member had recorded epoch"][..]),
            ("cp -a /var/lib/brindle/ost9 $D", &["OST0009"][..]),
            (zeros, &["superblock"][..]),
            ("mkdir $D", &["perhaps its disk is not mounted"][..]),
        ] {
            replaced(&cluster, daemon, (target, dir), replacement);
        }
    }
    let listed = sh(&cluster, "h4", &format!("ls {MOUNT}"));
    assert!(listed.ok(), "{listed}");
    end(cluster, daemons);
}

/// The only copy in sync: nobody else can tell that what lies there is older. The epoch does not change while it serves alone, so the copy of
/// its disk has the epoch under which it was made.
#[test]
fn an_older_copy_of_the_only_disk_in_sync_is_refused_by_name() {
    let (cluster, mut daemons) = made("replaced-only-disk");
    let sets = [("OST0000", "/var/lib/brindle/ost0"), ("MDT0000", "/var/lib/brindle/mdt0")];
    for (target, _) in sets {
        until("both copies", || stands(&cluster, target).0 == "serving");
    }
    kill_daemon(&cluster, &mut daemons[2]);
    for (target, _) in sets {
        until("going on with one copy", || stands(&cluster, target).0 == "degraded");
    }
    for (target, dir) in sets {
        // Programs wait until the copy serves.
        said(&cluster, "h4", &format!("cd {MOUNT} && echo old > kept && sync kept"));
        kill_daemon_on(&cluster, "h2", &mut daemons[1]);
        said(&cluster, "h2", &format!("cp -a {dir} {dir}.older"));
        daemons[1] = start_daemon_on(&cluster, "h2");
        said(&cluster, "h4", &format!("cd {MOUNT} && echo new > kept && sync kept && echo n > {target}"));
        kill_daemon_on(&cluster, "h2", &mut daemons[1]);
        said(&cluster, "h2", &format!("mv {dir} {dir}.right && mv {dir}.older {dir}"));
        let before = sums_on(&cluster, "h2", dir);
        daemons[1] = start_daemon_on(&cluster, "h2");
        until(&format!("{target}: the older copy is refused"), || {
            let (_, own, why) = stands_on(&cluster, target, "h2");
            own == "failed" && why.contains("this member had recorded epoch")
        });
        kill_daemon_on(&cluster, "h2", &mut daemons[1]);
        assert_eq!(sums_on(&cluster, "h2", dir), before, "{target}");
        said(&cluster, "h2", &format!("rm -r {dir} && mv {dir}.right {dir}"));
        daemons[1] = start_daemon_on(&cluster, "h2");
        assert_eq!(said(&cluster, "h4", &format!("cat {MOUNT}/kept {MOUNT}/{target}")).trim(), "new\nn");
    }
    daemons[2] = start_daemon(&cluster);
    for (target, _) in sets {
        until(&format!("{target} being complete again"), || stands(&cluster, target).0 == "serving");
    }
    end(cluster, daemons);
}
