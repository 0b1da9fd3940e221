//! The metadata service: one MDT is a single-writer state machine over rows in a log.
//!
//! | module | holds |
//! |---|---|
//! | [`dispatch`] | operation number -> handler, a table of contents |
//! | [`ops`] | one file per operation, named like its message |
//! | [`mdt`] | batches under one lock, replies after the log, exactly once |
//! | [`store`] | the rows; the only code that touches `brindle-kv` |
//! | [`namespace`], [`birth`], [`grant`], [`opens`], [`attrs`], [`reports`], [`truncate`], [`acl`] | what operations share |
//! | [`leases`] | who may answer from its own memory what is in a directory |
//! | [`limits`] | how much users and groups may use |
//! | [`changelog`] | what readers are told of each change |
//! | [`access_times`] | since when reads of files are in their access times |
//! | [`scan`] | walking a tree with a predicate, a page at a time |
//! | [`scrub`] | damage on the disk, found by reading everything |
//! | [`admission`] | what hosts may do that are not trusted fully |
//! | [`replica`] | one of several members with the same log |
//! | [`ask`], [`osts`] | what the MDT asks of clients and of OSTs |
//!
//! Invariants: DESIGN section 12, numbers 1, 2, 4, 6, 11, 14, 15.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod access;
pub mod access_times;
pub mod acl;
pub mod admission;
pub mod ask;
pub mod attrs;
pub mod background;
pub mod birth;
pub mod changelog;
pub mod check;
pub mod cluster;
pub mod config;
pub mod connections;
pub mod dispatch;
pub mod expire;
pub mod format;
pub mod grant;
pub mod hearing;
pub mod hsm;
pub mod leases;
pub mod lock_table;
pub mod locking;
pub mod mdt;
pub mod namespace;
pub mod opens;
pub mod ops;
pub mod osts;
pub mod quota;
pub mod recovery;
pub mod relocate;
pub mod replica;
pub mod reports;
pub mod restore;
pub mod scan;
pub mod scrub;
pub mod service;
pub mod start;
pub mod store;
pub mod truncate;

pub use config::{Config, Identity};
pub use format::{format, format_as};
pub use mdt::{Call, Mdt};
pub use start::{Handle, start};

#[cfg(test)]
mod tests;
