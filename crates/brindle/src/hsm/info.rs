//! `brindle hsm status` and `list`: what the MDTs say of tiering.

use std::collections::{BTreeMap, BTreeSet};

use brindle_admin::servers::Servers;
use brindle_admin::space::Spaces;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Ino, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::hsm::{HsmAction, HsmInfoReq, HsmInfoResp, HsmStatus};
use brindle_wire::mds::policy::{HsmBacklog, HsmBacklogReq};
use schemars::JsonSchema;
use serde::Serialize;

use super::params::{archives_text, uuid_text};
use crate::admin::ask::{map, servers};
use crate::admin::place::{PlaceArgs, one};
use crate::changelog::own_cred;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// Arguments of `brindle hsm status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle hsm list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Tiering of a file system.
#[derive(Serialize, JsonSchema)]
pub struct HsmStatusView {
    /// The fast tier.
    tier: TierLine,
    /// The MDTs.
    mdts: Vec<MdtLine>,
}
brindle_admin::document!(HsmStatusView, "brindle.hsm.status", 1);

/// Tiering at an MDT.
#[derive(Serialize, JsonSchema)]
struct MdtLine {
    /// Its name.
    mdt: String,
    /// enabled, disabled or stopped.
    control: String,
    /// Actions that wait or are under way.
    queued: u64,
    /// The agents.
    agents: Vec<AgentLine>,
    /// Actions that have failed a moment ago.
    failed: Vec<ActionLine>,
    /// What waits and is under way, by archive and action.
    backlog: Vec<BacklogLine>,
}

/// Actions of one kind for one archive.
#[derive(Serialize, JsonSchema)]
struct BacklogLine {
    /// The archive.
    archive: u32,
    /// RESTORE, REMOVE or ARCHIVE.
    action: String,
    /// Actions that wait for an agent.
    waiting: u64,
    /// Actions that agents have.
    running: u64,
    /// How long the oldest of those that wait has waited, in seconds.
    oldest_waits_secs: u64,
    /// The file of that one.
    oldest: Option<String>,
    /// Whether an agent serves this archive.
    is_served: bool,
}

/// The tier: the OSTs.
#[derive(Serialize, JsonSchema)]
struct TierLine {
    /// Bytes of the OSTs, each device once.
    total_bytes: u64,
    /// Of those, bytes that are used.
    used_bytes: u64,
}

/// An agent.
#[derive(Serialize, JsonSchema)]
struct AgentLine {
    /// Its number.
    uuid: String,
    /// Its host.
    host: String,
    /// Archives that it serves; none for any.
    archives: Vec<u32>,
    /// Actions that it has now.
    current: u32,
    /// Actions that went well since the MDT started.
    ok: u64,
    /// Actions that failed.
    errors: u64,
}

/// Actions of a file system.
#[derive(Serialize, JsonSchema)]
pub struct HsmListView {
    /// Those that wait or are under way, in order of FID; then those that have ended a moment ago.
    actions: Vec<ActionLine>,
}
brindle_admin::document!(HsmListView, "brindle.hsm.list", 1);

/// An action.
#[derive(Serialize, JsonSchema)]
struct ActionLine {
    /// The file.
    fid: String,
    /// RESTORE, REMOVE or ARCHIVE.
    action: String,
    /// The archive.
    archive: u32,
    /// waiting, running, succeeded, failed or cancelled.
    status: &'static str,
    /// Bytes that were copied.
    moved_bytes: u64,
    /// Who asked.
    uid: u32,
    /// When, in seconds since 1970.
    asked_secs: i64,
    /// Why it has failed.
    error: Option<String>,
}

impl ActionLine {
    fn new(action: &HsmAction) -> ActionLine {
        let (status, error) = match &action.status {
            HsmStatus::Waiting => ("waiting", None),
            HsmStatus::Started => ("running", None),
            HsmStatus::Succeeded => ("succeeded", None),
            HsmStatus::Failed(fault) => ("failed", Some(fault.to_string())),
            HsmStatus::Cancelled => ("cancelled", None),
        };
        ActionLine {
            fid: action.ino.fid().to_string(),
            action: action.kind.to_string(),
            archive: action.archive,
            status,
            moved_bytes: action.moved_bytes,
            uid: action.uid,
            asked_secs: action.asked_secs,
            error,
        }
    }
}

/// What each MDT says; with `pages` of its actions all of them, else the first page.
fn infos(place: &PlaceArgs, pages: bool) -> Result<Vec<(String, HsmInfoResp)>> {
    let place = one(place)?;
    runtime()?.block_on(async {
        let servers = servers();
        let map = map(&servers, &place).await?;
        let mut all = Vec::new();
        for target in map.targets.iter().filter(|target| target.id.role == Role::Mdt) {
            let ask = async |behind: Option<Ino>| {
                servers.ask(&map, target.id, &HsmInfoReq { behind, cred: own_cred() }).await
            };
            let mut info = ask(None).await?;
            while let Some(behind) = info.next.filter(|_| pages) {
                let page = ask(Some(behind)).await?;
                info.actions.extend(page.actions);
                info.next = page.next;
            }
            all.push((map.fs.target(target.id), info));
        }
        Ok(all)
    })
}

/// What waits at an MDT; nothing where its server is of a release that cannot tell.
async fn backlog(servers: &Servers, map: &Map, mdt: TargetId) -> Result<Vec<BacklogLine>> {
    let told = match servers.ask(map, mdt, &HsmBacklogReq { cred: own_cred() }).await {
        Err(fault) if fault.code == Code::UnknownOp => return Ok(Vec::new()),
        told => told?,
    };
    let line = |line: &HsmBacklog| BacklogLine {
        archive: line.archive,
        action: line.kind.to_string(),
        waiting: line.waiting,
        running: line.running,
        oldest_waits_secs: line.oldest_waits_secs,
        oldest: line.oldest.map(|ino| ino.fid().to_string()),
        is_served: line.is_served,
    };
    Ok(told.lines.iter().map(line).collect())
}

