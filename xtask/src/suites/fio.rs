//! fio with verification: what was written is read back and its checksums compared, through six ways of doing I/O.

use super::{Ground, verdict};
use crate::report::Report;

/// Longest time of a job.
const JOB_SECS_MAX: u64 = 120;
/// Options of every job: write, then read back, stop at the first wrong block.
const COMMON: &[&str] = &[
    "--verify=crc32c",
    "--verify_fatal=1",
    "--do_verify=1",
    "--verify_state_save=0",
    "--group_reporting",
    "--output-format=normal",
    "--eta=never",
];

/// Name and options.
const JOBS: &[(&str, &[&str])] = &[
    ("psync-stream", &["--ioengine=psync", "--rw=write", "--bs=256k", "--end_fsync=1"]),
    (
        "psync-random",
        &["--ioengine=psync", "--rw=randwrite", "--bs=4k-64k", "--bs_unaligned=1", "--norandommap=0"],
    ),
    ("libaio-direct", &["--ioengine=libaio", "--direct=1", "--iodepth=16", "--rw=randwrite", "--bs=64k"]),
    ("mmap", &["--ioengine=mmap", "--rw=randwrite", "--bs=4k"]),
    ("io-uring", &["--ioengine=io_uring", "--iodepth=16", "--rw=randwrite", "--bs=32k"]),
    ("four-files", &["--ioengine=psync", "--numjobs=4", "--rw=randwrite", "--bs=16k", "--fsync=64"]),
];

pub fn run(ground: &Ground) -> Report {
    // Megabytes by the length of the run: 16 in `make test`.
    let size = format!("--size={}m", 2 * ground.seconds_each);
    let seed = format!("--randseed={}", ground.seed);
    let mut report = Report::default();
    for (name, options) in JOBS {
        let command = ground.command("fio").args(COMMON).args(*options);
        let command = command.args([&size, &seed, &format!("--name={name}")]);
        let done = command.limit_secs(JOB_SECS_MAX.max(4 * ground.seconds_each)).run(&ground.log(name));
        report.add(Report::check(name, verdict(&done)));
    }
    report
}
