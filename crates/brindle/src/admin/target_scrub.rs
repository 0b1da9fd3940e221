//! `brindle target scrub`: OSTs and MDTs read everything that they have, verify it, and mend what is damaged from another copy.

use std::path::Path;

use brindle_admin::paths::text;
use brindle_admin::scrub::{self, PassView, PlaceView, Scan, ScrubView, ScrubsView, StoreDamageView};
use brindle_admin::status::Target;
use brindle_host::mounts;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::units::format_bytes;
use brindle_types::{Fid, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::oss::scrub::ScrubOrder;

use super::ask::{self, servers};
use super::target_assign::Named;
use crate::completion::live;
use crate::control::Control;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::lfs::fid;
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;

/// Targets that have a line of their own in `brindle status`; of the others the number is told.
const LINES_MAX: usize = 8;

/// The verbs of `brindle target scrub`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Begin to look at everything now, or go on after a stop
    Start(StartArgs),
    /// Pause; what was looked at so far is not looked at again by the next start
    Stop(Args),
    /// Show how far it is, when it was done last, and what was found
    Status(Args),
}

/// Targets that are meant.
#[derive(clap::Args)]
pub struct Args {
    /// The targets: OST0003, MDT0000, scratch-OST0003; without any, all of them
    #[arg(value_name = "TARGET", value_parser = parse::<Named>, add = live::targets())]
    targets: Vec<Named>,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle target scrub start`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target scrub start OST0003 --rate 200MiB --every 7\n\
                        Users come first: while they read or write, it goes at an eighth of the rate. Both options stay until they are given again.")]
pub struct StartArgs {
    #[command(flatten)]
    at: Args,
    /// Most bytes a second while nobody uses the target, such as 200MiB; 64MiB at first
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    rate: Option<u64>,
    /// Days between passes; 14 at first, 0: only when it is started by this command
    #[arg(long, value_name = "DAYS")]
    every: Option<u32>,
}

/// Runs a verb.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Start(args) => {
            let order = ScrubOrder::Start { rate_bytes: args.rate, every_days: args.every };
            ordered(&args.at, order)
        }
        Command::Stop(args) => ordered(args, ScrubOrder::Stop),
        Command::Status(args) => ordered(args, ScrubOrder::Show),
    }
}

fn ordered(args: &Args, order: ScrubOrder) -> Result<Done> {
    let place = args.fs.place()?;
    let mut shown = runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        args.targets.iter().try_for_each(|named| named.check_fs(&map.fs))?;
        let wanted: Vec<TargetId> = args.targets.iter().map(|named| named.target).collect();
        let ids = scrub::targets(&map, &wanted)?;
        scrub::order(&servers, &map, &ids, order).await
    })?;
    let mount = mounts::ours().find(|m| place.is_mounted_from(&m.source)).map(|m| m.mount_point);
    if let Some(mount) = mount.filter(|at| !mounts::is_dead(at)) {
        name_files(&mut shown, &mount);
    }
    if args.output.json() {
        print_json(&shown)?;
    } else {
        print!("{}", page(&shown));
    }
    let all_answer = shown.targets.iter().all(|view| view.state != "unreachable");
    Ok(if all_answer { Done::Ok } else { Done::Partly })
}

/// Adds the paths of files, where the file system is mounted.
fn name_files(shown: &mut ScrubsView, mount: &Path) {
    for place in shown.targets.iter_mut().flat_map(|view| &mut view.unmended) {
        let Ok(fid) = place.fid.parse::<Fid>() else { continue };
        let found = Control::of(mount).and_then(|control| fid::paths(&control, fid)).unwrap_or_default();
        place.path = found.last().map(|path| text(path).to_string());
    }
}

fn time(secs: i64) -> String {
    rfc3339(Timestamp { secs, nanos: 0 }).split('.').next().unwrap_or_default().replace('T', " ")
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn percent(done: u64, total: u64) -> u64 {
    (done.saturating_mul(100)).checked_div(total).unwrap_or(0).min(100)
}

fn damage(found: u64, mended: u64, unmended: u64) -> String {
    match (found, unmended) {
        (0, 0) => "no damage".to_owned(),
        (_, 0) => format!("{found} damaged, all mended"),
        _ => format!("{found} damaged, {mended} mended, {unmended} not"),
    }
}

fn under_way(done: u64, total: u64, rate: u64, remaining_s: Option<u64>) -> String {
    let left = remaining_s.map(|s| format!(", {} to go", duration(s))).unwrap_or_default();
    format!("{}% of {}, {}/s{left}", percent(done, total), format_bytes(total), format_bytes(rate))
}

fn last(pass: &PassView) -> String {
    let ended = pass.ended_at.map(time).unwrap_or_default();
    format!("{ended}, {}, {}", format_bytes(pass.bytes), damage(pass.found, pass.mended, pass.unmended))
}

fn row(view: &ScrubView) -> Vec<String> {
    let now = match &view.pass {
        Some(pass) => format!(
            "{}; {}",
            under_way(pass.bytes, view.total_bytes, view.rate_bytes, view.remaining_s),
            damage(pass.found, pass.mended, pass.unmended)
        ),
        None => view.next_at.map_or_else(String::new, |at| format!("next {}", time(at))),
    };
    let last = view.last.as_ref().map_or_else(|| "never".to_owned(), last);
    let last = if view.state == "unreachable" { String::new() } else { last };
    vec![view.name.clone(), view.state.to_owned(), now, last]
}

fn page(shown: &ScrubsView) -> String {
    let rows = shown.targets.iter().map(row).collect();
    let mut page = table(&["TARGET", "SCRUB", "NOW", "LAST"], rows) + "\n";
    for view in &shown.targets {
        if !view.why.is_empty() {
            page.push_str(&format!("{}: {}\n", view.name, view.why));
        }
        for place in &view.unmended {
            page.push_str(&format!("{}: cannot be mended: {}\n", view.name, place_text(place)));
        }
        for damage in &view.store_damage {
            page.push_str(&format!("{}: {}\n", view.name, store_text(damage)));
        }
    }
    page
}

fn place_text(place: &PlaceView) -> String {
    let PlaceView { object, fid, path, offset } = place;
    let file = path.as_ref().map_or_else(|| format!("the file {fid}"), |path| format!("{path} {fid}"));
    match offset {
        Some(offset) => format!("{file}, object {object} at offset {offset} (4096 bytes)"),
        None => format!("{file}, object {object} as a whole"),
    }
}

fn store_text(damage: &StoreDamageView) -> String {
    let what = if damage.differs { "copies differ" } else { "cannot be mended" };
    let on = damage.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    let place = match (&damage.file, damage.offset) {
        (Some(file), Some(offset)) => format!(" {file} at offset {offset}:"),
        _ => String::new(),
    };
    format!("{what}{on}:{place} {}", damage.why)
}

/// Lines of `brindle status`: the targets that are looked at now or have damage, and how many were looked at before.
pub fn scan_lines(map: &Map, targets: &[Target]) -> Vec<String> {
    let scans: Vec<(String, Scan)> = targets
        .iter()
        .filter_map(|target| Some((map.fs.target(target.entry.id), Scan::of(target.info.as_ref().ok()?)?)))
        .collect();
    let is_told = |scan: &Scan| scan.is_under_way || scan.found > 0;
    let mut lines: Vec<String> = scans
        .iter()
        .filter(|(_, scan)| is_told(scan))
        .take(LINES_MAX)
        .map(|(name, scan)| format!("{name}: {}", scan_text(scan)))
        .collect();
    let told = scans.iter().filter(|(_, scan)| is_told(scan)).count();
    if told > LINES_MAX {
        lines.push(format!("{} more: brindle target scrub status", told - LINES_MAX));
    }
    let quiet: Vec<&Scan> = scans.iter().map(|(_, scan)| scan).filter(|scan| !is_told(scan)).collect();
    let ends: Vec<u64> = quiet.iter().map(|scan| scan.last_end_s).filter(|end| *end > 0).collect();
    if let (Some(first), Some(newest)) = (ends.iter().min(), ends.iter().max()) {
        let at = |end: &u64| time(i64::try_from(*end).unwrap_or(i64::MAX));
        let when = if first == newest { at(first) } else { format!("{} to {}", at(first), at(newest)) };
        lines.push(format!("{} scrubbed {when}, no damage", targets_text(ends.len())));
    }
    let never = quiet.len() - ends.len();
    if never > 0 {
        lines.push(format!("{} not scrubbed yet", targets_text(never)));
    }
    lines
}

fn targets_text(n: usize) -> String {
    if n == 1 { "1 target".to_owned() } else { format!("{n} targets") }
}

fn scan_text(scan: &Scan) -> String {
    let found = damage(scan.found, scan.mended, scan.unmended);
    if scan.is_under_way {
        let now = under_way(scan.done_bytes, scan.total_bytes, scan.rate_bytes, scan.remaining_s());
        let word = if scan.is_running { "scrub" } else { "scrub stopped at" };
        return format!("{word} {now}; {found}");
    }
    let ended = time(i64::try_from(scan.last_end_s).unwrap_or(i64::MAX));
    format!("scrubbed {ended}, {}; {found}", format_bytes(scan.last_bytes))
}
