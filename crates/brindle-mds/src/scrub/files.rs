//! Files of each member's store, read from the device and verified, a piece on each at a time.
//!
//! | found | what is done |
//! |---|---|
//! | a segment of the log is damaged | its rows are in memory or in the checkpoint: a checkpoint is written, and the segment goes |
//! | a block of the checkpoint is damaged, and the page cache has it whole | the block is written anew |
//! | another block, at a member that follows | the member is put out of the set and filled anew |
//! | another block, at the primary | at the end of the pass another member in sync takes over, and this one is filled anew |
//! | another block, and there is no other member | named |

use std::sync::Arc;

use brindle_kv::FileDamage;
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, NO_BULK};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::{MemberVerifyReq, MemberVerifyResp, StorePlace};
use brindle_wire::mds::scrub::{AwaitedCopy, FilesPlace, MdtDamage};

use super::{Flow, Pass, panicked};
use crate::replica::verified::{heard, told};

/// Longest wait for a member that is filled anew, before the pass goes on without it, and the pause between two looks.
const FILL_WAIT_MS: u64 = 600_000;
const FILL_LOOK_MS: u64 = 500;
/// Longest time in which a member verifies a piece; with a checkpoint where its log is damaged.
const VERIFY_LIMIT_MS: u64 = 60_000;

/// Outcome of a piece of one copy.
struct Seen {
    next: Option<StorePlace>,
    read_bytes: u64,
}

