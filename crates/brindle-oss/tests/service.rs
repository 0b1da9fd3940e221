//! An OST over real TCP and a real disk; MGS and MDT are played by a small service of the test's own.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]

#[path = "service/extremes.rs"]
mod extremes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::peer::NoNotifies;
use brindle_net::{
    Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service, TcpTransport,
};
use brindle_objects::boot;
use brindle_objects::replies::NOTHING_LOST;
use brindle_oss::{Config, Handle, Replies, collect};
use brindle_stdx::{BoxFuture, Seams, real};
use brindle_types::{Code, Fault, FsName, Ino, Nid, ObjectId, Pair, Result, SessionId, TargetId};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::map::delta::MapUpdate;
use brindle_wire::map::{Map, ReplicaSet, TargetEntry, TargetState};
use brindle_wire::mds::fences::FenceTableResp;
use brindle_wire::mds::owner::{OwnerQueryReq, OwnerQueryResp, Verdict};
use brindle_wire::mds::session::TargetInfoReq;
use brindle_wire::mgs::{GetMapResp, HeartbeatResp, RegisterReq, RegisterResp};
use brindle_wire::oss::fence::FenceSessionReq;
use brindle_wire::oss::punch::PunchReq;
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::stat::StatObjectsReq;
use brindle_wire::oss::sync::SyncObjectsReq;
use brindle_wire::oss::write::{CopyRangeReq, WriteReq, WriteResp};
use brindle_wire::oss::{AcknowledgedMarks, ChangeResp, Marks, Ticket};
use brindle_wire::principal::PrincipalKind;
use brindle_wire::version::PeerKind;
use brindle_wire::{Message, Op};
use bytes::Bytes;
use parking_lot::Mutex;

const FS_ID: u64 = 0x1234;

fn fs() -> FsName {
    "test".parse().expect("a name")
}

fn pair(n: u64) -> Pair {
    Pair { term: 1, counter: n }
}

fn object(ino: u64, stripe: u32) -> ObjectId {
    ObjectId { ino: Ino(ino), generation: pair(1), stripe }
}

/// MGS and MDT in one.
#[derive(Default)]
struct Rest {
    map: Mutex<Option<Map>>,
    fences: Mutex<Vec<(SessionId, Pair)>>,
    fences_version: AtomicU64,
    conns: Mutex<Vec<Arc<ServerConn>>>,
    verdicts: Mutex<BTreeMap<ObjectId, Verdict>>,
    asked: AtomicU64,
}

impl Rest {
    fn register(&self, req: &RegisterReq) -> RegisterResp {
        let mut map = self.map.lock();
        let map = map.as_mut().expect("the test made it");
        map.version += 1;
        map.targets.retain(|t| t.id != req.target);
        let (id, uuid, nids) = (req.target, req.uuid, req.nids.clone());
        let (replicas, format_level_max) = (ReplicaSet::of(req.host.clone()), req.format_level_max);
        map.targets.push(TargetEntry {
            id,
            uuid,
            nids,
            epoch: 1,
            state: TargetState::Up,
            replicas,
            format_level_max,
        });
        RegisterResp { map: map.clone(), epoch: 1, heartbeat_ms: 1000 }
    }

    fn answer(&self, frame: &Frame) -> Result<Bytes> {
        let newest = || self.map.lock().clone();
        Ok(match Op::from_number(frame.header.op) {
            Some(Op::Register) => encode_body(&Ok::<_, Fault>(self.register(&decode_body(&frame.body)?))),
            Some(Op::GetMap) => {
                encode_body(&Ok::<_, Fault>(GetMapResp { update: newest().map(MapUpdate::Whole) }))
            }
            Some(Op::Heartbeat) => {
                encode_body(&Ok::<_, Fault>(HeartbeatResp { map_version: 1, known: true }))
            }
            Some(Op::FenceTable) => encode_body(&Ok::<_, Fault>(FenceTableResp {
                fences: self.fences.lock().clone(),
                version: self.fences_version.load(Ordering::SeqCst),
            })),
            Some(Op::OwnerQuery) => {
                let req: OwnerQueryReq = decode_body(&frame.body)?;
                self.asked.fetch_add(req.objects.len() as u64, Ordering::SeqCst);
                let known = self.verdicts.lock();
                let verdict = |o: &ObjectId| known.get(o).copied().unwrap_or(Verdict::Owned);
                encode_body(&Ok::<_, Fault>(OwnerQueryResp {
                    verdicts: req.objects.iter().map(verdict).collect(),
                }))
            }
            _ => return Err(Fault::new(Code::UnknownOp)),
        })
    }
}

