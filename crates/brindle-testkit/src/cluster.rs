//! [`SimCluster`]: one MGS, one MDT, some OSTs and some clients as nodes of one simulated world, running the real
//! services over simulated seams.
//!
//! A server node formats its target once; each of its incarnations starts the service again, as a supervisor of a
//! real host would, until it runs. Invariant: state that a service keeps outside its disk dies with its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use brindle_client::{Client, MountConfig, Switches};
use brindle_config::Superblock;
use brindle_oss::{Oss, Replies};
use brindle_types::{Code, Fault, FsName, Nid, ObjectId, TargetId};
use parking_lot::Mutex;

use crate::sim::{NodeSeams, World};

/// Directory of the target on each server's disk.
pub const TARGET_DIR: &str = "/target";
/// Port of every server.
const PORT: u16 = 9880;
/// Longest time of formatting a target.
const FORMAT_MS: u64 = 60_000;
/// Pause before a service that did not start is started again.
const START_AGAIN_MS: u64 = 500;

/// Size of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// OSTs.
    pub osts: u16,
    /// Client nodes.
    pub clients: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { osts: 4, clients: 3 }
    }
}

/// Target of a server node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Mgt,
    Mdt,
    Ost(u16),
}

/// Outcome of the last start of each server.
#[derive(Default)]
struct Starts {
    /// Running servers, each with its service if it is an OST.
    up: BTreeMap<String, Option<Weak<Oss>>>,
    failed: BTreeMap<String, Fault>,
    /// Servers whose processes ended by themselves because they could not serve any more.
    ended: BTreeSet<String>,
}

/// A simulated cluster. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct SimCluster {
    world: World,
    options: Options,
    starts: Arc<Mutex<Starts>>,
}

impl SimCluster {
    /// Formats the targets and starts the servers.
    pub fn new(seed: u64, options: Options) -> SimCluster {
        let cluster = SimCluster { world: World::new(seed), options, starts: Arc::default() };
        for name in cluster.servers() {
            let node = cluster.world.node(&name);
            let formatted = cluster.world.run_until(FORMAT_MS, format(&node, serves(&name)));
            formatted.expect("formatting ends").expect("an empty simulated disk can be formatted");
        }
        for name in cluster.servers() {
            cluster.serve(cluster.world.node(&name));
        }
        cluster
    }

    /// The world below.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Names of the OST nodes.
    pub fn osts(&self) -> Vec<String> {
        (0..self.options.osts).map(|n| format!("ost{n}")).collect()
    }

    /// Names of all server nodes.
    pub fn servers(&self) -> Vec<String> {
        ["mgs".to_owned(), "mdt0".to_owned()].into_iter().chain(self.osts()).collect()
    }

    /// Names of the client nodes.
    pub fn clients(&self) -> Vec<String> {
        (0..self.options.clients).map(|n| format!("c{n}")).collect()
    }

    /// The next incarnation of a server: its service starts with what the disk holds.
    pub fn restart(&self, name: &str) {
        let mut starts = self.starts.lock();
        starts.up.remove(name);
        starts.ended.remove(name);
        drop(starts);
        self.serve(self.world.restart(name));
    }

    /// Whether the service of a node has started since the node's last restart.
    pub fn is_up(&self, name: &str) -> bool {
        self.world.is_running(name) && self.starts.lock().up.contains_key(name)
    }

    /// Bytes that an OST has granted to all clients; `None` while it is not up.
    pub fn granted_bytes(&self, name: &str) -> Option<u64> {
        let oss = self.starts.lock().up.get(name)?.as_ref()?.upgrade()?;
        Some(oss.store.granted_bytes())
    }

    /// At most `limit` objects of an OST that is up.
    pub async fn objects(&self, name: &str, limit: usize) -> Vec<ObjectId> {
        let oss = self.starts.lock().up.get(name).and_then(|oss| oss.as_ref()?.upgrade());
        let Some(oss) = oss else { return Vec::new() };
        let listed = oss.store.list(None, limit).await;
        listed.map_or_else(|_| Vec::new(), |(listed, _)| listed.into_iter().map(|l| l.object).collect())
    }

    /// Takes down the nodes whose processes have ended by themselves.
    pub fn bury(&self) {
        for name in std::mem::take(&mut self.starts.lock().ended) {
            self.world.kill(&name);
        }
    }

    /// The fault with which the last failed start of a server ended, while it is not up.
    pub fn start_fault(&self, name: &str) -> Option<Fault> {
        if self.is_up(name) {
            return None;
        }
        self.starts.lock().failed.get(name).cloned()
    }

