//! Copies that a primary may believe more than its own disk, when it takes over after a crash of its own (design note 032, "After a crash").
//!
//! A block that a crash may have torn here is taken from a member that was in sync together with this one. The present set does not tell
//! which members were: after a power cut of all of them it has one member in sync, and learners. This member's record on the disk tells, if
//! nothing was acknowledged since ([`hosts`]).

use std::sync::{Arc, Weak};

use brindle_objects::{OtherCopies, WantedBlocks};
use brindle_stdx::cast::bounded_u32;
use brindle_stdx::{BoxFuture, Disk, Mono};
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, NO_BULK, ReplicaRecord, kept};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::replica::{ReplicaMember, ReplicaSetState};
use brindle_wire::oss::replica::{ReplicaLookReq, ReplicaReadReq, ReplicaVerifyReq};
use bytes::Bytes;
use futures_util::future::join_all;

use super::Replica;
use crate::service::Oss;

/// File of the record of a takeover that has not ended: the members that had everything before it.
const TAKEOVER_FILE: &str = "replica-takeover";
/// Longest time for reaching all members, from the first block that is wanted, also those whose connections end meanwhile. The MGS has heard
/// of them a moment ago, or they do not run.
const REACH_LIMIT_MS: u64 = 10_000;
const REACH_PAUSE_MS: u64 = 200;

/// Hosts of the other members that had everything that this one had when a crash ended it.
///
/// A record is on the disk before anything is acknowledged in its epoch. Therefore, if the set's epoch is the recorded one or the next one,
/// nothing was acknowledged without the members in sync of the recorded epoch. `takeover` is the record of the last takeover here if it did
/// not end: this member alone led in that epoch, and acknowledged nothing.
pub(super) fn hosts(
    set: &ReplicaSetState,
    host: &str,
    record: &ReplicaRecord,
    takeover: &ReplicaRecord,
) -> Vec<String> {
    let follows = |known: &ReplicaRecord| known.uuid == set.uuid && known.epoch + 1 == set.epoch;
    let in_sync: Vec<String> = if record.epoch == set.epoch {
        set.in_sync().map(|member| member.host.clone()).collect()
    } else if follows(record) {
        record.in_sync.clone()
    } else if record.epoch < takeover.epoch && (follows(takeover) || takeover.epoch == set.epoch) {
        takeover.in_sync.clone()
    } else {
        Vec::new()
    };
    let was_in_sync = in_sync.iter().any(|other| other == host);
    in_sync.into_iter().filter(|other| was_in_sync && other != host).collect()
}

fn takeover_path(dir: &str) -> String {
    format!("{dir}/{TAKEOVER_FILE}")
}

/// A record that cannot be read is none: it only says who may be believed besides.
fn load_takeover(disk: &dyn Disk, dir: &str) -> ReplicaRecord {
    let takeover = kept::load(disk, &takeover_path(dir), "the record of the last takeover");
    takeover.map(Option::unwrap_or_default).unwrap_or_else(|fault: Fault| {
        tracing::warn!(code = %fault.code, "{fault}");
        ReplicaRecord::default()
    })
}

/// Members to take whole blocks from. They are attached when the first block is wanted.
struct Former {
    replica: Weak<Replica>,
    members: Vec<ReplicaMember>,
    /// Take blocks only from members whose hosts have not started anew since they were in sync.
    as_they_were: bool,
    reached: tokio::sync::Mutex<Option<Reached>>,
}

/// Members that were attached.
struct Reached {
    links: Vec<Arc<Link>>,
    /// Members whose connections end are attached anew until then.
    until: Mono,
}

impl Former {
    /// Attached members. Those whose connections have ended since are attached anew, while there is time.
    async fn links(&self, replica: &Arc<Replica>) -> Vec<Arc<Link>> {
        let now = replica.seams.now();
        let mut reached = self.reached.lock().await;
        let until = reached.as_ref().map_or(now.plus_ms(REACH_LIMIT_MS), |reached| reached.until);
        let is_complete = |reached: &Reached| !reached.links.iter().any(|link| link.has_failed());
        match reached.as_ref() {
            Some(reached) if is_complete(reached) || now >= until => reached.links.clone(),
            _ => {
                let links = self.reach(replica, until).await;
                *reached = Some(Reached { links: links.clone(), until });
                links
            }
        }
    }

    async fn reach(&self, replica: &Arc<Replica>, until: Mono) -> Vec<Arc<Link>> {
        let reached =
            join_all(self.members.iter().map(|member| self.reach_one(replica, member, until))).await;
        reached.into_iter().flatten().collect()
    }

