//! `brindle bench`: measures any directory, so that a mount, its peers and local file systems are compared by the same
//! program. The module holds the arguments and the printing; `brindle-bench` measures.

mod common;
pub mod compare;
mod ior;
mod ls;
mod mdtest;
mod net;
mod quick;
mod random;
pub mod report;
mod search;
mod storage;
mod threads;
mod tree;

use brindle_types::Result;

use crate::exit::Done;

/// The benchmarks.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Four figures in about a minute: streams and files, beside disk and loopback
    Quick(quick::Args),
    /// Large files as IOR: file per process, shared file, 1 MiB and 47008-byte transfers
    Ior(ior::Args),
    /// Many files as mdtest: own directories with empty files, one directory with 3901-byte files
    Mdtest(mdtest::Args),
    /// `ls -l` of one large directory
    Ls(ls::Args),
    /// 4 KiB in random order with O_DIRECT
    Random(random::Args),
    /// Throughput against the number of threads, as iozone
    Threads(threads::Args),
    /// A real source tree: untar, find, du, tar, rm
    Tree(tree::Args),
    /// `lfs find` and `brindle file du` beside find and du on the same mount, in one run
    Search(search::Args),
    /// The object store of an OST alone, as obdfilter-survey
    Storage(storage::Args),
    /// The network alone, as LNet selftest
    Net(net::Args),
    /// Two runs beside each other
    Compare(compare::Args),
    /// A process of a running benchmark
    #[command(hide = true)]
    Rank,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Quick(args) => quick::run(args),
        Command::Ior(args) => ior::run(args),
        Command::Mdtest(args) => mdtest::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Random(args) => random::run(args),
        Command::Threads(args) => threads::run(args),
        Command::Tree(args) => tree::run(args),
        Command::Search(args) => search::run(args),
        Command::Storage(args) => storage::run(args),
        Command::Net(args) => net::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Rank => brindle_bench::team::serve().map(|()| Done::Ok),
    }
}
