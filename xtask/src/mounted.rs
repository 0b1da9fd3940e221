//! The step `mounted`: everything that runs on real mounts of a cluster of real processes.
//!
//! In this order: the tests of `tests/` that take a mount, the suites on the first mount, then a tree that has to be
//! the same on both mounts, after a stop, a check of all targets, and a start. Invariant: nothing of the cluster is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Session;
use crate::cluster::Cluster;
use crate::libtest;
use crate::report::Report;
use crate::run::{Cmd, End, interrupted};
use crate::suites::{self, SUITES};

/// Test binaries, and whether their files lie on all OSTs (else as by default).
const TESTS: [(&str, bool); 6] = [
    ("posix", false),
    ("posix", true),
    ("two_mounts", false),
    ("two_mounts", true),
    ("model", false),
    ("model", true),
];
/// Longest time of each.
const TEST_SECS_MAX: u64 = 300;
/// Suites whose files lie on all OSTs: those about the bytes of files.
const STRIPED_SUITES: [&str; 2] = ["fio", "sqlite"];
/// Longest time of building them.
const BUILD_SECS_MAX: u64 = 1200;
/// Longest time of writing or comparing the tree.
const TREE_SECS_MAX: u64 = 120;

/// The whole step.
pub fn run(session: &Session) -> Report {
    let mut cluster = match Cluster::new(session, "mounted") {
        Ok(cluster) => cluster,
        Err(why) => return Report::fail("mounted::prepare", why),
    };
    let mut report = Report::default();
    match build(session, &cluster) {
        Err(why) => report.add_failure("mounted::build", why),
        Ok(tests) => {
            if step(&mut report, "up", cluster.up()) && step(&mut report, "striped", cluster.make_striped()) {
                on_mounts(session, &mut cluster, &tests, &mut report);
            }
        }
    }
    report.add(Report::check("mounted::remove", cluster.remove()));
    report
}

/// Builds the binary and the tests, and says where the tests are.
fn build(session: &Session, cluster: &Cluster) -> Result<BTreeMap<String, PathBuf>, String> {
    let cargo =
        Cmd::new("cargo").arg("test").args(session.profile()).args(crate::test::ALL_TESTS).arg("--no-run");
    let cargo = cargo.args(["--message-format", "json-render-diagnostics"]).dir(&session.root);
    let done = cargo.limit_secs(BUILD_SECS_MAX).run(&cluster.logs().join("build.log"));
    if !done.ok() {
        return Err(done.explain());
    }
    let messages = done.output();
    Ok(messages.lines().filter_map(test_binary_of).collect())
}

/// The name and the path of a test binary in one of cargo's messages.
fn test_binary_of(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let name = message["target"]["name"].as_str()?;
    if !message["manifest_path"].as_str()?.ends_with("/tests/Cargo.toml") {
        return None;
    }
    Some((name.to_owned(), message["executable"].as_str()?.into()))
}

fn on_mounts(
    session: &Session,
    cluster: &mut Cluster,
    tests: &BTreeMap<String, PathBuf>,
    report: &mut Report,
) {
    for (name, striped) in TESTS {
        match tests.get(name) {
            Some(program) => report.add(run_test(session, cluster, name, program, striped)),
            None => report.add_failure(format!("mounted::{name}"), "cargo did not say where it is"),
        }
        if !alive(cluster, report) {
            return;
        }
    }
    for suite in SUITES {
        let dir = cluster.dirs(STRIPED_SUITES.contains(&suite.name)).0;
        report.add(suites::run_suite(session, suite, &dir, suites::SECONDS_EACH));
        if !alive(cluster, report) {
            return;
        }
    }
    let there = step(report, "tree", tree(session, cluster, WRITE_TREE, "tree"))
        && step(report, "tree-on-both", tree(session, cluster, COMPARE_TREE, "tree-on-both"));
    let whole = there && step(report, "down", cluster.down()) && step(report, "fsck", cluster.fsck());
    if whole && step(report, "up-again", cluster.up()) {
        step(report, "tree-after-a-restart", tree(session, cluster, COMPARE_TREE, "tree-after-a-restart"));
        let _ = step(report, "down-again", cluster.down()) && step(report, "fsck-again", cluster.fsck());
    }
}

