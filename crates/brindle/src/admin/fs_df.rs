//! Space of a file system, target by target: `brindle fs df`, and the numbers of `lfs df`.

use brindle_admin::place::FsLocation;
use brindle_admin::space::Spaces;
use brindle_types::Result;
use brindle_types::units::format_bytes;

use super::ask::{servers, warn_without_mgs};
use super::place::{PlaceArgs, one};
use super::{fs_upgrade, rebalance};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// The verbs of `brindle fs`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the space of a file system, target by target
    Df(Args),
    /// Move files from fuller OSTs to emptier ones, while programs use them
    Rebalance(rebalance::Args),
    /// Write newer forms from now on, after all servers were upgraded
    Upgrade(fs_upgrade::Args),
}

/// Arguments of `brindle fs df`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Asks every target.
pub fn spaces(place: &FsLocation) -> Result<Spaces> {
    let spaces = runtime()?.block_on(async { Spaces::of(&servers(), place).await })?;
    spaces.without_mgs.iter().for_each(warn_without_mgs);
    Ok(spaces)
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Df(args) => df(args),
        Command::Rebalance(args) => rebalance::run(args),
        Command::Upgrade(args) => fs_upgrade::run(args),
    }
}

fn df(args: &Args) -> Result<Done> {
    let spaces = spaces(&one(&args.place)?)?;
    let view = spaces.view();
    let all_answer = view.targets.iter().all(|t| t.answers);
    if args.output.json() {
        print_json(&view)?;
    } else {
        let line = |name: String, total: u64, available: u64| {
            let used = total.saturating_sub(available);
            let percent = (used * 100).checked_div(total).map_or("-".to_owned(), |p| format!("{p}%"));
            vec![name, format_bytes(total), format_bytes(used), format_bytes(available), percent]
        };
        let mut rows = Vec::new();
        for t in view.targets {
            let dash = || "-".to_owned();
            rows.push(match t.answers {
                true => line(t.name, t.total_bytes, t.available_bytes),
                false => vec![format!("{} (no answer)", t.name), dash(), dash(), dash(), dash()],
            });
        }
        rows.push(line(
            format!("{} (OSTs, each device once)", view.fs),
            view.total_bytes,
            view.available_bytes,
        ));
        println!("{}", table(&["TARGET", "SIZE", "USED", "AVAILABLE", "USE%"], rows));
    }
    Ok(if all_answer { Done::Ok } else { Done::Partly })
}
