//! The compute nodes that the orchestrator knows: nodes whose agents have registered, until somebody says that the node is
//! dead.

use std::collections::BTreeMap;

use brindle_admin::target::hex;
use brindle_bb::{Buffer, Phase};
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::NodeRegisterResp;

use super::hub::{Contact, Hub, Registration};
use crate::bb::orchestrator::Orchestrator;
use crate::bb::protocol::{NodeState, Reply};
use crate::bb::store::NodeRow;
use crate::bb::{is_plain, persistent_name, private_name, swap_name};

/// Names of what a buffer may have mounted on a node.
fn names_of(buffer: &Buffer) -> Vec<String> {
    let token = &buffer.token;
    let used = buffer.uses.iter().map(|used| persistent_name(token, &used.name));
    let own = [token.clone(), private_name(token), swap_name(token)];
    own.into_iter().chain(used).collect()
}

impl Orchestrator<'_> {
    /// Answers registrations, for as long as there may be any.
    pub(in crate::bb) fn register_nodes(&self) {
        let Some(hub) = self.actions.hub() else { return };
        let Some(registrations) = hub.registrations() else { return };
        for registration in registrations {
            let outcome = self.register(&registration);
            hub.answer(registration, outcome);
        }
    }

    fn register(&self, registration: &Registration) -> Result<NodeRegisterResp> {
        let Registration { node, address, key, request, .. } = registration;
        let refused = |why: String| {
            Fault::new(Code::BadArgument)
                .what("the orchestrator of burst buffers does not take the agent of node")
                .subject(node.clone())
                .why(why)
                .data("nothing was changed")
        };
        let root = crate::text(&self.config.mount_root)?;
        if request.mount_root != root {
            let why = format!("it mounts below {}, and jobs look below {root}", request.mount_root);
            return Err(refused(why).next(format!("brindle bb agent --mount-root {root}")));
        }
        if self.actions.is_local(node) || !is_plain(node) {
            let why =
                if is_plain(node) { "the orchestrator is on that host" } else { "it is no name of a node" };
            return Err(refused(why.to_owned()));
        }
        if self.actions.hub().is_some_and(|hub| hub.contact(node) != Contact::Up) {
            // The node may have booted since, so its earlier trouble is forgotten.
            self.actions.troubles.lock().remove(node);
        }
        let number = self.actions.hub().map_or(0, Hub::next_number);
        let (name, address) = (node.clone(), address.clone());
        let row = NodeRow { name, address, key: hex(&key.0), forgotten: false };
        if self.store.set_node(&row)?.is_some_and(|before| before.forgotten) {
            tracing::warn!(node, "a node that was given up is back");
        }
        let kept = if request.wants_kept { Some(self.kept_on(node)?) } else { None };
        // The number is taken before the rows are read: whoever is given up afterwards is not clean with this answer.
        Ok(NodeRegisterResp { kept, store: self.store.id()?, number })
    }

    fn kept_on(&self, node: &str) -> Result<Vec<String>> {
        let all = self.store.buffers()?.into_iter().map(|(_, buffer)| buffer);
        Ok(all.filter(|b| b.nodes.iter().any(|n| n == node)).flat_map(|b| names_of(&b)).collect())
    }

    /// Refuses a node that nothing can be mounted on.
    pub(in crate::bb) fn refuse_foreign_node(&self, node: &str) -> Result<()> {
        let refused = |why: &str| {
            Fault::new(Code::NoSuchNode)
                .what("cannot mount on node")
                .subject(node.to_owned())
                .why(why.to_owned())
        };
        if !is_plain(node) {
            return Err(refused("it is no name of a node"));
        }
        match &self.config.nodes_dir {
            Some(dir) if dir.join(node).is_dir() => return Ok(()),
            Some(_) => return Err(refused("the cluster of brindle dev slurm has no such node")),
            None if self.actions.is_local(node) => return Ok(()),
            None if self.actions.hub().is_none() => {
                return Err(refused("the orchestrator mounts on its own host only")
                    .next("let it take agents of other hosts: brindle bb serve --listen ADDRESS"));
            }
            None => {}
        }
        match self.store.node(node)? {
            Some(_) => Ok(()),
            None => Err(refused("no agent of such a node has ever registered")
                .next(format!("start it there: brindle bb agent {}", self.agents_connect_to()))),
        }
    }

    pub(in crate::bb) fn agents_connect_to(&self) -> String {
        self.actions.hub().map(|hub| hub.nid().to_string()).unwrap_or_default()
    }

    /// All nodes: this host, then those with agents.
    pub(in crate::bb) fn nodes(&self) -> Result<Vec<NodeState>> {
        let buffers: Vec<Buffer> = self.store.buffers()?.into_iter().map(|(_, buffer)| buffer).collect();
        let on = |node: &str| {
            let there = buffers.iter().filter(|b| b.nodes.iter().any(|n| n == node));
            there.map(|b| b.token.clone()).collect()
        };
        let mut nodes = Vec::new();
        if self.config.nodes_dir.is_none() {
            let name = crate::name();
            let (address, state) = (String::new(), "local".to_owned());
            nodes.push(NodeState { buffers: on(&name), name, address, state, reason: String::new() });
        }
        for row in self.store.nodes()? {
            let contact = self.actions.hub().map_or(Contact::Away, |hub| hub.contact(&row.name));
            let state = match contact {
                Contact::Up => "up",
                _ if row.forgotten => "forgotten",
                Contact::Silent => "silent",
                Contact::Away => "away",
            };
            let (buffers, state) = (on(&row.name), state.to_owned());
            let mut reason = self.actions.hub().map_or_else(String::new, |hub| hub.fault_of(&row.name));
            if let Some(trouble) = self.actions.trouble_of(&row.name).filter(|_| reason.is_empty()) {
                reason = format!("no slices are made there now: {trouble}");
            }
            nodes.push(NodeState { name: row.name, address: row.address, state, buffers, reason });
        }
        Ok(nodes)
    }

    /// Takes an administrator's word that a node is dead.
    pub(in crate::bb) fn forget_node(&self, node: &str) -> Result<Reply> {
        let row = self.store.node(node)?;
        let row = row.ok_or_else(|| Fault::new(Code::NoSuchNode).subject(node.to_owned()))?;
        if self.actions.hub().is_some_and(|hub| hub.contact(node) == Contact::Up) {
            return Err(Fault::new(Code::BadArgument)
                .what("will not give up node")
                .subject(node.to_owned())
                .why("its agent answers")
                .data("nothing was changed")
                .next("stop the agent first, if the node is to go: systemctl stop brindle-bb-agent"));
        }
        let dead = NodeRow { forgotten: true, ..row.clone() };
        if row != dead && !self.store.replace_node(&row, Some(&dead))? {
            return Err(Fault::new(Code::BufferBusy)
                .what("will not give up node")
                .subject(node.to_owned())
                .why("its agent has registered at this moment")
                .data("nothing was changed"));
        }
        if let Some(hub) = self.actions.hub() {
            hub.distrust(node);
        }
        tracing::warn!(audit = true, node, "an administrator says that the node is dead");
        self.look_after_nodes();
        let left: Vec<String> = self
            .store
            .buffers()?
            .into_iter()
            .map(|(_, b)| b)
            .filter(|b| b.nodes.iter().any(|n| n == node))
            .map(|b| b.token)
            .collect();
        self.drop_forgotten()?;
        Ok(Reply::Done(if left.is_empty() {
            format!("{node} is given up; no buffer waits for it. Its agent may register again")
        } else {
            let jobs = left.join(", ");
            format!(
                "{node} is given up; the buffers of job {jobs} wait for it no longer, when the job has ended"
            )
        }))
    }

    /// Keys of the hosts of all nodes; of those that were given up, and are not back.
    pub(in crate::bb) fn node_keys(&self) -> Result<NodeKeys> {
        let (mut all, mut forgotten) = (BTreeMap::new(), BTreeMap::new());
        for row in self.store.nodes()? {
            if row.forgotten {
                forgotten.insert(row.name.clone(), row.key.clone());
            }
            all.insert(row.name, row.key);
        }
        Ok(NodeKeys { all, forgotten })
    }

    /// Removes the rows of nodes that were given up and that no buffer names.
    pub(in crate::bb) fn drop_forgotten(&self) -> Result<()> {
        let forgotten: Vec<NodeRow> = self.store.nodes()?.into_iter().filter(|row| row.forgotten).collect();
        if forgotten.is_empty() {
            return Ok(());
        }
        let buffers = self.store.buffers()?;
        let pools = self.store.pools()?;
        let has_brick = |name: &String| {
            pools.iter().flat_map(|pool| pool.bricks.values()).any(|brick| brick.node.as_ref() == Some(name))
        };
        let has_slice = |b: &Buffer, name: &String| b.slices.iter().any(|s| s.node.as_ref() == Some(name));
        let has_part = |b: &Buffer, name: &String| b.nodes.contains(name) || has_slice(b, name);
        let is_named = |name: &String| has_brick(name) || buffers.iter().any(|(_, b)| has_part(b, name));
        // A node that has changed at this moment has come back, and stays.
        let mut idle = forgotten.iter().filter(|row| !is_named(&row.name));
        idle.try_for_each(|row| self.store.replace_node(row, None).map(drop))
    }

    /// Whether a buffer waits for nodes of which at least one may have come back, or was given up.
    pub(in crate::bb) fn may_go_on(&self, buffer: &Buffer, keys: &NodeKeys) -> bool {
        let may = |node: &String| {
            let contact = || self.actions.hub().map_or(Contact::Away, |hub| hub.contact(node));
            self.actions.is_local(node) || keys.forgotten.contains_key(node) || contact() == Contact::Up
        };
        buffer.phase == Phase::Unmounting && buffer.nodes.iter().any(may)
    }
}

/// Keys of the hosts of nodes, in hexadecimal digits, by name of the node.
#[derive(Default)]
pub struct NodeKeys {
    /// Of all nodes.
    pub all: BTreeMap<String, String>,
    /// Of those that an administrator has given up.
    pub forgotten: BTreeMap<String, String>,
}
