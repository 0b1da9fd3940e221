//! Actions that a person asks for by click: a plan first, then a task with its progress and its result.
//!
//! A plan comes from whoever would carry it out (the MGS with `is_dry_run`), by the functions that the commands call too.

use std::sync::Arc;

use brindle_admin::hosts::{self, HOSTED_LIMIT_MS, host_of, until_hosted};
use brindle_admin::place::FsLocation;
use brindle_admin::shared::{self, SETTLED_LIMIT_MS, until_settled};
use brindle_host::Host;
use brindle_host::cluster::{Event, Killed, On, Started};
use brindle_types::{Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::mgs::hosts::HostChange;
use brindle_wire::mgs::shared::{SharedChange, SharedTarget};

use crate::cluster::Managed;
use crate::plan::PlanView;

/// An action on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve it.
    Start,
    /// Do not serve it.
    Stop,
    /// Let the other host serve it.
    Failover,
    /// Let the preferred host serve it again.
    Failback,
}

impl Action {
    /// The verb of the command.
    pub fn verb(self) -> &'static str {
        match self {
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Failover => "failover",
            Action::Failback => "failback",
        }
    }
}

impl std::str::FromStr for Action {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Action> {
        let all = [Action::Start, Action::Stop, Action::Failover, Action::Failback];
        all.into_iter().find(|action| action.verb() == word).ok_or_else(|| {
            Fault::new(Code::UnknownResource)
                .what("a target has no action called")
                .subject(word.to_owned())
                .next("start, stop, failover, failback")
        })
    }
}

/// The service that carries an action out.
#[derive(Clone, Debug)]
enum Way {
    /// The owner of a device that two hosts reach, or the other host; before it, the present owner.
    Shared { change: SharedChange, from: String, to: Option<String> },
    /// The host that was told to serve the target.
    Assigned { host: String, is_wanted: bool },
    /// A process of a development cluster.
    Process { name: String, is_wanted: bool },
}

/// A plan that can be carried out.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For people and programs.
    pub view: PlanView,
    place: FsLocation,
    fs: FsName,
    target: TargetId,
    way: Way,
}

/// Receiver of progress.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The plan for an action on a target, as its full name says; nothing is changed.
pub async fn plan(managed: &Managed, name: &str, action: Action) -> Result<Plan> {
    let place = managed.place()?;
    let (map, _) = managed.servers.map(&place).await?;
    let unknown = || Fault::new(Code::UnknownTarget).subject(name.to_owned()).data("nothing was changed");
    let entry = map.targets.iter().find(|entry| map.fs.target(entry.id) == name).ok_or_else(unknown)?;
    let target = entry.id;
    if target == TargetId::MGT {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot")
            .subject(format!("{} {name} from here", action.verb()))
            .why("the manager finds everything through the MGS")
            .data("nothing was changed")
            .next("do it with a command on its host"));
    }
    let (way, would, changes) = find_way(managed, &place, &map.fs, target, action).await?;
    let command = command(managed, &place, &way, action, name);
    let view = PlanView {
        target: name.to_owned(),
        action: action.verb().to_owned(),
        would,
        effects: effects(action, target.role),
        changes,
        command,
        request: format!("POST /api/v1/targets/{name}/{} {{\"dry_run\": false}}", action.verb()),
        task: None,
    };
    Ok(Plan { view, place, fs: map.fs, target, way })
}

async fn find_way(
    managed: &Managed,
    place: &FsLocation,
    fs: &FsName,
    target: TargetId,
    action: Action,
) -> Result<(Way, String, bool)> {
    let name = fs.target(target);
    let shared = managed.servers.shared(place).await?;
    if let Some(info) = shared.targets.into_iter().find(|info| info.target.target == target) {
        return shared_way(managed, place, &name, info.target, action).await;
    }
    let is_wanted = match action {
        Action::Start => true,
        Action::Stop => false,
        Action::Failover | Action::Failback => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot move")
                .subject(name)
                .why("one host alone reaches its directory")
                .data("nothing was changed")
                .next("targets on devices that two hosts reach can move: docs/operations/standby.md"));
        }
    };
    if let Some(process) = managed.dev_processes()?.of(target) {
        let verb = if is_wanted { "start" } else { "end" };
        let (way, runs) = (Way::Process { name: process.name.clone(), is_wanted }, process.runs);
        return Ok((
            way,
            format!("This machine would {verb} the process {}, which serves {name}", process.name),
            runs != is_wanted,
        ));
    }
    let hosts = managed.servers.hosts(place).await?;
    let host = host_of(&hosts, fs, target)?.name.clone();
    let change = HostChange::WantTarget { target, is_wanted };
    let answer = managed.servers.change_host(place, &host, change, true).await?;
    let would = match answer.changed {
        true => format!("{host} would {} {name}", action.verb()),
        false => format!("{host} was told before to {} {name}; nothing would change", action.verb()),
    };
    Ok((Way::Assigned { host, is_wanted }, would, answer.changed))
}

