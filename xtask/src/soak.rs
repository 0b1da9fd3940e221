//! `make soak`: the long forms, each for `SECONDS_EACH` (an hour): programs that hammer a mount, databases that are killed,
//! faults on real processes, simulated clusters from fresh seeds, every planted bug.
//!
//! A new step is one line in [`STEPS`]. The result goes to `bench/soak/DATE-COMMIT.log`: commit, machine, seeds, how long,
//! what was found. `cargo xtask soak STEP...` runs only these steps.

mod grounds;
mod hdf5;
mod postgres;
mod releases;
mod stress_ng;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::report::{AllowedSkips, Report};
use crate::run::{Cmd, capture, interrupted};
use crate::suites::{self, Ground, SUITES, Suite};
use crate::{Session, libtest, setup, tools};

/// Seconds of each step, unless `SECONDS_EACH` says otherwise.
const SECONDS_EACH: u64 = 3600;
/// Rounds of faults in one run of the fault tests.
const FAULT_ROUNDS: u64 = 4;
/// Inputs tried for each thing that reads some, in one run of the fuzzers.
const FUZZ_ROUNDS: u64 = 200_000;
/// Longest time of one such run.
const FAULT_RUN_SECS_MAX: u64 = 3600;
/// Simulated clusters in one run of the simulator.
const SEEDS_AT_ONCE: u64 = 100;
/// Simulated replica sets in one run of the simulator.
const SETS_AT_ONCE: u64 = 500;
/// Longest time of one such run.
const SIM_RUN_SECS_MAX: u64 = 3600;
/// Longest time for building and catching all planted bugs.
const TEETH_SECS_MAX: u64 = 4 * 3600;

/// A step.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Soak<'_>) -> Report,
}

const STEPS: &[Step] = &[
    Step { name: "fsx", about: "random operations on one file", run: |soak| soak.suite(fsx()) },
    Step {
        name: "stress-ng",
        about: "file stressors that verify",
        run: |soak| soak.suite(&stress_ng::SUITE),
    },
    Step {
        name: "postgres",
        about: "PostgreSQL, killed and checked",
        run: |soak| soak.suite(&postgres::SUITE),
    },
    Step { name: "hosts", about: "the suites on a cluster of hosts", run: grounds::on_hosts },
    Step { name: "mirrored", about: "the suites on targets with two copies", run: grounds::on_mirrored },
    Step {
        name: "tiered",
        about: "the suites on a tree that a policy archives and releases all the time",
        run: grounds::on_tiered,
    },
    Step { name: "hdf5", about: "HDF5's own test suite", run: |soak| soak.suite(&hdf5::SUITE) },
    Step { name: "faults", about: "kills, power cuts, full disks, damage, garbage", run: faults },
    Step {
        name: "releases",
        about: "servers and mounts of this release and the one before",
        run: releases::run,
    },
    Step { name: "fuzz", about: "garbage in everything that reads bytes or text", run: fuzz },
    Step { name: "sim", about: "simulated clusters from fresh seeds", run: sim },
    Step { name: "sets", about: "simulated replica sets of MDTs from fresh seeds", run: sets },
    Step { name: "teeth", about: "every planted bug is caught", run: teeth },
];

/// A run of the soak.
struct Soak<'a> {
    session: &'a Session,
    seconds_each: u64,
}

/// `cargo xtask soak [STEP...]`.
pub fn run(session: &Session) -> Result<(), String> {
    let wanted = |step: &&Step| session.args.is_empty() || session.args.iter().any(|arg| arg == step.name);
    let chosen: Vec<&Step> = STEPS.iter().filter(wanted).collect();
    if let Some(unknown) = session.args.iter().find(|arg| STEPS.iter().all(|step| step.name != **arg)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step is called '{unknown}'; steps: {}", known.join(", ")));
    }
    setup::need("soak")?;
    crate::build(session)?;
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok());
    let soak = Soak { session, seconds_each: seconds.unwrap_or(SECONDS_EACH) };
    let allowed = AllowedSkips::load(&session.root)?;
    let mut log = Log::begin(&soak)?;
    let mut total = Report::default();
    for (index, step) in chosen.iter().enumerate() {
        println!("[{}/{}] {}: {}", index + 1, chosen.len(), step.name, step.about);
        let since = Instant::now();
        let report = (step.run)(&soak).enforce(&allowed);
        log.step(step.name, &report, since.elapsed())?;
        total.add(report);
        if interrupted() {
            total.add_failure("interrupted", "by a signal");
            break;
        }
    }
    log.end(&total)?;
    if total.failed.is_empty() { Ok(()) } else { std::process::exit(1) }
}

