//! Hosts of a cluster: listing them, letting them join and removing them, and the targets that they are told to serve.

use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::mgs::hosts::{
    Assignment, ChangeHostReq, ChangeHostResp, CreateTokenReq, CreateTokenResp, HostChange, HostInfo,
    HostedState, HostedTarget, ListHostsReq, ListHostsResp, TokenInfo,
};
use brindle_wire::mgs::replica::ReplicaSetInfo;
use brindle_wire::mgs::shared::SharedInfo;
use schemars::JsonSchema;
use serde::Serialize;

use crate::known::Known;
use crate::nearest::nearest;
use crate::place::FsLocation;
use crate::rails::RailView;
use crate::replica::{self, ReplicaSetView};
use crate::servers::Servers;
use crate::shared::{self, SharedView};
use crate::target::hex;

/// A daemon that was not heard of for so long is shown as silent.
pub const SILENT_MS: u64 = 15_000;
/// Longest time until a host serves a target, or has stopped it.
pub const HOSTED_LIMIT_MS: u64 = 60_000;
/// Longest time for a new name of a host, in milliseconds: an MGS that has just begun waits until it has heard of the host.
const RENAME_MS: u64 = 15_000;
/// Interval between two looks at a host that is waited for.
const LOOK_EVERY_MS: u64 = 300;

/// Hosts of a cluster, and tokens that can still be used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostsView {
    /// Number of the cluster.
    pub cluster: String,
    /// File system of the hosts.
    pub fs: String,
    /// Hosts, by name.
    pub hosts: Vec<HostView>,
    /// Targets on devices that two hosts reach.
    pub shared: Vec<SharedView>,
    /// Targets with copies on several hosts.
    pub replicas: Vec<ReplicaSetView>,
    /// Tokens that no host has used yet.
    pub tokens: Vec<TokenView>,
}
document!(HostsView, "brindle.node.list", 1);

/// A host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostView {
    /// Name of the host.
    pub name: String,
    /// `up`, `silent` (its daemon is not heard of), or `joined` where it has no daemon to hear of.
    pub state: &'static str,
    /// Roles of the host.
    pub roles: Vec<String>,
    /// Rack that it stands in; empty if nothing is said.
    pub rack: String,
    /// Beginning of its key.
    pub key: String,
    /// When it joined, seconds since 1970.
    pub joined_s: i64,
    /// When its certificate ends unless it is renewed before, seconds since 1970.
    pub certificate_ends_s: i64,
    /// Time since its daemon was heard of, seconds.
    pub heard_seconds_ago: Option<f64>,
    /// Release of its daemon.
    pub software: String,
    /// Targets that it was told to serve.
    pub targets: Vec<HostedView>,
    /// Targets that it shares with another host.
    pub shared: Vec<SharedView>,
    /// Targets of which it has a copy.
    pub replicas: Vec<ReplicaSetView>,
    /// Rails of the host, if it has several; only `brindle node show` looks at them.
    pub rails: Vec<RailView>,
}
document!(HostView, "brindle.node.show", 1);

/// A target that a host was told to serve.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostedView {
    /// Full name.
    pub name: String,
    /// Directory of the target on the host.
    pub dir: String,
    /// Port that it is served at.
    pub port: u16,
    /// `starting`, `serving`, `stopped`, `failed`, or `ordered` where the host has not told of it yet.
    pub state: &'static str,
    /// Reason why the target is not served, for people; empty if it is.
    pub why: String,
}
document!(HostedView, "brindle.target.state", 1);

/// A token that no host has used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TokenView {
    /// Number of the token.
    pub id: String,
    /// Roles that it gives.
    pub roles: Vec<String>,
    /// Host that it is for; empty for any.
    pub host: String,
    /// When it ends, seconds since 1970.
    pub expires_s: i64,
}

/// A new token.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NewTokenView {
    /// The token: a secret.
    pub token: String,
    /// Roles that it gives.
    pub roles: Vec<String>,
    /// When it ends, seconds since 1970.
    pub expires_s: i64,
}
document!(NewTokenView, "brindle.cluster.token", 1);

pub(crate) fn words(roles: &str) -> Vec<String> {
    roles.split(',').filter(|role| !role.is_empty()).map(str::to_owned).collect()
}