    /// Mounts on a node, trying until it succeeds.
    pub async fn mount(node: &NodeSeams) -> Arc<Client> {
        loop {
            let config = MountConfig {
                mgs: vec![nid("mgs")],
                fs: fs_name(),
                host: node.name.clone(),
                mount: "/mnt".into(),
                switches: Switches::default(),
                sync: false,
                failout_ms: None,
            };
            match Client::mount(config, node.seams.clone(), node.seams.tasks.clone(), node.transport.clone())
                .await
            {
                Ok(client) => return client,
                Err(fault) => tracing::warn!(node = %node.name, "cannot mount: {fault}"),
            }
            node.seams.sleep_ms(START_AGAIN_MS).await;
        }
    }

    fn serve(&self, node: NodeSeams) {
        let starts = self.starts.clone();
        let seams = node.seams.clone();
        seams.spawn("supervisor", async move {
            loop {
                match start(&node).await {
                    Ok(running) => {
                        starts.lock().up.insert(node.name.clone(), running.oss());
                        let fault = running.until_failed().await;
                        tracing::warn!(node = %node.name, "stopped itself: {fault}");
                        starts.lock().ended.insert(node.name.clone());
                        std::future::pending::<()>().await;
                    }
                    Err(fault) => {
                        tracing::warn!(node = %node.name, "cannot start: {fault}");
                        starts.lock().failed.insert(node.name.clone(), fault);
                    }
                }
                node.seams.sleep_ms(START_AGAIN_MS).await;
            }
        });
    }
}

/// Name of the file system.
pub fn fs_name() -> FsName {
    "sim".parse().expect("a short name of letters")
}

/// Address of a server node.
pub fn nid(host: &str) -> Nid {
    Nid { host: host.to_owned(), port: PORT, rail: 0 }
}

fn serves(name: &str) -> Serves {
    match name.strip_prefix("ost") {
        Some(index) => Serves::Ost(index.parse().expect("made from a number")),
        None if name == "mgs" => Serves::Mgt,
        None => Serves::Mdt,
    }
}

/// Handle that keeps a service running.
enum Running {
    Mgs(#[allow(dead_code, reason = "held, never looked at")] brindle_mgs::Handle),
    Mdt(Box<brindle_mds::Handle>),
    Ost(brindle_oss::Handle),
}

impl Running {
    fn oss(&self) -> Option<Weak<Oss>> {
        match self {
            Running::Ost(handle) => Some(Arc::downgrade(handle.oss())),
            Running::Mgs(_) | Running::Mdt(_) => None,
        }
    }

    /// Completes when the service cannot go on; its process ends then.
    async fn until_failed(&self) -> Fault {
        match self {
            Running::Mgs(_) => std::future::pending().await,
            Running::Mdt(handle) => handle.until_failed().await,
            Running::Ost(handle) => handle.until_failed().await,
        }
    }
}

async fn format(node: &NodeSeams, what: Serves) -> Result<(), Fault> {
    let (seams, mgs) = (&node.seams, vec![nid("mgs")]);
    let cannot = |e| Fault::io(Code::NotWritable, "cannot make", TARGET_DIR, &e);
    seams.disk.create_dir_all(TARGET_DIR).map_err(cannot)?;
    seams.disk.sync_dir("/").map_err(cannot)?;
    match what {
        Serves::Mgt => {
            let (disk, rng) = (seams.disk.clone(), &*seams.rng);
            brindle_mgs::format(disk, rng, seams.wall(), TARGET_DIR, fs_name()).await?;
        }
        Serves::Mdt => drop(brindle_mds::format(seams, TARGET_DIR, fs_name(), 0, mgs).await?),
        Serves::Ost(index) => {
            let target = TargetId::ost(index);
            let mut superblock = Superblock::new(fs_name(), target, mgs, seams.wall(), &*seams.rng);
            superblock.save(&*seams.disk, TARGET_DIR)?;
        }
    }
    Ok(())
}

async fn start(node: &NodeSeams) -> Result<Running, Fault> {
    let (seams, transport) = (node.seams.clone(), node.transport.clone());
    let (listen, host) = (nid(&node.name), node.name.clone());
    Ok(match serves(&node.name) {
        Serves::Mgt => {
            let config = brindle_mgs::Config::new(TARGET_DIR, listen, host);
            Running::Mgs(brindle_mgs::start(config, seams, transport).await?)
        }
        Serves::Mdt => {
            let config = brindle_mds::Config::new(TARGET_DIR, listen, host);
            Running::Mdt(Box::new(brindle_mds::start(config, seams, transport).await?))
        }
        Serves::Ost(index) => {
            // Every cluster has both kinds of OSTs: an odd one lies on shared storage.
            let replies = if index % 2 == 1 { Replies::Synced } else { Replies::Written };
            let config =
                brindle_oss::Config { replies, ..brindle_oss::Config::new(TARGET_DIR, listen, host) };
            Running::Ost(brindle_oss::start(config, seams, transport).await?)
        }
    })
}
