//! `make test`: the table of steps that CI runs, with time and result of each.
//!
//! A new step is one line in [`STEPS`]. Invariant: the last line of a run is `N passed, N failed, N skipped`, and the
//! exit code is 0 only when nothing failed.

use std::time::Instant;

use crate::report::{AllowedSkips, Report};
use crate::run::{Cmd, interrupted, tail};
use crate::tools::{self, DENY, MACHETE, Tool};
use crate::{PROFILE, Session, console, docs, libtest, mounted, package, setup, tidy};

/// A step of the run.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Session) -> Report,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", about: "sources are formatted", run: fmt },
    Step { name: "tidy", about: "layers, lengths, words", run: tidy_step },
    Step { name: "clippy", about: "no warnings", run: clippy },
    Step { name: "deps", about: "licences and sources of dependencies; none is unused", run: deps },
    Step { name: "docs", about: "generated documents are up to date", run: docs::check },
    Step { name: "build", about: "the binary and all tests", run: build },
    Step { name: "cargo-test", about: "unit, property, golden and model tests", run: cargo_test },
    Step { name: "faults", about: "real processes killed, cut off, filled up, damaged", run: faults },
    Step {
        name: "console",
        about: "the console is what its sources build; a walk through it in a browser",
        run: console::run,
    },
    Step { name: "package", about: "a package of the binary, made twice and inspected", run: package::test },
    Step { name: "demo", about: "make demo, and make down after it", run: demo },
    Step { name: "teeth", about: "two planted bugs are caught (make sim-teeth: all)", run: teeth },
    Step {
        name: "mounted",
        about: "tests, suites and programs on two mounts of a real cluster",
        run: mounted::run,
    },
];

/// Steps that run only when they are named: `make lint` has the one, which builds tools first, and `make soak` all that the other does.
const BY_NAME: [&str; 2] = ["deps", "teeth"];
/// Longest time of a step that only compiles: all of it from nothing takes seven minutes on two cores.
const CARGO_SECS_MAX: u64 = 2400;
/// All tests that cargo runs. Documents hold no tests; cargo would read every crate once more to find that out.
pub const ALL_TESTS: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];
/// Longest time for building and running all tests.
const CARGO_TEST_SECS_MAX: u64 = 1500;
/// Longest time for building with planted bugs and catching two of them.
const TEETH_SECS_MAX: u64 = 1500;
/// Longest time of the demo with its build, and of its end.
const DEMO_SECS_MAX: u64 = 1500;
/// Two bugs that few seeds are needed for: one of the MDT, one of an OST.
const TEETH: [&str; 2] = ["mds_reply_before_log", "ost_skip_fdatasync"];
/// Longest time for building and running the faults; they take twenty minutes.
const FAULTS_SECS_MAX: u64 = 2400;

/// Lines of what a failed check said that the end of a run repeats: where only the end of a log is kept, it
/// still says what broke, and of a seed how to replay it.
const END_LINES: usize = 8;

