//! `brindle target replica move`: a copy of a target moves to another host. The MGS carries the order out; the command follows it.

use brindle_admin::replica_move::{ReplicaMove, ReplicaMoveView};
use brindle_types::Result;
use brindle_wire::mgs::replica::{MemberPlace, ReplicaSetChange};

use super::ask::{self, servers};
use super::target_assign::TargetArgs;
use super::target_replica::present_dir;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::print_json;

/// Arguments of `brindle target replica move`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target replica move OST0003 --from oss2 --to oss9\n\
                        Programs go on. The order stands when this command is interrupted, and the same command follows it again;\n\
                        to take it back: brindle target replica remove OST0003 --node oss9")]
pub struct MoveArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Host that the copy leaves
    #[arg(long, value_name = "HOST", add = live::nodes())]
    from: String,
    /// Host that the copy moves to
    #[arg(long, value_name = "HOST", add = live::nodes())]
    to: String,
    /// Directory on that host, empty or not there yet; the one of the first copy without it
    #[arg(long = "replica-dir", value_name = "DIR")]
    replica_dir: Option<String>,
    /// Have it in the rack of another copy, although a host of another rack could have it
    #[arg(long)]
    same_rack: bool,
}

/// Runs the command.
pub fn run(args: &MoveArgs) -> Result<Done> {
    let TargetArgs { target, dry_run, fs, output } = &args.target;
    let place = fs.place()?;
    let moves = ReplicaMove { target: target.target, from: args.from.clone(), to: args.to.clone() };
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        target.check_fs(&map.fs)?;
        let dir = match &args.replica_dir {
            Some(dir) => dir.clone(),
            None => present_dir(&place, moves.target).await?,
        };
        let change = ReplicaSetChange::Move {
            target: moves.target,
            from: moves.from.clone(),
            place: MemberPlace { host: moves.to.clone(), dir },
        };
        let done = servers.change_replicas(&place, change.in_same_rack(args.same_rack), *dry_run).await?;
        let left = moves.view(&map.fs, &done.set, *dry_run);
        let was_done = left.done;
        let left = if left.done || *dry_run {
            left
        } else {
            if !output.json() {
                eprintln!("{}: the copy on {} moves to {}", left.name, left.from, left.to);
            }
            let tell = |said: String| {
                if !output.json() {
                    eprintln!("{said}");
                }
            };
            moves.until_done(&servers, &place, &map.fs, tell).await?
        };
        if output.json() {
            print_json(&left)?;
        } else {
            println!("{}", describe(&left, was_done));
        }
        Ok(Done::Ok)
    })
}

fn describe(left: &ReplicaMoveView, was_done: bool) -> String {
    let ReplicaMoveView { name, from, to, dir, .. } = left;
    if was_done {
        return format!("nothing to do: {to} has a copy of {name} in {dir}, and {from} has none");
    }
    if left.done {
        return format!(
            "{name}: the copy of {from} is on {to} now, in {dir}; what lies in the directory on {from} stays there"
        );
    }
    let steps: Vec<String> =
        left.steps.iter().enumerate().map(|(n, step)| format!("  {}. {step}", n + 1)).collect();
    format!("would move the copy of {name} from {from} to {to}, in {dir}:\n{}", steps.join("\n"))
}
