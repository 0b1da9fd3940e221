//! The simulated network: frames in order over connections, with latency, partitions and breaks.
//!
//! A connection is two [`Pipe`]s. A frame in a pipe is on its way (`flight`) until its time has come and the way is
//! not cut, then it waits to be read (`inbox`). Frames of one connection never overtake each other, and nothing
//! arrives on a connection after it was closed; frames of different connections overtake each other at will.
//! Duplicates exist only as requests that a session layer sends again over another connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use brindle_net::{Connection, NetError};
use brindle_types::Nid;
use brindle_wire::frame::Frame;

use brindle_sim::Group;

use super::world::Shared;

mod ends;
mod faults;

pub(super) use ends::SimTransport;

/// Bytes that may be on their way or unread in one direction before the sender waits.
const WINDOW_BYTES: usize = 4 << 20;
/// Bytes per nanosecond on the simulated wire (1 GiB/s is about one).
const BYTES_PER_NS: u64 = 1;
/// Connections that may wait to be accepted.
const BACKLOG_MAX: usize = 256;
/// First port given out for port 0.
const FIRST_FREE_PORT: u16 = 20_000;

/// Travel times of frames.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Shortest time in microseconds.
    pub latency_min_us: u64,
    /// Longest ordinary time in microseconds.
    pub latency_max_us: u64,
    /// A frame in so many is slow; 0 for none.
    pub slow_one_in: u64,
    /// Longest time of a slow frame in microseconds.
    pub slow_max_us: u64,
}

impl Default for NetConfig {
    fn default() -> NetConfig {
        NetConfig { latency_min_us: 20, latency_max_us: 200, slow_one_in: 100, slow_max_us: 20_000 }
    }
}

/// Directions between two nodes that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Either direction between the two nodes.
    Both,
    /// Only from the first node to the second.
    OneWay,
}

/// State of the whole network.
#[derive(Default)]
pub(super) struct Net {
    config: NetConfig,
    listeners: BTreeMap<(String, u16), Acceptor>,
    conns: BTreeMap<u64, Conn>,
    next_conn: u64,
    /// Ways that are cut, with the number of the cut.
    cuts: BTreeMap<(String, String), u64>,
    next_cut: u64,
    /// Nodes without power.
    dark: BTreeSet<String>,
}

struct Acceptor {
    group: Arc<Group>,
    waiting: VecDeque<Connection>,
    waker: Option<Waker>,
}

/// A connection; end 0 made it, end 1 accepted it.
struct Conn {
    nodes: [String; 2],
    /// `pipes[e]` carries what end `e` sends.
    pipes: [Pipe; 2],
    /// Ends whose host lost power: dropping them tells nobody.
    silent: [bool; 2],
}

#[derive(Default)]
struct Pipe {
    flight: VecDeque<(u64, Parcel)>,
    inbox: VecDeque<Frame>,
    bytes: usize,
    /// Reason why no more frames will come, once the inbox is empty.
    ended: Option<NetError>,
    /// The sending end can send no more.
    send_closed: bool,
    tx_gone: bool,
    rx_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Parcel {
    Frame(Frame),
    /// The sender has closed.
    Fin,
    /// The connection has broken.
    Reset,
}

impl Pipe {
    /// Takes the wakers of both ends, to be woken without the lock.
    fn wakers(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.reader.take().into_iter().chain(self.writer.take())
    }
}

impl Conn {
    fn all_wakers(&mut self) -> Vec<Waker> {
        self.pipes.iter_mut().flat_map(Pipe::wakers).collect()
    }

    /// Breaks it as end `end` sees it: after what has arrived comes nothing more, and it can send nothing more.
    fn reset_at(&mut self, end: usize) {
        let incoming = &mut self.pipes[1 - end];
        incoming.ended.get_or_insert(NetError::Io("connection reset by peer".to_owned()));
        self.pipes[end].send_closed = true;
    }

    fn over(&self) -> bool {
        self.pipes.iter().all(|p| p.tx_gone && p.rx_gone)
    }
}

fn frame_bytes(frame: &Frame) -> usize {
    frame.wire_len()
}

impl Net {
    fn is_cut(&self, from: &str, to: &str) -> bool {
        !self.cuts.is_empty() && self.cuts.contains_key(&(from.to_owned(), to.to_owned()))
    }

    /// Whether `to` hears nothing from `from`, and gets no answer that says so.
    fn is_silent(&self, from: &str, to: &str) -> bool {
        self.is_cut(from, to) || self.dark.contains(to) || self.dark.contains(from)
    }

    fn forget_if_over(&mut self, id: u64) -> Option<Conn> {
        if self.conns.get(&id).is_some_and(Conn::over) { self.conns.remove(&id) } else { None }
    }
}

impl Shared {
    /// Arrival time of a message of `bytes` that leaves now, if nothing is in its way.
    fn arrival_ns(&self, config: &NetConfig, bytes: usize) -> u64 {
        let slow = self.sim.rng().one_in(config.slow_one_in);
        let longest_us = if slow { config.slow_max_us } else { config.latency_max_us };
        let travel_ns = self.sim.rng().between(config.latency_min_us * 1_000, longest_us * 1_000);
        self.sim.now_ns() + travel_ns + bytes as u64 / BYTES_PER_NS
    }

