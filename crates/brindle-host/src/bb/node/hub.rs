//! The orchestrator's side of agents: who is connected, and orders to them.
//!
//! Agents connect here, over TLS with certificates of the cluster on both sides. A node is the host that the certificate of its agent
//! names. The host has joined as `client`, because it mounts. The role gives no right over others: a host registers itself alone, and gives
//! no orders. An agent connects only to a server of its cluster, so nobody else can give it an order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use brindle_auth::{HostRole, KeyId, Mode};
use brindle_net::{
    CredentialSource, RpcServer, ServerConfig, ServerConn, ServerHandle, Service, TcpTransport,
};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Nid, Result};
use brindle_wire::bb::{
    NodeOfferReq, NodeOfferResp, NodeOrder, NodeOrderReq, NodeOrderResp, NodeRegisterReq, NodeRegisterResp,
    NodeSlicesReq, NodeSlicesResp, NodeStageReq, NodeStageResp, SliceOrder, StageOrder,
};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::principal::PrincipalKind;
use brindle_wire::{Message, Op};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::away;
use crate::identity::{IdentityFile, Process, security};
use crate::{Host, access};

/// Port of the orchestrator unless told otherwise.
pub const PORT_DEFAULT: u16 = 9890;
/// An agent that was silent for this long gets no orders. Agents register every few seconds.
const SILENT_AFTER: Duration = Duration::from_secs(15);
/// How long an order waits for an agent to connect: the orchestrator may have started a moment ago.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long a mount waits for a node that was given up to clean up. The node's agent registers every few seconds.
const CLEAN_WAIT: Duration = Duration::from_secs(15);
/// How long a node may take to mount.
const MOUNT_LIMIT_MS: u64 = 60_000;
/// How long a node may take to unmount. Longer than a mount takes whose servers do not answer (`bb/unmount.rs`).
const UNMOUNT_LIMIT_MS: u64 = 100_000;
/// How much longer it may take where swap is turned off.
const SWAP_OFF_LIMIT_MS: u64 = 60_000;
/// How long a host may take to make, start and end the targets of a buffer: as long as the processes may take.
const SERVE_LIMIT: Duration = Duration::from_secs(90);
/// How long a host may take for what needs no process.
const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// Longest time for the word of how much is free: other buffers that grow by themselves wait behind it, and their writes wait 10 s.
const FREE_LIMIT: Duration = Duration::from_secs(2);
/// How long an agent may take to tell of its log.
const LOG_LIMIT_MS: u64 = 3_000;
/// Time between two looks whether a host that has an order is still there.
const LOOK_EVERY_MS: u64 = 500;
/// How long a host may take to mount buffers for staging.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);
/// How long a host may take to copy the files of a unit, which have some megabytes.
const COPY_LIMIT: Duration = Duration::from_secs(600);
/// Most directories below which a host offers to stage files.
pub const OFFERS_MAX: usize = 64;
/// Longest path of one.
pub const OFFER_BYTES_MAX: usize = 4096;
/// Registrations that wait to be looked at.
const REGISTRATIONS_MAX: usize = 1024;
/// How long a registration may take to be looked at.
const REGISTER_LIMIT_MS: u64 = 10_000;

/// How compute nodes on other hosts reach the orchestrator and the servers of buffers.
#[derive(Clone, Debug)]
pub struct Network {
    /// Address of this host.
    pub address: String,
    /// Port for agents.
    pub port: u16,
    /// Identity of this host, which has joined as `server`.
    pub identity: PathBuf,
}

/// A registration, for the orchestrator to look at.
pub struct Registration {
    /// Name of the node.
    pub node: String,
    /// Address of the node.
    pub address: String,
    /// The key of its host.
    pub key: KeyId,
    /// Words of its agent.
    pub request: NodeRegisterReq,
    conn: Arc<ServerConn>,
    answer: oneshot::Sender<Result<NodeRegisterResp>>,
}

/// Contact with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// The agent answers.
    Up,
    /// The agent is connected, and has said nothing for a while.
    Silent,
    /// The agent is not connected.
    Away,
}

/// The agents.
pub struct Hub {
    shared: Arc<Shared>,
    registrations: Mutex<Option<Receiver<Registration>>>,
    handle: ServerHandle,
    started: Instant,
}