impl Pass<'_> {
    /// Verifies all files of all copies. Copies that are filled anew meanwhile are verified afterwards.
    pub(super) async fn verify_files(&self) -> Result<Flow> {
        let seams = self.mdt.seams();
        let mut idle_since = None;
        loop {
            let began = seams.now();
            let read = self.verify_pieces().await?;
            if let Some(bytes) = read {
                idle_since = None;
                if self.pause(bytes, began).await? == Flow::Pauses {
                    return Ok(Flow::Pauses);
                }
                continue;
            }
            let own = self.own_host();
            if !self.scrub().places().awaited.iter().any(|copy| copy.host != own) {
                return self.settle_own().await;
            }
            let since = *idle_since.get_or_insert(began);
            if began.ms_since(since) > FILL_WAIT_MS {
                self.give_up_waiting();
                return self.settle_own().await;
            }
            seams.sleep_ms(FILL_LOOK_MS).await;
            if self.pause(0, seams.now()).await? == Flow::Pauses {
                return Ok(Flow::Pauses);
            }
        }
    }

    fn place_of(&self, host: &str) -> FilesPlace {
        let places = self.scrub().places();
        let known = places.files.into_iter().find(|place| place.host == host);
        known.unwrap_or(FilesPlace { host: host.to_owned(), next: None, is_done: false })
    }

    fn came_to(&self, place: FilesPlace) {
        self.scrub().change(|places| {
            places.files.retain(|known| known.host != place.host);
            places.files.push(place);
        });
    }

    /// Verifies a piece of each copy that is not done. The bytes of the largest; `None` if all are done.
    async fn verify_pieces(&self) -> Result<Option<u64>> {
        let mut read: Option<u64> = None;
        let own = self.own_host();
        let place = self.place_of(&own);
        if !place.is_done {
            let seen = self.verify_here(place.next).await?;
            read = Some(seen.read_bytes);
            self.came_to(FilesPlace { host: own, is_done: seen.next.is_none(), next: seen.next });
        }
        let members = self.scrub().leader().map(|leader| leader.members()).unwrap_or_default();
        for link in members {
            let place = self.place_of(&link.host);
            if place.is_done {
                continue;
            }
            match self.verify_there(&link, place.next).await {
                // It was put out because of damage: everything of it is verified when it is back.
                Ok(seen) if link.has_failed() => read = Some(read.unwrap_or(0).max(seen.read_bytes)),
                Ok(seen) => {
                    read = Some(read.unwrap_or(0).max(seen.read_bytes));
                    let is_done = seen.next.is_none();
                    self.came_to(FilesPlace { host: link.host.clone(), is_done, next: seen.next });
                    if is_done {
                        self.is_whole_again(&link.host);
                    }
                }
                Err(fault) => {
                    tracing::debug!(code = %fault.code, member = %link.host, "not verified: {fault}");
                    let why = format!("{} did not answer; some of its files were not verified", link.host);
                    self.scrub().pace.set_trouble(why);
                    // A copy that was filled anew is asked again, for as long as the pass waits for it.
                    if !self.scrub().places().awaited.iter().any(|copy| copy.host == link.host) {
                        self.came_to(FilesPlace { host: link.host.clone(), is_done: true, next: None });
                    }
                }
            }
        }
        Ok(read)
    }

    async fn verify_here(&self, place: Option<StorePlace>) -> Result<Seen> {
        let (mdt, at) = (self.mdt.clone(), place.map(heard));
        let verified = self.mdt.seams().run_blocking(move || mdt.engine().verify(at.as_ref())).await;
        let seen = verified.unwrap_or_else(|| Err(panicked()))?;
        let mut damaged = seen.damaged;
        self.mend_log(&mut damaged).await;
        let host = self.own_host();
        for FileDamage { file, offset, why, is_mended } in damaged {
            if is_mended {
                tracing::warn!(file, offset, why, "damage in the metadata store was found and mended");
                self.scrub().pace.count_damage(1, true, false);
            } else {
                self.own_damage(MdtDamage { file, offset, ..MdtDamage::of(&host, why) });
            }
        }
        Ok(Seen { next: seen.next.map(told), read_bytes: seen.read_bytes })
    }

    async fn mend_log(&self, damaged: &mut [FileDamage]) {
        let files: Vec<String> = damaged.iter().filter(|d| d.is_in_log()).map(|d| d.file.clone()).collect();
        if files.is_empty() {
            return;
        }
        match self.mdt.engine().renew_log(&files).await {
            Ok(()) => damaged.iter_mut().filter(|d| d.is_in_log()).for_each(|d| d.is_mended = true),
            Err(fault) => tracing::warn!(code = %fault.code, "a damaged log is not mended: {fault}"),
        }
    }

    /// Damage in a file here that cannot be mended here. What becomes of it is decided at the end of the pass.
    fn own_damage(&self, damage: MdtDamage) {
        self.awaits(&damage.host, 1);
        let why = super::text(&damage);
        tracing::error!(why, "the store of the copy that serves is damaged");
        if self.scrub().leader().is_none() {
            self.scrub().unmended(1, damage);
        }
    }

    /// A row here cannot be read. The damaged place of the file that it lies in is found, and counted, with the files.
    pub(super) fn own_row_damaged(&self, fault: &Fault) {
        tracing::error!(code = %fault.code, "a row of the copy that serves cannot be read: {fault}");
        self.awaits(&self.own_host(), 0);
        // The rows behind it are read by the pass that follows the cure.
        self.scrub().change(|places| places.rows_done = true);
    }

    fn awaits(&self, host: &str, places: u64) {
        self.scrub().change(|all| match all.awaited.iter_mut().find(|copy| copy.host == host) {
            Some(copy) => copy.places += places,
            None => all.awaited.push(AwaitedCopy { host: host.to_owned(), places }),
        });
    }

    fn take_awaited(&self, host: &str) -> Option<u64> {
        let mut found = None;
        self.scrub().change(|all| {
            let awaited = all.awaited.iter().find(|copy| copy.host == host);
            // A damaged row whose place in the files was not found is a place, too.
            found = awaited.map(|copy| copy.places.max(1));
            all.awaited.retain(|copy| copy.host != host);
        });
        found
    }

    async fn verify_there(&self, link: &Arc<Link>, place: Option<StorePlace>) -> Result<Seen> {
        let request = MemberVerifyReq { attachment: link.attachment, place };
        let (answer, _) = link.call(&request, NO_BULK, 0, VERIFY_LIMIT_MS).await?;
        let MemberVerifyResp { next, read_bytes, damaged } = answer;
        let mended = damaged.iter().filter(|damage| damage.is_mended).count() as u64;
        if mended > 0 {
            tracing::warn!(member = %link.host, mended, "damage in the store of a copy was found and mended");
            self.scrub().pace.count_damage(mended, true, false);
        }
        let unmended: Vec<_> = damaged.iter().filter(|damage| !damage.is_mended).collect();
        let Some(first) = unmended.first() else { return Ok(Seen { next, read_bytes }) };
        let why = format!("{} at offset {}: {}", first.file, first.offset, first.why);
        let fault = Fault::new(Code::KvDamaged).subject(link.host.clone()).why(why);
        self.member_is_damaged(link, unmended.len() as u64, &fault).await?;
        Ok(Seen { next: None, read_bytes })
    }

    /// A member has damage that it cannot mend. It is filled anew; if that was done in this pass already, the damage is named.
    pub(super) async fn member_is_damaged(&self, link: &Arc<Link>, places: u64, fault: &Fault) -> Result<()> {
        let Some(leader) = self.scrub().leader() else { return Ok(()) };
        leader.put_out(link, fault).await?;
        match self.take_awaited(&link.host) {
            None => self.awaits(&link.host, places),
            Some(before) => {
                let why = format!("the copy was filled anew, and is damaged again: {fault}");
                self.scrub().unmended(before + places, MdtDamage::of(&link.host, why));
            }
        }
        // Everything of it is verified when it is back.
        self.came_to(FilesPlace { host: link.host.clone(), next: None, is_done: false });
        super::save(self.mdt).await
    }

    /// All files of a member match their checksums. Damage that it had before was mended by filling it.
    fn is_whole_again(&self, host: &str) {
        if let Some(places) = self.take_awaited(host) {
            tracing::warn!(member = host, places, "a damaged copy was filled anew, and is whole");
            self.scrub().pace.count_damage(places, true, false);
        }
    }

    fn give_up_waiting(&self) {
        let own = self.own_host();
        for AwaitedCopy { host, places } in self.scrub().places().awaited {
            if host != own {
                self.take_awaited(&host);
                let why =
                    format!("the copy is damaged, and was not filled anew within {} s", FILL_WAIT_MS / 1_000);
                self.scrub().unmended(places, MdtDamage::of(&host, why));
            }
        }
    }

    /// Decides about damage of the copy that serves: another member in sync takes over, or the damage is named.
    async fn settle_own(&self) -> Result<Flow> {
        let host = self.own_host();
        let Some(copy) = self.scrub().places().awaited.into_iter().find(|copy| copy.host == host) else {
            return Ok(Flow::GoesOn);
        };
        let leader = self.scrub().leader();
        let Some(leader) = leader.filter(|leader| !leader.members().is_empty()) else {
            self.take_awaited(&host);
            let is_named = self.scrub().leader().is_none() && copy.places > 0;
            if !is_named {
                let why = "a row or a page of the checkpoint is damaged, and no other copy is complete";
                self.scrub().unmended(copy.places.max(1), MdtDamage::of(&host, why));
            }
            return Ok(Flow::GoesOn);
        };
        let why =
            format!("the scrub found {} damaged places that only another copy mends", copy.places.max(1));
        // The next primary goes on with this pass, and verifies this copy when it is back.
        self.came_to(FilesPlace { host: host.clone(), next: None, is_done: false });
        super::save(self.mdt).await?;
        let fault = Fault::new(Code::KvDamaged)
            .subject(format!("{} on {host}", self.mdt.identity().name()))
            .why(why)
            .data("another copy serves; this one is filled anew");
        leader.give_way(&self.mdt.config().store_dir(), fault)?;
        Ok(Flow::Pauses)
    }
}

const _: () = assert!(VERIFY_LIMIT_MS > CHANGE_LIMIT_MS);
