//! Makes objects of a member equal to those of the primary, by their checksums.
//!
//! A learner is attached first: from then on it gets every change. Then each object is compared, in pieces, under the
//! lock that orders its changes, and blocks that differ are copied. The learner forgets objects that the primary does
//! not have. When it has synced everything it joins by compare-and-swap. From just before that, every answer waits
//! for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_objects::{ALL, RangeLock};
use brindle_stdx::cast::{bounded_u32, len_u32, to_usize};
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, Links, NO_BULK};
use brindle_types::{Code, Fault, ObjectId, Pair, Result};
use brindle_wire::mgs::replica::{MemberRole, ReplicaMember, Resync};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::replica::*;
use bytes::Bytes;

use super::leading::{Forward, UNMARK_MAX, send_change};
use super::{Replica, WeakOss};
use crate::service::Oss;

const BLOCK: u64 = 4096;
/// Bytes of an object that are compared, and kept from changes, at once.
const PIECE_BYTES: u64 = 16 << 20;
/// Most bytes of one message.
const COPY_BYTES: u64 = 1 << 20;
/// Objects of one page of a list.
const PAGE: usize = 1024;
/// Interval of the search for learners.
const LOOK_EVERY_MS: u64 = 500;
/// Pause before a learner that failed is tried again.
const AGAIN_MS: u64 = 1_000;
/// Longest time that the sync of a learner's whole store may take.
const SYNC_LIMIT_MS: u64 = 120_000;
/// Longest time that changes may take which began before a learner was attached.
const EARLIER_LIMIT_MS: u64 = 60_000;
const EARLIER_LOOK_MS: u64 = 10;
/// Newer than every epoch.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };

/// Progress of one resync.
#[derive(Default)]
struct Progress {
    done_bytes: AtomicU64,
    copied_bytes: AtomicU64,
}

/// Reason why an object of a member could not be made equal, and whose trouble that is.
#[derive(Debug)]
pub(crate) enum Unequal {
    /// The object cannot be read here: no reason to go on without the other member.
    Here(Fault),
    /// The member does not take the change.
    There(Fault),
}

impl Unequal {
    pub(crate) fn as_fault(&self) -> &Fault {
        match self {
            Unequal::Here(fault) | Unequal::There(fault) => fault,
        }
    }

    pub(crate) fn fault(self) -> Fault {
        match self {
            Unequal::Here(fault) | Unequal::There(fault) => fault,
        }
    }
}

type Equalled = std::result::Result<(), Unequal>;