    async fn reach_one(
        &self,
        replica: &Arc<Replica>,
        member: &ReplicaMember,
        until: Mono,
    ) -> Option<Arc<Link>> {
        loop {
            let set = replica.set();
            match replica.link(member, set.epoch).await {
                Ok((link, ())) if self.as_they_were && link.boot_term != member.boot_term => {
                    tracing::warn!(member = %member.host, "it has started anew: no block is taken from it");
                    return None;
                }
                Ok((link, ())) => return Some(link),
                Err(fault) if replica.seams.now() >= until || set.primary != replica.seat.host => {
                    tracing::error!(
                        code = %fault.code, member = %member.host,
                        "not reached: blocks that a crash may have torn here are not compared with it: {fault}"
                    );
                    return None;
                }
                Err(_) => replica.seams.sleep_ms(REACH_PAUSE_MS).await,
            }
        }
    }
}

impl OtherCopies for Former {
    fn whole_blocks<'a>(&'a self, wanted: &'a WantedBlocks) -> BoxFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let replica = self.replica.upgrade()?;
            loop {
                let links = self.links(&replica).await;
                let mut is_lost = false;
                for link in links.iter().filter(|link| !link.has_failed()) {
                    match whole_of_equal(link, wanted).await {
                        Ok(Some(bytes)) => {
                            count(&self.replica, wanted);
                            return Some(bytes);
                        }
                        Ok(None) => {}
                        Err(fault) => {
                            tell(link, wanted, &fault);
                            if matches!(fault.code, Code::TargetDown | Code::Disconnected) {
                                // Each further question to this member would wait as long, so it is attached anew first.
                                link.fail(&fault);
                                is_lost = true;
                            }
                        }
                    }
                }
                if !is_lost {
                    return None;
                }
                replica.seams.sleep_ms(REACH_PAUSE_MS).await;
            }
        })
    }
}

/// Members in sync now, for a write of a part of a block that is damaged here. The writer keeps other changes of the block out.
struct InSync(Weak<Replica>);

impl OtherCopies for InSync {
    fn whole_blocks<'a>(&'a self, wanted: &'a WantedBlocks) -> BoxFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let links = self.0.upgrade()?.current();
            for link in links.links.iter().filter(|link| link.is_required() && !link.has_failed()) {
                match read(link, wanted).await {
                    Ok(bytes) if wanted.are_all(&bytes) => {
                        count(&self.0, wanted);
                        return Some(bytes);
                    }
                    Ok(_) => {}
                    Err(fault) => tell(link, wanted, &fault),
                }
            }
            None
        })
    }
}

fn count(replica: &Weak<Replica>, wanted: &WantedBlocks) {
    let Some(replica) = replica.upgrade() else { return };
    replica.count_mended(wanted.blocks.end - wanted.blocks.start);
}

fn tell(link: &Link, wanted: &WantedBlocks, fault: &Fault) {
    let (object, offset) = (wanted.object, wanted.offset());
    tracing::warn!(code = %fault.code, member = %link.host, %object, offset, "no whole block from this member: {fault}");
}

/// Bytes of a member, which verifies them.
async fn read(link: &Link, wanted: &WantedBlocks) -> Result<Bytes> {
    let len_bytes = bounded_u32(wanted.len_bytes());
    let request = ReplicaReadReq {
        attachment: link.attachment,
        object: wanted.object,
        offset: wanted.offset(),
        len_bytes,
    };
    let (_, bytes) = link.call(&request, NO_BULK, len_bytes, CHANGE_LIMIT_MS).await?;
    Ok(bytes)
}

