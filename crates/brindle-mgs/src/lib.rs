//! The management service: keeps the map of one file system and tells everybody who serves what, where.
//!
//! [`format()`] makes an MGT, [`start`] serves it. Servers register their targets and send heartbeats ([`ops`]);
//! everybody asks for the map, and waits for a newer one. The map lies in the config store ([`store`]); who is heard of
//! is volatile ([`liveness`]).
//!
//! The MGS is in no data path: while it is away, files are read and written as before; only a server that starts,
//! or a new mount, must wait for it.
//!
//! Invariants: an index belongs to one target identity for ever; a target's epoch rises with every change of who
//! serves it, and the map's version with every change; both are durable before anybody sees them.

mod dispatch;
pub mod hosts;
pub mod liveness;
mod ops;
pub mod shared;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_config::{ConfigStore, Expected, LocalStore, Superblock};
use brindle_net::{RpcServer, ServerConfig, ServerConn, ServerHandle, Service, Transport};
use brindle_stdx::disk::Disk;
use brindle_stdx::{BoxFuture, Rng, Seams, Timestamp};
use brindle_targets::Gate;
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use brindle_wire::frame::Frame;
use brindle_wire::map::Map;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use hosts::Hosts;
use liveness::Liveness;
use store::MapStore;

/// File in the MGT's directory that holds the config store.
pub const STORE_FILE: &str = "config";
/// How often servers send heartbeats unless configured otherwise.
pub const HEARTBEAT_MS_DEFAULT: u32 = 2_000;
/// A target that was not heard of for this long is shown as down, unless configured otherwise.
pub const TARGET_LEASE_MS_DEFAULT: u64 = 6_000;
/// Longest time that a request for a newer map is held.
pub const MAP_WAIT_MAX_MS: u32 = 60_000;
/// Requests for a newer map that are held at once; further ones are answered at once with what there is.
pub const MAP_WAITERS_MAX: usize = 16_384;

/// How an MGS runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the formatted MGT.
    pub dir: String,
    /// Where to listen; port 0 chooses a free one.
    pub listen: Nid,
    /// Addresses that others reach it at; empty for the one it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host, for people.
    pub host: String,
    /// How often servers send heartbeats, milliseconds.
    pub heartbeat_ms: u32,
    /// A target that was not heard of for this long is shown as down, milliseconds.
    pub target_lease_ms: u64,
    /// The way to fence hosts that share devices; without one no target is taken over by itself.
    pub fence: Option<Arc<dyn shared::Fence>>,
}

impl Config {
    /// The usual values.
    pub fn new(dir: impl Into<String>, listen: Nid, host: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen,
            advertise: Vec::new(),
            host: host.into(),
            heartbeat_ms: HEARTBEAT_MS_DEFAULT,
            target_lease_ms: TARGET_LEASE_MS_DEFAULT,
            fence: None,
        }
    }
}

/// Counters of an MGS.
#[derive(Debug, Default)]
pub struct Stats {
    /// Registrations that changed the map.
    pub registrations: AtomicU64,
    /// Registrations that were refused.
    pub refusals: AtomicU64,
    /// Heartbeats heard.
    pub heartbeats: AtomicU64,
    /// Maps given out.
    pub maps: AtomicU64,
}

/// A running MGS; stops when dropped.
pub struct Handle {
    server: ServerHandle,
    mgs: Arc<Mgs>,
}

impl Handle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.server.local_nid()
    }

    /// Name of the target: `scratch-MGT0000`.
    pub fn name(&self) -> String {
        self.mgs.superblock.name()
    }

    /// The map as it would be told now.
    pub fn map(&self) -> Map {
        self.mgs.map_now()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.mgs.stats
    }

    /// The gate in front of it.
    pub fn gate(&self) -> &Gate {
        &self.mgs.gate
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.server.stats()
    }

    /// Closes its connections.
    pub fn stop(&self) {
        self.server.stop();
    }
}

