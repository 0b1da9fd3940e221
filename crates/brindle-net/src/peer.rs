//! The asking end: calls to one service over one or a few connections that heal by themselves.
//!
//! Used by clients (to MGS, MDS, OSS) and between servers. Requests are pipelined and paired with their replies by
//! xid; the number and bytes in flight stay within what the server granted, and callers wait for their turn. While
//! there is no connection callers wait too; a call whose connection is lost *after* it was sent ends with
//! `Disconnected`, because only the session layer may decide to send it again (under the same slot and sequence).
//!
//! Invariant: credits of a request are given back only when its reply came or its connection ended, even if the
//! caller has gone away, so that a server never sees more than it granted.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

use brindle_stdx::watch;
use brindle_stdx::{BoxFuture, Mono, Seams};
use brindle_types::{Code, Fault, Nid, TargetId};
use brindle_wire::earlier::{Part, Protocols};
use brindle_wire::frame::{FLAG_TRACED, Frame, Header, Kind, Priority};
use brindle_wire::job::JobTag;
use brindle_wire::version::{FEATURE_JOB, HelloReply, PeerKind};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::latch::Latch;
use crate::outbox::Outbox;
use crate::{Transport, job};

mod link;
mod rail;

pub use rail::RAILS_MAX;

/// Ordinary requests in flight on a connection unless configured otherwise.
pub const REQUESTS_MAX_DEFAULT: u32 = 256;
/// Bytes in flight on a connection unless configured otherwise.
pub const BYTES_MAX_DEFAULT: u64 = 64 << 20;
/// High-priority requests in flight on a connection, beyond the ordinary ones. Both ends know this number.
pub const HIGH_REQUESTS_MAX: usize = 64;
/// Notifies that one server may have unanswered on a connection. Both ends know this number.
pub const NOTIFIES_MAX: usize = 256;
/// First pause between two attempts to connect.
pub const BACKOFF_MIN_MS: u64 = 20;
/// Longest pause between two attempts to connect.
pub const BACKOFF_MAX_MS: u64 = 1_000;
/// Longest wait for the other side to answer a hello.
pub const HELLO_TIMEOUT_MS: u64 = 5_000;
/// Credits for bytes are counted in units of this size.
pub(crate) const BYTES_UNIT: u64 = 4 << 10;

/// Answers questions of servers to a client (recalls, invalidations).
pub trait NotifyHandler: Send + Sync + 'static {
    /// Answers one notify, with [`Frame::reply_to`] its header. Runs in a task of its own; at most
    /// [`NOTIFIES_MAX`] run at once.
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame>;
}

/// Handler of peers that expect no notifies: refuses them.
pub struct NoNotifies;

impl NotifyHandler for NoNotifies {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        let fault = Fault::new(Code::UnknownOp).why(format!("notify {}", frame.header.op));
        Box::pin(async move { Frame::fault_reply_to(&frame.header, &fault) })
    }
}

/// Introduction of a [`Peer`] to servers, and its bounds.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// File system wanted; 0 for any.
    pub fs_id: u64,
    /// Kind of this side.
    pub kind: PeerKind,
    /// Name of this host, for the other side's messages.
    pub host: String,
    /// The target that this side serves, if it is a server.
    pub serves: Option<TargetId>,
    /// Connections, each to the first address that answers. A slot always uses the same one.
    pub links: usize,
    /// A connection to each address instead, [`RAILS_MAX`] at most: a host with several rails. A request goes where the fewest bytes are under way.
    pub each_rail: bool,
    /// The target that is asked how it is when nothing is heard of a request, where there are several rails.
    pub probes: Option<TargetId>,
    /// Ordinary requests in flight on a connection; the server may grant less.
    pub requests_max: u32,
    /// Bytes in flight on a connection, with the bulk room of replies; the server may grant less.
    pub bytes_max: u64,
}

impl PeerConfig {
    /// The usual bounds, and one connection.
    pub fn new(fs_id: u64, kind: PeerKind, host: impl Into<String>) -> PeerConfig {
        PeerConfig {
            fs_id,
            kind,
            host: host.into(),
            serves: None,
            links: 1,
            each_rail: false,
            probes: None,
            requests_max: REQUESTS_MAX_DEFAULT,
            bytes_max: BYTES_MAX_DEFAULT,
        }
    }
}

