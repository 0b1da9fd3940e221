//! `brindle cluster restart --rolling`: hosts start anew one after the other.

use brindle_admin::hosts::one;
use brindle_admin::restart::{RestartStep, RestartView, order, restart};
use brindle_types::{Code, Fault, Result};

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Arguments of `brindle cluster restart`.
#[derive(clap::Args)]
#[command(
    after_help = "Example, after a new package was installed on every host: brindle cluster restart --rolling\n\
                        Programs wait for moments and see no error. A host is left only when it serves everything again; one that does not come \
                        back ends the command, and the others go on as they are. Mounts are not concerned: mount them anew for a new release."
)]
pub struct Args {
    /// One host after the other; there is no other way
    #[arg(long, required = true)]
    rolling: bool,
    /// Only this host; can be given several times
    #[arg(long = "node", value_name = "HOST", add = live::nodes())]
    nodes: Vec<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs `brindle cluster restart`.
pub fn run(args: &Args) -> Result<Done> {
    let place = args.fs.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let known = servers.known(&place).await?;
        for node in &args.nodes {
            one(&known.hosts, node)?;
        }
        let hosts =
            order(&known, |host| args.nodes.is_empty() || args.nodes.iter().any(|node| node == host))?;
        if let Some(node) = args.nodes.iter().find(|node| !hosts.contains(node)) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot start anew:")
                .subject(node.clone())
                .why("no daemon runs there: the host has not joined as a server")
                .data("nothing was changed"));
        }
        if args.dry_run {
            println!("would have start anew, one after the other: {}", hosts.join(", "));
            return Ok(Done::Ok);
        }
        let mut view = RestartView::default();
        for host in &hosts {
            let tell = |told: RestartStep| match told {
                _ if args.output.json() => {}
                RestartStep::Waits(why) => eprintln!("{host}: waits: {why}"),
                RestartStep::Moves { name, to } => eprintln!("{host}: {name} moves to {to}"),
                RestartStep::Restarts => eprintln!("{host}: starts anew"),
            };
            let restarted = restart(&servers, &place, host, tell).await?;
            if !args.output.json() {
                println!("{host}: serves again after {:.1} s", restarted.seconds);
            }
            view.hosts.push(restarted);
        }
        if args.output.json() {
            print_json(&view)?;
        }
        Ok(Done::Ok)
    })
}
