//! When a change is answered: once it is written, or once it is on the disk.
//!
//! | | [`Replies::Written`] | [`Replies::Synced`] |
//! |---|---|---|
//! | a change is answered | when it is in the page cache | when it is on the disk, with the row of its slot |
//! | a power cut takes | what nobody synced | nothing that was answered |
//! | the slot table after a power cut | begins anew | goes on |
//! | the boot term in replies | the term of the change | [`NOTHING_LOST`] |
//! | a failed sync | begins a new boot term | ends the store |
//!
//! An OST on shared storage answers when changes are synced: a takeover by its standby host is a power cut of the old
//! owner, and clients need not know of it.
//!
//! Order of a synced reply: write intents, data and checksums, a sync of the object (with the directory entry of a new
//! one), then the row of the slot, then a sync of the slot table. A row is written after the sync of its change, so that
//! no power cut keeps a row that says "done" and loses the change. Both syncs are shared: a sync that begins after
//! several writes have ended serves all of them.

use std::io;
use std::sync::atomic::Ordering;

use brindle_stdx::disk::OpenHow;
use brindle_stdx::{Disk, planted};
use brindle_types::{Code, Fault, ObjectId};
use bytes::Bytes;

use crate::slots::{SlotTable, Turn};
use crate::stats::add;
use crate::store::ObjectStore;

/// The boot term that a store with synced replies tells. Clients and MDTs compare the terms of replies to learn whether
/// unsynced changes may be lost. Such a store loses no answered change, so its term never changes. The value is the
/// highest number: the lowest term of several changes counts, and a change under this term is never lost.
pub const NOTHING_LOST: u32 = u32::MAX;

/// Moment at which a change is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// A change is answered when it is written: it survives the death of the process, and a power cut if it
    /// was synced.
    #[default]
    Written,
    /// A change is answered when it is synced: it survives everything that the disk survives.
    Synced,
}

/// The file that says that every answered row of the slot table is on the disk.
fn synced_rows_path(root: &str) -> String {
    format!("{root}/slots.synced")
}

/// Whether the rows of the slot table may be believed after a power cut.
pub(crate) fn rows_are_synced(disk: &dyn Disk, root: &str) -> io::Result<bool> {
    match disk.stat(&synced_rows_path(root)) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Records, before the first reply, whether the rows of the slot table may be believed after a power cut.
pub(crate) fn begin(disk: &dyn Disk, root: &str, replies: Replies, slots: &SlotTable) -> io::Result<()> {
    let path = synced_rows_path(root);
    let were_synced = rows_are_synced(disk, root)?;
    match replies {
        Replies::Written if were_synced => disk.remove(&path)?,
        Replies::Written => return Ok(()),
        Replies::Synced => {
            // The last process may have been killed before its sync of the table, or have seen that fail.
            slots.write_again()?;
            disk.open(&path, OpenHow::OpenOrCreate)?;
        }
    }
    disk.sync_dir(root)
}

impl ObjectStore {
    /// The boot term to tell in a reply, for a change that was made or a question that was answered under `term`.
    pub fn told_term(&self, term: u32) -> u32 {
        match self.replies {
            Replies::Written => match self.told.load(Ordering::Acquire) {
                0 => term,
                of_the_set => of_the_set,
            },
            Replies::Synced => NOTHING_LOST,
        }
    }

    /// Whether replies wait for syncs.
    fn replies_wait(&self) -> bool {
        self.replies == Replies::Synced && !planted("ost_reply_before_sync")
    }

    /// The first step of a reply to a change of an object under `term`. If replies wait for syncs, the change is on the
    /// disk on return.
    pub async fn sync_before_reply(&self, id: ObjectId, term: u32) -> Result<(), Fault> {
        if !self.replies_wait() {
            return Ok(());
        }
        let object = self.ready(id).await?;
        self.sync_object(&object).await?;
        self.must_be_of(term, id)
    }

    /// The last step of a reply: records it in its slot, so that the request is not executed again. An answer that is too
    /// long is replaced by `short`. If replies wait for syncs, the row is on the disk on return.
    pub async fn record_reply(
        &self,
        mut turn: Turn,
        reply: &Bytes,
        short: impl FnOnce() -> Bytes,
    ) -> Result<(), Fault> {
        let Some(row) = turn.record(reply, short)? else { return Ok(()) };
        if self.replies_wait() {
            let term = self.boot_term();
            match self.slots.sync(row.number).await {
                Ok(synced) => add(&self.stats.fdatasyncs, u64::from(synced)),
                Err(e) => return Err(self.sync_failed(term, "the slot table".to_owned(), &e)),
            }
            if let Some(fault) = self.failure() {
                return Err(fault);
            }
        }
        turn.answered(row);
        Ok(())
    }

    /// Whether a failed sync has ended the store.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Completes when the store has ended, with the reason. A store that answers what is written goes on under a new boot
    /// term instead.
    pub async fn until_failed(&self) -> Fault {
        let mut ended = self.ended.subscribe();
        // Waiting only fails when the sender is gone, which `self` holds.
        let fault = ended.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        fault.unwrap_or_else(|| Fault::new(Code::Shutdown))
    }

    /// Ends the store, because a sync failed: the kernel counts what it did not write as written, so that no later sync can
    /// be believed.
    pub(crate) fn end(&self, what: String, e: &io::Error) -> Fault {
        let fault = Fault::new(Code::OstIo)
            .what("the disk failed: cannot sync")
            .subject(what)
            .why(e.to_string())
            .data("every change that was answered is on the disk; changes without an answer are sent again by their clients")
            .next("look at the disk: dmesg, and the mount of the target's directory (read-only?); then start the target again, here or on its standby host");
        self.end_with(&fault);
        fault
    }

    fn end_with(&self, fault: &Fault) {
        let mut failed = self.failed.lock();
        if !self.has_ended() {
            tracing::error!("{fault}");
            *failed = Some(fault.clone());
            self.ended.send_replace(Some(fault.clone()));
        }
    }

    /// Ends the store because its disk has answered with this fault, where another member of the replica set has everything.
    pub fn give_up(&self, fault: &Fault) {
        self.end_with(&fault.clone().why("another member of the replica set is to go on"));
    }
}