struct Shared {
    seams: Seams,
    connected: Mutex<BTreeMap<String, Connected>>,
    changed: Condvar,
    registrations: SyncSender<Registration>,
    /// Nodes of which a registration waits: one host takes no more than one place.
    waiting: Mutex<BTreeSet<String>>,
    /// Number of the last answer to a registration; the first one is random, so that none is that of another orchestrator.
    number: AtomicU64,
    /// Number of the answer after which a node has to clean up before it counts as clean, of those that were given up.
    floors: Mutex<BTreeMap<String, u64>>,
    first: u64,
    /// Hosts that offer to stage files, with the connection that each offer came over.
    offers: Mutex<BTreeMap<String, u64>>,
}

struct Connected {
    conn: Arc<ServerConn>,
    heard: Instant,
    cleaned: u64,
    fault: String,
}

impl Hub {
    /// Listens for agents.
    pub fn start(host: &Host, network: &Network) -> Result<Hub> {
        let identity = IdentityFile::open(&network.identity)?;
        refuse_other_roles(&identity)?;
        let seams = host.seams().clone();
        let security = security(Some(identity.clone()), Mode::Privacy, Process::Server);
        security.removed.replace(access::on_file(identity.path())?);
        let removed = security.removed.clone();
        let transport = Arc::new(TcpTransport::new(seams.clone()).over_tcp_only().secured(security));
        let (registrations, waiting) = sync_channel(REGISTRATIONS_MAX);
        let (connected, changed) = (Mutex::default(), Condvar::new());
        // Far from the end of the numbers.
        let first = seams.rng.next_u64() >> 1;
        let (number, floors) = (AtomicU64::new(first), Mutex::default());
        let shared = Shared {
            seams: seams.clone(),
            connected,
            changed,
            registrations,
            waiting: Mutex::default(),
            number,
            floors,
            first,
            offers: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let nid = Nid { host: network.address.clone(), port: network.port, rail: 0 };
        let handle = host.wait(async {
            access::follow_cluster(&seams, &identity, transport.clone(), Some(removed))?;
            let (config, service) = (ServerConfig::default(), shared.clone());
            RpcServer::serve(transport, &seams, &nid, config, service).await
        })?;
        tracing::info!(nid = %handle.local_nid(), "agents of compute nodes may connect");
        Ok(Hub { shared, registrations: Mutex::new(Some(waiting)), handle, started: Instant::now() })
    }

    /// Registrations, for whoever looks at them; the first caller gets them.
    pub fn registrations(&self) -> Option<Receiver<Registration>> {
        self.registrations.lock().take()
    }

    /// Where agents connect.
    pub fn nid(&self) -> &Nid {
        self.handle.local_nid()
    }

    /// Answers a registration. A node is known as connected once its registration was good.
    pub fn answer(&self, registration: Registration, outcome: Result<NodeRegisterResp>) {
        let Registration { node, conn, answer, request, .. } = registration;
        let waiting = node.clone();
        match &outcome {
            Ok(_) if !conn.is_closed() => {
                let (heard, cleaned, fault) = (Instant::now(), request.cleaned, request.fault);
                let connected = Connected { conn, heard, cleaned, fault };
                let before = self.shared.connected.lock().insert(node.clone(), connected);
                if before.is_none() {
                    tracing::info!(node, "the agent of a compute node has connected");
                }
                self.shared.changed.notify_all();
            }
            Ok(_) => {}
            Err(fault) => tracing::warn!(%fault, node, "the agent of a compute node is refused"),
        }
        // The agent may have gone meanwhile.
        self.shared.waiting.lock().remove(&waiting);
        let _ = answer.send(outcome);
    }

    /// Contact with a node now.
    pub fn contact(&self, node: &str) -> Contact {
        match self.shared.connected.lock().get(node) {
            Some(found) if found.heard.elapsed() < SILENT_AFTER => Contact::Up,
            Some(_) => Contact::Silent,
            None => Contact::Away,
        }
    }

    /// Number for the next answer to a registration.
    pub(super) fn next_number(&self) -> u64 {
        self.shared.number.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Why the agent of a node takes no orders; empty where it does.
    pub(in crate::bb) fn fault_of(&self, node: &str) -> String {
        self.shared.connected.lock().get(node).map_or_else(String::new, |found| found.fault.clone())
    }

    /// A node was given up: it is clean again when it has cleaned up with a later answer.
    pub(super) fn distrust(&self, node: &str) {
        let mut connected = self.shared.connected.lock();
        self.shared.floors.lock().insert(node.to_owned(), self.next_number());
        if let Some(found) = connected.get_mut(node) {
            found.cleaned = 0;
        }
    }

    /// Waits until a node has said that nothing is mounted there which no living buffer has.
    pub(in crate::bb) fn wait_clean(&self, node: &str) -> Result<()> {
        let deadline = Instant::now() + CLEAN_WAIT;
        let mut connected = self.shared.connected.lock();
        loop {
            let floor = self.shared.floors.lock().get(node).copied().unwrap_or(self.shared.first);
            let is_clean = |found: &Connected| {
                let last = self.shared.number.load(Ordering::SeqCst);
                let is_of_us = (floor + 1..=last).contains(&found.cleaned);
                found.heard.elapsed() < SILENT_AFTER && (found.cleaned == u64::MAX || is_of_us)
            };
            if connected.get(node).is_some_and(is_clean) {
                return Ok(());
            }
            if self.shared.changed.wait_until(&mut connected, deadline).timed_out() {
                let why = "it was given up, and its agent has not yet unmounted what it had then";
                return Err(away(node, why.to_owned()));
            }
        }
    }

    /// Has the agent of a node carry out an order.
    pub(super) fn order(&self, host: &Host, node: &str, order: &NodeOrderReq) -> Result<Option<String>> {
        let conn = self.connection(node)?;
        let limit_ms = match &order.order {
            NodeOrder::Mount { .. } => MOUNT_LIMIT_MS,
            NodeOrder::Unmount { swap: None, .. } => UNMOUNT_LIMIT_MS,
            NodeOrder::Unmount { swap: Some(_), .. } => UNMOUNT_LIMIT_MS + SWAP_OFF_LIMIT_MS,
        };
        let header = Header { op: Op::NodeOrder as u16, ..Header::default() };
        let asked = conn.notify(Frame::new(header, encode_body(order)));
        match host.wait(self.shared.seams.timeout_ms(limit_ms, asked)) {
            Some(Ok(reply)) => {
                let answer: Result<NodeOrderResp> = decode_reply(&reply);
                answer
                    .map(|answer| answer.lost)
                    .map_err(|fault| fault.why(format!("says the agent of node {node}")))
            }
            Some(Err(_)) => Err(away(node, "its agent has gone before it answered".to_owned())),
            None => Err(away(
                node,
                format!("its agent has not done within {} s what it was told", limit_ms / 1000),
            )),
        }
    }

    /// Has the agent of a host with bricks carry out an order. Ends early where the host is heard of no more.
    pub(in crate::bb) fn order_slices(
        &self,
        host: &Host,
        node: &str,
        order: &NodeSlicesReq,
    ) -> Result<NodeSlicesResp> {
        let limit = match &order.order {
            SliceOrder::Serve(_) | SliceOrder::Destroy { .. } | SliceOrder::Hold { .. } => SERVE_LIMIT,
            SliceOrder::Claim { .. } | SliceOrder::Release { .. } => LOOK_LIMIT,
            SliceOrder::Free(_) => FREE_LIMIT,
        };
        let frame = Frame::new(Header { op: Op::NodeSlices as u16, ..Header::default() }, encode_body(order));
        self.order_watched(host, node, frame, limit, &|| false).map_err(|fault| match fault.code {
            Code::NodeAway => about_bricks(fault),
            _ => fault,
        })
    }

    /// Hosts that offer to stage files, and answer.
    pub(in crate::bb) fn offering(&self) -> Vec<String> {
        let offers: Vec<String> = self.shared.offers.lock().keys().cloned().collect();
        offers.into_iter().filter(|node| self.contact(node) == Contact::Up).collect()
    }

    /// Has a host stage files. Ends early where the host is heard of no more, or nobody wants the files any longer.
    pub(in crate::bb) fn order_stage(
        &self,
        host: &Host,
        node: &str,
        order: &NodeStageReq,
        ends: &dyn Fn() -> bool,
    ) -> Result<NodeStageResp> {
        let limit = match &order.order {
            StageOrder::Copy(_) => COPY_LIMIT,
            StageOrder::Prepare { .. } | StageOrder::End { .. } => PREPARE_LIMIT,
        };
        let frame = Frame::new(Header { op: Op::NodeStage as u16, ..Header::default() }, encode_body(order));
        self.order_watched(host, node, frame, limit, ends)
    }

    /// Sends an order, and waits for its answer as long as its host is heard of and somebody wants it.
    fn order_watched<T: serde::de::DeserializeOwned>(
        &self,
        host: &Host,
        node: &str,
        frame: Frame,
        limit: Duration,
        ends: &dyn Fn() -> bool,
    ) -> Result<T> {
        let conn = self.connection(node)?;
        let mut asked = std::pin::pin!(conn.notify(frame));
        let deadline = Instant::now() + limit;
        let gone = |why: String| away(node, why);
        loop {
            match host.wait(self.shared.seams.timeout_ms(LOOK_EVERY_MS, &mut asked)) {
                Some(Ok(reply)) => {
                    let answer: Result<T> = decode_reply(&reply);
                    return answer.map_err(|fault| fault.why(format!("says the agent of node {node}")));
                }
                Some(Err(_)) => return Err(gone("its agent has gone before it answered".to_owned())),
                None if self.contact(node) != Contact::Up => {
                    return Err(gone("its agent is silent, and has not answered".to_owned()));
                }
                None if Instant::now() >= deadline => {
                    let limit_s = limit.as_secs();
                    return Err(gone(format!("its agent has not done within {limit_s} s what it was told")));
                }
                None if ends() => return Err(gone("nobody waits for its answer any more".to_owned())),
                None => {}
            }
        }
    }

    /// Asks the agent of a node about its log.
    pub(in crate::bb) fn ask_about_log<M: Message>(
        &self,
        host: &Host,
        node: &str,
        request: &M,
    ) -> Result<M::Resp> {
        let silent = |why: String| {
            Fault::new(Code::NodeAway)
                .what("cannot ask for the log of the agent of node")
                .subject(node.to_owned())
                .why(why)
                .data("nothing was changed")
                .next("read its log on the node: journalctl -u brindle-bb-agent")
        };
        if self.contact(node) != Contact::Up {
            return Err(silent("its agent is not connected, or silent".to_owned()));
        }
        let conn = self.connection(node)?;
        let header = Header { op: M::OP as u16, ..Header::default() };
        let asked = conn.notify(Frame::new(header, encode_body(request)));
        match host.wait(self.shared.seams.timeout_ms(LOG_LIMIT_MS, asked)) {
            Some(Ok(reply)) => decode_reply(&reply).map_err(|fault: Fault| match fault.code {
                Code::UnknownOp => fault.why("the release of its agent tells nothing of its log"),
                _ => fault,
            }),
            Some(Err(_)) => Err(silent("its agent has gone before it answered".to_owned())),
            None => Err(silent(format!("its agent has not answered for {} s", LOG_LIMIT_MS / 1000))),
        }
    }

    /// Waits until these nodes are connected, where this hub has started a moment ago.
    pub(in crate::bb) fn wait_for_agents(&self, nodes: &BTreeSet<String>) {
        let deadline = self.started + CONNECT_WAIT;
        let mut connected = self.shared.connected.lock();
        while !nodes.iter().all(|node| connected.contains_key(node)) {
            if self.shared.changed.wait_until(&mut connected, deadline).timed_out() {
                return;
            }
        }
    }

    fn connection(&self, node: &str) -> Result<Arc<ServerConn>> {
        let deadline = Instant::now() + CONNECT_WAIT;
        let mut connected = self.shared.connected.lock();
        loop {
            let found = connected.get(node);
            if let Some(found) = found.filter(|found| found.heard.elapsed() < SILENT_AFTER) {
                return Ok(found.conn.clone());
            }
            let why = match found {
                Some(found) => {
                    format!("its agent was last heard of {} s ago", found.heard.elapsed().as_secs())
                }
                None => "its agent is not connected".to_owned(),
            };
            if self.shared.changed.wait_until(&mut connected, deadline).timed_out() {
                return Err(away(node, why));
            }
        }
    }
}

/// A host with bricks that cannot be asked.
pub(in crate::bb) fn about_bricks(fault: Fault) -> Fault {
    fault.data("what it has of the buffer stays as it is").next(
        "start its agent: systemctl start brindle-bb-agent; or, if the disk of its brick is lost: brindle bb brick remove --lost BRICK",
    )
}

/// Agents and mounts on other hosts believe servers only.
fn refuse_other_roles(identity: &IdentityFile) -> Result<()> {
    let current = identity.current()?;
    let name = current.identity().name();
    if name.roles.has(HostRole::Server) {
        return Ok(());
    }
    Err(Fault::new(Code::NotForCaller)
        .what("cannot serve compute nodes with the identity of host")
        .subject(name.host.clone())
        .why(format!("the host has joined as {}, not as server: agents take no orders from it", name.roles))
        .next("let the host join as a server: brindle cluster token --role server, brindle join --again"))
}

impl Service for Shared {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        let principal = conn.principal();
        let is_agent = matches!(principal.kind, PrincipalKind::Client | PrincipalKind::Agent);
        if is_agent && conn.proof().is_some_and(|proof| proof.mode == Mode::Privacy) {
            return Ok(0);
        }
        Err(Fault::new(Code::NotForCaller)
            .what("refused by the orchestrator of burst buffers:")
            .subject(principal.to_string())
            .why("agents of compute nodes connect here, and prove who they are")
            .data("nothing was changed"))
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let header = frame.header.clone();
            let outcome = match Op::from_number(header.op) {
                Some(Op::NodeRegister) => {
                    self.register(conn, &frame).await.map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                Some(Op::NodeOffer) => {
                    self.offer(&conn, &frame).map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                _ => Err(Fault::new(Code::UnknownOp).why(format!("operation {}", header.op))),
            };
            match outcome {
                Ok(body) => Frame::reply_to(&header, body),
                Err(fault) => Frame::fault_reply_to(&header, &fault),
            }
        })
    }

    fn closed(&self, conn_id: u64) {
        self.offers.lock().retain(|_, conn| *conn != conn_id);
        let mut connected = self.connected.lock();
        connected.retain(|node, found| {
            let stays = found.conn.id() != conn_id;
            if !stays {
                tracing::warn!(node, "the agent of a compute node has gone");
            }
            stays
        });
    }
}

impl Shared {
    /// Notes that a host stages files, or does not any more.
    fn offer(&self, conn: &Arc<ServerConn>, frame: &Frame) -> Result<NodeOfferResp> {
        let request: NodeOfferReq = decode_body(&frame.body)?;
        let node = conn.proof().ok_or_else(|| Fault::new(Code::NotEnrolled))?.host.clone();
        let is_short = request.stages.iter().all(|dir| dir.len() <= OFFER_BYTES_MAX);
        if request.stages.len() > OFFERS_MAX || !is_short {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot take the offer to stage files of node")
                .subject(node)
                .why(format!("{OFFERS_MAX} directories are possible")));
        }
        let mut offers = self.offers.lock();
        if request.stages.is_empty() {
            offers.remove(&node);
        } else if offers.insert(node.clone(), conn.id()).is_none() {
            tracing::info!(node, stages = ?request.stages, "a host offers to stage files");
        }
        Ok(NodeOfferResp {})
    }

