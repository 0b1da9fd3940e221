//! The crate `fsx`: random operations on one file, every read compared with what was written.
//!
//! Each variant runs batches of a fixed number of operations, each with a seed of its own, until its time is over, so
//! that a failure can be repeated with `fsx -f CONFIG -S SEED -N OPERATIONS FILE`; the log names all of them. In the
//! variants named `moving-...` the file goes from OST to OST all the time (on a mount of ours only).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{Ground, is_over, verdict};
use crate::report::Report;
use crate::tools;

/// Operations of one batch.
const BATCH_OPERATIONS: u64 = 500;
/// Longest time of one batch: 120 ms an operation.
const BATCH_SECS_MAX: u64 = 60;

/// Longest time of one migration of the file.
const MOVE_SECS_MAX: u64 = 60;
/// Layouts that the file gets one after the other.
const LAYOUTS: &[&[&str]] = &[
    &["-c", "1"],
    &["-c", "2", "-S", "128KiB"],
    &["-E", "256KiB", "-c", "1", "-E", "-1", "-c", "2"],
    &["-c", "-1", "-S", "64KiB"],
    &["--off", "0"],
    &["--off", "1"],
];

/// A way to exercise a file: a name, and the program's configuration.
struct Variant {
    name: &'static str,
    config: &'static str,
    /// The file is moved meanwhile.
    moves: bool,
}

impl Variant {
    const fn new(name: &'static str, config: &'static str) -> Variant {
        Variant { name, config, moves: false }
    }

    const fn moving(name: &'static str, config: &'static str) -> Variant {
        Variant { name, config, moves: true }
    }
}

/// Every kind of operation, in a file of many small parts.
const EVERYTHING: &str = "flen = 1048576\n[weights]\nclose_open = 3\ninvalidate = 3\nfsync = 2\nfdatasync = 2\nposix_fallocate = 5\n\
     punch_hole = 8\nsendfile = 8\nposix_fadvise = 5\ncopy_file_range = 8";

const VARIANTS: &[Variant] = &[
    Variant::new("plain", "[weights]\nclose_open = 1\ninvalidate = 1\nfsync = 1"),
    Variant::new("everything", EVERYTHING),
    Variant::new(
        "no-mmap",
        "flen = 4194304\n[opsize]\nmax = 262144\n[weights]\nmapread = 0\nmapwrite = 0\nclose_open = 2\n\
                 posix_fallocate = 5\npunch_hole = 10\ncopy_file_range = 10",
    ),
    Variant::new(
        "mmap",
        "flen = 1048576\n[weights]\nread = 3\nwrite = 3\nmapread = 20\nmapwrite = 20\ninvalidate = 5\n\
                 truncate = 10\npunch_hole = 5",
    ),
    Variant::new(
        "mmap-without-msync",
        "flen = 524288\nnomsyncafterwrite = true\n[weights]\nmapread = 10\nmapwrite = 20\nclose_open = 2\n\
                 sendfile = 5",
    ),
    // Without posix_fallocate: where `align` leaves nothing of its range, fsx 0.3.2 asks for 0 bytes, takes the refusal for a file system
    // that cannot do it, and gives up (on ext4 too).
    Variant::new(
        "stripes",
        "flen = 16777216\n[opsize]\nmin = 4096\nmax = 3145728\nalign = 4096\n[weights]\nclose_open = 1\n\
                 punch_hole = 5\ncopy_file_range = 5",
    ),
    Variant::new(
        "small",
        "flen = 20000\n[opsize]\nmax = 3000\n[weights]\nclose_open = 10\ntruncate = 20\npunch_hole = 5\n\
                 fdatasync = 3\ncopy_file_range = 5",
    ),
    Variant::moving("moving-everything", EVERYTHING),
    Variant::moving(
        "moving-large",
        "flen = 8388608\n[opsize]\nmax = 524288\n[weights]\nclose_open = 2\ntruncate = 10\nposix_fallocate = 5\n\
         punch_hole = 10\ncopy_file_range = 10",
    ),
];

pub fn run(ground: &Ground) -> Report {
    let program = match tools::get(&tools::FSX, &ground.root, &ground.log("install")) {
        Ok(program) => program,
        Err(why) => return Report::fail("install", why),
    };
    let mut report = Report::default();
    for variant in VARIANTS.iter().filter(|variant| !variant.moves || ground.is_ours) {
        report.add(Report::check(variant.name, run_variant(ground, variant, &program)));
    }
    report
}

fn run_variant(ground: &Ground, variant: &Variant, program: &Path) -> Result<(), String> {
    if !variant.moves {
        return exercise(ground, variant, program);
    }
    let done = AtomicBool::new(false);
    let (exercised, moved) = std::thread::scope(|scope| {
        let moving = scope.spawn(|| keep_moving(ground, variant, &done));
        let exercised = exercise(ground, variant, program);
        done.store(true, Ordering::Relaxed);
        (exercised, moving.join().unwrap_or_else(|_| Err("the mover panicked".to_owned())))
    });
    exercised?;
    let moves = moved?;
    println!("      fsx {:<20} moved {moves} times meanwhile", variant.name);
    if moves == 0 { Err("the file was never moved".to_owned()) } else { Ok(()) }
}

/// Moves the file from layout to layout until `done`; how often.
fn keep_moving(ground: &Ground, variant: &Variant, done: &AtomicBool) -> Result<u64, String> {
    let log = ground.log(&format!("{}-moves", variant.name));
    let mut moves = 0;
    for layout in LAYOUTS.iter().cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let command = ground.command(&ground.brindle).args(["stripe", "migrate"]).args(*layout);
        let moved = command.arg(variant.name).limit_secs(MOVE_SECS_MAX).run(&log);
        // The program makes the file when it begins.
        if !moved.output().contains("No such file") {
            verdict(&moved)?;
            moves += 1;
        }
    }
    Ok(moves)
}

fn exercise(ground: &Ground, variant: &Variant, program: &Path) -> Result<(), String> {
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
