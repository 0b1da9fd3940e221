//! `brindle status`: the health of the file system, the problems and their remedies; then the tree of targets. In the
//! manner of `zpool status`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_admin::paths::text;
use brindle_admin::rails::RailView;

use brindle_admin::status::{Report, StatusView, Target, state};
use brindle_host::mounts;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Fid, Result};
use brindle_wire::map::Map;

use super::ask::servers;
use super::place::{PlaceArgs, resolve};
use super::{target_replica, target_scrub};
use crate::control::Control;
use crate::exit::Done;
use crate::format::runtime;
use crate::lfs::fid;
use crate::output::{Output, print_json, table};

/// Arguments of `brindle status`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples: brindle status; brindle status -x --exit-code; brindle status --dir /tmp/b -o json"
)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Show only what is not healthy
    #[arg(short = 'x', long)]
    problems: bool,
    /// Exit with 8 when something is not healthy
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let places = resolve(&args.place)?;
    let runtime = runtime()?;
    let mut reports = Vec::new();
    for place in places {
        let mut report = runtime.block_on(async { Report::of(&servers(), place).await })?;
        look_at_mounts(&mut report);
        reports.push(report);
    }
    let healthy = reports.iter().all(|r| r.problems().is_empty());
    let quiet = healthy && reports.iter().all(|r| r.warnings().is_empty());
    if args.output.json() {
        print_json(&StatusView { healthy, file_systems: reports.iter().map(Report::view).collect() })?;
    } else if args.problems && quiet {
        println!("all file systems are healthy");
    } else {
        let shown =
            reports.iter().filter(|r| !args.problems || !r.problems().is_empty() || !r.warnings().is_empty());
        let pages: Vec<String> = shown.map(page).collect();
        print!("{}", pages.join("\n"));
    }
    Ok(if healthy || !args.exit_code { Done::Ok } else { Done::Unhealthy })
}

/// Servers tell of a file by its FID in brackets: here, where it is mounted, its path stands beside that.
fn name_files(fault: &mut Fault, at: &Path) {
    for why in &mut fault.why {
        let fid = why.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let Some(Ok(fid)) = fid.map(|(fid, _)| format!("[{fid}]").parse::<Fid>()) else { continue };
        // Without a path, of a file that has been removed and of one outside of what is mounted, the FID alone must do.
        let path = Control::of(at).and_then(|control| fid::paths(&control, fid)).unwrap_or_default().pop();
        if let Some(path) = path {
            *why = why.replacen(&fid.to_string(), &format!("{} {fid}", text(&path)), 1).into();
        }
    }
}

/// Adds facts of this machine to the servers' report: whether its own mounts live, and the paths of files.
fn look_at_mounts(report: &mut Report) {
    let ours = mounts::ours().filter(|m| report.place.is_mounted_from(&m.source));
    let (dead, alive): (Vec<PathBuf>, Vec<PathBuf>) =
        ours.map(|m| m.mount_point).partition(|at| mounts::is_dead(at));
    report.here = dead.iter().map(|at| dead_mount(at)).collect();
    if let Some(at) = alive.first() {
        let told = report.targets.iter_mut().filter_map(|t| t.info.as_mut().ok());
        told.flat_map(|info| &mut info.problems).for_each(|fault| name_files(fault, at));
    }
}

/// A mount of the file system on this machine whose daemon has ended.
fn dead_mount(at: &Path) -> Fault {
    Fault::new(Code::MountFailed)
        .what("the daemon of the mount has ended:")
        .subject(at.display().to_string())
        .why("programs get \"Transport endpoint is not connected\" there")
        .data("the file system is not concerned: what was fsynced or closed some seconds before is safe")
        .next(format!("look at the end of its log, then: umount {0}; mount it again", at.display()))
}

/// A file system, for people.
fn page(report: &Report) -> String {
    let problems = report.problems();
    let map = &report.map;
    let mut page = format!("    fs: {}\n state: {}\n", map.fs, state(&problems));
    // Writing to a String cannot fail.
    let warnings = report.warnings();
    let told =
        problems.iter().map(|fault| ("status", fault)).chain(warnings.iter().map(|fault| ("warning", fault)));
    for (word, fault) in told {
        let _ = writeln!(page, "{word}: {} {}", fault.what, fault.subject);
        for why in &fault.why {
            let _ = writeln!(page, "   why: {why}");
        }
        if !fault.data.is_empty() {
            let _ = writeln!(page, "  data: {}", fault.data);
        }
        let next = if fault.next.is_empty() { fault.code.advice() } else { &fault.next };
        let _ = writeln!(page, "action: {next}");
        let _ = writeln!(page, "   see: brindle explain {}", fault.code);
    }
    let tree = table(&["TARGET", "STATE", "ADDRESS", "CLIENTS", "USED", "SIZE", "USE%"], rows(report));
    let _ = writeln!(page, "config:\n");
    for line in tree.lines() {
        let _ = writeln!(page, "  {line}");
    }
    let sets = target_replica::lines(&report.replica_sets());
    if !sets.is_empty() {
        let _ = writeln!(page);
    }
    for line in sets.lines() {
        let _ = writeln!(page, "  {line}");
    }
    page.push_str(&rail_lines(report));
    let _ = writeln!(page);
    for line in target_scrub::scan_lines(&report.map, &report.targets) {
        let _ = writeln!(page, "  scan: {line}");
    }
    let damage = report.damage();
    let damage = if damage.is_empty() { "no known data errors" } else { &damage };
    let _ = writeln!(page, "errors: {damage}");
    page.push_str(&notes(report));
    page
}

