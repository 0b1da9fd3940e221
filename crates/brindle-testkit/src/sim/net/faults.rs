//! Faults of the network: breaks, partitions, hosts that die.

use std::sync::Arc;
use std::task::Waker;

use super::{Direction, NetConfig, Parcel};
use crate::sim::world::Shared;

/// A connection over a cut way, or to a host without power, is given up after this: what TCP's keepalive and user
/// timeout do for real ones.
const GIVE_UP_NS: u64 = 12_000_000_000;
/// Ends of one connection give up at times that differ by at most this.
const GIVE_UP_SPREAD_NS: u64 = 2_000_000_000;

impl Shared {
    pub(in crate::sim) fn set_net_config(&self, config: NetConfig) {
        self.net.lock().config = config;
    }

    /// Breaks every connection between two nodes: a random part of what is on its way still arrives.
    pub(in crate::sim) fn break_connections(self: &Arc<Self>, a: &str, b: &str) -> usize {
        let mut net = self.net.lock();
        let between =
            |nodes: &[String; 2]| (nodes[0] == a && nodes[1] == b) || (nodes[0] == b && nodes[1] == a);
        let ids: Vec<u64> = net.conns.iter().filter(|(_, c)| between(&c.nodes)).map(|(id, _)| *id).collect();
        for id in &ids {
            for end in 0..2 {
                self.lose_tail(&mut net, *id, end);
                self.post(&mut net, *id, end, Parcel::Reset);
            }
        }
        ids.len()
    }

    /// Breaks every connection from `a` to `b` at `a`'s end. Frames of `a` that have not arrived come `late_ns` later,
    /// and only then does `b` hear of the break: a process that was too busy to read its sockets finds there what came
    /// before they broke.
    pub(in crate::sim) fn break_late(self: &Arc<Self>, a: &str, b: &str, late_ns: u64) -> usize {
        let mut net = self.net.lock();
        let mut ends = Vec::new();
        for (id, conn) in &net.conns {
            ends.extend((0..2).filter(|e| conn.nodes[*e] == a && conn.nodes[1 - e] == b).map(|e| (*id, e)));
        }
        let mut wakers = Vec::new();
        for (id, end) in &ends {
            let Some(conn) = net.conns.get_mut(id) else { continue };
            for (at_ns, _) in &mut conn.pipes[*end].flight {
                *at_ns += late_ns;
                let (id, end) = (*id, *end);
                self.act_at(*at_ns, move |shared| shared.arrive(id, end));
            }
            conn.reset_at(*end);
            wakers.extend(conn.all_wakers());
            self.post(&mut net, *id, *end, Parcel::Reset);
        }
        drop(net);
        wakers.into_iter().for_each(Waker::wake);
        ends.len()
    }

    /// Drops a random tail of what end `end` has sent and has not arrived.
    fn lose_tail(&self, net: &mut super::Net, id: u64, end: usize) {
        let Some(conn) = net.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[end];
        let keep = self.sim.rng().below(pipe.flight.len() as u64 + 1) as usize;
        for (_, parcel) in pipe.flight.drain(keep..) {
            if let Parcel::Frame(frame) = parcel {
                pipe.bytes -= frame.wire_len();
            }
        }
    }

    /// Cuts the way from `a` to `b` (and back). Frames wait; if the cut lasts, connections are given up.
    pub(in crate::sim) fn cut(self: &Arc<Self>, a: &str, b: &str, direction: Direction) {
        let mut net = self.net.lock();
        net.next_cut += 1;
        let number = net.next_cut;
        net.cuts.insert((a.to_owned(), b.to_owned()), number);
        if direction == Direction::Both {
            net.cuts.insert((b.to_owned(), a.to_owned()), number);
        }
        drop(net);
        let (a, b) = (a.to_owned(), b.to_owned());
        let at_ns = self.sim.now_ns() + GIVE_UP_NS;
        self.act_at(at_ns, move |shared| {
            let lasts = shared.net.lock().cuts.get(&(a.clone(), b.clone())) == Some(&number);
            if lasts {
                shared.give_up_between(&a, &b);
            }
        });
    }

