//! The directory of targets: where each is served now, and one caller for each that is asked.
//!
//! Clients, servers and commands keep one per file system. A directory follows the map: addresses change under a caller without
//! its users noticing, and calls to a target that was removed end with `TargetRemoved`. Callers are made when they are first
//! needed. Invariant: there is at most one caller for a target, so that its slots are counted once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use brindle_net::latch::Latch;
use brindle_net::peer::NoNotifies;
use brindle_net::{NotifyHandler, Peer, PeerConfig, Transport};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, FsName, Nid, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::version::PeerKind;
use parking_lot::Mutex;

use crate::caller::{Caller, Host, NoSession};
use crate::map_watch::MapWatch;
use crate::waits::Waits;

/// Introduction of a process to targets.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// Kind of the process.
    pub kind: PeerKind,
    /// Name of its host.
    pub host: String,
    /// The target that this side serves, if it is a server.
    pub serves: Option<TargetId>,
}

impl Introduction {
    /// A mount on `host`.
    pub fn client(host: &str) -> Introduction {
        Introduction { kind: PeerKind::Client, host: host.to_owned(), serves: None }
    }

    /// The server of `target` on `host`.
    pub fn server(host: &str, target: TargetId) -> Introduction {
        Introduction { kind: PeerKind::Server, host: host.to_owned(), serves: Some(target) }
    }

    /// The daemon of `host`, or a mover there.
    pub fn agent(host: &str) -> Introduction {
        Introduction { kind: PeerKind::Agent, host: host.to_owned(), serves: None }
    }

    /// A command on `host`.
    pub fn command(host: &str) -> Introduction {
        Introduction { kind: PeerKind::Tool, host: host.to_owned(), serves: None }
    }
}

/// The asking side's choices for each target: session, tasks, notifies.
pub trait Endpoint: Send + Sync + 'static {
    /// The session behind calls to a target.
    fn host(&self, target: TargetId, peer: &Arc<Peer>) -> Arc<dyn Host> {
        let _ = (target, peer);
        Arc::new(NoSession)
    }

    /// Tasks, clock and chance of the connections to a target.
    fn seams(&self, target: TargetId, seams: &Seams) -> Seams {
        let _ = target;
        seams.clone()
    }

    /// Answers notifies of a target.
    fn notifies(&self, target: TargetId) -> Arc<dyn NotifyHandler> {
        let _ = target;
        Arc::new(NoNotifies)
    }
}

/// Calls without a session, and expects no notifies.
pub struct Plain;

impl Endpoint for Plain {}

/// The targets of one file system.
pub struct Directory {
    seams: Seams,
    transport: Arc<dyn Transport>,
    introduction: Introduction,
    endpoint: Arc<dyn Endpoint>,
    mgs: Caller,
    /// Addresses of the MGS that this side was told first.
    given_mgs: Vec<Nid>,
    map: Arc<MapWatch>,
    callers: Mutex<BTreeMap<TargetId, Caller>>,
    waits: Arc<Waits>,
    stopped: Latch,
}

impl Directory {
    /// A directory of `fs`, which knows the MGS alone. `fs_id` is 0 where it is not known yet. The map comes by
    /// [`MapWatch::fetch`] or by a registration.
    pub fn new(
        seams: &Seams,
        transport: Arc<dyn Transport>,
        introduction: Introduction,
        endpoint: Arc<dyn Endpoint>,
        mgs: Vec<Nid>,
        fs: FsName,
        fs_id: u64,
    ) -> Arc<Directory> {
        let unknown = Map { version: 0, ..Map::new(fs, fs_id) };
        Directory::with_map(seams, transport, introduction, endpoint, mgs, unknown)
    }

    /// A directory that goes by a map which the caller has.
    pub fn with_map(
        seams: &Seams,
        transport: Arc<dyn Transport>,
        introduction: Introduction,
        endpoint: Arc<dyn Endpoint>,
        mgs: Vec<Nid>,
        map: Map,
    ) -> Arc<Directory> {
        let config = config(&introduction, map.fs_id, TargetId::MGT);
        let given_mgs = mgs.clone();
        let peer = Peer::new(transport.clone(), seams.clone(), mgs, config, Arc::new(NoNotifies));
        let map = MapWatch::new(seams, peer.clone(), map);
        let waits = Arc::<Waits>::default();
        let mgs = Caller::new(seams, TargetId::MGT, peer, map.clone(), Arc::new(NoSession), waits.clone());
        let this = Arc::new(Directory {
            seams: seams.clone(),
            transport,
            introduction,
            endpoint,
            mgs,
            given_mgs,
            map,
            callers: Mutex::default(),
            waits,
            stopped: Latch::default(),
        });
        seams.spawn("targets.follow", follow(Arc::downgrade(&this), this.map.subscribe()));
        this
    }

    /// The map, kept up to date once it was fetched.
    pub fn map(&self) -> &Arc<MapWatch> {
        &self.map
    }

