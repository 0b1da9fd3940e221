//! Benchmarks that run on any directory, so that Brindle, its peers and local file systems are measured by the same
//! program.
//!
//! Called by `brindle bench` (and, for [`small`], by `make bench`), which parses arguments and prints. The caller gives
//! directories; everything happens in a new directory below them, which is removed afterwards, also after a failure
//! and after Ctrl-C. A workload is a list of [`plan::Plan`]s: ranks (processes or threads) go from phase to phase
//! together ([`team`]), and the time of a phase is that from the first start to the last end. Each repetition runs on
//! the directories and then on the limit below them ([`driver`]). Results are a [`run::Run`]: every sample, its median,
//! quartiles and processor time.
//!
//! Invariants: every write phase ends with fsync; bytes that are read are compared with the bytes that were written;
//! only files that the benchmark made are touched.
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

pub mod cold;
pub mod compare;
pub mod cpu;
pub mod driver;
pub mod html;
pub mod loopback;
pub mod machine;
pub mod memory;
pub mod net;
pub mod pattern;
pub mod plan;
pub mod rank;
pub mod run;
pub mod site;
pub mod small;
pub mod stats;
pub mod stop;
pub mod storage;
pub mod team;
pub mod workload;

mod files;
mod search;

pub use search::{Pair, SearchOptions, SearchReport, SearchRow, search};
