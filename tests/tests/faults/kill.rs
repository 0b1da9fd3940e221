//! F1: servers die at any moment under load and come back. No program sees an error, I/O goes on by itself, and no answered operation is
//! lost or done twice.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::behind::wait_until_in_call;
use crate::crew;
use crate::dice::{Dice, rounds, seed};
use crate::leases::metrics;
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

/// The victims of a round: each kind of server alone, then all at the same moment.
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

/// Servers that are stopped for longer than a lease, as a paused machine or a starved host is, and go on: they have not heard their clients,
/// and know that they could not. No session ends, no program sees an error.
#[test]
fn f14_servers_that_stand_still_end_nobodys_session() {
    /// Longer than the lease of 6 s.
    const STILL: Duration = Duration::from_secs(10);
    let seed = seed("f14");
    let mut dice = Dice::new(seed);
    let cluster = Cluster::up("f14", &Options { limit: Duration::from_secs(180), ..Options::default() });
    let ground = Ground::new(cluster.outside());
    let load = Load::start(&ground, crew::everybody(&cluster, &ground, &mut dice));
    for name in ["mdt0", "ost1"] {
        std::thread::sleep(dice.millis(500, 1_500));
        let pid = cluster.process(name).pid.and_then(Pid::from_raw).unwrap();
        ground.history.note("faults", &format!("{name} is stopped"));
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(STILL);
        kill_process(pid, Signal::CONT).unwrap();
        load.progresses_within(RESUME_LIMIT);
    }
    let mut workers = load.stop();
    verify(&mut workers, cluster.mounts());
    drop(workers);
    let log = std::fs::read_to_string(cluster.process("mdt0").log).unwrap();
    assert!(log.contains("stood still"), "it is told");
    assert!(!log.contains("a session is being ended"), "{log}");
    cluster.assert_sound();
}

fn mount_pids(cluster: &Cluster) -> Vec<Option<i32>> {
    let clients = cluster.processes().into_iter().filter(|p| p.kind == "client");
    clients.map(|p| p.pid.filter(|_| p.state == "running")).collect()
}

/// Locks that the MDT holds.
fn locks(cluster: &Cluster) -> u64 {
    let text = metrics(&cluster.process("mdt0").metrics_url);
    let line = text.lines().find(|line| line.starts_with("brindle_mds_locks{")).expect("they are counted");
    line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a number") as u64
}

/// A conversion of a lock first gives the old lock up. If the MDT dies while the conversion waits, the client
/// must not declare a lock that others have got since.
#[test]
fn a_lock_that_is_being_converted_is_held_by_nobody_else_after_a_restart() {
    const ROUNDS: usize = 4;
    /// Time for which a second owner is looked for; there must be none.
    const LOOK: Duration = Duration::from_millis(300);
    seed("converted-lock");
    let cluster = Cluster::up("converted-lock", &Options { osts: 1, mounts: 2, ..Options::default() });
    std::fs::write(cluster.a().join("f"), b"x").unwrap();
    for round in 0..ROUNDS {
        let [a, b] = [cluster.a(), cluster.b()].map(|mount| File::open(mount.join("f")).unwrap());
        flock(&a, FlockOperation::LockShared).unwrap();
        flock(&b, FlockOperation::LockShared).unwrap();
        let is_free = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                flock(&a, FlockOperation::LockExclusive).unwrap();
                let was_free = is_free.load(Ordering::SeqCst);
                flock(&a, FlockOperation::Unlock).unwrap();
                was_free
            });
            let since = Instant::now();
            while locks(&cluster) > 1 {
                assert!(since.elapsed() < RESUME_LIMIT, "the lock that is converted is not given up");
                std::thread::sleep(Duration::from_millis(5));
            }
            flock(&b, FlockOperation::LockExclusive).unwrap();
            cluster.kill(&["mdt0"]);
            cluster.start(&["mdt0"]);
            // An open like this waits until all clients have declared their state.
            std::fs::write(cluster.b().join(format!("after{round}")), b"x").unwrap();
            std::thread::sleep(LOOK);
            is_free.store(true, Ordering::SeqCst);
            flock(&b, FlockOperation::Unlock).unwrap();
            assert!(waits.join().unwrap(), "two held it, in round {round}");
        });
    }
    cluster.assert_sound();
}

/// A lock of an open file is that of everybody who has it open. A child asks for it once more, and is killed while the MDT is away: what is
/// taken back of its call is not what its parent has held before.
#[test]
fn a_lock_that_a_killed_child_has_asked_for_once_more_stays_with_its_parent() {
    /// Time in which another client could get the lock.
    const LOOK: Duration = Duration::from_millis(500);
    seed("shared-lock");
    let cluster = Cluster::up("shared-lock", &Options { osts: 1, mounts: 2, ..Options::default() });
    std::fs::write(cluster.a().join("f"), b"x").unwrap();
    let [a, b] = [cluster.a(), cluster.b()].map(|mount| File::open(mount.join("f")).unwrap());
    flock(&a, FlockOperation::LockExclusive).unwrap();
    cluster.kill(&["mdt0"]);
    let shared = a.try_clone().unwrap();
    let mut child = Command::new("flock").args(["-x", "0"]).stdin(shared).spawn().unwrap();
    wait_until_in_call(child.id() as i32, libc::SYS_flock);
    child.kill().unwrap();
    child.wait().unwrap();
    cluster.start(&["mdt0"]);
    // An open like this waits until all clients have declared their state.
    std::fs::write(cluster.b().join("after"), b"x").unwrap();
    let since = Instant::now();
    let try_lock = || flock(&b, FlockOperation::NonBlockingLockExclusive);
    while since.elapsed() < LOOK {
        assert_eq!(try_lock(), Err(Errno::WOULDBLOCK), "two hold it");
    }
    drop(a);
    while try_lock().is_err() {
        assert!(since.elapsed() < RESUME_LIMIT, "a lock outlives the file that was open");
    }
    cluster.assert_sound();
}