async fn shared_way(
    managed: &Managed,
    place: &FsLocation,
    name: &str,
    before: SharedTarget,
    action: Action,
) -> Result<(Way, String, bool)> {
    let target = before.target;
    let other = before.hosts.iter().map(|host| &host.host).find(|host| **host != before.owner);
    let to = match action {
        Action::Start | Action::Stop => None,
        Action::Failover => other.cloned(),
        Action::Failback => before.hosts.first().map(|host| host.host.clone()),
    };
    let change = match action {
        Action::Start | Action::Stop => SharedChange::Want { target, is_wanted: action == Action::Start },
        // A click cannot vouch that a host is off: only the command can.
        Action::Failover | Action::Failback => {
            SharedChange::Move { target, to: to.clone(), is_owner_off: false }
        }
    };
    let answer = managed.servers.change_shared(place, change.clone(), true).await?;
    let would = match (&to, answer.changed) {
        (_, false) => format!("{name} is as you ask already; nothing would change"),
        (Some(to), true) => format!("{name} would move from {} to {to}", before.owner),
        (None, true) => format!("{} would {} {name}", before.owner, action.verb()),
    };
    Ok((Way::Shared { change, from: before.owner, to }, would, answer.changed))
}

fn effects(action: Action, role: Role) -> Vec<String> {
    let text = match (action, role) {
        (Action::Start, Role::Ost) => "Programs that wait for files on it go on.",
        (Action::Start, _) => {
            "Programs that wait for names go on, after clients have told it what they had open."
        }
        (Action::Stop, Role::Ost) => {
            "Files on it cannot be read or written until it is started again: programs wait, and get no error. Other files are not concerned."
        }
        (Action::Stop, _) => {
            "Names cannot be looked up or changed until it is started again: programs wait, and get no error. Open files go on."
        }
        (Action::Failover | Action::Failback, _) => {
            "Programs that use it wait while it moves, usually some seconds, and get no error."
        }
    };
    vec![text.to_owned(), "Data that was acknowledged is safe.".to_owned()]
}

fn command(managed: &Managed, place: &FsLocation, way: &Way, action: Action, name: &str) -> String {
    match (way, managed.dev_dir()) {
        (Way::Process { name, is_wanted }, Some(dir)) => {
            let verb = if *is_wanted { "start" } else { "stop" };
            format!("brindle dev {verb} --dir {} {name}", dir.display())
        }
        _ => format!("brindle target {} {name} {}", action.verb(), managed.place_word(place)),
    }
}

/// Carries a plan out, and waits for its end; the result in a sentence.
pub async fn carry_out(managed: &Managed, plan: &Plan, tell: &Tell) -> Result<String> {
    let (servers, name) = (&managed.servers, &plan.view.target);
    match &plan.way {
        Way::Process { name: process, is_wanted } => dev_process(managed, process, *is_wanted, tell).await,
        Way::Assigned { host, is_wanted } => {
            let change = HostChange::WantTarget { target: plan.target, is_wanted: *is_wanted };
            servers.change_host(&plan.place, host, change, false).await?;
            tell(format!("{host} was told"));
            let progress = |view: &hosts::HostedView| tell(format!("{name}: {}", view.state));
            let at = (host.as_str(), plan.target);
            let waited = until_hosted(servers, &plan.place, &plan.fs, at, HOSTED_LIMIT_MS, progress).await;
            let (view, failure) = waited?;
            hosts::outcome(&view, failure, host, plan.target)?;
            Ok(format!("{name}: {} on {host}", view.state))
        }
        Way::Shared { change, from, to } => {
            servers.change_shared(&plan.place, change.clone(), false).await?;
            tell(match to {
                Some(to) => format!("from {from} to {to}"),
                None => format!("{from} was told"),
            });
            let progress =
                |view: &shared::SharedView| tell(format!("{name}: {} on {}", view.state, view.owner));
            let at = (plan.target, to.as_deref());
            let view = until_settled(servers, &plan.place, &plan.fs, at, SETTLED_LIMIT_MS, progress).await?;
            shared::outcome(&view, to.as_deref(), plan.target)?;
            Ok(format!("{name}: {} on {}", view.state, view.owner))
        }
    }
}

/// Starts or ends a process of a development cluster, on a thread that may wait.
async fn dev_process(managed: &Managed, name: &str, is_wanted: bool, tell: &Tell) -> Result<String> {
    let bug = |why: &str| Fault::new(Code::Bug).why(why.to_owned());
    let dir = managed.dev_dir().ok_or_else(|| bug("a process of no development cluster"))?.clone();
    let host = Host::with(managed.servers.clone(), tokio::runtime::Handle::current())?;
    let (name, tell) = (name.to_owned(), tell.clone());
    let work = move || {
        let hear = |event: Event| match event {
            Event::Waits(fault) => tell(format!("waiting for {}", fault.subject)),
            Event::Warning(fault) => tell(format!("warning: {fault}")),
            Event::Serves { .. }
            | Event::Runs { .. }
            | Event::Mounted { .. }
            | Event::Manages { .. }
            | Event::Agent { .. }
            | Event::Policy { .. }
            | Event::Stores { .. }
            | Event::NotTold(_) => {}
        };
        let on = On { host: &host, dir, tell: &hear };
        if is_wanted {
            return on.start(&name).map(|started| match started {
                Started::Before(pid) => format!("{name} runs already (process {pid})"),
                Started::Now { waits: false } => format!("{name} serves again"),
                Started::Now { waits: true } => format!("{name} runs, and waits for other servers"),
            });
        }
        on.stop(&name).map(|stopped| match stopped {
            Killed::DidNotRun => format!("{name} did not run"),
            Killed::Now(pid) => format!("{name} has ended (process {pid})"),
        })
    };
    tokio::task::spawn_blocking(work).await.map_err(|e| bug(&e.to_string()))?
}
