//! The agent of a compute node: carries out the orders of the orchestrator.
//!
//! It connects to the orchestrator, registers, and takes orders over that connection; nothing listens on the node. When it starts, and every few
//! seconds while anything is mounted, it asks what living buffers may have mounted here, and unmounts everything else. So a node that boots, or whose
//! job has died while its agent was away, comes back clean. Mounts outlive the agent.
//!
//! Orders for one buffer are carried out one after the other, those for others beside them; none while the agent looks for what is surplus, because
//! the orchestrator's answer would be older than what an order has just mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use brindle_auth::Mode;
use brindle_net::latch::Latch;
use brindle_net::{NotifyHandler, Peer, PeerConfig, TcpTransport};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Nid, Result};
use brindle_wire::Op;
use brindle_wire::bb::{NodeOrderReq, NodeOrderResp, NodeRegisterReq, NodeRegisterResp};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::version::PeerKind;
use parking_lot::Mutex;
use tokio::sync::{RwLock, oneshot};

use super::Places;
use super::revisions::Revisions;
use crate::access;
use crate::identity::{IdentityFile, Process, security};
use crate::target_dir::DirLock;

/// Time between two registrations.
const REGISTER_EVERY_MS: u64 = 4_000;
/// Pause after one that failed.
const PAUSE_MS: u64 = 1_000;
/// How long the orchestrator may take to answer one.
const ANSWER_LIMIT_MS: u64 = 12_000;

/// Places of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the orchestrator listens.
    pub orchestrator: Nid,
    /// Directory of its state and of the logs of mounts.
    pub state: PathBuf,
    /// Where jobs find their buffers. Nothing else is mounted directly below it.
    pub mount_root: PathBuf,
}

/// The agent.
pub struct Agent {
    seams: Seams,
    config: Config,
    program: PathBuf,
    identity: Arc<IdentityFile>,
    node: String,
    revisions: Mutex<Revisions>,
    buffers: Mutex<BTreeMap<u64, Arc<Mutex<()>>>>,
    /// Held for reading while an order is carried out, for writing while the agent looks for what is surplus.
    orders: Arc<RwLock<()>>,
    /// Set once everything surplus has been unmounted after the start.
    clean: Latch,
    _state: DirLock,
}