impl Service for Rest {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        self.conns.lock().push(conn.clone());
        Ok(FS_ID)
    }

    fn request(self: Arc<Self>, _conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        let reply = match self.answer(&frame) {
            Ok(body) => Frame::reply_to(&frame.header, body),
            Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
        };
        Box::pin(async move { reply })
    }

    fn closed(&self, _conn_id: u64) {}
}

struct Cluster {
    seams: Seams,
    rest: Arc<Rest>,
    rest_nid: Nid,
    _rest_server: ServerHandle,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn new() -> Cluster {
        let seams = real::seams(tokio::runtime::Handle::current());
        let rest = Arc::new(Rest::default());
        let listen = Nid { host: "127.0.0.1".into(), port: 0, rail: 0 };
        let transport = Arc::new(TcpTransport::new(seams.clone()));
        let served =
            RpcServer::serve(transport, &seams, &listen, ServerConfig::default(), rest.clone()).await;
        let server = served.expect("served");
        let rest_nid = server.local_nid().clone();
        let mdt = TargetEntry {
            id: TargetId::mdt(0),
            uuid: [1; 16],
            nids: vec![rest_nid.clone()],
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of("here"),
            format_level_max: brindle_wire::form::FormatLevel::FIRST,
        };
        *rest.map.lock() = Some(Map { targets: vec![mdt], ..Map::new(fs(), FS_ID) });
        let dir = tempfile::tempdir().expect("a directory");
        Cluster { seams, rest, rest_nid, _rest_server: server, dir }
    }

    fn ost_dir(&self, index: u16) -> String {
        format!("{}/ost{index}", self.dir.path().to_string_lossy())
    }

    async fn format(&self, index: u16) {
        let mgs = vec![self.rest_nid.clone()];
        brindle_oss::format(&self.seams, &self.ost_dir(index), fs(), index, mgs).await.expect("formatted");
    }

    async fn start(&self, index: u16) -> Handle {
        self.start_with(index, Replies::Written).await
    }

    async fn start_with(&self, index: u16, replies: Replies) -> Handle {
        let listen = Nid { host: "127.0.0.1".into(), port: 0, rail: 0 };
        let config = Config { replies, ..Config::new(self.ost_dir(index), listen, "here") };
        let transport = Arc::new(TcpTransport::new(self.seams.clone()));
        brindle_oss::start(config, self.seams.clone(), transport).await.expect("started")
    }

    fn client(&self, ost: &Handle, session: u64) -> Client {
        let config = PeerConfig::new(FS_ID, PeerKind::Client, "client");
        let nids = vec![ost.local_nid().clone()];
        let transport = Arc::new(TcpTransport::new(self.seams.clone()));
        let peer = |config| {
            Peer::new(transport.clone(), self.seams.clone(), nids.clone(), config, Arc::new(NoNotifies))
        };
        let serves = Some(TargetId::mdt(0));
        let mdt = PeerConfig { serves, ..PeerConfig::new(FS_ID, PeerKind::Server, "mds1") };
        let (peer, mdt, target) = (peer(config), peer(mdt), ost.oss().identity.target);
        Client { peer, mdt, session: SessionId(session), epoch: pair(1), target }
    }
}

#[derive(Clone)]
struct Client {
    peer: Arc<Peer>,
    /// Connection for operations that only MDTs may ask for.
    mdt: Arc<Peer>,
    session: SessionId,
    epoch: Pair,
    target: TargetId,
}

/// Slot and sequence.
type SlotPosition = (u16, u64);