/// The service.
pub(crate) struct Mgs {
    seams: Seams,
    config: Config,
    superblock: Superblock,
    gate: Gate,
    store: MapStore,
    liveness: Mutex<Liveness>,
    waiters: Semaphore,
    stats: Stats,
    /// `None` where the cluster has no authority.
    hosts: Option<Hosts>,
    shared: shared::Shared,
}

impl Mgs {
    /// The map, with what is known of each target at this moment.
    fn map_now(&self) -> Map {
        let mut map = (*self.store.current()).clone();
        self.liveness.lock().show(self.seams.now(), &mut map);
        self.stats.maps.fetch_add(1, Ordering::Relaxed);
        map
    }

    fn check_fs(&self, fs: &FsName) -> Result<()> {
        if *fs == self.superblock.fs {
            return Ok(());
        }
        Err(Fault::new(Code::NoSuchFs)
            .what("the MGS does not know the file system")
            .subject(fs.to_string())
            .why(format!("it knows: {}", self.superblock.fs)))
    }
}

impl Service for Mgs {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        self.gate.hello(conn)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(dispatch::answer(self, conn, frame))
    }

    fn closed(&self, _conn_id: u64) {}
}

/// Makes an MGT in `dir`: superblock, and a config store with an empty map.
pub fn format(
    disk: Arc<dyn Disk>,
    rng: &dyn Rng,
    now: Timestamp,
    dir: &str,
    fs: FsName,
) -> Result<Superblock> {
    let mut superblock = Superblock::new(fs, TargetId::MGT, Vec::new(), now, rng);
    let store = LocalStore::create(disk.clone(), &store_path(dir))?;
    MapStore::format(&store, &superblock)?;
    superblock.save(&*disk, dir)?;
    Ok(superblock)
}

fn store_path(dir: &str) -> String {
    format!("{dir}/{STORE_FILE}")
}

/// Checks the store of an MGT without changing anything (fsck): how many targets its map has.
pub async fn check(disk: Arc<dyn Disk>, dir: &str) -> Result<Map> {
    let loaded = Superblock::load(&*disk, dir, &mgt())?;
    let store = LocalStore::open(disk, &store_path(dir))?;
    let store = MapStore::open(Arc::new(store), &loaded.superblock).await?;
    Ok((*store.current()).clone())
}

fn mgt() -> Expected {
    Expected { fs: None, target: Some(TargetId::MGT) }
}

/// Serves the MGT in `config.dir` until the handle is stopped or dropped.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let loaded = Superblock::load(&*seams.disk, &config.dir, &mgt())?;
    let mut superblock = loaded.superblock;
    if let Some(warning) = loaded.warning {
        tracing::warn!(code = %warning.code, subject = %warning.subject, "{}", warning.what);
        superblock.save(&*seams.disk, &config.dir)?;
    }
    let store = LocalStore::open(seams.disk.clone(), &store_path(&config.dir))?;
    let store: Arc<dyn ConfigStore> = Arc::new(store);
    let hosts = match hosts::authority(&*seams.disk, &config.dir)? {
        Some(authority) => Some(Hosts::open(authority, store.clone(), transport.removed_keys()).await?),
        None => None,
    };
    let store = MapStore::open(store, &superblock).await?;
    let mgs = Arc::new(Mgs {
        hosts,
        shared: shared::Shared::new(seams.now()),
        liveness: Mutex::new(Liveness::new(seams.now(), config.target_lease_ms)),
        waiters: Semaphore::new(MAP_WAITERS_MAX),
        stats: Stats::default(),
        seams: seams.clone(),
        config,
        gate: Gate::new(TargetId::MGT, superblock.name(), superblock.fs_id),
        superblock,
        store,
    });
    let listen = &mgs.config.listen;
    let server = RpcServer::serve(transport, &seams, listen, ServerConfig::default(), mgs.clone()).await?;
    ops::register::own(&mgs, server.local_nid()).await?;
    seams.spawn("mgs.shared", shared::watch(Arc::downgrade(&mgs)));
    Ok(Handle { server, mgs })
}

#[cfg(test)]
mod tests;
