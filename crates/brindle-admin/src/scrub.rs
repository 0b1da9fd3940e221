//! Scrub of OSTs and MDTs: orders, how far it is, what it has found (design notes 047 and 057).

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scrub::{MdtDamage, MdtScrubReq};
use brindle_wire::mds::session::TargetInfoResp;
use brindle_wire::oss::scrub::{ScrubOrder, ScrubPass, ScrubReq, ScrubResp};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use crate::servers::Servers;
use crate::status::Target;

/// Scrubs of the targets that were asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScrubsView {
    /// One for each OST and MDT.
    pub targets: Vec<ScrubView>,
}
document!(ScrubsView, "brindle.target.scrub", 1);

/// The scrub of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScrubView {
    /// Full name of the target.
    pub name: String,
    /// `running`, `paused` (a pass is under way and does not go on now), `stopping` (by an administrator; its last piece is being read),
    /// `stopped`, `waiting` (for its next pass), or `unreachable`.
    pub state: &'static str,
    /// Reason why the target does not answer, or why the pass does not go on or compares not all members; empty if neither is so.
    pub why: String,
    /// Pass under way.
    pub pass: Option<PassView>,
    /// Bytes of all objects when it began.
    pub total_bytes: u64,
    /// Bytes a second that it goes at.
    pub rate_bytes: u64,
    /// Seconds that it takes from now on, about; nothing if that cannot be told.
    pub remaining_s: Option<u64>,
    /// Last pass that was completed.
    pub last: Option<PassView>,
    /// Most bytes a second while nobody else uses the target.
    pub rate_limit_bytes: u64,
    /// Days between passes; 0: passes are begun by order only.
    pub every_days: u32,
    /// Begin of the next pass, seconds since 1970; nothing if none will begin by itself, or one is under way.
    pub next_at: Option<i64>,
    /// Damaged places of an OST that no copy has whole; the first of them.
    pub unmended: Vec<PlaceView>,
    /// Damaged places of an MDT that were not mended; the first of them.
    pub store_damage: Vec<StoreDamageView>,
}

/// A pass over everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PassView {
    /// Begin, seconds since 1970.
    pub began_at: i64,
    /// End, seconds since 1970; nothing while it is under way.
    pub ended_at: Option<i64>,
    /// Objects that were looked at; of an MDT, rows.
    pub objects: u64,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Damaged places found: blocks of 4 KiB, or objects as a whole; of an MDT, places in the files of its store.
    pub found: u64,
    /// Damaged places that were mended from another copy.
    pub mended: u64,
    /// Damaged places that no copy has whole.
    pub unmended: u64,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlaceView {
    /// The object.
    pub object: String,
    /// FID of its file.
    pub fid: String,
    /// Path of its file; nothing if it cannot be known here.
    pub path: Option<String>,
    /// First byte of the damaged block in the object; nothing if the object as a whole cannot be read.
    pub offset: Option<u64>,
}

/// A damaged place of an MDT's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreDamageView {
    /// Host of the copy; nothing where there is one copy.
    pub host: Option<String>,
    /// File in the directory of the store; nothing for rows.
    pub file: Option<String>,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Reason.
    pub why: String,
    /// Whether no checksum is wrong, and the rows of two copies differ.
    pub differs: bool,
}

impl From<MdtDamage> for StoreDamageView {
    fn from(damage: MdtDamage) -> StoreDamageView {
        let MdtDamage { host, file, offset, why, differs } = damage;
        let is_file = !file.is_empty();
        StoreDamageView {
            host: Some(host).filter(|host| !host.is_empty()),
            file: Some(file).filter(|_| is_file),
            offset: Some(offset).filter(|_| is_file),
            why,
            differs,
        }
    }
}

impl From<&ScrubPass> for PassView {
    fn from(pass: &ScrubPass) -> PassView {
        PassView {
            began_at: pass.began_s,
            ended_at: Some(pass.ended_s).filter(|at| *at != 0),
            objects: pass.objects,
            bytes: pass.bytes,
            found: pass.found,
            mended: pass.mended,
            unmended: pass.unmended,
        }
    }
}

fn remaining_s(done_bytes: u64, total_bytes: u64, rate_bytes: u64) -> Option<u64> {
    total_bytes.saturating_sub(done_bytes).checked_div(rate_bytes)
}

fn view(name: String, answer: &ScrubResp) -> ScrubView {
    let ScrubResp { record, is_running, rate_now_bytes, rate_limit_bytes, trouble } = answer;
    let state = match (record.is_stopped, is_running, &record.pass) {
        (true, true, _) => "stopping",
        (true, false, _) => "stopped",
        (false, true, _) => "running",
        (false, false, Some(_)) => "paused",
        (false, false, None) => "waiting",
    };
    let done_bytes = record.pass.as_ref().map_or(0, |pass| pass.bytes);
    let will_begin = state == "waiting" && record.due_s != i64::MAX;
    let place = |place: &brindle_wire::oss::scrub::ScrubPlace| PlaceView {
        object: place.object.to_string(),
        fid: place.object.ino.fid().to_string(),
        path: None,
        offset: place.offset,
    };
    ScrubView {
        name,
        state,
        why: trouble.clone(),
        pass: record.pass.as_ref().map(PassView::from),
        total_bytes: record.total_bytes,
        rate_bytes: *rate_now_bytes,
        remaining_s: record
            .pass
            .as_ref()
            .and_then(|_| remaining_s(done_bytes, record.total_bytes, *rate_now_bytes)),
        last: record.last.as_ref().map(PassView::from),
        rate_limit_bytes: *rate_limit_bytes,
        every_days: record.every_days,
        next_at: will_begin.then_some(record.due_s),
        unmended: record.named.iter().map(place).collect(),
        store_damage: Vec::new(),
    }
}

