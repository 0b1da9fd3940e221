//! The agent of a compute node: carries out the orders of the orchestrator.
//!
//! The agent connects to the orchestrator, registers, and takes orders over that connection; nothing listens on the node. When it starts,
//! and every few seconds while anything is mounted, it asks what living buffers may have mounted here, and unmounts everything else. A node
//! that boots, or whose job has died while its agent was away, therefore comes back clean. Mounts outlive the agent.
//!
//! Orders for one buffer are carried out one after the other, orders for different buffers at the same time. While the agent looks for
//! surplus mounts it carries out no orders: the orchestrator's answer would be older than a mount that an order has just made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brindle_auth::{HostRole, Mode};
use brindle_net::latch::Latch;
use brindle_net::{CredentialSource, NotifyHandler, Peer, PeerConfig, TcpTransport};
use brindle_stdx::{BoxFuture, Seams};
use brindle_targets::{log_level, log_lines};
use brindle_types::{Code, Fault, Nid, Result};
use brindle_wire::Op;
use brindle_wire::bb::{
    NodeOrder, NodeOrderReq, NodeOrderResp, NodeRegisterReq, NodeRegisterResp, NodeSlicesReq, NodeSlicesResp,
    SliceOrder,
};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::log_level::{LogLevelResp, NodeLogLevelReq};
use brindle_wire::log_lines::{LogLinesResp, NodeLogLinesReq};
use brindle_wire::version::PeerKind;
use parking_lot::Mutex;
use tokio::sync::{RwLock, oneshot};

use super::Places;
use super::revisions::Revisions;
use super::stage::Staging;
use crate::bb::actions::reap;
use crate::bb::part::Part;
use crate::cluster::{Cluster, alive};
use crate::identity::{IdentityFile, Process, security, write_whole};
use crate::target_dir::DirLock;
use crate::{Host, access};

/// How long an order waits for the one before it for the same buffer.
pub(super) const ORDER_WAIT: Duration = Duration::from_secs(40);
/// Directory of the parts of buffers that this host serves.
const SLICES: &str = "slices";
/// File that names the orchestrator's state.
const KNOWN: &str = "orchestrator";
/// Permissions of it.
const KNOWN_MODE: u32 = 0o600;
/// Time between two registrations.
const REGISTER_EVERY_MS: u64 = 4_000;
/// Pause after one that failed.
const PAUSE_MS: u64 = 1_000;
/// How long a mount waits for the node to be clean.
const CLEAN_WAIT_MS: u64 = 30_000;
/// How long the orchestrator may take to answer one.
pub(super) const ANSWER_LIMIT_MS: u64 = 12_000;

/// Places of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the orchestrator listens.
    pub orchestrator: Nid,
    /// Directory of its state and of the logs of mounts.
    pub state: PathBuf,
    /// Where jobs find their buffers. The directory has no other mounts directly below it.
    pub mount_root: PathBuf,
    /// Directories below which this host stages files for users; empty: it stages nothing.
    pub stages: Vec<PathBuf>,
}

/// The agent.
pub struct Agent {
    pub(super) seams: Seams,
    pub(super) config: Config,
    pub(super) host: Host,
    pub(super) identity: Arc<IdentityFile>,
    pub(super) node: String,
    pub(super) revisions: Mutex<Revisions>,
    buffers: Mutex<BTreeMap<u64, Arc<Mutex<()>>>>,
    /// Held for reading while an order is carried out, for writing while the agent looks for what is surplus.
    orders: Arc<RwLock<()>>,
    /// Set once everything surplus has been unmounted after the start.
    clean: Latch,
    /// Number of the last answer after which that was so.
    cleaned: AtomicU64,
    /// Why another orchestrator than the one that is known gets nothing done here.
    pub(super) stranger: Mutex<Option<Fault>>,
    /// Buffers that are mounted for staging.
    pub(super) staging: Staging,
    /// Whether somebody looks after the slices of this host.
    looking: AtomicBool,
    _state: DirLock,
}