    /// Puts a parcel on its way from end `end` of a connection, behind all that is there already.
    fn post(self: &Arc<Self>, net: &mut Net, id: u64, end: usize, parcel: Parcel) {
        let Some(conn) = net.conns.get_mut(&id) else { return };
        let bytes = match &parcel {
            Parcel::Frame(frame) => frame_bytes(frame),
            Parcel::Fin | Parcel::Reset => 0,
        };
        let pipe = &mut conn.pipes[end];
        let behind_ns = pipe.flight.back().map_or(0, |(at, _)| *at);
        let at_ns = self.arrival_ns(&net.config, bytes).max(behind_ns);
        pipe.bytes += bytes;
        pipe.flight.push_back((at_ns, parcel));
        self.act_at(at_ns, move |shared| shared.arrive(id, end));
    }

    /// Delivers the due frames in the pipe of end `end`, as far as the way is open.
    fn arrive(self: &Arc<Self>, id: u64, end: usize) {
        let now_ns = self.sim.now_ns();
        let mut net = self.net.lock();
        let mut wakers = Vec::new();
        let mut dropped = Vec::new();
        while let Some(conn) = net.conns.get(&id) {
            let (from, to) = (&conn.nodes[end], &conn.nodes[1 - end]);
            let due = conn.pipes[end].flight.front().is_some_and(|(at, _)| *at <= now_ns);
            if !due || net.is_cut(from, to) {
                break;
            }
            let dark = net.dark.contains(to);
            let Some(conn) = net.conns.get_mut(&id) else { break };
            let Some((_, parcel)) = conn.pipes[end].flight.pop_front() else { break };
            if dark {
                dropped.push(parcel);
                continue;
            }
            let unwanted = self.deliver(conn, id, end, parcel);
            wakers.extend(conn.pipes[end].wakers());
            wakers.extend(conn.pipes[1 - end].wakers());
            if unwanted {
                // The host is there and the connection is not: it says so.
                self.post(&mut net, id, 1 - end, Parcel::Reset);
            }
        }
        dropped.extend(
            net.forget_if_over(id)
                .into_iter()
                .flat_map(|conn| conn.pipes.into_iter().flat_map(|p| p.flight).map(|(_, parcel)| parcel)),
        );
        drop(net);
        drop(dropped);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Hands a parcel to the receiving end; true when it does not exist any more.
    fn deliver(&self, conn: &mut Conn, id: u64, end: usize, parcel: Parcel) -> bool {
        let gone = conn.pipes[end].rx_gone;
        match parcel {
            Parcel::Frame(frame) if gone || conn.pipes[end].ended.is_some() => {
                conn.pipes[end].bytes -= frame_bytes(&frame);
                return gone;
            }
            Parcel::Frame(frame) => {
                let h = &frame.header;
                let mut trace = self.sim.trace();
                let sums = [u64::from(h.body_crc), u64::from(h.bulk_crc)];
                trace.event("frame", &[id, end as u64, h.kind as u64, h.op.into(), h.xid, sums[0], sums[1]]);
                trace.count("frames");
                trace.line(|| {
                    let (from, to) = (&conn.nodes[end], &conn.nodes[1 - end]);
                    let (kind, op, slot, seq) = (h.kind, h.op, h.slot, h.sequence);
                    let (now_ns, xid, bulk) = (self.sim.now_ns(), h.xid, h.bulk_len);
                    format!("{now_ns:>15} {from} -> {to} #{id} {kind:?} op {op} xid {xid} slot {slot}.{seq} bulk {bulk}")
                });
                drop(trace);
                conn.pipes[end].inbox.push_back(frame);
            }
            Parcel::Fin => {
                conn.pipes[end].ended.get_or_insert(NetError::Closed);
            }
            Parcel::Reset => conn.reset_at(1 - end),
        }
        false
    }

    /// Polls for the next frame at the receiving end of pipe `end`.
    fn poll_recv(&self, id: u64, end: usize, cx: &mut Context<'_>) -> Poll<Result<Frame, NetError>> {
        let mut net = self.net.lock();
        let Some(conn) = net.conns.get_mut(&id) else { return Poll::Ready(Err(NetError::Closed)) };
        let pipe = &mut conn.pipes[end];
        if let Some(frame) = pipe.inbox.pop_front() {
            pipe.bytes -= frame_bytes(&frame);
            let writer = pipe.writer.take();
            drop(net);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(checked(frame));
        }
        if let Some(why) = &pipe.ended {
            return Poll::Ready(Err(why.clone()));
        }
        let old = pipe.reader.replace(cx.waker().clone());
        drop(net);
        drop(old);
        Poll::Pending
    }

    /// Polls for room in the window of pipe `end`.
    fn poll_room(&self, id: u64, end: usize, cx: &mut Context<'_>) -> Poll<Result<(), NetError>> {
        let mut net = self.net.lock();
        let Some(conn) = net.conns.get_mut(&id) else { return Poll::Ready(Err(NetError::Closed)) };
        let pipe = &mut conn.pipes[end];
        if pipe.send_closed {
            return Poll::Ready(Err(NetError::Closed));
        }
        if pipe.bytes < WINDOW_BYTES {
            return Poll::Ready(Ok(()));
        }
        let old = pipe.writer.replace(cx.waker().clone());
        drop(net);
        drop(old);
        Poll::Pending
    }
}

/// Checks a frame as the receiver of real bytes would.
fn checked(mut frame: Frame) -> Result<Frame, NetError> {
    if let Err(fault) = frame.verify() {
        return Err(NetError::bad_with(fault, frame.header));
    }
    let bulk = frame.bulk_bytes();
    frame.bulk = if bulk.is_empty() { Vec::new() } else { vec![bulk] };
    Ok(frame)
}

/// Address of a node's end, for messages.
fn end_nid(node: &str, id: u64) -> Nid {
    Nid { host: node.to_owned(), port: (40_000 + id % 20_000) as u16, rail: 0 }
}
