//! Replica sets: OSTs with members on several hosts.

use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::mgs::replica::{
    ChangeReplicasReq, ChangeReplicasResp, ListReplicasReq, ListReplicasResp, MemberPhase, MemberRole,
    MemberWord, ReplicaSetChange, ReplicaSetInfo, Resync,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// A host that has members tells of itself a few times a second; one that was not heard of for so long is shown as silent.
pub const SILENT_MS: u64 = 2_500;
/// Longest time until a replica set is served.
pub const SETTLED_LIMIT_MS: u64 = 90_000;
/// Interval between two looks at a replica set that is waited for.
const LOOK_EVERY_MS: u64 = 200;

/// A replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplicaSetView {
    /// Full name of the target.
    pub name: String,
    /// `serving`, `degraded` (serving, and a member is not in sync), `starting`, or `down`.
    pub state: &'static str,
    /// Host of the member that serves it.
    pub primary: String,
    /// Rises with every change of the primary or of who is in sync.
    pub epoch: u64,
    /// Members of the set.
    pub members: Vec<MemberView>,
    /// Reason why no member serves the target; empty if one does.
    pub why: String,
    /// Advice to the operator; empty if nothing is to be done.
    pub action: String,
}
document!(ReplicaSetView, "brindle.target.replicas", 1);

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemberView {
    /// Host of the member.
    pub host: String,
    /// Directory of the member on its host.
    pub dir: String,
    /// `primary`, `in-sync`, `learner` (not complete yet), or `resync` (being filled now).
    pub role: &'static str,
    /// `up`, `starting`, `silent` or `failed`.
    pub state: &'static str,
    /// Reason why the member failed, or does not get filled; empty if neither is so.
    pub why: String,
    /// Progress of the fill.
    pub resync: Option<ResyncView>,
    /// Blocks that were damaged here while it was the primary, and mended from another member.
    pub mended_blocks: u64,
}

/// Progress of the fill of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResyncView {
    /// Bytes of objects that were compared.
    pub done_bytes: u64,
    /// Bytes of all objects, about.
    pub total_bytes: u64,
    /// Bytes that differed and were copied.
    pub copied_bytes: u64,
    /// Seconds that it takes from now on, about; nothing if that cannot be told yet.
    pub remaining_s: Option<u64>,
    /// Bytes compared a second so far; nothing if that cannot be told yet.
    pub rate_bytes: Option<u64>,
}

fn is_silent(word: &MemberWord) -> bool {
    word.heard_ms_ago.is_none_or(|ms| ms > SILENT_MS)
}

fn resync_view(resync: &Resync) -> ResyncView {
    let Resync { done_bytes, total_bytes, copied_bytes, running_ms, .. } = *resync;
    let left = u128::from(total_bytes.saturating_sub(done_bytes));
    let remaining_ms = (left * u128::from(running_ms)).checked_div(u128::from(done_bytes));
    let remaining_s = remaining_ms.and_then(|ms| u64::try_from(ms / 1000).ok());
    let rate = (u128::from(done_bytes) * 1000).checked_div(u128::from(running_ms));
    let rate_bytes = rate.and_then(|rate| u64::try_from(rate).ok());
    ResyncView { done_bytes, total_bytes, copied_bytes, remaining_s, rate_bytes }
}

fn member_view(info: &ReplicaSetInfo, n: usize) -> MemberView {
    let (set, member) = (&info.set, &info.set.members[n]);
    let word = info.words.get(n);
    let primary =
        info.words.iter().find(|word| word.host == set.primary).and_then(|word| word.report.as_ref());
    let resync = primary.and_then(|report| report.resyncs.iter().find(|r| r.host == member.host));
    // The primary goes on trying to reach a silent learner, but does not fill it meanwhile.
    let resync = resync.filter(|_| member.role == MemberRole::Learner && !word.is_none_or(is_silent));
    let (state, mut why) = match word.and_then(|word| word.report.as_ref()).map(|report| &report.phase) {
        _ if word.is_none_or(is_silent) => ("silent", String::new()),
        Some(MemberPhase::Failed(fault)) => ("failed", fault.to_string()),
        None | Some(MemberPhase::Starting | MemberPhase::TakingOver) => ("starting", String::new()),
        Some(MemberPhase::Following | MemberPhase::Serving) => ("up", String::new()),
    };
    if let Some(resync) = resync.filter(|r| why.is_empty() && !r.trouble.is_empty()) {
        why.clone_from(&resync.trouble);
    }
    MemberView {
        host: member.host.clone(),
        dir: member.dir.clone(),
        role: match member.role {
            _ if member.host == set.primary => "primary",
            MemberRole::InSync => "in-sync",
            MemberRole::Learner if resync.is_some() => "resync",
            MemberRole::Learner => "learner",
        },
        state,
        why,
        resync: resync.map(resync_view),
        mended_blocks: word.and_then(|word| word.report.as_ref()).map_or(0, |report| report.mended_blocks),
    }
}

/// A replica set, for people and programs.
pub fn view(fs: &FsName, info: &ReplicaSetInfo) -> ReplicaSetView {
    let set = &info.set;
    let members: Vec<MemberView> = (0..set.members.len()).map(|n| member_view(info, n)).collect();
    let primary = info.words.iter().find(|word| word.host == set.primary);
    let phase = primary.filter(|word| !is_silent(word)).and_then(|word| word.report.as_ref());
    let serves = phase.is_some_and(|report| report.phase == MemberPhase::Serving);
    let all_in_sync = set.in_sync().count() == set.members.len();
    let state = match (serves, all_in_sync, &info.hindrance) {
        (true, true, _) => "serving",
        (true, false, _) => "degraded",
        (false, _, Some(_)) => "down",
        (false, _, None) => "starting",
    };
    let why = info.hindrance.as_ref().filter(|_| !serves);
    ReplicaSetView {
        name: fs.target(set.target),
        state,
        primary: set.primary.clone(),
        epoch: set.epoch,
        action: match &info.hindrance {
            Some(fault) if fault.code == Code::RestoredTarget => fault.next.to_string(),
            _ => action(set.target, state, &members),
        },
        members,
        why: why.map(|fault| fault.why.join("; ")).unwrap_or_default(),
    }
}

