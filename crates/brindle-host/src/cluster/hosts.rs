//! The hosts of a cluster: starting, killing, freezing them, cutting and shaping their links.

use std::path::Path;

use brindle_admin::document;
use brindle_admin::nearest::nearest;
use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;
use schemars::JsonSchema;
use serde::Serialize;

use super::network::Link;
use super::node::{self, KILL_LIMIT};
use super::state::{Cluster, HostState, alive};
use super::{On, bare, image, init};
use crate::shared::device;

/// The hosts of a cluster.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostsView {
    /// The directory of the cluster.
    pub dir: String,
    /// Servers, then clients.
    pub hosts: Vec<HostView>,
}
document!(HostsView, "brindle.dev.host.list", 1);

/// A host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostView {
    /// `mds1`, `oss1`, `c1`, ...; `h1`, ... of bare hosts.
    pub name: String,
    /// `running`, `frozen`, `dead`, or `idle` where it has nothing to do.
    pub state: &'static str,
    /// `up`, `cut`, `cut in` (nothing arrives) or `cut out` (nothing leaves); `tcp up, tcp1 cut` where its rails differ.
    pub link: String,
    /// Rate of the link, each way; none: as fast as the machine is.
    pub rate_bits_per_second: Option<u64>,
    /// Address of the host on the first rail.
    pub address: String,
    /// Rails of the host; a single one has no number.
    pub rails: Vec<RailView>,
    /// Network namespace of the host.
    pub namespace: String,
    /// Process of the host, or the last one there was.
    pub pid: Option<u32>,
    /// Full names of the targets that it serves.
    pub targets: Vec<String>,
    /// Mount point of the file system on the host; empty for servers.
    pub mount: String,
    /// The log of its process.
    pub log: String,
    /// URL of the metrics.
    pub metrics_url: String,
}
document!(HostView, "brindle.dev.host", 1);

/// A rail of a host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RailView {
    /// Name of the rail in addresses: `tcp`, `tcp1`.
    pub name: String,
    /// The address of the host there.
    pub address: String,
    /// `up`, `cut`, `cut in` or `cut out`.
    pub link: &'static str,
    /// Rate of the link, each way; none: as fast as the machine is.
    pub rate_bits_per_second: Option<u64>,
}

/// The links in a word, or in one each where they differ.
fn links_word(rails: &[RailView]) -> String {
    let first = rails.first().map_or("up", |rail| rail.link);
    if rails.iter().all(|rail| rail.link == first) {
        return first.to_owned();
    }
    rails.iter().map(|rail| format!("{} {}", rail.name, rail.link)).collect::<Vec<_>>().join(", ")
}

impl Cluster {
    /// A host as it is now.
    pub fn host_view(&self, host: &HostState) -> HostView {
        let run = self.run_of(&host.name);
        let mount = self.mounts.iter().find(|m| m.host.as_ref() == Some(&host.name));
        let within = self.within(Some(&host.name));
        let rail = |(number, (address, link)): (usize, (std::net::Ipv4Addr, Link))| RailView {
            name: if number == 0 { "tcp".to_owned() } else { format!("tcp{number}") },
            address: address.to_string(),
            link: link.word(),
            rate_bits_per_second: link.rate_bits,
        };
        let rails = self.addresses(host).into_iter().zip(host.links()).enumerate().map(rail);
        let rails: Vec<RailView> = rails.collect();
        HostView {
            name: host.name.clone(),
            state: match (alive(run), host.frozen) {
                (false, _)
                    if !host.bare && mount.is_none() && self.servers_on(&host.name).next().is_none() =>
                {
                    "idle"
                }
                (false, _) => "dead",
                (true, true) => "frozen",
                (true, false) => "running",
            },
            link: links_word(&rails),
            rate_bits_per_second: host.link.rate_bits,
            address: host.address.to_string(),
            rails,
            namespace: within.map_or_else(String::new, |w| w.netns.display().to_string()),
            pid: run.map(|run| run.identity.pid),
            targets: self.servers_on(&host.name).map(|s| self.fs.target(s.target)).collect(),
            mount: mount.map_or_else(String::new, |m| m.mount_point.display().to_string()),
            log: host.log.display().to_string(),
            metrics_url: run.map_or_else(String::new, |run| run.metrics_url.clone()),
        }
    }

