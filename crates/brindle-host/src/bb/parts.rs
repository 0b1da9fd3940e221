//! The parts of a buffer on the hosts of its bricks: which host has which targets, and orders to all of them.
//!
//! Order of a start: the host of the first slice, which has the MGS, the MDT and an OST; then all others at once, with the address of that MGS;
//! then the mount for staging on the orchestrator's host. Every order to another host carries the revision of the buffer's row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use brindle_bb::pool::Brick;
use brindle_bb::{Buffer, Pool, Slice};
use brindle_stdx::cast::len_u16;
use brindle_types::{Code, Fault, Nid, Result, TargetId};
use brindle_wire::bb::{MissingSlice, NodeSlicesReq, NodeSlicesResp, SliceOrder, SliceTarget, SlicesServed};

use super::actions::{Actions, no_brick};
use super::node::hub::{Contact, Hub, Refused, about_bricks};
use super::node::{away, of_several};
use super::orchestrator::short;
use super::part::{Part, name_of};

/// How long a write waits for a buffer to grow by itself.
const ROOM_WAIT_S: u64 = 10;
/// Time for which a host that could not make a slice is not chosen.
const TROUBLE_FOR: Duration = Duration::from_secs(60);
/// Number of repetitions of an order that a change of the buffer's row has overtaken.
const STALE_TRIES_MAX: usize = 4;

/// The targets of a buffer on one host.
struct Share {
    /// The host; `None`: the orchestrator's own.
    node: Option<String>,
    targets: Vec<SliceTarget>,
}

/// The brick of a slice. `None` if a brick of the same name on another host has taken its place.
fn brick_of<'a>(pool: &'a Pool, slice: &Slice) -> Option<&'a Brick> {
    pool.bricks.get(&slice.brick).filter(|brick| brick.node == slice.node)
}

