//! The one binary of Brindle: parses arguments, calls the crates below, prints.
//!
//! Started under another name it behaves as that tool: `lfs` and `lctl` (Lustre's texts), `rbh-report`, `rbh-find` and `rbh-du` (Robinhood's), `dacctl` (Slurm's calls), `mount.brindle` (for fstab). Everything
//! else is `brindle NOUN VERB`; [`cli`] is the table of contents. Invariant: only this crate parses arguments and
//! prints; standard output is data, standard error is talk; every failure is a `Fault` and an exit code ([`exit`]).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this crate is the one that prints")]

#[macro_use]
mod print;

mod admin;
mod alerts;
mod background;
mod bb;
mod bench;
mod changelog;
mod cli;
mod cluster;
mod completion;
mod control;
mod cpu_latency;
mod dacctl;
mod dev;
mod documents;
mod exit;
mod explain;
mod find;
mod follow;
mod format;
mod fsck;
#[cfg(test)]
mod fuzz;
mod gen_docs;
mod hsm;
mod lctl;
mod lfs;
mod limit;
mod locked_memory;
mod logs;
mod manager;
mod mount;
mod node;
mod node_label;
mod node_rename;
mod node_spare;
mod nodemap;
mod output;
mod pam;
mod policy;
mod pool;
mod prometheus;
mod quota;
mod rbh;
mod serve;
mod stripe;
mod support;

use std::process::ExitCode;

use brindle_telemetry::{log, panic};

fn main() -> ExitCode {
    // Servers and mounts replace it by one that ends the process.
    panic::install("brindle".to_owned(), panic::After::Unwind);
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let code = cli::run(&arguments);
    log::flush();
    code
}
