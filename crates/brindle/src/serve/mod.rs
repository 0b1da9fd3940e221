//! `brindle serve`: runs the targets of the given directories in one process, until SIGTERM or SIGINT.

pub mod config_command;
mod metrics;
pub mod options;
mod run;

use brindle_types::Result;

use crate::exit::Done;
pub use options::Args;
pub use run::{Announcement, failed, host_name, start_log};

/// Runs the command.
pub fn run(args: Args) -> Result<Done> {
    run::run(args)
}
