//! From an MGT to a service: at once if its configuration lies beside it; while this MGS holds the lease if it lies in etcd.
//!
//! ```text
//! standing by --the lease is won--> active --the lease has ended, or may have--> standing by
//! ```
//!
//! Invariant: an MGS that stands by does not listen; an active one checks its lease before each reply, and each of its writes to etcd is
//! done only while the lease exists. An MGS reads all its state anew whenever it becomes active.

use std::sync::{Arc, OnceLock};

use brindle_config::etcd::settings::Settings;
use brindle_config::etcd::{Lead, Leadership};
use brindle_config::{ConfigStore, EtcdStore, LocalStore, Superblock};
use brindle_net::latch::Latch;
use brindle_net::{RpcServer, ServerConfig, ServerHandle, ServerStats, Transport};
use brindle_stdx::{Seams, watch};
use brindle_targets::Gate;
use brindle_types::{Code, Fault, Nid, Result, TargetId};
use brindle_wire::map::Map;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::durability::Durability;
use crate::events::{self, Events};
use crate::hosts::{self, Hosts};
use crate::limits::Limits;
use crate::liveness::Liveness;
use crate::store::MapStore;
use crate::{Config, MAP_WAITERS_MAX, Mgs, Stats, mgt, ops, replica, shared, store_path};

/// Pause before an MGS that could not begin to serve tries to become active again.
const AGAIN_MS: u64 = 1_000;

/// An MGS that serves or stands by; it stops when dropped.
pub struct Handle {
    name: String,
    nid: Nid,
    shared: Arc<Standing>,
}

/// State that outlives a leadership.
struct Standing {
    config: Config,
    superblock: Superblock,
    seams: Seams,
    transport: Arc<dyn Transport>,
    gate: Arc<Gate>,
    stats: Arc<Stats>,
    active: Mutex<Option<Active>>,
    stop: Latch,
    failed: watch::Sender<Option<Fault>>,
}

/// An active MGS.
struct Active {
    server: ServerHandle,
    mgs: Arc<Mgs>,
}

impl Handle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        &self.nid
    }

    /// Name of the target: `scratch-MGT0000`.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The map as it would be told now; `None` while another MGS is active.
    pub fn map(&self) -> Option<Map> {
        self.shared.active.lock().as_ref().map(|active| active.mgs.map_now())
    }

    /// Whether the MGS serves, and does not stand by.
    pub fn is_active(&self) -> bool {
        self.shared.active.lock().is_some()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// The gate in front of the service.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Counters of its connections since it became active.
    pub fn server_stats(&self) -> ServerStats {
        self.shared.active.lock().as_ref().map(|active| active.server.stats()).unwrap_or_default()
    }

    /// Closes its connections.
    pub fn stop(&self) {
        self.shared.stop.set();
        if let Some(active) = &*self.shared.active.lock() {
            active.server.stop();
        }
    }

    /// Stops it; where others stand by, one of them becomes active at once.
    pub async fn hand_over(&self) {
        self.stop();
        let active = self.shared.active.lock().take();
        if let Some(leadership) = active.and_then(|active| active.mgs.leadership.clone())
            && let Err(fault) = leadership.resign().await
        {
            tracing::warn!(code = %fault.code, "the lease of the active MGS is left to run out: {fault}");
        }
    }

    /// Completes when the MGS can no longer serve, with the reason.
    pub async fn until_failed(&self) -> Fault {
        let mut failed = self.shared.failed.subscribe();
        // `wait_for` only fails when the sender is gone, which `self` holds.
        let fault = failed.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        fault.unwrap_or_else(|| Fault::new(Code::Shutdown))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves the MGT in `config.dir` until the handle is stopped or dropped. If its configuration lies in etcd, the MGS may have to stand by
/// first.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let loaded = Superblock::load(&*seams.disk, &config.dir, &mgt())?;
    let mut superblock = loaded.superblock;
    if let Some(warning) = loaded.warning {
        tracing::warn!(code = %warning.code, subject = %warning.subject, "{}", warning.what);
        superblock.save(&*seams.disk, &config.dir)?;
    }
    let settings = Settings::read(&*seams.disk, &config.dir)?;
    let gate = Arc::new(Gate::new(TargetId::MGT, superblock.name(), superblock.fs_id));
    gate.behind(&*transport);
    let shared = Arc::new(Standing {
        config,
        superblock,
        seams,
        transport,
        gate,
        stats: Arc::default(),
        active: Mutex::default(),
        stop: Latch::default(),
        failed: watch::Sender::default(),
    });
    let name = shared.superblock.name();
    let Some(settings) = settings else {
        let store = LocalStore::open(shared.seams.disk.clone(), &store_path(&shared.config.dir))?;
        let active = shared.serve(Arc::new(store), None).await?;
        let nid = active.server.local_nid().clone();
        *shared.active.lock() = Some(active);
        return Ok(Handle { name, nid, shared });
    };
    let nid = shared.config.listen.clone();
    if nid.port == 0 {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot serve")
            .subject(name)
            .why("one of several MGS needs a fixed port, so that others find it")
            .next("give --port N"));
    }
    let etcd = settings.open(shared.seams.clone())?;
    let won = match etcd.try_lead(&shared.config.host).await {
        // A failure of `lead` may pass: this MGS stands by, and tries again.
        Ok(Lead::Won(store)) => passes(shared.lead(store).await)?,
        Ok(Lead::Held(leader)) => {
            tracing::info!(%leader, "this MGS stands by");
            None
        }
        Err(fault) => {
            tracing::warn!(code = %fault.code, "this MGS cannot become active: {fault}");
            None
        }
    };
    let standing = shared.clone();
    shared.seams.spawn("mgs.standing", async move {
        standing.stop.until(standing.go_on(etcd, won)).await;
    });
    Ok(Handle { name, nid, shared })
}

