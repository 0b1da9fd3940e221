//! `brindle target drain` and `undrain`: an OST gets no new files, and what lies on it goes to the others, while programs use
//! the files.
//!
//! The MGS notes that it is drained; the MDT finds the files; each is moved piece by piece. An interruption leaves whole
//! files, and the same command goes on.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use brindle_types::units::format_bytes;
use brindle_types::{Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scan::{Term, Test};
use brindle_wire::mgs::TargetChange;
use serde::Serialize;

use super::ask::{Asker, Use};
use super::moving::{self, Mover};
use super::place::{Place, PlaceArgs, one};
use super::target_remove::{describe as describe_use, one_ost};
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};
use crate::pool::OstList;
use crate::stripe::migrate::Plan;

/// Times that all files are looked for; files that come in between were laid out before the MDT knew.
const ROUNDS_MAX: usize = 8;

/// Arguments of `brindle target drain`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target drain OST0003 /mnt/b --bandwidth 200MiB\n\
                        Programs may use the files meanwhile. After an interruption the same command goes on.")]
pub struct DrainArgs {
    /// The OST: its index, or its name
    #[arg(value_parser = parse::<OstList>, add = live::osts_to_drain())]
    ost: OstList,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle target undrain`.
#[derive(clap::Args)]
pub struct UndrainArgs {
    /// The OST: its index, or its name
    #[arg(value_parser = parse::<OstList>, add = live::drained_osts())]
    ost: OstList,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
}

#[derive(Default, Serialize)]
struct Drained {
    target: String,
    files: u64,
    copied_bytes: u64,
    /// Files that could not be moved.
    failed: u64,
    /// Files on it that have no name any more, and that programs have open.
    nameless: u64,
    /// Whether no file is left on it.
    empty: bool,
}

/// Runs `brindle target drain`.
pub fn drain(args: &DrainArgs) -> Result<Done> {
    let (map, ost) = change(&args.ost, &args.mount, TargetChange::Drain)?;
    let target = map.fs.target(TargetId::ost(ost));
    let mut mover = Mover::new(&args.mount, args.bandwidth)
        .map_err(|fault| fault.data(format!("{target} gets no new files; nothing was moved")))?;
    let progress = !args.output.json() && std::io::stderr().is_terminal();
    let plan = Plan { policy: None, avoid: vec![ost], progress };
    let mut drained = Drained { target: target.clone(), ..Drained::default() };
    for _ in 0..ROUNDS_MAX {
        let files = mover.files(vec![Term::Test(Test::Ost(vec![ost]))])?;
        drained.empty = files.is_empty();
        mover.done.failed = 0;
        for file in &files {
            mover.move_file(file, &plan)?;
        }
        if drained.empty || mover.done.failed > 0 {
            break;
        }
    }
    let moving::Done { files, copied_bytes, failed } = mover.done;
    drained = Drained { files, copied_bytes, failed, ..drained };
    if drained.empty {
        let left = runtime()?.block_on(async { Asker::new().ost_use(&map, ost).await })?;
        drained.nameless = left.nameless;
        drained.empty = left.files == 0;
    }
    if args.output.json() {
        print_json("brindle.target.drain", 1, &drained)?;
    } else {
        println!("{}", describe(&drained, ost));
    }
    Ok(if drained.empty { Done::Ok } else { Done::Partly })
}

/// Runs `brindle target undrain`.
pub fn undrain(args: &UndrainArgs) -> Result<Done> {
    let (map, ost) = change(&args.ost, &args.mount, TargetChange::Undrain)?;
    println!("{} gets new files again", map.fs.target(TargetId::ost(ost)));
    Ok(Done::Ok)
}

fn describe(drained: &Drained, ost: u16) -> String {
    let Drained { target, files, copied_bytes, failed, nameless, empty } = drained;
    let moved = format!("{files} files moved, {}", format_bytes(*copied_bytes));
    match empty {
        true => format!(
            "{target} is empty, and gets no new files ({moved}); next: brindle target remove, or take it back: brindle target undrain"
        ),
        false if *failed > 0 => {
            format!("{target}: {moved}; {failed} files could not be moved; the same command tries again")
        }
        false if *nameless > 0 => {
            let used = Use { files: *nameless, nameless: *nameless };
            format!("{target}: {moved}; {}; they go when those close them", describe_use(used))
        }
        false => format!("{target}: {moved}; there are still files on it: lfs find MOUNT -ost {ost}"),
    }
}

/// Changes the OST in the map, and waits until the MDTs know.
fn change(list: &OstList, mount: &Path, change: TargetChange) -> Result<(Map, u16)> {
    let place: Place = one(&PlaceArgs { path: Some(mount.to_owned()), mgs: Vec::new(), dir: None })?;
    runtime()?.block_on(async {
        let asker = Asker::new();
        let map = asker.map(&place).await?;
        let ost = one_ost(list, &map)?;
        let done = asker.change_target(&place, ost, change).await?;
        for name in asker.until_known(&done.map).await {
            eprintln!(
                "warning: {name} does not know of the change yet; it takes it in when it finds the MGS"
            );
        }
        Ok((done.map, ost))
    })
}
