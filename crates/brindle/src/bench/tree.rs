//! `brindle bench tree`.

use std::path::{Path, PathBuf};

use brindle_bench::site::{self, Site};
use brindle_bench::workload::tree::{self, Job};
use brindle_types::{Code, Fault, Result};
use serde_json::json;

use super::common::{Common, directory, local_dir};
use crate::exit::Done;

/// A header for each entry of a tar file, and the rounding of its contents.
const TAR_ENTRY_BYTES: u64 = 1536;

/// Arguments of `brindle bench tree`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench tree --source /usr/src/linux /mnt/b\n\
                        SOURCE is packed into a tar file on a local disk first, and unpacked as often as it takes for --entries. \
                        tar, find, du and rm are those of the system; after tar every file is fsynced, because tar does not.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Trees at once, each unpacked by a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,
    /// Directory whose files make up the tree
    #[arg(long, value_name = "SOURCE", default_value = "/usr/include")]
    source: PathBuf,
    /// Files and directories of the tree at least
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    entries: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.ranks)?;
    // tar runs in another directory than this command.
    let source = PathBuf::from(directory(&args.source)?.path);
    let packed = tree::count(&source)?;
    if packed.entries == 0 {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot measure with the tree")
            .subject(args.source.display().to_string())
            .why("it is empty")
            .next("give a directory with files: --source"));
    }
    let local = PathBuf::from(local_dir()?.path);
    site::need(&local, packed.bytes + packed.entries * TAR_ENTRY_BYTES, 1)?;
    let place = Site::new(&[local])?;
    let archive = place.path().join("tree.tar");
    tree::archive(&source, &archive)?;
    let job = Job { archive, copies: 1, entries: packed.entries, bytes: packed.bytes };
    let plans = tree::plans(job, args.entries, args.ranks, &setting);
    let parameters = json!({
        "source": shown(&source),
        "source_entries": packed.entries,
        "source_bytes": packed.bytes,
        "entries_min": args.entries,
    });
    let run = args.common.measure("tree", &plans, &setting, parameters)?;
    place.remove()?;
    args.common.show(run)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
