//! `brindle bb serve`: the orchestrator as a process.

use std::path::PathBuf;
use std::time::Duration;

use brindle_host::Host;
use brindle_host::bb::node::hub::PORT_DEFAULT;
use brindle_host::bb::{Config, Network, Orchestrator, server};
use brindle_host::identity;
use brindle_host::process::Said;
use brindle_telemetry::panic;
use brindle_types::units::parse_duration_s;
use brindle_types::{Code, Fault, Result};

use super::SocketArg;
use crate::cli;
use crate::exit::Done;
use crate::format::runtime;
use crate::locked_memory;
use crate::serve::{failed, say, start_log};

/// Default directory of the orchestrator's state.
const DIR_DEFAULT: &str = "/var/lib/brindle/bb";
/// Where jobs see their buffers unless told otherwise.
pub const MOUNT_ROOT_DEFAULT: &str = "/mnt/brindle-bb";

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
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "listen")]
    nodes_dir: Option<PathBuf>,
    /// Address of this host at which agents of compute nodes and mounts on other hosts reach it; without it buffers are for this host alone
    #[arg(long, value_name = "HOST", env = "BRINDLE_BB_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Port for agents
    #[arg(long, value_name = "PORT", default_value_t = PORT_DEFAULT, requires = "listen")]
    port: u16,
    /// Identity of this host, which has joined the cluster as server; /etc/brindle/identity.pem unless given
    #[arg(long, value_name = "FILE", env = identity::VARIABLE, hide_env_values = true, requires = "listen")]
    identity: Option<PathBuf>,
    /// User that slurmctld runs as
    #[arg(long, value_name = "UID", default_value_t = 0)]
    slurm_uid: u32,
    /// How long a buffer is kept that Slurm threw away (scancel --hurry) before its files were staged out: a number with s, min, h or d
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "24h")]
    keep_discarded: Duration,
    /// Log file; standard error unless given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Say on standard output, as JSON, when it is ready
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// A time such as `90s`, `30min`, `24h` or `7d`.
fn duration(text: &str) -> std::result::Result<Duration, String> {
    parse_duration_s(text).map(Duration::from_secs)
}

/// Runs until it is ended. The orchestrator may be killed at any time: work that has begun goes on at the next start.
pub fn run(args: &Args) -> Result<Done> {
    brindle_host::need_root("cannot run the orchestrator of burst buffers")?;
    start_log(args.log.as_deref())?;
    panic::install("brindle bb serve".to_owned(), panic::After::Abort);
    if let Err(fault) = locked_memory::lock() {
        tracing::warn!(%fault, "this process starts servers that swap may wait for, and may wait for swap itself");
    }
    let runtime = runtime()?;
    let host = Host::new(&runtime)?;
    let outcome = serve(args, &host);
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome
}

/// How other hosts reach this one. Other hosts prove who they are, so this host needs an identity.
fn network(args: &Args) -> Result<Option<Network>> {
    let Some(address) = args.listen.clone() else { return Ok(None) };
    let refused = |why: &'static str| {
        let fault =
            Fault::new(Code::BadArgument).what("cannot serve compute nodes at").subject(address.clone());
        fault.why(why).data("nothing was changed").next("name one address of this host: --listen 10.0.0.1")
    };
    match address.as_str() {
        "" | "0.0.0.0" | "::" => return Err(refused("nodes are told this address, and have to reach it")),
        several if several.contains(',') => return Err(refused("it is more than one address")),
        _ => {}
    }
    let found = identity::find(args.identity.as_deref())?.ok_or_else(|| {
        Fault::new(Code::NotEnrolled)
            .what("cannot serve compute nodes at")
            .subject(address.clone())
            .why("this host has not joined a cluster, so nobody could prove who calls")
            .data("nothing was changed")
            .next("let it join: brindle cluster init on the first host, brindle join on others")
    })?;
    let identity = cli::text(found.path())?.into();
    Ok(Some(Network { address, port: args.port, identity }))
}

fn serve(args: &Args, host: &Host) -> Result<Done> {
    let nodes_dir = args.nodes_dir.as_deref().map(cli::text).transpose()?.map(PathBuf::from);
    let config = Config {
        dir: cli::text(&args.dir)?.into(),
        mount_root: cli::text(&args.mount_root)?.into(),
        nodes_dir,
        network: network(args)?,
        keep_discarded: args.keep_discarded,
        slurm_uid: args.slurm_uid,
    };
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot make", args.mount_root.display().to_string(), e)
    };
    std::fs::create_dir_all(&config.mount_root).map_err(|e| cannot(&e))?;
    // A directory has a single orchestrator, which then has the socket, too.
    let orchestrator = Orchestrator::open(host, config)?;
    let listener = server::listen(&args.socket.path())?;
    if args.ready_json {
        say(&Said::Ready(()));
    }
    server::serve(&orchestrator, &listener);
    Ok(Done::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, wanted_s) in [("0s", 0), ("30min", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(wanted_s)), "{text}");
        }
        for text in ["", "24", "h", "-1h", "1.5h", "24 h", "99999999999999999999s", "999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
