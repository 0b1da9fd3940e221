//! The cluster that a manager is for: the way to it, and who of it tells numbers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use brindle_admin::place::Place;
use brindle_admin::servers::Servers;
use brindle_admin::space::Spaces;
use brindle_admin::status::Report;
use brindle_host::cluster::{self, Cluster};
use brindle_types::{Result, TargetId};

use crate::live::state::Asked;

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
}

/// Where a cluster is.
#[derive(Clone, Debug)]
pub enum At {
    /// It is known by the addresses of its MGS.
    Place(Place),
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
    /// Its target.
    pub target: TargetId,
    /// The host whose process it shares; `None` where it has one of its own.
    pub host: Option<String>,
    /// Whether it runs.
    pub runs: bool,
    /// Where its numbers are.
    metrics_url: String,
}

impl DevProcesses {
    /// The process of a target.
    pub fn of(&self, target: TargetId) -> Option<&DevProcess> {
        self.0.iter().find(|process| process.target == target)
    }
}

impl Managed {
    /// The way to the file system. A development cluster may have another one after each start.
    pub fn place(&self) -> Result<Place> {
        match &self.at {
            At::Place(place) => Ok(place.clone()),
            At::Dev(dir) => cluster::place_of(dir),
        }
    }

    /// Directory of the development cluster, if it is one.
    pub fn dev_dir(&self) -> Option<&PathBuf> {
        match &self.at {
            At::Place(_) => None,
            At::Dev(dir) => Some(dir),
        }
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
            metrics_url: server.run.as_ref().map(|run| run.metrics_url.clone()).unwrap_or_default(),
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
        // What a target does not tell of its space it tells in the report; hosts are known only where there is an authority.
        Ok(Asked { report: report?, spaces: spaces.ok(), hosts: hosts.ok(), dev })
    }

    /// Addresses of all daemons that tell numbers; `hosts` are the servers of the map.
    pub fn metrics_urls(&self, hosts: &BTreeSet<String>) -> Vec<String> {
        let mut urls: BTreeSet<String> = self.scrape_urls.iter().cloned().collect();
        if let Some(port) = self.scrape_port {
            urls.extend(hosts.iter().map(|host| match host.contains(':') {
                true => format!("http://[{host}]:{port}/metrics"),
                false => format!("http://{host}:{port}/metrics"),
            }));
        }
        match self.dev_processes() {
            Ok(dev) => urls.extend(
                dev.0.into_iter().filter(|p| p.runs && !p.metrics_url.is_empty()).map(|p| p.metrics_url),
            ),
            // The state that is asked for meanwhile has this as its fault.
            Err(fault) => tracing::debug!(code = %fault.code, "cannot find the processes of the cluster"),
        }
        urls.into_iter().take(DAEMONS_MAX).collect()
    }
}
