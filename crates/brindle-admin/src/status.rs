//! The health of a file system: whether all is well, the problems, and their remedies, as the targets report them.

use std::collections::{BTreeMap, BTreeSet};

use brindle_targets::gate::ACCEPTS_ANYBODY;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::session::{ReleaseCount, TargetInfoResp};
use brindle_wire::mgs::durability::Mode;
use brindle_wire::mgs::replica::ListReplicasResp;
use brindle_wire::mgs::shared::ListSharedResp;
use brindle_wire::version::PROTOCOL_VERSION;
use futures_util::future::{join, join_all, join3};
use schemars::JsonSchema;
use serde::Serialize;

use crate::document::FaultView;
use crate::durability;
use crate::fullness::{self, Fullness};
use crate::place::FsLocation;
use crate::rails::{self, RailView};
use crate::replica::{self, ReplicaSetView};
use crate::scrub;
use crate::servers::Servers;
use crate::shared;
use crate::target::is_draining;

/// Words in the names of counters that count damage.
const DAMAGE: [&str; 3] = ["known_damaged", "known_missing", "quarantined"];
/// A word in the names of counters of what every crash may leave: blocks between the data of a write and its checksum.
const SETTLED: &str = "resummed";

/// A target with its answer, or its silence.
pub struct Target {
    /// The target in the map.
    pub entry: TargetEntry,
    /// Answer of the target, or the reason why there is none.
    pub info: Result<TargetInfoResp>,
}

/// A file system.
pub struct Report {
    /// The way to it.
    pub place: FsLocation,
    /// Map of the file system.
    pub map: Map,
    /// Targets of the file system, in the order of the map.
    pub targets: Vec<Target>,
    /// Targets on devices that two hosts reach; empty if the caller may not ask for them.
    pub shared: ListSharedResp,
    /// Replica sets; empty if the caller may not ask for them.
    pub replicas: ListReplicasResp,
    /// Rails of hosts that have several.
    pub rails: Vec<RailView>,
    /// Faults of the administrator's own host: mounts whose daemons have ended.
    pub here: Vec<Fault>,
}

/// File systems, and whether all is well.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// Whether no file system has a problem.
    pub healthy: bool,
    /// The file systems that were asked about.
    pub file_systems: Vec<FsView>,
}
document!(StatusView, "brindle.status", 1);

/// A file system.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FsView {
    /// Name of the file system.
    pub fs: String,
    /// Number of the file system, in hexadecimal digits.
    pub fs_id: String,
    /// `HEALTHY` or `DEGRADED`.
    pub state: &'static str,
    /// Version of its map.
    pub map_version: u64,
    /// Targets of the file system, in the order of the map.
    pub targets: Vec<TargetView>,
    /// Replica sets of the file system.
    pub replicas: Vec<ReplicaSetView>,
    /// Rails of hosts that have several, as they are reached from here.
    pub rails: Vec<RailView>,
    /// Problems.
    pub problems: Vec<FaultView>,
    /// Warnings: nothing is wrong yet, but will be if nobody looks.
    pub warnings: Vec<FaultView>,
}

/// A target.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetView {
    /// Full name, such as `scratch-OST0003`.
    pub name: String,
    /// `active`, `recovering`, `full`, `draining`, `unreachable` and so on.
    pub state: String,
    /// Addresses at which the target is served.
    pub addresses: Vec<String>,
    /// The host of its server.
    pub host: String,
    /// Epoch of the target in the map.
    pub epoch: u32,
    /// Term of the target: the number of its starts.
    pub term: u32,
    /// Clients that it knows.
    pub clients: u32,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available.
    pub available_bytes: u64,
    /// Moment at which its changes are answered: `relaxed`, `sync` or `scratch`; empty where it does not tell.
    pub durability: String,
    /// Release of its server; empty where it does not answer.
    pub version: String,
    /// Counters of the target, by name.
    pub counters: BTreeMap<String, u64>,
    /// Releases at the other ends of its connections.
    pub releases: Vec<ReleaseView>,
}

/// Connections of one release.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReleaseView {
    /// The release: `brindle 0.2.0`.
    pub software: String,
    /// Version of the protocol that is spoken with it.
    pub protocol: u16,
    /// Number of connections.
    pub connections: u32,
}

impl From<&ReleaseCount> for ReleaseView {
    fn from(count: &ReleaseCount) -> ReleaseView {
        let ReleaseCount { software, protocol, connections } = count.clone();
        ReleaseView { software, protocol, connections }
    }
}

impl Target {
    /// State of the target, in a word.
    pub fn state(&self, map: &Map) -> &str {
        match &self.info {
            Ok(info) if info.state == "active" && is_draining(map, &self.entry) => "draining",
            Ok(info) => &info.state,
            Err(_) => "unreachable",
        }
    }

