//! The primary of a replica set: takes over, sends every change to all members before it is answered, keeps its lease, and has the MGS take
//! members out of the set that are silent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, Transport};
use brindle_objects::{ALL, RangeLock, ReadOut, Synced};
use brindle_stdx::{BoxFuture, Mono};
use brindle_types::{Code, Fault, ObjectId, Pair, Result};
use brindle_wire::Message;
use brindle_wire::frame::{Frame, Header, decode_reply, encode_body};
use brindle_wire::mgs::replica::{
    ChangeInSyncReq, InSyncChange, MemberPhase, ReplicaMember, ReplicaSetState,
};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::replica::*;
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use futures_util::future::join_all;

use super::{
    CHANGE_LIMIT_MS, GRANT_LIMIT_MS, Link, Links, RENEW_EVERY_MS, Replica, Standing, UNGRANTED_MS, WeakOss,
    mono,
};
use crate::service::Oss;

/// How long the MGS may take for an answer before it is asked again.
const MGS_LIMIT_MS: u64 = 2_000;
/// Pause before it is asked again, and before a member is.
const PAUSE_MS: u64 = 100;
/// How long a new primary tries to reach a member that is in sync before it goes on without it.
const ATTACH_LIMIT_MS: u64 = 4_000;
/// How often marks of objects that are equal are taken away, and most objects at once.
const UNMARK_EVERY_MS: u64 = 3_000;
const UNMARK_MAX: usize = 256;
/// With more marks than that it is done again at once.
const MANY_MARKS: usize = 2048;
/// Bytes of a block, and most bytes that are mended at once: what is damaged is found block by block.
const BLOCK: u64 = 4096;
const MEND_BYTES: u64 = BLOCK;
/// Newer than every epoch.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };
/// How often a change waits for room in the table of marks.
const MARK_TRIES: usize = 50;

/// What goes to the other members for a change.
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

impl Link {
    /// Sends a request once.
    pub(crate) async fn call<M: Message>(
        &self,
        oss: &Oss,
        request: &M,
        (bulk, bulk_crc): (Bytes, u32),
        reply_bulk_max: u32,
        limit_ms: u64,
    ) -> Result<(M::Resp, Bytes)> {
        let header = Header {
            op: M::OP as u16,
            fs_id: oss.identity.fs_id,
            target: Some(oss.identity.target),
            reply_bulk_max,
            ..Header::default()
        };
        let frame = Frame::new(header, encode_body(request));
        let frame = if bulk.is_empty() { frame } else { frame.with_bulk_crc(vec![bulk], bulk_crc) };
        let silent = || {
            Err(Fault::new(Code::TargetDown)
                .subject(self.host.clone())
                .why(format!("no answer within {limit_ms} ms")))
        };
        let reply = oss.seams.timeout_ms(limit_ms, self.peer.call(frame)).await.unwrap_or_else(silent)?;
        Ok((decode_reply(&reply)?, reply.bulk_bytes()))
    }

    /// Sends a change.
    pub(crate) async fn change(&self, oss: &Oss, forward: &Forward) -> Result<()> {
        let request = ReplicaChangeReq { attachment: self.attachment, change: forward.change.clone() };
        let bulk = (forward.bulk.clone(), forward.bulk_crc);
        self.call(oss, &request, bulk, 0, CHANGE_LIMIT_MS).await.map(drop)
    }

    /// Whether nothing is answered without it.
    pub(crate) fn is_required(&self) -> bool {
        self.standing.load(Ordering::Acquire) >= Standing::Joining as u8
    }

    pub(crate) fn raise(&self, standing: Standing) {
        self.standing.fetch_max(standing as u8, Ordering::AcqRel);
    }
}

impl Replica {
    /// Attaches a member: from then on it takes changes of this primary only.
    pub(crate) async fn link(&self, oss: &Oss, member: &ReplicaMember, epoch: u64) -> Result<Arc<Link>> {
        let kind = PeerKind::Server;
        let config = PeerConfig {
            serves: Some(oss.identity.target),
            ..PeerConfig::new(oss.identity.fs_id, kind, self.seat.host.clone())
        };
        let transport: Arc<dyn Transport> = oss.transport.clone();
        let peer =
            Peer::new(transport, self.seams.clone(), member.nids.clone(), config, Arc::new(NoNotifies));
        let mut link = Link {
            host: member.host.clone(),
            peer,
            attachment: Attachment { epoch, number: self.next_attachment() },
            boot_term: 0,
            standing: AtomicU8::new(Standing::Learner as u8),
            has_failed: AtomicBool::new(false),
            granted: AtomicU64::new(self.seams.now().0),
            available_bytes: AtomicU64::new(u64::MAX),
        };
        let request = ReplicaAttachReq { attachment: link.attachment };
        let (answer, _) = link.call(oss, &request, (Bytes::new(), 0), 0, CHANGE_LIMIT_MS).await?;
        link.boot_term = answer.boot_term;
        Ok(Arc::new(link))
    }

