//! An MDT behind real connections: registration, sessions, recalls on the client's own connection, restarts.

use std::sync::Arc;

use brindle_net::{
    NotifyHandler, Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service,
    TcpTransport, Transport,
};
use brindle_stdx::real::{RealClock, RealRng, TokioSpawn};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Ino, Nid, Pair, Result, SessionId, TargetId};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::map::{Map, TargetEntry, TargetState};
use brindle_wire::mds::close::CloseReq;
use brindle_wire::mds::lock::{LockKind, LockSpace, LockState, SetLockReq};
use brindle_wire::mds::open::{OpenMode, OpenReq};
use brindle_wire::mds::session::*;
use brindle_wire::mds::statfs::MdtStatfsReq;
use brindle_wire::mgs::*;
use brindle_wire::notify::{RecallAck, RecallNotice};
use brindle_wire::version::PeerKind;
use brindle_wire::{Message, Op};
use parking_lot::Mutex;

use super::rig::{RO, RW, code, create_req, root};
use crate::{Config, Handle};

const FS_ID: u64 = 77;

/// An MGS that knows one MDT.
struct FakeMgs(Seams);

fn map(nids: Vec<Nid>) -> Map {
    let id = TargetId::mdt(0);
    let entry = TargetEntry {
        id,
        uuid: [0; 16],
        nids,
        epoch: 3,
        state: TargetState::Up,
        replicas: brindle_wire::map::ReplicaSet::of("mds1"),
        format_level_max: brindle_wire::form::FormatLevel::FIRST,
    };
    Map { targets: vec![entry], ..Map::new("scratch".parse().expect("name"), FS_ID) }
}

impl Service for FakeMgs {
    fn hello(&self, _conn: &Arc<ServerConn>) -> Result<u64> {
        Ok(FS_ID)
    }

    fn request(self: Arc<Self>, _conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let body = match Op::from_number(frame.header.op) {
                Some(Op::Register) => {
                    let req: RegisterReq = decode_body(&frame.body).expect("decodes");
                    let answer = RegisterResp { map: map(req.nids), epoch: 3, heartbeat_ms: 1000 };
                    encode_body(&Ok::<_, Fault>(answer))
                }
                Some(Op::GetMap) => {
                    self.0.sleep_ms(5_000).await;
                    encode_body(&Ok::<_, Fault>(GetMapResp { update: None }))
                }
                _ => encode_body(&Ok::<_, Fault>(HeartbeatResp { map_version: 1, known: true })),
            };
            Frame::reply_to(&frame.header, body)
        })
    }

    fn closed(&self, _conn_id: u64) {}
}

/// A client that gives recalled rights back.
#[derive(Default)]
struct Recalled(Mutex<Vec<Ino>>);

impl NotifyHandler for Recalled {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        let notice: RecallNotice = decode_body(&frame.body).expect("a recall");
        self.0.lock().push(notice.ino);
        let body = encode_body(&Ok::<_, Fault>(RecallAck { report: None, later: false }));
        Box::pin(async move { Frame::reply_to(&frame.header, body) })
    }
}

struct Client {
    peer: Arc<Peer>,
    recalled: Arc<Recalled>,
    session: SessionId,
    epoch: Pair,
    uuid: [u8; 16],
    sequence: Mutex<u64>,
}

impl Client {
    fn new(cluster: &Cluster, nid: &Nid, uuid: [u8; 16]) -> Client {
        let recalled = Arc::new(Recalled::default());
        let config = PeerConfig::new(FS_ID, PeerKind::Client, "cn1");
        let (transport, seams) = (cluster.transport.clone(), cluster.seams.clone());
        let peer = Peer::new(transport, seams, vec![nid.clone()], config, recalled.clone());
        let (session, epoch) = (SessionId(0), Pair::ZERO);
        Client { peer, recalled, session, epoch, uuid, sequence: Mutex::new(0) }
    }

    /// Connects the same client a second time.
    async fn by_another_way(&self, cluster: &Cluster, nid: &Nid) -> Client {
        let (session, epoch) = (self.session, self.epoch);
        let again = Client { session, epoch, ..Client::new(cluster, nid, self.uuid) };
        again.shake_hands(true).await.expect("resumed");
        again
    }

    async fn connect(cluster: &Cluster, nid: &Nid, n: u8) -> Client {
        let mut client = Client::new(cluster, nid, [n; 16]);
        let answer = client.shake_hands(false).await.expect("a session");
        (client.session, client.epoch) = (answer.session, answer.epoch);
        client
    }

    async fn shake_hands(&self, resume: bool) -> Result<SessionOpenResp> {
        let request =
            SessionOpenReq { client_uuid: self.uuid, host: "cn1".into(), mount: "/mnt".into(), resume };
        self.ask(request).await
    }