/// A connection that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Counts the connections that this peer has made; a new one means that the server may have restarted.
    pub generation: u64,
    /// Address of the connection.
    pub nid: Nid,
    /// The server's hello.
    pub hello: HelloReply,
}

/// State of the peer, for status.
#[derive(Clone, Debug)]
pub struct PeerState {
    /// Whether every connection exists; with one for each rail: whether any does.
    pub connected: bool,
    /// Addresses of the existing connections.
    pub up: Vec<Nid>,
    /// Time since when `connected` has its value.
    pub since: Mono,
    /// Reason why the last connection ended or could not be made.
    pub last_error: Option<Fault>,
    /// Attempts to connect that failed since there was a connection.
    pub failed_attempts: u64,
    /// Connections made so far.
    pub generation: u64,
    /// Requests in flight.
    pub requests_in_flight: usize,
}

/// The asking end of a service. Connects at once and for ever, until dropped or stopped.
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    seams: Seams,
    nids: watch::Sender<Vec<Nid>>,
    config: PeerConfig,
    notifies: Arc<dyn NotifyHandler>,
    stop: Latch,
    next_xid: AtomicU64,
    generation: AtomicU64,
    links: Vec<watch::Sender<LinkState>>,
    /// Rises with every change of a link.
    changes: watch::Sender<u64>,
    status: Mutex<Status>,
}

struct Status {
    up_count: usize,
    since: Mono,
    last_error: Option<Fault>,
    failed_attempts: u64,
}

/// State of a connection for calls.
#[derive(Clone)]
enum LinkState {
    /// Calls wait.
    Connecting,
    /// Calls go out.
    Up(Arc<Link>),
    /// The server refused this host with this reason: calls fail. Attempts go on.
    Refused(Fault),
    /// Calls fail: the peer was stopped.
    Stopped,
}

/// A live connection.
struct Link {
    info: LinkInfo,
    protocols: Protocols,
    outbox: Outbox,
    /// Requests without a reply; `None` once the connection has ended.
    pending: Mutex<Option<BTreeMap<u64, Pending>>>,
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_units_max: u32,
    high: Arc<Semaphore>,
    notifies: Arc<Semaphore>,
    down: Latch,
    /// Signalled when the first request is under way.
    busy: Notify,
    /// Frames that have arrived.
    received: AtomicU64,
    /// The server makes traces: requests measure their time on the network.
    is_measured: AtomicBool,
    /// Microseconds of the last request that did; 0 without one.
    network_us: AtomicU32,
    /// Time at which another target than the wanted one has last answered a request.
    wrong_since: Mutex<Option<Mono>>,
}

struct Pending {
    answer: oneshot::Sender<Result<Frame, Fault>>,
    _credits: Credits,
}

/// The right to have one request in flight.
struct Credits {
    _request: OwnedSemaphorePermit,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// Credits that a request of this header takes, in units of [`BYTES_UNIT`]. The job tag takes none: both ends count without
/// it.
pub(crate) fn bytes_units(header: &Header) -> u64 {
    let bytes = u64::from(header.body_len) + u64::from(header.bulk_len) + u64::from(header.reply_bulk_max);
    bytes.div_ceil(BYTES_UNIT).max(1)
}

impl Peer {
    /// Starts to connect to the first of `nids` that answers.
    pub fn new(
        transport: Arc<dyn Transport>,
        seams: Seams,
        nids: Vec<Nid>,
        config: PeerConfig,
        notifies: Arc<dyn NotifyHandler>,
    ) -> Arc<Peer> {
        assert!(config.links > 0, "a peer has at least one connection");
        let count = if config.each_rail { RAILS_MAX } else { config.links };
        let links = (0..count).map(|_| watch::Sender::new(LinkState::Connecting)).collect();
        let since = seams.now();
        let inner = Arc::new(Inner {
            transport,
            seams,
            nids: watch::Sender::new(nids),
            config,
            notifies,
            stop: Latch::default(),
            next_xid: AtomicU64::new(1),
            generation: AtomicU64::new(0),
            links,
            changes: watch::Sender::new(0),
            status: Mutex::new(Status { up_count: 0, since, last_error: None, failed_attempts: 0 }),
        });
        for index in 0..inner.links.len() {
            inner.seams.spawn("peer", link::run(inner.clone(), index));
        }
        Arc::new(Peer { inner })
    }