    /// Makes a change here and on all members. Changes of one range of an object have one order everywhere.
    pub(crate) async fn change<T>(
        &self,
        oss: &Arc<Oss>,
        objects: &[ObjectId],
        range: Range<u64>,
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
            Err(fault) if is_refusal(fault.code) => return Err(fault),
            Err(fault) => Err(fault),
        };
        // Some of it may have been made here: what that is goes to the others before anybody hears of it.
        drop(held);
        for object in objects {
            for link in links.links.iter().filter(|link| !link.has_failed.load(Ordering::Acquire)) {
                if let Err(fault) = self.make_equal(oss, link, object).await {
                    self.fail(link, &fault);
                }
            }
        }
        self.put_out_failed(oss, &links).await?;
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
        self.put_out_failed(oss, links).await
    }

    async fn send_to(&self, oss: &Oss, link: &Arc<Link>, forward: &Forward) {
        if link.has_failed.load(Ordering::Acquire) {
            return;
        }
        let sent = match link.change(oss, forward).await {
            Err(fault) if fault.code == Code::ObjectDamaged => {
                self.send_blocks(oss, link, forward, fault).await
            }
            other => other,
        };
        match sent {
            Ok(()) => {}
            // A learner that has not been made equal yet may have later epochs of an object; it is made equal with all of it.
            Err(fault) if fault.code == Code::StaleLayout && !link.is_required() => {}
            Err(fault) => self.fail(link, &fault),
        }
    }

    /// A part of a block was written, and that block is damaged on the member: it gets whole ones. The caller keeps changes of them out.
    async fn send_blocks(&self, oss: &Oss, link: &Link, forward: &Forward, fault: Fault) -> Result<()> {
        let ReplicaChange::Write { object, offset, .. } = forward.change else { return Err(fault) };
        let start = offset / BLOCK * BLOCK;
        let len_bytes = (offset + forward.bulk.len() as u64).div_ceil(BLOCK) * BLOCK - start;
        let ticket = Ticket {
            layout_epoch: ANY_EPOCH,
            truncate_epoch: ANY_EPOCH,
            attr_epoch: ANY_EPOCH,
            must_exist: false,
        };
        let read = oss.store.read(object, start, len_bytes, &ticket).await?;
        let (bulk, bulk_crc) = (read.data, read.crc);
        link.change(oss, &Forward { change: ReplicaChange::Put { object, offset: start }, bulk, bulk_crc })
            .await
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
            Err(fault) if fault.code == Code::ObjectDamaged => {
                if !self.mend(oss, req.object, req.offset, len_bytes).await {
                    return Err(fault);
                }
                read().await
            }
            other => other,
        }
    }

    /// Puts bytes of another member in the place of those that are damaged here; whether any were.
    async fn mend(&self, oss: &Oss, object: ObjectId, offset: u64, len_bytes: u64) -> bool {
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
            Err(fault) if fault.code == Code::ObjectDamaged => {}
            other => return other.map(|_| true),
        }
        let request =
            ReplicaReadReq { attachment: link.attachment, object, offset, len_bytes: len_bytes as u32 };
        let (_, data) =
            link.call(oss, &request, (Bytes::new(), 0), len_bytes as u32, CHANGE_LIMIT_MS).await?;
        if data.is_empty() {
            return Ok(false);
        }
        let crc = brindle_stdx::crc(&data);
        // To mend is not to write: the time of the last write stays.
        let (image, _) = oss.store.look(object, 0, 0).await?;
        oss.store.put(object, offset, data, crc).await?;
        oss.store.put_image(object, &image).await?;
        self.mended_blocks.fetch_add(1, Ordering::AcqRel);
        self.seat.tell(|told| told.mended_blocks += 1);
        tracing::warn!(%object, offset, member = %link.host, "a damaged block was mended from another member");
        Ok(true)
    }

    /// A member has missed something.
    pub(crate) fn fail(&self, link: &Link, fault: &Fault) {
        if !link.has_failed.swap(true, Ordering::AcqRel) {
            tracing::warn!(code = %fault.code, member = %link.host, "a member of the replica set cannot go on: {fault}");
        }
    }

    /// Goes on without the members of `links` that have failed: when the MGS has taken them out of the set.
    async fn put_out_failed(&self, oss: &Oss, links: &Links) -> Result<()> {
        for link in links.links.iter().filter(|link| link.has_failed.load(Ordering::Acquire)) {
            self.put_out(oss, &link.host, Some(link)).await?;
        }
        Ok(())
    }

    /// Has a member taken out of the set. Waits for the MGS, however long that is away: without its word nothing is answered.
    pub(crate) async fn put_out(&self, oss: &Oss, host: &str, link: Option<&Arc<Link>>) -> Result<()> {
        let _turn = self.changing.lock().await;
        if let Some(link) = link {
            if !self.current().links.iter().any(|now| Arc::ptr_eq(now, link)) {
                return Ok(());
            }
            if !link.is_required() {
                self.replace(|links| links.retain(|now| !Arc::ptr_eq(now, link)));
                return Ok(());
            }
        }
        let change = InSyncChange::Drop { host: host.to_owned() };
        let set = self.swap(oss, change, |set| !set.is_in_sync(host)).await?;
        self.apply(oss, &set)?;
        self.replace(|links| links.retain(|now| now.host != host));
        tracing::warn!(member = host, epoch = set.epoch, "goes on without a member of the replica set");
        Ok(())
    }

    /// Has the MGS change who is in sync, until that is so.
    pub(crate) async fn swap(
        &self,
        oss: &Oss,
        change: InSyncChange,
        is_done: impl Fn(&ReplicaSetState) -> bool,
    ) -> Result<ReplicaSetState> {
        let mut epoch = self.current().epoch.max(self.set().epoch);
        loop {
            if self.deposed.is_set() {
                return Err(Fault::new(Code::NotOwner));
            }
            let request = ChangeInSyncReq { target: oss.identity.target, epoch, change: change.clone() };
            match self.seams.timeout_ms(MGS_LIMIT_MS, oss.targets.mgs().probe(&request)).await {
                Some(Ok(answer)) => {
                    if answer.set.primary != self.seat.host {
                        self.depose(&answer.set);
                        return Err(Fault::new(Code::NotOwner));
                    }
                    self.seat.offer(answer.set.clone());
                    if is_done(&answer.set) {
                        return Ok(answer.set);
                    }
                    let knew = epoch == answer.set.epoch;
                    epoch = answer.set.epoch;
                    if !knew {
                        continue;
                    }
                    if answer.set.members.len() < 2 {
                        return Err(Fault::new(Code::NotPrimary).why("the member was taken away"));
                    }
                }
                Some(Err(fault)) => {
                    tracing::warn!(code = %fault.code, "the MGS does not change the replica set: {fault}")
                }
                None => oss.targets.map().mgs_is_silent(),
            }
            self.seams.sleep_ms(PAUSE_MS).await;
        }
    }

    pub(crate) fn depose(&self, set: &ReplicaSetState) {
        if !self.deposed.is_set() {
            tracing::warn!(primary = %set.primary, epoch = set.epoch, "another member is the primary now");
            self.deposed.set();
        }
    }

    /// Changes the list of members that changes go to.
    pub(crate) fn replace(&self, change: impl FnOnce(&mut Vec<Arc<Link>>)) {
        let mut now = self.links.lock();
        let mut links = now.links.clone();
        change(&mut links);
        *now = self.publish(Links { epoch: now.epoch, links });
    }

    fn publish(&self, links: Links) -> Arc<Links> {
        let links = Arc::new(links);
        let mut published = self.published.lock();
        published.retain(|links| links.strong_count() > 0);
        published.push(Arc::downgrade(&links));
        links
    }

    /// Goes by a newer set: what is not in sync any more gets nothing more, unless it is a learner that is being filled.
    pub(crate) fn apply(&self, oss: &Oss, set: &ReplicaSetState) -> Result<()> {
        // Before anything is acknowledged in this epoch: a restored configuration may not know it.
        self.seat.record_set(&*oss.seams.disk, &oss.dir, set)?;
        let mut now = self.links.lock();
        if set.epoch < now.epoch {
            return Ok(());
        }
        let stays = |link: &&Arc<Link>| {
            if set.is_in_sync(&link.host) {
                link.raise(Standing::InSync);
                return true;
            }
            match link.standing.load(Ordering::Acquire) {
                // It was taken out.
                standing if standing == Standing::InSync as u8 => false,
                // Whoever fills it asks the MGS at this moment.
                standing if standing == Standing::Joining as u8 => true,
                _ => set.member(&link.host).is_some() && !link.has_failed.load(Ordering::Acquire),
            }
        };
        let links: Vec<Arc<Link>> = now.links.iter().filter(stays).cloned().collect();
        let has = |host: &str| host == self.seat.host || links.iter().any(|link| link.host == host);
        if self.is_serving() && set.in_sync().any(|m| !has(&m.host)) {
            // Nothing may be answered without it: the target is taken over anew, with all who are in sync.
            tracing::error!(
                epoch = set.epoch,
                "a member is in sync that changes are not sent to; this one starts anew"
            );
            self.deposed.set();
        }
        *now = self.publish(Links { epoch: set.epoch, links });
        drop(now);
        if set.term != 0 {
            oss.store.tell_term(set.term);
        }
        Ok(())
    }

    /// Becomes the primary: outlives the lease of the former one, attaches the members in sync, and makes what is marked equal on them.
    pub(crate) async fn take_over(&self, oss: &Arc<Oss>) -> Result<()> {
        self.seat.tell(|told| told.phase = MemberPhase::TakingOver);
        self.following.detach().await;
        self.outlive_granted_lease().await;
        let set = self.set();
        self.seat.record(&*oss.seams.disk, &oss.dir, set.epoch)?;
        self.apply(oss, &set)?;
        for member in set.in_sync().filter(|m| m.host != self.seat.host) {
            match self.reached(oss, member).await {
                Some(link) => {
                    link.raise(Standing::InSync);
                    self.replace(|links| links.push(link));
                }
                None => self.put_out(oss, &member.host, None).await?,
            }
        }
        self.renew(oss).await?;
        let links = self.current();
        for link in &links.links {
            let marked = self.marked_on(oss, link).await.unwrap_or_else(|fault| {
                self.fail(link, &fault);
                Vec::new()
            });
            for object in marked {
                if let Err(fault) = self.make_equal(oss, link, object).await {
                    self.fail(link, &fault);
                    break;
                }
            }
        }
        self.put_out_failed(oss, &links).await
    }

    /// Objects that may differ between this store and a member.
    async fn marked_on(&self, oss: &Oss, link: &Link) -> Result<Vec<ObjectId>> {
        let request =
            ReplicaListReq { attachment: link.attachment, after: None, limit: 0, only_marked: true };
        let (answer, _) = link.call(oss, &request, (Bytes::new(), 0), 0, CHANGE_LIMIT_MS).await?;
        let mut marked = oss.store.marked_objects();
        marked.extend(answer.objects);
        marked.sort_unstable();
        marked.dedup();
        Ok(marked)
    }

    /// A link to a member in sync, if it can be had in time and the member is as it was.
    async fn reached(&self, oss: &Oss, member: &ReplicaMember) -> Option<Arc<Link>> {
        let deadline = self.seams.now().plus_ms(ATTACH_LIMIT_MS);
        loop {
            match self.link(oss, member, self.current().epoch).await {
                Ok(link) if link.boot_term == member.boot_term => return Some(link),
                Ok(_) => return None,
                Err(fault) if self.seams.now() >= deadline => {
                    tracing::warn!(code = %fault.code, member = %member.host, "a member in sync is not reached: {fault}");
                    return None;
                }
                Err(_) => self.seams.sleep_ms(PAUSE_MS).await,
            }
        }
    }

    /// Renews the lease once, if every member that is required grants it.
    pub(crate) async fn renew(&self, oss: &Oss) -> Result<()> {
        let (began, links) = (self.seams.now(), self.current());
        self.seat.record(&*oss.seams.disk, &oss.dir, links.epoch)?;
        let one = |link| Box::pin(self.granted(oss, link, links.epoch, began)) as BoxFuture<'_, bool>;
        let work: Vec<BoxFuture<'_, bool>> = links.links.iter().map(one).collect();
        // A member that has come into sync meanwhile grants the next one.
        if join_all(work).await.iter().all(|granted| *granted) && !self.deposed.is_set() {
            self.lease.extend(began);
        }
        Ok(())
    }

    /// Whether the lease may be extended as far as a member is concerned.
    async fn granted(&self, oss: &Oss, link: &Arc<Link>, epoch: u64, began: Mono) -> bool {
        let request = ReplicaLeaseReq { attachment: link.attachment, epoch };
        match link.call(oss, &request, (Bytes::new(), 0), 0, GRANT_LIMIT_MS).await {
            Ok((answer, _)) if answer.boot_term == link.boot_term => {
                link.granted.fetch_max(began.0, Ordering::AcqRel);
                link.available_bytes.store(answer.available_bytes, Ordering::Release);
                return true;
            }
            Ok(_) => self.fail(link, &Fault::new(Code::StaleEpoch).why("its store has another boot term")),
            Err(fault) => {
                if self.seams.now().ms_since(mono(&link.granted)) > UNGRANTED_MS {
                    self.fail(link, &fault);
                }
            }
        }
        !link.is_required()
    }

    /// Takes marks away from objects that nobody changes now, when all members have synced them.
    async fn unmark(&self, oss: &Arc<Oss>, before: &mut BTreeMap<ObjectId, u64>) -> Result<usize> {
        let now: BTreeMap<ObjectId, u64> = oss.store.marks_in_use().into_iter().collect();
        // What was used since the last look is in use.
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
        if let Err(fault) = replica.renew(&oss).await {
            tracing::error!(code = %fault.code, "cannot renew the lease: {fault}");
        }
        let links = replica.current();
        if let Err(fault) = replica.put_out_failed(&oss, &links).await {
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
