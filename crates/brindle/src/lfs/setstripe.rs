//! `lfs setstripe`.

use std::path::PathBuf;

use brindle_types::Result;

use crate::exit::Done;
use crate::stripe::{PolicyArgs, set};

/// Arguments of `lfs setstripe`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Delete the default of a directory
    #[arg(short = 'd', long, conflicts_with = "policy")]
    delete: bool,
    /// Files to make or choose for, and directories
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let policy = if args.delete { None } else { Some(args.policy.policy()?) };
    for path in &args.paths {
        set(path, policy.clone())?;
    }
    Ok(Done::Ok)
}