impl Client {
    fn frame<M: Message>(&self, request: &M, place: SlotPosition, bulk: &[u8]) -> Frame {
        let is_mdt = !M::OP.askers().has(PrincipalKind::Client);
        let (session, session_epoch) = match is_mdt {
            true => (SessionId::of_mdt(0), pair(1)),
            false => (self.session, self.epoch),
        };
        let header = Header {
            op: M::OP as u16,
            session,
            session_epoch,
            slot: place.0,
            sequence: place.1,
            target: Some(self.target),
            reply_bulk_max: 1 << 20,
            ..Header::default()
        };
        Frame::new(header, encode_body(request)).with_bulk(vec![Bytes::copy_from_slice(bulk)])
    }

    async fn ask<M: Message>(&self, request: &M) -> Result<M::Resp> {
        let peer = if M::OP.askers().has(PrincipalKind::Client) { &self.peer } else { &self.mdt };
        decode_reply(&peer.call(self.frame(request, (0, 0), &[])).await?)
    }

    async fn change<M: Message<Resp = ChangeResp>>(
        &self,
        request: &M,
        place: SlotPosition,
    ) -> Result<ChangeResp> {
        decode_reply(&self.peer.call(self.frame(request, place, &[])).await?)
    }

    async fn write(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        place: SlotPosition,
    ) -> Result<ChangeResp> {
        self.write_and_tell(object, offset, data, place, Vec::new()).await
    }

    async fn write_and_tell(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        place: SlotPosition,
        told: Vec<AcknowledgedMarks>,
    ) -> Result<ChangeResp> {
        let request = WriteReq { object, offset, ticket: Ticket::default(), sync: false, told, claim: None };
        let answer: WriteResp = decode_reply(&self.peer.call(self.frame(&request, place, data)).await?)?;
        Ok(answer.change)
    }

    async fn read(&self, object: ObjectId, offset: u64, len_bytes: u32) -> Result<Bytes> {
        self.read_marked(object, offset, len_bytes, false).await
    }

    async fn read_marked(&self, object: ObjectId, offset: u64, len_bytes: u32, keep: bool) -> Result<Bytes> {
        let ticket = Ticket::default();
        let request = ReadReq { object, offset, len_bytes, may_cache: keep, ticket };
        let reply = self.peer.call(self.frame(&request, (0, 0), &[])).await?;
        decode_reply::<<ReadReq as Message>::Resp>(&reply)?;
        reply.verify()?;
        Ok(reply.bulk_bytes())
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> Code {
    outcome.expect_err("a fault").code
}

#[test]
fn bytes_go_in_and_come_out_over_restarts() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(3).await;
        let ost = cluster.start(3).await;
        let client = cluster.client(&ost, 1);
        let data: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
        let first = client.write(object(5, 0), 1000, &data, (0, 1)).await.expect("written");
        assert_eq!(client.read(object(5, 0), 1000, 1 << 20).await.expect("read"), data);
        assert_eq!(client.read(object(5, 0), 1001, 5000).await.expect("read"), data[1..5001]);
        assert!(client.read(object(6, 0), 0, 10).await.expect("missing").is_empty());
        let objects = vec![object(5, 0), object(6, 0)];
        let synced = client.ask(&SyncObjectsReq { objects: objects.clone() }).await.expect("synced");
        assert_eq!((synced.exists, synced.boot_term), (vec![true, false], first.boot_term));
        let stat = client.ask(&StatObjectsReq { objects }).await.expect("stat").objects;
        assert_eq!((stat[0].len_bytes, stat[1].exists), (301_000, false));
        let info = client.ask(&TargetInfoReq {}).await.expect("info");
        assert_eq!((info.name.as_str(), info.state.as_str()), ("test-OST0003", "active"));
        assert_eq!(info.problems, []);

        ost.stop();
        let ost = cluster.start(3).await;
        let client = cluster.client(&ost, 1);
        assert_eq!(client.read(object(5, 0), 1000, 1 << 20).await.expect("read"), data);
        let again = client.write(object(5, 0), 1000, b"other bytes", (0, 1)).await.expect("answered");
        assert_eq!(again, first, "the stored answer");
        assert_eq!(
            client.read(object(5, 0), 1000, 11).await.expect("read"),
            data[..11],
            "nothing was written"
        );
    });
}

