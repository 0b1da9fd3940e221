//! `brindle dev slurm`: a private Slurm with burst buffers on this machine ([`brindle_host::slurm`]).

use std::path::PathBuf;
use std::time::Instant;

use brindle_host::Host;
use brindle_host::slurm::{self, Downed, NODES_MAX, Places, Up};
use brindle_types::Result;

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
    after_help = "Example:\n  brindle dev slurm up --dir /tmp/s --nodes 4 --bb-pool 1GiB\n  export SLURM_CONF=/tmp/s/etc/slurm.conf; sinfo\n\
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
            slurm::up(&host, &places, &Up { nodes: args.nodes, pool_bytes: args.bb_pool, plugin }, &tell)?;
            println!(
                "export SLURM_CONF={} BRINDLE_BB_SOCKET={}",
                places.conf().display(),
                places.socket().display()
            );
            eprintln!(
                "next: run the line above, then as a user: sbatch --bb \"capacity=64MiB access_mode=striped type=scratch\" JOB | brindle bb list"
            );
            eprintln!("      brindle dev slurm down --dir {}", places.dir.display());
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
