//! `brindle bench threads`.

use brindle_bench::workload::threads::{Options, doubling, plans};
use brindle_types::Result;
use serde_json::json;

use super::common::{Common, size};
use crate::exit::Done;

/// Arguments of `brindle bench threads`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench threads --max 64 --size 2GiB --html threads.html /mnt/b\n\
                        Each thread has a file of its own; all files together have the same size whatever the number of threads.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Most threads; measured are 1, 2, 4 ... and this
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max: u32,
    /// Bytes of all files together
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size)]
    size: u64,
    /// Bytes of a call
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    record_size: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.max)?;
    let options = Options {
        threads: doubling(args.max),
        bytes: args.size,
        record_bytes: args.record_size,
        direct: false,
    };
    let parameters = json!({ "size_bytes": args.size, "record_bytes": args.record_size });
    args.common.run("threads", &plans(&options, &setting), &setting, parameters)
}
