//! `brindle serve`: runs the targets of the given directories in one process, until SIGTERM or SIGINT.

pub mod config_command;
mod hardware;
pub mod metrics;
mod numa;
pub mod options;
mod run;

use brindle_types::Result;

use crate::exit::Done;
pub use options::{Args, Options};
pub use run::{endpoint, failed, raise_limits, say, start_log, stop_signal};

/// Runs the command.
pub fn run(args: Args) -> Result<Done> {
    run::run(args)
}
