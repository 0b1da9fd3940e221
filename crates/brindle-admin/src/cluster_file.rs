//! A cluster as a file: hosts, targets and pools in TOML, written by `brindle cluster export` and carried out by `brindle cluster apply`.
//!
//! Applying makes what is in the file and does not exist. Applying never removes: hosts, targets and pools that the file does not name
//! are left alone, and reported. A file can therefore be applied again at any time.

use std::collections::BTreeMap;

use brindle_types::{Code, Fault, PoolName, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::PoolChange;
use brindle_wire::mgs::hosts::{HostChange, ListHostsResp};
use brindle_wire::mgs::replica::{MemberPlace, ReplicaSetChange, ReplicaSetState};
use brindle_wire::mgs::shared::{SharedChange, SharedHost, SharedTarget};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::known::Known;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// The file system.
    pub fs: String,
    /// Hosts.
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSection>,
    /// Targets.
    #[serde(default, rename = "target", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetSection>,
    /// Pools.
    #[serde(default, rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolSection>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSection {
    /// Name of the host.
    pub name: String,
    /// Roles of the host.
    pub roles: Vec<String>,
    /// Rack of the host: copies of a target are in different ones as far as there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSection {
    /// `OST0003`, `MDT0000`.
    pub name: String,
    /// The host that serves it; of two that share it, the preferred one; of several that have copies, any of them.
    pub host: String,
    /// Directory of the target on its host.
    pub dir: String,
    /// The second host, where two share its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    /// The device that two hosts share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Name of the device on the second host, if it differs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_device: Option<String>,
    /// Whether it is not to be served now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Whether its copies may be in one rack, although there are several.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_rack: bool,
    /// Copies of the target on other hosts.
    #[serde(default, rename = "copy", skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopySection>,
}

/// A copy of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySection {
    /// The host that has it.
    pub host: String,
    /// Directory of the copy on its host.
    pub dir: String,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSection {
    /// Name of the pool.
    pub name: String,
    /// OSTs of the pool, by name.
    pub osts: Vec<String>,
}

/// The steps that make the cluster as a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Hosts that get a rack.
    pub racks: Vec<(String, String)>,
    /// Changes of targets, in order: the host, the target, the change.
    pub targets: Vec<(String, TargetId, Step)>,
    /// Changes of pools, in order.
    pub pools: Vec<(PoolName, PoolChange)>,
    /// Steps that an administrator has to take by hand, and parts of the cluster that the file does not name.
    pub notes: Vec<Note>,
}

/// A change of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Change of a target of a single host.
    Host(HostChange),
    /// Change of a target that two hosts share.
    Shared(SharedChange),
    /// Change of a target with copies.
    Replicas(ReplicaSetChange),
}

impl Step {
    /// Whether the target is made.
    pub fn makes(&self) -> bool {
        matches!(self, Step::Host(HostChange::AddTarget { .. }) | Step::Shared(SharedChange::Add { .. }))
            || self.sets_up_copies()
    }

    fn sets_up_copies(&self) -> bool {
        let Step::Replicas(change) = self else { return false };
        let (change, _) = change.unwrapped();
        matches!(change, ReplicaSetChange::Create { .. } | ReplicaSetChange::CreateMdt { .. })
    }
}

/// Hint about work that `cluster apply` does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An administrator has to do something first.
    Missing(String),
    /// A part of the cluster that the file does not name.
    LeftAlone(String),
}

/// The steps that make the cluster as a file says, for programs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApplyView {
    /// Changes, in order, in words.
    pub changes: Vec<String>,
    /// Steps to take by hand first.
    pub missing: Vec<String>,
    /// Parts of the cluster that the file does not name.
    pub left_alone: Vec<String>,
    /// Whether the changes were made.
    pub done: bool,
}
document!(ApplyView, "brindle.cluster.apply", 1);

