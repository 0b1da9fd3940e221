//! [`SetCluster`]: the nodes of a simulated replica set.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brindle_auth::{Authority, ClusterId};
use brindle_mgs::hosts::rows::{HostRow, TokenRow};
use brindle_stdx::disk::replace_file;
use brindle_targets::{Directory, Introduction, Plain};
use brindle_types::{Code, Fault, Role, TargetId};
use brindle_wire::mgs::replica::{
    ChangeReplicasReq, MemberPhase, MemberPlace, MemberRole, ReplicaSetChange, ReplicaSetState,
};
use parking_lot::Mutex;

use super::host::SimHost;
use crate::cluster::{TARGET_DIR, fs_name, nid};
use crate::sim::{NodeSeams, World};

/// Names of the hosts; the first one is the first primary.
const HOSTS: [&str; 3] = ["a", "b", "c"];
/// Clients.
pub const CLIENTS: [&str; 2] = ["c0", "c1"];
/// Node of the MGS.
pub const MGS: &str = "mgs";
/// Node of the only MDT of a cluster whose OST has members.
const MDT: &str = "mdt0";
/// Longest time of formatting a target.
const FORMAT_MS: u64 = 60_000;
/// Pauses between tries and looks.
const AGAIN_MS: u64 = 500;
const LOOK_MS: u64 = 100;

/// The key of the simulated clusters of this process.
fn authority() -> &'static str {
    static PEM: OnceLock<String> = OnceLock::new();
    PEM.get_or_init(|| Authority::new(ClusterId(7), 0).expect("a key can be made").to_pem())
}

#[derive(Default)]
struct Running {
    hosts: BTreeMap<String, Arc<SimHost>>,
    /// Host whose disk acknowledges syncs that it does not carry out.
    liar: Option<String>,
}

/// A simulated replica set. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct SetCluster {
    world: World,
    target: TargetId,
    members: usize,
    running: Arc<Mutex<Running>>,
}

impl SetCluster {
    /// Formats the MGT, and starts the MGS and the daemons.
    pub fn new(seed: u64, role: Role, members: usize) -> SetCluster {
        let target = TargetId { role, index: 0 };
        let cluster = SetCluster { world: World::new(seed), target, members, running: Arc::default() };
        let node = cluster.world.node(MGS);
        for name in cluster.hosts() {
            let ppm = cluster.world.choose(2 * DRIFT_MAX_PPM) as i64 - DRIFT_MAX_PPM as i64;
            cluster.world.node(&name);
            cluster.world.drift_clock(&name, ppm);
        }
        let formatted = cluster.world.run_until(FORMAT_MS, format(&node, &cluster.hosts()));
        formatted.expect("formatting ends").expect("an empty simulated disk can be formatted");
        if role == Role::Ost {
            let node = cluster.world.node(MDT);
            let formatted = cluster.world.run_until(FORMAT_MS, format_mdt(&node));
            formatted.expect("formatting ends").expect("an empty simulated disk can be formatted");
        }
        for name in cluster.servers() {
            cluster.serve(&cluster.world.node(&name));
        }
        cluster
    }

    /// The world below.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The target that has members.
    pub fn target(&self) -> TargetId {
        self.target
    }

    /// Hosts with a member.
    pub fn hosts(&self) -> Vec<String> {
        HOSTS[..self.members.max(2)].iter().map(|name| (*name).to_owned()).collect()
    }

    /// The MGS and the hosts.
    pub fn servers(&self) -> Vec<String> {
        // An OST needs an MDT, which has no other members.
        let mdt = (self.target.role == Role::Ost).then(|| MDT.to_owned());
        std::iter::once(MGS.to_owned()).chain(mdt).chain(self.hosts()).collect()
    }

    /// All nodes that faults meet.
    pub fn nodes(&self) -> Vec<String> {
        self.servers().into_iter().chain(CLIENTS.map(str::to_owned)).collect()
    }

    /// The daemon of a host that runs.
    pub fn host(&self, name: &str) -> Option<Arc<SimHost>> {
        self.running.lock().hosts.get(name).filter(|_| self.world.is_running(name)).cloned()
    }

