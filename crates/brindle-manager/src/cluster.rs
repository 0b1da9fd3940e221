//! The cluster of a manager: the way to it, and its daemons that publish metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_admin::space::Spaces;
use brindle_admin::status::Report;
use brindle_host::bb::protocol::SOCKET_DEFAULT;
use brindle_host::cluster::{self, Cluster};
use brindle_host::policy::STATE_DEFAULT;
use brindle_types::{Nid, Result, TargetId};
use tokio::sync::Semaphore;

use crate::buffers::Orchestrator;
use crate::clients::{Clients, MOUNTS_MAX};
use crate::live::state::{Asked, StateView};
use crate::plan::quoted;

/// Most daemons that are asked for their numbers.
const DAEMONS_MAX: usize = 1024;

/// The cluster of a manager.
#[derive(Clone)]
pub struct Managed {
    /// The way to its servers.
    pub servers: Servers,
    /// Where it is.
    pub at: At,
    /// Addresses of daemons that tell numbers, beside those that are found.
    pub scrape_urls: Vec<String>,
    /// Port at which each host of the map tells numbers.
    pub scrape_port: Option<u16>,
    /// Port at which the mount of each host with the role `client` tells numbers.
    pub client_scrape_port: Option<u16>,
    /// The orchestrator of burst buffers.
    pub orchestrator: Orchestrator,
    /// Directory of the policy engine; `None`: the usual one, or that of the development cluster.
    pub policy_state: Option<PathBuf>,
    /// Maker of mounts for single actions.
    pub clients: Arc<dyn Clients>,
    /// Mounts that may be made beside those that there are.
    pub free_mounts: Arc<Semaphore>,
}

/// A daemon that tells numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Where: `http://10.0.0.7:9870/metrics`.
    pub url: String,
    /// Labels: `fs`, `host`, `role` (`server` or `client`), and `daemon` where its name is known. Empty for one of which only the
    /// address was given.
    pub labels: BTreeMap<String, String>,
}

/// Where a cluster is.
#[derive(Clone, Debug)]
pub enum At {
    /// The addresses of its MGS identify the cluster.
    Fs(FsLocation),
    /// The development cluster in this directory.
    Dev(PathBuf),
}

/// The server processes of a development cluster; none of other clusters.
#[derive(Clone, Debug, Default)]
pub struct DevProcesses(Vec<DevProcess>);

/// A server process of a development cluster.
#[derive(Clone, Debug)]
pub struct DevProcess {
    /// `ost0`.
    pub name: String,
    /// Target of the server.
    pub target: TargetId,
    /// The host whose process it shares; `None` where it has one of its own.
    pub host: Option<String>,
    /// Whether it runs.
    pub runs: bool,
}

impl DevProcesses {
    /// The process of a target.
    pub fn of(&self, target: TargetId) -> Option<&DevProcess> {
        self.0.iter().find(|process| process.target == target)
    }
}

impl Managed {
    /// A cluster with nothing but the usual places beside it.
    pub fn new(servers: Servers, at: At, clients: Arc<dyn Clients>) -> Managed {
        Managed {
            servers,
            at,
            scrape_urls: Vec::new(),
            scrape_port: None,
            client_scrape_port: None,
            orchestrator: Orchestrator::new(SOCKET_DEFAULT.into()),
            policy_state: None,
            clients,
            free_mounts: Arc::new(Semaphore::new(MOUNTS_MAX)),
        }
    }

    /// The way to the file system. A development cluster may have another one after each start.
    pub fn place(&self) -> Result<FsLocation> {
        match &self.at {
            At::Fs(place) => Ok(place.clone()),
            At::Dev(dir) => cluster::place_of(dir),
        }
    }

    /// Directory of the development cluster, if it is one.
    pub fn dev_dir(&self) -> Option<&PathBuf> {
        match &self.at {
            At::Fs(_) => None,
            At::Dev(dir) => Some(dir),
        }
    }

    /// The option with which a command finds the same file system.
    pub fn place_word(&self, place: &FsLocation) -> String {
        if let Some(dir) = self.dev_dir() {
            return format!("--dir {}", quoted(&dir.display().to_string()));
        }
        let mgs: Vec<String> = place.mgs.iter().map(ToString::to_string).collect();
        format!("--mgs {}", mgs.join(","))
    }

