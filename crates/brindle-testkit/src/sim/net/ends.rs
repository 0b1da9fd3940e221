//! [`Transport`] of one incarnation of a node, and the two halves of its connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use brindle_net::{Caller, Connection, FrameRx, FrameTx, Listener, NetError, RemovedKeys, Transport};
use brindle_sim::rng::{mix, mix_text};
use brindle_sim::{Group, Sleep};
use brindle_stdx::BoxFuture;
use brindle_types::Nid;
use brindle_wire::earlier::{Protocols, trial};
use brindle_wire::frame::{Frame, Header};

use super::{Acceptor, BACKLOG_MAX, Conn, FIRST_FREE_PORT, Net, Parcel, Pipe, end_nid};
use crate::sim::world::Shared;

/// Attempts that one `connect` makes, a second apart, before it gives up.
const CONNECT_ATTEMPTS: usize = 3;
const RETRY_NS: u64 = 1_000_000_000;
/// In one world of so many, some nodes speak the earlier version of the protocol only.
const MIXED_EVERY: u64 = 4;
/// Purposes of numbers that follow from the seed.
const MIXED: u64 = 5;
const EARLIER: u64 = 6;

/// The network as one incarnation of a node sees it. Host names are node names.
pub(in crate::sim) struct SimTransport {
    pub shared: Arc<Shared>,
    pub group: Arc<Group>,
}

/// Addresses that mean "this node".
fn resolve<'a>(host: &'a str, own: &'a str) -> &'a str {
    if matches!(host, "127.0.0.1" | "localhost" | "0.0.0.0" | "::" | "::1") { own } else { host }
}

impl Transport for SimTransport {
    fn connect(&self, nid: &Nid) -> BoxFuture<'static, Result<Connection, NetError>> {
        let (shared, group, nid) = (self.shared.clone(), self.group.clone(), nid.clone());
        Box::pin(async move {
            for _ in 0..CONNECT_ATTEMPTS {
                travel(&shared).await;
                if let Some(outcome) = shared.try_connect(&group, &nid) {
                    travel(&shared).await;
                    return outcome;
                }
                Sleep::new(shared.sim.clone(), shared.sim.now_ns() + RETRY_NS).await;
            }
            Err(NetError::TimedOut)
        })
    }

    fn removed_keys(&self) -> Option<Arc<RemovedKeys>> {
        Some(self.shared.hosts.clone())
    }

    fn protocols(&self) -> Protocols {
        let seed = self.shared.sim.seed();
        if !mix(seed, MIXED).is_multiple_of(MIXED_EVERY) {
            return Protocols::OURS;
        }
        trial::protocols(mix_text(mix(seed, EARLIER), self.group.node()).is_multiple_of(2))
    }

    fn listen(&self, nid: &Nid) -> BoxFuture<'static, Result<Box<dyn Listener>, NetError>> {
        let listening = self.shared.listen(&self.group, nid);
        Box::pin(async move { listening.map(|l| Box::new(l) as Box<dyn Listener>) })
    }
}

/// Waits as long as one message takes.
async fn travel(shared: &Arc<Shared>) {
    let config = shared.net.lock().config.clone();
    Sleep::new(shared.sim.clone(), shared.arrival_ns(&config, 0)).await;
}

impl Shared {
    /// An attempt; `None` when nothing answers.
    fn try_connect(self: &Arc<Self>, group: &Arc<Group>, nid: &Nid) -> Option<Result<Connection, NetError>> {
        let own = group.node().to_owned();
        let host = resolve(&nid.host, &own).to_owned();
        let known = self.nodes.lock().contains_key(&host);
        let mut net = self.net.lock();
        if !known || net.is_silent(&own, &host) || net.is_cut(&host, &own) {
            return None;
        }
        let key = (host.clone(), nid.port);
        if net.listeners.get(&key).is_none_or(|l| !l.group.is_alive() || l.waiting.len() >= BACKLOG_MAX) {
            return Some(Err(NetError::Refused));
        }
        let id = net.next_conn;
        net.next_conn += 1;
        net.conns.insert(
            id,
            Conn { nodes: [own.clone(), host.clone()], pipes: Default::default(), silent: [false; 2] },
        );
        let connection = |end: usize, peer: Nid| Connection {
            peer,
            caller: Caller::Known,
            tx: Box::new(SimTx { shared: self.clone(), id, end }),
            rx: Box::new(SimRx { shared: self.clone(), id, end: 1 - end }),
            delivery: None,
        };
        let acceptor = net.listeners.get_mut(&key)?;
        acceptor.waiting.push_back(connection(1, end_nid(&own, id)));
        let waker = acceptor.waker.take();
        drop(net);
        waker.into_iter().for_each(std::task::Waker::wake);
        Some(Ok(connection(0, nid.clone())))
    }

