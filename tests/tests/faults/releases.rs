//! Servers and mounts of this release and of the one before, side by side and in any order.
//!
//! `BRINDLE_EARLIER_BIN` names the program of the release before. `make soak` builds it from the history of the repository (step
//! `releases`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::{bytes, same_bytes};

use crate::bare_hosts::until;

/// Files that a load writes in turn.
const FILES: u64 = 8;

/// Writes, renames, reads and removes files until told to stop; how many rounds it did. Any error is a failure.
fn load(dir: &Path, stop: &AtomicBool) -> u64 {
    let mut round = 0;
    while !stop.load(Ordering::Acquire) {
        let (new, kept) = (dir.join("new"), dir.join(format!("kept{}", round % FILES)));
        // Small ones lie in the MDT, large ones on OSTs.
        let content = bytes(round, if round % 2 == 0 { 700 } else { 300_000 });
        std::fs::write(&new, &content).expect("written");
        std::fs::rename(&new, &kept).expect("renamed");
        same_bytes(&std::fs::read(&kept).expect("read"), &content, &kept.display().to_string());
        std::fs::hard_link(&kept, &new).expect("linked");
        std::fs::remove_file(&new).expect("removed");
        round += 1;
    }
    round
}

/// Runs `work` beside a load on each mount; both loads must have done something since.
fn under_load(cluster: &Cluster, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dirs = [cluster.a().join("load-a"), cluster.b().join("load-b")];
        let loads = dirs.map(|dir| {
            std::fs::create_dir_all(&dir).expect("a directory");
            let stop = &stop;
            scope.spawn(move || load(&dir, stop))
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Release);
        for load in loads {
            assert!(load.join().expect("no program sees an error") > 0);
        }
        done.expect("the work is done");
    });
}

/// kill -9 of each process in turn; the present program goes on in its place.
fn replace(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.kill(&[name]);
        cluster.start(&[name]);
    }
}

/// Bytes that one mount writes are read, renamed and changed by the other one.
fn both_see_the_same(cluster: &Cluster, round: u64) {
    let (a, b) = (cluster.a().join(format!("shared{round}")), cluster.b().join(format!("shared{round}")));
    let content = bytes(round, 200_000);
    std::fs::write(&a, &content).unwrap();
    same_bytes(&std::fs::read(&b).unwrap(), &content, "written by the first mount");
    let longer = [&content[..], b"more"].concat();
    std::fs::write(&b, &longer).unwrap();
    same_bytes(&std::fs::read(&a).unwrap(), &longer, "written by the second mount");
    std::fs::rename(&b, cluster.b().join("shared")).unwrap();
    assert!(!a.exists(), "the first mount sees the rename");
    same_bytes(&std::fs::read(cluster.a().join("shared")).unwrap(), &longer, "under its new name");
}

fn names_earlier_releases(cluster: &Cluster) -> bool {
    let status = cluster.brindle(&["status", &cluster.a().display().to_string()]);
    status.text.contains("are of an earlier release") && status.text.contains("protocol 2")
}

#[test]
#[ignore = "needs BRINDLE_EARLIER_BIN, which make soak builds from the history"]
fn two_releases_that_follow_each_other_work_together_in_any_order() {
    let earlier =
        std::env::var_os("BRINDLE_EARLIER_BIN").map(PathBuf::from).expect("BRINDLE_EARLIER_BIN is set");
    let options = Options { osts: 2, limit: Duration::from_secs(400), ..Options::default() };
    let cluster = Cluster::up_by(&earlier, "two releases", &options);
    both_see_the_same(&cluster, 0);

    // The servers are replaced under load, one after the other. The mounts are of the earlier release.
    cluster.go_on_with(None);
    for (round, name) in (1..).zip(["ost0", "mdt0", "ost1", "mgs"]) {
        under_load(&cluster, || replace(&cluster, &[name]));
        both_see_the_same(&cluster, round);
    }
    until("naming the mounts of the earlier release in the status", || names_earlier_releases(&cluster));

    // One mount of each release.
    replace(&cluster, &["client1"]);
    both_see_the_same(&cluster, 10);

    // Servers go back to the earlier release: nothing was written that it does not read.
    cluster.go_on_with(Some(&earlier));
    for (round, name) in (11..).zip(["mdt0", "ost0", "mgs"]) {
        under_load(&cluster, || replace(&cluster, &[name]));
        both_see_the_same(&cluster, round);
    }

    // All of this release; from the upgrade on, servers of the earlier one are not let in.
    cluster.go_on_with(None);
    under_load(&cluster, || replace(&cluster, &["mgs", "mdt0", "ost0"]));
    replace(&cluster, &["client0"]);
    both_see_the_same(&cluster, 20);
    until("the end of the earlier release's connections", || !names_earlier_releases(&cluster));
    let upgraded = cluster.brindle(&["fs", "upgrade", &cluster.a().display().to_string()]);
    assert!(upgraded.ok(), "{upgraded}");
    under_load(&cluster, || replace(&cluster, &["mdt0"]));
    cluster.kill(&["ost0"]);
    cluster.go_on_with(Some(&earlier));
    let refused = cluster.dev(&["start", "ost0"]);
    assert!(!refused.ok() && refused.text.contains("level"), "an OST of the earlier release: {refused}");
    cluster.go_on_with(None);
    cluster.start(&["ost0"]);
    both_see_the_same(&cluster, 21);
    cluster.assert_sound();
}