impl Agent {
    /// The agent of this host. Call it within a tokio runtime.
    pub fn new(seams: Seams, identity: Arc<IdentityFile>, config: Config) -> Result<Arc<Agent>> {
        let host = Host::with(crate::servers(&seams), tokio::runtime::Handle::current())?;
        super::make_dir(&config.state.join("logs"))?;
        super::make_dir(&config.mount_root)?;
        let lock = DirLock::wait(&config.state, "another agent of burst buffers", |who| {
            tracing::warn!(%who, "another agent has the directory, and is waited for");
        })?;
        let revisions = Mutex::new(Revisions::open(&config.state.join("revisions.json"))?);
        Ok(Arc::new(Agent {
            seams,
            host,
            node: identity.host()?,
            identity,
            revisions,
            buffers: Mutex::default(),
            orders: Arc::default(),
            clean: Latch::default(),
            cleaned: AtomicU64::new(0),
            stranger: Mutex::default(),
            looking: AtomicBool::new(false),
            staging: Staging::default(),
            _state: lock,
            config,
        }))
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Registers and takes orders, for as long as the process runs. `ready` is called when the node was registered for the first time.
    pub async fn run(self: Arc<Self>, ready: impl FnOnce()) -> Result<()> {
        let security = security(Some(self.identity.clone()), Mode::Privacy, Process::Command);
        let removed = security.removed.clone();
        removed.replace(access::on_file(self.identity.path())?);
        let transport = Arc::new(TcpTransport::new(self.seams.clone()).over_tcp_only().secured(security));
        // The MGS tells servers and agents which hosts were removed, and mounts do not ask it.
        let roles = self.identity.current()?.identity().name().roles;
        let may_ask = [HostRole::Server, HostRole::Agent].iter().any(|role| roles.has(*role));
        access::follow_cluster(&self.seams, &self.identity, transport.clone(), may_ask.then_some(removed))?;
        // No more than a mount of this host: the role `agent` would take the node out of the nodemap `default`.
        let config = PeerConfig::new(0, PeerKind::Client, self.node.clone());
        let nids = vec![self.config.orchestrator.clone()];
        let peer = Peer::new(transport, self.seams.clone(), nids, config, Arc::new(Orders(self.clone())));
        let (start, mut ready, mut said) = (self.seams.rng.next_u64(), Some(ready), String::new());
        loop {
            self.look_after_slices();
            self.look_after_staging();
            let pause_ms = match self.attend(&peer, start).await {
                Ok(cleaned_up) => {
                    self.offer(&peer).await;
                    ready.take().into_iter().for_each(|ready| ready());
                    said.clear();
                    // A mount may wait for the word that the node is clean.
                    if cleaned_up { PAUSE_MS } else { REGISTER_EVERY_MS }
                }
                Err(fault) => {
                    // Told once, and again when it is another one.
                    let text = fault.to_string();
                    if text != said {
                        tracing::warn!(code = %fault.code, "not registered with the orchestrator: {fault}");
                    }
                    said = text;
                    PAUSE_MS
                }
            };
            self.seams.sleep_ms(pause_ms).await;
        }
    }

    /// Registers once; unmounts what is surplus, where nobody is mounting. Whether it has done so for the first time.
    async fn attend(self: &Arc<Self>, peer: &Peer, start: u64) -> Result<bool> {
        let holds_something = self.places(&self.config.state).holds_something();
        let holds = !self.clean.is_set() || holds_something;
        let alone = if holds { self.orders.clone().try_write_owned().ok() } else { None };
        let request = NodeRegisterReq {
            start,
            mount_root: crate::text(&self.config.mount_root)?,
            wants_kept: alone.is_some(),
            cleaned: if holds { self.cleaned.load(Ordering::Acquire) } else { u64::MAX },
            fault: self.stranger.lock().as_ref().map_or_else(String::new, crate::bb::orchestrator::short),
        };
        let header = Header { op: Op::NodeRegister as u16, ..Header::default() };
        let asked = peer.call(Frame::new(header, encode_body(&request)));
        let Some(reply) = self.seams.timeout_ms(ANSWER_LIMIT_MS, asked).await else {
            let fault = Fault::new(Code::NoOrchestrator).subject(self.config.orchestrator.to_string());
            return Err(peer.state().last_error.map_or(fault.clone(), |last| fault.why(super::short(&last))));
        };
        let answer: NodeRegisterResp = decode_reply(&reply?)?;
        let holds_mounts = self.places(&self.config.state).holds_mounts() || !self.parts().is_empty();
        if let Err(fault) = know(&self.config.state.join(KNOWN), &answer.store, holds_mounts) {
            *self.stranger.lock() = Some(fault.clone());
            return Err(fault);
        }
        *self.stranger.lock() = None;
        let (Some(alone), Some(kept)) = (alone, answer.kept) else { return Ok(false) };
        let agent = self.clone();
        let cleaned = off_thread("bb.clean", move || {
            let _alone = alone;
            agent.places(&agent.config.state).keep_only(&BTreeSet::from_iter(kept))
        });
        match cleaned.await {
            Ok(()) => {
                let first = !self.clean.is_set();
                self.cleaned.store(answer.number, Ordering::Release);
                self.clean.set();
                return Ok(first);
            }
            // The node tries again with the next registration, which says that it lives all the same.
            Err(fault) => {
                tracing::warn!(code = %fault.code, "a mount that no living buffer has stays: {fault}")
            }
        }
        Ok(false)
    }

    fn places(&self, state: &Path) -> Places<'_> {
        Places {
            program: &self.host.program,
            node: &self.node,
            root: self.config.mount_root.clone(),
            logs: state.join("logs"),
            identity: Some(self.identity.path()),
        }
    }