fn action(target: TargetId, state: &str, members: &[MemberView]) -> String {
    let bad = members.iter().find(|m| m.state == "failed" || m.state == "silent");
    match (state, bad) {
        ("serving" | "starting", _) => String::new(),
        ("down", _) => format!(
            "bring a member back that has everything; if all of those are lost for good: brindle target replica accept-loss {target} --node HOST"
        ),
        (_, Some(m)) if m.state == "silent" => format!(
            "start {0} again; if it is lost for good: brindle target replica remove {target} --node {0}, then give the target another copy: \
             brindle target replica add {target} --node HOST",
            m.host
        ),
        (_, Some(m)) => format!(
            "mount the right disk at {0} on {1}; if it is lost: brindle target replica remove {target} --node {1}, empty {0} there, \
             brindle target replica add {target} --node {1}",
            m.dir, m.host
        ),
        _ => "wait: the target is complete again by itself".to_owned(),
    }
}

/// A line for people about the progress of a member; empty if it is not filled now.
pub fn progress(member: &MemberView) -> String {
    let Some(resync) = &member.resync else { return String::new() };
    let percent = (resync.done_bytes * 100).checked_div(resync.total_bytes).unwrap_or(0).min(99);
    let left = resync.remaining_s.map(|s| format!(", {s} s to go")).unwrap_or_default();
    format!(
        "{percent}% of {} compared, {} copied{left}",
        format_bytes(resync.total_bytes),
        format_bytes(resync.copied_bytes)
    )
}

/// A fault for each replica set that is served and not complete. Sets that nobody serves have a fault of their own.
pub fn problems(fs: &FsName, sets: &ListReplicasResp) -> Vec<Fault> {
    let views = sets.sets.iter().map(|info| view(fs, info)).filter(|view| view.state == "degraded");
    let fault = |view: ReplicaSetView| {
        let fault =
            Fault::new(Code::Degraded).what("is not complete on all its members:").subject(view.name.clone());
        let missing = view.members.iter().filter(|m| matches!(m.role, "learner" | "resync"));
        let why = missing.fold(fault, |fault, m| {
            let more = match (m.state, progress(m)) {
                ("up", progress) if !progress.is_empty() => progress,
                ("up", _) => "waits to be filled".to_owned(),
                (state, _) => state.to_owned(),
            };
            let fault = fault.why(format!("{}: {more}", m.host));
            if m.why.is_empty() { fault } else { fault.why(m.why.clone()) }
        });
        why.data("nothing is lost, and programs go on; the loss of one more member could stop the target")
            .next(view.action)
    };
    views.map(fault).collect()
}

impl Servers {
    /// All replica sets. A release of the MGS that knows of none has none.
    pub async fn replicas(&self, place: &FsLocation) -> Result<ListReplicasResp> {
        match self.ask_the_mgs(place, &ListReplicasReq {}).await {
            Err(fault) if fault.code == Code::UnknownOp => Ok(ListReplicasResp { sets: Vec::new() }),
            answer => answer,
        }
    }

    /// Changes a replica set.
    pub async fn change_replicas(
        &self,
        place: &FsLocation,
        change: ReplicaSetChange,
        is_dry_run: bool,
    ) -> Result<ChangeReplicasResp> {
        self.ask_the_mgs(place, &ChangeReplicasReq { change, is_dry_run }).await
    }
}

/// Waits, for a bounded time, until a replica set is served with all its members in sync; tells of each change on the way. A member that
/// failed ends the waiting.
pub async fn until_settled(
    servers: &Servers,
    place: &FsLocation,
    (fs, target): (&FsName, TargetId),
    mut tell: impl FnMut(&ReplicaSetView),
) -> Result<ReplicaSetView> {
    let (seams, mut last) = (servers.seams().clone(), None);
    let deadline = seams.now().plus_ms(SETTLED_LIMIT_MS);
    loop {
        let answer = servers.replicas(place).await?;
        let gone = || Fault::new(Code::UnknownTarget).subject(fs.target(target));
        let info = answer.sets.iter().find(|info| info.set.target == target).ok_or_else(gone)?;
        let view = view(fs, info);
        let kind = (view.state, view.members.iter().map(|m| (m.role, m.state)).collect::<Vec<_>>());
        if last.as_ref() != Some(&kind) {
            tell(&view);
            last = Some(kind);
        }
        let has_failed = view.members.iter().any(|m| m.state == "failed");
        if view.state == "serving" || has_failed || seams.now() >= deadline {
            return Ok(view);
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Whether a set is complete when [`until_settled`] has ended; if not, the fault to show.
pub fn outcome(view: &ReplicaSetView, target: TargetId) -> Result<()> {
    if view.state == "serving" {
        return Ok(());
    }
    let fault = Fault::new(Code::TargetDown).what("not complete yet:").subject(view.name.clone());
    let members = view.members.iter().filter(|m| m.role != "primary" || m.state != "up");
    let fault = members.fold(fault, |fault, m| {
        let fault = fault.why(format!("{}: {}, {}", m.host, m.role, m.state));
        if m.why.is_empty() { fault } else { fault.why(m.why.clone()) }
    });
    Err(fault.next(format!("the order stands; look again: brindle target replica list; take a copy back: brindle target replica remove {target} --node HOST")))
}