    /// Sends a request for the job of this task, and returns its reply, whatever it says.
    ///
    /// Waits while there is no connection and while the credits are used up. `Disconnected`: the request was sent,
    /// the connection was lost, and the outcome is unknown. The refusal of the server, if it does not want us.
    /// xid, version and (where it is 0) `fs_id` of the header are filled in; `reply_bulk_max` must cover the
    /// bulk of the reply. Safe to drop.
    pub async fn call(&self, frame: Frame) -> Result<Frame, Fault> {
        self.call_for(job::current(), frame).await
    }

    /// Like [`Peer::call`], for a job; a server that does not count by job is not told of it.
    pub async fn call_for(&self, job: Option<JobTag>, mut frame: Frame) -> Result<Frame, Fault> {
        frame.header.kind = Kind::Request;
        frame.header.check_lengths()?;
        let mut queued_us = 0;
        loop {
            let link = self.timed(&mut queued_us, pin!(self.link_for(frame.header.slot))).await?;
            // In its newest form, for a connection of another version.
            let newest = link.translates().then(|| frame.clone());
            let mut spoken = match link.down(Part::Request, frame) {
                Ok(spoken) => spoken,
                Err(refusal) => return Ok(refusal),
            };
            let admitted = self.timed(&mut queued_us, pin!(link.admit(&spoken.header))).await;
            if let Some(credits) = admitted {
                spoken.header.queued_us = u32::try_from(queued_us).unwrap_or(u32::MAX);
                spoken.header.network_us = link.network_us.load(Ordering::Relaxed);
                let sent = link.is_measured.load(Ordering::Relaxed).then(|| self.inner.seams.now());
                let xid = self.inner.next_xid.fetch_add(1, Ordering::Relaxed);
                match link.submit(spoken, job.as_ref(), xid, credits) {
                    Ok(answer) => {
                        let reply = answer.await.unwrap_or_else(|_| Err(link.lost()))?;
                        rail::note_answer(&self.inner, &link, &reply);
                        self.measure(&link, sent, &reply.header);
                        return Ok(reply);
                    }
                    Err(unsent) => frame = newest.unwrap_or(unsent),
                }
            } else {
                frame = newest.unwrap_or(spoken);
            }
        }
    }