#[test]
fn a_takeover_changes_no_boot_term_that_is_told_and_forgets_no_slot() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start_with(0, Replies::Synced).await;
        let (one, other) = (cluster.client(&ost, 1), cluster.client(&ost, 2));
        let o = object(1, 0);
        let first = one.write(o, 0, b"first", (4, 1)).await.expect("written");
        assert_eq!(first.boot_term, NOTHING_LOST);
        other.write(o, 0, b"other", (4, 1)).await.expect("written");
        let term = ost.oss().store.boot_term();
        ost.stop();

        // The standby host sees the disk through a boot and a mount of its own.
        let (disk, path) = (&*cluster.seams.disk, format!("{}/boot", cluster.ost_dir(0)));
        let mut recorded = boot::load(disk, &path).expect("read").expect("it ran");
        recorded.identity.boot_id = "the boot of another host".into();
        recorded.store(disk, &path).expect("recorded");
        let ost = cluster.start_with(0, Replies::Synced).await;
        assert!(ost.oss().store.boot_term() > term);
        let client = cluster.client(&ost, 1);
        let again = client.write(o, 0, b"first", (4, 1)).await.expect("answered");
        assert_eq!(again, first, "the stored answer");
        assert_eq!(client.read(o, 0, 10).await.expect("read"), &b"other"[..]);
        let synced = client.ask(&SyncObjectsReq { objects: vec![o] }).await.expect("synced");
        let stat = client.ask(&StatObjectsReq { objects: vec![o] }).await.expect("stat");
        assert_eq!([synced.boot_term, stat.boot_term], [NOTHING_LOST; 2]);
    });
}

#[test]
fn what_is_sent_twice_lands_once_and_late_duplicates_never() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let old = cluster.client(&ost, 1);
        let o = object(1, 0);
        old.write(o, 0, b"first", (4, 1)).await.expect("written");
        old.write(o, 0, b"SECOND", (4, 2)).await.expect("written");
        assert_eq!(code(old.write(o, 0, b"first", (4, 1)).await), Code::StaleWrite);

        let new = cluster.client(&ost, 1);
        new.write(o, 0, b"xxxxxx", (4, 2)).await.expect("answered from the table");
        assert_eq!(new.read(o, 0, 10).await.expect("read"), &b"SECOND"[..]);
        new.write(o, 0, b"third!", (4, 3)).await.expect("written");
        // The old connection lost the slot, so it was closed; what it still sends goes out over a newer one.
        old.peer.wait_newer(1).await.expect("connected again");
        assert_eq!(code(old.write(o, 0, b"late", (4, 2)).await), Code::StaleWrite);
        let third = cluster.client(&ost, 1);
        assert_eq!(third.read(o, 0, 10).await.expect("read"), &b"third!"[..]);
        let counters = ost.oss().stats.list();
        assert!(counters.iter().any(|(name, _, n)| *name == "answered_again" && *n == 1), "{counters:?}");
    });
}

#[test]
fn fenced_sessions_and_old_servers_maps_are_refused() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.rest.fences.lock().push((SessionId(9), pair(5)));
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let mut client = cluster.client(&ost, 1);
        let o = object(1, 0);
        client.write(o, 0, b"x", (0, 1)).await.expect("written");
        let mut ended = cluster.client(&ost, 9);
        ended.epoch = pair(4);
        assert_eq!(code(ended.write(o, 0, b"y", (0, 1)).await), Code::Fenced, "learned from the MDT");
        ended.epoch = pair(5);
        ended.write(o, 0, b"x", (0, 1)).await.expect("the epoch after the fence");

        let mdt = cluster.client(&ost, 0);
        mdt.ask(&FenceSessionReq { session: SessionId(1), epoch: pair(2) }).await.expect("fenced");
        assert_eq!(code(client.write(o, 0, b"z", (0, 2)).await), Code::Fenced);
        assert_eq!(code(client.ask(&StatObjectsReq { objects: vec![o] }).await), Code::Fenced);
        client.epoch = pair(2);
        client.write(o, 0, b"w", (0, 1)).await.expect("the same session lives again");
        client.target = TargetId::ost(7);
        assert_eq!(code(client.write(o, 0, b"z", (0, 2)).await), Code::WrongTarget);
    });
}