fn tree(session: &Session, cluster: &Cluster, script: &str, name: &str) -> Result<(), String> {
    let command = Cmd::new("sh").args(["-ec", script]).arg(cluster.a()).arg(cluster.b());
    let command = command.arg(cluster.logs().join("reference")).dir(&session.root).limit_secs(TREE_SECS_MAX);
    let done = command.run(&cluster.logs().join(format!("{name}.log")));
    if done.ok() { Ok(()) } else { Err(done.explain()) }
}

/// $0 and $1 are the mounts, $2 is a local directory: the repository's tree, a large file, and the odd kinds.
const WRITE_TREE: &str = r#"
    rm -rf "$2" && mkdir -p "$2" && git archive HEAD | tar -x -C "$2"
    cat /bin/* 2>/dev/null | head -c 67108864 > "$2/large"
    cp -a "$2" "$0/kept" && cp "$2/large" "$0/striped/large"
    cd "$0/kept" && ln large linked && ln -s large soft && mkfifo fifo && mknod null c 1 3
    truncate -s 1G sparse && printf end >> sparse
"#;
/// Script that compares, through the second mount, the tree that the first one got.
const COMPARE_TREE: &str = r#"
    cmp "$2/large" "$1/striped/large"
    cd "$1/kept"
    for entry in "$2"/* "$2"/.[a-z]*; do diff -r --no-dereference "$entry" "${entry##*/}"; done
    test "$(stat -c '%h %s' linked)" = "2 67108864" && test "$(readlink soft)" = large
    test -p fifo && test -c null && test "$(stat -c '%t:%T' null)" = 1:3
    test "$(stat -c %s sparse)" = 1073741827 && test "$(tail -c 3 sparse)" = end
"#;

/// Adds a check of this step; returns false when the following checks make no sense without it.
fn step(report: &mut Report, name: &str, result: Result<(), String>) -> bool {
    let well = result.is_ok();
    report.add(Report::check(&format!("mounted::{name}"), result));
    well
}

/// Whether both mounts answer and the user has not pressed Ctrl-C.
fn alive(cluster: &mut Cluster, report: &mut Report) -> bool {
    if interrupted() {
        return false;
    }
    cluster.answers().map_err(|why| report.add_failure("mounted::answers", why)).is_ok()
}

/// Runs one of the binaries of `tests/` on the mounts.
fn run_test(session: &Session, cluster: &Cluster, name: &str, program: &Path, striped: bool) -> Report {
    let since = Instant::now();
    let (a, b) = cluster.dirs(striped);
    let dirs = format!("{}:{}", a.display(), b.display());
    let name = if striped { format!("{name}-striped") } else { name.to_owned() };
    let command = Cmd::new(program).args(["--test-threads", "4"]).dir(&session.root.join("tests"));
    let command = command.env("BRINDLE_TEST_DIR", a).env("BRINDLE_TEST_DIRS", dirs);
    let command = command.env("BRINDLE_SEED", session.tree_seed().to_string()).limit_secs(TEST_SECS_MAX);
    let done = command.run(&cluster.logs().join(format!("{name}.log")));
    let mut report = libtest::parse(&done.output()).prefixed(&name);
    let is_silent = report.passed == 0 && report.failed.is_empty();
    if is_silent || !done.ok() && (report.failed.is_empty() || done.end != End::Code(101)) {
        report.add_failure(format!("{name}::(run)"), done.explain());
    }
    println!("    {name:<18} {} in {:.1} s", report.summary(), since.elapsed().as_secs_f64());
    report.skipped.sort();
    report.prefixed("mounted")
}