/// `cargo xtask test [STEP...]`.
pub fn run(session: &Session) -> Result<(), String> {
    run_steps(session, &session.args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// `cargo xtask lint`.
pub fn lint(session: &Session) -> Result<(), String> {
    run_steps(session, &["fmt", "tidy", "clippy", "deps"])
}

/// `cargo xtask tidy`.
pub fn tidy_only(session: &Session) -> Result<(), String> {
    run_steps(session, &["tidy"])
}

/// Runs the named steps, or what `make test` runs when none is named.
fn run_steps(session: &Session, names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step is called '{unknown}'; steps: {}", known.join(", ")));
    }
    let is_chosen =
        |step: &&Step| names.contains(&step.name) || names.is_empty() && !BY_NAME.contains(&step.name);
    let chosen: Vec<&Step> = STEPS.iter().filter(is_chosen).collect();
    setup::need(if names.is_empty() { "test" } else { "lint" })?;
    let allowed = AllowedSkips::load(&session.root)?;
    let started = Instant::now();
    let mut total = Report::default();
    for (index, step) in chosen.iter().enumerate() {
        println!("[{}/{}] {}: {}", index + 1, chosen.len(), step.name, step.about);
        let since = Instant::now();
        let report = (step.run)(session).enforce(&allowed);
        for failure in &report.failed {
            println!("  FAILED {}\n{}\n", failure.name, indent(&failure.detail));
        }
        println!("      {} in {:.1} s", report.summary(), since.elapsed().as_secs_f64());
        total.add(report);
        if interrupted() {
            total.add_failure("interrupted", "by a signal");
            break;
        }
    }
    print_end(&total, &allowed, started.elapsed().as_secs());
    if total.failed.is_empty() { Ok(()) } else { std::process::exit(1) }
}

fn print_end(total: &Report, allowed: &AllowedSkips, seconds: u64) {
    println!();
    for name in &total.skipped {
        println!("skipped {name}: {}", allowed.reason(name).unwrap_or("?"));
    }
    for failure in &total.failed {
        println!("FAILED {}\n{}", failure.name, indent(&tail(&failure.detail, END_LINES)));
    }
    println!("{} min {} s", seconds / 60, seconds % 60);
    println!("{}", total.summary());
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn cargo(session: &Session, name: &str, args: &[&str]) -> Report {
    let done =
        Cmd::new("cargo").args(args).dir(&session.root).limit_secs(CARGO_SECS_MAX).run(&log(session, name));
    Report::check(name, if done.ok() { Ok(()) } else { Err(done.explain()) })
}

fn log(session: &Session, name: &str) -> std::path::PathBuf {
    session.logs().join(format!("{name}.log"))
}

fn fmt(session: &Session) -> Report {
    cargo(session, "fmt", &["fmt", "--all", "--check"])
}

fn tidy_step(session: &Session) -> Report {
    tidy::run(&session.root)
}

fn clippy(session: &Session) -> Report {
    // The faults are no part of `cargo test`, and so of no "all" of cargo's.
    let targets = ["--all-targets", "--test", "faults"];
    let args = [
        &["clippy", "--workspace"],
        &session.profile(),
        &targets[..],
        &["--quiet", "--", "--deny", "warnings"],
    ];
    cargo(session, "clippy", &args.concat())
}

/// Checks dependencies: allowed licences and sources (`deny.toml`), and none unused. (The database of
/// advisories is not asked: it lies on the network.)
fn deps(session: &Session) -> Report {
    let checks: [(&Tool, &[&str]); 2] =
        [(&DENY, &["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]), (&MACHETE, &["."])];
    let mut report = Report::default();
    for (tool, args) in checks {
        let name = format!("deps::{}", tool.name);
        let log = log(session, tool.name);
        let checked = tools::get(tool, &session.root, &log).and_then(|program| {
            let done = Cmd::new(&program).args(args).dir(&session.root).limit_secs(300).run(&log);
            if done.ok() { Ok(()) } else { Err(done.explain()) }
        });
        report.add(Report::check(&name, checked));
    }
    report
}

/// Builds everything that later steps run. All steps name the whole workspace: for fewer packages cargo would
/// build their dependencies a second time, with the features that those alone ask for.
fn build(session: &Session) -> Report {
    let [flag, profile] = session.profile();
    cargo(session, "build", &[&["test", flag, profile], &ALL_TESTS[..], &["--no-run"]].concat())
}

/// All tests of all crates; a build that fails is one failure.
fn cargo_test(session: &Session) -> Report {
    let cargo = Cmd::new("cargo").arg("test").args(session.profile()).args(ALL_TESTS).arg("--no-fail-fast");
    let cargo = cargo.env("CARGO_TERM_COLOR", "never").dir(&session.root).limit_secs(CARGO_TEST_SECS_MAX);
    let cargo = cargo.env("BRINDLE_SEED", session.tree_seed().to_string());
    let done = cargo.run(&log(session, "cargo-test"));
    let mut report = libtest::parse(&done.output()).prefixed("cargo-test");
    if !done.ok() && report.failed.is_empty() {
        report.add_failure("cargo-test", done.explain());
    }
    report
}

/// A round of the faults; `make soak` throws the dice for an hour.
fn faults(session: &Session) -> Report {
    let s3_server = match tools::s3_server(&session.root, &log(session, "s3-server")) {
        Ok(program) => program,
        Err(why) => return Report::check("faults", Err(why)),
    };
    let cargo =
        Cmd::new("cargo").arg("test").args(session.profile()).args(["--workspace", "--test", "faults"]);
    let cargo = cargo.env("BRINDLE_SEED", session.tree_seed().to_string());
    let cargo = cargo.env("CARGO_TERM_COLOR", "never").env("BRINDLE_S3_SERVER", s3_server);
    let cargo = cargo.dir(&session.root).limit_secs(FAULTS_SECS_MAX);
    let done = cargo.run(&log(session, "faults"));
    let mut report = libtest::parse(&done.output());
    if !done.ok() && report.failed.is_empty() || report.passed == 0 {
        report.add_failure("faults", done.explain());
    }
    report
}

/// The first command that a new user types. The demo has a place of its own: somebody's demo may be running.
fn demo(session: &Session) -> Report {
    let place = session.logs().join("demo");
    let xtask = |verb: &str| {
        let command = Cmd::new("cargo").args(["xtask", verb]).dir(&session.root).limit_secs(DEMO_SECS_MAX);
        let command = command.env("STATE", place.join("state")).env("MNT", place.join("mnt"));
        command.env(PROFILE, &session.profile)
    };
    let toured = xtask("demo").run(&log(session, "demo"));
    let ended = xtask("down").even_when_interrupted().run(&log(session, "demo-down"));
    let mut report = Report::check("demo", if toured.ok() { Ok(()) } else { Err(toured.explain()) });
    let left = place.join("state").exists() || place.join("mnt").exists();
    report.add(Report::check(
        "demo-down",
        match (ended.ok(), left) {
            (false, _) => Err(ended.explain()),
            (true, true) => Err(format!("something is left in {}", place.display())),
            (true, false) => Ok(()),
        },
    ));
    report
}

/// Checks that the simulator still catches some planted bugs; `make soak` checks all of them.
fn teeth(session: &Session) -> Report {
    let cargo = Cmd::new("cargo")
        .args(["xtask", "sim-teeth"])
        .args(TEETH)
        .dir(&session.root)
        .env(PROFILE, &session.profile);
    let done = cargo.limit_secs(TEETH_SECS_MAX).run(&log(session, "teeth"));
    Report::check("teeth", if done.ok() { Ok(()) } else { Err(done.explain()) })
}