fn fsx() -> &'static Suite {
    SUITES.iter().find(|suite| suite.name == "fsx").expect("the suite exists")
}

impl Soak<'_> {
    /// Runs a suite on the first mount of a cluster of its own.
    fn suite(&self, suite: &Suite) -> Report {
        let mut cluster = match Cluster::new(self.session, &format!("soak-{}", suite.name)) {
            Ok(cluster) => cluster,
            Err(why) => return Report::fail("prepare", why),
        };
        let mut report = Report::default();
        match cluster.up() {
            Ok(()) => {
                report.add(suites::run_suite(self.session, suite, &cluster.a(), self.seconds_each));
                let stopped = cluster.down().and_then(|()| cluster.fsck());
                report.add(Report::check(&format!("{}::fsck", suite.name), stopped));
            }
            Err(why) => report.add_failure("up", why),
        }
        report.add(Report::check("remove", cluster.remove()));
        report
    }

    /// Repeats `once(number)` until the time of the step is over or something failed.
    fn repeat(&self, mut once: impl FnMut(u64) -> Report) -> Report {
        let (since, mut report, mut number) = (Instant::now(), Report::default(), 0);
        while since.elapsed() < Duration::from_secs(self.seconds_each) && !interrupted() {
            let found = once(number);
            let failed = !found.failed.is_empty();
            report.add(found);
            number += 1;
            if failed {
                break;
            }
        }
        report
    }

    fn cargo(&self, args: &[&str]) -> Cmd {
        let cargo = Cmd::new("cargo").args(args).env("CARGO_TERM_COLOR", "never");
        cargo.dir(&self.session.root)
    }

    fn log(&self, name: &str) -> std::path::PathBuf {
        self.session.logs().join("soak").join(name)
    }
}

fn faults(soak: &Soak<'_>) -> Report {
    let first = soak.session.seed();
    let rounds = FAULT_ROUNDS.to_string();
    let s3_server = match tools::s3_server(&soak.session.root, &soak.log("s3-server.log")) {
        Ok(program) => program,
        Err(why) => return Report::check("faults", Err(why)),
    };
    soak.repeat(|number| {
        let seed = first + number;
        println!("    faults, seed {seed}");
        let args = ["test", "--release", "--workspace", "--test", "faults", "--"];
        let cargo = soak.cargo(&args).args(["--test-threads=1", "--nocapture"]);
        let cargo = cargo.env("BRINDLE_SEED", seed.to_string()).env("BRINDLE_FAULT_ROUNDS", &rounds);
        let cargo = cargo.env("BRINDLE_S3_SERVER", &s3_server);
        let done = cargo.limit_secs(FAULT_RUN_SECS_MAX).run(&soak.log(&format!("faults-{seed}.log")));
        let mut report = libtest::parse(&done.output());
        if !done.ok() && report.failed.is_empty() {
            report.add_failure("faults", done.explain());
        }
        report.prefixed(&format!("seed-{seed}"))
    })
}

fn fuzz(soak: &Soak<'_>) -> Report {
    let first = soak.session.seed();
    soak.repeat(|number| {
        let seed = first + number;
        println!("    garbage, seed {seed}");
        // Parts of the names of all these tests.
        let args = ["test", "--release", "--workspace", "--", "fuzz", "decode_or", "garbage_is", "no_number"];
        let cargo = soak.cargo(&args).env("BRINDLE_SEED", seed.to_string());
        let cargo = cargo.env("BRINDLE_FUZZ_ROUNDS", FUZZ_ROUNDS.to_string());
        let done = cargo.limit_secs(FAULT_RUN_SECS_MAX).run(&soak.log(&format!("fuzz-{seed}.log")));
        let mut report = libtest::parse(&done.output());
        if !done.ok() && report.failed.is_empty() {
            report.add_failure("fuzz", done.explain());
        }
        report.prefixed(&format!("seed-{seed}"))
    })
}

fn sim(soak: &Soak<'_>) -> Report {
    simulated(soak, ("simulated clusters", "sim"), "seeds", SEEDS_AT_ONCE)
}