/// The leadership, or `None` where it was lost again by something that passes.
fn passes<T>(led: Result<T>) -> Result<Option<T>> {
    match led {
        Err(fault) if matches!(fault.code, Code::NotLeading | Code::StoreUnreachable) => {
            tracing::warn!(code = %fault.code, "this MGS could not become active: {fault}");
            Ok(None)
        }
        led => led.map(Some),
    }
}

impl Standing {
    /// Waits for the end of each leadership, then for the next.
    async fn go_on(&self, etcd: EtcdStore, mut led: Option<Arc<Leadership>>) {
        loop {
            if let Some(leadership) = led.take() {
                leadership.ended().await;
                tracing::warn!(code = %Code::NotLeading, "this MGS is not the active one any more");
                if let Some(active) = self.active.lock().take() {
                    active.server.stop();
                }
            }
            let store = etcd.lead(&self.config.host).await;
            match passes(self.lead(store).await) {
                Ok(Some(leadership)) => led = Some(leadership),
                Ok(None) => self.seams.sleep_ms(AGAIN_MS).await,
                Err(fault) => {
                    tracing::error!(code = %fault.code, "this MGS cannot become active: {fault}");
                    self.failed.send_replace(Some(fault));
                    return;
                }
            }
        }
    }

    /// Serves under a leadership that was won. Gives it back when that is not possible.
    async fn lead(&self, store: EtcdStore) -> Result<Arc<Leadership>> {
        let no_leadership = || Fault::new(Code::Bug).why("a store that was won has no leadership");
        let leadership = store.leadership().cloned().ok_or_else(no_leadership)?;
        match self.serve(Arc::new(store), Some(leadership.clone())).await {
            Ok(active) => {
                *self.active.lock() = Some(active);
                tracing::info!("this MGS is the active one");
                Ok(leadership)
            }
            Err(fault) => {
                if let Err(other) = leadership.resign().await {
                    tracing::warn!(code = %other.code, "the lease of the active MGS is left to run out: {other}");
                }
                Err(fault)
            }
        }
    }

    /// Reads the configuration and listens.
    async fn serve(
        &self,
        store: Arc<dyn ConfigStore>,
        leadership: Option<Arc<Leadership>>,
    ) -> Result<Active> {
        let seams = &self.seams;
        let hosts = match hosts::authority(&*seams.disk, &self.config.dir)? {
            Some(authority) => {
                Some(Hosts::open(authority, store.clone(), self.transport.removed_keys()).await?)
            }
            None => None,
        };
        let mgs = Arc::new(Mgs {
            hosts,
            shared: shared::Shared::new(seams.now()),
            replicas: replica::Replicas::new(seams.now()),
            scrubs: parking_lot::Mutex::default(),
            liveness: Mutex::new(Liveness::new(seams.now(), self.config.target_lease_ms)),
            waiters: Semaphore::new(MAP_WAITERS_MAX),
            stats: self.stats.clone(),
            seams: seams.clone(),
            config: self.config.clone(),
            gate: self.gate.clone(),
            events: Events::open(store.clone(), &self.superblock.fs).await?,
            limits: Limits::open(store.clone(), &self.superblock.fs).await?,
            durability: Durability::open(store.clone(), &self.superblock.fs).await?,
            store: MapStore::open(store, &self.superblock).await?,
            superblock: self.superblock.clone(),
            leadership,
            own_nids: OnceLock::new(),
        });
        let (listen, config) = (&self.config.listen, ServerConfig::default());
        let server = RpcServer::serve(self.transport.clone(), seams, listen, config, mgs.clone()).await?;
        server.serve_rails(&*self.transport, &self.config.rails).await?;
        ops::register::own(&mgs, &server.nids(&self.config.rails)).await?;
        mgs.gives_time_to_renamed();
        seams.spawn("mgs.shared", shared::watch(Arc::downgrade(&mgs)));
        seams.spawn("mgs.events", events::watch(Arc::downgrade(&mgs)));
        seams.spawn("mgs.replicas", replica::watch(Arc::downgrade(&mgs)));
        Ok(Active { server, mgs })
    }
}

#[cfg(test)]
mod rename_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mgs_that_has_won_and_loses_its_store_stands_by() {
        for code in [Code::StoreUnreachable, Code::NotLeading] {
            assert_eq!(passes::<u8>(Err(Fault::new(code))), Ok(None));
        }
        assert_eq!(passes(Ok(7)), Ok(Some(7)));
        assert_eq!(passes::<u8>(Err(Fault::new(Code::StoreDamaged))).unwrap_err().code, Code::StoreDamaged);
    }
}
