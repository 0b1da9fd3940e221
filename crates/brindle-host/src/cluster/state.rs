//! The state file of a development cluster: every process, image and mount point it consists of.
//!
//! `DIR/state.json`, replaced atomically. Commands that change it hold the lock of DIR meanwhile.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use brindle_auth::Mode;
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use serde::{Deserialize, Serialize};

use super::image::Kind;
use super::network::{Link, Network, Within};
use super::{Event, Tell};
use crate::process::Identity;
use crate::target_dir::DirLock;

/// Format of the file.
const VERSION: u32 = 1;
/// Name of the manager's process.
pub const MANAGER: &str = "manager";
/// Name of the file.
const FILE: &str = "state.json";

/// A development cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// Format of this file.
    pub version: u32,
    /// Name of the file system.
    pub fs: FsName,
    /// Server processes of the cluster: mgs, mdt0, ost0, ...
    pub servers: Vec<Server>,
    /// Mounts of the cluster: client0, ...
    pub mounts: Vec<Mount>,
    /// Agents of the cluster, which serve archives: agent1, ...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentState>,
    /// The hosts that the servers and mounts are on; none: all are on this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostState>,
    /// Protection of the messages between the hosts.
    #[serde(default = "no_security")]
    pub security: Mode,
    /// Network of the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// How hosts elsewhere reach its servers; `None`: they are for this machine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// Address of its MGS, where that is no server of this state: its other targets are here, or only a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgs_elsewhere: Option<Nid>,
    /// Manager of the cluster, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<ManagerState>,
    /// Directories of this machine that were made for bare hosts to mount theirs on, and go with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_dirs: Vec<PathBuf>,
}

/// Clusters that were made before there was any.
fn no_security() -> Mode {
    Mode::None
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A host of the cluster: a network namespace with one process, which serves its targets or mounts the file system. A bare host is an empty
/// machine instead, with an init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostState {
    /// `mds1`, `oss1`, `c1`, ...; `h1`, ... of bare hosts.
    pub name: String,
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Link of the host.
    pub link: Link,
    /// Links of the host on further rails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Link>,
    /// Whether its process is stopped.
    pub frozen: bool,
    /// The log of its process.
    pub log: PathBuf,
    /// Whether it is bare.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// The init of a bare host, when it was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Run>,
}

/// How hosts elsewhere reach the servers of a cluster that is on this machine. Hosts elsewhere have to prove that they are of the cluster
/// of `identity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Address at which the servers listen.
    pub address: String,
    /// The identity of this host.
    pub identity: PathBuf,
    /// File with the keys of hosts that the servers refuse.
    pub refused: PathBuf,
}

/// A target and its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// `ost0`.
    pub name: String,
    /// Role and index.
    pub target: TargetId,
    /// The target's directory.
    pub dir: PathBuf,
    /// Port that it listened at last; 0 before the first start.
    pub port: u16,
    /// Port of its metrics; 0 before the first start.
    pub metrics_port: u16,
    /// Log file of the server.
    pub log: PathBuf,
    /// The loop image that the directory lies on.
    pub image: Option<Image>,
    /// Seconds for which an MDT lets a write wait for room; 0 unless somebody adds it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub room_wait_s: u64,
    /// Whether it keeps its memory locked, because swap lies on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lock_memory: bool,
    /// The host that it is on, whose process it shares with the host's other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Last started process of the server.
    pub run: Option<Run>,
}

/// A loop image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Image {
    /// The file.
    pub file: PathBuf,
    /// File system in the image.
    pub kind: Kind,
    /// Size of the image.
    pub size_bytes: u64,
}

/// A mount and its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// `client0`.
    pub name: String,
    /// Mount point.
    pub mount_point: PathBuf,
    /// Whether the directory was made for it, and goes with it.
    pub made_dir: bool,
    /// Log file of the mount.
    pub log: PathBuf,
    /// Port of its metrics; 0 before the first start.
    pub metrics_port: u16,
    /// The host that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Last started process of the mount.
    pub run: Option<Run>,
}

/// An agent, or the S3 server or policy engine beside it, and its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentState {
    /// `agent1`: it serves the archive of this number.
    pub name: String,
    /// Number of the archive.
    pub number: u32,
    /// The archive's directory; of a policy engine that of its history, of an S3 server and the agent of its bucket that of its data.
    pub archive: PathBuf,
    /// The archive of an agent is the bucket of the cluster's S3 server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_bucket: bool,
    /// The text that a policy engine carries out; `None` for an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// Log file of the agent.
    pub log: PathBuf,
    /// Last started process of the agent.
    pub run: Option<Run>,
}

/// The manager and its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManagerState {
    /// Directory of its files.
    pub dir: PathBuf,
    /// Port that it listened at last; 0 before the first start.
    pub port: u16,
    /// Log file of the manager.
    pub log: PathBuf,
    /// Last started process of the manager.
    pub run: Option<Run>,
}

/// A process that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Identity of the process.
    pub identity: Identity,
    /// Addresses at which the process listens.
    pub addresses: Vec<String>,
    /// URL of the metrics.
    pub metrics_url: String,
}

impl HostState {
    /// Links of the host, one on each rail.
    pub fn links(&self) -> Vec<Link> {
        std::iter::once(self.link).chain(self.further.iter().copied()).collect()
    }