fn view_of(fs: &FsName, assignment: &Assignment, told: &[HostedTarget], is_silent: bool) -> HostedView {
    let told = told.iter().find(|t| t.target == assignment.target && t.uuid == assignment.uuid);
    let (state, why) = match told.map(|t| &t.state) {
        _ if is_silent => ("unknown", "its host is silent".to_owned()),
        None => ("ordered", String::new()),
        Some(HostedState::Starting) => ("starting", String::new()),
        Some(HostedState::Serving) => ("serving", String::new()),
        Some(HostedState::Stopped) => ("stopped", "brindle target start starts it".to_owned()),
        Some(HostedState::Failed(fault)) => ("failed", fault.to_string()),
    };
    HostedView {
        name: fs.target(assignment.target),
        dir: assignment.dir.clone(),
        port: assignment.port,
        state,
        why,
    }
}

/// A host, for people and programs.
pub fn view(known: &Known, host: &HostInfo) -> HostView {
    let fs = &known.map.fs;
    let roles = words(&host.roles);
    let has_daemon = roles.iter().any(|role| role == "server");
    let is_silent = host.heard_ms_ago.is_none_or(|ms| ms > SILENT_MS);
    HostView {
        name: host.name.clone(),
        state: match (has_daemon, is_silent) {
            (_, false) => "up",
            (true, true) => "silent",
            (false, true) => "joined",
        },
        roles,
        rack: known.map.host(&host.name).map_or_else(String::new, |entry| entry.failure_domain.clone()),
        key: hex(&host.key[..8]),
        joined_s: host.joined_s,
        certificate_ends_s: host.certificate_ends_s,
        heard_seconds_ago: host.heard_ms_ago.map(|ms| ms as f64 / 1000.0),
        software: host.software.clone(),
        targets: host.assignments.iter().map(|a| view_of(fs, a, &host.hosted, is_silent)).collect(),
        shared: {
            let reaches = |info: &&SharedInfo| info.target.hosts.iter().any(|own| own.host == host.name);
            known.shared.targets.iter().filter(reaches).map(|info| shared::view(fs, info)).collect()
        },
        replicas: {
            let has = |info: &&ReplicaSetInfo| info.set.member(&host.name).is_some();
            known.replicas.sets.iter().filter(has).map(|info| replica::view(fs, info)).collect()
        },
        rails: Vec::new(),
    }
}

fn token_view(token: &TokenInfo) -> TokenView {
    TokenView {
        id: hex(&token.id),
        roles: words(&token.roles),
        host: token.host.clone(),
        expires_s: token.expires_s,
    }
}

/// All hosts and tokens.
pub fn list(known: &Known) -> HostsView {
    let fs = &known.map.fs;
    HostsView {
        cluster: format!("{:016x}", known.hosts.cluster),
        fs: fs.to_string(),
        hosts: known.hosts.hosts.iter().map(|host| view(known, host)).collect(),
        shared: known.shared.targets.iter().map(|info| shared::view(fs, info)).collect(),
        replicas: known.replicas.sets.iter().map(|info| replica::view(fs, info)).collect(),
        tokens: known.hosts.tokens.iter().map(token_view).collect(),
    }
}

/// The host of a name, or a refusal with the nearest.
pub fn one<'a>(answer: &'a ListHostsResp, name: &str) -> Result<&'a HostInfo> {
    answer.hosts.iter().find(|host| host.name == name).ok_or_else(|| {
        let fault = Fault::new(Code::UnknownHost).what("no host has joined as").subject(name.to_owned());
        match nearest(name, answer.hosts.iter().map(|host| host.name.as_str())) {
            Some(near) => fault.next(format!("did you mean '{near}'?")),
            None => fault,
        }
    })
}

/// The host that was told to serve a target, or a refusal.
pub fn host_of<'a>(answer: &'a ListHostsResp, fs: &FsName, target: TargetId) -> Result<&'a HostInfo> {
    let has = |host: &&HostInfo| host.assignments.iter().any(|a| a.target == target);
    answer.hosts.iter().find(has).ok_or_else(|| {
        Fault::new(Code::UnknownTarget)
            .subject(fs.target(target))
            .why("no host was told to serve it; where 'brindle serve --dir' names it, that process serves it")
            .data("nothing was changed")
            .next("list what hosts were told: brindle node list")
    })
}