    async fn ask<M: Message>(&self, request: M) -> Result<M::Resp> {
        let sequence = {
            let mut sequence = self.sequence.lock();
            *sequence += 1;
            *sequence
        };
        let header = Header {
            op: M::OP as u16,
            target: Some(TargetId::mdt(0)),
            session: self.session,
            session_epoch: self.epoch,
            sequence,
            target_epoch: 3,
            ..Header::default()
        };
        decode_reply(&self.peer.call(Frame::new(header, encode_body(&request))).await?)
    }
}

struct Cluster {
    seams: Seams,
    transport: Arc<dyn Transport>,
    mgs: ServerHandle,
}

fn any_nid() -> Nid {
    "127.0.0.1:0".parse().expect("address")
}

impl Cluster {
    async fn new() -> Cluster {
        let seams = Seams {
            clock: Arc::new(RealClock),
            rng: Arc::new(RealRng),
            tasks: Arc::new(TokioSpawn(tokio::runtime::Handle::current())),
            disk: Arc::new(super::rig::new_disk()),
        };
        let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(seams.clone()));
        let service = Arc::new(FakeMgs(seams.clone()));
        let bounds = ServerConfig::default();
        let mgs = RpcServer::serve(transport.clone(), &seams, &any_nid(), bounds, service).await;
        Cluster { seams, transport, mgs: mgs.expect("an MGS") }
    }

    /// A cluster with the files of an MDT.
    async fn formatted() -> Cluster {
        let cluster = Cluster::new().await;
        let fs = "scratch".parse().expect("name");
        let mgs = vec![cluster.mgs.local_nid().clone()];
        crate::format(&cluster.seams, "/mdt", fs, 0, mgs).await.expect("formatted");
        cluster
    }

    async fn start(&self, listen: Nid) -> Handle {
        self.start_with(listen, 1_000).await
    }

    async fn start_with(&self, listen: Nid, lease_ms: u32) -> Handle {
        let config = Config { lease_ms, ..Config::new("/mdt", listen, "mds1") };
        crate::start(config, self.seams.clone(), self.transport.clone()).await.expect("started")
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(test)
}

#[test]
fn sessions_recalls_and_restarts_over_the_network() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start(any_nid()).await;
        let nid = mdt.local_nid().clone();
        let (a, b) = (Client::connect(&cluster, &nid, 1).await, Client::connect(&cluster, &nid, 2).await);
        let req = create_req(Ino::ROOT, "f", RW);
        let made = a.ask(req.clone()).await.expect("made");
        let ino = made.attr.ino;
        let open = OpenReq { ino, handle: 1, access: RO, cred: root(), kill_suidgid: false };
        assert_eq!(b.ask(open.clone()).await.expect("opened").grant.mode, OpenMode::Direct);
        assert_eq!(*a.recalled.0.lock(), [ino]);
        let info = a.ask(TargetInfoReq {}).await.expect("answered");
        assert_eq!((&info.name[..], &info.state[..], info.clients), ("scratch-MDT0000", "active", 2));

        mdt.close().await.expect("closed");
        let mdt = cluster.start(nid).await;
        let again = a.shake_hands(true).await.expect("resumed");
        assert!(again.must_reclaim && again.session == a.session && again.epoch == a.epoch);
        let of_b = b.shake_hands(true).await.expect("resumed");
        let state = a.ask(TargetInfoReq {}).await.expect("answered").state;
        assert_eq!(state, "recovering");
        let declared = ReclaimOpen { ino, handle: req.handle, access: RW, cached: false, exclusive: false };
        let answer = a.ask(declare(&again, vec![declared])).await.expect("answered");
        answer.opens[0].as_ref().expect("reclaimed");
        b.ask(declare(&of_b, Vec::new())).await.expect("answered");
        a.ask(CloseReq::one(ino, req.handle, None)).await.expect("closed");
        a.ask(SessionRenewReq {}).await.expect("renewed");
        let findings = crate::check::verify(mdt.mdt().engine()).expect("readable");
        assert!(findings.is_empty(), "{findings:#?}");
        b.ask(SessionCloseReq {}).await.expect("goodbye");
        assert_eq!(code(b.ask(SessionRenewReq {}).await), Some(Code::StaleSession));
    });
}

