//! Some blocks of one object, on this member and on all others that are in sync: verified, compared by their checksums, mended.
//!
//! | found | what is done |
//! |---|---|
//! | nothing wrong | nothing; no change of the object has waited |
//! | something wrong | looked at again under the lock that orders changes of the object |
//! | a block does not match its checksum on one member | written anew from a member where it does |
//! | it does on none | named, and kept among the findings of the store |
//! | blocks match, and differ between members | looked at again; at last the member gets the primary's, which is what readers were given |
//! | nothing of the object can be read on a member | the member is taken out of the set and filled anew, if the object is whole here |

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_objects::{ALL, DamagedBlock, Verified};
use brindle_stdx::cast::bounded_u32;
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, NO_BULK};
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::oss::replica::{
    ReplicaChange, ReplicaLookReq, ReplicaVerifyReq, ReplicaVerifyResp, VERIFY_BLOCKS_MAX,
};
use brindle_wire::oss::scrub::ScrubPlace;
use bytes::Bytes;
use parking_lot::Mutex;

use super::BLOCK;
use crate::replica::Replica;
use crate::replica::leading::{Forward, send_change};
use crate::replica::resync::{Unequal, earliest, sum_at};
use crate::service::Oss;

/// Number of looks before members count as different, and the pause between them. A change that failed half way makes them different for a moment.
const LOOKS: usize = 4;
const LOOK_AGAIN_MS: u64 = 1_000;
/// Longest wait for a member that is filled anew, before the pass goes on without it.
const FILL_WAIT_MS: u64 = 600_000;

/// Outcome for some blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Bytes that were read here.
    pub read_bytes: u64,
    /// First block behind them that may have data on any member. `None`: the object has been looked at.
    pub next: Option<u64>,
}

/// Findings of a pass about an object as a whole. Each is found out once, however many blocks depend on it.
#[derive(Default)]
pub(super) struct Verdict {
    /// Whether every block is whole here.
    is_whole_here: Mutex<Option<bool>>,
    /// Members that cannot read any of the object.
    unreadable_on: Mutex<BTreeSet<String>>,
    /// Members whose disk does not return some blocks, and the first of the blocks that are looked at: several looks count once.
    unread_on: Mutex<(u64, BTreeSet<String>)>,
}

impl Verdict {
    /// Whether it is the first time that a member did not return some of the blocks from `first` on.
    fn is_first_unread(&self, first: u64, host: &str) -> bool {
        let mut unread = self.unread_on.lock();
        if unread.0 != first {
            *unread = (first, BTreeSet::new());
        }
        unread.1.insert(host.to_owned())
    }
}

/// Outcome of mending damage on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mending {
    /// The member has the block whole.
    Mended,
    /// The member does not have the block whole, or no member has.
    Unmended,
    /// The member is not in the set, or was not asked again: the primary has the block whole, and the fill or the next pass will mend it.
    Later,
}

/// Members that have everything, as this primary knows.
pub(super) fn members(replica: &Replica) -> Vec<Arc<Link>> {
    let links = replica.current();
    links.links.iter().filter(|link| link.is_required() && !link.has_failed()).cloned().collect()
}

/// Blocks on another member.
struct Theirs {
    link: Arc<Link>,
    answer: ReplicaVerifyResp,
    sums: Bytes,
}

/// Blocks on all members, at about one moment.
struct Seen {
    /// `None`: nothing of the object can be read here.
    own: Option<Verified>,
    theirs: Vec<Theirs>,
}

impl Theirs {
    fn is_damaged(&self) -> bool {
        self.answer.is_unreadable || !self.answer.damaged_blocks.is_empty()
    }

    /// Blocks that differ from those here, counted from the first.
    fn differing(&self, own: &Verified) -> Vec<u64> {
        let blocks = own.sums.len().max(self.sums.len()) as u64 / 4;
        (0..blocks).filter(|n| sum_at(&own.sums, *n) != sum_at(&self.sums, *n)).collect()
    }

    fn differs(&self, own: &Verified) -> bool {
        self.answer.exists != own.image.exists || !self.differing(own).is_empty()
    }
}

impl Seen {
    /// First block behind these that may have data on any member, within the object as it is here.
    fn next(&self, own: &Verified) -> Option<u64> {
        let blocks = own.image.len_bytes.div_ceil(BLOCK);
        let theirs = self.theirs.iter().map(|theirs| theirs.answer.next_data);
        earliest(theirs.chain([own.next_data])).filter(|next| *next < blocks)
    }

