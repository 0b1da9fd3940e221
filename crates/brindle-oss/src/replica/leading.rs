//! The primary of a replica set: takes over, sends every change to all members before it is answered, keeps its lease, and has the MGS take
//! members out of the set that are silent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use brindle_objects::{ALL, RangeLock, ReadOut, Synced};
use brindle_stdx::BoxFuture;
use brindle_stdx::cast::bounded_u32;
use brindle_targets::replica::{
    CHANGE_LIMIT_MS, GRANT_LIMIT_MS, Link, Links, NO_BULK, RENEW_EVERY_MS, Standing,
};
use brindle_types::{Code, Fault, ObjectId, Pair, Result};
use brindle_wire::mgs::replica::{MemberPhase, ReplicaMember};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::replica::*;
use bytes::Bytes;
use futures_util::future::join_all;

use super::resync::Unequal;
use super::{Replica, WeakOss};
use crate::service::Oss;

/// Longest time that a member may take for a change that waits for its disk. A member that hangs is put out sooner, because it grants no
/// lease.
const SLOW_LIMIT_MS: u64 = 8_000;
/// Pause before a full table of marks is looked at again.
const PAUSE_MS: u64 = 100;
/// Interval at which marks of equal objects are taken away, and most objects at once.
const UNMARK_EVERY_MS: u64 = 3_000;
pub(crate) const UNMARK_MAX: usize = 256;
/// Number of marks above which the next round follows at once.
const MANY_MARKS: usize = 2048;
/// Bytes of a block, and most bytes that are mended at once: what is damaged is found block by block.
const BLOCK: u64 = 4096;
const MEND_BYTES: u64 = BLOCK;
/// Newer than every epoch.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };
/// Number of tries of a change to get room in the table of marks.
const MARK_TRIES: usize = 50;

/// Message of a change to the other members.
pub(crate) struct Forward {
    pub(crate) change: ReplicaChange,
    pub(crate) bulk: Bytes,
    pub(crate) bulk_crc: u32,
}

impl Forward {
    pub(crate) fn plain(change: ReplicaChange) -> Forward {
        Forward { change, bulk: Bytes::new(), bulk_crc: 0 }
    }
}

/// Sends a change.
pub(crate) async fn send_change(link: &Link, forward: &Forward) -> Result<()> {
    let request = ReplicaChangeReq { attachment: link.attachment, change: forward.change.clone() };
    let bulk = (forward.bulk.clone(), forward.bulk_crc);
    link.call(&request, bulk, 0, limit_ms(&forward.change)).await.map(drop)
}

fn limit_ms(change: &ReplicaChange) -> u64 {
    use ReplicaChange::*;
    match change {
        Write { sync: false, .. } | Put { .. } | PutHole { .. } | PutImage { .. } => CHANGE_LIMIT_MS,
        Write { sync: true, .. } | Punch { .. } | Allocate { .. } | Truncate { .. } | Forget { .. } => {
            SLOW_LIMIT_MS
        }
        Destroy { .. } | FenceLayout { .. } | FenceSession { .. } => SLOW_LIMIT_MS,
        Sync { .. } | SyncAll | Unmark { .. } => SLOW_LIMIT_MS,
    }
}

