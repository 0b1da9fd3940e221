//! `brindle fs upgrade`: stored values may be written in the newest forms from now on.
//!
//! After an upgrade of the software servers go on writing in the forms of the release before, so that a host that is still old can take
//! over. This command ends that, once every server is new.

use brindle_types::Result;
use brindle_wire::form::FormatLevel;
use serde::Serialize;

use super::ask::Asker;
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

#[derive(Serialize)]
struct View {
    fs: String,
    level_before: u16,
    level: u16,
    changed: bool,
}

/// Raises the level to the newest that this release knows.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    let newest = FormatLevel::NEWEST;
    let (before, after, changed) = runtime()?.block_on(async {
        let asker = Asker::new();
        let before = asker.mgs_map(&place).await?;
        if args.dry_run || before.format_level >= newest {
            let level = before.format_level.max(newest);
            return Ok((before.clone(), level, before.format_level < newest));
        }
        let raised = asker.raise_level(&place, newest).await?;
        Ok((before, raised.map.format_level, raised.changed))
    })?;
    if args.output.json() {
        let (level_before, level) = (before.format_level.0, after.0);
        print_json(
            "brindle.fs.upgrade",
            1,
            &View { fs: before.fs.to_string(), level_before, level, changed },
        )?;
    } else {
        let (fs, old, new) = (&before.fs, before.format_level.0, after.0);
        match (changed, args.dry_run) {
            (false, _) => {
                println!("{fs} has format level {old}, the newest that this release knows; nothing to do")
            }
            (true, true) => println!("{fs}: format level {old} would become {new}; nothing was changed"),
            (true, false) => {
                println!("{fs}: format level {old} is now {new}; older releases cannot serve it any more")
            }
        }
    }
    Ok(Done::Ok)
}