    fn has_damage(&self) -> bool {
        self.own.as_ref().is_none_or(|own| !own.damaged.is_empty())
            || self.theirs.iter().any(Theirs::is_damaged)
    }

    fn is_wrong(&self) -> bool {
        self.has_damage() || self.own.as_ref().is_some_and(|own| self.theirs.iter().any(|t| t.differs(own)))
    }
}

struct Piece<'a> {
    oss: &'a Arc<Oss>,
    object: ObjectId,
    first: u64,
    verdict: &'a Verdict,
}

/// Verifies blocks from `first` on, and mends what can be mended.
pub(super) async fn look(oss: &Arc<Oss>, object: ObjectId, first: u64, verdict: &Verdict) -> Result<Looked> {
    let piece = Piece { oss, object, first, verdict };
    let seen = match piece.see().await {
        // The medium does not give these bytes; the rest of the disk works.
        Err(fault) if fault.code == Code::OstIo && oss.store.failure().is_none() => {
            return piece.unread(&fault).await;
        }
        other => other?,
    };
    let looked = seen
        .own
        .as_ref()
        .map_or_else(Looked::default, |own| Looked { read_bytes: own.read_bytes, next: seen.next(own) });
    if !seen.is_wrong() {
        return Ok(looked);
    }
    match piece.confirm_and_mend().await {
        Err(fault) if fault.code == Code::OstIo && oss.store.failure().is_none() => {
            piece.unread(&fault).await
        }
        other => other.map(|()| looked),
    }
}

