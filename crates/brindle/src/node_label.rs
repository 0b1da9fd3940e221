//! `brindle node label`: the rack that a host stands in.

use brindle_admin::label;
use brindle_types::Result;

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Arguments of `brindle node label`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle node label oss3 rack=R2\n  brindle node label oss3 rack=     nothing is said of its rack any more\n\
                        Copies of a target are never on one host, and not in one rack as long as a host of another rack could have one. Copies that are there \
                        stay where they are: brindle target replica move."
)]
pub struct Args {
    /// Name of the host
    #[arg(value_name = "HOST", add = live::nodes())]
    host: String,
    /// The label: rack=NAME
    #[arg(value_name = "LABEL", value_parser = rack)]
    label: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// The value of the only label that there is.
fn rack(text: &str) -> std::result::Result<String, String> {
    match text.split_once('=') {
        Some(("rack", rack)) => Ok(rack.to_owned()),
        Some((other, _)) => Err(format!("there is no label '{other}'; there is: rack=NAME")),
        None => Err("a label is given as rack=NAME".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = args.fs.place()?;
    let wanted = (args.host.as_str(), args.label.as_str());
    let view = runtime()?.block_on(async { label::label(&servers(), &place, wanted, args.dry_run).await })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let said = match view.rack.as_str() {
        "" => format!("{} in no rack", view.host),
        rack => format!("{} in the rack {rack}", view.host),
    };
    match (view.changed, view.dry_run) {
        (false, _) => println!("{said} already; nothing was changed"),
        (true, true) => println!("would have {said}"),
        (true, false) => println!("{said}"),
    }
    for name in &view.crowded {
        println!("{name} has two copies in this rack; to move one: brindle target replica move");
    }
    Ok(Done::Ok)
}