#[test]
fn what_comes_late_over_a_connection_that_its_client_has_given_up_changes_nothing() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start_with(any_nid(), LEASE_MS).await;
        let nid = mdt.local_nid().clone();
        let (a, b) = (Client::connect(&cluster, &nid, 1).await, Client::connect(&cluster, &nid, 2).await);
        let ino = a.ask(create_req(Ino::ROOT, "f", RW)).await.expect("made").attr.ino;
        let lock = |kind, request| {
            let (space, owner, start, end, pid) = (LockSpace::Posix, 1, 0, u64::MAX, 1);
            SetLockReq { ino, lock: LockState { space, owner, kind, start, end, pid }, wait: false, request }
        };
        a.ask(lock(LockKind::Write, 1)).await.expect("locked");
        // The answer to this did not come, so it is sent again, over another connection; then the lock is taken anew.
        let again = a.by_another_way(&cluster, &nid).await;
        again.ask(lock(LockKind::Unlock, 2)).await.expect("unlocked");
        again.ask(lock(LockKind::Write, 3)).await.expect("locked");
        assert_eq!(code(a.ask(lock(LockKind::Unlock, 2)).await), Some(Code::Disconnected));
        assert_eq!(code(b.ask(lock(LockKind::Write, 1)).await), Some(Code::LockConflict));
    });
}

#[test]
fn an_mdt_that_stops_lets_go_of_requests_that_wait() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start_with(any_nid(), LEASE_MS).await;
        let nid = mdt.local_nid().clone();
        let (a, b) = (Client::connect(&cluster, &nid, 1).await, Client::connect(&cluster, &nid, 2).await);
        let ino = a.ask(create_req(Ino::ROOT, "f", RW)).await.expect("made").attr.ino;
        let lock = LockState {
            space: LockSpace::Posix,
            owner: 1,
            kind: LockKind::Write,
            start: 0,
            end: u64::MAX,
            pid: 1,
        };
        a.ask(SetLockReq { ino, lock: lock.clone(), wait: false, request: 1 }).await.expect("locked");
        // Nobody unlocks: the request of the other client waits for ever.
        let waits = async move { b.ask(SetLockReq { ino, lock, wait: true, request: 1 }).await };
        let waiting = tokio::spawn(waits);
        while mdt.mdt().waits().list().is_empty() {
            tokio::task::yield_now().await;
        }
        let left = Arc::downgrade(mdt.mdt());
        mdt.close().await.expect("closed");
        drop(mdt);
        assert_eq!(code(waiting.await.expect("no panic")), Some(Code::Disconnected));
        let since = std::time::Instant::now();
        while left.strong_count() > 0 {
            assert!(since.elapsed().as_secs() < 10, "something of the MDT goes on");
            cluster.seams.sleep_ms(1).await;
        }
    });
}

/// A lease that does not end while a loaded machine runs a test.
const LEASE_MS: u32 = 60_000;

/// All that a client had that has resumed its session.
fn declare(resumed: &SessionOpenResp, opens: Vec<ReclaimOpen>) -> ReclaimReq {
    ReclaimReq { mdt_term: resumed.mdt_term, opens, locks: Vec::new(), appends: Vec::new(), done: true }
}

#[test]
fn after_a_restart_a_file_is_written_until_every_writer_has_had_its_turn_to_say_so() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start_with(any_nid(), LEASE_MS).await;
        let nid = mdt.local_nid().clone();
        let (a, b) = (Client::connect(&cluster, &nid, 1).await, Client::connect(&cluster, &nid, 2).await);
        let req = create_req(Ino::ROOT, "f", RW);
        let ino = a.ask(req.clone()).await.expect("made").attr.ino;
        let open = |access, handle| OpenReq { ino, handle, access, cred: root(), kill_suidgid: false };
        b.ask(open(RW, 1)).await.expect("opened");
        let unmarked = create_req(Ino::ROOT, "g", RW);
        let other = a.ask(unmarked.clone()).await.expect("made").attr.ino;
        a.ask(CloseReq::one(other, unmarked.handle, None)).await.expect("closed");

        mdt.close().await.expect("closed");
        let mdt = cluster.start_with(nid, LEASE_MS).await;
        let declared = |handle| ReclaimOpen { ino, handle, access: RW, cached: false, exclusive: false };
        let resumed = a.shake_hands(true).await.expect("resumed");
        a.ask(declare(&resumed, vec![declared(req.handle)])).await.expect("answered");
        a.ask(CloseReq::one(ino, req.handle, None)).await.expect("closed");
        let unmarked = a.ask(OpenReq { ino: other, ..open(RO, 6) }).await.expect("opened").grant.mode;
        assert_eq!(unmarked, OpenMode::Direct, "a power cut may have taken the mark of a writer");
        let reading = a.ask(open(RO, 7));
        let back = async {
            let resumed = b.shake_hands(true).await.expect("resumed");
            b.ask(declare(&resumed, vec![declared(1)])).await.expect("answered").opens[0]
                .as_ref()
                .expect("reclaimed");
        };
        let (opened, ()) = tokio::join!(reading, back);
        assert_eq!(opened.expect("opened").grant.mode, OpenMode::Direct, "b writes it");
        b.ask(CloseReq::one(ino, 1, None)).await.expect("closed");
        a.ask(CloseReq::one(ino, 7, None)).await.expect("closed");
        a.ask(CloseReq::one(other, 6, None)).await.expect("closed");
        assert_eq!(a.ask(open(RO, 8)).await.expect("opened").grant.mode, OpenMode::Cached);

        // Direct mode also ends if the last writer closes before the others have declared that they have no writers.
        a.ask(open(RW, 9)).await.expect("opened");
        let nid = mdt.local_nid().clone();
        mdt.close().await.expect("closed");
        let mdt = cluster.start_with(nid, LEASE_MS).await;
        let resumed = a.shake_hands(true).await.expect("resumed");
        a.ask(declare(&resumed, vec![declared(9)])).await.expect("answered");
        a.ask(CloseReq::one(ino, 9, None)).await.expect("closed");
        let resumed = b.shake_hands(true).await.expect("resumed");
        b.ask(declare(&resumed, Vec::new())).await.expect("answered");
        assert_eq!(b.ask(open(RW, 2)).await.expect("opened").grant.mode, OpenMode::Exclusive);
        let findings = crate::check::verify(mdt.mdt().engine()).expect("readable");
        assert!(findings.is_empty(), "{findings:#?}");
    });
}

