//! F1: servers die at any moment under load and come back. No program sees an error, I/O goes on by itself, nothing that
//! was answered is lost or done twice.

use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::crew;
use crate::dice::{Dice, rounds, seed};
use crate::load::{Ground, Load, verify};

/// I/O has to go on within 10 s of the restart; the machine that tests this may be three times as slow.
pub const RESUME_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn f01_servers_killed_under_load_lose_nothing() {
    let seed = seed("f01");
    let mut dice = Dice::new(seed);
    let limit = Duration::from_secs(120 + 60 * rounds());
    let cluster = Cluster::up("f01", &Options { limit, ..Options::default() });
    let ground = Ground::new(cluster.outside());
    let pids = mount_pids(&cluster);
    let load = Load::start(&ground, crew::everybody(&cluster, &ground, &mut dice));
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds() {
        for names in victims(&mut dice) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            std::thread::sleep(dice.millis(100, 900));
            slowest = slowest.max(kill_and_start(&cluster, &ground, &mut dice, &load, &names));
        }
    }
    let steps = load.steps();
    let mut workers = load.stop();
    verify(&mut workers, cluster.mounts());
    println!("f01: {steps} operations; I/O went on after {:.1} s at the latest", slowest.as_secs_f64());
    assert_eq!(mount_pids(&cluster), pids, "a mount was started again");
    drop(workers);
    cluster.assert_sound();
}

/// One round: each kind of server alone, then all at the same moment.
fn victims(dice: &mut Dice) -> Vec<Vec<String>> {
    let ost = |dice: &mut Dice| format!("ost{}", dice.below(4));
    let all = ["mgs", "mdt0", "ost0", "ost1", "ost2", "ost3"].map(str::to_owned).to_vec();
    let mut rounds = vec![vec!["mgs".to_owned()], vec!["mdt0".to_owned()], vec![ost(dice)], all];
    for last in (1..rounds.len()).rev() {
        rounds.swap(last, dice.below(last as u64 + 1) as usize);
    }
    rounds
}

fn kill_and_start<W: crate::load::Worker>(
    cluster: &Cluster,
    ground: &Ground,
    dice: &mut Dice,
    load: &Load<W>,
    names: &[&str],
) -> Duration {
    ground.history.note("faults", &format!("kill {}", names.join(" ")));
    cluster.kill(names);
    std::thread::sleep(dice.millis(0, if names.len() > 1 { 300 } else { 1500 }));
    let since = Instant::now();
    cluster.start(names);
    ground.history.note("faults", &format!("started {}", names.join(" ")));
    let took = load.progresses_within(RESUME_LIMIT);
    ground.history.note("faults", &format!("progress after {took:?}, {:?} since the start", since.elapsed()));
    took
}

fn mount_pids(cluster: &Cluster) -> Vec<Option<i32>> {
    let clients = cluster.processes().into_iter().filter(|p| p.kind == "client");
    clients.map(|p| p.pid.filter(|_| p.state == "running")).collect()
}