/// How full the OSTs are, and what waits at each MDT, by its name.
fn tier_and_backlogs(place: &PlaceArgs) -> Result<(TierLine, BTreeMap<String, Vec<BacklogLine>>)> {
    let place = one(place)?;
    runtime()?.block_on(async {
        let servers = servers();
        let spaces = Spaces::of(&servers, &place).await?;
        let sum = spaces.sum();
        let used_bytes = sum.total_bytes.saturating_sub(sum.available_bytes);
        let mut backlogs = BTreeMap::new();
        for target in spaces.map.targets.iter().filter(|target| target.id.role == Role::Mdt) {
            let lines = backlog(&servers, &spaces.map, target.id).await?;
            backlogs.insert(spaces.map.fs.target(target.id), lines);
        }
        Ok((TierLine { total_bytes: sum.total_bytes, used_bytes }, backlogs))
    })
}

fn show_backlog(lines: &[BacklogLine]) {
    if !lines.is_empty() {
        let row = |line: &BacklogLine| {
            let oldest = line
                .oldest
                .as_ref()
                .map_or("-".to_owned(), |fid| format!("{} s {fid}", line.oldest_waits_secs));
            vec![
                line.archive.to_string(),
                line.action.clone(),
                line.waiting.to_string(),
                line.running.to_string(),
                oldest,
            ]
        };
        println!(
            "{}",
            table(&["ARCHIVE", "ACTION", "WAITING", "RUNNING", "OLDEST"], lines.iter().map(row).collect())
        );
    }
    let unserved = lines.iter().filter(|line| line.waiting > 0 && !line.is_served);
    let archives: BTreeSet<u32> = unserved.map(|line| line.archive).collect();
    for archive in archives {
        println!(
            "nobody serves archive {archive}; start an agent: brindle agent --archive {archive} --backend posix:DIR MNT"
        );
    }
}

/// Runs `brindle hsm status`.
pub fn status(args: &StatusArgs) -> Result<Done> {
    let infos = infos(&args.place, false)?;
    let mut mdts: Vec<MdtLine> = infos.into_iter().map(mdt_line).collect();
    let (tier, mut backlogs) = tier_and_backlogs(&args.place)?;
    for mdt in &mut mdts {
        mdt.backlog = backlogs.remove(&mdt.mdt).unwrap_or_default();
    }
    if args.output.json() {
        print_json(&HsmStatusView { tier, mdts })?;
        return Ok(Done::Ok);
    }
    let percent = (tier.used_bytes * 100).checked_div(tier.total_bytes).unwrap_or(0);
    println!(
        "OSTs: {} of {} used ({percent}%)",
        format_bytes(tier.used_bytes),
        format_bytes(tier.total_bytes)
    );
    for mdt in &mdts {
        println!("{}: {}, {} actions wait or are under way", mdt.mdt, mdt.control, mdt.queued);
        show_backlog(&mdt.backlog);
        if mdt.agents.is_empty() {
            println!(
                "no agent serves an archive; start one: brindle agent --archive 1 --backend posix:DIR MNT"
            );
        } else {
            let row = |a: &AgentLine| {
                let archives = archives_text(&a.archives);
                vec![a.host.clone(), archives, a.current.to_string(), a.ok.to_string(), a.errors.to_string()]
            };
            let rows = mdt.agents.iter().map(row).collect();
            println!("{}", table(&["AGENT", "ARCHIVE", "CURRENT", "OK", "ERRORS"], rows));
        }
        for failed in &mdt.failed {
            let why = failed.error.as_deref().unwrap_or_default();
            println!("failed: {} {}: {why}", failed.action, failed.fid);
        }
    }
    Ok(Done::Ok)
}

fn mdt_line((mdt, info): (String, HsmInfoResp)) -> MdtLine {
    let agents = info.agents.iter().map(|agent| AgentLine {
        uuid: uuid_text(&agent.agent),
        host: agent.host.clone(),
        archives: agent.archives.clone(),
        current: agent.current,
        ok: agent.ok,
        errors: agent.errors,
    });
    let failed = info.finished.iter().filter(|action| matches!(action.status, HsmStatus::Failed(_)));
    MdtLine {
        mdt,
        control: info.control.to_string(),
        queued: info.queued,
        agents: agents.collect(),
        failed: failed.map(ActionLine::new).collect(),
        backlog: Vec::new(),
    }
}

/// Runs `brindle hsm list`.
pub fn list(args: &ListArgs) -> Result<Done> {
    let infos = infos(&args.place, true)?;
    let of = |info: &HsmInfoResp| -> Vec<ActionLine> {
        info.actions.iter().chain(&info.finished).map(ActionLine::new).collect()
    };
    let actions: Vec<ActionLine> = infos.iter().flat_map(|(_, info)| of(info)).collect();
    if args.output.json() {
        print_json(&HsmListView { actions })?;
        return Ok(Done::Ok);
    }
    let row = |a: &ActionLine| {
        vec![
            a.fid.clone(),
            a.action.clone(),
            a.archive.to_string(),
            a.status.to_owned(),
            a.moved_bytes.to_string(),
            a.uid.to_string(),
        ]
    };
    let rows = actions.iter().map(row).collect();
    println!("{}", table(&["FILE", "ACTION", "ARCHIVE", "STATUS", "BYTES", "USER"], rows));
    Ok(Done::Ok)
}
