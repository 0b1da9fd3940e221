//! `brindle target drain` and `undrain`: an OST gets no new files, and what lies on it goes to the others, while programs use
//! the files.
//!
//! The MGS notes that it is drained; the MDT finds the files; each is moved piece by piece. An interruption leaves whole
//! files, and the same command goes on.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use brindle_client::control::ScanAsk;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Ino, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scan::{DEPTH_MAX, Term, Test, Wanted};
use brindle_wire::mgs::TargetChange;
use serde::Serialize;

use super::ask::Asker;
use super::place::{Place, PlaceArgs, Source, one};
use crate::completion::live;
use crate::control::Control;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};
use crate::pool::{OstList, indices};
use crate::stripe::migrate::{Plan, migrate_inode};

/// Times that all files are looked for; files that come in between were laid out before the MDT knew.
const ROUNDS_MAX: usize = 8;
/// Files that are listed before the first of them is moved.
const FILES_AT_ONCE: usize = 100_000;

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
    /// Whether no file is left on it.
    empty: bool,
}

/// Runs `brindle target drain`.
pub fn drain(args: &DrainArgs) -> Result<Done> {
    let (map, ost) = change(&args.ost, &args.mount, TargetChange::Drain)?;
    let target = map.fs.target(TargetId::ost(ost));
    let control = Control::of(&args.mount)?;
    let mount = control.mount();
    let source: Option<Source> = mount.source.parse().ok();
    if source.is_some_and(|source| !source.subdir.is_empty()) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot see all files of the file system at")
            .subject(args.mount.display().to_string())
            .why("only a directory of it is mounted there")
            .data(format!("{target} gets no new files; nothing was moved"))
            .next("mount all of it, and give that mount"));
    }
    let root = mount.mount_point.clone();
    let progress = !args.output.json() && std::io::stderr().is_terminal();
    let plan = Plan { policy: None, avoid: vec![ost], bandwidth_bytes: args.bandwidth, progress };
    let mut drained = Drained { target: target.clone(), ..Drained::default() };
    for _ in 0..ROUNDS_MAX {
        let files = files_on(&control, &root, ost)?;
        drained.empty = files.is_empty();
        drained.failed = 0;
        if drained.empty {
            break;
        }
        for (ino, path) in files {
            move_one(&control, ino, &path, &plan, &mut drained)?;
        }
        if drained.failed > 0 {
            break;
        }
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
    let Drained { target, files, copied_bytes, failed, empty } = drained;
    let moved = format!("{files} files moved, {}", format_bytes(*copied_bytes));
    match empty {
        true => format!(
            "{target} is empty, and gets no new files ({moved}); take it back with: brindle target undrain"
        ),
        false if *failed > 0 => {
            format!("{target}: {moved}; {failed} files could not be moved; the same command tries again")
        }
        false => format!("{target}: {moved}; there are still files on it: lfs find MOUNT -ost {ost}"),
    }
}

fn move_one(control: &Control, ino: Ino, path: &Path, plan: &Plan, drained: &mut Drained) -> Result<()> {
    match migrate_inode(control, ino, path, plan) {
        Ok(moved) => {
            drained.files += 1;
            drained.copied_bytes += moved.copied_bytes;
        }
        // Removed meanwhile.
        Err(fault) if fault.code == Code::NotFound => {}
        Err(fault) if fault.code == Code::OstFull => {
            let why = format!("{} of {} files are moved", format_bytes(drained.copied_bytes), drained.files);
            return Err(fault.why(why).next("make room, or add an OST: brindle target add; then go on"));
        }
        Err(fault) => {
            drained.failed += 1;
            crate::exit::warn(&fault.why(path.display().to_string()));
        }
    }
    Ok(())
}

/// Files with a stripe on the OST, some of them if there are many.
fn files_on(control: &Control, root: &Path, ost: u16) -> Result<Vec<(Ino, PathBuf)>> {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(root).map_err(|e| crate::control::path_fault("cannot look at", root, &e))?;
    let ask = ScanAsk {
        start: meta.ino(),
        start_name: Vec::new(),
        predicate: vec![Term::Test(Test::Ost(vec![ost]))],
        depth_min: 0,
        depth_max: DEPTH_MAX,
        wanted: Wanted::Attrs,
    };
    let mut files = Vec::new();
    let mut refused = 0;
    control.scan(ask, &mut |page| {
        refused += page.refused.len();
        for found in page.found {
            let Some(attr) = found.attr.filter(|_| files.len() < FILES_AT_ONCE) else { continue };
            let below = std::ffi::OsString::from_vec(found.path.into_bytes());
            files.push((attr.ino, root.join(below)));
        }
        Ok(())
    })?;
    if refused > 0 {
        return Err(Fault::new(Code::PermissionDenied)
            .what("cannot look into")
            .subject(format!("{refused} directories"))
            .why("files there may lie on the OST")
            .next("run it as root"));
    }
    // A file of several names is found by each.
    files.sort_by_key(|(ino, _)| *ino);
    files.dedup_by_key(|(ino, _)| *ino);
    Ok(files)
}

/// Changes the OST in the map, and waits until the MDTs know.
fn change(list: &OstList, mount: &Path, change: TargetChange) -> Result<(Map, u16)> {
    let place: Place = one(&PlaceArgs { path: Some(mount.to_owned()), mgs: Vec::new(), dir: None })?;
    runtime()?.block_on(async {
        let asker = Asker::new();
        let map = asker.map(&place).await?;
        let [ost] = indices(std::slice::from_ref(list), &map.fs)?[..] else {
            return Err(Fault::new(Code::BadArgument).why("one OST at a time"));
        };
        let done = asker.change_target(&place, ost, change).await?;
        for name in asker.until_known(&done.map).await {
            eprintln!(
                "warning: {name} does not know of the change yet; it takes it in when it finds the MGS"
            );
        }
        Ok((done.map, ost))
    })
}
