//! Shared targets, on devices that two hosts reach: one host serves and the other stands by.

use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::mgs::shared::{
    ChangeSharedReq, ChangeSharedResp, ListSharedReq, ListSharedResp, SharedChange, SharedInfo, SharedPhase,
    SharedState, SharedWord,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// A host that shares a device tells of itself twice a second; one that was not heard of for so long is shown as silent.
pub const SILENT_MS: u64 = 2_500;
/// Longest time until a target is served, or stopped.
pub const SETTLED_LIMIT_MS: u64 = 90_000;
/// Interval between two looks at a target that is waited for.
const LOOK_EVERY_MS: u64 = 200;

/// A shared target.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedView {
    /// Full name.
    pub name: String,
    /// Mount point of the device on its owner.
    pub dir: String,
    /// Port that it is served at.
    pub port: u16,
    /// Host that owns it.
    pub owner: String,
    /// The preferred host.
    pub preferred: String,
    /// Number of changes of the owner, plus one.
    pub turn: u64,
    /// `serving`, `starting`, `stopped`, `moving` (its owner gives it up), `fencing` (its owner is switched off), `failed`, or `silent`.
    pub state: &'static str,
    /// Reason why the target is not served, for people; empty if it is.
    pub why: String,
    /// Hosts of the target, the preferred one first.
    pub hosts: Vec<SharedHostView>,
}
document!(SharedView, "brindle.target.shared", 1);

/// A host of a shared target.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedHostView {
    /// Name of the host.
    pub host: String,
    /// The device there.
    pub device: String,
    /// `owner`; `standby` where it could take the target now; `starting` or `stopping` where it could in a moment; `silent`; or `failed` where it
    /// could not serve the target.
    pub state: &'static str,
    /// Reason why the host could not serve the target; empty if it could.
    pub why: String,
}

fn is_silent(word: &SharedWord) -> bool {
    word.heard_ms_ago.is_none_or(|ms| ms > SILENT_MS)
}

fn host_view(info: &SharedInfo, n: usize) -> SharedHostView {
    let host = &info.target.hosts[n];
    let word = info.words.get(n);
    let is_owner = host.host == info.target.owner;
    let (state, why) = match word.and_then(|word| word.report.as_ref()).map(|report| &report.state) {
        _ if word.is_none_or(is_silent) => ("silent", String::new()),
        Some(SharedState::Failed { fault, .. }) => ("failed", fault.to_string()),
        _ if is_owner => ("owner", String::new()),
        Some(SharedState::StandingBy { .. }) => ("standby", String::new()),
        Some(SharedState::Serving | SharedState::Released) => ("stopping", String::new()),
        Some(SharedState::Starting) | None => ("starting", String::new()),
    };
    SharedHostView { host: host.host.clone(), device: host.device.clone(), state, why }
}

/// A shared target, for people and programs.
pub fn view(fs: &FsName, info: &SharedInfo) -> SharedView {
    let t = &info.target;
    let hosts: Vec<SharedHostView> = (0..t.hosts.len()).map(|n| host_view(info, n)).collect();
    let owner = info.words.iter().find(|word| word.host == t.owner);
    let told = owner.filter(|word| !is_silent(word)).and_then(|word| word.report.as_ref());
    let told = told.filter(|report| report.turn == t.turn).map(|report| &report.state);
    let hindrance = info.hindrance.as_ref().map(ToString::to_string);
    let (state, why) = match (&t.phase, told) {
        (SharedPhase::Handing { .. }, _) => ("moving", String::new()),
        (SharedPhase::Fencing { .. }, _) => ("fencing", String::new()),
        (_, _) if owner.is_none_or(is_silent) => ("silent", format!("{} is silent", t.owner)),
        (_, Some(SharedState::Serving)) => ("serving", String::new()),
        (_, Some(SharedState::Failed { fault, .. })) => ("failed", fault.to_string()),
        (_, Some(SharedState::Released | SharedState::StandingBy { .. })) if !t.is_wanted => {
            ("stopped", "brindle target start starts it".to_owned())
        }
        _ => ("starting", String::new()),
    };
    SharedView {
        name: fs.target(t.target),
        dir: t.dir.clone(),
        port: t.port,
        owner: t.owner.clone(),
        preferred: t.hosts.first().map(|host| host.host.clone()).unwrap_or_default(),
        turn: t.turn,
        state,
        why: hindrance.unwrap_or(why),
        hosts,
    }
}