/// The present cluster.
pub fn export(known: &Known) -> ClusterFile {
    let Known { map, hosts, shared, replicas } = known;
    let words = |text: &str| text.split(',').map(str::to_owned).collect();
    let host_sections = hosts.hosts.iter().map(|host| HostSection {
        name: host.name.clone(),
        roles: words(&host.roles),
        rack: rack_of(map, &host.name),
    });
    let mut targets: Vec<TargetSection> = Vec::new();
    for host in &hosts.hosts {
        // The MGT is no target of the file: init and target add --mgt make it.
        let assigned = host.assignments.iter().filter(|a| a.target.role != Role::Mgt);
        targets.extend(assigned.map(|a| TargetSection {
            name: a.target.to_string(),
            host: host.name.clone(),
            dir: a.dir.clone(),
            standby: None,
            device: None,
            standby_device: None,
            stopped: !a.is_wanted,
            same_rack: false,
            copies: Vec::new(),
        }));
    }
    targets.extend(shared.targets.iter().map(|info| shared_section(&info.target)));
    targets.extend(replicas.sets.iter().filter_map(|info| replicated_section(map, &info.set)));
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    let pools = map.pools.iter().map(|pool| PoolSection {
        name: pool.name.to_string(),
        osts: pool.osts.iter().map(|index| TargetId::ost(*index).to_string()).collect(),
    });
    ClusterFile { fs: map.fs.to_string(), hosts: host_sections.collect(), targets, pools: pools.collect() }
}

fn shared_section(t: &SharedTarget) -> TargetSection {
    let device = t.hosts.first().map(|host| host.device.clone());
    let second = t.hosts.get(1);
    TargetSection {
        name: t.target.to_string(),
        host: t.hosts.first().map(|host| host.host.clone()).unwrap_or_default(),
        dir: t.dir.clone(),
        standby: second.map(|host| host.host.clone()),
        standby_device: second.map(|host| host.device.clone()).filter(|other| Some(other) != device.as_ref()),
        device,
        stopped: !t.is_wanted,
        same_rack: false,
        copies: Vec::new(),
    }
}

fn rack_of(map: &Map, host: &str) -> Option<String> {
    map.host(host).map(|entry| entry.failure_domain.clone()).filter(|rack| !rack.is_empty())
}

/// Whether two members of a set are in one rack.
fn shares_rack(map: &Map, set: &ReplicaSetState) -> bool {
    let mut racks: Vec<String> = set.members.iter().filter_map(|m| rack_of(map, &m.host)).collect();
    racks.sort_unstable();
    racks.windows(2).any(|pair| pair[0] == pair[1])
}

fn replicated_section(map: &Map, set: &ReplicaSetState) -> Option<TargetSection> {
    let mut copies = set
        .members
        .iter()
        .map(|m| CopySection { host: m.host.clone(), dir: m.dir.clone() })
        .collect::<Vec<_>>();
    copies.sort_by(|a, b| a.host.cmp(&b.host));
    if copies.is_empty() {
        return None;
    }
    let CopySection { host, dir } = copies.remove(0);
    Some(TargetSection {
        name: set.target.to_string(),
        host,
        dir,
        standby: None,
        device: None,
        standby_device: None,
        stopped: false,
        same_rack: shares_rack(map, set),
        copies,
    })
}

/// The difference between a file and the cluster. Refuses a file that contradicts the cluster, or itself.
pub fn plan(file: &ClusterFile, known: &Known) -> Result<Plan> {
    let Known { map, hosts, .. } = known;
    if file.fs != map.fs.as_str() {
        return Err(refuse(&file.fs, format!("the cluster has the file system {}", map.fs)));
    }
    let mut plan = Plan::default();
    plan_hosts(file, hosts, &mut plan)?;
    plan_racks(file, known, &mut plan);
    plan_targets(file, known, &mut plan)?;
    plan_pools(file, map, &mut plan)?;
    Ok(plan)
}

fn plan_hosts(file: &ClusterFile, hosts: &ListHostsResp, plan: &mut Plan) -> Result<()> {
    let mut named = BTreeMap::new();
    for section in &file.hosts {
        if named.insert(&section.name, section).is_some() {
            return Err(refuse(&section.name, "the file names the host twice".to_owned()));
        }
        let roles = section.roles.join(",");
        let token = format!("brindle cluster token --role {roles} --host {}", section.name);
        match hosts.hosts.iter().find(|host| host.name == section.name) {
            None => plan.notes.push(Note::Missing(format!(
                "host {} has not joined: {token} | ssh {} brindle join",
                section.name, section.name
            ))),
            Some(host) if !same_roles(&host.roles, &section.roles) => {
                plan.notes.push(Note::Missing(format!(
                    "host {} has joined as {}, not as {roles}: {token} | ssh {} brindle join --again",
                    host.name, host.roles, host.name
                )));
            }
            Some(_) => {}
        }
    }
    let others = hosts.hosts.iter().filter(|host| !named.contains_key(&host.name));
    plan.notes.extend(others.map(|host| Note::LeftAlone(format!("host {}", host.name))));
    Ok(())
}

