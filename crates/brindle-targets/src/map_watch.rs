//! The newest map: a long poll at the MGS, for ever. Losing the MGS costs nothing but news.
//!
//! Kept by the [`crate::Directory`] of each client and server; commands go by one map, and do not watch. Invariant: the version of the map that is shown never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_net::Peer;
use brindle_net::latch::Latch;
use brindle_stdx::Seams;
use brindle_stdx::watch;
use brindle_types::{Code, Fault, FsName, TargetId};
use brindle_wire::Message;
use brindle_wire::frame::{Frame, Header, Priority, decode_reply, encode_body};
use brindle_wire::map::Map;
use brindle_wire::mgs::GetMapReq;

/// Longest time that the MGS holds a poll.
const POLL_MS: u32 = 10_000;
/// Additional time that a poll may take before it is repeated.
const POLL_GRACE_MS: u64 = 10_000;
/// Longest time that one of several MGS holds a poll; together with the grace time, the limit after which
/// another MGS is tried. A host that hangs keeps its connections.
const POLL_SEVERAL_MS: u32 = 1_500;
const SEVERAL_GRACE_MS: u64 = 1_500;
/// Pause after a failed poll.
const PAUSE_MS: u64 = 200;
/// Longest wait of [`MapWatch::refresh`].
const REFRESH_MAX_MS: u64 = 1_000;

/// Keeps the newest map of one file system.
pub struct MapWatch {
    seams: Seams,
    mgs: Arc<Peer>,
    fs: FsName,
    current: watch::Sender<Arc<Map>>,
    stop: Latch,
    is_watched: AtomicBool,
}

impl MapWatch {
    /// Begins with `map`; of version 0 if none is known yet. Asks for nothing before [`MapWatch::watch`].
    pub fn new(seams: &Seams, mgs: Arc<Peer>, map: Map) -> Arc<MapWatch> {
        let fs = map.fs.clone();
        let current = watch::Sender::new(Arc::new(map));
        let (stop, is_watched) = (Latch::default(), AtomicBool::new(false));
        Arc::new(MapWatch { seams: seams.clone(), mgs, fs, current, stop, is_watched })
    }

    /// Fetches the map and goes on watching it. Waits for the MGS; fails with its refusal (`NoSuchFs`).
    pub async fn fetch(self: &Arc<Self>) -> Result<Arc<Map>, Fault> {
        loop {
            match self.get(0, 0).await {
                Ok(Some(map)) => self.offer(map),
                Ok(None) => return Err(Fault::new(Code::NoSuchFs).subject(self.fs.to_string())),
                Err(f) if f.code == Code::Disconnected => {
                    self.seams.sleep_ms(PAUSE_MS).await;
                    continue;
                }
                // Another MGS is taking over.
                Err(f) if f.code == Code::NotLeading => {
                    self.mgs_is_silent();
                    self.seams.sleep_ms(PAUSE_MS).await;
                    continue;
                }
                Err(f) => return Err(f),
            }
            self.watch();
            return Ok(self.current());
        }
    }

    /// Asks for the map once and takes it in.
    pub async fn fetch_once(&self) -> Result<Arc<Map>, Fault> {
        if let Some(map) = self.get(self.version(), 0).await? {
            self.offer(map);
        }
        Ok(self.current())
    }

    /// Takes in every newer map from now on.
    pub fn watch(self: &Arc<Self>) {
        if self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let looping = self.clone();
        self.seams.spawn("map.watch", async move {
            looping.stop.until(looping.poll()).await;
        });
    }

    /// The newest map known.
    pub fn current(&self) -> Arc<Map> {
        self.current.borrow().clone()
    }

    /// Version of the newest map known.
    pub fn version(&self) -> u64 {
        self.current.borrow().version
    }

    /// Epoch of a target, 0 when the map does not have it.
    pub fn target_epoch(&self, target: TargetId) -> u32 {
        self.current.borrow().target(target).map_or(0, |t| t.epoch)
    }