/// An MDT that died again while its clients declared themselves, and how these clients go on at the next MDT.
#[test]
fn what_a_client_says_to_an_mdt_that_has_died_counts_for_nothing_at_the_next() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start_with(any_nid(), LEASE_MS).await;
        let nid = mdt.local_nid().clone();
        let a = Client::connect(&cluster, &nid, 1).await;
        let req = create_req(Ino::ROOT, "f", RW);
        let ino = a.ask(req.clone()).await.expect("made").attr.ino;
        mdt.close().await.expect("closed");
        let mdt = cluster.start_with(nid.clone(), LEASE_MS).await;
        let resumed = a.shake_hands(true).await.expect("resumed");
        let declared = ReclaimOpen { ino, handle: req.handle, access: RW, cached: false, exclusive: false };
        let first = ReclaimReq { done: false, ..declare(&resumed, vec![declared.clone()]) };
        a.ask(first).await.expect("answered").opens[0].as_ref().expect("reclaimed");
        mdt.close().await.expect("closed");

        let mdt = cluster.start_with(nid, LEASE_MS).await;
        let must_reclaim = || mdt.mdt().live().sessions[&a.session].must_reclaim;
        assert_eq!(code(a.ask(declare(&resumed, Vec::new())).await), Some(Code::Disconnected));
        assert!(must_reclaim(), "its open file was declared to another MDT");
        let close = CloseReq::one(ino, req.handle, None);
        assert_eq!(code(a.ask(close.clone()).await), Some(Code::Disconnected), "not known yet, and not lost");
        let resumed = a.shake_hands(true).await.expect("resumed");
        assert_eq!(code(a.ask(close.clone()).await), Some(Code::Disconnected), "neither now");
        a.ask(SessionRenewReq {}).await.expect("renewed");
        let answer = a.ask(declare(&resumed, vec![declared])).await.expect("answered");
        answer.opens[0].as_ref().expect("reclaimed");
        a.ask(close).await.expect("closed");
    });
}

#[test]
fn a_silent_client_is_ended_and_may_begin_again() {
    run(async {
        let cluster = Cluster::formatted().await;
        let mdt = cluster.start(any_nid()).await;
        let mut a = Client::connect(&cluster, mdt.local_nid(), 1).await;
        let req = create_req(Ino::ROOT, "f", RW);
        let ino = a.ask(req.clone()).await.expect("made").attr.ino;
        // Another client is heard all the time: if none were, the MDT might suspect itself.
        let b = Client::connect(&cluster, mdt.local_nid(), 2).await;
        while code(a.ask(MdtStatfsReq {}).await) != Some(Code::StaleSession) {
            b.ask(SessionRenewReq {}).await.expect("renewed");
            cluster.seams.sleep_ms(50).await;
        }
        assert_eq!(code(a.ask(SessionRenewReq {}).await), Some(Code::StaleSession));
        assert_eq!(code(a.shake_hands(true).await), Some(Code::StaleSession));
        let again = a.shake_hands(false).await.expect("begun again");
        assert!(again.session == a.session && again.epoch > a.epoch && !again.must_reclaim);
        a.epoch = again.epoch;
        assert!(!mdt.mdt().live().opens.is_open(ino), "its handles are gone");
        let open = OpenReq { ino, handle: 9, access: RW, cred: root(), kill_suidgid: false };
        assert_eq!(a.ask(open).await.expect("opened").grant.mode, OpenMode::Exclusive);
    });
}
