//! `lfs migrate`.

use std::path::PathBuf;

use brindle_admin::migrate::Plan;
use brindle_admin::paths;
use brindle_types::{LayoutPolicy, Result};

use crate::exit::Done;
use crate::follow::Show;
use crate::stripe::PolicyArgs;
use crate::stripe::migrate::Migrator;

/// Bytes in a megabyte, as lfs counts them.
const MEGABYTE: u64 = 1 << 20;

/// Arguments of `lfs migrate`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Wait for programs that have the file open (they never have to: accepted for scripts)
    #[arg(short = 'b', long)]
    block: bool,
    /// Do not make programs wait (accepted for scripts; a piece at a time makes them wait, for a moment)
    #[arg(short = 'n', long, conflicts_with = "block")]
    non_block: bool,
    /// Say what is moved
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Show progress
    #[arg(long)]
    stats: bool,
    /// Most megabytes a second
    #[arg(short = 'W', long, value_name = "MB/s")]
    bandwidth: Option<u64>,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let policy = args.policy.policy()?;
    let plan = Plan { policy: (policy != LayoutPolicy::default()).then_some(policy), avoid: Vec::new() };
    let show = if args.stats { Show::Files } else { Show::Files.on_terminal(false) };
    let bandwidth_bytes = args.bandwidth.map(|mb| mb.saturating_mul(MEGABYTE));
    let mut migrator = Migrator::new(plan, bandwidth_bytes, show)?;
    for path in &args.paths {
        if args.verbose {
            println!("{}", paths::text(path));
        }
        migrator.migrate(path)?;
    }
    Ok(Done::Ok)
}
