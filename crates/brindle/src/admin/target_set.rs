//! `brindle target set`: the moment at which changes of targets are answered.

use brindle_admin::durability::{self, DurabilityView};
use brindle_types::{Result, TargetId};
use brindle_wire::mgs::durability::Mode;

use super::ask::{self, servers};
use super::target_assign::Named;
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;

/// Arguments of `brindle target set`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target set --durability sync MDT0000 OST0000\n\
                        relaxed   answered when every copy has written it; a power cut of all copies at once may take the last seconds that nobody synced\n\
                        sync      answered when every copy has synced it; a power cut takes nothing\n\
                        scratch   as relaxed, and fsync waits for nothing: a power cut may take everything that the kernel has not written down\n\
                        Programs go on. The setting lies at the MGS: it stays after restarts, and all copies of a target go by it.")]
pub struct Args {
    /// The targets: OST0003, scratch-OST0003, MDT0000
    #[arg(value_name = "TARGET", required = true, value_parser = parse::<Named>, add = live::targets())]
    targets: Vec<Named>,
    /// Moment at which changes are answered: relaxed, sync or scratch
    #[arg(long, value_name = "MODE", value_parser = parse::<Mode>)]
    durability: Mode,
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
    let view = runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        args.targets.iter().try_for_each(|named| named.check_fs(&map.fs))?;
        let targets: Vec<TargetId> = args.targets.iter().map(|named| named.target).collect();
        durability::set(&servers, &place, &map, (&targets, args.durability), args.dry_run).await
    })?;
    match args.output.json() {
        true => print_json(&view)?,
        false => println!("{}", lines(&view)),
    }
    let all = view.dry_run || view.targets.iter().all(|target| target.in_force);
    Ok(if all { Done::Ok } else { Done::Partly })
}

fn lines(view: &DurabilityView) -> String {
    let rows = view.targets.iter().map(|target| {
        let said = match (target.changed, target.in_force) {
            (true, _) if view.dry_run => "would be changed",
            (false, _) if view.dry_run => "as it is",
            (_, true) => "in force",
            (_, false) => "noted; its server does not go by it yet",
        };
        vec![target.name.clone(), target.before.to_owned(), target.durability.to_owned(), said.to_owned()]
    });
    table(&["TARGET", "BEFORE", "DURABILITY", ""], rows.collect())
}
