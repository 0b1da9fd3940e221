//! F3 and F4: power cuts of one server and of all, on real ext4 and XFS. Synced data is there, and unsynced
//! data goes only together with an error. At most the last second of changes of names is lost, always as a
//! suffix.

use std::sync::atomic::Ordering;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, Options};

use crate::crew;
use crate::dice::{Dice, rounds, seed};
use crate::kill::RESUME_LIMIT;
use crate::load::{Ground, Load, Worker, verify};
use crate::tree::{TreeWorker, one_end};

/// Cuts in a row of the short form.
const CUTS: u64 = 2;

type Writers = Load<Box<dyn Worker>>;

#[test]
fn f03_power_cut_of_one_ost_on_ext4() {
    let seed = seed("f03-ost");
    let mut dice = Dice::new(seed);
    let cluster = Cluster::up("f03-ost", &images("ext4", Some("256MiB"), None));
    let ground = Ground::new(cluster.outside());
    let writers = Load::start(&ground, crew::writers(&cluster, &ground, &mut dice));
    for _ in 0..CUTS * rounds() {
        let ost = format!("ost{}", dice.below(4));
        std::thread::sleep(dice.millis(300, 1500));
        cut(&cluster, &ground, &[&ost]);
        std::thread::sleep(dice.millis(0, 1000));
        cluster.start(&[&ost]);
        writers.progresses_within(RESUME_LIMIT);
    }
    let mut workers = writers.stop();
    verify(&mut workers, cluster.mounts());
    drop(workers);
    cluster.assert_sound();
}

#[test]
fn f03_power_cut_of_the_mdt_on_xfs() {
    let mdt = ["mdt0"];
    power_cuts("f03-mdt", &images("xfs", None, Some("320MiB")), &mdt);
}

#[test]
fn f04_power_cut_of_all_servers_on_ext4() {
    let all = ["mgs", "mdt0", "ost0", "ost1", "ost2", "ost3"];
    power_cuts("f04", &images("ext4", Some("256MiB"), Some("256MiB")), &all);
}

fn images(image_fs: &'static str, ost_size: Option<&'static str>, mdt_size: Option<&'static str>) -> Options {
    let limit = Duration::from_secs(120 + 60 * rounds());
    Options { image_fs, ost_size, mdt_size, limit, ..Options::default() }
}

/// Cuts the power of `names` under load, again and again, and looks what is left each time.
fn power_cuts(name: &str, options: &Options, names: &[&str]) {
    let seed = seed(name);
    let mut dice = Dice::new(seed);
    let cluster = Cluster::up(name, options);
    let ground = Ground::new(cluster.outside());
    let writers = Load::start(&ground, crew::writers(&cluster, &ground, &mut dice));
    let mut trees = crew::trees(&cluster, &ground, &mut dice);
    for _ in 0..CUTS * rounds() {
        let load = Load::start(&ground, trees);
        std::thread::sleep(dice.millis(1200, 2500));
        trees = cut_and_look(&cluster, &ground, names, load, &writers, &mut dice);
    }
    let mut trees: Vec<Box<TreeWorker>> = trees.into_iter().map(Box::new).collect();
    verify(&mut trees, cluster.mounts());
    let mut workers = writers.stop();
    verify(&mut workers, cluster.mounts());
    drop((trees, workers));
    cluster.assert_sound();
}

fn cut_and_look(
    cluster: &Cluster,
    ground: &Ground,
    names: &[&str],
    load: Load<TreeWorker>,
    writers: &Writers,
    dice: &mut Dice,
) -> Vec<TreeWorker> {
    let cut_at = cut(cluster, ground, names);
    std::thread::sleep(dice.millis(0, 1000));
    let back_at = ground.history.now();
    cluster.start(names);
    ground.history.note("faults", "started");
    writers.progresses_within(RESUME_LIMIT);
    let mut trees = load.stop();
    let mut kept = Vec::new();
    for tree in &mut trees {
        match tree.after_cut(cut_at, back_at) {
            Ok(one) => kept.push(one),
            Err(why) => panic!("{}: {why}", tree.name()),
        }
    }
    one_end(&kept).unwrap_or_else(|why| panic!("{why}"));
    trees
}

/// Cuts the power; gives the moment before it.
fn cut(cluster: &Cluster, ground: &Ground, names: &[&str]) -> u64 {
    ground.history.note("faults", &format!("power cut of {}", names.join(" ")));
    ground.cuts.fetch_add(1, Ordering::SeqCst);
    let before = ground.history.now();
    cluster.cut_power(names);
    // Bytes synced between the first mark and the cut itself are certain; bytes written behind it are not.
    ground.cuts.fetch_add(1, Ordering::SeqCst);
    before
}
