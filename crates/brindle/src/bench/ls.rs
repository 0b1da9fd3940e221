//! `brindle bench ls`.

use brindle_bench::workload::list::{Job, plans};
use brindle_types::Result;
use serde_json::json;

use super::common::{Common, Ranks};
use crate::exit::Done;

/// Arguments of `brindle bench ls`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench ls --files 100000 /mnt/b\n\
                        The directory is made once, by all processes; then one 'ls -l' lists it in each repetition, with cold \
                        caches. CPU us/op is that of one file.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ranks: Ranks,
    /// Files of the directory
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    files: u32,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.ranks.count())?;
    let plans = plans(Job { files: args.files }, &setting);
    args.common.run("ls", &plans, &setting, json!({ "files": args.files }))
}
