//! A member of a replica set, whatever its store: who may change it, who is asked before anything is
//! answered, and under which lease (design note 032). `brindle-oss` and `brindle-mds` decide what is sent to
//! members, and how one is filled.
//!
//! | module | holds |
//! |---|---|
//! | [`seat`] | the set as the MGS wants it, what this member tells of itself, its record on the disk |
//! | [`following`] | a member that is not the primary: whose messages it takes |
//! | [`boot`] | the boot term of a member whose store has none of its own |
//! | [`kept`] | small records beside the store |
//!
//! Invariants: nothing is answered before every member in sync has it, or was taken out of the set by compare-and-swap; a primary answers
//! only while its lease holds; a member takes messages of its highest attachment only.

pub mod boot;
pub mod following;
pub mod kept;
pub mod seat;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_net::latch::Latch;
use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, Transport};
use brindle_stdx::{Mono, Seams, planted};
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::Message;
use brindle_wire::frame::{Frame, Header, decode_reply, encode_body};
use brindle_wire::mgs::replica::{
    ChangeInSyncReq, InSyncChange, NoteOpeningReq, ReplicaMember, ReplicaSetState,
};
use brindle_wire::oss::replica::Attachment;
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;

pub use following::Following;
pub use seat::{ReplicaRecord, Seat};

use crate::{Directory, OWNER_LEASE_MS, OwnerLease};

/// Longest time that a member may take for a change, before the primary goes on without it.
pub const CHANGE_LIMIT_MS: u64 = 4_000;
/// Interval at which the primary renews its lease.
pub const RENEW_EVERY_MS: u64 = 400;
/// Longest time that a member may take to grant a lease.
pub const GRANT_LIMIT_MS: u64 = 1_200;
/// A member that has granted no lease for this long is put out.
const UNGRANTED_MS: u64 = 3_000;
/// A new primary waits this much longer than the lease, since clocks run at different speeds.
const LEASE_MARGIN_MS: u64 = 500;
/// Longest wait for an answer of the MGS, before it is asked again.
const MGS_LIMIT_MS: u64 = 2_000;
/// Pause before the MGS, or a member, is asked again.
const PAUSE_MS: u64 = 100;
/// Longest time that a new primary tries to reach a member in sync, before it goes on without the member.
const ATTACH_LIMIT_MS: u64 = 4_000;

/// Bulk and its checksum, for a message without bulk.
pub const NO_BULK: (Bytes, u32) = (Bytes::new(), 0);

/// A member as its primary reaches it.
pub struct Link {
    /// The member's host.
    pub host: String,
    /// Connection to the member.
    pub peer: Arc<Peer>,
    /// Attachment in whose name messages are sent.
    pub attachment: Attachment,
    /// Boot term of its store when it was attached.
    pub boot_term: u32,
    fs_id: u64,
    target: TargetId,
    seams: Seams,
    /// A [`Standing`], as a number.
    standing: AtomicU8,
    /// Set when the member has missed a change: nothing is sent to it any more, and no answer is waited for.
    failed: Latch,
    /// Moment of its last grant.
    granted: AtomicU64,
    /// Bytes that are available there; `u64::MAX` until it has told.
    available_bytes: AtomicU64,
}

/// Standing of an attached member with its primary. The standing only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The member is being filled. The MGS need not be asked before it is dropped.
    Learner = 0,
    /// The MGS was asked to take the member in, or will be: every answer waits for the member.
    Joining = 1,
    /// The MGS has the member as in sync: every answer waits for the member.
    InSync = 2,
}

