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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_objects::{ALL, DamagedBlock, Verified};
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, NO_BULK};
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::oss::replica::{ReplicaChange, ReplicaVerifyReq, ReplicaVerifyResp, VERIFY_BLOCKS_MAX};
use brindle_wire::oss::scrub::ScrubPlace;
use bytes::Bytes;

use super::BLOCK;
use crate::replica::Replica;
use crate::replica::leading::{Forward, send_change};
use crate::replica::resync::{Unequal, sum_at};
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
    /// Length of the object.
    pub len_bytes: u64,
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
}

/// Verifies blocks from `first` on, and mends what can be mended.
pub(super) async fn look(oss: &Arc<Oss>, object: ObjectId, first: u64) -> Result<Looked> {
    let piece = Piece { oss, object, first };
    let seen = match piece.see().await {
        // The medium does not give these bytes; the rest of the disk works.
        Err(fault) if fault.code == Code::OstIo && oss.store.failure().is_none() => {
            return piece.unread(&fault).await;
        }
        other => other?,
    };
    let looked = seen.own.as_ref().map_or_else(Looked::default, |own| Looked {
        read_bytes: own.read_bytes,
        len_bytes: own.image.len_bytes,
    });
    if seen.is_wrong()
        && let Some(seen) = piece.confirmed().await?
    {
        piece.mend(seen).await?;
    }
    Ok(looked)
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
        self.oss.scrub.count(self.place(self.first), false);
        let (image, _) = self.oss.store.look(self.object, 0, 0).await?;
        Ok(Looked { read_bytes: 0, len_bytes: image.len_bytes })
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
        if theirs.answer.is_unreadable {
            match self.is_whole_here().await? {
                true => self.copied_anew(replica, &theirs.link, [self.whole()]).await,
                false => self.oss.scrub.count(self.whole(), false),
            }
            return Ok(());
        }
        for block in &theirs.answer.damaged_blocks {
            let mended = self.mend_block_there(replica, &theirs.link, *block).await;
            if let Err(unequal) = &mended {
                let fault = unequal.as_fault();
                tracing::warn!(code = %fault.code, object = %self.object, member = %theirs.link.host, "cannot mend a damaged block: {fault}");
                if let Unequal::There(fault) = unequal {
                    self.failed(replica, &theirs.link, fault).await?;
                }
            }
            self.oss.scrub.count(self.place(*block), mended.unwrap_or(false));
        }
        Ok(())
    }

    /// A member that did not take a change has missed something: a late copy of it could land behind a newer one. One that refused has not.
    async fn failed(&self, replica: &Replica, link: &Arc<Link>, fault: &Fault) -> Result<()> {
        if fault.code == Code::ObjectDamaged {
            return Ok(());
        }
        link.fail(fault);
        replica.put_out_failed(&replica.current()).await
    }

    /// Writes a block of a member anew from what is here; whether it is whole there then.
    async fn mend_block_there(
        &self,
        replica: &Replica,
        link: &Arc<Link>,
        block: u64,
    ) -> std::result::Result<bool, Unequal> {
        use Unequal::{Here, There};
        let lock = replica.lock_of(self.object);
        let _alone = lock.write(ALL).await;
        if !members(replica).iter().any(|now| Arc::ptr_eq(now, link)) {
            return Ok(false);
        }
        let own = self.oss.store.verify(self.object, block, 1).await.map_err(Here)?;
        let offset = block * BLOCK;
        if !own.damaged.is_empty() || offset >= own.image.len_bytes {
            return Ok(false);
        }
        let (answer, _) = verify_on(link, self.object, block, 1).await.map_err(There)?;
        if answer.damaged_blocks.is_empty() {
            return Ok(true);
        }
        let is_hole = sum_at(&own.sums, 0) == 0;
        let until = (offset + BLOCK).min(own.image.len_bytes);
        replica.copy_run(self.oss, link, self.object, (offset, until), is_hole).await?;
        // To mend is not to write: the time of the last write stays.
        let image = ReplicaChange::PutImage { object: self.object, image: own.image };
        send_change(link, &Forward::plain(image)).await.map_err(There)?;
        let (answer, _) = verify_on(link, self.object, block, 1).await.map_err(There)?;
        let mended = answer.damaged_blocks.is_empty();
        if mended {
            told_mended(replica, link, self.object, offset);
        }
        Ok(mended)
    }

    /// Whether every block of the object is whole here.
    async fn is_whole_here(&self) -> Result<bool> {
        let mut block = 0;
        loop {
            let own = self.oss.store.verify(self.object, block, VERIFY_BLOCKS_MAX).await?;
            if !own.damaged.is_empty() {
                return Ok(false);
            }
            block += VERIFY_BLOCKS_MAX;
            if block * BLOCK >= own.image.len_bytes {
                return Ok(true);
            }
            self.oss.seams.sleep_ms(super::PAUSE_MS).await;
        }
    }

    /// Makes an object of a member equal to the one here, and counts these places. A member that cannot read the object, or has more of it, is taken
    /// out of the set, and filled outside of it. Where that takes long it is not counted: the set says that it lacks a member.
    async fn copied_anew(
        &self,
        replica: &Replica,
        link: &Arc<Link>,
        places: impl IntoIterator<Item = ScrubPlace>,
    ) {
        let mended = match replica.make_equal(self.oss, link, self.object).await {
            Ok(()) => true,
            Err(Unequal::Here(fault)) => {
                tracing::warn!(code = %fault.code, object = %self.object, "an object cannot be read here: {fault}");
                false
            }
            Err(Unequal::There(fault)) => {
                link.fail(&fault);
                if let Err(fault) = replica.put_out_failed(&replica.current()).await {
                    tracing::debug!(code = %fault.code, "{fault}");
                }
                if !self.is_filled(replica, &link.host).await {
                    return self.oss.scrub.set_trouble(format!("{} is filled anew", link.host));
                }
                true
            }
        };
        if mended {
            told_mended(replica, link, self.object, 0);
        }
        places.into_iter().for_each(|place| self.oss.scrub.count(place, mended));
    }

    /// Waits until a member that was taken out of the set is in it again; whether it is.
    async fn is_filled(&self, replica: &Replica, host: &str) -> bool {
        let deadline = self.oss.seams.now().plus_ms(FILL_WAIT_MS);
        while !members(replica).iter().any(|link| link.host == host) {
            let is_over = self.oss.seams.now() >= deadline;
            if is_over || self.oss.scrub.is_stopped() || replica.deposed.is_set() {
                return false;
            }
            self.oss.seams.sleep_ms(LOOK_AGAIN_MS).await;
        }
        true
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
                true => self.copied_anew(replica, &theirs.link, places).await,
                false => places.into_iter().for_each(|place| self.oss.scrub.count(place, false)),
            }
        }
        Ok(())
    }
}

fn told_mended(replica: &Replica, link: &Link, object: ObjectId, offset: u64) {
    replica.mended_blocks.fetch_add(1, Ordering::AcqRel);
    replica.seat.tell(|told| told.mended_blocks += 1);
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
    link.call(&request, NO_BULK, (blocks * 4) as u32, CHANGE_LIMIT_MS).await
}