/// Checksum of a block, counted from the first of `sums`.
pub(crate) fn sum_at(sums: &Bytes, index: u64) -> u32 {
    let at = to_usize(index) * 4;
    // Blocks behind the end of an object are zeros, and so are their checksums.
    sums.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// First block among these findings.
pub(crate) fn earliest(found: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    found.into_iter().flatten().min()
}

impl Replica {
    /// Makes an object of a member equal to the one here. The caller holds no lock of it.
    pub(crate) async fn make_equal(&self, oss: &Oss, link: &Link, object: ObjectId) -> Equalled {
        self.make_equal_counted(oss, link, object, &Progress::default()).await
    }

    async fn make_equal_counted(
        &self,
        oss: &Oss,
        link: &Link,
        object: ObjectId,
        progress: &Progress,
    ) -> Equalled {
        use Unequal::{Here, There};
        let lock = self.lock_of(object);
        let mut from = 0;
        {
            let _alone = lock.write(ALL).await;
            let (own, _) = oss.store.look(object, 0, 0).await.map_err(Here)?;
            let theirs = self.look_at(link, object, 0, 0).await.map_err(There)?.0.image;
            let is_beyond = theirs.exists && !own.exists
                || theirs.len_bytes > own.len_bytes
                || theirs.layout_epoch > own.layout_epoch
                || theirs.truncate_epoch > own.truncate_epoch;
            if is_beyond && own.exists && link.is_required() {
                // The object may be needed before all of it is there again: the member is filled outside of the set.
                return Err(There(
                    Fault::new(Code::StaleLayout)
                        .subject(format!("object {object}"))
                        .why("it has more of an object than the primary"),
                ));
            }
            if is_beyond {
                send_change(link, &Forward::plain(ReplicaChange::Forget { object })).await.map_err(There)?;
            }
        }
        loop {
            if self.deposed.is_set() {
                return Err(Here(Fault::new(Code::NotOwner)));
            }
            let piece = from..from + PIECE_BYTES;
            let _alone = lock.write(piece.clone()).await;
            let (own, _) = oss.store.look(object, 0, 0).await.map_err(Here)?;
            if !own.exists || own.len_bytes <= piece.start {
                break;
            }
            let end = own.len_bytes.min(piece.end);
            let next = self.copy_piece(oss, link, object, (piece.start, end), progress).await?;
            progress.done_bytes.fetch_add(end - piece.start, Ordering::AcqRel);
            // Up to `next` both sides have holes. A later write into them goes to both sides.
            let Some(next) = next else { break };
            from = (next * BLOCK).max(piece.end);
        }
        let _alone = lock.write(ALL).await;
        let (own, _) = oss.store.look(object, 0, 0).await.map_err(Here)?;
        let theirs = self.look_at(link, object, 0, 0).await.map_err(There)?.0.image;
        if own != theirs {
            send_change(link, &Forward::plain(ReplicaChange::PutImage { object, image: own }))
                .await
                .map_err(There)?;
        }
        self.forget_damaged(&link.host, object);
        Ok(())
    }

    async fn look_at(
        &self,
        link: &Link,
        object: ObjectId,
        from_block: u64,
        blocks: u64,
    ) -> Result<(ReplicaLookResp, Bytes)> {
        let request = ReplicaLookReq { attachment: link.attachment, object, from_block, blocks };
        let room = bounded_u32(blocks * 4);
        link.call(&request, NO_BULK, room, CHANGE_LIMIT_MS).await
    }

    /// Blocks of a member that do not match their checksums: looked for only where damage was seen before.
    async fn damaged_at(
        &self,
        link: &Link,
        object: ObjectId,
        (first, count): (u64, u64),
    ) -> Result<BTreeSet<u64>> {
        let mut damaged = BTreeSet::new();
        if !self.is_noted_damaged(&link.host, object) {
            return Ok(damaged);
        }
        let mut next = Some(first);
        while let Some(from_block) = next.filter(|from_block| *from_block < first + count) {
            let blocks = VERIFY_BLOCKS_MAX.min(first + count - from_block);
            let request = ReplicaVerifyReq { attachment: link.attachment, object, from_block, blocks };
            match link.call(&request, NO_BULK, bounded_u32(blocks * 4), CHANGE_LIMIT_MS).await {
                Ok((seen, _)) => {
                    damaged.extend(seen.damaged_blocks);
                    next = seen.next_data.filter(|next| *next > from_block);
                }
                // Blocks that the disk does not return can still be overwritten.
                Err(fault) if fault.code == Code::OstIo => {
                    damaged.extend(from_block..from_block + blocks);
                    next = Some(from_block + blocks);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(damaged)
    }

    /// Copies the blocks that differ in a range that begins at a block. Returns the first block behind it that may have data here
    /// or there.
    async fn copy_piece(
        &self,
        oss: &Oss,
        link: &Link,
        object: ObjectId,
        (start, end): (u64, u64),
        progress: &Progress,
    ) -> std::result::Result<Option<u64>, Unequal> {
        let (first, count) = (start / BLOCK, (end - start).div_ceil(BLOCK));
        let (_, own) = oss.store.look(object, first, count).await.map_err(Unequal::Here)?;
        let (seen, theirs) = self.look_at(link, object, first, count).await.map_err(Unequal::There)?;
        let damaged = self.damaged_at(link, object, (first, count)).await.map_err(Unequal::There)?;
        let differs = |n: u64| sum_at(&own, n) != sum_at(&theirs, n) || damaged.contains(&(first + n));
        let mut n = 0;
        while n < count {
            if !differs(n) {
                n += 1;
                continue;
            }
            let is_hole = sum_at(&own, n) == 0;
            let mut stop = n + 1;
            while stop < count
                && differs(stop)
                && (sum_at(&own, stop) == 0) == is_hole
                && (stop - n) * BLOCK < COPY_BYTES
            {
                stop += 1;
            }
            let (offset, until) = (start + n * BLOCK, (start + stop * BLOCK).min(end));
            self.copy_run(oss, link, object, (offset, until), is_hole).await?;
            progress.copied_bytes.fetch_add(until - offset, Ordering::AcqRel);
            n = stop;
        }
        let own_next = oss.store.next_data(object, first + count).await.map_err(Unequal::Here)?;
        Ok(earliest([own_next, seen.next_data]))
    }

    /// Copies a run of whole blocks; the last one may end with the object.
    pub(crate) async fn copy_run(
        &self,
        oss: &Oss,
        link: &Link,
        object: ObjectId,
        (offset, until): (u64, u64),
        is_hole: bool,
    ) -> Equalled {
        let len_bytes = until - offset;
        if is_hole {
            let change = ReplicaChange::PutHole { object, offset, len_bytes };
            return send_change(link, &Forward::plain(change)).await.map_err(Unequal::There);
        }
        let ticket = Ticket {
            layout_epoch: ANY_EPOCH,
            truncate_epoch: ANY_EPOCH,
            attr_epoch: ANY_EPOCH,
            must_exist: false,
        };
        let read = oss.store.read(object, offset, len_bytes, &ticket).await.map_err(Unequal::Here)?;
        let forward =
            Forward { change: ReplicaChange::Put { object, offset }, bulk: read.data, bulk_crc: read.crc };
        send_change(link, &forward).await.map_err(Unequal::There)
    }

    /// Fills a learner and has it join.
    async fn fill(
        self: &Arc<Self>,
        oss: &Arc<Oss>,
        member: &ReplicaMember,
        progress: &Progress,
    ) -> Result<()> {
        let epoch = self.set().epoch;
        let (link, ()) = self.link(member, epoch).await?;
        self.replace(|links| links.push(link.clone()));
        let filled = self.fill_attached(oss, &link, progress).await;
        if let Err(fault) = &filled {
            link.fail(fault);
            self.put_out(&link.host, Some(&link)).await?;
        }
        filled
    }

    async fn fill_attached(
        self: &Arc<Self>,
        oss: &Arc<Oss>,
        link: &Arc<Link>,
        progress: &Progress,
    ) -> Result<()> {
        // Changes that began before do not go to it: when they have ended the comparison finds them.
        let lacks = |links: &Weak<Links>| {
            links.upgrade().is_some_and(|links| !links.links.iter().any(|now| Arc::ptr_eq(now, link)))
        };
        let earlier: Vec<Weak<Links>> = self.published();
        let deadline = self.seams.now().plus_ms(EARLIER_LIMIT_MS);
        while earlier.iter().any(lacks) {
            if self.seams.now() >= deadline {
                return Err(Fault::new(Code::TargetDown).why("earlier changes do not end"));
            }
            self.seams.sleep_ms(EARLIER_LOOK_MS).await;
        }
        let mut after = None;
        loop {
            let (listed, end) = oss.store.list(after, PAGE).await?;
            for listed in &listed {
                self.still_fills(link)?;
                self.make_equal_counted(oss, link, listed.object, progress).await.map_err(Unequal::fault)?;
            }
            let filled: Vec<ObjectId> = listed.iter().map(|l| l.object).collect();
            let sync = ReplicaChange::Sync { objects: filled.clone() };
            let sync = ReplicaChangeReq { attachment: link.attachment, change: sync };
            link.call(&sync, NO_BULK, 0, SYNC_LIMIT_MS).await?;
            self.unmark_equal(oss, link, filled).await?;
            after = listed.last().map(|l| l.object).or(after);
            if end {
                break;
            }
        }
        self.forget_extra(oss, link).await?;
        let sync = ReplicaChangeReq { attachment: link.attachment, change: ReplicaChange::SyncAll };
        link.call(&sync, NO_BULK, 0, SYNC_LIMIT_MS).await?;
        // Remove old marks, too, of objects that were not changed since.
        let request =
            ReplicaListReq { attachment: link.attachment, after: None, limit: 0, only_marked: true };
        let (answer, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
        self.unmark_equal(oss, link, answer.objects).await?;
        self.still_fills(link)?;
        self.join(link, async { Ok(()) }).await
    }

    /// Removes a learner's marks of objects that it has synced and that have no mark here: its table has room for a limited number of
    /// objects.
    async fn unmark_equal(&self, oss: &Oss, link: &Link, mut objects: Vec<ObjectId>) -> Result<()> {
        objects.sort_unstable();
        for some in objects.chunks(UNMARK_MAX) {
            // In order, as every change of several objects.
            let locks: Vec<Arc<RangeLock>> = some.iter().map(|object| self.lock_of(*object)).collect();
            let mut held = Vec::with_capacity(locks.len());
            for lock in &locks {
                held.push(lock.write(ALL).await);
            }
            // A change marks the object here first, under its lock, and then on the members.
            let marked: BTreeSet<ObjectId> = oss.store.marked_objects().into_iter().collect();
            let equal: Vec<ObjectId> =
                some.iter().copied().filter(|object| !marked.contains(object)).collect();
            send_change(link, &Forward::plain(ReplicaChange::Unmark { objects: equal })).await?;
        }
        Ok(())
    }

    /// Has the learner forget objects that the primary does not have.
    async fn forget_extra(&self, oss: &Oss, link: &Link) -> Result<()> {
        let mut after = None;
        loop {
            let request = ReplicaListReq {
                attachment: link.attachment,
                after,
                limit: len_u32(PAGE),
                only_marked: false,
            };
            let (answer, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
            for object in &answer.objects {
                let lock = self.lock_of(*object);
                let _alone = lock.write(ALL).await;
                let (own, _) = oss.store.look(*object, 0, 0).await?;
                if own == ObjectImage::default() {
                    send_change(link, &Forward::plain(ReplicaChange::Forget { object: *object })).await?;
                }
            }
            after = answer.objects.last().copied().or(after);
            if answer.end || answer.objects.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Fills learners for as long as the OST runs, one after the other.
pub(crate) async fn fill_learners(oss: WeakOss) {
    while let Some(oss) = oss.upgrade() {
        let Some(replica) = oss.replica.clone() else { return };
        let set = replica.set();
        let is_linked = |host: &str| replica.current().links.iter().any(|link| link.host == host);
        let mut hosts = BTreeSet::new();
        for member in set.members.iter().filter(|m| m.role == MemberRole::Learner) {
            hosts.insert(member.host.clone());
            if member.is_formatted && !member.nids.is_empty() && !is_linked(&member.host) {
                fill_one(&oss, &replica, member).await;
            }
        }
        replica.seat.tell(|told| told.resyncs.retain(|resync| hosts.contains(&resync.host)));
        let seams = oss.seams.clone();
        drop((oss, replica));
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Bytes that all objects take on the disk; 0 where that cannot be told.
async fn all_bytes(oss: &Oss) -> u64 {
    let (mut after, mut bytes) = (None, 0u64);
    while let Ok((listed, end)) = oss.store.list(after, PAGE).await {
        // The lengths come from a disk, so their sum may overflow.
        bytes = listed.iter().fold(bytes, |sum, l| sum.saturating_add(l.allocated_bytes));
        after = listed.last().map(|l| l.object).or(after);
        if end {
            break;
        }
    }
    bytes
}

async fn fill_one(oss: &Arc<Oss>, replica: &Arc<Replica>, member: &ReplicaMember) {
    let (began, progress) = (oss.seams.now(), Arc::new(Progress::default()));
    let total_bytes = all_bytes(oss).await;
    let tell = |trouble: String| {
        let resync = Resync {
            host: member.host.clone(),
            // Pieces count with their holes.
            done_bytes: progress.done_bytes.load(Ordering::Acquire).min(total_bytes),
            total_bytes,
            copied_bytes: progress.copied_bytes.load(Ordering::Acquire),
            running_ms: oss.seams.now().ms_since(began),
            trouble,
        };
        replica.seat.tell(|told| {
            told.resyncs.retain(|other| other.host != resync.host);
            told.resyncs.push(resync);
        });
    };
    let mut filling = std::pin::pin!(replica.fill(oss, member, &progress));
    let filled = loop {
        if let Some(filled) = oss.seams.timeout_ms(LOOK_EVERY_MS, &mut filling).await {
            break filled;
        }
        tell(String::new());
    };
    match filled {
        Ok(()) => replica.seat.tell(|told| told.resyncs.retain(|other| other.host != member.host)),
        Err(fault) => {
            tracing::warn!(code = %fault.code, member = %member.host, "cannot fill a member of the replica set: {fault}");
            tell(fault.why.first().map_or_else(|| fault.what.to_string(), ToString::to_string));
            oss.seams.sleep_ms(AGAIN_MS).await;
        }
    }
}
