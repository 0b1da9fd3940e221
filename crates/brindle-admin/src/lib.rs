//! Administration as a library: requests of an administrator to a file system, typed, with typed results.
//!
//! Commands parse, call this crate and print; the manager calls the same functions. A short request is a function over
//! [`servers::Servers`], a long one runs as a [`job`]. Results that programs read are [`document`]s.
//!
//! Invariant: this crate never prints, reads arguments or touches the machine but through the seams, so all of it runs in the
//! simulator.
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

#[macro_use]
pub mod document;
pub mod changelog;
pub mod cluster_file;
pub mod drain;
pub mod durability;
pub mod events;
pub mod fsck;
pub mod fullness;
pub mod hosts;
pub mod hsm;
pub mod job;
pub mod known;
pub mod label;
pub mod limits;
pub mod logs;
pub mod mdt_backup;
pub mod migrate;
pub mod mount;
pub mod mount_levels;
pub mod moving;
pub mod nearest;
pub mod nodemaps;
pub mod osts;
pub mod paths;
pub mod place;
pub mod pool;
pub mod quota;
pub mod rails;
pub mod rebalance;
pub mod rename;
pub mod replica;
pub mod replica_move;
pub mod restart;
pub mod scrub;
pub mod servers;
pub mod shared;
pub mod space;
pub mod spare;
pub mod status;
pub mod target;
pub mod top;
pub mod trace;
pub mod upgrade;
pub mod why;
