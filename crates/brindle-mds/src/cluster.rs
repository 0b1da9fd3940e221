//! The rest of the cluster: the OSTs of the map and their free space.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_layout::Candidate;
use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, Transport};
use brindle_session::MapWatch;
use brindle_stdx::watch;
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::frame::Frame;
use brindle_wire::map::Map;
use brindle_wire::oss::statfs::OstStatfsReq;
use brindle_wire::version::PeerKind;
use futures_util::future::join_all;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::mdt::Mdt;
use crate::osts::OstCalls;

/// How often free space of OSTs is asked for.
const POLL_MS: u64 = 2_000;
/// An OST that does not answer for so long counts as down.
const POLL_TIMEOUT_MS: u64 = 1_500;

/// Connections to the OSTs of the map.
pub struct OstPeers {
    seams: Seams,
    transport: Arc<dyn Transport>,
    host: String,
    peers: RwLock<BTreeMap<u16, Arc<Peer>>>,
    map: watch::Sender<Option<Arc<Map>>>,
    /// There is a newer map.
    news: Notify,
}

impl OstPeers {
    /// No OST is known yet.
    pub fn new(seams: &Seams, transport: Arc<dyn Transport>, host: &str) -> Arc<OstPeers> {
        Arc::new(OstPeers {
            seams: seams.clone(),
            transport,
            host: host.to_owned(),
            peers: RwLock::default(),
            map: watch::Sender::default(),
            news: Notify::new(),
        })
    }

    /// Connects to the new OSTs of a map, tells known ones' new addresses, and parts from those that were removed.
    fn add(&self, map: &Map) {
        let mut peers = self.peers.write();
        peers.retain(|ost, peer| {
            let stays = !map.is_removed(TargetId::ost(*ost));
            if !stays {
                peer.stop();
            }
            stays
        });
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Ost) {
            match peers.get(&entry.id.index) {
                Some(peer) => peer.set_nids(entry.nids.clone()),
                None => {
                    let config = PeerConfig::new(map.fs_id, PeerKind::Server, self.host.clone());
                    let (transport, seams) = (self.transport.clone(), self.seams.clone());
                    let peer = Peer::new(transport, seams, entry.nids.clone(), config, Arc::new(NoNotifies));
                    peers.insert(entry.id.index, peer);
                }
            }
        }
    }

    /// Goes by a newer map from now on.
    fn set_map(&self, map: Arc<Map>) {
        self.map.send_replace(Some(map));
        self.news.notify_one();
    }

    /// Indices of the OSTs in the map.
    pub fn indices(&self) -> Vec<u16> {
        self.peers.read().keys().copied().collect()
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.peers.read().values().for_each(|peer| peer.stop());
    }
}

impl OstCalls for OstPeers {
    fn call(&self, ost: u16, mut frame: Frame) -> BoxFuture<'static, Result<Frame>> {
        let peer = self.peers.read().get(&ost).cloned();
        if let Some(map) = &*self.map.borrow() {
            frame.header.fs_id = map.fs_id;
            frame.header.map_version = map.version;
            frame.header.target_epoch = map.target(TargetId::ost(ost)).map_or(0, |t| t.epoch);
        }
        Box::pin(async move {
            let unknown = || Fault::new(Code::UnknownTarget).subject(TargetId::ost(ost).to_string());
            peer.ok_or_else(unknown)?.call(frame).await
        })
    }

    fn all(&self) -> BoxFuture<'_, Vec<u16>> {
        Box::pin(async {
            // Only fails when the sender is gone, which `self` holds.
            let _ = self.map.subscribe().wait_for(Option::is_some).await;
            self.indices()
        })
    }
}

/// Takes in a map: the pools before the OSTs are asked, so that they are known when their OSTs are.
pub fn take_map(mdt: &Mdt, peers: &OstPeers, map: Arc<Map>) {
    peers.add(&map);
    mdt.osts().set_map(&map);
    peers.set_map(map);
}

/// Follows the map.
pub async fn follow_map(mdt: Arc<Mdt>, peers: Arc<OstPeers>, watch: Arc<MapWatch>) {
    let mut news = watch.subscribe();
    loop {
        let map = news.borrow_and_update().clone();
        take_map(&mdt, &peers, map);
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Asks for free space, for as long as the MDT runs; of new OSTs at once.
pub async fn poll_space(mdt: Arc<Mdt>, peers: Arc<OstPeers>) {
    loop {
        // In this order: an OST that comes in between is asked in the next round.
        let (version, known) = (mdt.osts().map_version(), peers.indices());
        join_all(known.iter().map(|ost| ask_space(&mdt, *ost))).await;
        mdt.osts().set_asked(version);
        let news = peers.news.notified();
        // Both outcomes mean that it is time to look again.
        let _ = mdt.seams().timeout_ms(POLL_MS, news).await;
    }
}

/// Asks an OST for its free space.
pub async fn ask_space(mdt: &Mdt, index: u16) {
    let asked = mdt.osts().ask(index, &OstStatfsReq {});
    match mdt.seams().timeout_ms(POLL_TIMEOUT_MS, asked).await {
        Some(Ok(space)) => mdt.osts().set_candidate(Candidate {
            index,
            free_bytes: space.available_bytes,
            total_bytes: space.total_bytes,
            free_inodes: space.free_inodes,
            total_inodes: space.total_inodes,
            up: true,
            degraded: space.degraded,
        }),
        Some(Err(_)) | None => mdt.osts().set_down(index),
    }
}