impl Actions<'_> {
    /// The row of a buffer, with its revision and its pool.
    pub(super) fn row(&self, serial: u64) -> Result<(u64, Buffer)> {
        self.store.buffer(serial)?.ok_or_else(|| Fault::new(Code::NoSuchBuffer).subject(serial.to_string()))
    }

    /// The revision of a buffer's row; 0 where there is none.
    pub(super) fn revision(&self, serial: u64) -> Result<u64> {
        Ok(self.store.buffer(serial)?.map_or(0, |(revision, _)| revision))
    }

    /// The part of a buffer that the orchestrator's own host has.
    pub(super) fn here(&self, serial: u64) -> Part<'_> {
        Part {
            host: self.host,
            serial,
            dir: self.work_dir(serial),
            store: &self.store_id,
            identity: self.config.network.as_ref().map(|network| &*network.identity),
            is_remote: false,
        }
    }

    /// The targets of a buffer by host, that of the first slice first: it has the MGT and the MDT, too.
    fn shares(slices: &[Slice], pool: &Pool) -> Result<Vec<Share>> {
        let mut shares: Vec<Share> = Vec::new();
        for (index, slice) in (0u16..).zip(slices) {
            let brick = &brick_of(pool, slice).ok_or_else(|| no_brick(slice))?.dir;
            let target =
                |target, bytes, image_bytes| SliceTarget { target, brick: brick.clone(), bytes, image_bytes };
            let at = shares.iter().position(|share| share.node == slice.node).unwrap_or_else(|| {
                let names = [TargetId::MGT, TargetId::mdt(0)].map(|id| target(id, 0, 0));
                let targets = if index == 0 { names.to_vec() } else { Vec::new() };
                shares.push(Share { node: slice.node.clone(), targets });
                shares.len() - 1
            });
            shares[at].targets.push(target(TargetId::ost(index), slice.bytes, slice.image_bytes()));
        }
        Ok(shares)
    }

    /// Serves all targets of a buffer and mounts it for staging; what runs goes on. The caller holds the lock of its start.
    pub(super) fn start(
        &self,
        buffer: &Buffer,
        pool: &Pool,
        revision: u64,
        missing: MissingSlice,
    ) -> Result<()> {
        let shares = Self::shares(&buffer.slices, pool)?;
        let (home, others) =
            shares.split_first().ok_or_else(|| Fault::new(Code::Bug).what("a buffer has no slices"))?;
        let refused = match self.reach(buffer.serial) {
            Some(reach) => Refused::open(&reach.refused)?.keys().to_vec(),
            None => Vec::new(),
        };
        let served = |share: &Share, mgs: Option<Nid>| -> Result<SliceOrder> {
            Ok(SliceOrder::Serve(SlicesServed {
                targets: share.targets.clone(),
                mgs,
                address: self.address_of(share.node.as_deref())?,
                refused: refused.clone(),
                room_wait_s: if buffer.grow_max_bytes.is_some() { ROOM_WAIT_S } else { 0 },
                lock_memory: buffer.swap.is_some(),
                missing,
            }))
        };
        let told = self.order(buffer.serial, revision, home, &served(home, None)?)?;
        let mgs = told.mgs.ok_or_else(|| {
            Fault::new(Code::NoMgs).what("the MGS of the buffer has no address").subject(buffer.token.clone())
        })?;
        let orders = others
            .iter()
            .map(|share| Ok((share, served(share, Some(mgs.clone()))?)))
            .collect::<Result<Vec<_>>>()?;
        self.order_all_parts(buffer.serial, revision, orders)?;
        self.here(buffer.serial).on(|on| on.mount_all(&mgs))
    }

    /// Starts what a buffer has, as its row says. A row that changes meanwhile is read again.
    pub(super) fn start_stored(&self, serial: u64) -> Result<()> {
        for _ in 1..STALE_TRIES_MAX {
            let (revision, buffer) = self.row(serial)?;
            let missing = if buffer.unsettled { MissingSlice::PassOver } else { MissingSlice::Refuse };
            match self.start(&buffer, &self.store.pool(&buffer.pool)?, revision, missing) {
                Err(fault) if fault.code == Code::StaleOrder && self.revision(serial)? != revision => {}
                outcome => return outcome,
            }
        }
        Err(Fault::new(Code::BufferBusy).subject(serial.to_string()).why("its row changes all the time"))
    }

    /// Keeps each target from using more than its slice. Free bytes of each, in the order of the slices.
    pub(super) fn hold(&self, slices: &[Slice], pool: &Pool, revision: u64, trims: bool) -> Result<Vec<u64>> {
        self.ask_osts(slices, pool, revision, |targets| SliceOrder::Hold { targets, trims })
    }

    /// Free bytes in the slice of each OST of a buffer.
    pub fn available(&self, serial: u64, slices: &[Slice]) -> Result<Vec<u64>> {
        let (revision, buffer) = self.row(serial)?;
        self.ask_osts(slices, &self.store.pool(&buffer.pool)?, revision, SliceOrder::Free)
    }

    /// Sends an order about the OSTs of a buffer to each host that has any. Returns the answers, in the order of the slices.
    fn ask_osts(
        &self,
        slices: &[Slice],
        pool: &Pool,
        revision: u64,
        order: impl Fn(Vec<SliceTarget>) -> SliceOrder,
    ) -> Result<Vec<u64>> {
        let Some(serial) = slices.first().map(|slice| slice.serial) else { return Ok(Vec::new()) };
        let shares = Self::shares(slices, pool)?;
        let osts = |share: &Share| -> Vec<SliceTarget> {
            share.targets.iter().filter(|t| t.image_bytes > 0).cloned().collect()
        };
        let orders = shares.iter().map(|share| (share, order(osts(share)))).collect();
        let answers = self.order_all_parts(serial, revision, orders)?;
        let mut free = BTreeMap::new();
        for (share, answer) in shares.iter().zip(&answers) {
            free.extend(osts(share).iter().map(|t| t.target.index).zip(answer.free_bytes.iter().copied()));
        }
        let of = |index: u16| {
            free.get(&index).copied().ok_or_else(|| {
                let name = name_of(TargetId::ost(index));
                Fault::new(Code::TargetDown).what("nobody says how much is free on").subject(name)
            })
        };
        (0..len_u16(slices.len())).map(of).collect()
    }

    /// Has other hosts end and remove what they have of a buffer. Slices of bricks that have left the pool need nobody's word.
    pub(super) fn destroy_elsewhere(&self, buffer: &Buffer, pool: &Pool, revision: u64) -> Result<()> {
        let mut bricks: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        for slice in &buffer.slices {
            let Some(node) = &slice.node else { continue };
            let dirs = bricks.entry(node).or_default();
            dirs.extend(brick_of(pool, slice).map(|brick| brick.dir.clone()));
        }
        let shares: Vec<(Share, SliceOrder)> = bricks
            .into_iter()
            // Without a brick there is at most a process left, on a host that may be gone for good.
            .filter(|(node, dirs)| !dirs.is_empty() || self.contact(node) == Contact::Up)
            .map(|(node, bricks)| {
                let share = Share { node: Some(node.clone()), targets: Vec::new() };
                (share, SliceOrder::Destroy { bricks })
            })
            .collect();
        let orders = shares.iter().map(|(share, order)| (share, order.clone())).collect();
        self.order_all_parts(buffer.serial, revision, orders).map(drop)
    }

    /// Whether nothing keeps the hosts of a buffer from removing what they have of it.
    pub(super) fn may_be_removed(&self, buffer: &Buffer, pool: &Pool) -> bool {
        let needed = buffer.slices.iter().filter(|slice| brick_of(pool, slice).is_some());
        needed.filter_map(|slice| slice.node.as_ref()).all(|node| self.contact(node) == Contact::Up)
    }

    /// An order about a brick as a whole.
    pub(super) fn order_brick(&self, node: &str, order: SliceOrder) -> Result<NodeSlicesResp> {
        let share = Share { node: Some(node.to_owned()), targets: Vec::new() };
        self.order(0, 0, &share, &order)
    }

    fn order(&self, serial: u64, revision: u64, share: &Share, order: &SliceOrder) -> Result<NodeSlicesResp> {
        let Some(node) = &share.node else { return self.here(serial).carry_out(order) };
        let hub = self.hub().ok_or_else(|| {
            about_bricks(away(node, "the orchestrator runs without --listen".to_owned()))
                .next("start it as before: brindle bb serve --listen ADDRESS")
        })?;
        let request = NodeSlicesReq { serial, revision, store: self.store_id.clone(), order: order.clone() };
        let outcome = hub.order_slices(self.host, node, &request);
        // A host on which nothing can be removed is no place for something new, either: whatever is made is removed first.
        let makes = matches!(order, SliceOrder::Serve(SlicesServed { missing: MissingSlice::Make, .. }));
        let removes = matches!(order, SliceOrder::Destroy { .. });
        if makes || (removes && outcome.is_err()) {
            self.note_trouble(node, outcome.as_ref().err());
        }
        outcome
    }

    /// Sends orders to several hosts at the same time. Returns the answers, or the first fault with the names of all.
    fn order_all_parts(
        &self,
        serial: u64,
        revision: u64,
        orders: Vec<(&Share, SliceOrder)>,
    ) -> Result<Vec<NodeSlicesResp>> {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = orders
                .iter()
                .map(|(share, order)| scope.spawn(|| self.order(serial, revision, share, order)))
                .collect();
            let panicked = || Err(Fault::new(Code::Bug).what("work on a host panicked"));
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        let (mut answers, mut faults) = (Vec::new(), Vec::new());
        for ((share, _), outcome) in orders.iter().zip(outcomes) {
            match outcome {
                Ok(answer) => answers.push(answer),
                Err(fault) => faults.push((share.node.clone().unwrap_or_else(crate::name), fault)),
            }
        }
        of_several(faults).map(|()| answers)
    }

    /// Address at which the targets of a host listen.
    fn address_of(&self, node: Option<&str>) -> Result<String> {
        let Some(node) = node else {
            let network = self.config.network.as_ref();
            return Ok(network.map_or_else(|| "127.0.0.1".to_owned(), |network| network.address.clone()));
        };
        let row = self.store.node(node)?;
        row.map(|row| row.address).ok_or_else(|| Fault::new(Code::NoSuchNode).subject(node.to_owned()))
    }

    fn contact(&self, node: &str) -> Contact {
        self.hub().map_or(Contact::Away, |hub| hub.contact(node))
    }

    fn note_trouble(&self, node: &str, fault: Option<&Fault>) {
        let mut troubles = self.troubles.lock();
        match fault {
            Some(fault) => drop(troubles.insert(node.to_owned(), (Instant::now(), short(fault)))),
            None => drop(troubles.remove(node)),
        }
    }

    /// Why a host is not chosen now, although its agent answers.
    pub(super) fn trouble_of(&self, node: &str) -> Option<String> {
        let troubles = self.troubles.lock();
        troubles.get(node).filter(|(since, _)| since.elapsed() < TROUBLE_FOR).map(|(_, why)| why.clone())
    }

    /// Whether a host with a slice of the buffer is in trouble.
    pub(super) fn has_trouble(&self, buffer: &Buffer) -> bool {
        buffer.slices.iter().filter_map(|slice| slice.node.as_deref()).any(|n| self.trouble_of(n).is_some())
    }

    /// Whether all hosts of a buffer's slices answer.
    pub(super) fn is_reached(&self, buffer: &Buffer) -> bool {
        let mut nodes = buffer.slices.iter().filter_map(|slice| slice.node.as_deref());
        nodes.all(|node| self.contact(node) == Contact::Up)
    }

    /// Hosts with bricks that no slice can be made on now.
    pub(super) fn unusable(&self, pools: &[Pool], waits: bool) -> BTreeSet<String> {
        let bricks = pools.iter().flat_map(|pool| pool.bricks.values());
        let nodes: BTreeSet<String> = bricks.filter_map(|brick| brick.node.clone()).collect();
        if let Some(hub) = self.hub().filter(|_| waits) {
            hub.wait_for_agents(&nodes);
        }
        let obeys = |node: &str| self.hub().is_some_and(|hub: &Hub| hub.fault_of(node).is_empty());
        let is_fine =
            |node: &str| self.contact(node) == Contact::Up && obeys(node) && self.trouble_of(node).is_none();
        nodes.into_iter().filter(|node| !is_fine(node)).collect()
    }
}
