//! `sim`: runs simulated clusters from seeds (`make sim`), and looks for planted bugs (`make sim-teeth`).
//!
//! ```text
//! sim seed N            one seed, with the last operations and events (BRINDLE_SIM_LINES each) if it is broken
//! sim seeds FIRST COUNT several
//! sim kills FIRST COUNT several, in which processes die and connections break
//! sim aim NAME FIRST COUNT several, of which work and faults aim at something
//! sim sets FIRST COUNT  several of replica sets of an MDT
//! sim set N             one of them
//! sim teeth SEEDS NAME...  (build with the feature teeth) seeds until each planted bug is caught
//! ```
//!
//! In a build with planted bugs `BRINDLE_TOOTH` names the one that the other commands run with.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use brindle_testkit::aim::Aim;
use brindle_testkit::replicas;
use brindle_testkit::run::{Plan, Report, run};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Events shown of a broken seed.
const LINES: usize = 300;

fn main() -> ExitCode {
    start_log();
    #[cfg(feature = "teeth")]
    brindle_stdx::teeth::choose(std::env::var("BRINDLE_TOOTH").ok().as_deref());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["seed", n] if number(n).is_some() => one(number(n).unwrap_or(0)),
        ["seeds", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => several(first, count, whole(Plan::of)),
            _ => usage(),
        },
        ["set", n] if number(n).is_some() => several_of("SET", number(n).unwrap_or(0), 1, set),
        ["sets", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => several_of("SET", first, count, set),
            _ => usage(),
        },
        ["kills", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => several(first, count, whole(Plan::kills)),
            _ => usage(),
        },
        ["aim", name, first, count] => {
            match (Aim::ALL.iter().find(|a| a.name() == *name), number(first), number(count)) {
                (Some(aim), Some(first), Some(count)) => {
                    several(first, count, whole(|seed| Plan::aimed(*aim, seed)))
                }
                _ => usage(),
            }
        }
        ["teeth", count, names @ ..] => match number(count) {
            Some(count) => teeth(count, names),
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: sim seed|set N | sim seeds|sets|kills FIRST COUNT | sim aim NAME FIRST COUNT | sim teeth SEEDS NAME..."
    );
    ExitCode::from(2)
}

/// Virtual time, as in the trace and in the history.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{:>13.6}", brindle_testkit::sim::log_ns() as f64 / 1e9)
    }
}

/// `BRINDLE_LOG=info` shows what the services say.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BRINDLE_LOG");
    if let Ok(filter) = filter {
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        lines.with_timer(VirtualTime).with_ansi(false).init();
    }
}

fn verdict(broken: bool) -> ExitCode {
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn lines_wanted() -> usize {
    std::env::var("BRINDLE_SIM_LINES").ok().and_then(|n| n.parse().ok()).unwrap_or(LINES)
}

fn one(seed: u64) -> ExitCode {
    let lines = lines_wanted();
    let report = run(seed, &Plan { lines, ..Plan::of(seed) });
    let broken = !report.violations.is_empty();
    if broken || lines != LINES {
        println!("last operations and events:");
        report.tail.iter().for_each(|line| println!("  {line}"));
    }
    faults(&report.faults);
    println!("{report}");
    verdict(broken)
}

fn faults(faults: &BTreeMap<&'static str, u64>) {
    println!("faults:");
    faults.iter().for_each(|(kind, count)| println!("  {count:>6} {kind}"));
}

/// Runs a seed of a whole cluster, with as many lines of the trace as are asked for.
fn whole(plan: impl Fn(u64) -> Plan) -> impl Fn(u64, usize) -> Report {
    move |seed, lines| run(seed, &Plan { lines, ..plan(seed) })
}

/// Runs a seed of a replica set.
fn set(seed: u64, lines: usize) -> Report {
    replicas::run(seed, &replicas::Plan { lines, ..replicas::Plan::of(seed) })
}

fn several(first: u64, count: u64, run: impl Fn(u64, usize) -> Report) -> ExitCode {
    several_of("SEED", first, count, run)
}

/// Runs seeds, each of which `make sim NAME=n` runs again.
fn several_of(name: &str, first: u64, count: u64, run: impl Fn(u64, usize) -> Report) -> ExitCode {
    let started = Instant::now();
    let mut broken: Vec<Report> = Vec::new();
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut operations = 0;
    for seed in first..first.saturating_add(count) {
        let lines = if count == 1 { lines_wanted() } else { 0 };
        let report = run(seed, lines);
        operations += report.operations;
        report.faults.iter().for_each(|(kind, n)| *all.entry(kind).or_default() += n);
        if !report.violations.is_empty() {
            println!("{report}");
            if count == 1 {
                report.tail.iter().for_each(|line| println!("  {line}"));
            }
            broken.push(report);
        }
    }
    faults(&all);
    let seconds = started.elapsed().as_secs_f64();
    println!("{count} seeds, {operations} operations in {seconds:.0} s; {} broken", broken.len());
    for report in &broken {
        println!("replay: make sim {name}={}", report.seed);
    }
    verdict(!broken.is_empty())
}

#[cfg(not(feature = "teeth"))]
fn teeth(_: u64, _: &[&str]) -> ExitCode {
    eprintln!("this build carries no planted bugs; use: make sim-teeth");
    ExitCode::from(2)
}

/// Looks for each planted bug in turn. Each bug has a line, in the columns that `cargo xtask sim-teeth` reads.
#[cfg(feature = "teeth")]
fn teeth(seeds_max: u64, names: &[&str]) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut holds = planted::Holds::default();
    let mut missed = 0;
    for name in names {
        let started = Instant::now();
        let caught = planted::catch(name, seeds_max, &mut holds);
        let seconds = started.elapsed().as_secs_f64();
        match caught {
            Some(planted::Caught { seeds, plan, how }) => {
                let how: String = how.chars().take(110).collect();
                println!("{name:<36} {plan:<8} {seeds:>5} {seconds:>8.1}  {how}");
            }
            None => {
                missed += 1;
                println!("{name:<36} {:<8} {:>5} {seconds:>8.1}  NOT CAUGHT", "-", "-");
            }
        }
    }
    verdict(missed > 0)
}

