//! `brindle why`: where the time of a job, a user or a file goes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use brindle_admin::limits::{Shares, Waited};
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_admin::status::Report;
use brindle_admin::top::{By, Look};
use brindle_admin::why::{Evidence, Subject, Waiting, WhyView, explain};
use brindle_client::control::{Answer, Request, WaitLine};
use brindle_host::mounts;
use brindle_types::{Code, Fault, Result};
use brindle_wire::map::Map;

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::control::{Control, ino, unexpected};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use brindle_host::users::{uid_of, user_name};

/// Seconds between the two looks, unless told otherwise.
const INTERVAL_DEFAULT_S: u64 = 2;
/// Most seconds between them.
const INTERVAL_MAX_S: u64 = 600;

/// Arguments of `brindle why`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle why 4711\n  brindle why ann\n  brindle why /mnt/b/results\n  brindle why 4711 --interval 30 -o json\n\n\
                  A word with a slash is a path. Another one is a job, where servers know one of this name, else a user. Servers are looked at \
                  twice; what they count in between is the evidence. Waits are those of the mounts on this host: run it where the job runs."
)]
pub struct Args {
    /// A job, a user or a path
    #[arg(value_name = "JOB|USER|PATH")]
    subject: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Seconds between the two looks
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL_DEFAULT_S, value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_S))]
    interval: u64,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let path = args.subject.contains('/').then(|| PathBuf::from(&args.subject));
    let place = match &path {
        Some(path) => one(&PlaceArgs { path: Some(path.clone()), ..PlaceArgs::default() })?,
        None => one(&args.place)?,
    };
    let layout = path.as_deref().map(osts_of).transpose()?;
    let (waits, silent) = waits(path.as_deref(), &place);
    let mut view = runtime()?.block_on(async {
        let servers = servers();
        let (map, _) = servers.map(&place).await?;
        let jobs = Look::take(&servers, &place, By::Jobs).await?;
        let subject = match (path, layout) {
            (Some(path), Some(osts)) => {
                Subject::File { path: path.display().to_string(), targets: names(&map, &osts) }
            }
            _ => named(&args.subject, &jobs)?,
        };
        looked(&servers, &place, &subject, jobs, args.interval, &waits).await
    })?;
    view.silent.extend(silent);
    if args.output.json() {
        print_json(&view)?;
    } else {
        println!("{}", page(&view));
    }
    Ok(Done::Ok)
}

/// The subject that a word without a slash means.
fn named(word: &str, jobs: &Look) -> Result<Subject> {
    if jobs.knows(word) {
        return Ok(Subject::Job(word.to_owned()));
    }
    let failed = |e: std::io::Error| {
        Fault::new(Code::BadArgument)
            .what("cannot look for the user")
            .subject(word.to_owned())
            .why(e.to_string())
    };
    let uid = match word.parse() {
        // The number of no user is that of a job which servers have forgotten.
        Ok(uid) => user_name(uid).map_err(failed)?.map(|_| uid),
        Err(_) => uid_of(word).map_err(failed)?,
    };
    // A word that is no user may be a job that servers have forgotten.
    Ok(uid.map_or_else(|| Subject::Job(word.to_owned()), Subject::User))
}

async fn looked(
    servers: &Servers,
    place: &FsLocation,
    subject: &Subject,
    jobs: Look,
    interval_s: u64,
    waits: &[Waiting],
) -> Result<WhyView> {
    let (by, earlier) = match subject {
        Subject::User(_) => (By::Users, Look::take(servers, place, By::Users).await?),
        _ => (By::Jobs, jobs),
    };
    let before = Shares::take(servers, place).await?;
    servers.seams().sleep_ms(interval_s * 1_000).await;
    let later = Look::take(servers, place, by).await?;
    let after = Shares::take(servers, place).await?;
    let held: Vec<(String, Waited)> = match subject {
        Subject::Job(job) => {
            after.since(&before, job).map(|(target, waited)| (target.to_owned(), waited)).collect()
        }
        Subject::User(_) | Subject::File { .. } => Vec::new(),
    };
    let report = Report::of(servers, place.clone()).await?;
    let state = |target: &brindle_admin::status::Target| {
        (report.map.fs.target(target.entry.id), target.state(&report.map).to_owned())
    };
    let states: BTreeMap<String, String> = report.targets.iter().map(state).collect();
    Ok(explain(subject, &Evidence { earlier: &earlier, later: &later, states: &states, waits, held: &held }))
}

