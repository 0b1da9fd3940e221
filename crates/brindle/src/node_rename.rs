//! `brindle node rename`: gives a host that has joined another name.

use brindle_admin::rename;
use brindle_types::Result;

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Arguments of `brindle node rename`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle node rename oss3 rack2-oss3\n\
                        The host keeps its key, roles, targets, copies, nodemaps and labels. Its daemon stops all in order, takes a certificate for the new \
                        name and starts anew; clients wait for seconds. The former name is refused from then on. The name of the machine itself is not \
                        changed.")]
pub struct Args {
    /// Name of the host
    #[arg(value_name = "OLD", add = live::nodes())]
    old: String,
    /// New name of the host
    #[arg(value_name = "NEW")]
    new: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = args.fs.place()?;
    let names = (args.old.as_str(), args.new.as_str());
    let view =
        runtime()?.block_on(async { rename::rename(&servers(), &place, names, args.dry_run).await })?;
    if args.output.json() {
        print_json(&view)?;
        return rename::outcome(&view).map(|()| Done::Ok);
    }
    match view.state {
        "unchanged" => println!("{} has this name already; nothing was changed", view.to),
        "planned" => println!("would rename {} to {}; its daemon would start anew", view.from, view.to),
        "renamed" => println!(
            "renamed {} to {}: its daemon goes by it since {:.1} s after the change; the former name is refused",
            view.from,
            view.to,
            view.seconds.unwrap_or_default()
        ),
        _ => println!("renamed {} to {}", view.from, view.to),
    }
    if view.state != "unchanged" {
        view.keeps.iter().for_each(|kept| println!("  keeps {kept}"));
    }
    rename::outcome(&view).map(|()| Done::Ok)
}
