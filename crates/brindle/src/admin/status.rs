//! `brindle status`: is everything well, what is not, what to do; then the tree of targets. In the manner of
//! `zpool status`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Fid, Result, Role};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::session::TargetInfoResp;
use serde::Serialize;

use super::ask::Asker;
use super::fullness::{self, Fullness};
use super::place::{Place, PlaceArgs, resolve};
use super::target_list::is_draining;
use crate::control::Control;
use crate::exit::Done;
use crate::format::runtime;
use crate::lfs::fid;
use crate::mounts;
use crate::output::{FaultView, Output, print_json, table};
use crate::paths::text;

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

/// A target and what it, or its silence, says.
struct Target {
    entry: TargetEntry,
    info: Result<TargetInfoResp>,
}

/// A file system.
struct Report {
    place: Place,
    map: Map,
    targets: Vec<Target>,
    dead_mounts: Vec<PathBuf>,
}

#[derive(Serialize)]
struct View<'a> {
    healthy: bool,
    file_systems: Vec<FsView<'a>>,
}

#[derive(Serialize)]
struct FsView<'a> {
    fs: &'a str,
    fs_id: String,
    state: &'static str,
    map_version: u64,
    targets: Vec<TargetView<'a>>,
    problems: Vec<FaultView>,
    /// Nothing is wrong yet; something will be if nobody looks.
    warnings: Vec<FaultView>,
}