fn sets(soak: &Soak<'_>) -> Report {
    simulated(soak, ("simulated replica sets", "sets"), "sets", SETS_AT_ONCE)
}

/// Runs the simulator with fresh seeds, `at_once` of them each time.
fn simulated(soak: &Soak<'_>, (what, log): (&str, &str), command: &str, at_once: u64) -> Report {
    let first = soak.session.seed();
    soak.repeat(|number| {
        let seed = first + number * at_once;
        println!("    {what}, {at_once} seeds from {seed}");
        let args = [
            "run",
            "--release",
            "--quiet",
            "--package",
            "brindle-testkit",
            "--example",
            "sim",
            "--",
            command,
        ];
        let cargo = soak.cargo(&args).args([seed.to_string(), at_once.to_string()]);
        let done = cargo.limit_secs(SIM_RUN_SECS_MAX).run(&soak.log(&format!("{log}-{seed}.log")));
        Report::check(&format!("{log}::seeds-{seed}"), if done.ok() { Ok(()) } else { Err(done.explain()) })
    })
}

fn teeth(soak: &Soak<'_>) -> Report {
    let done = soak.cargo(&["xtask", "sim-teeth"]).limit_secs(TEETH_SECS_MAX).run(&soak.log("teeth.log"));
    Report::check("teeth", if done.ok() { Ok(()) } else { Err(done.explain()) })
}

/// The committed record of a run, written as it goes.
struct Log {
    path: std::path::PathBuf,
    text: String,
    begun: Instant,
}

impl Log {
    fn begin(soak: &Soak<'_>) -> Result<Log, String> {
        let root = &soak.session.root;
        let said =
            |program: &str, args: &[&str]| capture(program, args).unwrap_or_default().trim().to_owned();
        let git = |args: &[&str]| {
            let all: Vec<&str> = ["-C", root.to_str().unwrap_or(".")].iter().chain(args).copied().collect();
            said("git", &all)
        };
        let (date, commit) = (said("date", &["-u", "+%Y-%m-%d"]), git(&["rev-parse", "--short", "HEAD"]));
        let clean = git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
        let mut text = format!("soak of commit {commit}{}\n", if clean { "" } else { ", with changes" });
        // Writing to a String cannot fail.
        let _ = writeln!(text, "begun {}", said("date", &["-u", "+%Y-%m-%dT%H:%MZ"]));
        let _ = writeln!(
            text,
            "seconds of each step: {}; first seed: {}",
            soak.seconds_each,
            soak.session.seed()
        );
        let _ = writeln!(text, "machine: {}", crate::bench::describe_machine());
        let path = root.join("bench/soak").join(format!("{date}-{commit}.log"));
        let log = Log { path, text, begun: Instant::now() };
        log.save()?;
        Ok(log)
    }

    fn step(&mut self, name: &str, report: &Report, took: Duration) -> Result<(), String> {
        let line = format!("{name:<10} {} in {} s", report.summary(), took.as_secs());
        println!("      {line}");
        let _ = writeln!(self.text, "{line}");
        for failure in &report.failed {
            println!("  FAILED {}\n{}\n", failure.name, failure.detail);
            let _ = writeln!(self.text, "  FAILED {}", failure.name);
        }
        self.save()
    }

    fn end(&mut self, total: &Report) -> Result<(), String> {
        let minutes = self.begun.elapsed().as_secs() / 60;
        let _ = writeln!(self.text, "{minutes} min\n{}", total.summary());
        self.save()?;
        println!("\nlog: {}\n{}", self.path.display(), total.summary());
        Ok(())
    }

    fn save(&self) -> Result<(), String> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&self.path, &self.text));
        written.map_err(|e| format!("cannot write {}: {e}", self.path.display()))
    }
}

/// Exit code 0, or the end of the log.
fn verdict(done: &crate::run::Finished) -> Result<(), String> {
    if done.ok() { Ok(()) } else { Err(done.explain()) }
}

/// A script of the soak, run in the directory under test; its first arguments are the seconds and the seed.
fn script(ground: &Ground, name: &str, text: &str, margin_secs: u64) -> Report {
    let (seconds, seed) = (ground.seconds_each.to_string(), ground.seed.to_string());
    let command = ground.command("sh").args(["-ec", text, name, &seconds, &seed]);
    let done = command.limit_secs(ground.seconds_each + margin_secs).run(&ground.log(name));
    Report::check(name, verdict(&done))
}