    /// Notes how long a request was on the network, while the server makes traces.
    fn measure(&self, link: &Link, sent: Option<Mono>, reply: &Header) {
        let is_traced = reply.flags & FLAG_TRACED != 0;
        if !is_traced && sent.is_none() {
            return;
        }
        link.is_measured.store(is_traced, Ordering::Relaxed);
        let on_the_way = sent.filter(|_| is_traced).map_or(0, |sent| {
            let micros = self.inner.seams.now().0.saturating_sub(sent.0) / 1_000;
            micros.saturating_sub(reply.queued_us.into())
        });
        link.network_us.store(u32::try_from(on_the_way).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// `work`, and its time on top of `queued_us`. Work that need not wait costs no look at the clock.
    async fn timed<T>(&self, queued_us: &mut u64, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        if let Poll::Ready(done) = futures_util::poll!(work.as_mut()) {
            return done;
        }
        let began = self.inner.seams.now();
        let done = work.await;
        *queued_us += self.inner.seams.now().0.saturating_sub(began.0) / 1_000;
        done
    }

    /// The connection that a request goes over, as soon as there is one.
    async fn link_for(&self, slot: u16) -> Result<Arc<Link>, Fault> {
        if self.inner.config.each_rail {
            return rail::least_busy(&self.inner).await;
        }
        wait_up(&mut self.inner.links[slot as usize % self.inner.links.len()].subscribe()).await
    }

    /// Waits for the (first) connection; fails with the server's refusal or after [`Peer::stop`].
    pub async fn wait_connected(&self) -> Result<LinkInfo, Fault> {
        Ok(self.link_for(0).await?.info.clone())
    }

    /// Number of the connection that [`Peer::wait_connected`] gives at once; `None` where it may wait.
    pub fn connected_generation(&self) -> Option<u64> {
        if self.inner.config.each_rail {
            return None;
        }
        match &*self.inner.links[0].borrow() {
            LinkState::Up(link) if !link.down.is_set() => Some(link.info.generation),
            _ => None,
        }
    }

    /// Waits for a (first) connection newer than `generation`.
    pub async fn wait_newer(&self, generation: u64) -> Result<LinkInfo, Fault> {
        let mut state = self.inner.links[0].subscribe();
        loop {
            let link = wait_up(&mut state).await?;
            if link.info.generation > generation {
                return Ok(link.info.clone());
            }
            link.down.wait().await;
        }
    }

    /// Connections made so far.
    pub fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }

    /// State of the peer, for status.
    pub fn state(&self) -> PeerState {
        let in_flight = |slot: &watch::Sender<LinkState>| match &*slot.borrow() {
            LinkState::Up(link) => link.pending.lock().as_ref().map_or(0, BTreeMap::len),
            _ => 0,
        };
        let requests_in_flight = self.inner.links.iter().map(in_flight).sum();
        let up = |slot: &watch::Sender<LinkState>| match &*slot.borrow() {
            LinkState::Up(link) if !link.down.is_set() => Some(link.info.nid.clone()),
            _ => None,
        };
        let up = self.inner.links.iter().filter_map(up).collect();
        let status = self.inner.status.lock();
        PeerState {
            connected: self.inner.is_connected(status.up_count),
            up,
            since: status.since,
            last_error: status.last_error.clone(),
            failed_attempts: status.failed_attempts,
            generation: self.generation(),
            requests_in_flight,
        }
    }

    /// Addresses to connect to, best first.
    pub fn nids(&self) -> Vec<Nid> {
        self.inner.nids.borrow().clone()
    }

    /// Sets the addresses of a newer map. Connections, and attempts to connect, to other addresses end: another host has the target now,
    /// and the former one may be silent for ever.
    pub fn set_nids(&self, nids: Vec<Nid>) {
        for (index, slot) in self.inner.links.iter().enumerate() {
            if let LinkState::Up(link) = &*slot.borrow() {
                // A wrong target may have answered because this side followed an older map.
                *link.wrong_since.lock() = None;
                if !rail::addresses(&self.inner.config, index, &nids).contains(&link.info.nid) {
                    link.down.set();
                }
            }
        }
        self.inner.nids.send_if_modified(|known| {
            let differs = *known != nids;
            *known = nids;
            differs
        });
    }

    /// The host at the other end is silent, which `also` may be names of: its connections end, and its addresses are tried after all
    /// others. Does nothing where there is no other.
    pub fn try_others(&self, also: &[Nid]) {
        let connected = |slot: &watch::Sender<LinkState>| match &*slot.borrow() {
            LinkState::Up(link) => Some(link.info.nid.clone()),
            _ => None,
        };
        let mut silent: Vec<Nid> = self.inner.links.iter().filter_map(connected).collect();
        if silent.is_empty() {
            return;
        }
        silent.extend_from_slice(also);
        let mut nids = self.nids();
        if nids.iter().all(|nid| silent.contains(nid)) {
            return;
        }
        // Stable: the others keep their order.
        nids.sort_by_key(|nid| silent.contains(nid));
        self.inner.nids.send_replace(nids);
        self.disconnect();
    }

    /// Ends the connections that exist, as if the network had; new ones are made at once.
    pub fn disconnect(&self) {
        for slot in &self.inner.links {
            if let LinkState::Up(link) = &*slot.borrow() {
                link.down.set();
            }
        }
    }

    /// Ends everything; calls fail from now on.
    pub fn stop(&self) {
        self.inner.stop.set();
    }
}

impl Inner {
    fn is_connected(&self, up_count: usize) -> bool {
        if self.config.each_rail { up_count > 0 } else { up_count == self.links.len() }
    }