    /// Breaks each connection between two nodes, at slightly different times for its two ends.
    fn give_up_between(self: &Arc<Self>, a: &str, b: &str) {
        let net = self.net.lock();
        let between = |nodes: &[String; 2]| nodes.iter().any(|n| n == a) && nodes.iter().any(|n| n == b);
        let ids: Vec<u64> = net.conns.iter().filter(|(_, c)| between(&c.nodes)).map(|(id, _)| *id).collect();
        drop(net);
        for id in ids {
            self.give_up_later(id, 0, 0);
            self.give_up_later(id, 1, 0);
        }
    }

    fn give_up_later(self: &Arc<Self>, id: u64, end: usize, after_ns: u64) {
        let spread_ns = self.sim.rng().below(GIVE_UP_SPREAD_NS);
        let at_ns = self.sim.now_ns() + after_ns + spread_ns;
        self.act_at(at_ns, move |shared| {
            let mut net = shared.net.lock();
            let Some(conn) = net.conns.get_mut(&id) else { return };
            conn.reset_at(end);
            let wakers = conn.all_wakers();
            drop(net);
            wakers.into_iter().for_each(Waker::wake);
        });
    }

    /// Opens a way again (both directions); what waited goes on.
    pub(in crate::sim) fn open_way(self: &Arc<Self>, a: &str, b: &str) {
        let mut net = self.net.lock();
        net.cuts.remove(&(a.to_owned(), b.to_owned()));
        net.cuts.remove(&(b.to_owned(), a.to_owned()));
        drop(net);
        self.go_on();
    }

    /// Opens every way again.
    pub(in crate::sim) fn open_all_ways(self: &Arc<Self>) {
        self.net.lock().cuts.clear();
        self.go_on();
    }

    fn go_on(self: &Arc<Self>) {
        let ids: Vec<u64> = self.net.lock().conns.keys().copied().collect();
        let now_ns = self.sim.now_ns();
        for id in ids {
            for end in 0..2 {
                // TCP sends again after a pause that doubles; up to 200 ms after short cuts.
                let pause_ns = self.sim.rng().below(200_000_000);
                self.act_at(now_ns + pause_ns, move |shared| shared.arrive(id, end));
            }
        }
    }

    /// The process of a node was killed: the kernel closes its connections; a random part of what they had sent
    /// still arrives.
    pub(in crate::sim) fn process_died(self: &Arc<Self>, node: &str) {
        let mut net = self.net.lock();
        let mut ends = Vec::new();
        for (id, conn) in &net.conns {
            ends.extend((0..2).filter(|e| conn.nodes[*e] == node).map(|e| (*id, e)));
        }
        for (id, end) in ends {
            // Unread data makes the kernel send a reset, which overtakes nothing but cuts the tail.
            if self.sim.rng().one_in(2) {
                self.lose_tail(&mut net, id, end);
            }
        }
    }

    /// A node lost power: its connections fall silent, and the other ends find out by themselves.
    pub(in crate::sim) fn host_died(self: &Arc<Self>, node: &str) {
        let mut net = self.net.lock();
        net.dark.insert(node.to_owned());
        let mut ends = Vec::new();
        for (id, conn) in &mut net.conns {
            for end in (0..2).filter(|e| conn.nodes[*e] == node) {
                conn.silent[end] = true;
                ends.push((*id, end));
            }
        }
        for (id, end) in &ends {
            self.lose_tail(&mut net, *id, *end);
        }
        drop(net);
        for (id, end) in ends {
            self.give_up_later(id, 1 - end, GIVE_UP_NS);
        }
    }

    /// A node has power again.
    pub(in crate::sim) fn host_is_back(&self, node: &str) {
        self.net.lock().dark.remove(node);
    }
}