impl Replica {
    /// Attaches a member: from then on it takes changes of this primary only.
    pub(crate) async fn link(&self, member: &ReplicaMember, epoch: u64) -> Result<(Arc<Link>, ())> {
        let mut link = self.new_link(member, epoch);
        let request = ReplicaAttachReq { attachment: link.attachment };
        let (answer, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
        link.boot_term = answer.boot_term;
        Ok((Arc::new(link), ()))
    }

    /// Makes a change here and on all members. Changes of one range of an object have one order everywhere. A change that is made
    /// `in_steps` may be refused in the middle.
    pub(crate) async fn change<T>(
        &self,
        oss: &Arc<Oss>,
        objects: &[ObjectId],
        (range, in_steps): (Range<u64>, bool),
        local: impl Future<Output = Result<T>>,
        forward: impl FnOnce() -> Option<Forward>,
    ) -> Result<T> {
        let mut objects = objects.to_vec();
        objects.sort_unstable();
        objects.dedup();
        let locks: Vec<Arc<RangeLock>> = objects.iter().map(|object| self.lock_of(*object)).collect();
        let mut held = Vec::with_capacity(locks.len());
        for lock in &locks {
            held.push(lock.write(range.clone()).await);
        }
        let links = self.current();
        self.mark(oss, &objects).await?;
        let failed = match local.await {
            Ok(done) => match forward() {
                Some(forward) => {
                    self.send(oss, &links, &forward).await?;
                    return Ok(done);
                }
                None => Ok(done),
            },
            Err(fault) if is_refusal(fault.code) && !in_steps => return Err(fault),
            // The other one has everything, and is to go on.
            Err(fault) if oss.store.has_ended() || !in_steps && self.gives_way(&oss.store, &fault) => {
                return Err(fault);
            }
            Err(fault) => Err(fault),
        };
        // Some of it may have been made here: what that is goes to the others before anybody hears of it.
        drop(held);
        for object in objects {
            for link in links.links.iter().filter(|link| !link.has_failed()) {
                match self.make_equal(oss, link, object).await {
                    Ok(()) => {}
                    Err(Unequal::There(fault)) => link.fail(&fault),
                    // The mark stays, and the next primary makes the object equal.
                    Err(Unequal::Here(fault)) => {
                        self.gives_way(&oss.store, &fault);
                        return Err(fault);
                    }
                }
            }
        }
        self.put_out_failed(&links).await?;
        failed
    }

    async fn mark(&self, oss: &Arc<Oss>, objects: &[ObjectId]) -> Result<()> {
        for _ in 0..MARK_TRIES {
            match oss.store.mark_objects(objects).await {
                // The background task takes marks away.
                Err(fault) if fault.code == Code::Overloaded => self.seams.sleep_ms(PAUSE_MS).await,
                other => return other,
            }
        }
        Err(Fault::new(Code::Overloaded).why("the table of marks of the replica set stays full"))
    }

    /// Sends something to the members of `links`; on return each has it, or nothing depends on it any more.
    pub(crate) async fn send(&self, oss: &Oss, links: &Links, forward: &Forward) -> Result<()> {
        let one = |link| Box::pin(self.send_to(oss, link, forward)) as BoxFuture<'_, ()>;
        let work: Vec<BoxFuture<'_, ()>> = links.links.iter().map(one).collect();
        join_all(work).await;
        if let Some(fault) = oss.store.failure() {
            return Err(fault);
        }
        self.put_out_failed(links).await
    }

    async fn send_to(&self, oss: &Oss, link: &Arc<Link>, forward: &Forward) {
        if link.has_failed() {
            return;
        }
        let sent = match send_change(link, forward).await {
            Err(fault) if fault.code == Code::ObjectDamaged => {
                match send_blocks(oss, link, forward, fault).await {
                    // The member lacks the change because the primary cannot read it back: the mark says so to the next one.
                    Err(Unequal::Here(fault)) if self.gives_way(&oss.store, &fault) => return,
                    other => other.map_err(Unequal::fault),
                }
            }
            other => other,
        };
        match sent {
            Ok(()) => {}
            // A learner that has not been made equal yet may have later epochs of an object; it is made equal with all of it.
            Err(fault) if fault.code == Code::StaleLayout && !link.is_required() => {}
            Err(fault) => link.fail(&fault),
        }
    }

    /// Syncs objects here and on all members.
    pub(crate) async fn sync(&self, oss: &Oss, objects: &[ObjectId]) -> Result<Synced> {
        let links = self.current();
        let forward = Forward::plain(ReplicaChange::Sync { objects: objects.to_vec() });
        let (here, there) = tokio::join!(oss.store.sync(objects), self.send(oss, &links, &forward));
        there?;
        here
    }

    /// Reads an object: behind changes of the same bytes that are not everywhere yet. A block that is damaged here is mended from another member.
    pub(crate) async fn read(&self, oss: &Oss, req: &ReadReq) -> Result<ReadOut> {
        let len_bytes = u64::from(req.len_bytes);
        let lock = self.lock_of(req.object);
        let read = async || {
            let _shared = lock.read(req.offset..req.offset.saturating_add(len_bytes)).await;
            oss.store.read(req.object, req.offset, len_bytes, &req.ticket).await
        };
        match read().await {
            // A sector that cannot be read may be written: that is tried before another member takes over.
            Err(fault) if matches!(fault.code, Code::ObjectDamaged | Code::OstIo) => {
                if !self.mend(oss, req.object, req.offset, len_bytes).await {
                    return Err(fault);
                }
                read().await
            }
            other => other,
        }
    }

    /// Replaces damaged local blocks by those of another member. Returns whether any were damaged.
    pub(crate) async fn mend(&self, oss: &Oss, object: ObjectId, offset: u64, len_bytes: u64) -> bool {
        let start = offset / BLOCK * BLOCK;
        let end = offset.saturating_add(len_bytes).div_ceil(BLOCK) * BLOCK;
        let lock = self.lock_of(object);
        let _alone = lock.write(ALL).await;
        for link in self.current().links.iter().filter(|link| link.is_required()) {
            let mut at = start;
            let mut mended = true;
            while at < end && mended {
                let wanted = (end - at).min(MEND_BYTES);
                mended = self.mend_piece(oss, link, object, (at, wanted)).await.unwrap_or_else(|fault| {
                    tracing::warn!(code = %fault.code, %object, member = %link.host, "cannot mend a damaged block: {fault}");
                    false
                });
                at += wanted;
            }
            if mended {
                return true;
            }
        }
        false
    }

    async fn mend_piece(
        &self,
        oss: &Oss,
        link: &Link,
        object: ObjectId,
        (offset, len_bytes): (u64, u64),
    ) -> Result<bool> {
        let ticket = Ticket {
            layout_epoch: ANY_EPOCH,
            truncate_epoch: ANY_EPOCH,
            attr_epoch: ANY_EPOCH,
            must_exist: false,
        };
        match oss.store.read(object, offset, len_bytes, &ticket).await {
            Err(fault) if matches!(fault.code, Code::ObjectDamaged | Code::OstIo) => {}
            other => return other.map(|_| true),
        }
        let len_bytes = bounded_u32(len_bytes);
        let request = ReplicaReadReq { attachment: link.attachment, object, offset, len_bytes };
        let (_, data) = link.call(&request, NO_BULK, len_bytes, CHANGE_LIMIT_MS).await?;
        if data.is_empty() {
            return Ok(false);
        }
        let crc = brindle_stdx::crc(&data);
        // Durable before the lock is given up.
        oss.store.mend(object, offset, data, crc).await?;
        self.count_mended(1);
        tracing::warn!(%object, offset, member = %link.host, "a damaged block was mended from another member");
        Ok(true)
    }

    /// Becomes the primary: outlives the lease of the former one, attaches the members in sync, and makes what is marked equal on them.
    pub(crate) async fn take_over(self: &Arc<Self>, oss: &Arc<Oss>) -> Result<()> {
        let found_epoch = self.seat.told().recorded_epoch;
        self.seat.tell(|told| told.phase = MemberPhase::TakingOver);
        self.following.detach().await;
        self.outlive_granted_lease().await;
        // Repair what a crash left here first, so that it is not copied to members that have it whole.
        self.settle(oss).await?;
        let set = self.set();
        self.record(set.epoch)?;
        self.apply(&set)?;
        for member in set.in_sync().filter(|m| m.host != self.seat.host) {
            match self.reached(member, |epoch| self.link(member, epoch)).await {
                Some((link, ())) => {
                    link.raise(Standing::InSync);
                    self.replace(|links| links.push(link));
                }
                None => self.put_out(&member.host, None).await?,
            }
        }
        self.note_opening(found_epoch).await?;
        self.renew_lease().await?;
        let links = self.current();
        for link in &links.links {
            let marked = self.marked_on(oss, link).await.unwrap_or_else(|fault| {
                link.fail(&fault);
                Vec::new()
            });
            for object in marked {
                match self.make_equal(oss, link, object).await {
                    Ok(()) => {}
                    Err(Unequal::There(fault)) => {
                        link.fail(&fault);
                        break;
                    }
                    Err(Unequal::Here(fault)) => return Err(fault),
                }
            }
        }
        self.put_out_failed(&links).await
    }

    /// Objects that may differ between this store and a member.
    async fn marked_on(&self, oss: &Oss, link: &Link) -> Result<Vec<ObjectId>> {
        let request =
            ReplicaListReq { attachment: link.attachment, after: None, limit: 0, only_marked: true };
        let (answer, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
        let mut marked = oss.store.marked_objects();
        marked.extend(answer.objects);
        marked.sort_unstable();
        marked.dedup();
        Ok(marked)
    }

    /// Renews the lease once, if every member that is required grants it.
    pub(crate) async fn renew_lease(&self) -> Result<()> {
        let ask = async |link: Arc<Link>, epoch| {
            let request = ReplicaLeaseReq { attachment: link.attachment, epoch };
            let (answer, _) = link.call(&request, NO_BULK, 0, GRANT_LIMIT_MS).await?;
            Ok((answer.boot_term, answer.available_bytes))
        };
        self.renew(ask).await
    }

    /// Takes marks away from objects that nobody changes now, when all members have synced them.
    async fn unmark(&self, oss: &Arc<Oss>, before: &mut BTreeMap<ObjectId, u64>) -> Result<usize> {
        let now: BTreeMap<ObjectId, u64> = oss.store.marks_in_use().into_iter().collect();
        // An object used since the last look is in use.
        let idle =
            now.iter().filter(|(object, uses)| before.get(object) == Some(uses)).map(|(object, _)| *object);
        let objects: Vec<ObjectId> = idle.take(UNMARK_MAX).collect();
        let left = now.len() - objects.len();
        *before = now;
        if objects.is_empty() {
            return Ok(left);
        }
        // In order, as every change of several objects.
        let locks: Vec<Arc<RangeLock>> = objects.iter().map(|object| self.lock_of(*object)).collect();
        let mut held = Vec::with_capacity(locks.len());
        for lock in &locks {
            held.push(lock.write(ALL).await);
        }
        self.sync(oss, &objects).await?;
        let links = self.current();
        let unmark = Forward::plain(ReplicaChange::Unmark { objects: objects.clone() });
        self.send(oss, &links, &unmark).await?;
        oss.store.unmark_objects(&objects).await?;
        Ok(left)
    }
}

/// A part of a block was written, and that block is damaged on the member: it gets whole ones. The caller keeps changes of them out.
async fn send_blocks(
    oss: &Oss,
    link: &Link,
    forward: &Forward,
    fault: Fault,
) -> std::result::Result<(), Unequal> {
    let ReplicaChange::Write { object, offset, .. } = forward.change else {
        return Err(Unequal::There(fault));
    };
    let start = offset / BLOCK * BLOCK;
    let len_bytes = (offset + forward.bulk.len() as u64).div_ceil(BLOCK) * BLOCK - start;
    let ticket = Ticket {
        layout_epoch: ANY_EPOCH,
        truncate_epoch: ANY_EPOCH,
        attr_epoch: ANY_EPOCH,
        must_exist: false,
    };
    let read = oss.store.read(object, start, len_bytes, &ticket).await.map_err(Unequal::Here)?;
    let (bulk, bulk_crc) = (read.data, read.crc);
    let put = Forward { change: ReplicaChange::Put { object, offset: start }, bulk, bulk_crc };
    send_change(link, &put).await.map_err(Unequal::There)
}

/// Whether a fault says that nothing was changed.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::StaleLayout
            | Code::ObjectMissing
            | Code::Fenced
            | Code::StaleSession
            | Code::BadChecksum
            | Code::TooLarge
            | Code::Overloaded
    )
}

