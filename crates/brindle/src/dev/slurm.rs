//! `brindle dev slurm`: a private Slurm with burst buffers on this machine ([`brindle_host::slurm`]).

use std::path::PathBuf;
use std::time::Instant;

use brindle_host::Host;
use brindle_host::slurm::hosts::{OnHosts, STORAGE_MAX};
use brindle_host::slurm::{self, Downed, NODES_MAX, Places, Up};
use brindle_types::Result;

use super::{host, slurm_hosts};
use crate::exit::Done;
use crate::format::runtime;

/// Default directory of the cluster.
const DIR_DEFAULT: &str = ".brindle-slurm";

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start munge, slurmctld, nodes, and an orchestrator with a pool of bricks; install what is missing
    Up(UpArgs),
    /// End all of it, and remove the directory
    Down(DownArgs),
}

/// The directory.
#[derive(clap::Args)]
pub struct DirArg {
    /// Directory of everything: configuration, sockets, logs, bricks
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    dir: PathBuf,
}

/// Arguments of `brindle dev slurm up`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle dev slurm up --dir /tmp/s --nodes 4 --bb-pool 1GiB\n  export SLURM_CONF=/tmp/s/etc/slurm.conf; sinfo\n  \
                        brindle dev slurm up --dir /tmp/h --nodes 4 --hosts 2 --rate 1gbit\n  brindle dev host kill --dir /tmp/h n2\n\
                        Jobs are submitted as any user but root: root gets no burst buffers from Slurm."
)]
pub struct UpArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=NODES_MAX as i64), default_value_t = 4)]
    nodes: u8,
    /// Size of the pool of bricks
    #[arg(long, value_name = "SIZE", value_parser = pool_size, default_value = "1GiB")]
    bb_pool: u64,
    /// Put everything on hosts of its own, each a network namespace with an address and a link of its own: head (slurmctld, orchestrator), so many
    /// hosts oss1, oss2, ... with a brick each, and the nodes n1, n2, ...; see brindle dev host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=STORAGE_MAX as i64))]
    hosts: Option<u8>,
    /// Let each link pass so many bits a second each way, such as 1gbit
    #[arg(long, value_name = "RATE", value_parser = host::rate, requires = "hosts")]
    rate: Option<host::Rate>,
    /// Slurm's plug-in for burst buffers
    #[arg(long, value_enum, default_value_t = Plugin::Datawarp)]
    plugin: Plugin,
}

/// A plug-in of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Plugin {
    /// Calls dacctl
    Datawarp,
    /// Runs burst_buffer.lua, which calls dacctl
    Lua,
}

/// Arguments of `brindle dev slurm down`.
#[derive(clap::Args)]
pub struct DownArgs {
    #[command(flatten)]
    dir: DirArg,
}

/// Smallest pool: a granule on each brick.
const POOL_MIN_BYTES: u64 = 32 << 20;

fn pool_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = brindle_types::units::parse_bytes(text)?;
    if bytes < POOL_MIN_BYTES {
        return Err("at least 32MiB are needed".to_owned());
    }
    Ok(bytes)
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    let since = Instant::now();
    let tell = |text: &str| eprintln!("{:6.2} s  {text}", since.elapsed().as_secs_f64());
    let runtime = runtime()?;
    let host = Host::new(&runtime)?;
    match command {
        Command::Up(args) => {
            let places = Places::of(&args.dir.dir)?;
            let plugin = match args.plugin {
                Plugin::Datawarp => slurm::Plugin::Datawarp,
                Plugin::Lua => slurm::Plugin::Lua,
            };
            match args.hosts {
                Some(storage) => {
                    let rate_bits = args.rate.and_then(|rate| rate.0);
                    let (nodes, pool_bytes) = (args.nodes, args.bb_pool);
                    let wanted = OnHosts { nodes, storage, rate_bits, pool_bytes, plugin };
                    slurm_hosts::up(&host, &places, &wanted, &tell)?;
                }
                None => {
                    let wanted = Up { nodes: args.nodes, pool_bytes: args.bb_pool, plugin };
                    slurm::up(&host, &places, &wanted, &tell)?;
                }
            }
            println!(
                "export SLURM_CONF={} BRINDLE_BB_SOCKET={}",
                places.conf().display(),
                places.socket().display()
            );
            eprintln!(
                "next: run the line above, then as a user: sbatch --bb \"capacity=64MiB access_mode=striped type=scratch\" JOB | brindle bb list"
            );
            let dir = places.dir.display();
            if args.hosts.is_some() {
                eprintln!("      brindle dev host list --dir {dir} | brindle dev host kill --dir {dir} n1");
            }
            eprintln!("      brindle dev slurm down --dir {dir}");
        }
        Command::Down(args) => {
            let places = Places::of(&args.dir.dir)?;
            match slurm::down(&host, &places, &tell)? {
                Downed::NothingThere => println!("nothing to do: {} does not exist", places.dir.display()),
                Downed::Gone(lost) => {
                    for buffer in lost {
                        let token = buffer.token;
                        match buffer.persistent {
                            true => println!("lost with it: the persistent buffer {token}"),
                            false => println!(
                                "lost with it: the files of job {token} that had not been staged out"
                            ),
                        }
                    }
                    println!("down; {} removed", places.dir.display());
                }
            }
        }
    }
    Ok(Done::Ok)
}
