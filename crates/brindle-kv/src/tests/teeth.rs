//! Every planted bug of this crate is caught by the model within a few seeds; otherwise the model has no teeth.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::PLANTED;
use super::model::random_run;

const SEEDS_MAX: u64 = 200;

/// The first seed whose run fails with the bug planted.
fn caught_by(bug: &'static str) -> Option<u64> {
    PLANTED.set(Some(bug));
    let caught = (1..=SEEDS_MAX).find(|&seed| catch_unwind(AssertUnwindSafe(|| random_run(seed))).is_err());
    PLANTED.set(None);
    caught
}

#[test]
fn planted_bugs_are_caught() {
    let bugs = [
        "log_reply_before_write",
        "log_skip_fdatasync",
        "log_reuse_term",
        "log_apply_torn_tail",
        "log_rotate_unsynced",
        "log_segment_name_unsynced",
        "kv_checkpoint_before_log",
    ];
    let missed: Vec<_> = bugs.into_iter().filter(|bug| caught_by(bug).is_none()).collect();
    assert_eq!(missed, [""; 0], "not caught within {SEEDS_MAX} seeds");
    assert_eq!(caught_by("no such bug"), None);
}
