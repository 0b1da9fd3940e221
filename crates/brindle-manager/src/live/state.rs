//! The state of the cluster as the console shows it: one sentence, the hosts, the targets with what can be done to each.

use std::collections::BTreeMap;

use brindle_admin::document::FaultView;
use brindle_admin::hosts::{self, HostsView};
use brindle_admin::known::Known;
use brindle_admin::shared::{self, SharedView};
use brindle_admin::space::Spaces;
use brindle_admin::status::{FsView, Report, TargetView};
use brindle_types::{Code, Fault, Role, TargetId};
use brindle_wire::mgs::hosts::ListHostsResp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::DevProcesses;

/// The state of the cluster.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StateView {
    /// When it was asked for, seconds since 1970.
    pub at_s: i64,
    /// `healthy`, `warning`, `degraded`, or `unreachable` where nobody tells of it.
    pub health: &'static str,
    /// State as a sentence for people.
    pub sentence: String,
    /// The file system as `brindle status` has it; none where it is unreachable.
    pub fs: Option<FsView>,
    /// Why it is unreachable.
    pub fault: Option<FaultView>,
    /// Hosts.
    pub hosts: Vec<HostState>,
    /// Targets.
    pub targets: Vec<TargetState>,
    /// Bytes in use on the OSTs, each device once.
    pub used_bytes: u64,
    /// Bytes of the OSTs, each device once.
    pub total_bytes: u64,
    /// Inodes in use on the MDTs.
    pub inodes_used: u64,
    /// Inodes that are free on the MDTs.
    pub inodes_free: u64,
}

/// A host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostState {
    /// Name.
    pub name: String,
    /// `up`, `silent`, or `joined` where it has no daemon to hear of.
    pub state: &'static str,
    /// Roles in the cluster.
    pub roles: Vec<String>,
    /// Release of its daemon.
    pub software: String,
    /// Targets that it serves, or was told to serve.
    pub targets: Vec<String>,
    /// How long ago its daemon was heard of, seconds.
    pub heard_seconds_ago: Option<f64>,
    /// When its certificate ends unless it is renewed before, seconds since 1970; none where it has not joined.
    pub certificate_ends_s: Option<i64>,
}

/// A target.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetState {
    /// The target as `brindle status` has it.
    #[serde(flatten)]
    pub target: TargetView,
    /// `MGT`, `MDT` or `OST`.
    pub role: &'static str,
    /// Actions that can be asked for: `start`, `stop`, `failover`, `failback`.
    pub actions: Vec<&'static str>,
    /// Why nothing can be asked for; empty if something can.
    pub why_no_actions: String,
    /// Hosts, where two reach its device.
    pub shared: Option<SharedView>,
}

/// All that is asked of a cluster at once.
pub struct Asked {
    /// Targets of the cluster.
    pub report: Report,
    /// Space of the targets.
    pub spaces: Option<Spaces>,
    /// Hosts of the cluster, where it has an authority.
    pub hosts: Option<ListHostsResp>,
    /// Processes that this manager can start and stop itself.
    pub dev: DevProcesses,
}

/// The state of a cluster whose servers answer.
pub fn view(at_s: i64, asked: &Asked) -> StateView {
    let fs = asked.report.view();
    let listed = asked.hosts.as_ref().map(|hosts| {
        let Report { map, shared, replicas, .. } = &asked.report;
        hosts::list(&Known {
            map: map.clone(),
            hosts: hosts.clone(),
            shared: shared.clone(),
            replicas: replicas.clone(),
        })
    });
    let targets: Vec<TargetState> = asked
        .report
        .view()
        .targets
        .into_iter()
        .zip(&asked.report.targets)
        .map(|(view, target)| target_state(asked, listed.as_ref(), view, target.entry.id))
        .collect();
    let sum = asked.spaces.as_ref().map(Spaces::sum).unwrap_or_default();
    let (health, sentence) = health(&asked.report);
    StateView {
        at_s,
        health,
        sentence,
        hosts: match &listed {
            Some(listed) if !listed.hosts.is_empty() => joined(listed, &targets),
            _ => derived(&targets),
        },
        fs: Some(fs),
        fault: None,
        targets,
        used_bytes: sum.total_bytes.saturating_sub(sum.available_bytes),
        total_bytes: sum.total_bytes,
        inodes_used: sum.inodes_used,
        inodes_free: sum.inodes_free,
    }
}

/// The state of a cluster that does not answer.
pub fn unreachable(at_s: i64, fault: &Fault) -> StateView {
    StateView {
        at_s,
        health: "unreachable",
        sentence: format!("The state of the cluster is not known: {} {}.", fault.what, fault.subject),
        fs: None,
        fault: Some(FaultView::from(fault)),
        hosts: Vec::new(),
        targets: Vec::new(),
        used_bytes: 0,
        total_bytes: 0,
        inodes_used: 0,
        inodes_free: 0,
    }
}