    /// The caller of the MGS.
    pub fn mgs(&self) -> &Caller {
        &self.mgs
    }

    /// Time, chance, tasks, disk.
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// Every call under way.
    pub fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// The caller of a target that the map has; `None` of another, and once this side stops.
    pub fn known(&self, target: TargetId) -> Option<Caller> {
        if target == TargetId::MGT {
            return Some(self.mgs.clone());
        }
        let mut callers = self.callers.lock();
        if let Some(caller) = callers.get(&target) {
            return Some(caller.clone());
        }
        if self.stopped.is_set() {
            return None;
        }
        let map = self.map.current();
        let nids = map.target(target).map(|entry| entry.nids.clone()).filter(|nids| !nids.is_empty())?;
        let config = config(&self.introduction, map.fs_id, target);
        let seams = self.endpoint.seams(target, &self.seams);
        let notifies = self.endpoint.notifies(target);
        let peer = Peer::new(self.transport.clone(), seams, nids, config, notifies);
        let host = self.endpoint.host(target, &peer);
        let (map, waits) = (self.map.clone(), self.waits.clone());
        let caller = Caller::new(&self.seams, target, peer, map, host, waits);
        callers.insert(target, caller.clone());
        Some(caller)
    }

    /// The caller of a target; waits until the map has it. `TargetRemoved` of one that was taken out, `Shutdown` once this side stops.
    pub async fn caller(&self, target: TargetId) -> Result<Caller, Fault> {
        let mut news = self.map.subscribe();
        loop {
            if let Some(caller) = self.known(target) {
                return Ok(caller);
            }
            if news.borrow_and_update().is_removed(target) {
                return Err(removed(target));
            }
            match self.stopped.until(news.changed()).await {
                Some(Ok(())) => {}
                _ => return Err(Fault::new(Code::Shutdown)),
            }
        }
    }

    /// Like [`Directory::caller`], but fails with `UnknownTarget` after `timeout_ms`.
    pub async fn caller_within(&self, target: TargetId, timeout_ms: u64) -> Result<Caller, Fault> {
        if let Some(found) = self.seams.timeout_ms(timeout_ms, self.caller(target)).await {
            return found;
        }
        let map = self.map.current();
        Err(Fault::new(Code::UnknownTarget)
            .what("cannot reach")
            .subject(map.fs.target(target))
            .why(format!("map {} of {} does not have it", map.version, map.fs)))
    }

    /// Asks the MGS for the map, for a bounded time; whether there is a newer one. For commands, which do not watch it.
    pub async fn refetch(&self, timeout_ms: u64) -> bool {
        let before = self.map.version();
        if let Some(Ok(map)) = self.seams.timeout_ms(timeout_ms, self.map.fetch_once()).await {
            self.take(&map);
        }
        self.map.version() > before
    }

    /// Callers that were made so far, in order of their targets, without that of the MGS.
    pub fn callers(&self) -> Vec<Caller> {
        self.callers.lock().values().cloned().collect()
    }

    /// Ends every present and future call.
    pub fn stop(&self) {
        self.stopped.set();
        self.map.stop();
        self.callers().iter().for_each(Caller::stop);
        self.mgs.stop();
    }

    /// Goes by a newer map: callers learn new addresses, and end when their target is gone.
    fn take(&self, map: &Map) {
        let has_several = |mgs: &&TargetEntry| !mgs.replicas.standby.is_empty() || mgs.nids.len() > 1;
        if let Some(mgs) = map.target(TargetId::MGT).filter(has_several) {
            // The active one first; an address that was given may be the only one that is reached from here.
            let mut nids = mgs.nids.clone();
            nids.extend(self.given_mgs.iter().filter(|nid| !mgs.nids.contains(nid)).cloned());
            self.mgs.peer().set_nids(nids);
        }
        self.callers.lock().retain(|target, caller| match map.target(*target) {
            Some(entry) => {
                caller.peer().set_nids(entry.nids.clone());
                true
            }
            None => {
                caller.end(removed(*target));
                false
            }
        });
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Bulk takes every rail of an OST's host. Names take one at a time: an MDT tells a client of changes over the client's connection.
fn config(introduction: &Introduction, fs_id: u64, target: TargetId) -> PeerConfig {
    let Introduction { kind, host, serves } = introduction.clone();
    let each_rail = target.role == Role::Ost;
    PeerConfig { serves, each_rail, probes: Some(target), ..PeerConfig::new(fs_id, kind, host) }
}

fn removed(target: TargetId) -> Fault {
    Fault::new(Code::TargetRemoved).subject(target.to_string())
}

/// Tells callers of each newer map, for as long as the directory is used.
async fn follow(directory: Weak<Directory>, mut news: brindle_stdx::watch::Receiver<Arc<Map>>) {
    while news.changed().await.is_ok() {
        let map = news.borrow_and_update().clone();
        let Some(directory) = directory.upgrade() else { return };
        directory.take(&map);
    }
}