#[derive(Serialize)]
struct TargetView<'a> {
    name: String,
    state: &'a str,
    addresses: Vec<String>,
    host: &'a str,
    epoch: u32,
    term: u32,
    clients: u32,
    total_bytes: u64,
    available_bytes: u64,
    version: &'a str,
    counters: std::collections::BTreeMap<&'a str, u64>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let places = resolve(&args.place)?;
    let runtime = runtime()?;
    let mut reports = Vec::new();
    for place in places {
        let mut asked = runtime.block_on(report(place))?;
        asked.look_at_mounts();
        reports.push(asked);
    }
    let healthy = reports.iter().all(|r| r.problems().is_empty());
    let quiet = healthy && reports.iter().all(|r| r.warnings().is_empty());
    if args.output.json() {
        let file_systems = reports.iter().map(FsView::from).collect();
        print_json("brindle.status", 1, &View { healthy, file_systems })?;
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

/// Asks every target at once.
async fn report(place: Place) -> Result<Report> {
    let asker = Asker::new();
    // An MGS that does not answer is one of the targets that are asked.
    let (map, _) = asker.map_or_why(&place).await?;
    let mut asking = Vec::new();
    for entry in map.targets.clone() {
        let (asker, map) = (asker.clone(), map.clone());
        asking.push(tokio::spawn(async move {
            let info = asker.info(&map, &entry).await;
            Target { entry, info }
        }));
    }
    let mut targets = Vec::new();
    for task in asking {
        targets.push(task.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?);
    }
    Ok(Report { place, map, targets, dead_mounts: Vec::new() })
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

impl Target {
    fn state(&self, map: &Map) -> &str {
        match &self.info {
            Ok(info) if info.state == "active" && is_draining(map, &self.entry) => "draining",
            Ok(info) => &info.state,
            Err(_) => "unreachable",
        }
    }

    /// Whether an OST has its file system not to itself.
    fn shares_its_disk(&self) -> bool {
        self.info
            .as_ref()
            .is_ok_and(|info| info.counters.iter().any(|(name, n)| name == "shares_its_disk" && *n > 0))
    }
}

impl Report {
    /// What this machine knows beside the servers: whether its own mounts live, and the paths of files.
    fn look_at_mounts(&mut self) {
        let all = mounts::all();
        let ours = all.iter().filter(|m| m.fs_type == mounts::FUSE_TYPE && self.place.is_mounted_by(m));
        let (dead, alive): (Vec<PathBuf>, Vec<PathBuf>) =
            ours.map(|m| m.mount_point.clone()).partition(|at| mounts::is_dead(at));
        self.dead_mounts = dead;
        if let Some(at) = alive.first() {
            let told = self.targets.iter_mut().filter_map(|t| t.info.as_mut().ok());
            told.flat_map(|info| &mut info.problems).for_each(|fault| name_files(fault, at));
        }
    }

    /// How full a target is that answers and is not full to the brim, which is a problem of its own.
    fn fullness(&self, target: &Target) -> Fullness {
        let mdt = self.targets.iter().find(|t| t.entry.id.role == Role::Mdt);
        let mark = fullness::mark(mdt.and_then(|t| t.info.as_ref().ok()));
        match &target.info {
            Ok(info) if info.state != "full" => {
                fullness::of(target.entry.id.role, &self.map.fs.target(target.entry.id), info, mark)
            }
            _ => Fullness::Fine,
        }
    }

    /// Mounts of the file system on this machine whose daemons have ended.
    fn dead_mounts(&self) -> impl Iterator<Item = Fault> {
        self.dead_mounts.iter().map(|at| {
            Fault::new(Code::MountFailed)
                .what("the daemon of the mount has ended:")
                .subject(at.display().to_string())
                .why("programs get \"Transport endpoint is not connected\" there")
                .data("the file system is not concerned: what was fsynced or closed some seconds before is safe")
                .next(format!("look at the end of its log, then: umount {0}; mount it again", at.display()))
        })
    }

    /// Warnings: these become faults if nobody looks.
    fn warnings(&self) -> Vec<Fault> {
        let told = self.targets.iter().map(|target| self.fullness(target));
        told.filter_map(|f| if let Fullness::FillsUp(fault) = f { Some(fault) } else { None }).collect()
    }

    /// Everything that is wrong, named.
    fn problems(&self) -> Vec<Fault> {
        let mut problems: Vec<Fault> = self.dead_mounts().collect();
        for target in &self.targets {
            let name = self.map.fs.target(target.entry.id);
            match &target.info {
                Ok(info) if info.state == "full" && info.problems.is_empty() => {
                    problems.push(full(target.entry.id.role, &name, info));
                }
                Ok(info) => problems.extend(info.problems.iter().cloned()),
                Err(fault) => problems.push(self.unreachable(target, &name, fault)),
            }
            if let Fullness::AboveMark(fault) = self.fullness(target) {
                problems.push(fault);
            }
        }
        for role in [Role::Mdt, Role::Ost] {
            if !self.targets.iter().any(|t| t.entry.id.role == role) {
                problems.push(
                    Fault::new(Code::UnknownTarget)
                        .what("there is no")
                        .subject(format!("{} of {}", role.name(), self.map.fs))
                        .next(format!(
                            "format and serve one: brindle format --{}",
                            role.name().to_lowercase()
                        )),
                );
            }
        }
        problems
    }

    fn unreachable(&self, target: &Target, name: &str, fault: &Fault) -> Fault {
        let place = format!("{name} on {}", target.entry.host());
        let named = Fault::new(Code::TargetDown).what("does not answer:").subject(place);
        let named = fault.why.iter().cloned().fold(named, Fault::why);
        let data = match target.entry.id.role {
            Role::Mgt => "files are not concerned; new mounts and restarted servers wait for it",
            Role::Mdt => {
                "operations on names wait until it is back; open files with their data on OSTs go on"
            }
            Role::Ost => "files on it wait until it is back; others go on",
        };
        let next = match &self.place.dev_dir {
            Some(dir) => format!("start it: brindle dev start --dir {} {}", dir.display(), dev_name(target)),
            None => format!("on {}: systemctl status brindle-serve", target.entry.host()),
        };
        named.data(data).next(next)
    }
}

fn full(role: Role, name: &str, info: &TargetInfoResp) -> Fault {
    let code = if role == Role::Mdt { Code::MdtFull } else { Code::OstFull };
    let left = format!("{} of {} left", format_bytes(info.available_bytes), format_bytes(info.total_bytes));
    Fault::new(code).subject(name.to_owned()).why(left).data("what was acknowledged is safe; removing works")
}

fn dev_name(target: &Target) -> String {
    match target.entry.id.role {
        Role::Mgt => "mgs".to_owned(),
        Role::Mdt => format!("mdt{}", target.entry.id.index),
        Role::Ost => format!("ost{}", target.entry.id.index),
    }
}

fn state(problems: &[Fault]) -> &'static str {
    if problems.is_empty() { "HEALTHY" } else { "DEGRADED" }
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
    let rows = report.targets.iter().map(|t| row(map, t)).collect();
    let tree = table(&["TARGET", "STATE", "ADDRESS", "CLIENTS", "USED", "SIZE", "USE%"], rows);
    let _ = writeln!(page, "config:\n");
    for line in tree.lines() {
        let _ = writeln!(page, "  {line}");
    }
    let damage = counted(report, &DAMAGE);
    let damage = if damage.is_empty() { "no known data errors" } else { &damage };
    let _ = writeln!(page, "\nerrors: {damage}");
    let sharing: Vec<&str> = report
        .targets
        .iter()
        .filter(|t| t.shares_its_disk())
        .filter_map(|t| Some(t.info.as_ref().ok()?.name.as_str()))
        .collect();
    if !sharing.is_empty() {
        let _ = writeln!(
            page,
            " notes: on a file system with other things, which take their room: {} (docs/operations/osts.md)",
            sharing.join(", ")
        );
    }
    let settled = counted(report, &[SETTLED]);
    if !settled.is_empty() {
        let _ = writeln!(page, " notes: writes that a crash cut short were settled: {settled}");
    }
    page
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

/// Words in the names of counters that count damage.
const DAMAGE: [&str; 3] = ["known_damaged", "known_missing", "quarantined"];
/// The same of those that count what every crash may leave: blocks between the data of a write and its checksum.
const SETTLED: &str = "resummed";

/// What the targets have counted under names with one of these words.
fn counted(report: &Report, words: &[&str]) -> String {
    let mut lines = Vec::new();
    for target in &report.targets {
        let Ok(info) = &target.info else { continue };
        for (name, count) in &info.counters {
            if *count > 0 && words.iter().any(|word| name.contains(word)) {
                lines.push(format!("{} {} {count}", info.name, name.trim_start_matches("known_")));
            }
        }
    }
    lines.join("; ")
}

impl<'a> From<&'a Report> for FsView<'a> {
    fn from(report: &'a Report) -> FsView<'a> {
        let targets = report.targets.iter().map(|t| target_view(&report.map, t)).collect();
        let problems: Vec<Fault> = report.problems();
        FsView {
            fs: report.map.fs.as_str(),
            fs_id: format!("{:016x}", report.map.fs_id),
            state: state(&problems),
            map_version: report.map.version,
            targets,
            problems: problems.iter().map(FaultView::from).collect(),
            warnings: report.warnings().iter().map(FaultView::from).collect(),
        }
    }
}

fn target_view<'a>(map: &Map, target: &'a Target) -> TargetView<'a> {
    let info = target.info.as_ref().ok();
    TargetView {
        name: map.fs.target(target.entry.id),
        state: target.state(map),
        addresses: target.entry.nids.iter().map(ToString::to_string).collect(),
        host: target.entry.host(),
        epoch: target.entry.epoch,
        term: info.map_or(0, |i| i.term),
        clients: info.map_or(0, |i| i.clients),
        total_bytes: info.map_or(0, |i| i.total_bytes),
        available_bytes: info.map_or(0, |i| i.available_bytes),
        version: info.map_or("", |i| &i.version),
        counters: info
            .map(|i| i.counters.iter().map(|(n, c)| (n.as_str(), *c)).collect())
            .unwrap_or_default(),
    }
}
