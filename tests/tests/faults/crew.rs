//! The usual programs on a cluster: trees of names and striped files on both mounts, and a log that all append to.

use std::path::PathBuf;

use brindle_tests::cluster::Cluster;

use crate::append::{self, AppendWorker};
use crate::dice::Dice;
use crate::load::{Ground, Worker};
use crate::stripes::StripeWorker;
use crate::tree::TreeWorker;

/// Stripe size of the striped directories: the smallest, so that small files lie on all OSTs.
const STRIPE_SIZE: &str = "64K";

/// Makes a directory whose files lie over all OSTs.
pub fn striped_dir(cluster: &Cluster, name: &str) -> PathBuf {
    let dir = cluster.a().join(name);
    std::fs::create_dir(&dir).unwrap();
    cluster.lfs(&["setstripe", "-c", "-1", "-S", STRIPE_SIZE, &dir.display().to_string()]);
    dir
}

/// Programs that change names, one a mount.
pub fn trees(cluster: &Cluster, ground: &Ground, dice: &mut Dice) -> Vec<TreeWorker> {
    let mounts = cluster.mounts().iter().enumerate();
    mounts.map(|(n, mount)| TreeWorker::new(ground, mount, &format!("tree{n}"), dice.split())).collect()
}

/// Programs that write data: a striped file on each mount, three writers of one log.
pub fn writers(cluster: &Cluster, ground: &Ground, dice: &mut Dice) -> Vec<Box<dyn Worker>> {
    let mut all: Vec<Box<dyn Worker>> = Vec::new();
    all.extend(stripers(cluster, ground, dice));
    striped_dir(cluster, "log");
    let log = append::make(&cluster.a().join("log"));
    for n in 0..append::WRITERS {
        let mount = &cluster.mounts()[n as usize % cluster.mounts().len()];
        let seen = mount.join(log.strip_prefix(cluster.a()).unwrap());
        all.push(Box::new(AppendWorker::new(ground, &seen, n, dice.split())));
    }
    all
}

/// Only the striped files.
pub fn stripers(cluster: &Cluster, ground: &Ground, dice: &mut Dice) -> Vec<Box<dyn Worker>> {
    striped_dir(cluster, "data");
    let dirs = cluster.mounts().iter().map(|mount| mount.join("data")).enumerate();
    let worker = |(n, dir): (usize, PathBuf)| -> Box<dyn Worker> {
        Box::new(StripeWorker::new(ground, &dir, n as u64, dice.split()))
    };
    dirs.map(worker).collect()
}

/// All of them.
pub fn everybody(cluster: &Cluster, ground: &Ground, dice: &mut Dice) -> Vec<Box<dyn Worker>> {
    let mut all = writers(cluster, ground, dice);
    all.extend(trees(cluster, ground, dice).into_iter().map(|w| Box::new(w) as Box<dyn Worker>));
    all
}