    fn set_link(&self, index: usize, state: LinkState) {
        self.links[index].send_replace(state);
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stopped() -> Fault {
    Fault::new(Code::Disconnected).why("this side is shutting down")
}

async fn wait_up(state: &mut watch::Receiver<LinkState>) -> Result<Arc<Link>, Fault> {
    loop {
        let now = state.borrow_and_update().clone();
        match now {
            LinkState::Up(link) if !link.down.is_set() => return Ok(link),
            LinkState::Refused(fault) => return Err(fault),
            LinkState::Stopped => return Err(stopped()),
            LinkState::Up(_) | LinkState::Connecting => {}
        }
        state.changed().await.map_err(|_| stopped())?;
    }
}

impl Link {
    /// Whether the connection speaks another version than the newest.
    fn translates(&self) -> bool {
        self.protocols.translates(self.info.hello.version)
    }

    /// A frame in the form of this connection; where that cannot say it, the refusal as an answer.
    fn down(&self, part: Part, frame: Frame) -> Result<Frame, Frame> {
        if !self.translates() {
            return Ok(frame);
        }
        let header = frame.header.clone();
        let spoken = self.protocols.frame_down(self.info.hello.version, part, frame);
        spoken.map_err(|fault| Frame::fault_reply_to(&header, &fault))
    }

    /// A frame that came, in its newest form; one that does not decode becomes an answer that says so.
    fn up(&self, part: Part, frame: Frame) -> Result<Frame, Frame> {
        if !self.translates() {
            return Ok(frame);
        }
        let header = frame.header.clone();
        let newest = self.protocols.frame_up(self.info.hello.version, part, frame);
        newest.map_err(|fault| Frame::fault_reply_to(&header, &fault))
    }

    /// Waits for the credits of a request; `None` when the connection ended first.
    async fn admit(&self, header: &Header) -> Option<Credits> {
        if header.priority == Priority::High {
            let request = self.high.clone().acquire_owned().await.ok()?;
            return Some(Credits { _request: request, _bytes: None });
        }
        let units = u32::try_from(bytes_units(header)).unwrap_or(u32::MAX).min(self.bytes_units_max);
        let request = self.requests.clone().acquire_owned().await.ok()?;
        let bytes = self.bytes.clone().acquire_many_owned(units).await.ok()?;
        Some(Credits { _request: request, _bytes: Some(bytes) })
    }

    /// Queues a request; gives it back when the connection has ended.
    fn submit(
        &self,
        mut frame: Frame,
        job: Option<&JobTag>,
        xid: u64,
        credits: Credits,
    ) -> Result<oneshot::Receiver<Result<Frame, Fault>>, Frame> {
        let (answer, receiver) = oneshot::channel();
        let mut pending = self.pending.lock();
        let Some(table) = pending.as_mut() else { return Err(frame) };
        frame.header.xid = xid;
        frame.header.version = self.info.hello.version;
        if frame.header.fs_id == 0 {
            frame.header.fs_id = self.info.hello.fs_id;
        }
        if table.is_empty() {
            self.busy.notify_one();
        }
        let other = table.insert(xid, Pending { answer, _credits: credits });
        assert!(other.is_none(), "two requests of one connection have the number {xid}");
        drop(pending);
        if let Some(job) = job
            && self.info.hello.features & FEATURE_JOB != 0
        {
            frame = frame.with_job(job);
        }
        // Once the connection has ended nothing is sent, and every pending request is told so.
        self.outbox.send(frame.into(), &self.down);
        Ok(receiver)
    }

    fn lost(&self) -> Fault {
        Fault::new(Code::Disconnected).subject(self.info.nid.to_string())
    }

    /// Ends the connection: calls that wait for a reply get `why`; calls that wait for credits go on to the next
    /// connection.
    fn end(&self, why: &Fault) {
        self.down.set();
        let pending = self.pending.lock().take().unwrap_or_default();
        for (_, request) in pending {
            drop(request.answer.send(Err(why.clone())));
        }
        self.requests.close();
        self.bytes.close();
        self.high.close();
    }
}