    /// The lock of a buffer: orders for one are carried out one after the other.
    pub(super) fn lock_of(&self, serial: u64) -> Arc<Mutex<()>> {
        let mut buffers = self.buffers.lock();
        buffers.retain(|_, lock| Arc::strong_count(lock) > 1);
        buffers.entry(serial).or_default().clone()
    }

    /// Carries an order out, behind others for the same buffer.
    fn carry_out(&self, order: &NodeOrderReq) -> Result<NodeOrderResp> {
        let lock = self.lock_of(order.serial);
        // The orchestrator asks again; orders that wait would delay the look for surplus mounts.
        let _buffer = lock.try_lock_for(ORDER_WAIT).ok_or_else(|| busy("the buffer of job", &order.job))?;
        self.revisions.lock().admit(order.serial, order.revision)?;
        tracing::info!(job = order.job, serial = order.serial, order = ?order.order, "ordered");
        let places = self.places(&self.config.state);
        let lost = places.carry_out(&order.job, &order.order)?;
        if let NodeOrder::Unmount { names, .. } = &order.order {
            places.drop_logs(&order.job, names);
        }
        Ok(NodeOrderResp { lost })
    }
}

impl Agent {
    /// Directory of the parts of buffers.
    fn slices_dir(&self) -> PathBuf {
        self.config.state.join(SLICES)
    }