#[test]
fn fences_are_learned_again_when_the_mdt_comes_back() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let mut client = cluster.client(&ost, 9);
        let o = object(1, 0);
        client.write(o, 0, b"x", (0, 1)).await.expect("written");
        // An MDT ends the session and dies; the next one says so to whoever asks.
        cluster.rest.fences.lock().push((SessionId(9), pair(5)));
        cluster.rest.conns.lock().iter().for_each(|conn| conn.close());
        let refused = async {
            let mut sequence = 2;
            loop {
                match client.write(o, 0, b"y", (0, sequence)).await {
                    Ok(_) => sequence += 1,
                    Err(fault) => return fault.code,
                }
            }
        };
        assert_eq!(cluster.seams.timeout_ms(20_000, refused).await, Some(Code::Fenced));
        client.epoch = pair(5);
        client.write(o, 0, b"x", (0, 1)).await.expect("the epoch after the fence");
    });
}

#[test]
fn writers_learn_whose_pages_they_made_old() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let (writer, reader) = (cluster.client(&ost, 1), cluster.client(&ost, 2));
        let o = object(1, 0);
        let told = RefCell::new(Vec::new());
        let marks = async |at: u64, n: u64| {
            let answer = writer.write_and_tell(o, at, &[1; 100], (0, n), told.take()).await.expect("written");
            let dropped = |taking| AcknowledgedMarks { object: o, taking, offset: 0, len_bytes: u64::MAX };
            told.replace(answer.takings.into_iter().map(dropped).collect());
            answer.marks
        };
        assert_eq!(marks(0, 1).await, Marks::Unknown);
        assert_eq!(
            writer.write(o, 0, b"x", (1, 1)).await.expect("written").marks,
            Marks::Unknown,
            "not told"
        );
        assert_eq!(marks(0, 2).await, Marks::None, "told");
        reader.read(o, 0, 100).await.expect("read");
        assert_eq!(marks(0, 3).await, Marks::None, "it keeps nothing");
        reader.read_marked(o, 0, 100, true).await.expect("read");
        assert_eq!(marks(50_000, 4).await, Marks::None, "elsewhere");
        assert_eq!(marks(50, 5).await, Marks::Sessions(vec![SessionId(2)]));
        assert_eq!(
            marks(50, 5).await,
            Marks::Sessions(vec![SessionId(2)]),
            "the same answer to the same request"
        );
        assert_eq!(marks(50, 6).await, Marks::None);
    });
}

#[test]
fn only_the_mdts_word_makes_garbage() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let client = cluster.client(&ost, 1);
        // First, because the OST asks by itself, too.
        cluster.rest.verdicts.lock().insert(object(2, 0), Verdict::Disowned);
        cluster.rest.verdicts.lock().insert(object(3, 0), Verdict::Unknown);
        for n in 1..=4 {
            client.write(object(n, 0), 0, b"bytes", (0, n)).await.expect("written");
        }
        let asked = |ost: &Handle| {
            let oss = ost.oss().clone();
            async move { collect::pass(&oss).await.expect("a pass") }
        };
        asked(&ost).await;
        let there = async |n| !client.read(object(n, 0), 0, 10).await.expect("read").is_empty();
        assert_eq!(
            (there(1).await, there(2).await, there(3).await, there(4).await),
            (true, false, false, true)
        );
        let aside =
            std::fs::read_dir(format!("{}/quarantine", cluster.ost_dir(0))).expect("a directory").count();
        assert_eq!(aside, 1, "nothing is lost of what nobody knows");
        assert_eq!(code(client.write(object(2, 0), 0, b"late", (0, 5)).await), Code::StaleLayout);
        let before = cluster.rest.asked.load(Ordering::SeqCst);
        asked(&ost).await;
        assert_eq!(
            cluster.rest.asked.load(Ordering::SeqCst),
            before,
            "what is confirmed is not asked about again"
        );
    });
}

