//! Rolling restart: the daemons of hosts start anew one after the other, while programs go on.
//!
//! ```text
//! wait until every target that has a part on the host is complete elsewhere, too
//! -> targets that share a device move to their other host -> the daemon starts anew -> everything it serves answers
//! -> copies are in sync again -> what was moved comes back -> the next host
//! ```
//!
//! If a host does not come back, the restart ends: the remaining hosts go on as they are.

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::mgs::hosts::{HostInfo, RestartHostReq};
use brindle_wire::mgs::shared::SharedChange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::hosts::{self, one};
use crate::known::Known;
use crate::place::FsLocation;
use crate::replica;
use crate::servers::Servers;
use crate::shared::{self, until_settled};

/// Longest time until a host is ready for the restart, and until it serves everything again.
pub const HOST_LIMIT_MS: u64 = 120_000;
/// Interval between two looks at the host.
const LOOK_EVERY_MS: u64 = 300;

/// A restart of hosts.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct RestartView {
    /// Hosts that have started anew, in order.
    pub hosts: Vec<RestartedView>,
}
document!(RestartView, "brindle.cluster.restart", 1);

/// A host that has started anew.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RestartedView {
    /// Name of the host.
    pub host: String,
    /// Full names of targets that its partner served meanwhile.
    pub moved: Vec<String>,
    /// From the order until it served everything again, seconds.
    pub seconds: f64,
}

/// Step of a restart, as the listener hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartStep {
    /// The host is not ready for it yet: why.
    Waits(String),
    /// A target moves.
    Moves {
        /// Full name of the target.
        name: String,
        /// The host that takes it.
        to: String,
    },
    /// The daemon was told to start anew.
    Restarts,
}