    /// Serial numbers of the buffers that this host serves a part of.
    fn parts(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(self.slices_dir()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn part<'a>(&'a self, serial: u64, store: &'a str) -> Part<'a> {
        Part {
            host: &self.host,
            serial,
            dir: self.slices_dir().join(serial.to_string()),
            store,
            identity: Some(self.identity.path()),
            is_remote: true,
        }
    }

    /// Carries an order about bricks out, behind others for the same buffer.
    fn carry_out_slices(&self, order: &NodeSlicesReq) -> Result<NodeSlicesResp> {
        if matches!(order.order, SliceOrder::Claim { .. } | SliceOrder::Serve(_)) {
            self.refuse_without_role()?;
        }
        let busy = || busy("buffer", &order.serial.to_string());
        // A brick that is added may hold parts of any buffer, from a time when it was taken for lost.
        let serials = match &order.order {
            SliceOrder::Claim { .. } => self.parts(),
            _ => vec![order.serial],
        };
        let locks: Vec<_> = serials.into_iter().map(|serial| self.lock_of(serial)).collect();
        let held = locks.iter().map(|lock| lock.try_lock_for(ORDER_WAIT).ok_or_else(busy));
        let _buffers = held.collect::<Result<Vec<_>>>()?;
        if order.serial != 0 {
            self.revisions.lock().admit(order.serial, order.revision)?;
        }
        match &order.order {
            // Four times a second for each buffer that grows by itself.
            SliceOrder::Free(_) => tracing::debug!(serial = order.serial, "asked how much is free"),
            other => tracing::info!(serial = order.serial, order = ?other, "ordered"),
        }
        self.part(order.serial, &order.store).carry_out(&order.order)
    }

    /// Mounts, and servers on other hosts, believe the targets of hosts that are servers.
    fn refuse_without_role(&self) -> Result<()> {
        let current = self.identity.current()?;
        let roles = &current.identity().name().roles;
        if roles.has(HostRole::Server) {
            return Ok(());
        }
        Err(Fault::new(Code::NotForCaller)
            .what("cannot have a brick: host")
            .subject(self.node.clone())
            .why(format!("it has joined as {roles}, not as server: nobody would believe its targets"))
            .data("nothing was changed")
            .next("let it join again: brindle cluster token --role server,client, brindle join --again"))
    }

    /// Starts the targets again that this host is to serve and that do not run: it may have booted, or a process was killed.
    fn look_after_slices(self: &Arc<Self>) {
        let parts = self.parts();
        if parts.is_empty() || self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let agent = self.clone();
        let look = move || {
            for serial in parts {
                if let Err(fault) = agent.start_again(serial) {
                    tracing::warn!(code = %fault.code, serial, "targets of a buffer do not run: {fault}");
                }
            }
            agent.looking.store(false, Ordering::Release);
        };
        if let Err(e) = std::thread::Builder::new().name("bb.slices".to_owned()).spawn(look) {
            self.looking.store(false, Ordering::Release);
            tracing::warn!(error = %e, "cannot look after the slices of this host");
        }
    }

    fn start_again(&self, serial: u64) -> Result<()> {
        let lock = self.lock_of(serial);
        // The thread that carries out an order for the buffer also does this work.
        let Some(_buffer) = lock.try_lock() else { return Ok(()) };
        let part = self.part(serial, "");
        let cluster = match Cluster::load(&part.dir) {
            Err(fault) if fault.code == Code::NoSuchCluster => return Ok(()),
            loaded => loaded?,
        };
        // A target that never ran is one that an order was about to make.
        if cluster.servers.iter().all(|server| server.run.is_none() || alive(server.run.as_ref())) {
            return Ok(());
        }
        tracing::warn!(serial, "targets of a buffer do not run, and are started again");
        reap(&cluster);
        part.on(|on| on.serve_again())
    }
}

pub(super) fn busy(what: &'static str, subject: &str) -> Fault {
    Fault::new(Code::NodeAway)
        .what(format!("cannot begin an order for {what}"))
        .subject(subject.to_owned())
        .why(format!("an earlier one has not ended within {} s", ORDER_WAIT.as_secs()))
        .data("nothing was changed")
        .next("look at the log of the agent of this node")
}

/// Remembers whose orders an agent carries out, by the identity of the orchestrator's state. A second orchestrator, perhaps with an empty
/// directory, does not know what is mounted here. The agent refuses its orders as long as anything is mounted.
fn know(path: &Path, store: &str, holds_mounts: bool) -> Result<()> {
    let shown = path.display().to_string();
    let known = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Fault::io(Code::NotWritable, "cannot read", shown, &e)),
    };
    if known.as_deref().map(str::trim) == Some(store) {
        return Ok(());
    }
    if known.is_some() && holds_mounts {
        return Err(Fault::new(Code::StaleOrder)
            .what("will not obey the orchestrator:")
            .subject("its state is another one than that by which the mounts of this node were made")
            .why("its directory is perhaps a disk that is not mounted, or it runs on another host than before")
            .data("nothing was unmounted")
            .next(format!(
                "start the orchestrator with its own directory; or, if that is lost and the jobs here may lose their buffers: rm {shown} on this node"
            )));
    }
    write_whole(path, store, KNOWN_MODE).map_err(|e| Fault::io(Code::NotWritable, "cannot write", shown, &e))
}

/// Takes orders.
struct Orders(Arc<Agent>);

