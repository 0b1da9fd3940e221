//! `brindle bb node`: compute nodes, as the orchestrator knows them.

use std::time::Duration;

use brindle_host::bb::protocol::{NodeState, Reply, Request, unexpected};
use brindle_host::bb::view::{NodeView, NodesView};
use brindle_types::{Code, Fault, Result};

use super::{ListArgs, SocketArg, say};
use crate::exit::Done;
use crate::output::{print_json, table};

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List compute nodes: whether their agents answer, and which buffers are mounted there
    List(ListArgs),
    /// Say that a node is dead: its host is refused by the servers of its buffers, and nothing waits for it any longer
    Forget(ForgetArgs),
}

/// Arguments of `brindle bb node forget`.
#[derive(clap::Args)]
#[command(
    after_help = "What programs on the node had written and not synced is lost, as with a power cut. A node that is alive after all registers again, and \
                        loses its mounts of these buffers. A host that is removed from the whole cluster: brindle node remove."
)]
pub struct ForgetArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    /// Do it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    socket: SocketArg,
}

/// Runs the command.
pub fn run(command: Command) -> Result<Done> {
    match command {
        Command::List(args) => list(&args),
        Command::Forget(args) => forget(args),
    }
}

pub fn nodes(socket: &SocketArg) -> Result<Vec<NodeState>> {
    match socket.ask(&Request::Nodes, Duration::ZERO)? {
        Reply::Nodes(nodes) => Ok(nodes),
        other => Err(unexpected(&other)),
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let view = NodesView { nodes: nodes(&args.socket)?.into_iter().map(NodeView::from).collect() };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let row = |node: NodeView| vec![node.name, node.address, node.state, node.buffers.join(","), node.reason];
    let rows = view.nodes.into_iter().map(row).collect();
    println!("{}", table(&["NODE", "ADDRESS", "STATE", "BUFFERS", "REASON"], rows));
    Ok(Done::Ok)
}

fn forget(args: ForgetArgs) -> Result<Done> {
    if args.yes {
        return say(&args.socket, &Request::ForgetNode(args.node));
    }
    let found = nodes(&args.socket)?.into_iter().find(|node| node.name == args.node);
    let node = found.ok_or_else(|| Fault::new(Code::NoSuchNode).subject(args.node.clone()))?;
    let why = if node.buffers.is_empty() {
        "it would have to register again".to_owned()
    } else {
        let jobs = node.buffers.join(", ");
        format!("what it has written into the buffers of job {jobs} and not synced is lost then")
    };
    Err(Fault::new(Code::BadArgument)
        .what("will not give up node")
        .subject(args.node)
        .why(why)
        .data("nothing was changed")
        .next("if it is dead: add --yes"))
}