/// Racks that hosts get. A file that names none leaves those alone that are there.
fn plan_racks(file: &ClusterFile, known: &Known, plan: &mut Plan) {
    for section in &file.hosts {
        let Some(rack) = &section.rack else { continue };
        let has_joined = known.hosts.hosts.iter().any(|host| host.name == section.name);
        if has_joined && rack_of(&known.map, &section.name).unwrap_or_default() != *rack {
            plan.racks.push((section.name.clone(), rack.clone()));
        }
    }
}

fn same_roles(joined: &str, wanted: &[String]) -> bool {
    let mut joined: Vec<&str> = joined.split(',').collect();
    let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    joined.sort_unstable();
    wanted.sort_unstable();
    joined == wanted
}

fn plan_targets(file: &ClusterFile, known: &Known, plan: &mut Plan) -> Result<()> {
    let there = export(known).targets;
    let mut named = BTreeMap::new();
    for section in &file.targets {
        let target: TargetId = section.name.parse().map_err(|why| refuse(&section.name, why))?;
        if target.role == Role::Mgt {
            return Err(refuse(&section.name, "the MGT is made by brindle cluster init".to_owned()));
        }
        if named.insert(target.to_string(), section).is_some() {
            return Err(refuse(&section.name, "the file names the target twice".to_owned()));
        }
        section.check()?;
        let has_joined = |name: &String| known.hosts.hosts.iter().any(|joined| joined.name == *name);
        let absent = section.hosts().into_iter().find(|name| !has_joined(name));
        let is = there.iter().find(|is| is.name == target.to_string());
        if let Some(is) = is.filter(|is| absent.is_none_or(|host| is.hosts().contains(&host))) {
            plan_known_target(section, is, target, plan)?;
        } else if is.is_none() && known.map.target(target).is_some() {
            let why = "it is served by brindle serve --dir, and no host was told to serve it".to_owned();
            return Err(refuse(&section.name, why).next("leave it out of the file"));
        } else if let Some(host) = absent {
            plan.notes
                .push(Note::Missing(format!("target {target} needs the host {host}, which has not joined")));
        } else {
            plan.targets.push((section.host.clone(), target, section.add(target)));
            if section.stopped {
                plan.targets.push((section.host.clone(), target, section.want(target, false)));
            }
        }
    }
    let others = there.iter().filter(|known| !named.contains_key(&known.name));
    plan.notes.extend(others.map(|known| Note::LeftAlone(format!("target {}", known.name))));
    Ok(())
}

/// A target that is there already: it is started, stopped, or gets copies.
fn plan_known_target(
    section: &TargetSection,
    is: &TargetSection,
    target: TargetId,
    plan: &mut Plan,
) -> Result<()> {
    let (wanted, there) = (section.places(), is.places());
    let moved = wanted.iter().any(|(host, dir)| there.get(host).is_some_and(|at| at != dir));
    let devices = |t: &TargetSection| (t.standby.clone(), t.device.clone(), t.standby_device.clone());
    if moved || devices(section) != devices(is) || !wanted.keys().any(|host| there.contains_key(host)) {
        let why = format!("it is {}, and the file says {}", is.place(), section.place());
        return Err(refuse(&section.name, why).next("targets do not move to another host or directory yet"));
    }
    for (host, dir) in wanted.iter().filter(|(host, _)| !there.contains_key(*host)) {
        let place = MemberPlace { host: (*host).to_owned(), dir: (*dir).to_owned() };
        let add = ReplicaSetChange::Add { target, place };
        let step = Step::Replicas(add.in_same_rack(section.same_rack));
        plan.targets.push(((*host).to_owned(), target, step));
    }
    let others = there.keys().filter(|host| !wanted.contains_key(*host));
    plan.notes.extend(others.map(|host| Note::LeftAlone(format!("copy of {target} on {host}"))));
    if is.stopped != section.stopped {
        plan.targets.push((section.host.clone(), target, section.want(target, !section.stopped)));
    }
    Ok(())
}

