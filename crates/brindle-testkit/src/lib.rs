//! A whole cluster in one process: simulated time, chance, network and disks, faults, and (above them) checkers.
//!
//! Used by tests only. Everything random comes from one seed, so that a failing run replays exactly.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "simulations choose their numbers"
)]

pub mod aim;
pub mod check;
pub mod cluster;
pub mod faults;
pub mod fs;
pub mod history;
pub mod model;
pub mod pages;
pub mod replicas;
pub mod run;
pub mod sim;
pub mod strangers;
pub mod workload;