/// Numbers of the OSTs that a file lies on; none for what has no data of its own.
fn osts_of(path: &Path) -> Result<Vec<u16>> {
    match Control::of(path)?.ask(&Request::Getstripe { ino: ino(path)?.0 })? {
        Answer::Stripe { layout, .. } => {
            Ok(layout.map_or_else(Vec::new, |layout| layout.stripes().map(|(_, ost)| ost).collect()))
        }
        other => Err(unexpected(&other)),
    }
}

/// Full names of the targets that a path needs: every MDT, and the OSTs of the file.
fn names(map: &Map, osts: &[u16]) -> BTreeSet<String> {
    let needed = |id: brindle_types::TargetId| match id.role {
        brindle_types::Role::Mdt => true,
        brindle_types::Role::Ost => osts.contains(&id.index),
        brindle_types::Role::Mgt => false,
    };
    let ids = map.targets.iter().map(|entry| entry.id).filter(|id| needed(*id));
    ids.map(|id| map.fs.target(id)).collect()
}

/// Waits of the mount of a path, or of all mounts of the file system on this host; and the mounts that do not tell.
fn waits(path: Option<&Path>, place: &FsLocation) -> (Vec<Waiting>, Vec<String>) {
    let mounts = match path {
        Some(path) => vec![path.to_owned()],
        None => mounts::all()
            .into_iter()
            .filter(|line| line.fs_type == mounts::FUSE_TYPE && place.is_mounted_from(&line.source))
            .map(|line| line.mount_point)
            .collect(),
    };
    let (mut waits, mut silent) = (Vec::new(), Vec::new());
    for mount in mounts {
        match waits_of(&mount) {
            Ok(found) => waits.extend(found),
            Err(fault) => silent.push(format!("the mount of {}: {}", mount.display(), fault.what)),
        }
    }
    (waits, silent)
}

fn waits_of(mount: &Path) -> Result<Vec<Waiting>> {
    let wait = |w: WaitLine| Waiting { what: w.what, target: w.target, seconds: w.ms as f64 / 1000.0 };
    match Control::of(mount)?.ask(&Request::Waits)? {
        Answer::Waits(lines) => Ok(lines.into_iter().map(wait).collect()),
        other => Err(unexpected(&other)),
    }
}

/// The view for people.
fn page(view: &WhyView) -> String {
    let subject = match (view.kind.as_str(), view.subject.parse()) {
        ("user", Ok(uid)) => user_name(uid).ok().flatten().unwrap_or_else(|| view.subject.clone()),
        _ => view.subject.clone(),
    };
    let mut lines = vec![format!("{} {subject} of {} over {:.1} s", view.kind, view.fs, view.seconds)];
    if view.findings.is_empty() {
        lines.push("nothing stands out".to_owned());
    }
    for (n, finding) in view.findings.iter().enumerate() {
        lines.push(format!("{}. {}", n + 1, finding.what));
        lines.push(format!("   evidence: {}", finding.evidence));
        lines.push(format!("   next:     {}", finding.next));
    }
    if !view.targets.is_empty() {
        let rows = view.targets.iter().map(|target| {
            let shares =
                target.operations.iter().map(|(name, share)| format!("{name} {:.0} %", 100.0 * share));
            vec![
                target.name.clone(),
                target.state.clone(),
                format!("{:.0}", target.operations_per_second),
                format!("{:.2}", target.ms_per_operation),
                format!("{:.2}", target.busy),
                format!("{:.2}", target.busy_others),
                target.busiest_other.clone().unwrap_or_else(|| "-".to_owned()),
                shares.collect::<Vec<_>>().join(", "),
            ]
        });
        let headings = ["TARGET", "STATE", "OPS/S", "MS/OP", "BUSY", "OTHERS", "MOST OF ALL", "TIME IN"];
        lines.push(String::new());
        lines.push(table(&headings, rows.collect()));
    }
    lines.extend(view.silent.iter().map(|silent| format!("did not tell: {silent}")));
    lines.join("\n")
}