impl TargetSection {
    /// Refuses what contradicts itself.
    fn check(&self) -> Result<()> {
        if self.standby.is_some() != self.device.is_some() {
            return Err(refuse(&self.name, "'standby' and 'device' go together".to_owned()));
        }
        if self.standby.is_some() && !self.copies.is_empty() {
            return Err(refuse(&self.name, "a target has either copies or a standby host".to_owned()));
        }
        if self.stopped && !self.copies.is_empty() {
            return Err(refuse(&self.name, "a target with copies cannot be stopped".to_owned()));
        }
        if self.places().len() <= self.copies.len() {
            return Err(refuse(&self.name, "each copy needs a host of its own".to_owned()));
        }
        Ok(())
    }

    /// Hosts that it names.
    fn hosts(&self) -> Vec<&String> {
        std::iter::once(&self.host).chain(&self.standby).chain(self.copies.iter().map(|c| &c.host)).collect()
    }

    /// Directories of all copies, the first one included, by host.
    fn places(&self) -> BTreeMap<&str, &str> {
        let others = self.copies.iter().map(|copy| (copy.host.as_str(), copy.dir.as_str()));
        std::iter::once((self.host.as_str(), self.dir.as_str())).chain(others).collect()
    }

    /// Location of the target, in words.
    fn place(&self) -> String {
        match (&self.standby, &self.device) {
            (Some(standby), Some(device)) => {
                format!("on {} and {standby} from {device} in {}", self.host, self.dir)
            }
            _ => {
                let places = self.places();
                let places: Vec<String> =
                    places.iter().map(|(host, dir)| format!("{host} in {dir}")).collect();
                format!("on {}", places.join(" and on "))
            }
        }
    }

    fn add(&self, target: TargetId) -> Step {
        let (is_mdt, index, dir) = (target.role == Role::Mdt, Some(target.index), self.dir.clone());
        if !self.copies.is_empty() {
            let place =
                |(host, dir): (&String, &String)| MemberPlace { host: host.clone(), dir: dir.clone() };
            let others = self.copies.iter().map(|copy| (&copy.host, &copy.dir));
            let places = std::iter::once((&self.host, &self.dir)).chain(others).map(place).collect();
            let create = match target.role {
                Role::Mdt => ReplicaSetChange::CreateMdt { index, places },
                _ => ReplicaSetChange::Create { index, places },
            };
            return Step::Replicas(create.in_same_rack(self.same_rack));
        }
        let (Some(standby), Some(device)) = (&self.standby, &self.device) else {
            return Step::Host(HostChange::AddTarget { is_mdt, index, dir });
        };
        let second = self.standby_device.as_ref().unwrap_or(device);
        let hosts = [(&self.host, device), (standby, second)]
            .map(|(host, device)| SharedHost { host: host.clone(), device: device.clone() });
        Step::Shared(SharedChange::Add { is_mdt, index, hosts: hosts.to_vec(), dir })
    }

    fn want(&self, target: TargetId, is_wanted: bool) -> Step {
        match self.standby {
            Some(_) => Step::Shared(SharedChange::Want { target, is_wanted }),
            None => Step::Host(HostChange::WantTarget { target, is_wanted }),
        }
    }
}

