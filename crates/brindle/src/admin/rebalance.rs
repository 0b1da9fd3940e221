//! `brindle fs rebalance`: files move from OSTs that are fuller than the others to those that are emptier, while programs
//! use them.

use std::path::PathBuf;

use brindle_admin::job;
use brindle_admin::rebalance::{Rebalance, Rebalanced, RebalancedTarget, SPREAD_DEFAULT_PERCENT};
use brindle_host::control::MountHere;
use brindle_types::Result;
use brindle_types::units::format_bytes;

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::exit::Done;
use crate::follow::{Show, follow};
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// Arguments of `brindle fs rebalance`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  brindle fs rebalance /mnt/b --dry-run\n  \
                        brindle fs rebalance /mnt/b --bandwidth 100MiB\n\n\
                        Programs may use the files meanwhile. It can be interrupted and given again at any time. Files that are \
                        spread over several OSTs stay where they are.")]
pub struct Args {
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = crate::completion::live::mount_points())]
    mount: PathBuf,
    /// Percentage points by which an OST may be fuller than all together
    #[arg(long, value_name = "PERCENT", default_value_t = SPREAD_DEFAULT_PERCENT, value_parser = clap::value_parser!(u8).range(1..=50))]
    spread: u8,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Only say what would be moved
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let request = Rebalance {
        place: one(&PlaceArgs { path: Some(args.mount.clone()), mgs: Vec::new(), dir: None })?,
        whole: MountHere::of(&args.mount)?.whole()?,
        spread_percent: args.spread,
        bandwidth_bytes: args.bandwidth,
        dry_run: args.dry_run,
    };
    let runtime = runtime()?;
    let running = runtime.block_on(async {
        let servers = servers();
        job::start(&servers.seams().clone(), "admin.rebalance", |job| request.run(servers, job))
    });
    let done = follow(&runtime, running, Show::Whole.on_terminal(args.output.json()))?;
    if args.output.json() {
        print_json(&done)?;
    } else {
        let row = |t: &RebalancedTarget| {
            let over = if t.surplus_bytes > 0 { format_bytes(t.surplus_bytes) } else { "-".to_owned() };
            vec![t.name.clone(), format!("{}%", t.used_percent_before), format!("{}%", t.used_percent), over]
        };
        let rows = done.targets.iter().map(row).collect();
        println!("{}", table(&["TARGET", "USED BEFORE", "USED", "TOO MUCH"], rows));
        println!("{}", describe(&done, args.dry_run, args.spread));
    }
    Ok(if args.dry_run || done.balanced { Done::Ok } else { Done::Partly })
}

fn describe(done: &Rebalanced, dry_run: bool, spread: u8) -> String {
    let moved = format!("{} files moved, {}", done.files, format_bytes(done.copied_bytes));
    match (done.balanced, dry_run) {
        (true, _) if done.files == 0 => {
            format!("balanced: no OST is more than {spread} percentage points fuller than all together")
        }
        (true, _) => format!("balanced: {moved}"),
        (false, true) => {
            "nothing was moved; without --dry-run that is what would leave those OSTs".to_owned()
        }
        (false, false) if done.failed > 0 => {
            format!("{moved}; {} files could not be moved; the same command tries again", done.failed)
        }
        (false, false) => format!(
            "{moved}; what is left there are files over several OSTs, and files too large to move without making others the fuller ones"
        ),
    }
}
