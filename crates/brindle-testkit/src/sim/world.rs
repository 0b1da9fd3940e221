//! [`World`]: what a test holds of the simulator.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use brindle_net::{RemovedKeys, Transport};
use brindle_stdx::{Mono, Seams};
use brindle_wire::mgs::id_map::MappedNodemap;
use brindle_wire::mgs::nodemap::Nodemap;
use parking_lot::Mutex;

use brindle_sim::rng::mix;
use brindle_sim::{Crash, Node, Sim, SimDisk, SplitMix, Stuck};

use super::net::{Direction, Net, NetConfig, SimTransport};

/// State of the simulation.
pub(super) struct Shared {
    pub sim: Arc<Sim>,
    pub net: Mutex<Net>,
    pub nodes: Mutex<BTreeMap<String, Node>>,
    choices: Mutex<SplitMix>,
    /// Removed hosts and nodemaps, as all servers know them.
    pub hosts: Arc<RemovedKeys>,
}

/// The seams of one incarnation of a node.
#[derive(Clone)]
pub struct NodeSeams {
    /// Name of the node, which is its host name in addresses.
    pub name: String,
    /// Time, chance, tasks, disk.
    pub seams: Seams,
    /// Network.
    pub transport: Arc<dyn Transport>,
}

/// A simulated world. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
    owner: Arc<Owner>,
}

/// Ends the world with its last handle: tasks refer to the world that holds them.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Owner {
    fn end(&self) {
        let nodes = std::mem::take(&mut *self.0.nodes.lock());
        nodes.values().for_each(|node| self.0.sim.end_group(node.group()));
        let timers = self.0.sim.forget_timers();
        let net = std::mem::take(&mut *self.0.net.lock());
        drop((nodes, timers));
        // Halves of connections that wait to be accepted look for the network when they are dropped.
        drop(net);
    }
}

impl World {
    /// A world without nodes, in which everything follows from `seed`.
    pub fn new(seed: u64) -> World {
        let shared = Shared {
            sim: Sim::new(seed),
            net: Mutex::default(),
            nodes: Mutex::default(),
            choices: Mutex::new(SplitMix::new(mix(seed, 2))),
            hosts: Arc::default(),
        };
        let shared = Arc::new(shared);
        World { owner: Arc::new(Owner(shared.clone())), shared }
    }

    /// Tells all servers what hosts may do, by the names that they claim.
    pub fn set_nodemaps(&self, nodemaps: &[Nodemap]) {
        self.set_mapped_nodemaps(&nodemaps.iter().cloned().map(MappedNodemap::from).collect::<Vec<_>>());
    }

    /// Sets nodemaps with mappings of users and groups.
    pub fn set_mapped_nodemaps(&self, nodemaps: &[MappedNodemap]) {
        self.shared.hosts.nodemaps.replace(nodemaps);
    }

    /// All servers have yet to hear what hosts may do, until [`World::set_nodemaps`].
    pub fn await_nodemaps(&self) {
        self.shared.hosts.nodemaps.wait_for_first();
    }

    /// Ends the world: drops all tasks, frames and disks. Dropping the last handle does the same, but a task of the
    /// world that holds a handle itself would keep it for ever.
    pub fn end(&self) {
        self.owner.end();
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.shared.sim.seed()
    }

    /// The running incarnation of a node; a node of a new name is made.
    pub fn node(&self, name: &str) -> NodeSeams {
        let mut nodes = self.shared.nodes.lock();
        let node = nodes.entry(name.to_owned()).or_insert_with(|| Node::new(&self.shared.sim, name));
        self.seams(node)
    }

    fn seams(&self, node: &Node) -> NodeSeams {
        let (shared, group) = (self.shared.clone(), node.group().clone());
        NodeSeams {
            name: group.node().to_owned(),
            seams: node.seams(),
            transport: Arc::new(SimTransport { shared, group }),
        }
    }

    /// Whether the node runs (was made or restarted, and not killed since).
    pub fn is_running(&self, name: &str) -> bool {
        self.shared.nodes.lock().get(name).is_some_and(|n| n.group().is_alive())
    }

    /// kill -9: the node's tasks are gone; what it wrote stays. The other ends of its connections see them close.
    pub fn kill(&self, name: &str) {
        self.shared.crash(name, Crash::Kill);
    }

    /// The node's host loses power: its tasks are gone, and of what it did not sync an arbitrary part. The other ends
    /// of its connections hear nothing until they give up or the host is back.
    pub fn power_cut(&self, name: &str) {
        self.shared.crash(name, Crash::PowerCut);
    }

    /// The next incarnation of a node that was killed or lost power; kills it first if it runs.
    pub fn restart(&self, name: &str) -> NodeSeams {
        if self.is_running(name) {
            self.kill(name);
        }
        self.shared.sim.note("restart", name);
        self.shared.host_is_back(name);
        let mut nodes = self.shared.nodes.lock();
        let node = nodes.get_mut(name).expect("the node exists");
        node.restart();
        self.seams(node)
    }

    /// Crashes a node between two of its disk operations: after `ops` more that change or sync something. Forgotten
    /// when the node goes down before.
    pub fn crash_after(&self, name: &str, ops: u64, how: Crash) {
        let disk = self.disk(name);
        let (shared, name) = (self.shared.clone(), name.to_owned());
        disk.die_after_and(ops, move || {
            // The disk is locked here; the crash comes as the next event.
            let now_ns = shared.sim.now_ns();
            shared.act_at(now_ns, move |shared| {
                shared.sim.note("disk crash point", &name);
                shared.crash(&name, how);
            });
        });
    }

