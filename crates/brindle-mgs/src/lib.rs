//! The management service keeps the map of one file system and tells everybody which host serves which target at which address.
//!
//! [`format()`] makes an MGT, [`start`] serves it. Servers register their targets and send heartbeats ([`ops`]); everybody asks for
//! the map, and waits for a newer one. The map lies in the config store ([`store`]); the liveness of targets is volatile
//! ([`liveness`]).
//!
//! The MGS is in no data path: while it is away, files are read and written as before; only a server that starts,
//! or a new mount, must wait for it.
//!
//! If the configuration lies in etcd, several hosts run the MGS with the same superblock ([`active`]). One is active. The others
//! wait for its lease to end and do not listen meanwhile, so that callers go on to the next address.
//!
//! Invariants: an index belongs to one target identity for ever; a target's epoch rises with every change of who
//! serves it, and the map's version with every change; both are durable before anybody sees them.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

mod active;
pub mod backup;
mod dispatch;
mod durability;
mod events;
pub mod hosts;
mod limits;
pub mod liveness;
mod ops;
mod published;
pub mod rebuilt;
mod replica;
mod restored;
pub mod shared;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_config::etcd::Leadership;
use brindle_config::etcd::settings::Settings;
use brindle_config::{ConfigStore, Expected, LocalStore, Superblock};
use brindle_net::{ServerConn, Service};
use brindle_stdx::disk::Disk;
use brindle_stdx::{BoxFuture, Rng, Seams, Timestamp};
use brindle_targets::Gate;
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use brindle_wire::frame::Frame;
use brindle_wire::map::Map;
use brindle_wire::oss::scrub::ScrubPass;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use active::{Handle, start};
use hosts::Hosts;
use liveness::Liveness;
use store::MapStore;

/// File in the MGT's directory that holds the config store.
pub const STORE_FILE: &str = "config";
/// Default interval of heartbeats, in milliseconds.
pub const HEARTBEAT_MS_DEFAULT: u32 = 2_000;
/// A target that was not heard of for this long is shown as down, unless configured otherwise.
pub const TARGET_LEASE_MS_DEFAULT: u64 = 6_000;
/// Longest time that a request for a newer map is held.
pub const MAP_WAIT_MAX_MS: u32 = 60_000;
/// Requests for a newer map that are held at once; further ones are answered at once with the present map.
pub const MAP_WAITERS_MAX: usize = 16_384;

/// Configuration of an MGS.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the formatted MGT.
    pub dir: String,
    /// Address to listen at; port 0 chooses a free one.
    pub listen: Nid,
    /// Addresses of further rails to listen at, with the same port.
    pub rails: Vec<Nid>,
    /// Addresses that others reach it at; empty for the one it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host, for people.
    pub host: String,
    /// Interval of heartbeats, in milliseconds.
    pub heartbeat_ms: u32,
    /// A target that was not heard of for this long is shown as down, milliseconds.
    pub target_lease_ms: u64,
    /// The way to fence hosts that share devices; without one no target is taken over by itself.
    pub fence: Option<Arc<dyn shared::Fence>>,
    /// A target that two hosts share goes back to its preferred host when that has stood by for so long, milliseconds; `None`: only by order.
    pub failback_after_ms: Option<u64>,
}

impl Config {
    /// The usual values.
    pub fn new(dir: impl Into<String>, listen: Nid, host: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen,
            rails: Vec::new(),
            advertise: Vec::new(),
            host: host.into(),
            heartbeat_ms: HEARTBEAT_MS_DEFAULT,
            target_lease_ms: TARGET_LEASE_MS_DEFAULT,
            fence: None,
            failback_after_ms: None,
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

/// The service.
pub(crate) struct Mgs {
    seams: Seams,
    config: Config,
    superblock: Superblock,
    gate: Arc<Gate>,
    store: MapStore,
    limits: limits::Limits,
    durability: durability::Durability,
    events: events::Events,
    liveness: Mutex<Liveness>,
    waiters: Semaphore,
    stats: Arc<Stats>,
    /// The right to answer, where several hosts run the MGS.
    leadership: Option<Arc<Leadership>>,
    /// Addresses at which others reach this MGS; set once it listens.
    own_nids: OnceLock<Vec<Nid>>,
    /// `None` where the cluster has no authority.
    hosts: Option<Hosts>,
    shared: shared::Shared,
    replicas: replica::Replicas,
    /// Passes of scrubs, as OSTs told of them last: volatile.
    scrubs: parking_lot::Mutex<BTreeMap<TargetId, ScrubPass>>,
}

impl Mgs {
    /// Whether this MGS may answer at this moment.
    pub(crate) fn check_leads(&self) -> Result<()> {
        let Some(leadership) = &self.leadership else { return Ok(()) };
        leadership.check().map_err(|fault| fault.subject(self.superblock.name()))
    }

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
        self.check_leads()?;
        self.gate.hello(conn)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(dispatch::answer(self, conn, frame))
    }

    fn closed(&self, _conn_id: u64) {}
}

/// Makes an MGT in `dir`: superblock, and a config store of its own with an empty map.
pub async fn format(
    disk: Arc<dyn Disk>,
    rng: &dyn Rng,
    now: Timestamp,
    dir: &str,
    fs: FsName,
) -> Result<Superblock> {
    let mut superblock = Superblock::new(fs, TargetId::MGT, Vec::new(), now, rng);
    let store = LocalStore::create(disk.clone(), &store_path(dir))?;
    found(&store, &superblock).await?;
    superblock.save(&*disk, dir)?;
    Ok(superblock)
}

/// Writes the empty map of a new file system to a config store; `StoreInUse` where the store has one of that name.
pub async fn found(store: &dyn ConfigStore, superblock: &Superblock) -> Result<()> {
    MapStore::format(store, superblock).await
}

/// The config store in the directory of an MGT that was just made.
pub fn local_store(disk: Arc<dyn Disk>, dir: &str) -> Result<LocalStore> {
    LocalStore::open(disk, &store_path(dir))
}

fn store_path(dir: &str) -> String {
    format!("{dir}/{STORE_FILE}")
}

/// Checks what lies in the directory of an MGT, without changing anything (fsck). The configuration itself is looked at where it lies there,
/// and not where it lies in etcd.
pub async fn check(disk: Arc<dyn Disk>, dir: &str) -> Result<()> {
    let loaded = Superblock::load(&*disk, dir, &mgt())?;
    hosts::authority(&*disk, dir)?;
    if Settings::read(&*disk, dir)?.is_some() {
        return Ok(());
    }
    let store = LocalStore::open(disk, &store_path(dir))?;
    MapStore::open(Arc::new(store), &loaded.superblock).await.map(drop)
}

fn mgt() -> Expected {
    Expected { fs: None, target: Some(TargetId::MGT) }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