    fn listen(self: &Arc<Self>, group: &Arc<Group>, nid: &Nid) -> Result<SimListener, NetError> {
        if !group.is_alive() {
            return Err(NetError::Closed);
        }
        if resolve(&nid.host, group.node()) != group.node() {
            return Err(NetError::Io(format!("{} is not an address of {}", nid.host, group.node())));
        }
        let mut net = self.net.lock();
        let port = if nid.port == 0 { free_port(&net, group.node()) } else { nid.port };
        let key = (group.node().to_owned(), port);
        if net.listeners.get(&key).is_some_and(|l| l.group.is_alive()) {
            return Err(NetError::AddressInUse);
        }
        let acceptor = Acceptor { group: group.clone(), waiting: VecDeque::new(), waker: None };
        let old = net.listeners.insert(key.clone(), acceptor);
        drop(net);
        drop(old);
        let nid = Nid { host: group.node().to_owned(), port, rail: nid.rail };
        Ok(SimListener { shared: self.clone(), group: group.clone(), key, nid })
    }
}

fn free_port(net: &Net, node: &str) -> u16 {
    let taken = |port: &u16| net.listeners.contains_key(&(node.to_owned(), *port));
    (FIRST_FREE_PORT..u16::MAX).find(|port| !taken(port)).expect("a simulated node has few listeners")
}

struct SimListener {
    shared: Arc<Shared>,
    group: Arc<Group>,
    key: (String, u16),
    nid: Nid,
}

impl Listener for SimListener {
    fn local_nid(&self) -> Nid {
        self.nid.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Connection, NetError>> {
        Box::pin(std::future::poll_fn(|cx| {
            let mut net = self.shared.net.lock();
            let Some(acceptor) = net.listeners.get_mut(&self.key) else {
                return Poll::Ready(Err(NetError::Closed));
            };
            if let Some(connection) = acceptor.waiting.pop_front() {
                return Poll::Ready(Ok(connection));
            }
            let old = acceptor.waker.replace(cx.waker().clone());
            drop(net);
            drop(old);
            Poll::Pending
        }))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut net = self.shared.net.lock();
        let mine = net.listeners.get(&self.key).is_some_and(|l| Arc::ptr_eq(&l.group, &self.group));
        let old = if mine { net.listeners.remove(&self.key) } else { None };
        drop(net);
        drop(old);
    }
}

/// The sending half of end `end`.
struct SimTx {
    shared: Arc<Shared>,
    id: u64,
    end: usize,
}

impl FrameTx for SimTx {
    fn send(&mut self, frames: Vec<Frame>) -> BoxFuture<'_, Result<(), NetError>> {
        Box::pin(async move {
            for mut frame in frames {
                std::future::poll_fn(|cx| self.shared.poll_room(self.id, self.end, cx)).await?;
                // Through its bytes, so that what a real wire refuses is refused here.
                frame.header = Header::decode(&frame.header.encode()).map_err(NetError::bad)?;
                let mut net = self.shared.net.lock();
                self.shared.post(&mut net, self.id, self.end, Parcel::Frame(frame));
            }
            Ok(())
        })
    }
}

impl Drop for SimTx {
    fn drop(&mut self) {
        let mut net = self.shared.net.lock();
        let Some(conn) = net.conns.get_mut(&self.id) else { return };
        conn.pipes[self.end].tx_gone = true;
        let says_so = !conn.silent[self.end] && !conn.pipes[self.end].send_closed;
        if says_so {
            self.shared.post(&mut net, self.id, self.end, Parcel::Fin);
        }
        let over = net.forget_if_over(self.id);
        drop(net);
        drop(over);
    }
}

/// The receiving half of pipe `end` (which the other end sends into).
struct SimRx {
    shared: Arc<Shared>,
    id: u64,
    end: usize,
}

impl FrameRx for SimRx {
    fn recv(&mut self) -> BoxFuture<'_, Result<Frame, NetError>> {
        Box::pin(std::future::poll_fn(|cx| self.shared.poll_recv(self.id, self.end, cx)))
    }
}

impl Drop for SimRx {
    fn drop(&mut self) {
        let mut net = self.shared.net.lock();
        let Some(conn) = net.conns.get_mut(&self.id) else { return };
        let pipe: &mut Pipe = &mut conn.pipes[self.end];
        pipe.rx_gone = true;
        let unread: usize = pipe.inbox.iter().map(super::frame_bytes).sum();
        pipe.bytes -= unread;
        let unread = std::mem::take(&mut pipe.inbox);
        let wakers = conn.all_wakers();
        let over = net.forget_if_over(self.id);
        drop(net);
        drop((unread, over));
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}
