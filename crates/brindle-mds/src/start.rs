//! Serves a formatted MDT: opens it, listens, registers, runs its background work.

use std::sync::Arc;

use brindle_config::{Expected, Superblock};
use brindle_net::latch::Latch;
use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, RpcServer, ServerConfig, ServerHandle, Transport};
use brindle_session::Registration;
use brindle_stdx::Seams;
use brindle_stdx::watch;
use brindle_types::{Code, Fault, Nid, Result, Role};
use brindle_wire::mgs::RegisterReq;
use brindle_wire::version::PeerKind;

use crate::cluster::{self, OstPeers};
use crate::config::{Config, Identity};
use crate::connections::Connections;
use crate::mdt::Mdt;
use crate::osts::Osts;
use crate::service::MdsService;
use crate::{background, changelog, expire, recovery};

/// A running MDT; stops when dropped.
pub struct Handle {
    server: ServerHandle,
    service: Arc<MdsService>,
    peers: Arc<OstPeers>,
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

    /// Name of the target: `scratch-MDT0000`.
    pub fn name(&self) -> String {
        self.service.mdt().identity().name()
    }

    /// The MDT, for status, metrics and tests.
    pub fn mdt(&self) -> &Arc<Mdt> {
        self.service.mdt()
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.server.stats()
    }