/// OSTs and MDTs of a list, or all of them.
pub fn targets(map: &Map, wanted: &[TargetId]) -> Result<Vec<TargetId>> {
    if let Some(other) = wanted.iter().find(|target| target.role == Role::Mgt) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot scrub")
            .subject(map.fs.target(*other))
            .why("OSTs and MDTs are scrubbed; the configuration of an MGS has checksums that are verified when it is read")
            .data("nothing was changed"));
    }
    if let Some(unknown) = wanted.iter().find(|target| map.target(**target).is_none()) {
        return Err(Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(*unknown))
            .data("nothing was changed"));
    }
    let all =
        map.targets.iter().map(|entry| entry.id).filter(|id| id.role != Role::Mgt && !map.is_removed(*id));
    Ok(if wanted.is_empty() { all.collect() } else { wanted.to_vec() })
}

async fn ask(servers: &Servers, map: &Map, target: TargetId, order: ScrubOrder) -> Result<ScrubView> {
    let (name, request) = (map.fs.target(target), ScrubReq { order });
    if target.role == Role::Mdt {
        let answer = servers.ask(map, target, &MdtScrubReq(request)).await?;
        let store_damage = answer.named.into_iter().map(StoreDamageView::from).collect();
        return Ok(ScrubView { store_damage, ..view(name, &answer.scrub) });
    }
    Ok(view(name, &servers.ask(map, target, &request).await?))
}

/// Gives an order to the scrubs of targets, and asks how far they are.
pub async fn order(servers: &Servers, map: &Map, ids: &[TargetId], order: ScrubOrder) -> Result<ScrubsView> {
    let asking = ids.iter().map(|id| async move { (*id, ask(servers, map, *id, order).await) });
    let mut targets = Vec::new();
    for (id, answer) in join_all(asking).await {
        let name = map.fs.target(id);
        targets.push(match answer {
            Ok(view) => view,
            Err(fault) if matches!(fault.code, Code::BadArgument | Code::NotForCaller | Code::NeedsRoot) => {
                return Err(fault);
            }
            Err(fault) => {
                let why = fault.why.first().map_or_else(|| fault.what.to_string(), ToString::to_string);
                ScrubView { name, state: "unreachable", why, ..ScrubView::default() }
            }
        });
    }
    Ok(ScrubsView { targets })
}

/// The scrub of a target, by its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Whether it reads now.
    pub is_running: bool,
    /// Whether an administrator has stopped it.
    pub is_stopped: bool,
    /// Whether a pass is under way.
    pub is_under_way: bool,
    /// Bytes verified so far, and of all objects.
    pub done_bytes: u64,
    /// Bytes of all objects.
    pub total_bytes: u64,
    /// Bytes a second.
    pub rate_bytes: u64,
    /// Damaged places of the pass under way, or else of the last one.
    pub found: u64,
    /// Damaged blocks that were mended.
    pub mended: u64,
    /// Damaged blocks that no copy has whole.
    pub unmended: u64,
    /// End of the last pass, seconds since 1970; 0 for none.
    pub last_end_s: u64,
    /// Bytes of the last pass.
    pub last_bytes: u64,
}

impl Scan {
    /// `None` where a target has no scrub, or is of a release without one.
    pub fn of(info: &TargetInfoResp) -> Option<Scan> {
        let get = |wanted: &str| info.counters.iter().find(|(name, _)| name == wanted).map(|(_, n)| *n);
        let or_zero = |wanted: &str| get(wanted).unwrap_or(0);
        Some(Scan {
            is_running: get("scrub_running")? > 0,
            is_stopped: or_zero("scrub_stopped") > 0,
            is_under_way: or_zero("scrub_under_way") > 0,
            done_bytes: or_zero("scrub_done_bytes"),
            total_bytes: or_zero("scrub_total_bytes"),
            rate_bytes: or_zero("scrub_bytes_per_second"),
            found: or_zero("scrub_found"),
            mended: or_zero("scrub_mended"),
            unmended: or_zero("scrub_unmended"),
            last_end_s: or_zero("scrub_last_end_seconds"),
            last_bytes: or_zero("scrub_last_bytes"),
        })
    }

    /// Seconds that the pass under way takes from now on, about.
    pub fn remaining_s(&self) -> Option<u64> {
        remaining_s(self.done_bytes, self.total_bytes, self.rate_bytes)
    }
}

/// A warning where damage was found and mended: the next disk error may be on both disks.
pub fn mended(map: &Map, target: &Target) -> Option<Fault> {
    let scan = Scan::of(target.info.as_ref().ok()?).filter(|scan| scan.mended > 0)?;
    let name = map.fs.target(target.entry.id);
    Some(
        Fault::new(Code::DamageMended)
            .what("damage was found and mended on")
            .subject(name)
            .why(format!(
                "the scrub found {} damaged places, and mended {} from another copy",
                scan.found, scan.mended
            ))
            .data("nothing is lost, and no program got a wrong byte")
            .next("find the host in its log (brindle events), and look at its disk: smartctl -a, dmesg"),
    )
}