    /// The disk of a host lies from now on.
    pub fn has_liar_now(&self, host: &str) {
        self.running.lock().liar = Some(host.to_owned());
    }

    /// Host whose disk lies.
    pub fn liar(&self) -> Option<String> {
        self.running.lock().liar.clone()
    }

    /// Whether the disk of any host lies.
    pub fn has_liar(&self) -> bool {
        self.liar().is_some()
    }

    /// The next incarnation of a server.
    pub fn restart(&self, name: &str) {
        let node = self.world.restart(name);
        self.serve(&node);
    }

    fn serve(&self, node: &NodeSeams) {
        if node.name == MGS {
            let own = node.clone();
            return node.seams.spawn("mgs", async move { serve_mgs(&own).await });
        }
        if node.name == MDT {
            let own = node.clone();
            return node.seams.spawn("mdt", async move { serve_mdt(&own).await });
        }
        let host = SimHost::start(node);
        self.running.lock().hosts.insert(node.name.clone(), host);
    }

    /// Has the MGS make the set.
    pub async fn make_set(&self) -> Result<(), Fault> {
        let place = |host: &String| MemberPlace { host: host.clone(), dir: TARGET_DIR.to_owned() };
        let places: Vec<MemberPlace> = self.hosts().iter().map(place).collect();
        self.change(match self.target.role {
            Role::Ost => ReplicaSetChange::Create { index: Some(0), places },
            Role::Mdt | Role::Mgt => ReplicaSetChange::CreateMdt { index: Some(0), places },
        })
        .await?;
        self.until_complete().await;
        // A set begins with two members.
        for host in self.hosts().into_iter().skip(self.members) {
            self.change(ReplicaSetChange::Remove { target: self.target, host }).await?;
        }
        Ok(())
    }

    /// Asks the MGS for a change of the set, as an administrator does, until it answers.
    pub async fn change(&self, change: ReplicaSetChange) -> Result<(), Fault> {
        let node = self.world.node("admin");
        let directory = Directory::new(
            &node.seams,
            node.transport.clone(),
            Introduction::command("admin"),
            Arc::new(Plain),
            vec![nid(MGS)],
            fs_name(),
            0,
        );
        let request = ChangeReplicasReq { change, is_dry_run: false };
        directory.mgs().probe(&request).await.map(drop)
    }

    /// Has a member in sync serve, as soon as the MGS has heard of it.
    pub async fn promote(&self, host: &str) {
        let seams = self.world.node("driver").seams;
        let change = ReplicaSetChange::Promote { target: self.target, host: host.to_owned() };
        while let Err(fault) = self.change(change.clone()).await {
            tracing::info!("not promoted: {fault}");
            seams.sleep_ms(AGAIN_MS).await;
        }
    }

    /// The newest set that a host knows.
    pub fn set(&self) -> Option<ReplicaSetState> {
        let sets = self.hosts().into_iter().filter_map(|name| self.host(&name)?.set());
        sets.max_by_key(|set| set.epoch)
    }

    /// Waits until every member is in sync, but one whose disk lies, and one serves.
    pub async fn until_complete(&self) {
        let seams = self.world.node("driver").seams;
        while !self.is_complete() {
            seams.sleep_ms(LOOK_MS).await;
        }
    }

    /// Waits until a host serves, and every member is in sync.
    pub async fn until_served_by(&self, host: &str) {
        let seams = self.world.node("driver").seams;
        while !self.is_complete() || self.set().is_none_or(|set| set.primary != host) {
            seams.sleep_ms(LOOK_MS).await;
        }
    }

    fn is_complete(&self) -> bool {
        let Some(set) = self.set() else { return false };
        let serving = format!("{:?}", MemberPhase::Serving);
        let serves = self.host(&set.primary).is_some_and(|host| host.phase() == serving);
        // A disk that has lied may have lost what its member needs to be one: that is named, and left to people.
        let liar = self.liar();
        let mut others = set.members.iter().filter(|member| Some(&member.host) != liar.as_ref());
        let in_sync = others.all(|member| member.role == MemberRole::InSync);
        serves && in_sync && self.hosts().iter().all(|name| self.host(name).is_some())
    }