impl Agent {
    /// The agent of this host.
    pub fn new(seams: Seams, identity: Arc<IdentityFile>, config: Config) -> Result<Arc<Agent>> {
        let program = std::env::current_exe()
            .map_err(|e| Fault::io(Code::ProcessFailed, "cannot find", "this program", &e))?;
        super::make_dir(&config.state.join("logs"))?;
        super::make_dir(&config.mount_root)?;
        let lock = DirLock::wait(&config.state, "another agent of burst buffers", |who| {
            tracing::warn!(%who, "another agent has the directory, and is waited for");
        })?;
        let revisions = Mutex::new(Revisions::open(&config.state.join("revisions.json"))?);
        Ok(Arc::new(Agent {
            seams,
            program,
            node: identity.host()?,
            identity,
            revisions,
            buffers: Mutex::default(),
            orders: Arc::default(),
            clean: Latch::default(),
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
        removed.replace(access::on_file(self.identity.path()));
        let transport = Arc::new(TcpTransport::new(self.seams.clone()).over_tcp_only().secured(security));
        access::follow_cluster(&self.seams, &self.identity, transport.clone(), Some(removed))?;
        let config = PeerConfig::new(0, PeerKind::Agent, self.node.clone());
        let nids = vec![self.config.orchestrator.clone()];
        let peer = Peer::new(transport, self.seams.clone(), nids, config, Arc::new(Orders(self.clone())));
        let (start, mut ready, mut said) = (self.seams.rng.next_u64(), Some(ready), String::new());
        loop {
            let pause_ms = match self.attend(&peer, start).await {
                Ok(()) => {
                    ready.take().into_iter().for_each(|ready| ready());
                    said.clear();
                    REGISTER_EVERY_MS
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

    /// Registers once; unmounts what is surplus, where nobody is mounting.
    async fn attend(self: &Arc<Self>, peer: &Peer, start: u64) -> Result<()> {
        let holds = !self.clean.is_set() || self.places(&self.config.state).holds_something();
        let alone = if holds { self.orders.clone().try_write_owned().ok() } else { None };
        let request = NodeRegisterReq {
            start,
            mount_root: crate::text(&self.config.mount_root)?,
            wants_kept: alone.is_some(),
        };
        let header = Header { op: Op::NodeRegister as u16, ..Header::default() };
        let asked = peer.call(Frame::new(header, encode_body(&request)));
        let Some(reply) = self.seams.timeout_ms(ANSWER_LIMIT_MS, asked).await else {
            let fault = Fault::new(Code::NoOrchestrator).subject(self.config.orchestrator.to_string());
            return Err(peer.state().last_error.map_or(fault.clone(), |last| fault.why(super::short(&last))));
        };
        let answer: NodeRegisterResp = decode_reply(&reply?)?;
        let (Some(alone), Some(kept)) = (alone, answer.kept) else { return Ok(()) };
        let agent = self.clone();
        let cleaned = off_thread("bb.clean", move || {
            let _alone = alone;
            agent.places(&agent.config.state).keep_only(&BTreeSet::from_iter(kept))
        });
        match cleaned.await {
            Ok(()) => self.clean.set(),
            // It is tried again with the next registration, which says that the node lives all the same.
            Err(fault) => {
                tracing::warn!(code = %fault.code, "a mount that no living buffer has stays: {fault}")
            }
        }
        Ok(())
    }

    fn places(&self, state: &std::path::Path) -> Places<'_> {
        Places {
            program: &self.program,
            node: &self.node,
            root: self.config.mount_root.clone(),
            logs: state.join("logs"),
            identity: Some(self.identity.path()),
        }
    }

    /// Carries an order out, behind others for the same buffer.
    fn carry_out(&self, order: &NodeOrderReq) -> Result<()> {
        let lock = {
            let mut buffers = self.buffers.lock();
            buffers.retain(|_, lock| Arc::strong_count(lock) > 1);
            buffers.entry(order.serial).or_default().clone()
        };
        let _buffer = lock.lock();
        self.revisions.lock().admit(order.serial, order.revision)?;
        tracing::info!(job = order.job, serial = order.serial, order = ?order.order, "ordered");
        self.places(&self.config.state).carry_out(&order.job, &order.order)
    }
}

/// Takes orders.
struct Orders(Arc<Agent>);

impl NotifyHandler for Orders {
    fn notify(self: Arc<Self>, frame: Frame) -> BoxFuture<'static, Frame> {
        let agent = self.0.clone();
        Box::pin(async move {
            let header = frame.header.clone();
            match agent.ordered(frame).await {
                Ok(answer) => Frame::reply_to(&header, encode_body(&Ok::<_, Fault>(answer))),
                Err(fault) => {
                    tracing::warn!(code = %fault.code, "an order was refused or has failed: {fault}");
                    Frame::fault_reply_to(&header, &fault)
                }
            }
        })
    }
}

impl Agent {
    async fn ordered(self: Arc<Self>, frame: Frame) -> Result<NodeOrderResp> {
        if Op::from_number(frame.header.op) != Some(Op::NodeOrder) {
            return Err(Fault::new(Code::UnknownOp).why(format!("notice {}", frame.header.op)));
        }
        let order: NodeOrderReq = decode_body(&frame.body)?;
        // An order that comes early waits; whoever sent it does not wait for ever.
        self.clean.wait().await;
        let busy = self.orders.clone().read_owned().await;
        off_thread("bb.order", move || {
            let _busy = busy;
            self.carry_out(&order)
        })
        .await?;
        Ok(NodeOrderResp {})
    }
}

/// Does work that waits for processes and for the kernel, on a thread of its own.
async fn off_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = oneshot::channel();
    let run = move || {
        // Nobody waits any more when the connection has ended; what was ordered is done all the same.
        let _ = tell.send(work());
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|e| Fault::io(Code::ProcessFailed, "cannot start", "a thread", &e))?;
    told.await.unwrap_or_else(|_| Err(Fault::new(Code::Bug).what("an order panicked")))
}
