//! The project's own commands, behind `make` and `cargo xtask`.
//!
//! | module | does |
//! |---|---|
//! | [`test`] | what CI runs, as a table of steps |
//! | [`suites`] | programs and POSIX suites on any directory |
//! | [`cluster`], [`mounted`] | a cluster of real processes for a step, and what runs on its mounts |
//! | [`console`] | the web console: built again, and walked through in a browser |
//! | [`sim`] | simulated clusters, planted bugs |
//! | [`tidy`] | the rules of the house that neither rustfmt nor clippy checks |
//! | [`demo`] | the tour of `make demo`, and its end |
//! | [`bench`] | figures of a mount beside the local file system |
//! | [`peers`] | figures of Brindle beside other file systems, each set up here |
//! | [`seeds`] | what the seed documents measured, again, as a share of what the links allow |
//! | [`soak`] | the long forms of everything |
//! | [`package`] | a Debian package, an image, and hosts on which it is tried |
//! | [`docs`] | documents generated from the sources |
//! | [`setup`] | what each command needs from the machine |
//! | [`run`], [`report`], [`libtest`] | one command, its result, what `cargo test` printed |
//!
//! Invariant: no part of the product is here, and no part of the product depends on this crate.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a tool for this tree alone: its numbers are small"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod bench;
mod cluster;
mod console;
mod demo;
mod docs;
mod libtest;
mod mounted;
mod package;
mod peers;
mod report;
mod run;
mod seeds;
mod setup;
mod sim;
mod soak;
mod suites;
mod test;
mod tidy;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&Session) -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command { name: "build", about: "build target/release/brindle", run: build },
    Command { name: "dist", about: "build target/dist/brindle: optimised as a whole", run: dist },
    Command {
        name: "test",
        about: "everything CI runs; `test STEP...` runs only these steps",
        run: test::run,
    },
    Command {
        name: "suite",
        about: "`suite NAME DIR`: one suite (or all) in an empty directory under DIR",
        run: suites::run,
    },
    Command { name: "sim", about: "`sim [--seed N] [--seeds COUNT]`: simulated clusters", run: sim::sim },
    Command { name: "sim-teeth", about: "the simulator must catch every planted bug", run: sim::teeth },
    Command { name: "tidy", about: "check the rules of the house", run: test::tidy_only },
    Command { name: "lint", about: "formatting, clippy, tidy", run: test::lint },
    Command { name: "fmt", about: "format the sources", run: fmt },
    Command { name: "demo", about: "start a cluster on this machine, mount it, take a tour", run: demo::run },
    Command {
        name: "demo-cluster",
        about: "start a cluster of hosts on this machine, break some, take a tour",
        run: demo::hosts::run,
    },
    Command {
        name: "demo-slurm",
        about: "start a private Slurm on this machine, run a job with a burst buffer, end it",
        run: demo::slurm::run,
    },
    Command { name: "down", about: "end the demo; nothing of it stays", run: demo::down },
    Command { name: "bench", about: "measure a mount beside the local file system", run: bench::run },
    Command {
        name: "bench-fair-share",
        about: "measure what a job of 64 processes does to the ls of another one, with turns and without",
        run: bench::fair::run,
    },
    Command {
        name: "peers",
        about: "measure Brindle beside GlusterFS, MooseFS, CephFS, ext4 and a FUSE passthrough",
        run: peers::run,
    },
    Command {
        name: "seeds",
        about: "`seeds [--quick] [PLACE...]`: the seed documents' network figures again, as shares of the limit",
        run: seeds::run,
    },
    Command { name: "soak", about: "the long forms; `soak STEP...` only these", run: soak::run },
    Command {
        name: "package",
        about: "`package [--profile dist|release] [--out DIR]`: a Debian package",
        run: package::run,
    },
    Command {
        name: "container",
        about: "`container [--profile dist|release] [--out DIR]`: an OCI image",
        run: package::container::run,
    },
    Command { name: "docs", about: "write the generated documents again", run: docs::write },
    Command { name: "setup", about: "`setup TARGET`: install what a make target needs", run: setup::run },
];

