//! Replica sets of an MDT or an OST under faults, from seeds: a few fixed ones, and fresh ones (`BRINDLE_SET_SEEDS` says how many, `BRINDLE_SEED` where
//! they start). The rules are those of `brindle_testkit::replicas`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test tells people how to replay what it found"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use brindle_testkit::replicas::{Menu, Plan, run};
use brindle_testkit::run::Report;
use brindle_types::Role;

/// Fresh seeds of an ordinary `cargo test`: about half a minute of a processor. `BRINDLE_SET_SEEDS` asks for more or fewer.
const FRESH_DEFAULT: u64 = 20;

fn show(report: &Report) -> String {
    let tail = report.tail.join("\n    ");
    format!("last operations:\n    {tail}\n{report}\n  replay: make sim SET={}", report.seed)
}

/// Runs seeds on all processors; panics with the first that is broken.
fn hold(seeds: impl Iterator<Item = u64>) {
    let seeds: Vec<u64> = seeds.collect();
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<u64, String>::new()));
    let faults: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while broken.lock().unwrap().is_empty() {
                    let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let text = match std::panic::catch_unwind(|| run(*seed, &Plan::of(*seed))) {
                        Ok(report) if report.violations.is_empty() => {
                            let mut faults = faults.lock().unwrap();
                            report.faults.iter().for_each(|(kind, n)| *faults.entry(kind).or_default() += n);
                            continue;
                        }
                        Ok(report) => show(&report),
                        Err(_) => format!("seed {seed} panicked; replay: make sim SET={seed}"),
                    };
                    broken.lock().unwrap().insert(*seed, text);
                }
            });
        }
    });
    faults.lock().unwrap().iter().for_each(|(kind, count)| eprintln!("  {count:>6} {kind}"));
    if let Some((_, text)) = broken.lock().unwrap().first_key_value() {
        panic!("{text}");
    }
}

#[test]
fn a_set_without_faults_loses_nothing_and_its_members_are_equal() {
    for (role, members) in [(Role::Mdt, 1), (Role::Mdt, 3), (Role::Ost, 2), (Role::Ost, 3)] {
        let report = run(1, &Plan { menu: Menu::Nothing, role, members, faults: 0, lines: 0 });
        assert!(report.violations.is_empty(), "{}", show(&report));
    }
}

#[test]
fn a_seed_run_twice_is_one_run() {
    let plan = Plan { faults: 4, ..Plan::of(6) };
    let (first, second) = (run(6, &plan), run(6, &plan));
    assert_eq!((first.trace_hash, first.operations), (second.trace_hash, second.operations));
}

#[test]
fn fresh_seeds_of_replica_sets_hold() {
    let count = std::env::var("BRINDLE_SET_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(FRESH_DEFAULT);
    let given = std::env::var("BRINDLE_SEED").ok().and_then(|n| n.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first: u64 = given.unwrap_or(u64::from(now.subsec_nanos()));
    eprintln!("{count} seeds from {first}");
    hold((0..count).map(|n| first + n));
}
