//! The mounts of a job on its nodes: the orders that make and end them, and what a node that has died loses.

use brindle_bb::Buffer;
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{NodeMount, NodeOrder, NodeOrderReq, NodeSwapOff};

use super::actions::{Actions, OWNER_MODE, reap};
use super::beneath::Dir;
use super::node::hub::Refused;
use super::node::roster::NodeKeys;
use super::node::{Node, Places, away, of_several};
use super::orchestrator::short;
use super::{PRIVATE, persistent_name};
use crate::cluster::Cluster;

/// Orders that nodes have carried out.
#[derive(Default)]
pub struct Ordered {
    /// Nodes that have carried them out.
    pub done: Vec<String>,
    /// Reason why bytes that programs wrote on some of them may have been thrown away.
    pub lost: Vec<String>,
}

impl Actions<'_> {
    /// Whether the orchestrator carries out the orders for a node by itself.
    pub(super) fn is_local(&self, node: &str) -> bool {
        self.config.nodes_dir.is_some() || node == crate::name()
    }

    /// The way to a node.
    fn node<'a>(&'a self, serial: u64, name: &'a str) -> Result<Node<'a>> {
        if self.is_local(name) {
            return Ok(Node::Local(Places {
                program: &self.host.program,
                node: name,
                root: self.config.mounts_of(name),
                logs: self.work_dir(serial).join("log"),
                identity: self.config.network.as_ref().map(|network| &*network.identity),
            }));
        }
        // A node that cannot be reached is never taken for one on which nothing is mounted.
        let hub = self.hub().ok_or_else(|| {
            let why = "it is another host, and the orchestrator runs without --listen".to_owned();
            away(name, why).next("start it as before: brindle bb serve --listen ADDRESS")
        })?;
        Ok(Node::Remote { hub, host: self.host, name })
    }

    /// Buffers of which a job has mounts.
    fn mounted_by(buffer: &Buffer) -> impl Iterator<Item = u64> {
        let own = (!buffer.slices.is_empty()).then_some(buffer.serial);
        own.into_iter().chain(buffer.uses.iter().map(|used| used.serial))
    }

    /// Mounts what the job has on all its nodes at once. `revision`: that of the buffer's row.
    pub fn mount(&self, buffer: &Buffer, revision: u64, keys: &NodeKeys) -> Result<()> {
        let elsewhere: Vec<&String> = buffer.nodes.iter().filter(|node| !self.is_local(node)).collect();
        for serial in Self::mounted_by(buffer) {
            self.let_in_again(serial, &elsewhere, keys)?;
            if let Some(node) = elsewhere.first() {
                self.refuse_unreachable(serial, node)?;
            }
        }
        let mounts = self.sources(buffer)?.into_iter().map(|(name, source)| NodeMount { name, source });
        self.assign_swap(buffer)?;
        let private = self.make_private_dirs(buffer)?;
        let swap = buffer.swap.as_ref().map(|_| self.source_of(buffer.serial)).transpose()?;
        let order = NodeOrder::Mount { mounts: mounts.collect(), private, swap };
        self.order_all(buffer, revision, &order).1
    }

    /// Unmounts everything of the job from all its nodes; programs that are still there lose it. A node where the unmount fails delays no
    /// other node. `gives_up`: pages in swap whose server cannot be started are lost, and the processes that need them get SIGBUS. On
    /// return, nodes that an administrator has given up cannot write any more. Returns also the nodes without mounts.
    pub fn unmount(
        &self,
        buffer: &Buffer,
        revision: u64,
        keys: &NodeKeys,
        gives_up: bool,
    ) -> (Ordered, Result<()>) {
        let is_dead = |node: &&String| keys.forgotten.contains_key(*node) && !self.is_local(node);
        let (dead, living): (Vec<&String>, Vec<&String>) = buffer.nodes.iter().partition(is_dead);
        for serial in Self::mounted_by(buffer) {
            // Bytes that programs have written are sent when a mount ends.
            let Err(fault) = self.ensure_runs(serial) else { continue };
            let is_wanted = serial != buffer.serial || buffer.is_pending();
            if fault.code == Code::NodeAway && is_wanted && !gives_up {
                // A host with a part of the buffer comes back: until then the mounts keep their unwritten bytes.
                let wait = "the mounts wait for that host; to give up what was not written";
                let next = format!("start it; {wait}: brindle bb destroy --yes {}", buffer.token);
                return (Ordered::default(), Err(fault.next(next)));
            }
            tracing::warn!(%fault, serial, job = buffer.token, "unmounting, although a server does not run");
        }
        let used = buffer.uses.iter().map(|used| persistent_name(&buffer.token, &used.name));
        let names = std::iter::once(buffer.token.clone()).chain(used).collect();
        let swap = buffer.swap.as_ref().map(|_| NodeSwapOff {
            servers_down: self.ensure_runs(buffer.serial).err().map(|fault| short(&fault)),
            gives_up,
        });
        let order = NodeOrder::Unmount { names, swap };
        let living = Buffer { nodes: living.into_iter().cloned().collect(), ..buffer.clone() };
        let (mut done, outcome) = self.order_all(&living, revision, &order);
        if dead.is_empty() {
            return (done, outcome);
        }
        let fenced = Self::mounted_by(buffer).try_for_each(|serial| {
            self.refuse_hosts(serial, dead.iter().filter_map(|node| keys.forgotten.get(*node)), true)
        });
        if fenced.is_ok() {
            tracing::warn!(job = buffer.token, nodes = ?dead, "nodes that were given up are refused by its servers");
            done.done.extend(dead.into_iter().cloned());
        }
        (done, outcome.and(fenced))
    }

    /// Has all nodes of a buffer carry out an order: nodes of this machine one after the other, all others at the same time. Returns what
    /// was done, and the fault of the other nodes.
    fn order_all(&self, buffer: &Buffer, revision: u64, order: &NodeOrder) -> (Ordered, Result<()>) {
        let (serial, job) = (buffer.serial, buffer.token.clone());
        let order = NodeOrderReq { serial, revision, job, order: order.clone() };
        let order = &order;
        let mounts = matches!(order.order, NodeOrder::Mount { .. });
        let carry_out =
            |name: &String| (name.clone(), self.node(serial, name).and_then(|node| node.carry_out(order)));
        // Memory is checked before swap is turned off: only one node of a machine does so at a time.
        let (alone, beside): (Vec<&String>, Vec<&String>) =
            buffer.nodes.iter().partition(|node| !mounts && self.is_local(node));
        let outcomes: Vec<(String, Result<Option<String>>)> = std::thread::scope(|scope| {
            let running: Vec<_> =
                beside.iter().map(|name| (*name, scope.spawn(|| carry_out(name)))).collect();
            let mut outcomes: Vec<_> = alone.iter().map(|name| carry_out(name)).collect();
            let panicked = || Err(Fault::new(Code::Bug).what("work on a node panicked"));
            outcomes.extend(
                running.into_iter().map(|(name, t)| t.join().unwrap_or_else(|_| (name.clone(), panicked()))),
            );
            outcomes
        });
        let (mut ordered, mut faults) = (Ordered::default(), Vec::new());
        for (node, outcome) in outcomes {
            match outcome {
                Ok(lost) => {
                    ordered.lost.extend(lost.map(|why| format!("node {node}: {why}")));
                    ordered.done.push(node);
                }
                Err(fault) => faults.push((node, fault)),
            }
        }
        (ordered, of_several(faults))
    }

    /// Makes the directory of each node, if the job has such directories.
    fn make_private_dirs(&self, buffer: &Buffer) -> Result<bool> {
        if !buffer.has_directory() || !buffer.access.is_private() {
            return Ok(false);
        }
        let private = Dir::root(&self.stage_mount(buffer.serial))?.enter(PRIVATE)?;
        for node in &buffer.nodes {
            let own = private.make(node)?;
            own.give(buffer.uid, buffer.gid)?;
            own.set_mode(OWNER_MODE)?;
        }
        Ok(true)
    }

    /// Lets nodes in again that the servers of a buffer refuse because they were given up: when the nodes are back and have unmounted their
    /// old mounts.
    fn let_in_again(&self, serial: u64, nodes: &[&String], keys: &NodeKeys) -> Result<()> {
        let cluster = Cluster::load(&self.work_dir(serial))?;
        let Some(reach) = &cluster.reach else { return Ok(()) };
        let refused = Refused::open(&reach.refused)?;
        let mut back = Vec::new();
        for node in nodes.iter().filter(|node| !keys.forgotten.contains_key(**node)) {
            let Some(key) = keys.all.get(*node).filter(|key| refused.has(key)) else { continue };
            self.hub().map_or(Ok(()), |hub| hub.wait_clean(node))?;
            back.push(key);
        }
        self.refuse_hosts(serial, back.into_iter(), false)
    }

    /// Refuses to mount on another host a buffer that was made when the orchestrator served this host alone.
    fn refuse_unreachable(&self, serial: u64, node: &str) -> Result<()> {
        if Cluster::load(&self.work_dir(serial))?.reach.is_some() {
            return Ok(());
        }
        Err(Fault::new(Code::WrongPhase)
            .what("cannot mount on node")
            .subject(node.to_owned())
            .why("the buffer was made before the orchestrator was told to serve other hosts: its servers listen on 127.0.0.1")
            .next("make a new buffer"))
    }

    /// Has the servers of a buffer refuse the hosts of these keys, or let them in again. A refused host has no connection to the servers on
    /// return: its session ends, and none of its requests is carried out.
    fn refuse_hosts<'k>(
        &self,
        serial: u64,
        keys: impl Iterator<Item = &'k String>,
        refused: bool,
    ) -> Result<()> {
        let lock = self.start_lock(serial);
        let _start = lock.lock();
        let cluster = Cluster::load(&self.work_dir(serial))?;
        let Some(reach) = &cluster.reach else { return Ok(()) };
        let mut file = Refused::open(&reach.refused)?;
        let mut changed = false;
        for key in keys {
            changed |= file.set(key, refused)?;
        }
        // The file may have been written by a try that was cut off before the servers were started with it.
        if !changed && !refused {
            return Ok(());
        }
        self.here(serial).on(|on| on.down(false))?;
        reap(&cluster);
        self.start_stored(serial)
    }
}
