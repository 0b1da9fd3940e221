//! git on the file system under test: this repository's own tree is committed, packed, cloned and compared.

use super::Ground;
use super::script::Script;
use crate::report::Report;
use crate::run::Cmd;

/// Longest time of one command (the tree takes about a second on a local disk).
const COMMAND_SECS_MAX: u64 = 120;

pub fn run(ground: &Ground) -> Report {
    let mut script = Script::new(ground);
    let git = |script: &Script, args: &[&str]| plain_git(script.command("git", args));
    let root = ground.root.to_string_lossy();
    let reference = ground.logs.join("tree");
    let reference = reference.to_string_lossy();
    let unpack = |to: &str| format!("mkdir -p '{to}' && git -C '{root}' archive HEAD | tar -x -C '{to}'");
    // A second copy of the tree on the local disk, to compare with.
    let local = format!("rm -rf '{reference}' && {}", unpack(&reference));
    script.case("reference", Cmd::new("sh").args(["-c", &local]).limit_secs(COMMAND_SECS_MAX));

    script.case("init", git(&script, &["init", "-q", "-b", "main", "work"]));
    script.case("unpack", script.command("sh", ["-c", &unpack("work")]).limit_secs(COMMAND_SECS_MAX));
    script.case("add", git(&script, &["-C", "work", "add", "--all", "--force"]));
    script.case("commit", git(&script, &["-C", "work", "commit", "-q", "-m", "the tree"]));
    script.case_if("status", git(&script, &["-C", "work", "status", "--porcelain"]), nothing);
    script.case("move", git(&script, &["-C", "work", "mv", "crates", "boxes"]));
    script.case("commit-move", git(&script, &["-C", "work", "commit", "-q", "-m", "moved"]));
    script.case("gc", git(&script, &["-C", "work", "gc", "-q", "--prune=now"]));
    script.case("fsck", git(&script, &["-C", "work", "fsck", "--full", "--strict", "--no-progress"]));
    script.case("clone", git(&script, &["clone", "-q", "work", "linked"]));
    script
        .case("clone-copy", git(&script, &["clone", "-q", "--no-hardlinks", "--no-local", "work", "copied"]));
    script.case("fsck-clone", git(&script, &["-C", "copied", "fsck", "--full", "--no-progress"]));
    script.case("checkout", git(&script, &["-C", "copied", "checkout", "-q", "HEAD~1"]));
    let diff = ["-r", "--no-dereference", "--exclude=.git", &*reference, "copied"];
    script.case("diff", script.command("diff", diff).limit_secs(COMMAND_SECS_MAX));
    script.case_if(
        "diff-commits",
        git(&script, &["-C", "linked", "diff", "--stat", "-M", "HEAD~1"]),
        something,
    );
    script.end()
}

/// git without this machine's configuration, hooks and background work.
fn plain_git(command: Cmd) -> Cmd {
    let mut command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for (key, value) in [
        ("GIT_AUTHOR_NAME", "suite"),
        ("GIT_AUTHOR_EMAIL", "suite@example.org"),
        ("GIT_COMMITTER_NAME", "suite"),
        ("GIT_COMMITTER_EMAIL", "suite@example.org"),
        ("GIT_CONFIG_COUNT", "2"),
        ("GIT_CONFIG_KEY_0", "gc.auto"),
        ("GIT_CONFIG_VALUE_0", "0"),
        ("GIT_CONFIG_KEY_1", "protocol.file.allow"),
        ("GIT_CONFIG_VALUE_1", "always"),
    ] {
        command = command.env(key, value);
    }
    command.limit_secs(COMMAND_SECS_MAX)
}

fn nothing(output: &str) -> Result<(), String> {
    if output.trim().is_empty() { Ok(()) } else { Err("git sees changes that nobody made".to_owned()) }
}

fn something(output: &str) -> Result<(), String> {
    if output.contains("changed") { Ok(()) } else { Err("git sees no change where there is one".to_owned()) }
}