/// Bytes of a member whose object has had the same cuts and layouts.
async fn whole_of_equal(link: &Link, wanted: &WantedBlocks) -> Result<Option<Bytes>> {
    let (attachment, object) = (link.attachment, wanted.object);
    let (from_block, blocks) = (wanted.blocks.start, wanted.blocks.end - wanted.blocks.start);
    // First of all, because a learner forgets an object that it cannot read when it is looked at.
    let request = ReplicaVerifyReq { attachment, object, from_block, blocks };
    let (seen, _) = link.call(&request, NO_BULK, bounded_u32(blocks * 4), CHANGE_LIMIT_MS).await?;
    if !seen.exists || seen.is_unreadable || !seen.damaged_blocks.is_empty() {
        return Ok(None);
    }
    let request = ReplicaLookReq { attachment, object, from_block: 0, blocks: 0 };
    let (theirs, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
    let epochs = (theirs.image.layout_epoch, theirs.image.truncate_epoch);
    if epochs != (wanted.image.layout_epoch, wanted.image.truncate_epoch) {
        return Ok(None);
    }
    read(link, wanted).await.map(Some)
}

impl Replica {
    /// Puts right what a crash left here, before this member serves and before others are made equal to it: torn blocks are taken from
    /// members that had everything. Ends before the epoch is recorded, so that settling begins anew after another crash.
    pub(super) async fn settle(self: &Arc<Self>, oss: &Oss) -> Result<()> {
        if oss.store.has_left() {
            let (disk, dir, set) = (&*self.seams.disk, &oss.dir, self.set());
            let record = ReplicaRecord::load(disk, dir)?;
            let former = hosts(&set, &self.seat.host, &record, &load_takeover(disk, dir));
            if !former.is_empty() && record.epoch < set.epoch {
                let in_sync = former.iter().cloned().chain([self.seat.host.clone()]).collect();
                let takeover = ReplicaRecord { uuid: set.uuid, epoch: set.epoch, in_sync };
                kept::save(disk, &takeover_path(dir), &takeover)?;
            }
            let others = |as_they_were| -> Option<Arc<dyn OtherCopies>> {
                if former.is_empty() {
                    return None;
                }
                let members = set.members.iter().filter(|member| former.contains(&member.host)).cloned();
                Some(Arc::new(Former {
                    replica: Arc::downgrade(self),
                    members: members.collect(),
                    as_they_were,
                    reached: tokio::sync::Mutex::new(None),
                }))
            };
            oss.store.settle_left(others(true), others(false)).await?;
        } else {
            oss.store.settle_left(None, None).await?;
        }
        oss.store.ask_others(Some(Arc::new(InSync(Arc::downgrade(self)))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brindle_types::TargetId;
    use brindle_wire::mgs::replica::MemberRole;

    use super::*;

    fn set(epoch: u64, in_sync: &[&str]) -> ReplicaSetState {
        let member = |host: &str| ReplicaMember {
            host: host.to_owned(),
            dir: "/data/ost0".to_owned(),
            is_formatted: true,
            role: if in_sync.contains(&host) { MemberRole::InSync } else { MemberRole::Learner },
            boot_term: 1,
            recorded_epoch: 0,
            nids: Vec::new(),
        };
        ReplicaSetState {
            target: TargetId::ost(0),
            uuid: [7; 16],
            epoch,
            term: 1,
            port: 9,
            primary: "a".to_owned(),
            members: ["a", "b", "c"].map(member).to_vec(),
        }
    }

    fn record(epoch: u64, in_sync: &[&str]) -> ReplicaRecord {
        ReplicaRecord { uuid: [7; 16], epoch, in_sync: in_sync.iter().map(ToString::to_string).collect() }
    }

    fn believed(set: &ReplicaSetState, known: &ReplicaRecord, takeover: &ReplicaRecord) -> Vec<String> {
        hosts(set, "a", known, takeover)
    }

    #[test]
    fn only_members_that_had_everything_are_believed() {
        let none = ReplicaRecord::default();
        let nobody: [&str; 0] = [];
        // A power cut of all: a leads alone, in the epoch behind the recorded one.
        assert_eq!(believed(&set(6, &["a"]), &record(5, &["a", "b"]), &none), ["b"]);
        // Started anew in the same epoch.
        assert_eq!(believed(&set(5, &["a", "b"]), &record(5, &["a", "b"]), &none), ["b"]);
        // b was not in sync, so it may lack acknowledged changes.
        assert_eq!(believed(&set(6, &["a"]), &record(5, &["a"]), &none), nobody);
        // Epochs have passed of which this member knows nothing: b may have been out of the set.
        assert_eq!(believed(&set(7, &["a"]), &record(5, &["a", "b"]), &none), nobody);
        // The member a did not know who was in sync, or was not in sync itself (accept-loss).
        assert_eq!(believed(&set(6, &["a"]), &record(5, &[]), &none), nobody);
        assert_eq!(believed(&set(6, &["a"]), &record(5, &["b", "c"]), &none), nobody);
        // The disk of another target.
        let foreign = ReplicaRecord { uuid: [8; 16], ..record(5, &["a", "b"]) };
        assert_eq!(believed(&set(6, &["a"]), &foreign, &none), nobody);
    }

    #[test]
    fn a_takeover_that_a_crash_ended_is_begun_anew() {
        let (known, takeover) = (record(5, &["a", "b"]), record(6, &["b", "a"]));
        // Killed, then another power cut.
        assert_eq!(believed(&set(6, &["a"]), &known, &takeover), ["b"]);
        assert_eq!(believed(&set(7, &["a"]), &known, &takeover), ["b"]);
        let nobody: [&str; 0] = [];
        assert_eq!(believed(&set(8, &["a"]), &known, &takeover), nobody);
        // The takeover ended: changes acknowledged since are not on b.
        assert_eq!(believed(&set(7, &["a"]), &record(6, &["a"]), &takeover), nobody);
    }
}
