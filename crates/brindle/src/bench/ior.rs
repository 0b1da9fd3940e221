//! `brindle bench ior`.

use brindle_bench::workload::ior::{self, Options, plans};
use brindle_types::{Code, Fault, Result};
use clap::ValueEnum;
use serde_json::json;

use super::common::{Common, Ranks, size};
use crate::exit::Done;

/// O_DIRECT needs offsets and lengths that are multiples of this on every disk.
const ALIGN_BYTES: u64 = 4096;

/// The cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// File per process, as ior -F
    Easy,
    /// One file, each process one piece of it
    Segmented,
    /// One file, processes take turns every transfer
    Strided,
    /// One file, processes take turns every 47008 bytes
    Hard,
}

impl From<Case> for ior::Case {
    fn from(case: Case) -> ior::Case {
        match case {
            Case::Easy => ior::Case::Easy,
            Case::Segmented => ior::Case::Segmented,
            Case::Strided => ior::Case::Strided,
            Case::Hard => ior::Case::Hard,
        }
    }
}

/// Arguments of `brindle bench ior`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
                        brindle bench ior /mnt/b\n  \
                        brindle bench ior --dir /mnt/a --dir /mnt/b --case hard --html hard.html\n\
                        In IOR's words: easy is 'ior -F -C -e -t 1m -b SIZE', hard is 'ior -C -e -t 47008 -b 47008 -s N'; -e \
                        (fsync) and -C (read what the next process wrote) hold unless --no-fsync and --read-own are given. \
                        With several mounts, cases with a shared file run on one and on all.")]
pub struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ranks: Ranks,
    /// Cases to run, in this order
    #[arg(long = "case", value_name = "CASE", value_enum, value_delimiter = ',',
        default_values = ["easy", "segmented", "strided", "hard"])]
    cases: Vec<Case>,
    /// Bytes that each process writes and reads
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    size: u64,
    /// Bytes of a call, in all cases but hard
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    transfer_size: u64,
    /// Each process reads what it wrote itself (ior without -C)
    #[arg(long)]
    read_own: bool,
    /// With O_DIRECT, in all cases but hard
    #[arg(long)]
    direct: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    if args.direct && !args.transfer_size.is_multiple_of(ALIGN_BYTES) {
        return Err(Fault::new(Code::BadArgument)
            .subject(format!("--transfer-size {}", args.transfer_size))
            .why(format!("with --direct it has to be a multiple of {ALIGN_BYTES} bytes")));
    }
    let setting = args.common.setting(args.ranks.count())?;
    let options = Options {
        cases: args.cases.iter().map(|case| (*case).into()).collect(),
        bytes: args.size,
        transfer_bytes: args.transfer_size,
        read_own: args.read_own,
        direct: args.direct,
    };
    let parameters = json!({
        "size_bytes": args.size,
        "transfer_bytes": args.transfer_size,
        "read_own": args.read_own,
        "direct": args.direct,
    });
    args.common.run("ior", &plans(&options, &setting), &setting, parameters)
}