/// The search for planted bugs.
#[cfg(feature = "teeth")]
mod planted {
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use brindle_stdx::teeth::choose;
    use brindle_testkit::aim::Aim;
    use brindle_testkit::replicas::{self, Menu};
    use brindle_testkit::run::{Plan, Report, run};
    use brindle_types::Role;

    /// Seeds that are tried as every run draws them, before those that aim at the kind of bug.
    const DRAWN: u64 = 16;

    /// Proof that a bug was caught.
    pub struct Caught {
        /// Seeds tried, the one that broke included.
        pub seeds: u64,
        /// Name of the plan that caught it.
        pub plan: &'static str,
        /// Violation that was found.
        pub how: String,
    }

    /// Whether a seed holds without any bug, by seed and name of the plan.
    pub type Holds = BTreeMap<(u64, &'static str), bool>;

    /// The aim under which a bug bites. The aim names a kind of trouble; work and faults know nothing of the
    /// bug.
    fn aim_of(name: &str) -> Aim {
        match name {
            "mds_destroy_before_durable" | "mds_number_reuse" => Aim::Names,
            "mds_recall_not_awaited" | "ost_mark_given_once" | "client_no_refetch_after_invalidate" => {
                Aim::Pages
            }
            "ost_bless_damage" => Aim::Rot,
            "mds_read_before_reclaim" => Aim::Restarts,
            "ost_grants_are_never_lowered" => Aim::Full,
            "mds_move_unguarded" | "ost_copy_keeps_marks" => Aim::Moves,
            "ost_accept_old_sequence"
            | "ost_accept_old_session_epoch"
            | "ost_serves_behind_a_fence"
            | "ost_accept_old_truncate_epoch"
            | "mds_stale_epoch_accepted"
            | "mds_leases_lost_in_restart"
            | "client_new_sequence_on_resend" => Aim::Late,
            _ => Aim::General,
        }
    }

    fn plan(name: &str, seed: u64) -> Plan {
        if seed <= DRAWN { Plan::of(seed) } else { Plan::aimed(aim_of(name), seed) }
    }

    /// Bugs of replica sets, which whole clusters with one MDT cannot meet.
    fn is_of_sets(name: &str) -> bool {
        name.starts_with("set_")
    }

    /// Name of the plan under which a seed runs.
    fn plan_name(name: &str, seed: u64) -> &'static str {
        match is_of_sets(name) {
            // Whether a seed holds without the bug is asked once for each plan.
            true if set_plan(name, seed).menu == Menu::Everything => "sets-cut",
            true => "sets",
            false => plan(name, seed).aim.name(),
        }
    }

    /// The plan of a replica set under which a bug bites: kinds of faults and the role of the target, which know nothing of the bug.
    fn set_plan(name: &str, seed: u64) -> replicas::Plan {
        let drawn = replicas::Plan::of(seed);
        if seed <= DRAWN {
            return drawn;
        }
        let menu = match name {
            "set_hides_a_loss" | "set_keeps_the_boot_term" => Menu::Everything,
            _ => Menu::Partitions,
        };
        replicas::Plan { menu, role: Role::Mdt, members: drawn.members.max(2), ..drawn }
    }

    fn run_for(name: &str, seed: u64) -> Report {
        match is_of_sets(name) {
            true => replicas::run(seed, &set_plan(name, seed)),
            false => run(seed, &plan(name, seed)),
        }
    }

    /// First violation under a seed, while a planted bug is chosen; `None` if there is none.
    fn broken(name: &str, seed: u64) -> Option<String> {
        match catch_unwind(AssertUnwindSafe(|| run_for(name, seed))) {
            Ok(report) => report.violations.first().cloned(),
            Err(_) => Some("a panic".to_owned()),
        }
    }

    /// Runs seeds with a bug until one is broken that holds without it.
    pub fn catch(name: &str, seeds_max: u64, holds: &mut Holds) -> Option<Caught> {
        let at_once = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
        for first in (1..=seeds_max).step_by(at_once as usize) {
            let seeds: Vec<u64> = (first..=seeds_max.min(first + at_once - 1)).collect();
            choose(Some(name));
            let found: Vec<(u64, Option<String>)> = std::thread::scope(|scope| {
                let one = |seed: u64| scope.spawn(move || broken(name, seed));
                let running: Vec<_> = seeds.iter().map(|seed| (*seed, one(*seed))).collect();
                let how = |running: std::thread::ScopedJoinHandle<'_, _>| running.join().unwrap_or(None);
                running.into_iter().map(|(seed, running)| (seed, how(running))).collect()
            });
            choose(None);
            for (seed, how) in found {
                let Some(how) = how else { continue };
                let plan = plan_name(name, seed);
                if *holds.entry((seed, plan)).or_insert_with(|| broken(name, seed).is_none()) {
                    return Some(Caught { seeds: seed, plan, how });
                }
            }
        }
        None
    }
}
