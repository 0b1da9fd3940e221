//! The answering end: accepts connections, runs requests within bounds, sends notifies.
//!
//! Used by every server. Each connection has a reader, a writer and one task per request. A peer that keeps to its
//! credits is never made to wait; one that exceeds them is simply not read from until requests are done. A peer that
//! sends garbage is told so where possible, loses its connection within a second, and is counted by cause.
//!
//! Invariants: requests that were accepted run to their end even when their connection is lost (their effect may be
//! durable already); [`Service::closed`] is called exactly once for each connection that [`Service::hello`] accepted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_auth::Proof;
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Nid};
use brindle_wire::Op;
use brindle_wire::earlier::{Part, Protocols};
use brindle_wire::frame::{Frame, Kind};
use brindle_wire::mds::session::ReleaseCount;
use brindle_wire::principal::Principal;
use brindle_wire::version::Hello;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::fair::{Fair, FairConfig};
use crate::latch::Latch;
use crate::outbox::{Outbox, Outgoing};
use crate::peer::{BYTES_MAX_DEFAULT, REQUESTS_MAX_DEFAULT};
use crate::releases::Releases;
use crate::trace::Tracer;
use crate::transport::{Caller, Listener};
use crate::usage::Usage;
use crate::{NetError, RemovedKeys, Transport};

mod conn;

/// Connections of one server unless configured otherwise.
pub const CONNECTIONS_MAX_DEFAULT: usize = 4096;
/// Connections at once of hosts that have not joined yet: everybody can make those.
pub const STRANGERS_MAX: usize = 64;
/// Longest life of a connection of a host that has not joined: it serves one request.
pub const STRANGER_MS: u64 = 30_000;
/// Pause after the system could not accept a connection (no file descriptors left).
const ACCEPT_PAUSE_MS: u64 = 50;

/// A service: a server's side of its connections.
pub trait Service: Send + Sync + 'static {
    /// Looks at a new connection; its version fits already. Returns the id of the file system served here (0 for an
    /// MGS that has none), or the refusal that the peer shows.
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64, Fault>;
    /// Answers one request with [`Frame::reply_to`] or [`Frame::fault_reply_to`] its header. Runs in a task of its own,
    /// to its end. Requests of one connection start in order but run side by side. The bulk of the reply must fit in
    /// the request's `reply_bulk_max`.
    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame>;
    /// A connection has ended; some of its requests may still run.
    fn closed(&self, conn_id: u64);
}

/// Bounds of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connections at once; more are closed at once.
    pub connections_max: usize,
    /// Ordinary requests in flight granted to each connection.
    pub requests_max: u32,
    /// Bytes in flight granted to each connection.
    pub bytes_max: u64,
    /// Sharing between jobs, of servers of an MDT or OST.
    pub fair: Option<FairConfig>,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            connections_max: CONNECTIONS_MAX_DEFAULT,
            requests_max: REQUESTS_MAX_DEFAULT,
            bytes_max: BYTES_MAX_DEFAULT,
            fair: None,
        }
    }
}

/// Counters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections that exist now.
    pub connections: usize,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections closed because there were too many.
    pub refused: u64,
    /// Requests begun so far.
    pub requests: u64,
    /// Requests by operation; operations that this release does not know are left out.
    pub requests_by_op: BTreeMap<Op, u64>,
    /// Connections closed for what they sent, by cause.
    pub bad: BTreeMap<Code, u64>,
}

/// Starts servers.
pub struct RpcServer;

/// A running server; stops when dropped.
pub struct ServerHandle {
    local_nid: Nid,
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) seams: Seams,
    pub(crate) config: ServerConfig,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) stop: Latch,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) strangers: Semaphore,
    pub(crate) next_conn_id: AtomicU64,
    pub(crate) stats: Mutex<ServerStats>,
    pub(crate) removed: Option<Arc<RemovedKeys>>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) fair: Option<Arc<Fair>>,
    pub(crate) protocols: Protocols,
    pub(crate) releases: Arc<Releases>,
}