    /// Stops the node's process (SIGSTOP): none of its tasks runs for `ms`. The node's host takes in what is sent to it; clocks go
    /// on.
    pub fn stand_still(&self, name: &str, ms: u64) {
        let group = self.shared.nodes.lock()[name].group().clone();
        self.shared.sim.note("stands still", &format!("{name} {ms}"));
        group.stand_still();
        let name = name.to_owned();
        self.shared.act_at(self.shared.sim.now_ns() + ms * 1_000_000, move |shared| {
            shared.sim.note("goes on", &name);
            group.go_on();
        });
    }

    /// Whether the node's process is stopped.
    pub fn is_still(&self, name: &str) -> bool {
        self.shared.nodes.lock().get(name).is_some_and(|node| node.group().is_still())
    }

    /// Cuts the way between two nodes. Frames wait; connections end after some seconds.
    pub fn partition(&self, a: &str, b: &str, direction: Direction) {
        self.shared.sim.note("partition", &format!("{a} {b} {direction:?}"));
        self.shared.cut(a, b, direction);
    }

    /// Cuts a node off from all others.
    pub fn isolate(&self, name: &str) {
        let others: Vec<String> = self.shared.nodes.lock().keys().filter(|n| *n != name).cloned().collect();
        others.iter().for_each(|other| self.partition(name, other, Direction::Both));
    }

    /// Opens the way between two nodes again.
    pub fn heal_between(&self, a: &str, b: &str) {
        self.shared.sim.note("heal", &format!("{a} {b}"));
        self.shared.open_way(a, b);
    }

    /// Opens every way again.
    pub fn heal(&self) {
        self.shared.sim.note("heal", "all");
        self.shared.open_all_ways();
    }

    /// Breaks the connections between two nodes; part of what was on its way arrives. Returns how many there were.
    pub fn break_connections(&self, a: &str, b: &str) -> usize {
        self.shared.sim.note("connection break", &format!("{a} {b}"));
        self.shared.break_connections(a, b)
    }

    /// Breaks the connections from `a` to `b` at `a`'s end only; what is on its way to `b` comes late, and then `b` hears
    /// of the break. Returns how many there were.
    pub fn break_late(&self, a: &str, b: &str, late_ms: u64) -> usize {
        self.shared.sim.note("late frames of a broken connection", &format!("{a} {b} {late_ms}"));
        self.shared.break_late(a, b, late_ms * 1_000_000)
    }

    /// Lets a node's civil time jump.
    pub fn jump_wall(&self, name: &str, ms: i64) {
        self.shared.sim.note("clock jump", name);
        self.shared.nodes.lock()[name].jump_wall(ms);
    }

    /// Lets a node's monotonic clock run faster (or slower) by so many parts in a million. Before the node's first process.
    pub fn drift_clock(&self, name: &str, ppm: i64) {
        self.shared.nodes.lock()[name].drift(ppm);
    }

    /// Sets the travel times of frames from now on.
    pub fn set_net_config(&self, config: NetConfig) {
        self.shared.set_net_config(config);
    }

    /// Hand on the disk of a node, which must exist.
    pub fn disk(&self, name: &str) -> SimDisk {
        self.shared.nodes.lock()[name].disk().clone()
    }

    /// Runs everything until `future` is done, for at most `limit_ms` of virtual time.
    pub fn run_until<F: Future>(&self, limit_ms: u64, future: F) -> Result<F::Output, Stuck> {
        self.shared.sim.run_until(limit_ms, future)
    }

    /// Runs everything for `ms` of virtual time.
    pub fn run_for(&self, ms: u64) {
        let ended = self.run_until(ms, std::future::pending::<()>());
        assert_eq!(ended, Err(Stuck::OutOfTime), "the simulation ended before its time");
    }

    /// The world's own time (nodes' clocks differ).
    pub fn now(&self) -> Mono {
        Mono(self.shared.sim.now_ns())
    }

    /// A random number below `n`, for the test's own choices.
    pub fn choose(&self, n: u64) -> u64 {
        self.shared.choices.lock().below(n)
    }

    /// Hash of everything that happened so far: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.shared.sim.trace().hash()
    }

    /// Number of events and faults, by kind.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.shared.sim.trace().counts()
    }

    /// Keeps the last `lines_max` events as text from now on.
    pub fn keep_lines(&self, lines_max: usize) {
        self.shared.sim.trace().keep_lines(lines_max);
    }

    /// The events kept as text.
    pub fn lines(&self) -> Vec<String> {
        self.shared.sim.trace().lines()
    }
}

impl Shared {
    /// Does something at a point in time.
    pub(super) fn act_at(self: &Arc<Self>, at_ns: u64, action: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        // The simulation must not keep the world that holds it.
        let shared = Arc::downgrade(self);
        self.sim.act_at(at_ns, move || {
            if let Some(shared) = shared.upgrade() {
                action(&shared);
            }
        });
    }

    /// Takes a node down; nothing happens to one that is down.
    fn crash(self: &Arc<Self>, name: &str, how: Crash) {
        let node = self.nodes.lock().get(name).expect("the node exists").clone();
        if !node.group().is_alive() && how == Crash::Kill {
            return;
        }
        self.sim.note(if how == Crash::Kill { "kill" } else { "power cut" }, name);
        match how {
            Crash::Kill => self.process_died(name),
            Crash::PowerCut => self.host_died(name),
        }
        node.crash(how);
    }
}