/// Obstacles to a takeover, although every target is served: they become faults when a host dies.
pub fn warnings(fs: &FsName, answer: &ListSharedResp) -> Vec<Fault> {
    let mut warnings = Vec::new();
    let formatted = answer.targets.iter().filter(|info| info.target.is_formatted);
    if !answer.has_fence && answer.targets.iter().any(|info| info.target.is_formatted) {
        warnings.push(
            Fault::new(Code::NoFence)
                .what("no host takes targets over by itself:")
                .subject(fs.to_string())
                .why("the MGS has no program that fences hosts")
                .data("files are not concerned"),
        );
    }
    for info in formatted {
        let shared = view(fs, info);
        for host in shared.hosts.iter().filter(|host| matches!(host.state, "silent" | "failed")) {
            if host.host != shared.owner {
                warnings.push(
                    Fault::new(Code::NoStandby)
                        .what("nobody could take over")
                        .subject(shared.name.clone())
                        .why(match host.state {
                            "silent" => format!("{} is silent", host.host),
                            _ => format!("{} cannot use its device", host.host),
                        })
                        .data("files are not concerned")
                        .next(format!("brindle node show {}", host.host)),
                );
            }
        }
    }
    warnings
}

impl Servers {
    /// All shared targets. A release of the MGS that knows of none has none.
    pub async fn shared(&self, place: &FsLocation) -> Result<ListSharedResp> {
        match self.ask_the_mgs(place, &ListSharedReq {}).await {
            Err(fault) if fault.code == Code::UnknownOp => {
                Ok(ListSharedResp { targets: Vec::new(), has_fence: false })
            }
            answer => answer,
        }
    }

    /// Changes a shared target.
    pub async fn change_shared(
        &self,
        place: &FsLocation,
        change: SharedChange,
        is_dry_run: bool,
    ) -> Result<ChangeSharedResp> {
        self.ask_the_mgs(place, &ChangeSharedReq { change, is_dry_run }).await
    }
}

/// Waits, for a bounded time, until a shared target is served by `owner` (or by anybody, without one), or stopped if that is what is wanted; tells
/// of each state on the way. A failure ends the waiting.
pub async fn until_settled(
    servers: &Servers,
    place: &FsLocation,
    fs: &FsName,
    (target, owner): (TargetId, Option<&str>),
    limit_ms: u64,
    mut tell: impl FnMut(&SharedView),
) -> Result<SharedView> {
    let (seams, mut last) = (servers.seams().clone(), None);
    let deadline = seams.now().plus_ms(limit_ms);
    loop {
        let answer = servers.shared(place).await?;
        let gone = || Fault::new(Code::UnknownTarget).subject(fs.target(target));
        let info = answer.targets.iter().find(|info| info.target.target == target).ok_or_else(gone)?;
        let view = view(fs, info);
        if last != Some(view.state) {
            tell(&view);
            last = Some(view.state);
        }
        let wanted = if info.target.is_wanted { "serving" } else { "stopped" };
        let is_there = view.state == wanted && owner.is_none_or(|owner| owner == view.owner);
        if is_there || view.state == "failed" || seams.now() >= deadline {
            return Ok(view);
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Whether a target is as it was wanted when [`until_settled`] has ended; if not, the fault to show.
pub fn outcome(view: &SharedView, owner: Option<&str>, target: TargetId) -> Result<()> {
    let is_there = owner.is_none_or(|owner| owner == view.owner);
    if matches!(view.state, "serving" | "stopped") && is_there {
        return Ok(());
    }
    let why = if view.why.is_empty() { "nothing is wrong so far".to_owned() } else { view.why.clone() };
    Err(Fault::new(Code::TargetDown)
        .what("not served yet:")
        .subject(view.name.clone())
        .why(format!("its state is '{}' on {}", view.state, view.owner))
        .why(why)
        .next(format!("the order stands; look again: brindle node list; take it back, if it is a new target: brindle target remove {target}")))
}
