//! Tests of the promises of POSIX and Linux to programs, one property a test. The tests run on the file system under
//! test (`BRINDLE_TEST_DIR`), or on a local one, which checks the tests.
//!
//! The topics are those where file systems in user space go wrong: limits of names, links and renames, files without
//! names, holes, times, permissions, lists, locks, mappings.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acl;
mod data;
mod dirs;
mod handles;
mod holes;
mod locking;
mod mapping;
mod names;
mod open_files;
mod permissions;
mod rename;
mod search;
mod special;
mod times;
mod xattrs;
