//! `brindle fs upgrade`: stored values may be written in the newest forms from now on.

use brindle_admin::upgrade::upgrade;
use brindle_types::Result;

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};

/// Arguments of `brindle fs upgrade`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  brindle fs upgrade /mnt/b\n\n\
                        Give it when every server runs the new release. Older releases cannot serve the file system afterwards.")]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

/// Raises the level to the newest that this release knows.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    let done = runtime()?.block_on(async { upgrade(&servers(), &place, args.dry_run).await })?;
    let (fs, old, new) = (&done.fs, done.level_before, done.level);
    match (done.changed, args.dry_run) {
        _ if args.output.json() => print_json(&done)?,
        (false, _) => {
            println!("{fs} has format level {old}, the newest that this release knows; nothing to do")
        }
        (true, true) => println!("{fs}: format level {old} would become {new}; nothing was changed"),
        (true, false) => {
            println!("{fs}: format level {old} is now {new}; older releases cannot serve it any more")
        }
    }
    Ok(Done::Ok)
}
