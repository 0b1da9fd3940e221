//! Tests of both ends over real sockets: TCP on loopback, and local ones.

mod calls;
mod fuzz;
mod nodemaps;
mod protocols;
mod rails;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Fault, Nid};
use brindle_wire::earlier::Protocols;
use brindle_wire::frame::{Frame, Header};
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::nodemaps::Nodemaps;
use crate::peer::NoNotifies;
use crate::{
    NotifyHandler, Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service,
    TcpTransport, Transport,
};

/// Operations of the test service.
const ECHO: u16 = 1;
/// Waits until the test opens the gate.
const GATED: u16 = 2;
/// Asks the client something before it answers.
const RECALL: u16 = 3;
/// Closes the connection instead of answering.
const HANG_UP: u16 = 4;

const FS_ID: u64 = 77;

struct Echo {
    gate: Semaphore,
    running: AtomicUsize,
    running_max: AtomicUsize,
    closed: Mutex<Vec<u64>>,
    /// Requests by connection.
    asked: Mutex<BTreeMap<u64, usize>>,
    refuse: Mutex<Option<Fault>>,
    nodemaps: Nodemaps,
}

impl Service for Echo {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64, Fault> {
        self.nodemaps.check_claim(conn)?;
        self.refuse.lock().clone().map_or(Ok(FS_ID), Err)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.running_max.fetch_max(running, Ordering::SeqCst);
            *self.asked.lock().entry(conn.id()).or_default() += 1;
            match frame.header.op {
                GATED => drop(self.gate.acquire().await.expect("open")),
                RECALL => {
                    let question = Frame::new(Header { op: 9, ..Header::default() }, frame.body.clone());
                    let answer = conn.notify(question).await.expect("answered");
                    assert_eq!(answer.body, frame.body);
                }
                HANG_UP => conn.close(),
                _ => {}
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
            Frame::reply_to(&frame.header, frame.body).with_bulk(frame.bulk)
        })
    }

    fn closed(&self, conn_id: u64) {
        self.closed.lock().push(conn_id);
    }
}

/// Answers notifies with their own body.
struct Mirror;

impl NotifyHandler for Mirror {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move { Frame::reply_to(&frame.header, frame.body) })
    }
}

struct Setup {
    seams: Seams,
    transport: Arc<dyn Transport>,
    service: Arc<Echo>,
    server: ServerHandle,
}

impl Setup {
    async fn start(config: ServerConfig) -> Setup {
        Setup::start_at(config, "127.0.0.1:0".parse().expect("nid")).await
    }

    async fn start_at(config: ServerConfig, nid: Nid) -> Setup {
        Setup::start_speaking(config, nid, None).await
    }

    async fn start_speaking(config: ServerConfig, nid: Nid, protocols: Option<Protocols>) -> Setup {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let transport = TcpTransport::new(seams.clone());
        let transport = if LOCAL.get() { transport } else { transport.over_tcp_only() };
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let service = Arc::new(Echo {
            gate: Semaphore::new(0),
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            closed: Mutex::new(Vec::new()),
            asked: Mutex::default(),
            refuse: Mutex::new(None),
            nodemaps: Nodemaps::default(),
        });
        let speaking = Setup::speaking(transport.clone(), protocols);
        let server = RpcServer::serve(speaking, &seams, &nid, config, service.clone()).await;
        Setup { seams, transport, service, server: server.expect("listens") }
    }

    fn peer(&self) -> Arc<Peer> {
        self.peer_with(|_| {}, Arc::new(NoNotifies))
    }

    fn peer_with(&self, change: impl FnOnce(&mut PeerConfig), handler: Arc<dyn NotifyHandler>) -> Arc<Peer> {
        let mut config = PeerConfig::new(FS_ID, PeerKind::Client, "test");
        change(&mut config);
        let nids = vec![self.server.local_nid().clone()];
        Peer::new(self.transport.clone(), self.seams.clone(), nids, config, handler)
    }
}

fn request(op: u16, body: impl Into<Bytes>) -> Frame {
    Frame::new(Header { op, fs_id: FS_ID, ..Header::default() }, body.into())
}

tokio::task_local! {
    /// Whether the transport of a test uses local sockets.
    static LOCAL: bool;
}

/// Runs a test on a runtime with two threads, over TCP and over local sockets, for at most 20 seconds each.
fn run(test: impl AsyncFn()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("runtime");
    let limit = std::time::Duration::from_secs(20);
    for local in [false, true] {
        let test = LOCAL.scope(local, async { tokio::time::timeout(limit, test()).await });
        runtime.block_on(test).unwrap_or_else(|_| panic!("the test does not end, local sockets: {local}"));
    }
}

/// Waits until `condition` holds.
async fn eventually(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
