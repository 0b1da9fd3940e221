//! Programs and POSIX suites that run in any directory: a mount, or a local file system for comparison.
//!
//! Called by `cargo xtask suite NAME DIR`, by the cluster step of `make test` and by the soak. A suite gets an empty
//! directory of its own and answers with a [`Report`]. Invariant: this process never touches the directory under test;
//! every access is by a command with a time limit, so a file system that hangs cannot hang the run.

mod cargo_build;
mod fio;
mod fsx;
mod git;
mod pjdfstest;
pub mod script;
mod sqlite;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::report::{AllowedSkips, Report};
use crate::run::{Cmd, Finished};
use crate::{Session, setup};

/// Seconds that each open-ended case takes in `make test`.
pub const SECONDS_EACH: u64 = 8;

/// A suite.
pub struct Suite {
    /// Name of the suite, the first part of the names of its cases.
    pub name: &'static str,
    /// Purpose of the suite, in a few words.
    pub about: &'static str,
    /// Runs all its cases.
    pub run: fn(&Ground) -> Report,
}

/// All suites, in the order in which they run: cheap and telling ones first.
pub const SUITES: &[Suite] = &[
    Suite { name: "pjdfstest", about: "398 cases of POSIX calls and their errors", run: pjdfstest::run },
    Suite { name: "fsx", about: "random reads, writes, maps and truncates of one file", run: fsx::run },
    Suite { name: "fio", about: "streams and random writes, read back and verified", run: fio::run },
    Suite { name: "sqlite", about: "four journal modes, four writers each", run: sqlite::run },
    Suite { name: "git", about: "this repository: commit, gc, clone, fsck, diff", run: git::run },
    Suite { name: "cargo-build", about: "build, test and rebuild a crate", run: cargo_build::run },
];

/// Place and time limit of a suite.
pub struct Ground {
    /// The repository.
    pub root: PathBuf,
    /// An empty directory on the file system under test.
    pub dir: PathBuf,
    /// The mount point above `dir` when it belongs to the test alone, so that a suite may remount it.
    pub own_mount: Option<PathBuf>,
    /// Whether it is on a Brindle mount.
    pub is_ours: bool,
    /// The command, for what only a Brindle mount can do.
    pub brindle: PathBuf,
    /// Directory of logs.
    pub logs: PathBuf,
    /// Seconds for each open-ended case.
    pub seconds_each: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

impl Ground {
    /// A command that works in the directory under test.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
        Cmd::new(program).dir(&self.dir)
    }

    /// The log file of one case.
    pub fn log(&self, case: &str) -> PathBuf {
        self.logs.join(format!("{case}.log"))
    }
}

/// `cargo xtask suite NAME DIR`; `all` runs every suite.
pub fn run(session: &Session) -> Result<(), String> {
    let names: Vec<String> = SUITES.iter().map(|s| format!("\n  {:<12} {}", s.name, s.about)).collect();
    let usage = format!("usage: cargo xtask suite NAME DIR, where NAME is all or{}", names.concat());
    let [name, dir] = session.args.as_slice() else { return Err(usage) };
    let chosen: Vec<&Suite> = SUITES.iter().filter(|suite| name == "all" || suite.name == name).collect();
    if chosen.is_empty() {
        return Err(format!("no suite is called '{name}'; {usage}"));
    }
    setup::need("suite")?;
    let dir = std::fs::canonicalize(dir).map_err(|e| format!("cannot use '{dir}': {e}"))?;
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS_EACH);
    let mut total = Report::default();
    for suite in chosen {
        total.add(run_suite(session, suite, &dir, seconds));
    }
    let total = total.enforce(&AllowedSkips::load(&session.root)?);
    for failure in &total.failed {
        println!("FAILED {}\n{}", failure.name, failure.detail);
    }
    println!("{}", total.summary());
    if total.failed.is_empty() { Ok(()) } else { std::process::exit(1) }
}

/// Runs one suite in a new directory under `dir`, prints a line about it, and removes the directory again.
pub fn run_suite(session: &Session, suite: &Suite, dir: &Path, seconds_each: u64) -> Report {
    let since = Instant::now();
    let report = match ground(session, suite, dir, seconds_each) {
        Ok(ground) => {
            let mut report = (suite.run)(&ground);
            report.add(remove(&ground));
            report
        }
        Err(why) => Report::fail("prepare", why),
    };
    println!("    {:<12} {} in {:.1} s", suite.name, report.summary(), since.elapsed().as_secs_f64());
    report.prefixed(suite.name)
}

fn ground(session: &Session, suite: &Suite, dir: &Path, seconds_each: u64) -> Result<Ground, String> {
    let logs = session.logs().join(suite.name);
    // Short: the name of a socket, path and all, has 107 bytes.
    let mine = dir.join(format!("{}-{}", suite.name, std::process::id()));
    let made = Cmd::new("mkdir").arg(&mine).limit_secs(60).run(&logs.join("prepare.log"));
    if !made.ok() {
        return Err(made.explain());
    }
    Ok(Ground {
        root: session.root.clone(),
        dir: mine,
        own_mount: own_mount(dir),
        is_ours: is_ours(dir),
        brindle: session.brindle(),
        logs,
        seconds_each,
        seed: session.seed(),
    })
}

/// `dir` itself when something other than the root is mounted exactly there.
fn own_mount(dir: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_there = mounts.lines().filter_map(|line| line.split(' ').nth(1)).any(|at| Path::new(at) == dir);
    (is_there && dir != Path::new("/")).then(|| dir.to_owned())
}

/// Whether the innermost mount that `dir` is in is one of ours.
fn is_ours(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|f| f.len() > 2 && dir.starts_with(f[1]));
    above.max_by_key(|f| f[1].len()).is_some_and(|f| f[2] == "fuse.brindle")
}

/// Removing what the suite left is part of the test.
fn remove(ground: &Ground) -> Report {
    let done = Cmd::new("rm").arg("-rf").arg(&ground.dir).limit_secs(120).run(&ground.log("remove"));
    Report::check("remove", verdict(&done))
}

/// Exit code 0, or the end of the log.
fn verdict(done: &Finished) -> Result<(), String> {
    if done.ok() { Ok(()) } else { Err(done.explain()) }
}

/// Whether `seconds` have passed since `since`.
fn is_over(since: Instant, seconds: u64) -> bool {
    since.elapsed() >= Duration::from_secs(seconds)
}
