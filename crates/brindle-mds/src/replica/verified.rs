//! The scrub of the primary, at a member that follows: the member verifies its own files, and tells digests of its rows at one moment.
//!
//! Nothing here changes a row. The messages are checked against the attachment and then work on their own, so that a takeover waits for none of
//! them.

use std::sync::Arc;

use brindle_kv::{FileDamage, FilePlace, Snapshot};
use brindle_net::ServerConn;
use brindle_targets::replica::kept;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::replica::*;

use super::following::{FollowerService, panicked};
use super::{place, pos};
use crate::scrub;
use crate::store::engine::still_there;

/// A place in files, as messages have it.
pub(crate) fn told(place: FilePlace) -> StorePlace {
    StorePlace { file: place.file, offset: place.offset, index: place.index }
}

/// The place of a message.
pub(crate) fn heard(place: StorePlace) -> FilePlace {
    FilePlace { file: place.file, offset: place.offset, index: place.index }
}

impl FollowerService {
    /// Verifies a piece of the member's files, and mends what can be mended here.
    pub(super) async fn verify(
        self: &Arc<Self>,
        conn: &ServerConn,
        req: MemberVerifyReq,
    ) -> Result<MemberVerifyResp> {
        drop(self.set.enter(conn, req.attachment).await?);
        let held = self.held.clone();
        let at = req.place.map(heard);
        let seen = self
            .seams
            .run_blocking(move || brindle_kv::verify(&|| held.lock().verifier(), at.as_ref()))
            .await
            .unwrap_or_else(|| Err(panicked()))?;
        let mut damaged = seen.damaged;
        self.mend_log(&mut damaged).await;
        if let Some(damage) = damaged.iter().find(|damage| !damage.is_mended) {
            let why = format!("{} at offset {}: {}", damage.file, damage.offset, damage.why);
            self.blocking(move |held| held.mark_damaged(&why)).await?;
        }
        let damage = |d: FileDamage| StoreDamage {
            file: d.file,
            offset: d.offset,
            why: d.why,
            is_mended: d.is_mended,
        };
        Ok(MemberVerifyResp {
            next: seen.next.map(told),
            read_bytes: seen.read_bytes,
            damaged: damaged.into_iter().map(damage).collect(),
        })
    }

    /// Puts all rows of a damaged log into the checkpoint, where that is possible.
    async fn mend_log(self: &Arc<Self>, damaged: &mut [FileDamage]) {
        let files: Vec<String> = damaged.iter().filter(|d| d.is_in_log()).map(|d| d.file.clone()).collect();
        if files.is_empty() {
            return;
        }
        let renewed = async {
            self.checkpoint_now(true).await?;
            self.blocking(move |held| still_there(&held.verifier()?, &files)).await
        };
        match renewed.await {
            Ok(()) => damaged.iter_mut().filter(|d| d.is_in_log()).for_each(|d| d.is_mended = true),
            Err(fault) => tracing::warn!(code = %fault.code, "a damaged log is not mended: {fault}"),
        }
    }

    /// Writes a checkpoint of everything that was taken in so far.
    async fn checkpoint_now(self: &Arc<Self>, renews_log: bool) -> Result<()> {
        while !self.claim_checkpoint() {
            // The sender lives as long as `self`.
            let _ = self.checkpointing.subscribe().wait_for(|is_running| !is_running).await;
        }
        let begun = self.blocking(move |held| held.begin_checkpoint(renews_log)).await;
        let written = match begun {
            Ok(None) => Ok(()),
            Ok(Some(begun)) => {
                let written = self.seams.run_blocking(move || begun.write()).await;
                written.unwrap_or_else(|| Err(panicked())).map(|done| self.held.lock().end_checkpoint(done))
            }
            // Without room for another segment of the log the member goes on as it is.
            Err(fault) if fault.code == Code::MdtFull => {
                self.checkpointing.send_replace(false);
                return Err(fault);
            }
            Err(fault) => Err(fault),
        };
        self.checkpointing.send_replace(false);
        written.inspect_err(|fault| self.checkpoint_failed(fault))
    }

    /// A step of comparing rows with the primary.
    pub(super) async fn compare(
        self: &Arc<Self>,
        conn: &ServerConn,
        req: MemberCompareReq,
    ) -> Result<MemberCompareResp> {
        drop(self.set.enter(conn, req.attachment).await?);
        match req.step {
            CompareStep::Begin { from } => {
                let last = self.held.lock().last().ok_or_else(|| Fault::new(Code::NotPrimary))?;
                if last.index < from.index {
                    let why = format!("it has the log up to {last}, and not yet up to {}", pos(from));
                    return Err(Fault::new(Code::TryAgain).why(why));
                }
                self.checkpoint_now(false).await?;
                let snapshot = Arc::new(self.held.lock().snapshot()?);
                let at = place(snapshot.at());
                *self.compared.lock() = Some(snapshot);
                Ok(MemberCompareResp { at, ..MemberCompareResp::default() })
            }
            CompareStep::Rows { after, to, rows_max } => {
                let snapshot = self.compared.lock().clone();
                let Some(snapshot) = snapshot else {
                    return Err(Fault::new(Code::TryAgain).why("the moment was given up"));
                };
                let own = snapshot.clone();
                let read = move || own.digest(&after, to.as_deref(), rows_max, u64::MAX);
                let digest = self.seams.run_blocking(read).await.unwrap_or_else(|| Err(panicked()));
                if let Err(fault) = &digest
                    && fault.code == Code::KvDamaged
                {
                    let why = fault.to_string();
                    self.blocking(move |held| held.mark_damaged(&why)).await?;
                }
                let digest = digest?;
                let at = place(snapshot.at());
                Ok(MemberCompareResp { at, rows: digest.rows, bytes: digest.bytes, sum: digest.sum })
            }
            CompareStep::End => {
                self.compared.lock().take();
                Ok(MemberCompareResp::default())
            }
        }
    }

    /// Keeps the record of the primary's scrub.
    pub(super) async fn keep_scrub(&self, conn: &ServerConn, req: MemberScrubReq) -> Result<Empty> {
        let _attached = self.set.enter(conn, req.attachment).await?;
        let (disk, dir) = (&*self.seams.disk, &self.dir);
        self.scrub.keep(disk, dir, &req.record)?;
        kept::save(disk, &scrub::places_path(dir), &req.places)?;
        Ok(Empty {})
    }
}

/// Rows of a member at a moment, for as long as they are compared.
pub(super) type Compared = parking_lot::Mutex<Option<Arc<Snapshot>>>;