    async fn register(&self, conn: Arc<ServerConn>, frame: &Frame) -> Result<NodeRegisterResp> {
        let request: NodeRegisterReq = decode_body(&frame.body)?;
        let busy =
            || Fault::new(Code::BufferBusy).what("the orchestrator has too much to do to register nodes");
        let proof = conn.proof().ok_or_else(|| Fault::new(Code::NotEnrolled))?;
        let (node, key, address) = (proof.host.clone(), proof.key, conn.peer().host.clone());
        if !self.waiting.lock().insert(node.clone()) {
            return Err(busy().why("an earlier registration of the node waits"));
        }
        let waiting = node.clone();
        let (answer, answered) = oneshot::channel();
        let registration = Registration { node, address, key, request, conn, answer };
        match self.registrations.try_send(registration) {
            Ok(()) => {}
            Err(refused) => {
                self.waiting.lock().remove(&waiting);
                return Err(match refused {
                    TrySendError::Full(_) => busy(),
                    TrySendError::Disconnected(_) => Fault::new(Code::Shutdown),
                });
            }
        }
        let answered = self.seams.timeout_ms(REGISTER_LIMIT_MS, answered).await.ok_or_else(busy)?;
        answered.unwrap_or_else(|_| Err(Fault::new(Code::Shutdown)))
    }
}

