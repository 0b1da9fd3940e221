//! OSTs with members on two hosts, each with a directory of its own: a host is lost with its disks, then the other one; a member hangs, the
//! primary hangs. A client writes, overwrites and renames files with checksums all the time: no program sees an error, and every byte is right.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, start, until};
use crate::dice::seed;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};

/// A stated bound: from the loss of a host to the first completed operation.
const RECOVERY_LIMIT_MS: u64 = 10_000;
/// How long filling a member may take here.
const RESYNC_LIMIT: Duration = Duration::from_secs(40);

/// The MGS and the MDT on h1; h2 and h3 are to have an OST together; h4 is a client.
fn made(name: &str) -> (Cluster, Vec<Child>) {
    seed(name);
    let cluster = Cluster::up_bare(name, 4);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    done(&cluster, "h1", "target add --mdt --node h1 --dir /var/lib/brindle/mdt0");
    (cluster, daemons)
}

/// The set of OST0000, as `brindle target replica list -o json` has it.
fn set(cluster: &Cluster) -> serde_json::Value {
    let listed = brindle(cluster, "h1", "target replica list -o json");
    serde_json::from_str(&listed.stdout).unwrap_or_default()
}

fn state(cluster: &Cluster) -> (String, String) {
    let set = set(cluster);
    let text = |key: &str| set[key].as_str().unwrap_or_default().to_owned();
    (text("primary"), text("state"))
}

fn until_served(cluster: &Cluster, primary: &str, state_wanted: &str) {
    let (wanted, since) = ((primary.to_owned(), state_wanted.to_owned()), Instant::now());
    while state(cluster) != wanted {
        let shown = brindle(cluster, "h1", "status").text;
        assert!(since.elapsed() < RESYNC_LIMIT, "not {wanted:?}: {}\n{shown}", set(cluster));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A client's work until a file tells it to stop: makes files, writes them over, cuts and punches some, notes what they hold and how long the
/// slowest took. Fails with the first error.
const WORK: &str = "cd $M && mkdir -p w && : > $S/sums && worst=0 && n=0 && while ! test -e $S/stop; do \
     a=$(date +%s%N); head -c 500000 /dev/urandom > $S/src && cp $S/src w/$n && dd if=$S/src of=w/$n bs=4096 count=3 seek=7 conv=notrunc status=none \
     && truncate -s 450001 w/$n && fallocate -p -o 100000 -l 50000 w/$n && sync w/$n && mv w/$n w/f$n || exit 1; \
     b=$(date +%s%N); t=$(((b-a)/1000000)); test $t -gt $worst && worst=$t && echo $t > $S/worst; \
     cp $S/src $S/src2 && dd if=$S/src of=$S/src2 bs=4096 count=3 seek=7 conv=notrunc status=none && truncate -s 450001 $S/src2 \
     && fallocate -p -o 100000 -l 50000 $S/src2 || exit 1; \
     echo \"$(md5sum < $S/src2 | cut -c1-32)  w/f$n\" >> $S/sums; test $((n%7)) = 6 && rm w/f$((n-3)) && sed -i \"/w.f$((n-3))\\$/d\" $S/sums; \
     echo $n > $S/done; n=$((n+1)); done";

struct Work {
    child: Child,
    dir: PathBuf,
}

impl Work {
    fn begin(cluster: &Cluster) -> Work {
        let dir = cluster.outside().join("work");
        fs::create_dir_all(&dir).unwrap();
        let child = start(cluster, "h4", &format!("M={MOUNT}; S='{}'; {WORK}", dir.display()));
        let work = Work { child, dir };
        work.goes_on();
        work
    }

    fn number(&self, name: &str) -> u64 {
        fs::read_to_string(self.dir.join(name)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits until a few more files are done.
    fn goes_on(&self) {
        let wanted = self.number("done") + 4;
        until("the work going on", || self.number("done") >= wanted);
    }

    /// Stops it, and compares every byte, also behind the caches of the client.
    fn end(mut self, cluster: &Cluster) {
        fs::write(self.dir.join("stop"), "").unwrap();
        assert!(self.child.wait().unwrap().success(), "a program saw an error");
        let worst_ms = self.number("worst");
        eprintln!("slowest operation: {worst_ms} ms of {} files", self.number("done"));
        assert!(worst_ms < RECOVERY_LIMIT_MS, "{worst_ms} ms");
        let check = format!("cd {MOUNT} && md5sum --quiet -c '{}/sums'", self.dir.display());
        said(cluster, "h4", &check);
        said(cluster, "h4", &format!("umount {MOUNT}"));
        mount(cluster, "h4");
        said(cluster, "h4", &check);
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
    let work = Work::begin(&cluster);
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
fn a_member_hangs_then_the_primary_hangs_and_both_come_back_by_themselves() {
    let (cluster, daemons) = made("replicas-hang");
    done(&cluster, "h1", "target add --node h2 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster);
    // One copy becomes two under load.
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
    // And back to one.
    done(&cluster, "h1", "target replica remove OST0000 --node h2");
    until_served(&cluster, "h3", "serving");
    work.goes_on();
    work.end(&cluster);
    end(cluster, daemons);
}
