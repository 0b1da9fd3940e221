//! Tests of coherence between two mounts of one file system: each sees changes of the other at once.
//!
//! `BRINDLE_TEST_DIRS=A:B` names the mounts; without it one local directory plays both, which checks the tests. The
//! numbered promises are those of `docs/semantics.md`.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod appends;
mod asynchronous;
mod data;
mod locks;
mod names;
mod programs;
mod races;

use std::path::PathBuf;

use brindle_tests::area::Area;

/// Pairs for both directions: (directory of the changes, directory of the looks).
fn both_ways(area: &Area, name: &str) -> [(PathBuf, PathBuf); 2] {
    [(area.at(name), area.other(name)), (area.other(name), area.at(name))]
}