impl Piece<'_> {
    fn place(&self, block: u64) -> ScrubPlace {
        ScrubPlace { object: self.object, offset: Some(block * BLOCK) }
    }

    fn whole(&self) -> ScrubPlace {
        ScrubPlace { object: self.object, offset: None }
    }

    async fn see(&self) -> Result<Seen> {
        let own = match self.oss.store.verify(self.object, self.first, VERIFY_BLOCKS_MAX).await {
            Err(fault) if fault.code == Code::ObjectDamaged => None,
            other => Some(other?),
        };
        let mut theirs = Vec::new();
        for link in self.oss.replica.iter().flat_map(|replica| members(replica)) {
            match verify_on(&link, self.object, self.first, VERIFY_BLOCKS_MAX).await {
                Ok((answer, sums)) => theirs.push(Theirs { link, answer, sums }),
                Err(fault) if fault.code == Code::OstIo => self.unread_there(&link, &fault).await,
                Err(fault) => {
                    let host = &link.host;
                    tracing::debug!(code = %fault.code, member = %host, object = %self.object, "not compared: {fault}");
                    self.oss.scrub.set_trouble(format!(
                        "{host} did not answer; some objects were not compared with it"
                    ));
                }
            }
        }
        Ok(Seen { own, theirs })
    }

    async fn confirm_and_mend(&self) -> Result<()> {
        match self.confirmed().await? {
            Some(seen) => self.mend(seen).await,
            None => Ok(()),
        }
    }

    /// Looks again while no change of the object is under way. `None`: all is well.
    async fn confirmed(&self) -> Result<Option<Seen>> {
        for n in 1..=LOOKS {
            let lock = self.oss.replica.as_ref().map(|replica| replica.lock_of(self.object));
            let seen = {
                let _no_changes = match &lock {
                    Some(lock) => Some(lock.read(ALL).await),
                    None => None,
                };
                self.see().await?
            };
            if !seen.is_wrong() {
                return Ok(None);
            }
            if seen.has_damage() || n == LOOKS {
                return Ok(Some(seen));
            }
            self.oss.seams.sleep_ms(LOOK_AGAIN_MS).await;
        }
        Ok(None)
    }

    /// Counts blocks that the disk does not return.
    async fn unread(&self, fault: &Fault) -> Result<Looked> {
        tracing::error!(code = %fault.code, object = %self.object, offset = self.first * BLOCK, "the scrub cannot read: {fault}");
        let behind = self.first + VERIFY_BLOCKS_MAX;
        let next = self.oss.store.next_data(self.object, behind).await;
        match next {
            Ok(next) => {
                self.oss.scrub.count(self.place(self.first), false);
                Ok(Looked { read_bytes: 0, next })
            }
            // The disk does not return its header either: the pass goes on behind the object.
            Err(fault) if matches!(fault.code, Code::OstIo | Code::ObjectDamaged) => {
                self.oss.scrub.count(self.whole(), false);
                Ok(Looked::default())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Counts blocks that the disk of a member does not return.
    async fn unread_there(&self, link: &Arc<Link>, fault: &Fault) {
        let host = &link.host;
        if self.verdict.unreadable_on.lock().contains(host) || !self.verdict.is_first_unread(self.first, host)
        {
            return;
        }
        tracing::error!(code = %fault.code, member = %host, object = %self.object, offset = self.first * BLOCK, "a member cannot read: {fault}");
        if let Some(replica) = &self.oss.replica {
            replica.note_damaged(host, self.object);
        }
        // Without blocks: its header only.
        let request =
            ReplicaLookReq { attachment: link.attachment, object: self.object, from_block: 0, blocks: 0 };
        let header = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await;
        let place = match header {
            Err(fault) if fault.code == Code::OstIo => {
                self.verdict.unreadable_on.lock().insert(host.clone());
                self.whole()
            }
            _ => self.place(self.first),
        };
        self.oss.scrub.count(place, false);
    }

    /// The outcome of damage on a member.
    fn count(&self, link: &Link, place: ScrubPlace, mending: Mending) {
        match mending {
            Mending::Mended => self.oss.scrub.count(place, true),
            Mending::Unmended => self.oss.scrub.count(place, false),
            Mending::Later => self.oss.scrub.set_trouble(format!(
                "{} is not in the set; some objects were not compared with it",
                link.host
            )),
        }
    }

    async fn mend(&self, seen: Seen) -> Result<()> {
        let Some(own) = seen.own else {
            tracing::error!(object = %self.object, "nothing of an object can be read");
            self.oss.scrub.count(self.whole(), false);
            return Ok(());
        };
        for damaged in &own.damaged {
            self.mend_here(damaged).await;
        }
        let Some(replica) = self.oss.replica.clone() else { return Ok(()) };
        for theirs in &seen.theirs {
            self.mend_there(&replica, theirs).await?;
        }
        self.make_equal(&replica).await
    }

    /// A block that is damaged here.
    async fn mend_here(&self, damaged: &DamagedBlock) {
        let mended = match &self.oss.replica {
            Some(replica) => replica.mend(self.oss, self.object, damaged.block * BLOCK, BLOCK).await,
            None => false,
        };
        if !mended {
            self.oss.store.report_unmended(self.object, damaged);
        }
        self.oss.scrub.count(self.place(damaged.block), mended);
    }

    /// Damage on another member.
    async fn mend_there(&self, replica: &Replica, theirs: &Theirs) -> Result<()> {
        let link = &theirs.link;
        if !theirs.is_damaged() {
            return Ok(());
        }
        // Until it is whole there: where the member leaves the set meanwhile, the one that fills it has to verify this object.
        let was_noted = replica.is_noted_damaged(&link.host, self.object);
        replica.note_damaged(&link.host, self.object);
        let mut is_mended = true;
        if theirs.answer.is_unreadable {
            match self.is_whole_here().await? {
                Some(true) => self.copied_anew(replica, link, &[self.whole()]).await,
                Some(false) if self.verdict.unreadable_on.lock().insert(link.host.clone()) => {
                    self.count(link, self.whole(), Mending::Unmended);
                }
                // Counted before, or stopped meanwhile.
                Some(false) | None => {}
            }
            return Ok(());
        }
        for block in &theirs.answer.damaged_blocks {
            let mending = self.mend_block_there(replica, link, *block).await;
            if let Err(unequal) = &mending {
                let fault = unequal.as_fault();
                tracing::warn!(code = %fault.code, object = %self.object, member = %link.host, "cannot mend a damaged block: {fault}");
            }
            let mending = match mending {
                Ok(mending) => mending,
                Err(Unequal::Here(_)) => Mending::Unmended,
                Err(Unequal::There(fault)) => self.failed(replica, link, &fault).await?,
            };
            is_mended &= mending == Mending::Mended;
            self.count(link, self.place(*block), mending);
        }
        if is_mended && !was_noted {
            replica.forget_damaged(&link.host, self.object);
        }
        Ok(())
    }

    /// Handles a failed change of a member. A member that refused the change is not mended. Any other failure puts the member out of the
    /// set: a late copy of the change could land behind a newer one.
    async fn failed(&self, replica: &Replica, link: &Arc<Link>, fault: &Fault) -> Result<Mending> {
        if matches!(fault.code, Code::ObjectDamaged | Code::OstIo) {
            return Ok(Mending::Unmended);
        }
        link.fail(fault);
        replica.put_out_failed(&replica.current()).await?;
        Ok(Mending::Later)
    }

    /// Writes a block of a member anew from the local block. Returns whether it is whole there afterwards.
    async fn mend_block_there(
        &self,
        replica: &Replica,
        link: &Arc<Link>,
        block: u64,
    ) -> std::result::Result<Mending, Unequal> {
        use Unequal::{Here, There};
        let lock = replica.lock_of(self.object);
        let _alone = lock.write(ALL).await;
        if !members(replica).iter().any(|now| Arc::ptr_eq(now, link)) {
            return Ok(Mending::Later);
        }
        let own = self.oss.store.verify(self.object, block, 1).await.map_err(Here)?;
        let offset = block * BLOCK;
        if offset >= own.image.len_bytes {
            // The block was cut away meanwhile.
            return Ok(Mending::Mended);
        }
        if !own.damaged.is_empty() {
            return Ok(Mending::Unmended);
        }
        match verify_on(link, self.object, block, 1).await {
            Ok((answer, _)) if answer.damaged_blocks.is_empty() => return Ok(Mending::Mended),
            // A block that the member's disk does not return can still be overwritten.
            Err(fault) if fault.code != Code::OstIo => return Err(There(fault)),
            Ok(_) | Err(_) => {}
        }
        let is_hole = sum_at(&own.sums, 0) == 0;
        let until = (offset + BLOCK).min(own.image.len_bytes);
        replica.copy_run(self.oss, link, self.object, (offset, until), is_hole).await?;
        // To mend is not to write: the time of the last write stays.
        let image = ReplicaChange::PutImage { object: self.object, image: own.image };
        send_change(link, &Forward::plain(image)).await.map_err(There)?;
        // Durable before the lock is given up: from then on no power cut explains damage in its region.
        let sync = ReplicaChange::Sync { objects: vec![self.object] };
        send_change(link, &Forward::plain(sync)).await.map_err(There)?;
        let (answer, _) = verify_on(link, self.object, block, 1).await.map_err(There)?;
        if !answer.damaged_blocks.is_empty() {
            return Ok(Mending::Unmended);
        }
        told_mended(replica, link, self.object, offset);
        Ok(Mending::Mended)
    }

    /// Whether every block of the object is whole here; `None` where the scrub was stopped meanwhile. Found out once for each object and pass.
    async fn is_whole_here(&self) -> Result<Option<bool>> {
        if let Some(known) = *self.verdict.is_whole_here.lock() {
            return Ok(Some(known));
        }
        let mut next = Some(0);
        while let Some(block) = next {
            if self.oss.scrub.is_stopped() {
                return Ok(None);
            }
            let began = self.oss.seams.now();
            let own = match self.oss.store.verify(self.object, block, VERIFY_BLOCKS_MAX).await {
                Ok(own) if own.damaged.is_empty() => own,
                Err(fault) if !matches!(fault.code, Code::ObjectDamaged | Code::OstIo) => return Err(fault),
                Ok(_) | Err(_) => {
                    *self.verdict.is_whole_here.lock() = Some(false);
                    return Ok(Some(false));
                }
            };
            super::pause(self.oss, own.read_bytes, began).await;
            next = own.next_data;
        }
        *self.verdict.is_whole_here.lock() = Some(true);
        Ok(Some(true))
    }

    /// Makes an object of a member equal to the one here, and counts these places. A member that cannot read the object, or has more of it,
    /// is taken out of the set and filled outside of it. Only places that are whole afterwards count as mended. If the fill takes long,
    /// they are not counted: the set says that it lacks a member.
    async fn copied_anew(&self, replica: &Replica, link: &Arc<Link>, places: &[ScrubPlace]) {
        let copied = match replica.make_equal(self.oss, link, self.object).await {
            Ok(()) => Some(link.clone()),
            Err(Unequal::Here(fault)) => {
                tracing::warn!(code = %fault.code, object = %self.object, "an object cannot be read here: {fault}");
                return places.iter().for_each(|place| self.count(link, *place, Mending::Unmended));
            }
            Err(Unequal::There(fault)) => {
                link.fail(&fault);
                if let Err(fault) = replica.put_out_failed(&replica.current()).await {
                    tracing::debug!(code = %fault.code, "{fault}");
                }
                self.filled(replica, &link.host).await
            }
        };
        let mending = match &copied {
            Some(link) => self.is_whole_there(link).await,
            None => Mending::Later,
        };
        if mending == Mending::Mended {
            replica.forget_damaged(&link.host, self.object);
            told_mended(replica, link, self.object, 0);
        }
        places.iter().for_each(|place| self.count(link, *place, mending));
    }

    /// Whether every block of the object is whole on a member.
    async fn is_whole_there(&self, link: &Arc<Link>) -> Mending {
        let mut next = Some(0);
        while let Some(block) = next {
            if self.oss.scrub.is_stopped() {
                return Mending::Later;
            }
            let began = self.oss.seams.now();
            let seen = match verify_on(link, self.object, block, VERIFY_BLOCKS_MAX).await {
                Ok((seen, _)) if !seen.is_unreadable && seen.damaged_blocks.is_empty() => seen,
                Ok(_) => return Mending::Unmended,
                Err(fault) if fault.code == Code::OstIo => return Mending::Unmended,
                Err(_) => return Mending::Later,
            };
            super::pause(self.oss, VERIFY_BLOCKS_MAX * BLOCK, began).await;
            next = seen.next_data.filter(|next| *next > block);
        }
        Mending::Mended
    }

    /// Waits until a member that was taken out of the set is in it again; the way to it. `None` where that takes too long.
    async fn filled(&self, replica: &Replica, host: &str) -> Option<Arc<Link>> {
        let deadline = self.oss.seams.now().plus_ms(FILL_WAIT_MS);
        loop {
            if let Some(link) = members(replica).into_iter().find(|link| link.host == host) {
                return Some(link);
            }
            let is_over = self.oss.seams.now() >= deadline;
            if is_over || self.oss.scrub.is_stopped() || replica.deposed.is_set() {
                return None;
            }
            self.oss.seams.sleep_ms(LOOK_AGAIN_MS).await;
        }
    }

    /// Gives members the blocks of the primary where all match their checksums and differ. Each look has found the same, with no change under way.
    async fn make_equal(&self, replica: &Replica) -> Result<()> {
        let Some(Seen { own: Some(own), theirs }) = self.confirmed().await? else { return Ok(()) };
        if !own.damaged.is_empty() || !theirs.iter().any(|theirs| theirs.differs(&own)) {
            return Ok(());
        }
        let is_whole = self.is_whole_here().await?;
        for theirs in theirs.iter().filter(|theirs| !theirs.is_damaged() && theirs.differs(&own)) {
            let blocks = theirs.differing(&own);
            tracing::error!(
                object = %self.object, member = %theirs.link.host, offset = self.first * BLOCK, blocks = blocks.len(),
                "members have different bytes with right checksums: the member gets the primary's"
            );
            let places = blocks.iter().map(|n| self.place(self.first + n));
            let places: Vec<ScrubPlace> =
                if blocks.is_empty() { vec![self.whole()] } else { places.collect() };
            match is_whole {
                Some(true) => self.copied_anew(replica, &theirs.link, &places).await,
                Some(false) => places.into_iter().for_each(|place| self.oss.scrub.count(place, false)),
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

fn told_mended(replica: &Replica, link: &Link, object: ObjectId, offset: u64) {
    replica.count_mended(1);
    tracing::warn!(%object, offset, member = %link.host, "damage on a member was mended from the primary");
}

/// Has a member read blocks from its disk and verify them.
async fn verify_on(
    link: &Link,
    object: ObjectId,
    from_block: u64,
    blocks: u64,
) -> Result<(ReplicaVerifyResp, Bytes)> {
    let request = ReplicaVerifyReq { attachment: link.attachment, object, from_block, blocks };
    link.call(&request, NO_BULK, bounded_u32(blocks * 4), CHANGE_LIMIT_MS).await
}
