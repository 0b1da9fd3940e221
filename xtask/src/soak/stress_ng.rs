//! stress-ng's file stressors, each with its own verification.

use super::verdict;
use crate::report::Report;
use crate::suites::{Ground, Suite};

/// Stressors of files and names that check what they did.
const STRESSORS: [&str; 33] = [
    "access",
    "aio",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dup",
    "fallocate",
    "fcntl",
    "fiemap",
    "filename",
    "flock",
    "fpunch",
    "fstat",
    "getdent",
    "hdd",
    "inode-flags",
    "io",
    "iomix",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "rename",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "utime",
    "xattr",
];
/// Stressors at once of each kind.
const INSTANCES: &str = "2";
/// Shortest time of one.
const SECONDS_MIN: u64 = 3;
/// Time beyond that for removing what it made.
const MARGIN_SECS: u64 = 300;

/// The suite.
pub const SUITE: Suite = Suite { name: "stress-ng", about: "file stressors that verify", run };

fn run(ground: &Ground) -> Report {
    let seconds = (ground.seconds_each / STRESSORS.len() as u64).max(SECONDS_MIN);
    let mut report = Report::default();
    for stressor in STRESSORS {
        let command = ground.command("stress-ng").arg(format!("--{stressor}")).arg(INSTANCES);
        let command = command.args(["--verify", "--timeout", &format!("{seconds}s"), "--temp-path", "."]);
        let command = command.args(["--seed", &ground.seed.to_string()]);
        let done = command.limit_secs(seconds + MARGIN_SECS).run(&ground.log(stressor));
        report.add(Report::check(stressor, verdict(&done)));
    }
    report
}
