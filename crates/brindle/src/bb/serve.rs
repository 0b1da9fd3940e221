//! `brindle bb serve`: the orchestrator as a process.

use std::path::PathBuf;

use brindle_host::Host;
use brindle_host::bb::{Config, Orchestrator, server};
use brindle_host::process::Said;
use brindle_telemetry::panic;
use brindle_types::{Code, Fault, Result};

use super::SocketArg;
use crate::cli;
use crate::exit::Done;
use crate::format::runtime;
use crate::serve::{failed, say, start_log};

/// Where its state lies unless told otherwise.
const DIR_DEFAULT: &str = "/var/lib/brindle/bb";
/// Where jobs see their buffers unless told otherwise.
const MOUNT_ROOT_DEFAULT: &str = "/mnt/brindle-bb";

/// Arguments of `brindle bb serve`.
#[derive(clap::Args)]
#[command(
    after_help = "It runs as root on the host of slurmctld. slurm.conf: BurstBufferType=burst_buffer/datawarp; \
                        burst_buffer.conf: GetSysState=/usr/sbin/dacctl, a link to brindle. See docs/operations/slurm.md."
)]
pub struct Args {
    /// Directory of its state
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    dir: PathBuf,
    #[command(flatten)]
    socket: SocketArg,
    /// Where jobs see their buffers: MOUNT_ROOT/JOB
    #[arg(long, value_name = "DIR", default_value = MOUNT_ROOT_DEFAULT)]
    mount_root: PathBuf,
    /// Directories of nodes that are all on this machine
    #[arg(long, value_name = "DIR", hide = true)]
    nodes_dir: Option<PathBuf>,
    /// User that slurmctld runs as
    #[arg(long, value_name = "UID", default_value_t = 0)]
    slurm_uid: u32,
    /// Log file; standard error unless given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Say on standard output, as JSON, when it is ready
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Runs until it is ended. It may be killed at any time: what it had begun goes on at the next start.
pub fn run(args: &Args) -> Result<Done> {
    brindle_host::need_root("cannot run the orchestrator of burst buffers")?;
    start_log(args.log.as_deref())?;
    panic::install("brindle bb serve".to_owned(), panic::After::Abort);
    let runtime = runtime()?;
    let host = Host::new(&runtime)?;
    let outcome = serve(args, &host);
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome
}

fn serve(args: &Args, host: &Host) -> Result<Done> {
    let nodes_dir = args.nodes_dir.as_deref().map(cli::text).transpose()?.map(PathBuf::from);
    let config = Config {
        dir: cli::text(&args.dir)?.into(),
        mount_root: cli::text(&args.mount_root)?.into(),
        nodes_dir,
        slurm_uid: args.slurm_uid,
    };
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot make", args.mount_root.display().to_string(), e)
    };
    std::fs::create_dir_all(&config.mount_root).map_err(|e| cannot(&e))?;
    // One orchestrator a directory; it also has the socket then.
    let orchestrator = Orchestrator::open(host, config)?;
    let listener = server::listen(&args.socket.path())?;
    if args.ready_json {
        say(&Said::Ready(()));
    }
    server::serve(&orchestrator, &listener);
    Ok(Done::Ok)
}
