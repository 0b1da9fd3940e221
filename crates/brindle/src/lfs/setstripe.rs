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
    /// OSTs by index (not in this release)
    #[arg(short = 'o', long = "ost-list", visible_alias = "ost", hide = true)]
    ost: Option<String>,
    /// End of a component (not in this release)
    #[arg(short = 'E', long = "component-end", hide = true)]
    end: Option<String>,
    /// Layout (only raid0 in this release)
    #[arg(short = 'L', long, hide = true)]
    layout: Option<String>,
    /// Files to make or choose for, and directories
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let later = [("-p", &args.pool), ("-o", &args.ost), ("-E", &args.end)];
    if let Some((option, _)) = later.iter().find(|(_, value)| value.is_some()) {
        return Err(not_yet(option));
    }
    if args.layout.as_deref().is_some_and(|l| l != "raid0") {
        return Err(not_yet("-L"));
    }
    let policy = (!args.delete).then(|| args.policy.policy());
    for path in &args.paths {
        set(path, policy.clone())?;
    }
    Ok(Done::Ok)
}

fn not_yet(option: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot set a layout with")
        .subject(option.to_owned())
        .why("this release has plain striping only: -c, -S and -i")
}