impl RpcServer {
    /// Listens at `nid` and answers with `service` until the handle is stopped or dropped. `AddressInUse` when
    /// another process listens there.
    pub async fn serve(
        transport: Arc<dyn Transport>,
        seams: &Seams,
        nid: &Nid,
        config: ServerConfig,
        service: Arc<dyn Service>,
    ) -> Result<ServerHandle, Fault> {
        let listener = transport.listen(nid).await.map_err(|e| e.fault(nid))?;
        let local_nid = listener.local_nid();
        let shared = Arc::new(Shared {
            seams: seams.clone(),
            room: Arc::new(Semaphore::new(config.connections_max)),
            strangers: Semaphore::new(STRANGERS_MAX),
            fair: config.fair.map(|fair| Fair::new(seams, fair)),
            config,
            service,
            stop: Latch::default(),
            next_conn_id: AtomicU64::new(1),
            stats: Mutex::new(ServerStats::default()),
            removed: transport.removed_keys(),
            usage: Arc::new(Usage::new(seams.clock.clone())),
            tracer: Tracer::new(seams),
            protocols: transport.protocols(),
            releases: Arc::default(),
        });
        seams.spawn("server.accept", accept(shared.clone(), listener));
        Ok(ServerHandle { local_nid, shared })
    }
}

