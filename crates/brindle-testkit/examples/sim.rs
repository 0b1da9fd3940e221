//! `sim`: runs simulated clusters from seeds (`make sim`), and looks for planted bugs (`make sim-teeth`).
//!
//! ```text
//! sim seed N            one seed, with the last operations and events (BRINDLE_SIM_LINES each) if it is broken
//! sim seeds FIRST COUNT several
//! sim kills FIRST COUNT several, in which processes die and connections break
//! sim teeth SEEDS NAME...  (build with --cfg brindle_teeth) seeds until each planted bug is caught
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use brindle_testkit::run::{Plan, Report, run};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Events shown of a broken seed.
const LINES: usize = 300;

fn main() -> ExitCode {
    start_log();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["seed", n] if number(n).is_some() => one(number(n).unwrap_or(0)),
        ["seeds", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => several(first, count, Plan::of),
            _ => usage(),
        },
        ["kills", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => several(first, count, Plan::kills),
            _ => usage(),
        },
        ["teeth", count, names @ ..] => match number(count) {
            Some(count) => teeth(count, names),
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: sim seed N | sim seeds FIRST COUNT | sim teeth SEEDS NAME...");
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

fn several(first: u64, count: u64, plan: fn(u64) -> Plan) -> ExitCode {
    let started = Instant::now();
    let mut broken: Vec<Report> = Vec::new();
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut operations = 0;
    for seed in first..first.saturating_add(count) {
        let lines = if count == 1 { lines_wanted() } else { 0 };
        let report = run(seed, &Plan { lines, ..plan(seed) });
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
        println!("replay: make sim SEED={}", report.seed);
    }
    verdict(!broken.is_empty())
}

#[cfg(not(brindle_teeth))]
fn teeth(_: u64, _: &[&str]) -> ExitCode {
    eprintln!("this build carries no planted bugs; use: make sim-teeth");
    ExitCode::from(2)
}

/// What is wrong with a seed, if anything is, while a planted bug is chosen.
#[cfg(brindle_teeth)]
fn broken_by(bug: Option<&str>, seed: u64) -> Option<String> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    brindle_stdx::teeth::choose(bug);
    let report = catch_unwind(AssertUnwindSafe(|| run(seed, &Plan::of(seed))));
    brindle_stdx::teeth::choose(None);
    match report {
        Ok(report) => report.violations.first().cloned(),
        Err(_) => Some("a panic".to_owned()),
    }
}

/// Runs seeds with each planted bug until one is broken that holds without the bug.
#[cfg(brindle_teeth)]
fn teeth(seeds_max: u64, names: &[&str]) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = 0;
    let mut holds: BTreeMap<u64, bool> = BTreeMap::new();
    println!("{:<36} {:>6} {:>8}  caught by", "planted bug", "seeds", "seconds");
    for name in names {
        let started = Instant::now();
        let caught = (1..=seeds_max).find_map(|seed| {
            let how = broken_by(Some(name), seed)?;
            let holds = *holds.entry(seed).or_insert_with(|| broken_by(None, seed).is_none());
            holds.then_some((seed, how))
        });
        let seconds = started.elapsed().as_secs_f64();
        match caught {
            Some((seed, how)) => {
                let how: String = how.chars().take(110).collect();
                println!("{name:<36} {seed:>6} {seconds:>8.1}  {how}");
            }
            None => {
                missed += 1;
                println!("{name:<36} {:>6} {seconds:>8.1}  NOT CAUGHT", "-");
            }
        }
    }
    println!("{} caught, {missed} not caught", names.len() - missed);
    verdict(missed > 0)
}
