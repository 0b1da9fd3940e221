//! `brindle bb agent`: the agent of a compute node as a process.

use std::path::PathBuf;

use brindle_host::bb::node::agent::{Agent, Config};
use brindle_host::bb::node::hub::{
    OFFER_BYTES_MAX as STAGE_BYTES_MAX, OFFERS_MAX as STAGES_MAX, PORT_DEFAULT,
};
use brindle_host::identity;
use brindle_host::process::Said;
use brindle_telemetry::panic;
use brindle_types::{Code, Fault, Nid, Result};

use super::serve::MOUNT_ROOT_DEFAULT;
use crate::cli;
use crate::exit::Done;
use crate::format::runtime;
use crate::serve::{failed, say, start_log};

/// Environment variable of `--stage`.
const STAGE_VARIABLE: &str = "BRINDLE_BB_STAGE";
/// Where its state lies unless told otherwise.
const STATE_DEFAULT: &str = "/var/lib/brindle/bb-agent";

/// Arguments of `brindle bb agent`.
#[derive(clap::Args)]
#[command(
    after_help = "It runs as root on each compute node that is not the host of the orchestrator. The node joins the cluster first, as client, under \
                        the name that Slurm has for it: brindle cluster token --role client, brindle join.\n\
                        Example: brindle bb agent head1"
)]
pub struct Args {
    /// The orchestrator's host: HOST or HOST:PORT, as brindle bb serve --listen and --port have it
    #[arg(value_name = "HOST")]
    orchestrator: String,
    /// Identity of this host, which has joined the cluster; /etc/brindle/identity.pem unless given
    #[arg(long, value_name = "FILE", env = identity::VARIABLE, hide_env_values = true)]
    identity: Option<PathBuf>,
    /// Where jobs find their buffers, as brindle bb serve has it; the agent unmounts there whatever no buffer has
    #[arg(long, value_name = "DIR", default_value = MOUNT_ROOT_DEFAULT)]
    mount_root: PathBuf,
    /// Directory of its state and of the logs of mounts
    #[arg(long, value_name = "DIR", default_value = STATE_DEFAULT)]
    state: PathBuf,
    /// Shared directory below which this host copies files of users into buffers and out of them; also several, with commas between them
    #[arg(long = "stage", value_name = "DIR", value_delimiter = ',', env = STAGE_VARIABLE, hide_env_values = true)]
    stages: Vec<PathBuf>,
    /// Log file; standard error unless given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Say on standard output, as JSON, when the node is registered
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Runs until it is ended. The agent may be killed at any time: mounts outlive it. At the next start it unmounts what no buffer has any
/// more.
pub fn run(args: &Args) -> Result<Done> {
    brindle_host::need_root("cannot run the agent of a compute node")?;
    start_log(args.log.as_deref())?;
    panic::install("brindle bb agent".to_owned(), panic::After::Abort);
    let outcome = serve(args);
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome
}

fn serve(args: &Args) -> Result<Done> {
    let config = Config {
        orchestrator: address(&args.orchestrator)?,
        state: cli::text(&args.state)?.into(),
        mount_root: cli::text(&args.mount_root)?.into(),
        stages: stages(&args.stages)?,
    };
    let identity = identity::find(args.identity.as_deref())?.ok_or_else(|| {
        Fault::new(Code::NotEnrolled)
            .what("cannot run the agent of this node")
            .why("the node has not joined the cluster, so it cannot prove who it is")
            .data("nothing was changed")
            .next("let it join: brindle cluster token --role client, then brindle join here")
    })?;
    let runtime = runtime()?;
    let ready_json = args.ready_json;
    runtime.block_on(async {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let agent = Agent::new(seams, identity, config)?;
        tracing::info!(node = agent.node(), "the agent starts");
        let registered = move || {
            if ready_json {
                say(&Said::Ready(()));
            }
        };
        agent.run(registered).await
    })?;
    Ok(Done::Ok)
}

/// An address whose port may be left out.
fn address(text: &str) -> Result<Nid> {
    let whole = if text.contains(':') { text.to_owned() } else { format!("{text}:{PORT_DEFAULT}") };
    whole.parse().map_err(|why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot use the address of the orchestrator")
            .subject(text.to_owned())
            .why(why)
            .next("write HOST or HOST:PORT")
    })
}

/// Directories for `--stage`. They need not be there yet: a file system may be mounted later.
fn stages(dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let refused = |dir: &PathBuf, why: &'static str| {
        Fault::new(Code::BadArgument)
            .what("cannot stage files below")
            .subject(dir.display().to_string())
            .why(why)
            .data("nothing was changed")
            .next("give the path of a shared file system, as it is on all hosts: --stage /lustre")
    };
    // A variable that is set and empty means none.
    let given: Vec<&PathBuf> = dirs.iter().filter(|dir| !dir.as_os_str().is_empty()).collect();
    if given.len() > STAGES_MAX {
        return Err(refused(given[0], "too many directories are given: 64 are possible"));
    }
    given
        .into_iter()
        .map(|dir| match dir.to_str() {
            _ if dir.is_relative() => Err(refused(dir, "it is no absolute path")),
            _ if dir.exists() && !dir.is_dir() => Err(refused(dir, "it is no directory")),
            Some(text) if text.len() <= STAGE_BYTES_MAX => Ok(dir.clone()),
            _ => Err(refused(dir, "it is no text of at most 4096 bytes")),
        })
        .collect()
}
