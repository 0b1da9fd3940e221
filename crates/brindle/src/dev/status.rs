//! `brindle dev status`: the processes of the cluster.

use std::path::Path;

use brindle_admin::document;
use brindle_host::cluster::init::files_of;
use brindle_host::cluster::s3::S3;
use brindle_host::cluster::{Cluster, MANAGER, Run, alive};
use brindle_types::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::StatusArgs;
use crate::exit::Done;
use crate::output::{print_json, table};

/// The processes of a development cluster.
#[derive(Serialize, JsonSchema)]
pub struct DevView {
    /// Directory of the cluster.
    dir: String,
    /// File system of the cluster.
    fs: String,
    /// Servers, then mounts, then the manager; or bare hosts.
    processes: Vec<Process>,
}
document!(DevView, "brindle.dev.status", 1);

/// A process.
#[derive(Serialize, JsonSchema)]
struct Process {
    /// `ost0`; `h1` of a bare host.
    name: String,
    /// `mgs`, `mdt`, `ost`, `client` or `manager`; `host`: the init of a bare host.
    kind: &'static str,
    /// Full name of the target; empty for mounts.
    target: String,
    /// `running` or `dead` (killed, crashed or ended).
    state: &'static str,
    /// The process, or the last one there was.
    pid: Option<u32>,
    /// Addresses at which the process listens.
    addresses: Vec<String>,
    /// Directory of the target's data, or of a bare host's files; empty for mounts.
    data: String,
    /// The mount point; empty for servers.
    mount: String,
    /// Log file of the process.
    log: String,
    /// URL of the metrics.
    metrics_url: String,
}

impl Process {
    fn with_run(mut self, run: Option<&Run>) -> Process {
        self.state = if alive(run) { "running" } else { "dead" };
        if let Some(run) = run {
            self.pid = Some(run.identity.pid);
            self.addresses.clone_from(&run.addresses);
            self.metrics_url.clone_from(&run.metrics_url);
        }
        self
    }
}

fn view(cluster_dir: &Path, cluster: &Cluster) -> DevView {
    let dir = cluster_dir.display().to_string();
    let empty = |name: &str, kind, log: &Path| Process {
        name: name.to_owned(),
        kind,
        target: String::new(),
        state: "dead",
        pid: None,
        addresses: Vec::new(),
        data: String::new(),
        mount: String::new(),
        log: log.display().to_string(),
        metrics_url: String::new(),
    };
    let mut processes = Vec::new();
    for s in &cluster.servers {
        let kind = match s.target.role {
            brindle_types::Role::Mgt => "mgs",
            brindle_types::Role::Mdt => "mdt",
            brindle_types::Role::Ost => "ost",
        };
        let mut process = empty(&s.name, kind, &s.log);
        process.target = cluster.fs.target(s.target);
        process.data = s.dir.display().to_string();
        processes.push(process.with_run(s.run.as_ref()));
    }
    for m in &cluster.mounts {
        let mut process = empty(&m.name, "client", &m.log);
        process.mount = m.mount_point.display().to_string();
        processes.push(process.with_run(m.run.as_ref()));
    }
    for a in &cluster.agents {
        let kind = match a.policy {
            Some(_) => "policy",
            None if a.name == S3 => "s3",
            None => "agent",
        };
        let mut process = empty(&a.name, kind, &a.log);
        process.data = a.archive.display().to_string();
        processes.push(process.with_run(a.run.as_ref()));
    }
    if let Some(m) = &cluster.manager {
        let mut process = empty(MANAGER, "manager", &m.log);
        process.data = m.dir.display().to_string();
        processes.push(process.with_run(m.run.as_ref()));
    }
    for h in cluster.hosts.iter().filter(|host| host.bare) {
        let mut process = empty(&h.name, "host", &h.log);
        process.data = files_of(cluster_dir, &h.name).display().to_string();
        process = process.with_run(h.init.as_ref());
        process.addresses = vec![h.address.to_string()];
        processes.push(process);
    }
    DevView { dir, fs: cluster.fs.to_string(), processes }
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    let cluster = Cluster::load(&dir)?;
    let view = view(&dir, &cluster);
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows = view.processes.into_iter().map(|p| {
        let pid = p.pid.filter(|_| p.state == "running").map_or("-".to_owned(), |pid| pid.to_string());
        let place = if p.mount.is_empty() { p.data } else { p.mount };
        vec![p.name, p.state.to_owned(), pid, p.addresses.join(","), place, p.log, p.metrics_url]
    });
    println!(
        "{}",
        table(&["NAME", "STATE", "PID", "ADDRESS", "DATA/MOUNT", "LOG", "METRICS"], rows.collect())
    );
    Ok(Done::Ok)
}
