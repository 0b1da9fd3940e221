//! Serves a formatted OST: opens it, listens, registers, learns of fences, runs its background work.

use std::sync::Arc;

use brindle_config::{Expected, Superblock};
use brindle_net::latch::Latch;
use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, RpcServer, ServerConfig, ServerHandle, Transport};
use brindle_objects::{ObjectStore, StoreConfig};
use brindle_session::{MapWatch, Registration};
use brindle_stdx::Seams;
use brindle_stdx::watch;
use brindle_types::{Code, Fault, Nid, Result, Role};
use brindle_wire::mgs::RegisterReq;
use brindle_wire::version::PeerKind;

use crate::collect;
use crate::config::Config;
use crate::fences;
use crate::peers::{self, Peers};
use crate::service::{Oss, OssService};

/// A running OST; stops when dropped.
pub struct Handle {
    server: ServerHandle,
    oss: Arc<Oss>,
    mgs: Arc<Peer>,
    stop: Arc<Latch>,
    failed: watch::Receiver<Option<Fault>>,
    registered: Arc<Latch>,
}

impl Handle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.server.local_nid()
    }

    /// Name of the target: `scratch-OST0003`.
    pub fn name(&self) -> String {
        self.oss.identity.name()
    }

    /// The OST, for status, metrics and tests.
    pub fn oss(&self) -> &Arc<Oss> {
        &self.oss
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.server.stats()
    }

    /// Completes when the OST can no longer serve, with the reason.
    pub async fn until_failed(&self) -> Fault {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(fault) => fault.clone().unwrap_or_else(|| Fault::new(Code::Shutdown)),
            Err(_) => Fault::new(Code::Shutdown),
        }
    }

    /// Completes when the MGS knows the OST under its address.
    pub async fn until_registered(&self) {
        self.registered.wait().await;
    }

    /// Stops in order: connections first, then everything is synced.
    pub async fn close(self) -> Result<()> {
        self.stop();
        self.oss.store.close().await
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        self.stop.set();
        self.server.stop();
        self.oss.peers.stop();
        self.mgs.stop();
        if let Some(registration) = self.oss.registration() {
            registration.stop();
        }
    }

    fn advertised(&self, config: &Config) -> Vec<Nid> {
        if config.advertise.is_empty() { vec![self.local_nid().clone()] } else { config.advertise.clone() }
    }

    /// Runs until the handle is stopped.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.oss.seams.spawn(name, async move {
            stop.until(task).await;
        });
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves the OST in `config.dir`. Returns when it listens; the first start waits for the MGS, which tells the id of the
/// file system. Reads are answered at once; changes wait until the MDT has told which sessions it ended while this OST
/// was away, because those are refused.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let mut superblock = load(&config, &seams)?;
    let peer_config = PeerConfig::new(superblock.fs_id, PeerKind::Server, config.host.clone());
    let nids = superblock.mgs.clone();
    let mgs = Peer::new(transport.clone(), seams.clone(), nids, peer_config, Arc::new(NoNotifies));
    if superblock.fs_id == 0 {
        let map = MapWatch::start(&seams, mgs.clone(), superblock.fs.clone()).await?;
        superblock.fs_id = map.current().fs_id;
        superblock.save(&*seams.disk, &config.dir)?;
        map.stop();
    }
    let store_config = StoreConfig { root: config.dir.clone(), fs_id: superblock.fs_id };
    let store = ObjectStore::open(seams.clone(), store_config).await?;
    let peers = Peers::new(&seams, transport.clone(), &config.host, superblock.target);
    // Where it cannot be told nothing is said of it.
    let shares_its_disk = matches!(brindle_config::neighbour(&*seams.disk, &config.dir), Ok(Some(_)));
    let oss = Oss::new(store, peers, superblock, seams.clone(), shares_its_disk);
    let service = Arc::new(OssService(oss.clone()));
    let bounds = ServerConfig::default();
    let server = RpcServer::serve(transport, &seams, &config.listen, bounds, service).await?;
    let (tell_failed, failed) = watch::channel(None);
    let (stop, registered) = (Arc::new(Latch::default()), Arc::new(Latch::default()));
    let handle = Handle { server, oss, mgs, stop, failed, registered: registered.clone() };
    handle.oss.store.start_background();
    handle.spawn("oss.fences", fences::follow(handle.oss.clone()));
    handle.spawn("oss.collect", collect::run(handle.oss.clone()));
    handle.spawn("oss.recheck", collect::recheck(handle.oss.clone()));
    let nids = handle.advertised(&config);
    let joined = join(handle.oss.clone(), handle.mgs.clone(), nids, config.host, registered);
    handle.spawn("oss.join", async move {
        if let Err(fault) = joined.await {
            tell_failed.send_replace(Some(fault));
        }
        // The sender lives as long as the handle's task, so that the receiver waits.
        std::future::pending::<()>().await;
    });
    Ok(handle)
}

fn load(config: &Config, seams: &Seams) -> Result<Superblock> {
    let loaded = Superblock::load(&*seams.disk, &config.dir, &Expected { fs: None, target: None })?;
    let mut superblock = loaded.superblock;
    if superblock.target.role != Role::Ost {
        return Err(Fault::new(Code::ForeignTarget)
            .subject(config.dir.clone())
            .why(format!("it holds {}, not an OST", superblock.name())));
    }
    if let Some(warning) = loaded.warning {
        tracing::warn!(code = %warning.code, subject = %warning.subject, "{}", warning.what);
        superblock.save(&*seams.disk, &config.dir)?;
    }
    Ok(superblock)
}

/// Registers with the MGS, stays registered, and follows the map.
async fn join(
    oss: Arc<Oss>,
    mgs: Arc<Peer>,
    nids: Vec<Nid>,
    host: String,
    registered: Arc<Latch>,
) -> Result<()> {
    let identity = &oss.identity;
    let announce = RegisterReq {
        fs: identity.fs.clone(),
        fs_id: identity.fs_id,
        target: identity.target,
        uuid: identity.uuid,
        nids,
        host,
    };
    let registration = Registration::start(&oss.seams, mgs, announce).await?;
    let map = registration.map().clone();
    oss.registered(registration);
    registered.set();
    peers::follow_map(oss.peers.clone(), map).await;
    Ok(())
}