/// Keys of hosts that the servers of a buffer refuse, one a line: the file that `brindle serve --refuse` reads.
pub struct Refused {
    path: PathBuf,
    keys: Vec<String>,
}

impl Refused {
    /// Reads the file, which may not be there.
    pub fn open(path: &Path) -> Result<Refused> {
        let keys = match std::fs::read_to_string(path) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => {
                return Err(Fault::io(Code::NotWritable, "cannot read", path.display().to_string(), &e));
            }
        };
        Ok(Refused { path: path.to_owned(), keys })
    }

    /// The keys.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Refuses these keys and no others, with the next start of the servers.
    pub fn replace(&mut self, keys: &[String]) -> Result<()> {
        self.keys = keys.to_vec();
        self.save()
    }

    /// Whether a key is refused.
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Refuses a key, or does not any more, with the next start of the servers; whether that changed anything.
    pub fn set(&mut self, key: &str, refused: bool) -> Result<bool> {
        if self.has(key) == refused {
            return Ok(false);
        }
        self.keys.retain(|known| known != key);
        self.keys.extend(refused.then(|| key.to_owned()));
        self.save()?;
        Ok(true)
    }

    /// Writes the file.
    pub fn save(&self) -> Result<()> {
        let text: String = self.keys.iter().map(|key| format!("{key}\n")).collect();
        crate::identity::write_whole(&self.path, &text, 0o600)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", self.path.display().to_string(), &e))
    }
}