fn smallest_room(links: &[Arc<Link>]) -> u64 {
    let required = links.iter().filter(|link| link.is_required());
    required.map(|link| link.available_bytes.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
}

impl Drop for Link {
    fn drop(&mut self) {
        self.peer.stop();
    }
}

impl Link {
    /// Sends a request once.
    pub async fn call<M: Message>(
        &self,
        request: &M,
        (bulk, bulk_crc): (Bytes, u32),
        reply_bulk_max: u32,
        limit_ms: u64,
    ) -> Result<(M::Resp, Bytes)> {
        let header = Header {
            op: M::OP as u16,
            fs_id: self.fs_id,
            target: Some(self.target),
            reply_bulk_max,
            ..Header::default()
        };
        let frame = Frame::new(header, encode_body(request));
        let frame = if bulk.is_empty() { frame } else { frame.with_bulk_crc(vec![bulk], bulk_crc) };
        let silent = || {
            Err(Fault::new(Code::TargetDown)
                .subject(self.host.clone())
                .why(format!("no answer within {limit_ms} ms, or until it was given up")))
        };
        let answer = self.seams.timeout_ms(limit_ms, self.peer.call(frame));
        let reply = self.failed.until(answer).await.flatten().unwrap_or_else(silent)?;
        Ok((decode_reply(&reply)?, reply.bulk_bytes()))
    }

    fn standing(&self) -> u8 {
        self.standing.load(Ordering::Acquire)
    }

    /// Whether every answer waits for this member.
    pub fn is_required(&self) -> bool {
        self.standing() >= Standing::Joining as u8
    }

    /// Raises the standing to at least `standing`.
    pub fn raise(&self, standing: Standing) {
        self.standing.fetch_max(standing as u8, Ordering::AcqRel);
    }

    /// Whether the member has missed a change.
    pub fn has_failed(&self) -> bool {
        self.failed.is_set()
    }

    /// Notes that the member has missed a change.
    pub fn fail(&self, fault: &Fault) {
        if !self.failed.is_set() {
            self.failed.set();
            tracing::warn!(code = %fault.code, member = %self.host, "a member of the replica set cannot go on: {fault}");
        }
    }
}

/// The members that changes go to, at a moment. A change holds the list until it has ended.
#[derive(Default)]
pub struct Links {
    /// Epoch of the set.
    pub epoch: u64,
    /// All but this one.
    pub links: Vec<Arc<Link>>,
}

/// Reactions of a store to changes of its set.
pub trait Follows: Send + Sync {
    /// The set is this from now on.
    fn set_changed(&self, set: &ReplicaSetState);
    /// Changes go to these from now on, or one of them is required that was not.
    fn links_changed(&self, links: &Links);
    /// Fails once the store here cannot go on. From then on no other member is put out of the set for this one's sake.
    fn can_lead(&self) -> Result<()>;
}

/// Surroundings of a member of a set.
pub struct Around {
    /// Id of the file system.
    pub fs_id: u64,
    /// Directory of the member.
    pub dir: String,
    /// Connections to other members.
    pub transport: Arc<dyn Transport>,
    /// The way to the MGS.
    pub targets: Arc<Directory>,
}

/// See the module.
pub struct SetMember {
    /// Place of the member in the set.
    pub seat: Arc<Seat>,
    /// Time, tasks, disk.
    pub seams: Seams,
    /// Sender whose messages the member takes while it follows.
    pub following: Following,
    /// The right to answer.
    pub lease: Arc<OwnerLease>,
    /// Set when another member is the primary.
    pub deposed: Latch,
    around: Around,
    target: TargetId,
    follows: Arc<dyn Follows>,
    is_serving: AtomicBool,
    links: Mutex<Arc<Links>>,
    /// All links that may still be in use.
    published: Mutex<Vec<Weak<Links>>>,
    /// Changes of who is in sync come one after the other.
    changing: tokio::sync::Mutex<()>,
    attachments: AtomicU64,
}

/// Answer of a member that grants a lease: the boot term of its store, and the bytes that are available
/// there.
pub type Grant = (u32, u64);

impl SetMember {
    /// A member that does not serve yet.
    pub fn new(seat: Arc<Seat>, seams: &Seams, around: Around, follows: Arc<dyn Follows>) -> SetMember {
        SetMember {
            target: seat.set().target,
            seat,
            seams: seams.clone(),
            following: Following::default(),
            lease: Arc::new(OwnerLease::new(seams)),
            deposed: Latch::default(),
            around,
            follows,
            is_serving: AtomicBool::new(false),
            links: Mutex::default(),
            published: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            attachments: AtomicU64::new(0),
        }
    }

    /// The set as this host knows it.
    pub fn set(&self) -> ReplicaSetState {
        self.seat.set()
    }

    /// Whether the member serves clients.
    pub fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Acquire)
    }

    /// Notes that the member serves clients from now on.
    pub fn serve(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// Members that changes go to now.
    pub fn current(&self) -> Arc<Links> {
        self.links.lock().clone()
    }

    /// Members that changes went to at some time and may still go to; whoever makes a change holds the ones that it began with.
    pub fn published(&self) -> Vec<Weak<Links>> {
        let mut published = self.published.lock();
        published.retain(|links| links.strong_count() > 0);
        published.clone()
    }

    /// A number for a new attachment: higher than all of this process, and of earlier ones as far as the clock has not gone back.
    fn next_attachment(&self) -> u64 {
        let wall = self.seams.wall();
        let millis = wall.secs.unsigned_abs() * 1000 + u64::from(wall.nanos / 1_000_000);
        let mut last = self.attachments.load(Ordering::Acquire);
        loop {
            let next = millis.max(last + 1);
            match self.attachments.compare_exchange(last, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(now) => last = now,
            }
        }
    }

    /// Completes when the lease that this member may have granted to a former primary has ended.
    pub async fn outlive_granted_lease(&self) {
        if planted("set_serves_within_a_lease") {
            return;
        }
        let set = self.set();
        if set.primary == self.seat.host && self.seat.told().recorded_epoch >= set.epoch {
            // The present member was the primary of this epoch before, and had waited before it recorded the epoch.
            // No other member has asked for a lease since.
            return;
        }
        loop {
            let quiet_ms = self.seams.now().ms_since(self.seat.heard());
            let wanted_ms = OWNER_LEASE_MS + LEASE_MARGIN_MS;
            if quiet_ms >= wanted_ms {
                return;
            }
            self.seams.sleep_ms(wanted_ms - quiet_ms).await;
        }
    }

    /// The smallest free space of the required members: those whose acknowledgement every change needs. A member that is
    /// being filled may be dropped, so it does not count.
    pub fn available_bytes(&self) -> u64 {
        smallest_room(&self.current().links)
    }

    /// A way to a member, with a new attachment that it does not know yet.
    pub fn new_link(&self, member: &ReplicaMember, epoch: u64) -> Link {
        let config = PeerConfig {
            serves: Some(self.target),
            ..PeerConfig::new(self.around.fs_id, PeerKind::Server, self.seat.host.clone())
        };
        let transport = self.around.transport.clone();
        let peer =
            Peer::new(transport, self.seams.clone(), member.nids.clone(), config, Arc::new(NoNotifies));
        Link {
            host: member.host.clone(),
            peer,
            attachment: Attachment { epoch, number: self.next_attachment() },
            boot_term: 0,
            fs_id: self.around.fs_id,
            target: self.target,
            seams: self.seams.clone(),
            standing: AtomicU8::new(Standing::Learner as u8),
            failed: Latch::default(),
            granted: AtomicU64::new(self.seams.now().0),
            available_bytes: AtomicU64::new(u64::MAX),
        }
    }

    /// Result of `attach` for a member in sync. `None` if `attach` fails or takes too long, or if the member
    /// has changed.
    pub async fn reached<T, F: Future<Output = Result<(Arc<Link>, T)>>>(
        &self,
        member: &ReplicaMember,
        attach: impl Fn(u64) -> F,
    ) -> Option<(Arc<Link>, T)> {
        let deadline = self.seams.now().plus_ms(ATTACH_LIMIT_MS);
        loop {
            match attach(self.current().epoch).await {
                Ok((link, with)) if link.boot_term == member.boot_term => return Some((link, with)),
                Ok(_) => return None,
                Err(fault) if self.seams.now() >= deadline => {
                    tracing::warn!(code = %fault.code, member = %member.host, "a member in sync is not reached: {fault}");
                    return None;
                }
                Err(_) => self.seams.sleep_ms(PAUSE_MS).await,
            }
        }
    }

    /// Goes on without the members of `links` that have failed: when the MGS has taken them out of the set.
    pub async fn put_out_failed(&self, links: &Links) -> Result<()> {
        for link in links.links.iter().filter(|link| link.has_failed()) {
            self.put_out(&link.host, Some(link)).await?;
        }
        Ok(())
    }

    /// Has a member taken out of the set. Waits for the MGS, however long it is away: answers depend on its word.
    pub async fn put_out(&self, host: &str, link: Option<&Arc<Link>>) -> Result<()> {
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
        if planted("set_put_out_is_not_stored") || planted("set_answers_before_the_swap") {
            self.replace(|links| links.retain(|now| now.host != host));
        }
        if planted("set_put_out_is_not_stored") {
            return Ok(());
        }
        let change = InSyncChange::Drop { host: host.to_owned() };
        let set = self.swap(change, |set| !set.is_in_sync(host)).await?;
        self.apply(&set)?;
        self.replace(|links| links.retain(|now| now.host != host));
        tracing::warn!(member = host, epoch = set.epoch, "goes on without a member of the replica set");
        Ok(())
    }

    /// Has the MGS take a learner in that has everything, under the boot term that it was filled in. From before that its word is required.
    /// `ready` waits, if need be, until it has everything that was answered without it.
    pub async fn join(&self, link: &Arc<Link>, ready: impl Future<Output = Result<()>>) -> Result<()> {
        let change = InSyncChange::Join { host: link.host.clone(), boot_term: link.boot_term };
        let _turn = self.changing.lock().await;
        self.still_fills(link)?;
        // From here on no request is answered without the member, whatever becomes of the swap.
        link.raise(Standing::Joining);
        self.replace(|_| {});
        ready.await?;
        self.still_fills(link)?;
        let set = self.swap(change, |set| set.is_in_sync(&link.host)).await?;
        self.apply(&set)?;
        tracing::info!(member = %link.host, epoch = set.epoch, "a member of the replica set is in sync");
        Ok(())
    }

    /// Fails once a learner has missed something, or this member does not lead any more.
    pub fn still_fills(&self, link: &Arc<Link>) -> Result<()> {
        let is_linked = self.current().links.iter().any(|now| Arc::ptr_eq(now, link));
        let is_member = self.set().member(&link.host).is_some();
        if is_linked && is_member && !link.has_failed() && !self.deposed.is_set() {
            return Ok(());
        }
        Err(Fault::new(Code::TargetDown).subject(link.host.clone()).why("it has missed a change meanwhile"))
    }

    /// Asks the MGS to change the members in sync, until the change is made.
    async fn swap(
        &self,
        change: InSyncChange,
        is_done: impl Fn(&ReplicaSetState) -> bool,
    ) -> Result<ReplicaSetState> {
        let mut epoch = self.current().epoch.max(self.set().epoch);
        loop {
            if self.deposed.is_set() {
                return Err(Fault::new(Code::NotOwner));
            }
            // The others may be the only ones that have everything.
            self.follows.can_lead().map_err(|fault| Fault::new(Code::NotOwner).why(fault.to_string()))?;
            let request = ChangeInSyncReq { target: self.target, epoch, change: change.clone() };
            match self.seams.timeout_ms(MGS_LIMIT_MS, self.around.targets.mgs().probe(&request)).await {
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
                    if answer.set.member(change.host()).is_none() {
                        return Err(Fault::new(Code::NotPrimary).why("the member was taken away"));
                    }
                }
                Some(Err(fault)) => {
                    tracing::warn!(code = %fault.code, "the MGS does not change the replica set: {fault}")
                }
                None => self.around.targets.map().mgs_is_silent(),
            }
            self.seams.sleep_ms(PAUSE_MS).await;
        }
    }

    /// Before the only member in sync answers anything: a copy of its disk that was made before this opening has a lower epoch than the MGS
    /// knows, so that it is refused. `found_epoch` was recorded on the disk when the store was opened: an epoch above it is new anyway.
    pub async fn note_opening(&self, found_epoch: u64) -> Result<()> {
        let set = self.set();
        let is_alone = set.in_sync().all(|m| m.host == self.seat.host);
        if !is_alone || set.primary != self.seat.host || found_epoch < set.epoch {
            return Ok(());
        }
        let _turn = self.changing.lock().await;
        let Some(set) = self.raised(set.epoch).await? else { return Ok(()) };
        self.apply(&set)?;
        self.until_noted(set.epoch).await
    }

    /// The set with a higher epoch than `epoch`, which the MGS stores for this opening. `None` where the MGS does not raise it.
    async fn raised(&self, epoch: u64) -> Result<Option<ReplicaSetState>> {
        let request = NoteOpeningReq { target: self.target, epoch };
        while !self.deposed.is_set() {
            match self.seams.timeout_ms(MGS_LIMIT_MS, self.around.targets.mgs().probe(&request)).await {
                Some(Ok(answer)) => {
                    if answer.set.primary != self.seat.host {
                        self.depose(&answer.set);
                        break;
                    }
                    self.seat.offer(answer.set.clone());
                    return Ok(Some(answer.set).filter(|set| set.epoch > epoch));
                }
                Some(Err(fault)) if fault.code == Code::UnknownOp => {
                    tracing::info!(
                        "the MGS is of an earlier release: it does not note that the store was opened"
                    );
                    return Ok(None);
                }
                Some(Err(fault)) => {
                    tracing::warn!(code = %fault.code, "the MGS does not note that the store was opened: {fault}");
                }
                None => self.around.targets.map().mgs_is_silent(),
            }
            self.seams.sleep_ms(PAUSE_MS).await;
        }
        Err(Fault::new(Code::NotOwner))
    }

    /// Waits until the MGS knows that the disk has this epoch, or another member is the primary.
    async fn until_noted(&self, epoch: u64) -> Result<()> {
        let is_noted = |set: &ReplicaSetState| {
            set.member(&self.seat.host).is_some_and(|own| own.recorded_epoch >= epoch)
        };
        let mut orders = self.seat.subscribe();
        let known = orders.wait_for(|set| is_noted(set) || set.primary != self.seat.host).await;
        match known.is_ok_and(|set| set.primary == self.seat.host) {
            true => Ok(()),
            false => Err(Fault::new(Code::NotOwner)),
        }
    }

    /// Notes that another member is the primary, as this set says.
    pub fn depose(&self, set: &ReplicaSetState) {
        if !self.deposed.is_set() {
            tracing::warn!(primary = %set.primary, epoch = set.epoch, "another member is the primary now");
            self.deposed.set();
        }
    }

    /// Changes the list of members that changes go to.
    pub fn replace(&self, change: impl FnOnce(&mut Vec<Arc<Link>>)) {
        let mut now = self.links.lock();
        let mut links = now.links.clone();
        change(&mut links);
        let epoch = now.epoch;
        self.publish(&mut now, Links { epoch, links });
    }

    fn publish(&self, now: &mut Arc<Links>, links: Links) {
        let links = Arc::new(links);
        let mut published = self.published.lock();
        published.retain(|links| links.strong_count() > 0);
        published.push(Arc::downgrade(&links));
        *now = links;
        self.follows.links_changed(now);
    }

    /// Goes by a newer set: what is not in sync any more gets nothing more, unless it is a learner that is being filled.
    pub fn apply(&self, set: &ReplicaSetState) -> Result<()> {
        // Before anything is acknowledged in this epoch: a restored configuration may not know it.
        self.seat.record_set(&*self.seams.disk, &self.around.dir, set)?;
        let mut now = self.links.lock();
        if set.epoch < now.epoch {
            return Ok(());
        }
        let stays = |link: &&Arc<Link>| {
            if set.is_in_sync(&link.host) {
                link.raise(Standing::InSync);
                return true;
            }
            match link.standing() {
                // The member was taken out of the set.
                standing if standing == Standing::InSync as u8 => false,
                // The task that fills the member asks the MGS at this moment.
                standing if standing == Standing::Joining as u8 => true,
                _ => set.member(&link.host).is_some() && !link.has_failed(),
            }
        };
        let links: Vec<Arc<Link>> = now.links.iter().filter(stays).cloned().collect();
        let has = |host: &str| host == self.seat.host || links.iter().any(|link| link.host == host);
        if self.is_serving() && set.in_sync().any(|m| !has(&m.host)) {
            // No request may be answered without that member: the target is taken over anew, with all members
            // in sync.
            tracing::error!(
                epoch = set.epoch,
                "a member is in sync that changes are not sent to; this one starts anew"
            );
            self.deposed.set();
        }
        self.publish(&mut now, Links { epoch: set.epoch, links });
        drop(now);
        self.follows.set_changed(set);
        Ok(())
    }

    /// Records the epoch that this member goes by from now on.
    pub fn record(&self, epoch: u64) -> Result<()> {
        self.seat.record(&*self.seams.disk, &self.around.dir, epoch)
    }

    /// Renews the lease once, if every member that is required grants it. `ask` asks one member for a lease.
    pub async fn renew<F: Future<Output = Result<Grant>>>(
        &self,
        ask: impl Fn(Arc<Link>, u64) -> F,
    ) -> Result<()> {
        let (began, links) = (self.seams.now(), self.current());
        self.record(links.epoch)?;
        let answers = join_all(links.links.iter().map(|link| ask(link.clone(), links.epoch))).await;
        let mut granted = true;
        for (link, answer) in links.links.iter().zip(answers) {
            granted &= self.granted(link, began, answer);
        }
        // A member that has come into sync meanwhile grants the next one.
        if granted && !self.deposed.is_set() {
            self.lease.extend(began);
        }
        Ok(())
    }

    /// Whether the lease may be extended as far as a member is concerned.
    fn granted(&self, link: &Link, began: Mono, answer: Result<Grant>) -> bool {
        match answer {
            Ok((boot_term, available_bytes)) if boot_term == link.boot_term => {
                link.granted.fetch_max(began.0, Ordering::AcqRel);
                link.available_bytes.store(available_bytes, Ordering::Release);
                return true;
            }
            Ok(_) => link.fail(&Fault::new(Code::StaleEpoch).why("its store has another boot term")),
            Err(fault) => {
                let granted = Mono(link.granted.load(Ordering::Acquire));
                if self.seams.now().ms_since(granted) > UNGRANTED_MS {
                    link.fail(&fault);
                }
            }
        }
        !link.is_required()
    }
}

#[cfg(test)]
mod tests {
    use brindle_net::TcpTransport;

    use super::*;

    #[tokio::test]
    async fn a_member_that_is_being_filled_takes_no_room_from_the_others() {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let link = |standing: Standing, bytes: u64| {
            let config = PeerConfig::new(7, PeerKind::Server, "a");
            let transport = Arc::new(TcpTransport::new(seams.clone()));
            Arc::new(Link {
                host: "b".to_owned(),
                peer: Peer::new(transport, seams.clone(), Vec::new(), config, Arc::new(NoNotifies)),
                attachment: Attachment { epoch: 1, number: 1 },
                boot_term: 1,
                fs_id: 7,
                target: TargetId::ost(0),
                seams: seams.clone(),
                standing: AtomicU8::new(standing as u8),
                failed: Latch::default(),
                granted: AtomicU64::new(0),
                available_bytes: AtomicU64::new(bytes),
            })
        };
        assert_eq!(smallest_room(&[link(Standing::InSync, 90), link(Standing::Learner, 5)]), 90);
        assert_eq!(smallest_room(&[link(Standing::InSync, 90), link(Standing::Joining, 5)]), 5);
        assert_eq!(smallest_room(&[link(Standing::Learner, 5)]), u64::MAX);
    }
}
