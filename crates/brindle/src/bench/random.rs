//! `brindle bench random`.

use std::path::Path;

use brindle_bench::site;
use brindle_bench::workload::random::{BLOCK_BYTES, Options, SET_BYTES, plans, set_bytes_default};
use brindle_types::Result;
use brindle_types::units::format_bytes;
use serde_json::json;

use super::common::{Common, Ranks, size};
use crate::exit::Done;

/// Arguments of `brindle bench random`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench random --size 8GiB --seconds 20 /mnt/b\n\
                        Each process has a file of its own, which is written once in order before the first repetition.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes of all files together [default: 4GiB, or a fifth of the free space if that is less]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Length of each phase
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Through the page cache instead of O_DIRECT
    #[arg(long)]
    buffered: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.ranks.count())?;
    let set_bytes = match args.size {
        Some(bytes) => bytes,
        None => {
            let dirs = setting.dirs.iter().take(1).chain(&setting.limit);
            let free = dirs.map(|dir| Ok(site::free(Path::new(&dir.path))?.0)).collect::<Result<Vec<_>>>()?;
            set_bytes_default(free.into_iter().min().unwrap_or(0))
        }
    };
    let options = Options { set_bytes, seconds: args.seconds, direct: !args.buffered };
    let parameters = json!({
        "set_bytes": set_bytes,
        "block_bytes": BLOCK_BYTES,
        "seconds": args.seconds,
        "direct": !args.buffered,
    });
    let mut notes = Vec::new();
    if set_bytes < SET_BYTES {
        notes.push(format!(
            "The files have {} together, less than {}: caches of servers and devices may hold much of that.",
            format_bytes(set_bytes),
            format_bytes(SET_BYTES)
        ));
    }
    args.common.run_with_notes("random", &plans(&options, &setting), &setting, parameters, notes)
}