impl ServerHandle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        &self.local_nid
    }

    /// Listens at further addresses of this host, at the same port.
    pub async fn serve_rails(&self, transport: &dyn Transport, rails: &[Nid]) -> Result<(), Fault> {
        for nid in self.nids(rails).iter().skip(1) {
            let listener = transport.listen(nid).await.map_err(|e| e.fault(nid))?;
            self.shared.seams.spawn("server.accept", accept(self.shared.clone(), listener));
        }
        Ok(())
    }

    /// Address of the server, and those of further rails with the same port.
    pub fn nids(&self, rails: &[Nid]) -> Vec<Nid> {
        let port = self.local_nid.port;
        let rails = rails.iter().map(|rail| Nid { port, ..rail.clone() });
        std::iter::once(self.local_nid.clone()).chain(rails).collect()
    }

    /// Closes the listener and every connection; requests that run go on, but from this moment nobody hears how they end.
    pub fn stop(&self) {
        self.shared.stop.set();
    }

    /// Requests by client, user and job.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.shared.usage
    }

    /// Traces of the requests to this server.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.shared.tracer
    }

    /// Releases at the other ends of its connections.
    pub fn releases(&self) -> Vec<ReleaseCount> {
        self.shared.releases.list()
    }

    /// Sharing between jobs, and limits.
    pub fn fair(&self) -> Option<&Arc<Fair>> {
        self.shared.fair.as_ref()
    }

    /// Counts requests of some operations, for as long as the result is kept.
    pub fn counts_requests(&self, of: fn(Op) -> bool) -> Box<dyn Fn() -> u64 + Send + Sync> {
        let shared = self.shared.clone();
        Box::new(move || {
            let stats = shared.stats.lock();
            stats.requests_by_op.iter().filter(|(op, _)| of(**op)).map(|(_, n)| n).sum()
        })
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        let stats = self.shared.stats.lock().clone();
        let connections = self.shared.config.connections_max - self.shared.room.available_permits();
        ServerStats { connections, ..stats }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(shared: Arc<Shared>, mut listener: Box<dyn Listener>) {
    while let Some(accepted) = shared.stop.until(listener.accept()).await {
        let connection = match accepted {
            Ok(connection) => connection,
            Err(e @ NetError::Bad { .. }) => {
                shared.note_refused(&e);
                continue;
            }
            Err(e) => {
                tracing::warn!(nid = %listener.local_nid(), error = %e, "cannot accept a connection");
                shared.stop.until(shared.seams.sleep_ms(ACCEPT_PAUSE_MS)).await;
                continue;
            }
        };
        let Ok(room) = shared.room.clone().try_acquire_owned() else {
            shared.stats.lock().refused += 1;
            continue;
        };
        shared.stats.lock().accepted += 1;
        let task = conn::run(shared.clone(), connection, room);
        shared.seams.spawn("server.conn", task);
    }
}

/// A connection, as services see it.
pub struct ServerConn {
    id: u64,
    peer: Nid,
    caller: Caller,
    principal: Principal,
    hello: Hello,
    version: u16,
    outbox: Outbox,
    /// Notifies without an answer; `None` once the connection has ended.
    notifies: Mutex<Option<BTreeMap<u64, oneshot::Sender<Frame>>>>,
    notify_room: Semaphore,
    next_xid: AtomicU64,
    down: Latch,
    usage: Arc<Usage>,
    tracer: Arc<Tracer>,
    fair: Option<Arc<Fair>>,
    /// Name of the peer's host, shared by the requests that wait.
    host: Arc<str>,
    protocols: Protocols,
    releases: Arc<Releases>,
}

impl ServerConn {
    /// Number of the connection, unique in this server's life.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the peer, for messages.
    pub fn peer(&self) -> &Nid {
        &self.peer
    }

    /// The process at the other end.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Reason why the peer may not send requests that are for administrators, as far as the network tells;
    /// `None` if it may.
    pub fn is_no_administrator(&self) -> Option<String> {
        self.caller.is_no_administrator()
    }

    /// The proof of the host at the other end, where it has given one.
    pub fn proof(&self) -> Option<&Proof> {
        match &self.caller {
            Caller::Host { proof, .. } => proof.as_deref(),
            _ => None,
        }
    }

    /// Whether the peer is a process of this machine, by a local socket.
    pub fn is_of_this_machine(&self) -> bool {
        matches!(self.caller, Caller::User { .. })
    }

    /// The peer's hello.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Requests to this server by client, user and job.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Traces of the requests to this server.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Sharing between jobs, and limits, of servers that have them.
    pub fn fair(&self) -> Option<&Arc<Fair>> {
        self.fair.as_ref()
    }

    /// Releases at the other ends of the server's connections.
    pub fn releases(&self) -> Vec<ReleaseCount> {
        self.releases.list()
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.down.is_set()
    }

    /// Asks the peer something and returns its answer; `Disconnected` when the connection ends first. At most
    /// [`crate::peer::NOTIFIES_MAX`] are unanswered at once, further ones wait. Bound the wait with a timeout: a peer may be
    /// silent. Safe to drop (the place of a dropped one is free again only when it is answered).
    pub async fn notify(&self, mut frame: Frame) -> Result<Frame, Fault> {
        frame.header.kind = Kind::Notify;
        frame.header.check_lengths()?;
        let mut frame = self.protocols.frame_down(self.version, Part::Request, frame)?;
        let room = self.notify_room.acquire().await.map_err(|_| self.lost())?;
        let xid = self.next_xid.fetch_add(1, Ordering::Relaxed);
        frame.header.xid = xid;
        frame.header.version = self.version;
        let (answer, receiver) = oneshot::channel();
        match self.notifies.lock().as_mut() {
            Some(table) => {
                let other = table.insert(xid, answer);
                assert!(other.is_none(), "two notifies of one connection have the number {xid}");
            }
            None => return Err(self.lost()),
        }
        // The answer gives the place back; see `answered`.
        room.forget();
        self.send(frame, Vec::new());
        receiver.await.map_err(|_| self.lost())
    }

    /// Ends the connection at once.
    pub fn close(&self) {
        self.down.set();
    }

    fn send(&self, frame: Frame, credits: Vec<OwnedSemaphorePermit>) {
        self.outbox.send(Outgoing { frame, credits, last: false }, &self.down);
    }

    fn answered(&self, frame: Frame) {
        let waiter = self.notifies.lock().as_mut().and_then(|n| n.remove(&frame.header.xid));
        if let Some(waiter) = waiter {
            self.notify_room.add_permits(1);
            let header = frame.header.clone();
            let answer = self.protocols.frame_up(self.version, Part::Reply, frame);
            drop(waiter.send(answer.unwrap_or_else(|fault| Frame::fault_reply_to(&header, &fault))));
        }
    }

    fn lost(&self) -> Fault {
        Fault::new(Code::Disconnected).subject(self.peer.to_string())
    }

    /// Marks the connection as ended, and wakes tasks that wait for an answer.
    fn end(&self) {
        self.down.set();
        drop(self.notifies.lock().take());
        self.notify_room.close();
    }
}

impl Shared {
    /// Counts a connection that is closed for what it sent.
    pub(crate) fn note_bad(&self, peer: &Nid, e: &NetError) {
        if let NetError::Bad { fault, .. } = e {
            *self.stats.lock().bad.entry(fault.code).or_default() += 1;
            tracing::warn!(peer = %peer, code = %fault.code, "closing a connection: {e}");
        }
    }

    /// Counts a connection whose handshake has failed; the fault names the peer.
    fn note_refused(&self, e: &NetError) {
        if let NetError::Bad { fault, .. } = e {
            *self.stats.lock().bad.entry(fault.code).or_default() += 1;
            tracing::warn!(peer = %fault.subject, code = %fault.code, "refused a connection: {e}");
        }
    }
}
