//! Every planted bug of this crate is caught within a few seeds, by the model or by the comparison of members; otherwise those have no teeth.
//!
//! With `--nocapture` it prints one row for each, in the columns that `cargo xtask sim-teeth` reads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::PLANTED;
use super::model::random_run;
use super::verify::members_are_equal;

const SEEDS_MAX: u64 = 200;

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

/// The first seed whose run fails with the bug planted, and how it fails.
fn caught_by(bug: &'static str, run: fn(u64)) -> Option<(u64, String)> {
    PLANTED.set(Some(bug));
    let caught = (1..=SEEDS_MAX).find_map(|seed| {
        let panic = catch_unwind(AssertUnwindSafe(|| run(seed))).err()?;
        Some((seed, text_of(&*panic).split_whitespace().collect::<Vec<_>>().join(" ")))
    });
    PLANTED.set(None);
    caught
}

#[test]
#[allow(clippy::print_stdout, reason = "rows of a table for people")]
fn planted_bugs_are_caught() {
    let bugs = [
        ("log_reply_before_write", random_run as fn(u64)),
        ("log_skip_fdatasync", random_run),
        ("log_reuse_term", random_run),
        ("log_apply_torn_tail", random_run),
        ("log_rotate_unsynced", random_run),
        ("log_segment_name_unsynced", random_run),
        ("kv_checkpoint_before_log", random_run),
        ("kv_replica_loses_a_row", |_| members_are_equal()),
    ];
    let mut missed = Vec::new();
    for (bug, run) in bugs {
        let started = Instant::now();
        let caught = caught_by(bug, run);
        let seconds = started.elapsed().as_secs_f64();
        match caught {
            Some((seeds, how)) => {
                let how: String = how.chars().take(110).collect();
                println!("{bug:<36} {:<8} {seeds:>5} {seconds:>8.1}  {how}", "kv");
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [""; 0], "not caught within {SEEDS_MAX} seeds");
    assert_eq!(caught_by("no such bug", random_run), None);
}
