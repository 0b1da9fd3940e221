//! A cluster made on empty machines, as docs/operations/install.md says: the first host makes it, others join with tokens, an administrator
//! assigns targets to hosts, a client mounts. Then hosts die, are removed, and join again.

use std::process::Child;

use brindle_tests::cluster::{Cluster, Output, binary};

use crate::bare_hosts::{said, sh, start, until};
use crate::dice::seed;

/// Mount point of clients: in a directory that each host has for itself.
pub(crate) const MOUNT: &str = "/run/brindle/m";

/// `brindle ARGS` on a host.
pub(crate) fn brindle(cluster: &Cluster, host: &str, args: &str) -> Output {
    sh(cluster, host, &format!("'{}' {args}", binary().display()))
}

/// Runs `brindle` on a host; the command has to succeed.
pub(crate) fn done(cluster: &Cluster, host: &str, args: &str) -> String {
    said(cluster, host, &format!("'{}' {args}", binary().display()))
}

/// Starts the daemon of a host.
pub(crate) fn serve(cluster: &Cluster, host: &str) -> Child {
    let child = start(
        cluster,
        host,
        &format!("exec '{}' serve --log /var/lib/brindle/serve.log", binary().display()),
    );
    until("serving", || state(cluster, host) == "up");
    child
}

/// State of a host, as the MGS has it; empty while it does not answer.
fn state(cluster: &Cluster, host: &str) -> String {
    let shown = brindle(cluster, "h1", &format!("node show {host} -o json"));
    let parsed: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    parsed["state"].as_str().unwrap_or_default().to_owned()
}

/// A token made on h1, brought to a host, used there.
pub(crate) fn join(cluster: &Cluster, host: &str, role: &str) -> Output {
    let token = done(cluster, "h1", &format!("cluster token --role {role}"));
    sh(
        cluster,
        host,
        &format!("echo {token} > /run/brindle/token; '{}' join < /run/brindle/token", binary().display()),
    )
}

pub(crate) fn mount(cluster: &Cluster, host: &str) {
    let brindle = binary();
    said(
        cluster,
        host,
        &format!(
            "mkdir -p {MOUNT}; '{}' mount --log /var/lib/brindle/mount.log h1:/scratch {MOUNT}",
            brindle.display()
        ),
    );
}

/// A cluster with the MDT on h1, two OSTs on h2, and h3 as a client; the daemons.
pub(crate) fn made(name: &str) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, 3);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    assert!(join(&cluster, "h2", "server").ok());
    daemons.push(serve(&cluster, "h2"));
    done(&cluster, "h1", "target add --mdt --node h1 --dir /var/lib/brindle/mdt0");
    done(&cluster, "h1", "target add --node h2 --dir /var/lib/brindle/ost0");
    done(&cluster, "h1", "target add --node h2 --dir /var/lib/brindle/ost1");
    assert!(join(&cluster, "h3", "client").ok());
    mount(&cluster, "h3");
    (cluster, daemons)
}

/// Ends the cluster; no daemon is left when its host is gone.
pub(crate) fn end(cluster: Cluster, daemons: Vec<Child>) {
    cluster.down();
    for mut daemon in daemons {
        daemon.wait().unwrap();
    }
}