/// Notes for the administrator that are no problem.
fn notes(report: &Report) -> String {
    let mut page = String::new();
    let those = |which: fn(&Target) -> bool| -> Vec<&str> {
        let told = report.targets.iter().filter(|t| which(t));
        told.filter_map(|t| Some(t.info.as_ref().ok()?.name.as_str())).collect()
    };
    let sharing = those(Target::shares_its_disk);
    if !sharing.is_empty() {
        let _ = writeln!(
            page,
            " notes: on a file system with other things, which take their room: {} (docs/operations/osts.md)",
            sharing.join(", ")
        );
    }
    for (mode, taken) in [
        ("sync", "takes nothing that was answered"),
        ("scratch", "may take everything that was not written down by chance, fsync or not"),
    ] {
        let is_so = |target: &&Target| target.durability() == mode;
        let names: Vec<String> =
            report.targets.iter().filter(is_so).map(|t| report.map.fs.target(t.entry.id)).collect();
        if !names.is_empty() {
            let _ = writeln!(
                page,
                " notes: durability {mode}, a power cut of all copies {taken}: {}",
                names.join(", ")
            );
        }
    }
    let open = those(Target::accepts_anybody);
    if !open.is_empty() {
        let _ = writeln!(
            page,
            " notes: connections prove nothing (mode none), whoever reaches the port is believed: {} (docs/operations/security.md)",
            open.join(", ")
        );
    }
    let earlier = report.earlier_releases();
    if !earlier.is_empty() {
        let _ = writeln!(
            page,
            " notes: some hosts or mounts are of an earlier release, upgrade them before the next one: {} (docs/operations/upgrade.md)",
            earlier.join(", ")
        );
    }
    let settled = report.settled();
    if !settled.is_empty() {
        let _ = writeln!(page, " notes: writes that a crash cut short were settled: {settled}");
    }
    page
}

/// Rails, where hosts have several.
fn rail_lines(report: &Report) -> String {
    if report.rails.is_empty() {
        return String::new();
    }
    let cells = |rail: &RailView| {
        vec![rail.host.clone(), rail.rail.clone(), rail.address.clone(), rail.state.to_owned()]
    };
    let rails = table(&["HOST", "RAIL", "ADDRESS", "STATE"], report.rails.iter().map(cells).collect());
    let lines = rails.lines().map(|line| format!("  {line}\n"));
    std::iter::once("\n".to_owned()).chain(lines).collect()
}

/// The targets, below their hosts where there are several.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let map = &report.map;
    let mut hosts: BTreeMap<&str, Vec<&Target>> = BTreeMap::new();
    for target in &report.targets {
        hosts.entry(target.entry.host()).or_default().push(target);
    }
    if hosts.len() < 2 {
        return report.targets.iter().map(|target| row(map, target)).collect();
    }
    let mut rows = Vec::new();
    for (host, targets) in hosts {
        let answering = targets.iter().filter(|target| target.info.is_ok()).count();
        let state = match answering {
            0 => "silent",
            n if n < targets.len() => "partly",
            _ => "up",
        };
        rows.push(vec![host.to_owned(), state.to_owned()]);
        for target in targets {
            let mut row = row(map, target);
            row[0].insert_str(0, "  ");
            rows.push(row);
        }
    }
    rows
}

fn row(map: &Map, target: &Target) -> Vec<String> {
    let address = target.entry.nids.first().map(ToString::to_string).unwrap_or_default();
    let mut row = vec![map.fs.target(target.entry.id), target.state(map).to_owned(), address];
    match &target.info {
        Ok(info) => {
            let used = info.total_bytes.saturating_sub(info.available_bytes);
            let percent = (used * 100).checked_div(info.total_bytes).unwrap_or(0);
            row.extend([
                info.clients.to_string(),
                format_bytes(used),
                format_bytes(info.total_bytes),
                format!("{percent}%"),
            ]);
        }
        Err(_) => row.extend(["-".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()]),
    }
    row
}
