//! The crate `fsx`: random operations on one file, every read compared with what was written.
//!
//! Each variant runs batches of a fixed number of operations, each with a seed of its own, until its time is over, so
//! that a failure can be repeated with `fsx -f CONFIG -S SEED -N OPERATIONS FILE`; the log names all of them.

use std::path::Path;
use std::time::Instant;

use super::{Ground, is_over, tools, verdict};
use crate::report::Report;

/// Operations of one batch.
const BATCH_OPERATIONS: u64 = 500;
/// Longest time of one batch: 120 ms an operation.
const BATCH_SECS_MAX: u64 = 60;

/// A way to exercise a file: a name, and the program's configuration.
struct Variant {
    name: &'static str,
    config: &'static str,
}

const VARIANTS: &[Variant] = &[
    Variant { name: "plain", config: "[weights]\nclose_open = 1\ninvalidate = 1\nfsync = 1" },
    Variant {
        name: "everything",
        config: "flen = 1048576\n[weights]\nclose_open = 3\ninvalidate = 3\nfsync = 2\nfdatasync = 2\nposix_fallocate = 5\n\
                 punch_hole = 8\nsendfile = 8\nposix_fadvise = 5\ncopy_file_range = 8",
    },
    Variant {
        name: "no-mmap",
        config: "flen = 4194304\n[opsize]\nmax = 262144\n[weights]\nmapread = 0\nmapwrite = 0\nclose_open = 2\n\
                 posix_fallocate = 5\npunch_hole = 10\ncopy_file_range = 10",
    },
    Variant {
        name: "mmap",
        config: "flen = 1048576\n[weights]\nread = 3\nwrite = 3\nmapread = 20\nmapwrite = 20\ninvalidate = 5\n\
                 truncate = 10\npunch_hole = 5",
    },
    Variant {
        name: "mmap-without-msync",
        config: "flen = 524288\nnomsyncafterwrite = true\n[weights]\nmapread = 10\nmapwrite = 20\nclose_open = 2\n\
                 sendfile = 5",
    },
    Variant {
        name: "stripes",
        config: "flen = 16777216\n[opsize]\nmin = 4096\nmax = 3145728\nalign = 4096\n[weights]\nclose_open = 1\n\
                 punch_hole = 5\ncopy_file_range = 5\nposix_fallocate = 3",
    },
    Variant {
        name: "small",
        config: "flen = 20000\n[opsize]\nmax = 3000\n[weights]\nclose_open = 10\ntruncate = 20\npunch_hole = 5\n\
                 fdatasync = 3\ncopy_file_range = 5",
    },
];

pub fn run(ground: &Ground) -> Report {
    let program = match tools::get(&tools::FSX, &ground.root, &ground.log("install")) {
        Ok(program) => program,
        Err(why) => return Report::fail("install", why),
    };
    let mut report = Report::default();
    for variant in VARIANTS {
        report.add(Report::check(variant.name, run_variant(ground, variant, &program)));
    }
    report
}

fn run_variant(ground: &Ground, variant: &Variant, program: &Path) -> Result<(), String> {
    let config = ground.logs.join(format!("{}.toml", variant.name));
    std::fs::write(&config, variant.config).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
    let file = ground.dir.join(variant.name);
    let (since, mut batches) = (Instant::now(), 0);
    while !is_over(since, ground.seconds_each) {
        let seed = ground.seed + batches;
        let log = ground.log(variant.name);
        let command = ground.command(program).arg("-f").arg(&config).arg("-P").arg(&ground.logs);
        let command = command.args(["-S", &seed.to_string(), "-N", &BATCH_OPERATIONS.to_string()]).arg(&file);
        let done = command.limit_secs(BATCH_SECS_MAX).run(&log);
        verdict(&done).map_err(|why| {
            let name = config.display();
            format!("seed {seed}, to repeat: fsx -f {name} -S {seed} -N {BATCH_OPERATIONS} FILE\n{why}")
        })?;
        batches += 1;
    }
    let (first, operations) = (ground.seed, batches * BATCH_OPERATIONS);
    println!(
        "      fsx {:<20} {operations} operations, seeds {first} to {}",
        variant.name,
        first + batches - 1
    );
    Ok(())
}