/// Variable with the profile to build with.
pub const PROFILE: &str = "PROFILE";
/// The profile of tests: little optimised, and so built in a part of the time.
const QUICK_PROFILE: &str = "quick";
/// Commands that build everything, of which nobody uses or measures the result.
const QUICK_COMMANDS: [&str; 3] = ["test", "lint", "docs"];

/// Place, arguments and profile of this run.
pub struct Session {
    /// The repository.
    pub root: PathBuf,
    /// Arguments after the command's name.
    pub args: Vec<String>,
    /// The profile of cargo that this run builds with: that of the variable [`PROFILE`], or the command's own.
    pub profile: String,
}

impl Session {
    /// Directory of the logs of this run.
    pub fn logs(&self) -> PathBuf {
        self.root.join("target/test-logs")
    }

    /// The seed of this run: `BRINDLE_SEED`, or a fresh one.
    pub fn seed(&self) -> u64 {
        let given = std::env::var("BRINDLE_SEED").ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |since| u64::from(since.subsec_nanos()) + 1)
        })
    }

    /// The seed of a run of all tests: `BRINDLE_SEED`, or that of the committed sources. Every change of them gets fresh
    /// seeds, and whoever runs the tests of one commit again gets the same, so that a failure comes back.
    pub fn tree_seed(&self) -> u64 {
        let given = std::env::var("BRINDLE_SEED").ok().and_then(|text| text.parse().ok());
        let root = self.root.to_str().unwrap_or(".");
        let tree = run::capture("git", &["-C", root, "rev-parse", "HEAD:crates"]);
        let of_tree = tree.and_then(|id| u64::from_str_radix(id.trim().get(..7)?, 16).ok());
        given.or(of_tree).unwrap_or_else(|| self.seed())
    }

    /// The binary that `cargo xtask dist` leaves.
    pub fn dist(&self) -> PathBuf {
        self.root.join("target/dist/brindle")
    }

    /// The profile that this run builds with, for cargo.
    pub fn profile(&self) -> [&str; 2] {
        ["--profile", &self.profile]
    }

    /// The binary that `cargo xtask build` leaves, with its path as people type it.
    pub fn brindle_typed(&self) -> String {
        format!("target/{}/brindle", self.profile)
    }

    /// The binary that `cargo xtask build` leaves.
    pub fn brindle(&self) -> PathBuf {
        self.root.join(self.brindle_typed())
    }
}

fn main() -> ExitCode {
    run::catch_signals();
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        eprintln!("usage: cargo xtask COMMAND\n");
        COMMANDS.iter().for_each(|c| eprintln!("  {:<10} {}", c.name, c.about));
        return if name.is_empty() || name == "help" { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().expect("xtask is a folder of the repository").to_owned();
    let own = if QUICK_COMMANDS.contains(&command.name) { QUICK_PROFILE } else { "release" };
    let profile = std::env::var(PROFILE).unwrap_or_else(|_| own.to_owned());
    match (command.run)(&Session { root, args: args.collect(), profile }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs cargo with its own output on the terminal.
fn cargo(session: &Session, args: &[&str]) -> Result<(), String> {
    let status = std::process::Command::new("cargo").args(args).current_dir(&session.root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("'cargo {}' failed ({status})", args.join(" "))),
        Err(e) => Err(format!("cannot start cargo: {e}")),
    }
}

fn build(session: &Session) -> Result<(), String> {
    let [flag, profile] = session.profile();
    cargo(session, &["build", flag, profile, "--package", "brindle"])
}

/// Over all crates at once: some ten minutes, for a few per cent of processor time.
fn dist(session: &Session) -> Result<(), String> {
    cargo(session, &["build", "--profile", "dist", "--package", "brindle"])
}

fn fmt(session: &Session) -> Result<(), String> {
    setup::need("lint")?;
    cargo(session, &["fmt", "--all"])
}