fn plan_pools(file: &ClusterFile, map: &Map, plan: &mut Plan) -> Result<()> {
    let mut named = BTreeMap::new();
    for section in &file.pools {
        let name: PoolName = section.name.parse().map_err(|why| refuse(&section.name, why))?;
        if named.insert(name.clone(), section).is_some() {
            return Err(refuse(&section.name, "the file names the pool twice".to_owned()));
        }
        let mut wanted = Vec::new();
        for ost in &section.osts {
            let target: TargetId = ost.parse().map_err(|why| refuse(ost, why))?;
            let is_made = plan.targets.iter().any(|(_, made, _)| *made == target);
            match (target.role, map.target(target).is_some() || is_made) {
                (Role::Ost, true) => wanted.push(target.index),
                (Role::Ost, false) => {
                    plan.notes.push(Note::Missing(format!("pool {name} needs {target}, which is not there")))
                }
                _ => return Err(refuse(ost, format!("the pool {name} has OSTs only"))),
            }
        }
        let there = map.pool(&name).map(|pool| pool.osts.clone());
        if there.is_none() {
            plan.pools.push((name.clone(), PoolChange::Create));
        }
        let there = there.unwrap_or_default();
        let missing: Vec<u16> = wanted.iter().copied().filter(|index| !there.contains(index)).collect();
        let others: Vec<u16> = there.iter().copied().filter(|index| !wanted.contains(index)).collect();
        if !missing.is_empty() {
            plan.pools.push((name.clone(), PoolChange::Add(missing)));
        }
        if !others.is_empty() {
            plan.pools.push((name, PoolChange::Remove(others)));
        }
    }
    let others = map.pools.iter().filter(|pool| !named.contains_key(&pool.name));
    plan.notes.extend(others.map(|pool| Note::LeftAlone(format!("pool {}", pool.name))));
    Ok(())
}

fn refuse(subject: &str, why: String) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot apply the file:")
        .subject(subject.to_owned())
        .why(why)
        .data("nothing was changed")
        .next("see what there is: brindle cluster export")
}

fn copies_in_words(change: &ReplicaSetChange, target: TargetId, host: &str) -> String {
    match change {
        ReplicaSetChange::Create { places, .. } | ReplicaSetChange::CreateMdt { places, .. } => {
            let places: Vec<String> =
                places.iter().map(|place| format!("on {} in {}", place.host, place.dir)).collect();
            format!("make {target} with copies {}", places.join(", "))
        }
        ReplicaSetChange::Add { place, .. } => {
            format!("give {target} a copy on {} in {}", place.host, place.dir)
        }
        _ => format!("change the copies of {target} on {host}"),
    }
}

impl Plan {
    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.racks.is_empty() && self.targets.is_empty() && self.pools.is_empty()
    }

    /// The plan in words.
    pub fn view(&self, done: bool) -> ApplyView {
        let targets = self.targets.iter().map(|(host, target, step)| match step {
            Step::Host(HostChange::AddTarget { dir, .. }) => format!("make {target} on {host} in {dir}"),
            Step::Shared(SharedChange::Add { hosts, dir, .. }) => {
                let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
                let device = hosts.first().map_or("", |host| host.device.as_str());
                format!("make {target} on {} from {device} in {dir}", names.join(" and "))
            }
            Step::Replicas(change) => copies_in_words(change.unwrapped().0, *target, host),
            Step::Host(HostChange::WantTarget { is_wanted: true, .. })
            | Step::Shared(SharedChange::Want { is_wanted: true, .. }) => format!("start {target} on {host}"),
            _ => format!("stop {target} on {host}"),
        });
        let racks = self.racks.iter().map(|(host, rack)| match rack.as_str() {
            "" => format!("take {host} out of its rack"),
            rack => format!("put {host} into the rack {rack}"),
        });
        let names = |osts: &[u16]| {
            osts.iter().map(|index| TargetId::ost(*index).to_string()).collect::<Vec<_>>().join(", ")
        };
        let pools = self.pools.iter().map(|(pool, change)| match change {
            PoolChange::Add(osts) => format!("add {} to the pool {pool}", names(osts)),
            PoolChange::Remove(osts) => {
                format!("take {} out of the pool {pool}; files stay where they are", names(osts))
            }
            PoolChange::Create | PoolChange::Destroy { .. } => format!("make the pool {pool}"),
        });
        let (mut missing, mut left_alone) = (Vec::new(), Vec::new());
        for note in &self.notes {
            match note {
                Note::Missing(text) => missing.push(text.clone()),
                Note::LeftAlone(text) => left_alone.push(text.clone()),
            }
        }
        ApplyView { changes: racks.chain(targets).chain(pools).collect(), missing, left_alone, done }
    }
}

#[cfg(test)]
mod tests;