    /// Tells of each newer map.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Map>> {
        self.current.subscribe()
    }

    /// Takes in a map from another source (a registration), if it is newer.
    pub fn offer(&self, map: Map) {
        self.current.send_if_modified(|now| {
            let newer = map.version > now.version;
            if newer {
                *now = Arc::new(map);
            }
            newer
        });
    }

    /// Waits until there is a newer map than `version`, for a second at most. The poll under way brings it.
    pub async fn refresh(&self, version: u64) {
        let mut news = self.subscribe();
        let newer = news.wait_for(|map| map.version > version);
        // Without a newer map the caller simply tries again with the old one.
        let _ = self.seams.timeout_ms(REFRESH_MAX_MS, newer).await;
    }

    /// The MGS that was asked does not answer, or is not the active one: others are asked.
    pub fn mgs_is_silent(&self) {
        let map = self.current();
        // The map names the active one first, perhaps otherwise than it was given.
        let active = map.target(TargetId::MGT).and_then(|mgs| mgs.nids.first());
        self.mgs.try_others(active.map_or(&[], std::slice::from_ref));
    }

    /// Ends the watch.
    pub fn stop(&self) {
        self.stop.set();
    }

    async fn poll(&self) {
        loop {
            let (poll_ms, grace_ms) = match self.mgs.nids().len() {
                ..=1 => (POLL_MS, POLL_GRACE_MS),
                _ => (POLL_SEVERAL_MS, SEVERAL_GRACE_MS),
            };
            let poll = self.get(self.version(), poll_ms);
            match self.seams.timeout_ms(u64::from(poll_ms) + grace_ms, poll).await {
                Some(Ok(Some(map))) => self.offer(map),
                Some(Ok(None)) => {}
                None => self.mgs_is_silent(),
                Some(Err(fault)) => {
                    if fault.code == Code::NotLeading {
                        self.mgs_is_silent();
                    }
                    tracing::debug!(code = %fault.code, why = ?fault.why, "cannot fetch the map");
                    self.seams.sleep_ms(PAUSE_MS).await;
                }
            }
        }
    }

    /// Asks for a map newer than a version, and returns all of it. If a registration brought a newer map meanwhile, a delta
    /// to another version is ignored: the next request names the version that is known then.
    async fn get(&self, known_version: u64, wait_ms: u32) -> Result<Option<Map>, Fault> {
        let request = GetMapReq { fs: self.fs.clone(), known_version, wait_ms };
        let update = ask_mgs(&self.mgs, &request).await?.update;
        Ok(update.and_then(|update| self.current().updated(update)))
    }
}

/// Sends a request to the MGS once.
async fn ask_mgs<M: Message>(mgs: &Peer, request: &M) -> Result<M::Resp, Fault> {
    let header = Header {
        op: M::OP as u16,
        target: Some(TargetId::MGT),
        priority: Priority::High,
        ..Header::default()
    };
    decode_reply(&mgs.call(Frame::new(header, encode_body(request))).await?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use brindle_net::peer::NoNotifies;
    use brindle_net::{PeerConfig, RpcServer, ServerConfig, ServerConn, Service, TcpTransport};
    use brindle_stdx::{BoxFuture, real};
    use brindle_types::Nid;
    use brindle_wire::map::delta::MapUpdate;
    use brindle_wire::mgs::GetMapResp;
    use brindle_wire::version::PeerKind;

    use super::*;

    /// An MGS that is not the active one when it is first asked.
    struct Stub {
        asked: AtomicU64,
    }

    impl Service for Stub {
        fn hello(&self, _: &Arc<ServerConn>) -> Result<u64, Fault> {
            Ok(7)
        }

        fn request(self: Arc<Self>, _: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
            Box::pin(async move {
                if self.asked.fetch_add(1, Ordering::AcqRel) == 0 {
                    return Frame::fault_reply_to(&frame.header, &Fault::new(Code::NotLeading));
                }
                let map = Map { version: 3, ..Map::new("test".parse().expect("a name"), 7) };
                let answer = GetMapResp { update: Some(MapUpdate::Whole(map)) };
                Frame::reply_to(&frame.header, encode_body(&Ok::<_, Fault>(answer)))
            })
        }

        fn closed(&self, _: u64) {}
    }

    #[tokio::test]
    async fn the_first_map_is_waited_for_while_another_mgs_becomes_active() {
        let seams = real::seams(tokio::runtime::Handle::current());
        let transport = Arc::new(TcpTransport::new(seams.clone()));
        let stub = Arc::new(Stub { asked: AtomicU64::new(0) });
        let anywhere = Nid { host: "127.0.0.1".into(), port: 0, rail: 0 };
        let server =
            RpcServer::serve(transport.clone(), &seams, &anywhere, ServerConfig::default(), stub.clone());
        let server = server.await.expect("listens");
        let config = PeerConfig::new(7, PeerKind::Client, "test");
        let nids = vec![server.local_nid().clone()];
        let peer = Peer::new(transport, seams.clone(), nids, config, Arc::new(NoNotifies));
        let watch = MapWatch::new(&seams, peer, Map::new("test".parse().expect("a name"), 7));
        let map = watch.fetch().await.expect("the other one answers");
        watch.stop();
        assert_eq!((map.version, stub.asked.load(Ordering::Acquire) >= 2), (3, true));
    }
}