impl Servers {
    /// All hosts and tokens, as the MGS has them.
    pub async fn hosts(&self, place: &FsLocation) -> Result<ListHostsResp> {
        self.ask_the_mgs(place, &ListHostsReq {}).await
    }

    /// A token for a host that is to join; `host` is empty for any.
    pub async fn create_token(
        &self,
        place: &FsLocation,
        roles: &str,
        host: &str,
        lifetime_s: u64,
    ) -> Result<CreateTokenResp> {
        let request = CreateTokenReq { roles: roles.to_owned(), host: host.to_owned(), lifetime_s };
        self.ask_the_mgs(place, &request).await
    }

    /// Changes what a host does.
    pub async fn change_host(
        &self,
        place: &FsLocation,
        host: &str,
        change: HostChange,
        is_dry_run: bool,
    ) -> Result<ChangeHostResp> {
        let may_wait = matches!(change, HostChange::Rename { .. });
        let request = ChangeHostReq { host: host.to_owned(), change, is_dry_run };
        match may_wait {
            true => self.ask_the_mgs_within(place, &request, RENAME_MS).await,
            false => self.ask_the_mgs(place, &request).await,
        }
    }
}

/// A new token, for people and programs.
pub fn new_token(roles: &str, answer: CreateTokenResp) -> NewTokenView {
    NewTokenView { token: answer.token, roles: words(roles), expires_s: answer.expires_s }
}

/// Waits, for a bounded time, until a host serves a target, or has stopped it; tells of each state on the way. A target that fails is not
/// waited for; then the reason comes with its state.
pub async fn until_hosted(
    servers: &Servers,
    place: &FsLocation,
    fs: &FsName,
    (host, target): (&str, TargetId),
    limit_ms: u64,
    mut tell: impl FnMut(&HostedView),
) -> Result<(HostedView, Option<Fault>)> {
    let (seams, mut last) = (servers.seams().clone(), None);
    let deadline = seams.now().plus_ms(limit_ms);
    loop {
        let answer = servers.hosts(place).await?;
        let host = one(&answer, host)?;
        let wanted = host.assignments.iter().find(|a| a.target == target);
        let gone = || Fault::new(Code::UnknownTarget).subject(fs.target(target));
        let assignment = wanted.ok_or_else(gone)?;
        let is_silent = host.heard_ms_ago.is_none_or(|ms| ms > SILENT_MS);
        let view = view_of(fs, assignment, &host.hosted, is_silent);
        if last != Some(view.state) {
            tell(&view);
            last = Some(view.state);
        }
        let is_there = match view.state {
            "serving" => assignment.is_wanted,
            "stopped" => !assignment.is_wanted,
            "failed" => assignment.is_wanted,
            _ => false,
        };
        if is_there || seams.now() >= deadline {
            let told = host.hosted.iter().find(|t| t.target == target && t.uuid == assignment.uuid);
            let fault = told.and_then(|told| match &told.state {
                HostedState::Failed(fault) => Some((**fault).clone()),
                _ => None,
            });
            return Ok((view, fault));
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Whether a host has done what [`until_hosted`] waited for, for [`HOSTED_LIMIT_MS`]; if not, the fault to show.
pub fn outcome(view: &HostedView, failure: Option<Fault>, host: &str, target: TargetId) -> Result<()> {
    match view.state {
        "serving" | "stopped" => Ok(()),
        "failed" => Err(failure
            .unwrap_or_else(|| Fault::new(Code::ProcessFailed))
            .why(format!("{host} says so, and tries again by itself: brindle node show {host}"))
            .next(format!("remove the cause; or take the order back, if it is a new target: brindle target remove {target}"))),
        state => Err(Fault::new(Code::TargetDown)
            .what("not served yet:")
            .subject(view.name.clone())
            .why(format!("{host} has not done it within {} s; its state is '{state}'", HOSTED_LIMIT_MS / 1000))
            .why(if view.why.is_empty() { "nothing is wrong so far".to_owned() } else { view.why.clone() })
            .next(format!("the order stands; look again: brindle node show {host}; on {host}: systemctl status brindle-serve"))),
    }
}