/// A copy whose source does not answer gives its slot back, so that the next request of the slot has its turn.
#[test]
fn a_copy_from_an_ost_that_is_away_ends() {
    const ANSWERED_MS: u64 = 30_000;
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        cluster.format(1).await;
        let (ost0, ost1) = (cluster.start(0).await, cluster.start(1).await);
        let at1 = cluster.client(&ost1, 1);
        // The map reaches the OSTs in its own time.
        while ost1.oss().targets.known(TargetId::ost(0)).is_none() {
            tokio::task::yield_now().await;
        }
        ost0.stop();
        let request = CopyRangeReq {
            source: object(1, 0),
            source_ost: 0,
            source_offset: 0,
            source_must_exist: true,
            object: object(2, 1),
            offset: 0,
            len_bytes: 100,
            ticket: Ticket::default(),
        };
        let copied = cluster.seams.timeout_ms(ANSWERED_MS, at1.change(&request, (5, 1))).await;
        assert_eq!(code(copied.expect("answered")), Code::TargetDown);
        let written =
            cluster.seams.timeout_ms(ANSWERED_MS, at1.write(object(2, 1), 0, b"next", (5, 2))).await;
        written.expect("answered").expect("written");

        // The copy does not wait for an OST that has left, either.
        let mut map = cluster.rest.map.lock().clone().expect("the test made it");
        map.targets.retain(|target| target.id != TargetId::ost(0));
        map.version += 1;
        ost1.oss().targets.map().offer(map);
        while ost1.oss().targets.known(TargetId::ost(0)).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(at1.change(&request, (5, 3)).await), Code::UnknownTarget);
    });
}

#[test]
fn ranges_are_copied_within_an_ost_and_between_osts() {
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        cluster.format(1).await;
        let (ost0, ost1) = (cluster.start(0).await, cluster.start(1).await);
        let (at0, at1) = (cluster.client(&ost0, 1), cluster.client(&ost1, 1));
        let data: Vec<u8> = (0..6_000_000u32).map(|i| (i / 5) as u8).collect();
        for (n, chunk) in data.chunks(1 << 20).enumerate() {
            at0.write(object(1, 0), (n as u64) << 20, chunk, (0, n as u64 + 1)).await.expect("written");
        }
        let request = |object, len_bytes| CopyRangeReq {
            source: crate::object(1, 0),
            source_ost: 0,
            source_offset: 100,
            source_must_exist: true,
            object,
            offset: 7,
            len_bytes,
            ticket: Ticket::default(),
        };
        at1.write(object(2, 1), 0, &[9; 1 << 20], (1, 1)).await.expect("written");
        at1.write(object(2, 1), 5_999_900, &[9; 1000], (1, 2)).await.expect("written");
        // The map reaches the OSTs in its own time.
        while ost1.oss().targets.known(TargetId::ost(0)).is_none() {
            tokio::task::yield_now().await;
        }
        at1.change(&request(object(2, 1), 6_000_500), (1, 3)).await.expect("copied");
        at0.change(&request(object(3, 0), 5_000_000), (1, 1)).await.expect("copied");
        for (client, o, from, len) in [(&at1, object(2, 1), 0, 5_999_900), (&at0, object(3, 0), 0, 5_000_000)]
        {
            for at in (from..len).step_by(1 << 20) {
                let n = (len - at).min(1 << 20);
                let read = client.read(o, 7 + at as u64, n as u32).await.expect("read");
                assert!(read == data[100 + at..100 + at + n], "at {at}");
            }
        }
        let behind = at1.read(object(2, 1), 7 + 5_999_900, 10_000).await.expect("read");
        assert!(behind[..600].iter().all(|b| *b == 0), "a hole behind the source's end");
        assert!(behind[600..].iter().all(|b| *b == 9), "and no further");
        let missing = CopyRangeReq { source: object(77, 0), ..request(object(3, 0), 10) };
        assert_eq!(code(at0.change(&missing, (1, 2)).await), Code::ObjectMissing);
        let hole = PunchReq {
            object: object(3, 0),
            offset: 0,
            len_bytes: 1 << 20,
            keep_space: false,
            ticket: Ticket::default(),
        };
        at0.change(&hole, (1, 3)).await.expect("punched");
        assert!(at0.read(object(3, 0), 0, 1 << 20).await.expect("read").iter().all(|b| *b == 0));
    });
}
