//! A client's work, during which hosts die and come back: no program sees an error, and every byte is right.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, start_kept, succeeds, until};
use crate::enrolment::{MOUNT, mount};

/// A stated bound: from the loss of a host to the first completed operation of every client.
const RECOVERY_LIMIT_MS: u64 = 10_000;

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

/// A client's work on one host.
pub(crate) struct Work {
    child: Child,
    host: &'static str,
    dir: PathBuf,
}

impl Work {
    /// Begins it on a host that has mounted the file system.
    pub(crate) fn begin(cluster: &Cluster, host: &'static str) -> Work {
        let dir = cluster.outside().join("work");
        fs::create_dir_all(&dir).unwrap();
        let script = format!("M={MOUNT}; S='{}'; {WORK}", dir.display());
        let child = start_kept(cluster, host, &script, &dir.join("complaints"));
        let work = Work { child, host, dir };
        work.goes_on();
        work
    }

    fn number(&self, name: &str) -> u64 {
        fs::read_to_string(self.dir.join(name)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits until a few more files are done.
    pub(crate) fn goes_on(&self) {
        let wanted = self.number("done") + 4;
        until("the work going on", || self.number("done") >= wanted);
    }

    /// Stops it, and compares every byte, also behind the caches of the client.
    pub(crate) fn end(mut self, cluster: &Cluster) {
        fs::write(self.dir.join("stop"), "").unwrap();
        succeeds(&mut self.child, &self.dir.join("complaints"));
        let worst_ms = self.number("worst");
        eprintln!("slowest operation: {worst_ms} ms of {} files", self.number("done"));
        assert!(worst_ms < RECOVERY_LIMIT_MS, "{worst_ms} ms");
        let check = format!("cd {MOUNT} && md5sum --quiet -c '{}/sums'", self.dir.display());
        said(cluster, self.host, &check);
        said(cluster, self.host, &format!("umount {MOUNT}"));
        mount(cluster, self.host);
        said(cluster, self.host, &check);
    }
}
