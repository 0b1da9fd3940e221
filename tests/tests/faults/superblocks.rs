//! The MGT is lost with every backup, and the configuration is rebuilt from the superblocks of the targets (`restore --from-superblocks`).
//! Property: every byte is there, the copy that lacks acknowledged changes does not become primary, and contradictions are refused by name.

use crate::bare_hosts::{said, sh};
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::{made, until_served};
use crate::restore::write_summed;
use brindle_tests::cluster::{Cluster, binary};

const MGT: &str = "/var/lib/brindle/mgt";

/// Writes the file of a host where the first host finds it.
fn scanned(cluster: &Cluster, host: &str) -> String {
    let file = cluster.outside().join(format!("{host}.json")).display().to_string();
    said(cluster, host, &format!("'{}' cluster superblocks -o json > '{file}'", binary().display()));
    file
}

/// The host joins anew, with the key that it has.
fn join_again(cluster: &Cluster, host: &str, role: &str) {
    let token = done(cluster, "h1", &format!("cluster token --role {role} --host {host}"));
    said(
        cluster,
        host,
        &format!(
            "echo {token} > /run/brindle/token; '{}' join --again < /run/brindle/token",
            binary().display()
        ),
    );
}

#[test]
fn a_lost_configuration_without_a_backup_is_made_anew_and_every_byte_is_there() {
    let (cluster, mut daemons) = made("superblocks");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    done(&cluster, "h1", "target add --node h3 --dir /var/lib/brindle/ost1");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let write = |name: &str| write_summed(&cluster, name);
    write("before");
    // The copy on h2 misses the second file.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    daemons[1].wait().unwrap();
    until_served(&cluster, "h3", "degraded");
    write("since");
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    for (n, host) in [(2, "h3"), (0, "h1")] {
        assert!(cluster.dev(&["host", "kill", host]).ok());
        daemons[n].wait().unwrap();
    }
    for host in ["h1", "h2", "h3"] {
        assert!(cluster.dev(&["host", "start", host]).ok());
    }
    said(&cluster, "h1", &format!("rm -r {MGT}"));

    let files = ["h1", "h2", "h3"].map(|host| scanned(&cluster, host));
    let all: Vec<String> = files.iter().map(|file| format!("--from-superblocks '{file}'")).collect();
    let all = all.join(" ");
    // Without the host whose copy is complete nothing is made.
    let part = format!("--from-superblocks '{}' --from-superblocks '{}'", files[0], files[1]);
    let refused = brindle(&cluster, "h1", &format!("cluster restore {part} --dry-run"));
    assert!(!refused.ok() && refused.text.contains("h3 had all of it"), "{refused}");
    // A directory that says that it is another one's target.
    said(&cluster, "h2", "cp -r /var/lib/brindle/ost0 /var/lib/brindle/copy");
    let twice = scanned(&cluster, "h2");
    let refused = brindle(&cluster, "h1", &format!("cluster restore {all} --dry-run"));
    assert!(!refused.ok() && refused.text.contains("h2:/var/lib/brindle/copy"), "{refused}");
    said(&cluster, "h2", "rm -r /var/lib/brindle/copy");
    assert_eq!(scanned(&cluster, "h2"), twice);

    let plan = done(&cluster, "h1", &format!("cluster restore {all} --dry-run"));
    assert!(plan.contains("scratch-OST0001 on h3") && plan.contains("nothing was changed"), "{plan}");
    assert!(plan.contains("nodemaps") && plan.contains("tokens are void"), "{plan}");
    assert!(!sh(&cluster, "h1", &format!("test -e {MGT}")).ok());
    let made = done(&cluster, "h1", &format!("cluster restore {all}"));
    assert!(made.contains("join --again"), "{made}");
    daemons[0] = serve(&cluster, "h1");
    // A certificate of the lost authority lets no host in.
    assert!(!brindle(&cluster, "h2", "node list").ok());
    for (n, host) in [(1, "h2"), (2, "h3")] {
        join_again(&cluster, host, "server");
        daemons[n] = serve(&cluster, host);
    }
    join_again(&cluster, "h4", "client");
    // h2 lacks the second file.
    until_served(&cluster, "h3", "serving");
    mount(&cluster, "h4");
    said(&cluster, "h4", &format!("cd {MOUNT} && md5sum -c sums"));
    write("after");
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    mount(&cluster, "h4");
    said(&cluster, "h4", &format!("cd {MOUNT} && md5sum -c sums"));
    end(cluster, daemons);
}