fn health(report: &Report) -> (&'static str, String) {
    let (problems, warnings) = (report.problems(), report.warnings());
    let more = |n: usize| match n {
        0 => String::new(),
        1 => " There is one more problem.".to_owned(),
        n => format!(" There are {n} more problems."),
    };
    if let Some(first) = problems.first() {
        return ("degraded", format!("{}{}", sentence(first), more(problems.len() - 1)));
    }
    if let Some(first) = warnings.first() {
        return ("warning", format!("All targets work. {} {}.", capital(&first.what), first.subject));
    }
    let count = |role| report.targets.iter().filter(|target| target.entry.id.role == role).count();
    let plural = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
    let (mdts, osts) = (plural(count(Role::Mdt), "MDT"), plural(count(Role::Ost), "OST"));
    ("healthy", format!("All is well: {mdts} and {osts} answer."))
}

/// A fault as a sentence.
pub fn sentence(fault: &Fault) -> String {
    let (subject, data) = (fault.subject.trim(), &fault.data);
    if fault.code == Code::TargetDown {
        return format!("{subject} does not answer: {data}.");
    }
    let data = if data.is_empty() { String::new() } else { format!(": {data}") };
    format!("{} {subject}{data}.", capital(&fault.what))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn target_state(asked: &Asked, listed: Option<&HostsView>, target: TargetView, id: TargetId) -> TargetState {
    let info = asked.report.shared.targets.iter().find(|info| info.target.target == id);
    let shared = info.map(|info| shared::view(&asked.report.map.fs, info));
    let assigned = listed.and_then(|listed| {
        listed.hosts.iter().flat_map(|host| &host.targets).find(|t| t.name == target.name)
    });
    let (actions, why) = if id == TargetId::MGT {
        (Vec::new(), "the manager finds everything through it".to_owned())
    } else if let (Some(info), Some(shared)) = (info, &shared) {
        let mut actions = vec![if info.target.is_wanted { "stop" } else { "start" }];
        if info.target.is_wanted {
            actions.push(if shared.owner == shared.preferred { "failover" } else { "failback" });
        }
        (actions, String::new())
    } else if let Some(assigned) = assigned {
        (vec![if assigned.state == "stopped" { "start" } else { "stop" }], String::new())
    } else {
        match asked.dev.of(id) {
            Some(process) => match &process.host {
                None => (vec![if process.runs { "stop" } else { "start" }], String::new()),
                Some(host) => (Vec::new(), format!("one process serves all targets of the host {host}")),
            },
            None => {
                (Vec::new(), "'brindle serve --dir' on its host serves it; no host was told to".to_owned())
            }
        }
    };
    TargetState { target, role: id.role.name(), actions, why_no_actions: why, shared }
}

fn joined(listed: &HostsView, targets: &[TargetState]) -> Vec<HostState> {
    let of = |host: &str, told: Vec<String>| {
        let served = targets.iter().filter(|t| t.target.host == host).map(|t| t.target.name.clone());
        let mut names: Vec<String> = told.into_iter().chain(served).collect();
        names.sort();
        names.dedup();
        names
    };
    let host = |host: &hosts::HostView| HostState {
        name: host.name.clone(),
        state: host.state,
        roles: host.roles.clone(),
        software: host.software.clone(),
        targets: of(&host.name, host.targets.iter().map(|t| t.name.clone()).collect()),
        heard_seconds_ago: host.heard_seconds_ago,
        certificate_ends_s: Some(host.certificate_ends_s).filter(|ends_s| *ends_s > 0),
    };
    listed.hosts.iter().map(host).collect()
}

/// Hosts as the map knows them, where none has joined.
fn derived(targets: &[TargetState]) -> Vec<HostState> {
    let mut hosts: BTreeMap<&str, Vec<&TargetState>> = BTreeMap::new();
    for target in targets {
        hosts.entry(&target.target.host).or_default().push(target);
    }
    let host = |(name, targets): (&str, Vec<&TargetState>)| {
        let answers = targets.iter().find(|target| target.target.state != "unreachable");
        HostState {
            name: name.to_owned(),
            state: if answers.is_some() { "up" } else { "silent" },
            roles: vec!["server".to_owned()],
            software: answers.map(|target| target.target.version.clone()).unwrap_or_default(),
            targets: targets.iter().map(|target| target.target.name.clone()).collect(),
            heard_seconds_ago: None,
            certificate_ends_s: None,
        }
    };
    hosts.into_iter().map(host).collect()
}