    /// The place of a host in the list, or a refusal with the nearest.
    pub(super) fn host_index(&self, name: &str) -> Result<usize> {
        if let Some(index) = self.hosts.iter().position(|host| host.name == name) {
            return Ok(index);
        }
        let fault = Fault::new(Code::UnknownTarget).what("no such host").subject(name.to_owned());
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        Err(match nearest(name, names.iter().copied()) {
            _ if names.is_empty() => fault
                .why("all of this cluster runs on this one host")
                .next("make one of hosts: brindle dev up --dir DIR --hosts 6 --clients 2"),
            Some(near) => fault.next(format!("did you mean '{near}'? All hosts: {}", names.join(", "))),
            None => fault.next(format!("the hosts are: {}", names.join(", "))),
        })
    }
}

impl Cluster {
    /// Refuses what needs the network of a host that is stopped.
    pub(super) fn must_run(&self, name: &str, dir: &Path) -> Result<()> {
        if self.within(Some(name)).is_some_and(|within| within.netns.exists()) {
            return Ok(());
        }
        Err(Fault::new(Code::NoSuchCluster)
            .what("cannot reach the host")
            .subject(name.to_owned())
            .why("the cluster is stopped")
            .data("nothing was changed")
            .next(format!("start all hosts: brindle dev up --dir {}", dir.display())))
    }
}

impl On<'_> {
    /// All hosts.
    pub fn hosts(&self) -> Result<HostsView> {
        let cluster = Cluster::load(&self.dir)?;
        let hosts = cluster.hosts.iter().map(|host| cluster.host_view(host)).collect();
        Ok(HostsView { dir: self.dir.display().to_string(), hosts })
    }

    /// Changes a host; how it is then.
    fn change_host(
        &self,
        name: &str,
        change: impl FnOnce(&mut Cluster, usize) -> Result<()>,
    ) -> Result<HostView> {
        Cluster::load(&self.dir)?;
        let _lock = self.lock()?;
        let mut cluster = Cluster::load(&self.dir)?;
        let index = cluster.host_index(name)?;
        cluster.must_run(name, &self.dir)?;
        let outcome = change(&mut cluster, index);
        // The state also has the changes made before a failure.
        cluster.save(&self.dir)?;
        outcome?;
        Ok(cluster.host_view(&cluster.hosts[index]))
    }

    /// The power of a host fails: it vanishes from the network, and its process is gone. With `destroy_disks` its storage is emptied.
    pub fn kill_host(&self, name: &str, destroy_disks: bool) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            // A kernel that lives on would close the connections of the dead host; the links are cut first.
            set_links(cluster, index, None, |link| Link { takes_in: false, lets_out: false, ..link })?;
            if let Some(run) = cluster.run_of(name).filter(|run| run.identity.alive()) {
                let subject = || format!("{name} (process {})", run.identity.pid);
                if cluster.hosts[index].bare {
                    // The kernel of this machine lives on, and would write what the dead host has in memory.
                    device::cut_power_of(run.identity.pid)?;
                    bare::wake_senders(run.identity);
                }
                run.identity
                    .try_signal(Signal::KILL)
                    .map_err(|e| Fault::io(Code::ProcessFailed, "cannot kill", subject(), &e))?;
                if !run.identity.wait_end(KILL_LIMIT) {
                    let why = format!("it was sent SIGKILL and is there after {} s", KILL_LIMIT.as_secs());
                    return Err(Fault::new(Code::ProcessFailed)
                        .what("cannot kill")
                        .subject(subject())
                        .why(why));
                }
            }
            cluster.hosts[index].frozen = false;
            if cluster.hosts[index].bare && destroy_disks {
                empty(&init::files_of(&self.dir, name).join("lib"))?;
            }
            let servers: Vec<_> = cluster.servers_on(name).cloned().collect();
            for server in servers {
                if server.image.is_some() {
                    image::detach(&server.dir)?;
                }
                if destroy_disks {
                    match &server.image {
                        Some(image) => remove_file(&image.file)?,
                        None => empty(&server.dir)?,
                    }
                }
            }
            Ok(())
        })
    }

    /// A host that was killed boots: its link is up, its process serves or mounts.
    pub fn start_host(&self, name: &str) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            if alive(cluster.run_of(name)) {
                return Ok(());
            }
            set_links(cluster, index, None, |link| Link { takes_in: true, lets_out: true, ..link })?;
            if cluster.hosts[index].bare {
                self.make_mount_points(cluster)?;
            }
            let started = node::spawn_host(&self.host.program, &self.dir, cluster, index)?;
            cluster.save(&self.dir)?;
            node::host_ready(cluster, started, true).map(drop)
        })
    }

    /// The process of a host is stopped (SIGSTOP), of a bare host all but its init; its kernel goes on.
    pub fn freeze_host(&self, name: &str) -> Result<HostView> {
        self.signal_host(name, Signal::STOP, true)
    }

    /// The process of a host goes on.
    pub fn thaw_host(&self, name: &str) -> Result<HostView> {
        self.signal_host(name, Signal::CONT, false)
    }

    fn signal_host(&self, name: &str, signal: Signal, frozen: bool) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            let running = cluster.run_of(name).filter(|run| run.identity.alive());
            let dead = || {
                Fault::new(Code::ProcessFailed)
                    .what("cannot freeze or thaw")
                    .subject(name.to_owned())
                    .why("it does not run")
                    .next(format!("start it: brindle dev host start --dir {} {name}", self.dir.display()))
            };
            let run = running.ok_or_else(dead)?;
            if cluster.hosts[index].bare {
                bare::signal_all(name, run.identity, signal)?;
                cluster.hosts[index].frozen = frozen;
                return Ok(());
            }
            run.identity
                .try_signal(signal)
                .map_err(|e| Fault::io(Code::ProcessFailed, "cannot signal", name.to_owned(), &e))?;
            cluster.hosts[index].frozen = frozen;
            Ok(())
        })
    }

    /// The link of a host is cut, on one rail or on all: what is sent to it does not arrive, or what it sends, or neither.
    pub fn cut_host(
        &self,
        name: &str,
        rail: Option<usize>,
        inwards: bool,
        outwards: bool,
    ) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            set_links(cluster, index, rail, |link| Link {
                takes_in: link.takes_in && !inwards,
                lets_out: link.lets_out && !outwards,
                ..link
            })
        })
    }

    /// The link of a host is whole again, on one rail or on all.
    pub fn heal_host(&self, name: &str, rail: Option<usize>) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            set_links(cluster, index, rail, |link| Link { takes_in: true, lets_out: true, ..link })
        })
    }

    /// Each link of a host passes so many bits a second each way.
    pub fn shape_host(&self, name: &str, rate_bits: Option<u64>) -> Result<HostView> {
        self.change_host(name, |cluster, index| {
            set_links(cluster, index, None, |link| Link { rate_bits, ..link })
        })
    }
}

