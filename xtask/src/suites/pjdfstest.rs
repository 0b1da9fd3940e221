//! The crate `pjdfstest`: POSIX calls, their effects on times and modes, and their errors, as root and as two users.
//!
//! Two passes: everything, then the read-only cases, which remount the file system and therefore run only where the
//! directory is a mount of its own. (Within the first pass, files left open by other cases make a remount busy.)

use std::os::unix::fs::PermissionsExt;

use super::Ground;
use crate::report::Report;
use crate::run::{End, Finished};
use crate::tools;

/// Longest time of a pass: a local disk takes 3 s, a network file system minutes.
const PASS_SECS_MAX: u64 = 240;
/// A file system other than the one under test, for EXDEV.
const ELSEWHERE: &str = "/dev/shm";

pub fn run(ground: &Ground) -> Report {
    let program = match tools::get(&tools::PJDFSTEST, &ground.root, &ground.log("install")) {
        Ok(program) => program,
        Err(why) => return Report::fail("install", why),
    };
    let mut report = Report::default();
    let passes = [("cases", false), ("read-only", true)];
    for (name, remount) in &passes[..if ground.own_mount.is_some() { 2 } else { 1 }] {
        let config = ground.logs.join(format!("{name}.toml"));
        if let Err(e) = std::fs::write(&config, configuration(*remount)) {
            return Report::fail(*name, format!("cannot write {}: {e}", config.display()));
        }
        let command = ground.command(&program).args(["-s", ELSEWHERE, "-c"]).arg(&config);
        let command = command.arg("-p").arg(&ground.dir).args(remount.then_some("erofs"));
        let command = match remount.then(|| path_with_mount(ground)).transpose() {
            Ok(path) => path.iter().fold(command, |command, path| command.env("PATH", path)),
            Err(e) => {
                return Report::fail(*name, format!("cannot write into {}: {e}", ground.logs.display()));
            }
        };
        let done = command.env("NO_COLOR", "1").limit_secs(PASS_SECS_MAX).run(&ground.log(name));
        let mut pass = parse(&done.output());
        check_end(&mut pass, name, &done);
        if ground.own_mount.is_some() && !remount {
            // The second pass runs these.
            pass.skipped.retain(|name| !name.contains("::erofs_"));
        }
        report.add(pass);
    }
    report
}

/// A PATH on which `mount -o OPTIONS DIR` is what mount(8) does where `mount.fuse.brindle` is installed. (Without it mount(8)
/// does it itself, unless the package fuse3 is installed, whose helper cannot.)
fn path_with_mount(ground: &Ground) -> std::io::Result<String> {
    let dir = ground.logs.join("bin");
    std::fs::create_dir_all(&dir)?;
    let (script, path) = (dir.join("mount"), std::env::var("PATH").unwrap_or_default());
    let helper = format!(
        "#!/bin/sh\nexec '{}' \"$(findmnt --noheadings --output SOURCE \"$3\")\" \"$3\" \"$1\" \"$2\"\n",
        ground.brindle.display()
    );
    std::fs::write(&script, helper)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(format!("{}:{path}", dir.display()))
}

/// All features a Linux file system has. The two users are ones that every Debian machine has.
fn configuration(remount: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = {remount}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    )
}

/// Lines `NAME   ok|FAILED|skipped`, with a tab before what explains them.
fn parse(output: &str) -> Report {
    let mut report = Report::default();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "ok"] => report.passed += 1,
            [name, "skipped"] => report.skipped.push((*name).to_owned()),
            [name, "FAILED"] => {
                let mut detail = String::new();
                while let Some(more) = lines.next_if(|l| !is_result(l)) {
                    if !detail.contains("Backtrace") {
                        detail.push_str(more.trim());
                        detail.push('\n');
                    }
                }
                report.add_failure(*name, detail);
            }
            _ => {}
        }
    }
    report
}

fn is_result(line: &str) -> bool {
    line.contains("::") && ["ok", "FAILED", "skipped"].iter().any(|end| line.trim_end().ends_with(end))
        || line.starts_with("Summary:")
}

/// The runner's own count has to agree; a runner that died or hung is a failure of its own.
fn check_end(report: &mut Report, pass: &str, done: &Finished) {
    let output = done.output();
    let total = output.lines().find_map(|l| l.strip_prefix("Summary:")?.strip_suffix(" total"));
    let total = total.and_then(|l| l.rsplit(' ').next()).and_then(|n| n.parse::<u64>().ok());
    let counted = report.passed + report.failed.len() as u64 + report.skipped.len() as u64;
    let ended_well = matches!(done.end, End::Code(0)) || !report.failed.is_empty();
    if total != Some(counted) || !ended_well {
        report
            .add_failure(format!("({pass})"), format!("{counted} results of {total:?}\n{}", done.explain()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
chmod::eloop                                      ok
chmod::erofs_named                                skipped
\tRemounts (allow_remount) are not allowed
rename::ctime                                     FAILED
\tassertion failed: a < b
Backtrace:
   0: main
link::x                                           ok

Summary: 1 failed, 1 skipped, 2 passed, 0 expected failures, 4 total
";

    #[test]
    fn results_and_reasons() {
        let report = parse(SAMPLE);
        assert_eq!(report.summary(), "2 passed, 1 failed, 1 skipped");
        assert_eq!(report.failed[0].name, "rename::ctime");
        assert_eq!(report.failed[0].detail, "assertion failed: a < b\nBacktrace:\n");
        assert_eq!(report.skipped, ["chmod::erofs_named"]);
    }

    #[test]
    fn a_runner_that_stops_half_way_is_a_failure() {
        let log = std::env::temp_dir().join(format!("xtask-pjdfstest-{}", std::process::id()));
        std::fs::write(&log, "a::b  ok\n").unwrap();
        let mut report = parse("a::b  ok\n");
        check_end(&mut report, "cases", &Finished { end: End::Code(0), log: log.clone() });
        assert_eq!(report.failed[0].name, "(cases)");
        std::fs::remove_file(log).unwrap();
    }
}