    /// Completes when the MDT can no longer serve (its log failed, the MGS refuses it), with the reason.
    pub async fn until_failed(&self) -> Fault {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(fault) => fault.clone().unwrap_or_else(|| Fault::new(Code::Shutdown)),
            Err(_) => Fault::new(Code::Shutdown),
        }
    }

    /// Completes when the MGS knows the MDT under its address.
    pub async fn until_registered(&self) {
        self.registered.wait().await;
    }

    /// Stops in order: connections first, then the store is synced and closed.
    pub async fn close(self) -> Result<()> {
        self.stop();
        self.service.mdt().engine().close().await
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        self.stop.set();
        self.server.stop();
        self.peers.stop();
        self.mgs.stop();
        if let Some(registration) = self.service.registration() {
            registration.stop();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves the MDT in `config.dir`. Returns when it listens; if the file system's id is not known yet (the first start),
/// when the MGS has answered.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let superblock = load(&config, &seams)?;
    let identity = Identity::of(&superblock);
    let connections = Connections::new(identity.target());
    let peers = OstPeers::new(&seams, transport.clone(), &config.host);
    let osts = Osts::new(seams.clone(), identity.index, peers.clone());
    let osts = osts.with_high_water(config.high_water_percent);
    let mdt = Mdt::open(&seams, identity, config, connections.clone(), osts).await?;
    recovery::begin(&mdt).await?;
    let service = MdsService::new(mdt.clone(), connections, superblock.fs_id);
    let listen = mdt.config().listen.clone();
    let bounds = ServerConfig::default();
    let server = RpcServer::serve(transport.clone(), &seams, &listen, bounds, service.clone()).await?;
    let peer_config = PeerConfig::new(superblock.fs_id, PeerKind::Server, mdt.config().host.clone());
    let (tell_failed, failed) = watch::channel(None);
    let mgs_nids = superblock.mgs.clone();
    let mgs = Peer::new(transport, seams.clone(), mgs_nids, peer_config, Arc::new(NoNotifies));
    let stop = Arc::new(Latch::default());
    let registered = Arc::new(Latch::default());
    let handle = Handle { server, service, peers, mgs, stop, failed, registered: registered.clone() };
    let known = superblock.fs_id != 0;
    let (advertised, tell_failed) = (handle.advertised(), Arc::new(tell_failed));
    let joining = Joining { superblock, advertised, tell_failed, registered };
    handle.run_background(&joining);
    if known {
        handle.join_later(joining);
    } else {
        handle.join(joining).await?;
    }
    Ok(handle)
}

fn load(config: &Config, seams: &Seams) -> Result<Superblock> {
    let loaded = Superblock::load(&*seams.disk, &config.dir, &Expected { fs: None, target: None })?;
    let mut superblock = loaded.superblock;
    if superblock.target.role != Role::Mdt {
        return Err(Fault::new(Code::ForeignTarget)
            .subject(config.dir.clone())
            .why(format!("it holds {}, not an MDT", superblock.name())));
    }
    if let Some(warning) = loaded.warning {
        tracing::warn!(code = %warning.code, subject = %warning.subject, "{}", warning.what);
        superblock.save(&*seams.disk, &config.dir)?;
    }
    Ok(superblock)
}

/// What joining the cluster needs.
struct Joining {
    superblock: Superblock,
    advertised: Vec<Nid>,
    tell_failed: Arc<watch::Sender<Option<Fault>>>,
    registered: Arc<Latch>,
}

/// Registers with the MGS; a file system id that is new here goes into the superblock.
async fn join(
    mut joining: Joining,
    service: Arc<MdsService>,
    peers: Arc<OstPeers>,
    mgs: Arc<Peer>,
    stop: Arc<Latch>,
) -> Result<()> {
    let mdt = service.mdt().clone();
    let superblock = &mut joining.superblock;
    let announce = RegisterReq {
        fs: superblock.fs.clone(),
        fs_id: superblock.fs_id,
        target: superblock.target,
        uuid: superblock.uuid,
        nids: joining.advertised.clone(),
        host: mdt.config().host.clone(),
    };
    let registration = Registration::start(mdt.seams(), mgs, announce).await?;
    let fs_id = registration.map().current().fs_id;
    if superblock.fs_id != fs_id {
        superblock.fs_id = fs_id;
        superblock.save(&*mdt.seams().disk, &mdt.config().dir)?;
    }
    let map = registration.map().clone();
    cluster::take_map(&mdt, &peers, map.current());
    service.registered(registration);
    joining.registered.set();
    let following = mdt.clone();
    mdt.seams().spawn("mds.map", async move {
        stop.until(cluster::follow_map(following, peers, map)).await;
    });
    Ok(())
}

impl Handle {
    fn advertised(&self) -> Vec<Nid> {
        let configured = &self.mdt().config().advertise;
        if configured.is_empty() { vec![self.local_nid().clone()] } else { configured.clone() }
    }

    async fn join(&self, joining: Joining) -> Result<()> {
        let (service, peers) = (self.service.clone(), self.peers.clone());
        join(joining, service, peers, self.mgs.clone(), self.stop.clone()).await
    }

    /// Registers while it serves already: the MGS may be away.
    fn join_later(&self, joining: Joining) {
        let tell = joining.tell_failed.clone();
        let (service, peers, stop) = (self.service.clone(), self.peers.clone(), self.stop.clone());
        let joined = join(joining, service, peers, self.mgs.clone(), stop.clone());
        self.spawn("mds.join", async move {
            if let Err(fault) = joined.await {
                tell.send_replace(Some(fault));
            }
        });
    }

    fn run_background(&self, joining: &Joining) {
        let mdt = || self.mdt().clone();
        self.spawn("mds.recovery", recovery::run(mdt()));
        self.spawn("mds.leases", expire::watch_leases(mdt()));
        self.spawn("mds.inodes", background::reserve_inodes(mdt()));
        self.spawn("mds.replaced", background::purge_replaced(mdt()));
        self.spawn("mds.recount", background::recount(mdt()));
        self.spawn("mds.changelog", changelog::keep_small(mdt()));
        self.spawn("mds.destroy", background::destroy_objects(mdt()));
        self.spawn("mds.space", cluster::poll_space(mdt(), self.peers.clone()));
        let (mdt, tell) = (mdt(), joining.tell_failed.clone());
        self.spawn("mds.failed", async move {
            tell.send_replace(Some(mdt.engine().until_failed().await));
        });
    }

    /// Runs until the handle is stopped.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.mdt().seams().spawn(name, async move {
            stop.until(task).await;
        });
    }
}