    /// Moment at which its changes are answered, by name; empty where it does not tell.
    pub fn durability(&self) -> &'static str {
        self.info.as_ref().ok().and_then(durability::told).map_or("", Mode::name)
    }

    /// Whether an OST has its file system not to itself.
    pub fn shares_its_disk(&self) -> bool {
        self.info
            .as_ref()
            .is_ok_and(|info| info.counters.iter().any(|(name, n)| name == "shares_its_disk" && *n > 0))
    }

    /// Whether it accepts connections from other hosts that prove nothing.
    pub fn accepts_anybody(&self) -> bool {
        let is_local = |nid: &brindle_types::Nid| {
            let address = nid.host.parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback()) || nid.host == "localhost"
        };
        let counted =
            |info: &TargetInfoResp| info.counters.iter().any(|(name, n)| name == ACCEPTS_ANYBODY && *n > 0);
        !self.entry.nids.iter().all(is_local) && self.info.as_ref().is_ok_and(counted)
    }

    fn view(&self, map: &Map) -> TargetView {
        let info = self.info.as_ref().ok();
        TargetView {
            name: map.fs.target(self.entry.id),
            state: self.state(map).to_owned(),
            addresses: self.entry.nids.iter().map(ToString::to_string).collect(),
            host: self.entry.host().to_owned(),
            epoch: self.entry.epoch,
            term: info.map_or(0, |i| i.term),
            clients: info.map_or(0, |i| i.clients),
            total_bytes: info.map_or(0, |i| i.total_bytes),
            available_bytes: info.map_or(0, |i| i.available_bytes),
            durability: self.durability().to_owned(),
            version: info.map_or_else(String::new, |i| i.version.clone()),
            counters: info.map(|i| i.counters.iter().cloned().collect()).unwrap_or_default(),
            releases: info.map(|i| i.releases.iter().map(ReleaseView::from).collect()).unwrap_or_default(),
        }
    }
}

impl Report {
    /// Asks every target at once. An MGS that does not answer is one of the targets that are asked.
    pub async fn of(servers: &Servers, place: FsLocation) -> Result<Report> {
        let (map, _) = servers.map(&place).await?;
        let asking = map
            .targets
            .iter()
            .map(|entry| async { Target { entry: entry.clone(), info: servers.info(&map, entry).await } });
        let of_hosts = join(servers.shared(&place), servers.replicas(&place));
        let looking = rails::look(servers, &map, None);
        let (targets, (shared, replicas), rails) = join3(join_all(asking), of_hosts, looking).await;
        // Users and clients' hosts may not ask; an MGS that is away is reported as a target.
        let shared = shared.unwrap_or_else(|_| ListSharedResp { targets: Vec::new(), has_fence: true });
        let replicas = replicas.unwrap_or_else(|_| ListReplicasResp { sets: Vec::new() });
        Ok(Report { place, map, targets, shared, replicas, rails, here: Vec::new() })
    }

    /// Fullness of a target that answers and has space left; a full target is a problem of its own.
    fn fullness(&self, target: &Target) -> Fullness {
        let mdt = self.targets.iter().find(|t| t.entry.id.role == Role::Mdt);
        let mark = fullness::mark(mdt.and_then(|t| t.info.as_ref().ok()));
        match &target.info {
            Ok(info) if info.state != "full" => {
                fullness::of(target.entry.id.role, &self.map.fs.target(target.entry.id), info, mark)
            }
            _ => Fullness::Fine,
        }
    }

    /// Warnings: these become faults if nobody looks.
    pub fn warnings(&self) -> Vec<Fault> {
        let told = self.targets.iter().map(|target| self.fullness(target));
        let full = told.filter_map(|f| if let Fullness::FillsUp(fault) = f { Some(fault) } else { None });
        let mended = self.targets.iter().filter_map(|target| scrub::mended(&self.map, target));
        let of_hosts = shared::warnings(&self.map.fs, &self.shared);
        full.chain(of_hosts).chain(rails::warnings(&self.rails)).chain(mended).collect()
    }

    /// All problems of the file system.
    pub fn problems(&self) -> Vec<Fault> {
        let mut problems = self.here.clone();
        for target in &self.targets {
            let name = self.map.fs.target(target.entry.id);
            match &target.info {
                Ok(info) if info.state == "full" && info.problems.is_empty() => {
                    problems.push(full(target.entry.id.role, &name, info));
                }
                Ok(info) => problems.extend(info.problems.iter().cloned()),
                Err(fault) => problems.push(self.unreachable(target, &name, fault)),
            }
            if let Fullness::AboveMark(fault) = self.fullness(target) {
                problems.push(fault);
            }
        }
        problems.extend(replica::problems(&self.map.fs, &self.replicas));
        problems.extend(self.unsettled());
        for role in [Role::Mdt, Role::Ost] {
            if !self.targets.iter().any(|t| t.entry.id.role == role) {
                problems.push(
                    Fault::new(Code::UnknownTarget)
                        .what("there is no")
                        .subject(format!("{} of {}", role.name(), self.map.fs))
                        .next(format!(
                            "format and serve one: brindle format --{}",
                            role.name().to_lowercase()
                        )),
                );
            }
        }
        problems
    }

