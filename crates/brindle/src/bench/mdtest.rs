//! `brindle bench mdtest`.

use brindle_bench::workload::mdtest::{Options, plans};
use brindle_types::Result;
use clap::ValueEnum;
use serde_json::json;

use super::common::{Common, Ranks};
use crate::exit::Done;

/// The cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Own directories, empty files
    Easy,
    /// One directory, 3901-byte files
    Hard,
}

/// Arguments of `brindle bench mdtest`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        brindle bench mdtest /mnt/b\n  \
                        brindle bench mdtest --dir /mnt/a --dir /mnt/b --case hard --files 10000\n\
                        Each process looks at and reads the files of the next one (mdtest -N 1). Every 3901-byte file is \
                        fsynced (mdtest -y), directories of empty files at the end; figures of mdtest as IO500 runs it are \
                        those of --no-fsync. With several mounts, the shared directory is used through one and through all.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ranks: Ranks,
    /// Cases to run
    #[arg(long = "case", value_name = "CASE", value_enum, value_delimiter = ',', default_values = ["easy", "hard"])]
    cases: Vec<Case>,
    /// Files that each process makes
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.common.setting(args.ranks.count())?;
    let wanted = |case| args.cases.contains(&case);
    let options = Options { easy: wanted(Case::Easy), hard: wanted(Case::Hard), files: args.files };
    args.common.run("mdtest", &plans(&options, &setting), &setting, json!({ "files": args.files }))
}
