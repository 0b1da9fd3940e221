//! `brindle policy disable` and `enable`: one policy of an engine, off and on.

use brindle_host::policy;
use brindle_types::Result;

use super::text::StateArg;
use crate::exit::Done;

/// Arguments of `brindle policy disable` and `enable`.
#[derive(clap::Args)]
pub struct Args {
    /// The policy, as `brindle policy status` names it
    #[arg(value_name = "POLICY")]
    policy: String,
    #[command(flatten)]
    state: StateArg,
}

/// Runs the command.
pub fn run(args: &Args, is_on: bool) -> Result<Done> {
    let switched = policy::switch(&args.state.state, &args.policy, is_on, false)?;
    println!("{}", switched.says);
    Ok(Done::Ok)
}