    /// Targets of which it is not known how they stand, after the configuration was restored: whether anybody serves them or not.
    fn unsettled(&self) -> impl Iterator<Item = Fault> {
        let shared = self.shared.targets.iter().filter_map(|info| info.hindrance.clone());
        let sets = self.replicas.sets.iter().filter_map(|info| info.hindrance.clone());
        shared.chain(sets).filter(|fault| fault.code == Code::RestoredTarget)
    }

    fn unreachable(&self, target: &Target, name: &str, fault: &Fault) -> Fault {
        let place = format!("{name} on {}", target.entry.host());
        let named = Fault::new(Code::TargetDown).what("does not answer:").subject(place);
        let named = fault.why.iter().cloned().fold(named, Fault::why);
        let shared = self.shared.targets.iter().find(|info| info.target.target == target.entry.id);
        let set = self.replicas.sets.iter().find(|info| info.set.target == target.entry.id);
        let hindrance = shared.and_then(|info| info.hindrance.as_ref());
        let hindrance = hindrance.or_else(|| set.and_then(|info| info.hindrance.as_ref()));
        // `unsettled` names targets that were restored.
        let hindrance = hindrance.filter(|fault| fault.code != Code::RestoredTarget);
        let named = hindrance.iter().flat_map(|fault| &fault.why).cloned().fold(named, Fault::why);
        let data = match target.entry.id.role {
            Role::Mgt => "files are not concerned; new mounts and restarted servers wait for it",
            Role::Mdt => {
                "operations on names wait until it is back; open files with their data on OSTs go on"
            }
            Role::Ost => "files on it wait until it is back; others go on",
        };
        let next = match &self.place.dev {
            Some(dev) if dev.of_hosts => format!(
                "brindle dev host list --dir {0}; if it is dead: brindle dev host start --dir {0} {1}",
                dev.dir.display(),
                target.entry.host()
            ),
            Some(dev) => {
                format!("start it: brindle dev start --dir {} {}", dev.dir.display(), dev_name(target))
            }
            None => match hindrance {
                Some(fault) if !fault.next.is_empty() => fault.next.to_string(),
                _ => format!("on {}: systemctl status brindle-serve", target.entry.host()),
            },
        };
        named.data(data).next(next)
    }

    /// Damage that the targets have counted, in words; empty for none.
    pub fn damage(&self) -> String {
        self.counted(&DAMAGE)
    }

    /// Writes that a crash cut short and that were settled, in words; empty for none.
    pub fn settled(&self) -> String {
        self.counted(&[SETTLED])
    }

    fn counted(&self, words: &[&str]) -> String {
        let mut lines = Vec::new();
        for target in &self.targets {
            let Ok(info) = &target.info else { continue };
            for (name, count) in &info.counters {
                if *count > 0 && words.iter().any(|word| name.contains(word)) {
                    lines.push(format!("{} {} {count}", info.name, name.trim_start_matches("known_")));
                }
            }
        }
        lines.join("; ")
    }

    /// Releases that speak an earlier version of the protocol with a server of the file system.
    pub fn earlier_releases(&self) -> Vec<String> {
        let infos = self.targets.iter().filter_map(|target| target.info.as_ref().ok());
        let earlier = infos.flat_map(|info| &info.releases).filter(|r| r.protocol < PROTOCOL_VERSION);
        let names: BTreeSet<String> =
            earlier.map(|r| format!("{} (protocol {})", r.software, r.protocol)).collect();
        names.into_iter().collect()
    }

    /// Replica sets of the file system.
    pub fn replica_sets(&self) -> Vec<ReplicaSetView> {
        self.replicas.sets.iter().map(|info| replica::view(&self.map.fs, info)).collect()
    }

    /// The file system as a document has it.
    pub fn view(&self) -> FsView {
        let problems = self.problems();
        FsView {
            fs: self.map.fs.to_string(),
            fs_id: format!("{:016x}", self.map.fs_id),
            state: state(&problems),
            map_version: self.map.version,
            targets: self.targets.iter().map(|t| t.view(&self.map)).collect(),
            replicas: self.replica_sets(),
            rails: self.rails.clone(),
            problems: problems.iter().map(FaultView::from).collect(),
            warnings: self.warnings().iter().map(FaultView::from).collect(),
        }
    }
}

fn full(role: Role, name: &str, info: &TargetInfoResp) -> Fault {
    let code = if role == Role::Mdt { Code::MdtFull } else { Code::OstFull };
    let left = format!("{} of {} left", format_bytes(info.available_bytes), format_bytes(info.total_bytes));
    Fault::new(code).subject(name.to_owned()).why(left).data("what was acknowledged is safe; removing works")
}

fn dev_name(target: &Target) -> String {
    match target.entry.id.role {
        Role::Mgt => "mgs".to_owned(),
        Role::Mdt => format!("mdt{}", target.entry.id.index),
        Role::Ost => format!("ost{}", target.entry.id.index),
    }
}

/// State of a file system with these problems, in a word.
pub fn state(problems: &[Fault]) -> &'static str {
    if problems.is_empty() { "HEALTHY" } else { "DEGRADED" }
}