    /// How everything stands, for people.
    pub fn stands(&self) -> String {
        let set = self.set().map(|set| {
            let members: Vec<String> =
                set.members.iter().map(|m| format!("{} {:?}", m.host, m.role)).collect();
            format!("epoch {} term {} primary {}: {}", set.epoch, set.term, set.primary, members.join(", "))
        });
        let hosts = self.hosts().into_iter().map(|name| {
            let phase = self.host(&name).map_or_else(|| "down".to_owned(), |host| host.phase());
            format!("{name} {phase}")
        });
        let hosts: Vec<String> = hosts.collect();
        format!("{}; {}; {}", set.unwrap_or_else(|| "no set".to_owned()), hosts.join("; "), self.target)
    }
}

/// Hosts' clocks run faster or slower by at most this: five percent, far beyond what quartz does.
const DRIFT_MAX_PPM: u64 = 50_000;

async fn format(node: &NodeSeams, hosts: &[String]) -> Result<(), Fault> {
    let (disk, rng) = (node.seams.disk.clone(), &*node.seams.rng);
    let cannot = |e| Fault::io(Code::NotWritable, "cannot make", TARGET_DIR, &e);
    disk.create_dir_all(TARGET_DIR).map_err(cannot)?;
    disk.sync_dir("/").map_err(cannot)?;
    brindle_mgs::format(disk.clone(), rng, node.seams.wall(), TARGET_DIR, fs_name()).await?;
    let path = format!("{TARGET_DIR}/{}", brindle_mgs::hosts::AUTHORITY_FILE);
    replace_file(&*disk, &path, authority().as_bytes()).map_err(cannot)?;
    let store = brindle_mgs::local_store(disk, TARGET_DIR)?;
    for (number, name) in (1u8..).zip(hosts) {
        let host = HostRow {
            name: name.clone(),
            key: [number; 32],
            roles: "server".to_owned(),
            joined_s: 0,
            certificate_ends_s: 0,
            assignments: Vec::new(),
        };
        let token = TokenRow {
            id: [number; 8],
            secret_hash: [number; 32],
            roles: "server".to_owned(),
            host: name.clone(),
            expires_s: 0,
            used_by: None,
        };
        brindle_mgs::hosts::found(&store, host, token).await?;
    }
    Ok(())
}

/// Runs the MGS for as long as its node lives.
async fn serve_mgs(node: &NodeSeams) {
    loop {
        let config = brindle_mgs::Config::new(TARGET_DIR, nid(MGS), MGS);
        match brindle_mgs::start(config, node.seams.clone(), node.transport.clone()).await {
            Ok(handle) => {
                let fault = handle.until_failed().await;
                tracing::warn!("the MGS stopped itself: {fault}");
            }
            Err(fault) => tracing::warn!("the MGS cannot start: {fault}"),
        }
        node.seams.sleep_ms(AGAIN_MS).await;
    }
}

async fn format_mdt(node: &NodeSeams) -> Result<(), Fault> {
    let cannot = |e| Fault::io(Code::NotWritable, "cannot make", TARGET_DIR, &e);
    node.seams.disk.create_dir_all(TARGET_DIR).map_err(cannot)?;
    node.seams.disk.sync_dir("/").map_err(cannot)?;
    brindle_mds::format(&node.seams, TARGET_DIR, fs_name(), 0, vec![nid(MGS)]).await.map(drop)
}

/// Runs the MDT for as long as its node lives.
async fn serve_mdt(node: &NodeSeams) {
    loop {
        let config = brindle_mds::Config::new(TARGET_DIR, nid(MDT), MDT);
        match brindle_mds::start(config, node.seams.clone(), node.transport.clone()).await {
            Ok(handle) => {
                let fault = handle.until_failed().await;
                tracing::warn!("the MDT stopped itself: {fault}");
            }
            Err(fault) => tracing::warn!("the MDT cannot start: {fault}"),
        }
        node.seams.sleep_ms(AGAIN_MS).await;
    }
}