    /// Directory of the policy engine on this host.
    pub fn policy_state(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.policy_state {
            return Ok(dir.clone());
        }
        let Some(dir) = self.dev_dir() else { return Ok(PathBuf::from(STATE_DEFAULT)) };
        let engine = Cluster::load(dir)?.agents.into_iter().find(|agent| agent.policy.is_some());
        // The state of an engine names its directory as that of its archive.
        Ok(engine.map_or_else(|| dir.join("policy"), |engine| engine.archive))
    }

    /// Server processes of the development cluster.
    pub fn dev_processes(&self) -> Result<DevProcesses> {
        let Some(dir) = self.dev_dir() else { return Ok(DevProcesses::default()) };
        let cluster = Cluster::load(dir)?;
        let process = |server: &cluster::Server| DevProcess {
            name: server.name.clone(),
            target: server.target,
            host: server.host.clone(),
            runs: server.run.as_ref().is_some_and(|run| !run.identity.is_gone()),
        };
        Ok(DevProcesses(cluster.servers.iter().map(process).collect()))
    }

    /// Asks everybody how they are.
    pub async fn ask(&self) -> Result<Asked> {
        let place = self.place()?;
        let dev = self.dev_processes()?;
        let (report, spaces, hosts) = tokio::join!(
            Report::of(&self.servers, place.clone()),
            Spaces::of(&self.servers, &place),
            self.servers.hosts(&place)
        );
        // The report has the space of targets that do not tell it themselves; hosts are known only where there is an authority.
        Ok(Asked { report: report?, spaces: spaces.ok(), hosts: hosts.ok(), dev })
    }

    /// All daemons that tell numbers, each address once, in order. A process of a development cluster is among them also while it does
    /// not run: its silence is news.
    pub fn daemons(&self, state: &StateView) -> Vec<Daemon> {
        let fs = state.fs.as_ref().map(|fs| fs.fs.clone()).unwrap_or_default();
        let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut add = |url: String, role: &str, host: &str, daemon: &str| {
            let labels = [("fs", fs.as_str()), ("role", role), ("host", host), ("daemon", daemon)];
            let known = labels.into_iter().filter(|(_, value)| !value.is_empty());
            found.insert(url, known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
        };
        self.scrape_urls.iter().for_each(|url| add(url.clone(), "", "", ""));
        if let Some(port) = self.scrape_port {
            for (address, host) in server_hosts(state) {
                add(url(&address, port), "server", &host, "");
            }
        }
        if let Some(port) = self.client_scrape_port {
            let has_mount = |roles: &[String]| roles.iter().any(|role| role == "client");
            for host in state.hosts.iter().filter(|host| has_mount(&host.roles)) {
                add(url(&host.name, port), "client", &host.name, "");
            }
        }
        match self.dev_dir().map(|dir| Cluster::load(dir)).transpose() {
            Ok(cluster) => add_dev(cluster.as_ref(), &mut add),
            // The state that is asked for meanwhile has this as its fault.
            Err(fault) => tracing::debug!(code = %fault.code, "cannot find the processes of the cluster"),
        }
        let daemons = found.into_iter().map(|(url, labels)| Daemon { url, labels });
        daemons.take(DAEMONS_MAX).collect()
    }
}

/// Adds the servers and mounts of a development cluster. The process of a host serves all targets of the host.
fn add_dev(cluster: Option<&Cluster>, add: &mut impl FnMut(String, &str, &str, &str)) {
    let Some(cluster) = cluster else { return };
    let this_machine = brindle_host::name();
    let mut one = |run: Option<&cluster::Run>, role: &str, host: Option<&String>, name: &str| {
        if let Some(run) = run.filter(|run| !run.metrics_url.is_empty()) {
            let host = host.unwrap_or(&this_machine);
            add(run.metrics_url.clone(), role, host, name);
        }
    };
    for server in &cluster.servers {
        let name = server.host.as_ref().unwrap_or(&server.name);
        one(server.run.as_ref(), "server", server.host.as_ref(), name);
    }
    for mount in &cluster.mounts {
        one(mount.run.as_ref(), "client", mount.host.as_ref(), &mount.name);
    }
}

/// Addresses of the servers' hosts, with the names of the hosts.
fn server_hosts(state: &StateView) -> BTreeMap<String, String> {
    let of = |target: &crate::live::state::TargetState| {
        let host = target.target.host.clone();
        let nids = target.target.addresses.iter().filter_map(|address| address.parse::<Nid>().ok());
        nids.map(|nid| (nid.host, host.clone())).collect::<Vec<_>>()
    };
    state.targets.iter().flat_map(of).collect()
}

fn url(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("http://[{host}]:{port}/metrics"),
        false => format!("http://{host}:{port}/metrics"),
    }
}
