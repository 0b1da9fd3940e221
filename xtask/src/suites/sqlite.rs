//! SQLite through Python: four journal modes, several writers at once, one of them killed in a transaction.

use super::{Ground, verdict};
use crate::report::Report;

/// Journal modes; WAL needs shared mappings between processes.
const MODES: [&str; 4] = ["delete", "truncate", "persist", "wal"];
/// Writing processes.
const WRITERS: u32 = 4;
/// The workload.
const PROGRAM: &str = include_str!("sqlite.py");
/// Time beyond the workload's own: start, recovery, integrity check.
const MARGIN_SECS: u64 = 60;

pub fn run(ground: &Ground) -> Report {
    let mut report = Report::default();
    // Half the time of a case: four modes tell more than one long one.
    let seconds = ground.seconds_each.div_ceil(2);
    for mode in MODES {
        let args =
            ["-c", PROGRAM, mode, &WRITERS.to_string(), &seconds.to_string(), &ground.seed.to_string()];
        let command = ground.command("python3").args(args).limit_secs(seconds + MARGIN_SECS);
        report.add(Report::check(mode, verdict(&command.run(&ground.log(mode)))));
    }
    report
}