impl NotifyHandler for Orders {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        let agent = self.0.clone();
        Box::pin(async move {
            let header = frame.header.clone();
            let outcome = match Op::from_number(header.op) {
                Some(Op::NodeSlices) => {
                    agent.ordered_slices(frame).await.map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                // Questions about the log are answered to any orchestrator of the cluster: who looks for a fault needs them.
                Some(Op::NodeLogLines) => {
                    log_lines_of(&frame).map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                Some(Op::NodeLogLevel) => {
                    log_level_of(&frame).map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                Some(Op::NodeStage) => {
                    agent.ordered_stage(frame).await.map(|answer| encode_body(&Ok::<_, Fault>(answer)))
                }
                _ => agent.ordered(frame).await.map(|answer| encode_body(&Ok::<_, Fault>(answer))),
            };
            match outcome {
                Ok(body) => Frame::reply_to(&header, body),
                Err(fault) => {
                    tracing::warn!(code = %fault.code, "an order was refused or has failed: {fault}");
                    Frame::fault_reply_to(&header, &fault)
                }
            }
        })
    }
}

impl Agent {
    async fn ordered_slices(self: Arc<Self>, frame: Frame) -> Result<NodeSlicesResp> {
        if let Some(stranger) = self.stranger.lock().clone() {
            return Err(stranger);
        }
        let order: NodeSlicesReq = decode_body(&frame.body)?;
        off_thread("bb.slices", move || self.carry_out_slices(&order)).await
    }

    async fn ordered(self: Arc<Self>, frame: Frame) -> Result<NodeOrderResp> {
        if Op::from_number(frame.header.op) != Some(Op::NodeOrder) {
            return Err(Fault::new(Code::UnknownOp).why(format!("notice {}", frame.header.op)));
        }
        if let Some(stranger) = self.stranger.lock().clone() {
            return Err(stranger);
        }
        let order: NodeOrderReq = decode_body(&frame.body)?;
        // No mount is made beside mounts that should not be there. A mount of a living buffer is ended all the same.
        if matches!(order.order, NodeOrder::Mount { .. }) {
            let cleaned = self.seams.timeout_ms(CLEAN_WAIT_MS, self.clean.wait()).await;
            cleaned.ok_or_else(|| {
                Fault::new(Code::NodeAway)
                    .what("will not mount on node")
                    .subject(self.node.clone())
                    .why("something is mounted there that no living buffer has, and cannot be unmounted")
                    .data("nothing was changed")
                    .next("the log of its agent says what")
            })?;
        }
        let busy = self.orders.clone().read_owned().await;
        off_thread("bb.order", move || {
            let _busy = busy;
            self.carry_out(&order)
        })
        .await
    }
}

/// Lines of the log of this agent.
fn log_lines_of(frame: &Frame) -> Result<LogLinesResp> {
    let NodeLogLinesReq(request) = decode_body(&frame.body)?;
    log_lines::handle(&request)
}

/// Level of the log of this agent.
fn log_level_of(frame: &Frame) -> Result<LogLevelResp> {
    let NodeLogLevelReq(request) = decode_body(&frame.body)?;
    log_level::change("root of the orchestrator's host", "", &request)
}

/// Does work that waits for processes and for the kernel, on a thread of its own.
pub(super) async fn off_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let run = move || {
        // When the connection has ended nobody waits for the answer; the order is carried out all the same.
        let _ = tell.send(work());
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|e| Fault::io(Code::ProcessFailed, "cannot start", "a thread", &e))?;
    told.await.unwrap_or_else(|_| Err(Fault::new(Code::Bug).what("an order panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_orchestrator_is_obeyed_only_where_nothing_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KNOWN);
        // An agent of the release before has mounts, and knows nobody.
        know(&path, "a", true).unwrap();
        know(&path, "a", true).unwrap();
        for _ in 0..2 {
            assert_eq!(know(&path, "b", true).unwrap_err().code, Code::StaleOrder);
        }
        know(&path, "a", true).unwrap();
        know(&path, "b", false).unwrap();
        assert_eq!(know(&path, "a", true).unwrap_err().code, Code::StaleOrder);
        // The word of an administrator.
        std::fs::remove_file(&path).unwrap();
        know(&path, "a", true).unwrap();
    }
}