/// Renews the lease for as long as the OST runs.
pub(crate) async fn keep_lease(oss: WeakOss) {
    while let Some(oss) = oss.upgrade() {
        let Some(replica) = oss.replica.clone() else { return };
        if let Err(fault) = replica.renew_lease().await {
            tracing::error!(code = %fault.code, "cannot renew the lease: {fault}");
        }
        let links = replica.current();
        if let Err(fault) = replica.put_out_failed(&links).await {
            tracing::debug!(code = %fault.code, "{fault}");
        }
        let seams = oss.seams.clone();
        drop(oss);
        seams.sleep_ms(RENEW_EVERY_MS).await;
    }
}

/// Takes marks away for as long as the OST runs. Members that are not in sync are made equal without marks.
pub(crate) async fn unmark(oss: WeakOss) {
    let mut before = BTreeMap::new();
    while let Some(oss) = oss.upgrade() {
        let Some(replica) = oss.replica.clone() else { return };
        let left = replica.unmark(&oss, &mut before).await.unwrap_or_else(|fault| {
            tracing::warn!(code = %fault.code, "cannot take marks of equal objects away: {fault}");
            0
        });
        let seams = oss.seams.clone();
        drop((oss, replica));
        seams.sleep_ms(if left > MANY_MARKS { PAUSE_MS } else { UNMARK_EVERY_MS }).await;
    }
}
