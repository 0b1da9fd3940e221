//! The rest of the cluster as an OST sees it: the MDT that owns its objects, and the other OSTs (copies).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, Transport};
use brindle_session::MapWatch;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::Message;
use brindle_wire::frame::{Frame, Header, decode_reply, encode_body};
use brindle_wire::map::Map;
use brindle_wire::oss::read::ReadReq;
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::Notify;

/// How long another OST may take to answer a read. The request that needs the bytes holds its slot meanwhile.
const READ_WAIT_MS: u64 = 10_000;

/// Connections to the targets of the map.
pub struct Peers {
    seams: Seams,
    transport: Arc<dyn Transport>,
    host: String,
    own: TargetId,
    peers: RwLock<BTreeMap<TargetId, Arc<Peer>>>,
    fs_id: RwLock<u64>,
    news: Notify,
}

impl Peers {
    /// Nobody is known yet.
    pub fn new(seams: &Seams, transport: Arc<dyn Transport>, host: &str, own: TargetId) -> Arc<Peers> {
        Arc::new(Peers {
            seams: seams.clone(),
            transport,
            host: host.to_owned(),
            own,
            peers: RwLock::default(),
            fs_id: RwLock::new(0),
            news: Notify::new(),
        })
    }

    /// Takes in a newer map. What waits for an OST that it no longer has ends. (The MDT never leaves, and its connections are
    /// counted: `wait_newer`.)
    pub fn set_map(&self, map: &Map) {
        *self.fs_id.write() = map.fs_id;
        let mut peers = self.peers.write();
        let listed: BTreeSet<TargetId> = map.targets.iter().map(|entry| entry.id).collect();
        peers.retain(|id, peer| {
            let stays = id.role != Role::Ost || listed.contains(id);
            if !stays {
                peer.stop();
            }
            stays
        });
        for entry in map.targets.iter().filter(|t| t.id != self.own && t.id.role != Role::Mgt) {
            match peers.get(&entry.id) {
                Some(peer) => peer.set_nids(entry.nids.clone()),
                None => {
                    let config = PeerConfig::new(map.fs_id, PeerKind::Server, self.host.clone());
                    let (transport, seams) = (self.transport.clone(), self.seams.clone());
                    let peer = Peer::new(transport, seams, entry.nids.clone(), config, Arc::new(NoNotifies));
                    peers.insert(entry.id, peer);
                }
            }
        }
        drop(peers);
        self.news.notify_waiters();
    }

    /// Asks a target; waits until it is known and connected. `Disconnected` when the fate of the question is unknown.
    pub async fn ask<M: Message>(&self, target: TargetId, question: &M) -> Result<M::Resp> {
        decode_reply(&self.call(target, question, 0).await?)
    }

    /// Waits for a connection to a target that is newer than `generation`; its number.
    pub async fn wait_newer(&self, target: TargetId, generation: u64) -> Result<u64> {
        Ok(self.peer(target).await.wait_newer(generation).await?.generation)
    }

    /// Whether the map has a target.
    pub fn knows(&self, target: TargetId) -> bool {
        self.peers.read().contains_key(&target)
    }

    /// Reads from an object of another OST: the bytes and their checksum. `TargetDown` when it does not answer, soon enough or
    /// at all: whoever asked may ask again.
    pub async fn read(&self, ost: u16, question: &ReadReq) -> Result<(Bytes, u32)> {
        let target = TargetId::ost(ost);
        if !self.knows(target) {
            return Err(Fault::new(Code::UnknownTarget).subject(target.to_string()));
        }
        let answer =
            self.seams.timeout_ms(READ_WAIT_MS, self.call(target, question, question.len_bytes)).await;
        let frame = match answer {
            Some(Err(fault)) if fault.code != Code::Disconnected => return Err(fault),
            Some(Ok(frame)) => frame,
            _ => return Err(Fault::new(Code::TargetDown).subject(target.to_string())),
        };
        decode_reply::<<ReadReq as Message>::Resp>(&frame)?;
        Ok((frame.bulk_bytes(), frame.header.bulk_crc))
    }

    async fn call<M: Message>(&self, target: TargetId, question: &M, bulk_max: u32) -> Result<Frame> {
        let peer = self.peer(target).await;
        let header = Header {
            op: M::OP as u16,
            fs_id: *self.fs_id.read(),
            target: Some(target),
            reply_bulk_max: bulk_max,
            ..Header::default()
        };
        peer.call(Frame::new(header, encode_body(question))).await
    }

    async fn peer(&self, target: TargetId) -> Arc<Peer> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(peer) = self.peers.read().get(&target) {
                return peer.clone();
            }
            news.await;
        }
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.peers.read().values().for_each(|peer| peer.stop());
    }
}

/// Follows the map.
pub async fn follow_map(peers: Arc<Peers>, watch: Arc<MapWatch>) {
    let mut news = watch.subscribe();
    loop {
        let map = news.borrow_and_update().clone();
        peers.set_map(&map);
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Whether asking again later may help.
pub fn passes(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::Disconnected | Code::TargetDown | Code::WrongTarget | Code::Overloaded | Code::StaleEpoch
    )
}
