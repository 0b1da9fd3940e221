//! `lfs setstripe`.

use std::path::PathBuf;

use brindle_types::{Code, Fault, Result};

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
    /// Pool (not in this release)
    #[arg(short = 'p', long, hide = true)]
    pool: Option<String>,
    /// Files to make or choose for, and directories
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    if args.pool.is_some() {
        return Err(not_yet("-p"));
    }
    let policy = if args.delete { None } else { Some(args.policy.policy()?) };
    for path in &args.paths {
        set(path, policy.clone())?;
    }
    Ok(Done::Ok)
}

fn not_yet(option: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot set a layout with")
        .subject(option.to_owned())
        .why("this release has no pools: name OSTs with -o, or the first one with -i")
}