/// Changes the link of a host on a rail, or on all.
fn set_links(
    cluster: &mut Cluster,
    index: usize,
    rail: Option<usize>,
    change: impl Fn(Link) -> Link,
) -> Result<()> {
    let host = &mut cluster.hosts[index];
    let network = cluster.network.as_ref();
    let network = network.ok_or_else(|| Fault::new(Code::Bug).why("a cluster of hosts has no network"))?;
    let rails = host.links().len();
    if let Some(rail) = rail.filter(|rail| *rail >= rails) {
        return Err(Fault::new(Code::BadArgument)
            .what("no such rail")
            .subject(format!("{rail} of {}", host.name))
            .why(format!("its rails have the numbers 0 to {}", rails - 1))
            .data("nothing was changed")
            .next("rails are made with the cluster: brindle dev up --hosts N --rails 2"));
    }
    for (number, before) in host.links().into_iter().enumerate().filter(|(n, _)| rail.is_none_or(|r| r == *n))
    {
        let link = change(before);
        network.set_link(&host.name, number, link)?;
        if let Some(now) = host.link_mut(number) {
            *now = link;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    std::fs::remove_file(path)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot remove", path.display().to_string(), &e))
}

/// Empties a directory.
fn empty(dir: &Path) -> Result<()> {
    let cannot =
        |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot empty", dir.display().to_string(), e);
    std::fs::remove_dir_all(dir).and_then(|()| std::fs::create_dir(dir)).map_err(|e| cannot(&e))
}
