//! The release before and this one, side by side: the program of the release before is built from the history.

use std::path::{Path, PathBuf};

use super::{FAULT_RUN_SECS_MAX, Soak};
use crate::libtest;
use crate::report::Report;
use crate::run::Cmd;

/// The last commit of the release before: it speaks protocol 2.
const EARLIER_COMMIT: &str = "12f8436528271fd70d7945aee44c34aadaa46e5c";
/// Longest time of its build.
const BUILD_SECS_MAX: u64 = 2 * 3600;

/// Builds the program of the release before, once; its path.
fn earlier(soak: &Soak<'_>) -> Result<PathBuf, String> {
    let place = soak.session.root.join("target/earlier").join(&EARLIER_COMMIT[..12]);
    let (source, program) = (place.join("source"), place.join("target/release/brindle"));
    if program.exists() {
        return Ok(program);
    }
    unpack(soak, &source)?;
    println!("    building the release before (some twenty minutes)");
    let args = ["build", "--release", "--package", "brindle", "--target-dir"];
    let cargo = Cmd::new("cargo").args(args).args([place.join("target")]).dir(&source);
    let built = cargo.limit_secs(BUILD_SECS_MAX).run(&soak.log("releases-build.log"));
    if built.ok() { Ok(program) } else { Err(built.explain()) }
}

/// The sources of the release before, out of the history.
fn unpack(soak: &Soak<'_>, source: &Path) -> Result<(), String> {
    std::fs::create_dir_all(source).map_err(|e| format!("cannot create {}: {e}", source.display()))?;
    let script =
        format!("set -e; git archive {EARLIER_COMMIT} | tar --extract --directory '{}'", source.display());
    let unpack = Cmd::new("bash").args(["-o", "pipefail", "-c", &script]).dir(&soak.session.root);
    let unpacked = unpack.limit_secs(600).run(&soak.log("releases-unpack.log"));
    if unpacked.ok() {
        return Ok(());
    }
    Err(format!("the history of the repository is needed down to {EARLIER_COMMIT}: {}", unpacked.explain()))
}

/// Mounts and servers of both releases on the same cluster.
pub(super) fn run(soak: &Soak<'_>) -> Report {
    let earlier = match earlier(soak) {
        Ok(program) => program,
        Err(why) => return Report::check("releases", Err(why)),
    };
    let args = [
        "test",
        "--release",
        "--workspace",
        "--test",
        "faults",
        "--",
        "--ignored",
        "--nocapture",
        "releases",
    ];
    let cargo = soak.cargo(&args).env("BRINDLE_EARLIER_BIN", &earlier);
    let done = cargo.limit_secs(FAULT_RUN_SECS_MAX).run(&soak.log("releases.log"));
    let mut report = libtest::parse(&done.output());
    if !done.ok() && report.failed.is_empty() {
        report.add_failure("releases", done.explain());
    }
    report
}