/// The hosts that are asked for and run daemons, in the order in which they are to start anew: those of the MDT and of the MGS at the end.
pub fn order(known: &Known, is_asked: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for host in known.hosts.hosts.iter().filter(|host| is_asked(&host.name)) {
        let view = hosts::view(known, host);
        match view.state {
            "joined" => continue,
            "silent" => return Err(silent(&host.name)),
            _ => found.push((weight(known, &host.name), host.name.clone())),
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

fn weight(known: &Known, host: &str) -> u8 {
    let of = |entry: &brindle_wire::map::TargetEntry| match entry.id.role {
        Role::Ost => 0,
        Role::Mdt => 1,
        Role::Mgt => 2,
    };
    known.map.targets.iter().filter(|entry| entry.host() == host).map(of).max().unwrap_or(0)
}

fn silent(host: &str) -> Fault {
    Fault::new(Code::TargetDown)
        .what("cannot start anew:")
        .subject(host.to_owned())
        .why("its daemon is silent, or of a release that cannot be told to")
        .data("nothing was changed")
        .next(format!("on {host}: systemctl restart brindle-serve; then begin again"))
}

/// Restarts the daemon of one host, and waits until it serves everything again.
pub async fn restart(
    servers: &Servers,
    place: &FsLocation,
    host: &str,
    mut tell: impl FnMut(RestartStep),
) -> Result<RestartedView> {
    let known = until_ready(servers, place, host, &mut tell).await?;
    let fs = &known.map.fs;
    let moves = to_move(&known, host);
    for (target, to) in &moves {
        tell(RestartStep::Moves { name: fs.target(*target), to: to.clone() });
        shift(servers, place, &known, *target, to).await?;
    }
    let seams = servers.seams().clone();
    let since = seams.now();
    let ask = |start| RestartHostReq { host: host.to_owned(), start };
    let start = servers.ask_the_mgs(place, &ask(None)).await?.start.ok_or_else(|| silent(host))?;
    servers.ask_the_mgs(place, &ask(Some(start))).await?;
    tell(RestartStep::Restarts);
    let moved: Vec<TargetId> = moves.iter().map(|(target, _)| *target).collect();
    until_back(servers, place, host, (start, &moved)).await?;
    let seconds = seams.now().ms_since(since) as f64 / 1000.0;
    for (target, _) in &moves {
        tell(RestartStep::Moves { name: fs.target(*target), to: host.to_owned() });
        shift(servers, place, &known, *target, host).await?;
    }
    let moved = moves.iter().map(|(target, _)| fs.target(*target)).collect();
    Ok(RestartedView { host: host.to_owned(), moved, seconds })
}

/// Waits until nothing depends on this host alone that has a part elsewhere.
async fn until_ready(
    servers: &Servers,
    place: &FsLocation,
    host: &str,
    tell: &mut impl FnMut(RestartStep),
) -> Result<Known> {
    let (seams, mut last) = (servers.seams().clone(), None);
    let deadline = seams.now().plus_ms(HOST_LIMIT_MS);
    loop {
        let known = servers.known(place).await?;
        let Some(why) = not_ready(&known, host) else { return Ok(known) };
        if seams.now() >= deadline {
            return Err(Fault::new(Code::Degraded)
                .what("is not started anew:")
                .subject(host.to_owned())
                .why(why)
                .data("this host was not touched")
                .next("see what is wrong: brindle status"));
        }
        if last.as_ref() != Some(&why) {
            tell(RestartStep::Waits(why.clone()));
            last = Some(why);
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Reason why a host must not be restarted yet; `None` if it may be.
fn not_ready(known: &Known, host: &str) -> Option<String> {
    let fs = &known.map.fs;
    let of_sets = known.replicas.sets.iter().filter(|info| info.set.member(host).is_some());
    for view in of_sets.map(|info| replica::view(fs, info)) {
        if view.state != "serving" {
            return Some(format!("{} is {}: this may be its only complete copy", view.name, view.state));
        }
        if let Some(member) = view.members.iter().find(|member| member.state != "up") {
            return Some(format!("the copy of {} on {} is {}", view.name, member.host, member.state));
        }
    }
    let on_host = |hosts: &[shared::SharedHostView]| hosts.iter().any(|own| own.host == host);
    let shared = known.shared.targets.iter().map(|info| shared::view(fs, info));
    let mut unsettled =
        shared.filter(|view| on_host(&view.hosts) && !matches!(view.state, "serving" | "stopped"));
    unsettled.next().map(|view| format!("{} is {}", view.name, view.state))
}

/// Targets that the host serves and another one can serve meanwhile.
fn to_move(known: &Known, host: &str) -> Vec<(TargetId, String)> {
    let mut moves = Vec::new();
    for info in known.shared.targets.iter().filter(|info| info.target.owner == host && info.target.is_wanted)
    {
        let view = shared::view(&known.map.fs, info);
        let other = view.hosts.iter().find(|own| own.host != host && own.state == "standby");
        moves.extend(other.map(|other| (info.target.target, other.host.clone())));
    }
    moves
}

async fn shift(
    servers: &Servers,
    place: &FsLocation,
    known: &Known,
    target: TargetId,
    to: &str,
) -> Result<()> {
    let change = SharedChange::Move { target, to: Some(to.to_owned()), is_owner_off: false };
    servers.change_shared(place, change, false).await?;
    let fs = &known.map.fs;
    let view =
        until_settled(servers, place, fs, (target, Some(to)), shared::SETTLED_LIMIT_MS, |_| {}).await?;
    shared::outcome(&view, Some(to), target)
}

/// Waits until a start of the daemon later than `start` serves everything, and can take moved targets back.
async fn until_back(
    servers: &Servers,
    place: &FsLocation,
    host: &str,
    (start, moved): (u64, &[TargetId]),
) -> Result<()> {
    let seams = servers.seams().clone();
    let deadline = seams.now().plus_ms(HOST_LIMIT_MS);
    loop {
        let why = match missing(servers, place, host, (start, moved)).await {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why,
            // The MGS may be what starts.
            Err(fault) => fault.to_string(),
        };
        if seams.now() >= deadline {
            return Err(Fault::new(Code::TargetDown)
                .what("has not come back:")
                .subject(host.to_owned())
                .why(why)
                .data(
                    "nothing is lost; programs wait for what it serves. The hosts behind it were not touched",
                )
                .next(format!("on {host}: systemctl status brindle-serve, journalctl -u brindle-serve")));
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// The first part of the host that is not back; `None` once all are.
async fn missing(
    servers: &Servers,
    place: &FsLocation,
    host: &str,
    (start, moved): (u64, &[TargetId]),
) -> Result<Option<String>> {
    // The order again: it is for that start alone, and another MGS may be active by now.
    let ask = RestartHostReq { host: host.to_owned(), start: Some(start) };
    // The former process became the present one, so what answers from here on is served by that.
    if servers.ask_the_mgs(place, &ask).await?.start.is_none_or(|now| now == start) {
        return Ok(Some(format!("the daemon of {host} has not told that it has started")));
    }
    let known = servers.known(place).await?;
    for target in own_targets(&known, one(&known.hosts, host)?) {
        let Some(entry) = known.map.target(target) else { continue };
        let name = known.map.fs.target(target);
        match servers.info(&known.map, entry).await {
            Ok(info) if matches!(info.state.as_str(), "starting" | "recovering") => {
                return Ok(Some(format!("{name} is {}", info.state)));
            }
            Ok(_) => {}
            Err(fault) => return Ok(Some(format!("{name} does not answer: {fault}"))),
        }
    }
    Ok(not_back(&known, host, moved).or_else(|| not_ready(&known, host)))
}

/// A target that was moved and that the host could not take back yet.
fn not_back(known: &Known, host: &str, moved: &[TargetId]) -> Option<String> {
    let shared = known.shared.targets.iter().filter(|info| moved.contains(&info.target.target));
    let waits = shared.map(|info| shared::view(&known.map.fs, info)).find(|view| {
        !view.hosts.iter().any(|own| own.host == host && matches!(own.state, "standby" | "owner"))
    });
    waits.map(|view| format!("{host} does not stand by for {} yet", view.name))
}

/// Targets that only this host has, and the MGT if it has one.
fn own_targets(known: &Known, host: &HostInfo) -> Vec<TargetId> {
    let is_set = |target| known.replicas.sets.iter().any(|info| info.set.target == target);
    let assigned = host.assignments.iter().filter(|a| a.is_wanted && !is_set(a.target)).map(|a| a.target);
    let mgt = known.map.target(TargetId::MGT).filter(|mgt| mgt.host() == host.name).map(|mgt| mgt.id);
    assigned.filter(|target| target.role != Role::Mgt).chain(mgt).collect()
}

#[cfg(test)]
mod tests {
    use brindle_wire::mgs::replica::MemberRole;

    use super::*;
    use crate::known::fixture::{cluster, shared, with_copies};

    fn heard(mut known: Known) -> Known {
        known.hosts.hosts.iter_mut().for_each(|host| host.heard_ms_ago = Some(100));
        known
    }

    #[test]
    fn hosts_of_osts_come_first_and_a_silent_one_stops_everything() {
        let mut known = heard(with_copies(cluster()));
        known.hosts.hosts[0].heard_ms_ago = None;
        let mut mgs = known.map.targets[0].clone();
        mgs.id = TargetId::MGT;
        known.map.targets.push(mgs);
        assert_eq!(
            order(&known, |_| true),
            Ok(vec!["oss2".to_owned(), "oss1".to_owned()]),
            "c1 is a client, oss1 has the MGT"
        );
        known.hosts.hosts[1].heard_ms_ago = None;
        assert_eq!(order(&known, |host| host == "oss2"), Ok(vec!["oss2".to_owned()]), "nobody asks for oss1");
        let fault = order(&known, |_| true).unwrap_err();
        assert!(fault.subject == "oss1" && fault.next.contains("systemctl restart"), "{fault}");
    }

    #[test]
    fn a_host_with_the_only_complete_copy_goes_on() {
        let mut known = heard(with_copies(cluster()));
        known.replicas.sets[0].set.members[1].role = MemberRole::Learner;
        assert!(not_ready(&known, "oss2").is_some_and(|why| why.contains("OST0003")));
        assert!(not_ready(&known, "oss1").is_some(), "it is being filled");
        known.replicas.sets.clear();
        assert_eq!(not_ready(&known, "oss2"), None);
        assert_eq!(
            not_back(&shared(), "oss1", &[TargetId::ost(7)]).map(|why| why.contains("OST0007")),
            Some(true)
        );
        assert_eq!(not_back(&shared(), "oss1", &[]), None);
    }

    #[test]
    fn targets_move_to_a_host_that_stands_by_and_to_no_other() {
        let known = heard(shared());
        assert_eq!(to_move(&known, "c1"), [], "oss1 was not heard of");
        assert!(not_ready(&known, "c1").is_some_and(|why| why.contains("silent")));
        assert_eq!(own_targets(&known, &known.hosts.hosts[1]), [TargetId::ost(0), TargetId::ost(1)]);
    }
}