#[test]
fn a_cluster_is_made_on_empty_machines_and_outlives_the_death_of_a_server() {
    let (cluster, mut daemons) = made("enrolment-made");
    said(
        &cluster,
        "h3",
        &format!("cd {MOUNT} && mkdir d && head -c 20000000 /dev/urandom > d/f && md5sum d/f > sum && sync"),
    );
    let ost = done(&cluster, "h1", "target list -o json");
    assert!(ost.contains("scratch-OST0001") && ost.contains("\"host\": \"h2\""), "{ost}");
    // The power of the server fails under a copy; it boots, its daemon asks what to serve, the copy goes on.
    let mut copy = start(
        &cluster,
        "h3",
        &format!("cd {MOUNT} && for i in 1 2 3 4 5 6; do cp d/f copy$i || exit 1; done; sync"),
    );
    until("a copy", || sh(&cluster, "h3", &format!("test -s {MOUNT}/copy1")).ok());
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    daemons.pop().unwrap().wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons.push(serve(&cluster, "h2"));
    assert!(copy.wait().unwrap().success(), "no program saw an error");
    said(
        &cluster,
        "h3",
        &format!("cd {MOUNT} && md5sum -c sum && for i in 1 2 3 4 5 6; do cmp d/f copy$i || exit 1; done"),
    );
    // The cluster as a file: nothing to change, then one more OST.
    let exported = done(&cluster, "h1", "cluster export > /run/brindle/c.toml; cat /run/brindle/c.toml");
    assert!(exported.contains("OST0001"), "{exported}");
    let same = done(&cluster, "h1", "cluster apply /run/brindle/c.toml");
    assert_eq!(same, "nothing to change: the cluster is as the file says");
    said(
        &cluster,
        "h1",
        "printf '[[target]]\\nname = \"OST0002\"\\nhost = \"h1\"\\ndir = \"/var/lib/brindle/ost2\"\\n' >> /run/brindle/c.toml",
    );
    let added = done(&cluster, "h1", "cluster apply /run/brindle/c.toml");
    assert!(added.ends_with("scratch-OST0002: serving on h1"), "{added}");
    end(cluster, daemons);
}

#[test]
fn a_removed_host_is_cut_off_and_joins_again_as_a_new_one() {
    let (cluster, daemons) = made("enrolment-removed");
    said(&cluster, "h3", &format!("cd {MOUNT} && echo kept > f && sync"));
    // A server that serves is not removed; the host that does the removing is not, either.
    for (host, why) in [("h2", "it serves scratch-OST0000, scratch-OST0001"), ("h1", "it serves the MGT")] {
        let refused = brindle(&cluster, "h1", &format!("node remove {host}"));
        assert!(!refused.ok() && refused.text.contains(why), "{refused}");
    }
    // A host that is no administrator removes no host.
    for host in ["h2", "h3"] {
        let refused = brindle(&cluster, host, "node remove h3 --mgs h1");
        assert!(refused.text.contains("E1021"), "{refused}");
    }
    let mut waits = start(&cluster, "h3", &format!("cd {MOUNT} && while echo more >> log; do :; done"));
    done(&cluster, "h1", "node remove h3");
    let told = |needle: &str| brindle(&cluster, "h3", "status --mgs h1").text.contains(needle);
    until("the refusal", || told("E8017"));
    // The removed host writes nothing any more.
    mount(&cluster, "h1");
    let size = || said(&cluster, "h1", &format!("cat {MOUNT}/f; stat -c %s {MOUNT}/log"));
    let before = size();
    assert!(before.starts_with("kept"), "{before}");
    assert!(waits.try_wait().unwrap().is_none(), "programs of the host wait");
    assert_eq!(size(), before);
    assert!(cluster.dev(&["host", "kill", "h3"]).ok());
    waits.wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h3"]).ok());
    // The old identity of the host is of no use; with a new one it is a host again.
    let again = join(&cluster, "h3", "client");
    assert!(again.text.contains("this host is of a cluster already"), "{again}");
    said(&cluster, "h3", "rm /etc/brindle/identity.pem");
    let joined = join(&cluster, "h3", "client");
    assert!(joined.ok(), "{joined}");
    mount(&cluster, "h3");
    assert_eq!(said(&cluster, "h3", &format!("cat {MOUNT}/f")), "kept");
    let garbage =
        format!("echo brindle-token-1-AAAA | '{}' join --conf /run/brindle/other", binary().display());
    let refused = sh(&cluster, "h3", &garbage);
    assert!(refused.text.contains("E8014"), "{refused}");
    end(cluster, daemons);
}
