//! The disk of the MGS is lost, and its configuration is restored from a backup that is older than the last change of a replica set.
//! Property: the member that lacks acknowledged changes does not get the target, however long the other one is away; in the end every byte
//! is there.

use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, sh, start};
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::{made, set, until_served};

/// An MGS without the mark of a restore takes a host that it never heard of for dead after 8 s, and gives its targets to others.
const WITHOUT_THE_OTHER: Duration = Duration::from_secs(10);

const MGT: &str = "/var/lib/brindle/mgt";
const BACKUP: &str = "/var/lib/brindle/config.backup";

/// Writes a file through the mount of h4, and adds its checksum to the file `sums`; both are on the disks then.
pub(crate) fn write_summed(cluster: &Cluster, name: &str) -> String {
    said(
        cluster,
        "h4",
        &format!(
            "cd {MOUNT} && head -c 3000000 /dev/urandom > {name} && sync && md5sum {name} >> sums && sync"
        ),
    )
}

#[test]
fn a_restored_configuration_gives_nobody_what_lacks_acknowledged_changes() {
    let (cluster, mut daemons) = made("restore");
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let write = |name: &str| write_summed(&cluster, name);
    write("before");
    let made = done(&cluster, "h1", &format!("cluster backup --to {BACKUP}"));
    assert!(made.contains("hosts, in") && made.contains("authority"), "{made}");
    let again = brindle(&cluster, "h1", &format!("cluster backup --to {BACKUP}"));
    assert!(!again.ok() && again.text.contains("will not write over"), "{again}");
    said(&cluster, "h1", &format!("test $(stat -c %a {BACKUP}) = 600"));
    // After the backup one member is away, and the other one takes changes alone.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    daemons[1].wait().unwrap();
    until_served(&cluster, "h3", "degraded");
    write("since");
    let mut program = start(
        &cluster,
        "h4",
        &format!(
            "cd {MOUNT} && for i in 1 2 3; do cp since copy$i && sync copy$i && cmp since copy$i || exit 1; sleep 1; done"
        ),
    );
    for (n, host) in [(2, "h3"), (0, "h1")] {
        assert!(cluster.dev(&["host", "kill", host]).ok());
        daemons[n].wait().unwrap();
    }
    assert!(cluster.dev(&["host", "start", "h1"]).ok());
    said(&cluster, "h1", &format!("mv {MGT} {MGT}.lost"));
    let plan = done(&cluster, "h1", &format!("cluster restore --from {BACKUP} --dry-run"));
    assert!(plan.contains("scratch-OST0000") && plan.contains("nothing was changed"), "{plan}");
    assert!(!sh(&cluster, "h1", &format!("test -e {MGT}")).ok());
    done(&cluster, "h1", &format!("cluster restore --from {BACKUP}"));
    daemons[0] = serve(&cluster, "h1");
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons[1] = serve(&cluster, "h2");
    let since = Instant::now();
    while since.elapsed() < WITHOUT_THE_OTHER {
        let set = set(&cluster);
        assert_ne!(set["state"], "serving", "{set}");
        assert_ne!(set["state"], "degraded", "{set}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let status = brindle(&cluster, "h1", "status").text;
    assert!(status.contains("h3 has not shown yet") && status.contains("E5064"), "{status}");
    assert!(cluster.dev(&["host", "start", "h3"]).ok());
    daemons[2] = serve(&cluster, "h3");
    until_served(&cluster, "h3", "serving");
    assert!(program.wait().unwrap().success(), "no program saw an error");
    said(&cluster, "h4", &format!("cd {MOUNT} && echo 3 > /proc/sys/vm/drop_caches; md5sum -c sums"));
    end(cluster, daemons);
}
