//! `brindle bench quick`.

use brindle_bench::workload::quick::{Options, plans};
use brindle_types::Result;
use serde_json::json;

use super::common::{Common, Ranks, size};
use crate::exit::Done;

/// Arguments of `brindle bench quick`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench quick /mnt/b\n\
                        Everything happens in a new directory below DIR, which is removed afterwards. Every write phase ends \
                        with fsync; files are read with cold caches by another process than the one that wrote them.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes that each process writes and reads
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    size: u64,
    /// Files that each process makes
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.ranks.count())?;
    let options = Options { bytes: args.size, files: args.files };
    let parameters = json!({ "size_bytes": args.size, "files": args.files });
    args.common.run("quick", &plans(&options, &setting), &setting, parameters)
}