    /// Link of the host on a rail.
    pub fn link_mut(&mut self, rail: usize) -> Option<&mut Link> {
        if rail == 0 { Some(&mut self.link) } else { self.further.get_mut(rail - 1) }
    }
}

impl Run {
    /// A process of which nothing else is known.
    pub fn of(identity: Identity) -> Run {
        Run { identity, addresses: Vec::new(), metrics_url: String::new() }
    }
}

/// Whether the process that was started last runs.
pub fn alive(run: Option<&Run>) -> bool {
    run.is_some_and(|r| r.identity.alive())
}

/// Port of a metrics URL, so that it can be the same at the next start.
pub fn port_of_url(url: &str) -> u16 {
    let host = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
    host.rsplit(':').next().and_then(|p| p.parse().ok()).unwrap_or(0)
}

impl Cluster {
    /// A cluster without anything.
    pub fn new(fs: FsName) -> Cluster {
        Cluster {
            version: VERSION,
            fs,
            servers: Vec::new(),
            mounts: Vec::new(),
            agents: Vec::new(),
            hosts: Vec::new(),
            security: Mode::None,
            network: None,
            reach: None,
            mgs_elsewhere: None,
            manager: None,
            made_dirs: Vec::new(),
        }
    }

    /// The cluster in `dir`; `NoSuchCluster` when there is none.
    pub fn load(dir: &Path) -> Result<Cluster> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Fault::new(Code::NoSuchCluster)
                    .what("no development cluster in")
                    .subject(dir.display().to_string())
                    .next(format!("start one: brindle dev up --dir {}", dir.display())));
            }
            Err(e) => {
                return Err(Fault::io(Code::NoSuchCluster, "cannot read", path.display().to_string(), &e));
            }
        };
        let wrong = |why: String| {
            Fault::new(Code::NoSuchCluster)
                .what("cannot read")
                .subject(path.display().to_string())
                .why(why)
                .data("the targets' data lies beside it, untouched")
        };
        let cluster: Cluster = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if cluster.version != VERSION {
            let version = cluster.version;
            return Err(wrong(format!("it has format {version}; this release knows {VERSION}")));
        }
        Ok(cluster)
    }

    /// Writes the state.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let cannot =
            |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), e);
        let bytes = serde_json::to_vec_pretty(self).expect("plain fields always serialise");
        let temp = dir.join("state.json.new");
        let written = std::fs::write(&temp, bytes).and_then(|()| std::fs::rename(&temp, &path));
        written.map_err(|e| cannot(&e))
    }

    /// Addresses of its MGS, once it was started.
    pub fn mgs(&self) -> Option<Nid> {
        let Some(server) = self.servers.iter().find(|s| s.target == TargetId::MGT) else {
            return self.mgs_elsewhere.clone();
        };
        server.run.as_ref()?.addresses.first()?.parse().ok()
    }

    /// Namespaces of the processes of a host; `None` for processes of this machine.
    pub fn within(&self, host: Option<&str>) -> Option<Within> {
        Some(self.network.as_ref()?.within(host?))
    }

    /// Addresses of a host, one on each rail.
    pub fn addresses(&self, host: &HostState) -> Vec<Ipv4Addr> {
        match &self.network {
            Some(network) => network.addresses(host.address.octets()[3]).collect(),
            None => vec![host.address],
        }
    }

    /// A host by its name.
    pub fn host(&self, name: &str) -> Option<&HostState> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The servers on a host, in the order of their ports.
    pub fn servers_on<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Server> {
        self.servers.iter().filter(move |server| server.host.as_deref() == Some(host))
    }

    /// The process of a host, as it was started last.
    pub fn run_of(&self, host: &str) -> Option<&Run> {
        let of_server =
            self.servers.iter().filter(|s| s.host.as_deref() == Some(host)).map(|s| s.run.as_ref());
        let of_mount = self.mounts.iter().filter(|m| m.host.as_deref() == Some(host)).map(|m| m.run.as_ref());
        let init = self.host(host).map(|host| host.init.as_ref());
        of_server.chain(of_mount).chain(init).flatten().next()
    }

    /// Names of all its processes.
    pub fn names(&self) -> Vec<&str> {
        let servers = self.servers.iter().map(|s| s.name.as_str());
        let mounts = self.mounts.iter().map(|m| m.name.as_str());
        let agents = self.agents.iter().map(|a| a.name.as_str());
        servers.chain(mounts).chain(agents).chain(self.manager.iter().map(|_| MANAGER)).collect()
    }
}

/// Makes the directory if need be, and keeps other commands from changing the cluster meanwhile: they wait.
pub fn lock(dir: &Path, tell: Tell) -> Result<DirLock> {
    std::fs::create_dir_all(dir)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))?;
    let what = format!("another command that changes the cluster in {}", dir.display());
    DirLock::wait(dir, &what, |who| tell(Event::Waits(who)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_survives_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Cluster::load(dir.path()).unwrap_err().code, Code::NoSuchCluster);
        let cluster = Cluster::new("dev".parse().unwrap());
        cluster.save(dir.path()).unwrap();
        assert_eq!(Cluster::load(dir.path()).unwrap().fs, cluster.fs);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Cluster::load(dir.path()).unwrap_err().why[0].contains("EOF"));
    }

    #[test]
    fn ports_are_found_in_urls() {
        assert_eq!(port_of_url("http://127.0.0.1:4711/metrics"), 4711);
        assert_eq!(port_of_url(""), 0);
    }
}
