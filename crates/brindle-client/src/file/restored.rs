//! Reads of a released file while its restore is under way: from the file without a name that the restore puts the bytes into (design
//! note 054).
//!
//! The MDT says whether the range is there. Its objects go when the restore is over, and an OST answers a hole for an object that is gone.
//! Where bytes are missing, the client therefore asks the MDT again: if the same attempt goes on, the missing bytes are a hole.

use std::ops::Range;
use std::sync::Arc;

use brindle_types::{Code, Fault, Pair};
use brindle_wire::mds::hsm::{HsmPart, HsmReadReq, HsmReadResp};
use brindle_wire::oss::Ticket;
use bytes::Bytes;

use super::read::joined;
use crate::inodes::{Inode, LayoutSnapshot};
use crate::{Client, Ctx};

/// Times that a read meets objects that are gone, or an old layout, although the MDT says that the attempt goes on.
const TRIES_MAX: u32 = 16;
/// Pause before the MDT is asked again after that.
const PAUSE_MS: u64 = 50;

/// Most reads of released files that wait at the MDT at once; each takes a credit of the connection. Further reads ask again and again.
pub(crate) const WAITS_MAX: usize = 64;
/// Interval at which such reads ask again.
const ASK_EVERY_MS: u64 = 100;

/// Bytes that came from the objects of a restore.
enum Fetched {
    /// All of them.
    Whole(Vec<Bytes>),
    /// Some were missing: zeros, if the attempt still goes on.
    WithHoles(Vec<Bytes>),
}

impl Client {
    /// Whether reads of a file ask the MDT which parts of it are here.
    pub(super) fn is_restoring(&self, inode: &Inode) -> bool {
        inode.lock().restoring.is_some()
    }

    /// Notes that the file is released. The first answer of the MDT says which restore is waited for.
    pub(super) fn begins_restoring(&self, inode: &Inode) {
        inode.lock().restoring.get_or_insert(Pair::ZERO);
    }

    /// Reads a range of a released file, as soon as it is here; `None` if the whole file is.
    pub(super) async fn read_restored(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        range: Range<u64>,
    ) -> Result<Option<Vec<Bytes>>, Fault> {
        let end = range.end.min(self.size_for(inode, range.end).await?);
        if range.start >= end {
            return Ok(Some(Vec::new()));
        }
        let range = range.start..end;
        let mut tries = 0;
        let mut with_holes: Option<(Pair, Vec<Bytes>)> = None;
        loop {
            let Some(part) = self.ask_restored(ctx, inode, &range).await? else { return Ok(None) };
            if let Some((attempt, pieces)) = with_holes.take()
                && attempt == part.attempt
            {
                return Ok(Some(pieces));
            }
            let attempt = part.attempt;
            match self.fetch_restored(part, range.clone()).await {
                Ok(Fetched::Whole(pieces)) => return Ok(Some(pieces)),
                Ok(Fetched::WithHoles(pieces)) => with_holes = Some((attempt, pieces)),
                Err(fault)
                    if matches!(fault.code, Code::StaleLayout | Code::ObjectMissing) && tries < TRIES_MAX =>
                {
                    tries += 1;
                    self.seams.sleep_ms(PAUSE_MS).await;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Waits until a range is here; `None` if the whole file is.
    async fn ask_restored(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        range: &Range<u64>,
    ) -> Result<Option<HsmPart>, Fault> {
        loop {
            let place = self.restore_waits.try_acquire().ok();
            let waits_for = inode.lock().restoring.filter(|cookie| *cookie != Pair::ZERO);
            let request = HsmReadReq {
                ino: inode.ino,
                offset: range.start,
                len_bytes: range.end - range.start,
                waits: place.is_some(),
                waits_for,
                cred: ctx.cred.clone(),
            };
            // An interrupted caller leaves; the restore goes on.
            let interrupted = || Fault::new(Code::Interrupted);
            let answer = ctx.cancel.until(self.mds.ask(&request)).await.ok_or_else(interrupted)?;
            match answer? {
                HsmReadResp::Here => {
                    let mut state = inode.lock();
                    state.restoring = None;
                    state.stale = true;
                    return Ok(None);
                }
                HsmReadResp::Waiting(cookie) => inode.lock().restoring = Some(cookie),
                HsmReadResp::Failed(fault) => return Err(fault),
                HsmReadResp::Part(part) => {
                    inode.lock().restoring = Some(part.cookie);
                    return Ok(Some(part));
                }
            }
            if place.is_none() {
                let pause = self.seams.sleep_ms(ASK_EVERY_MS);
                ctx.cancel.until(pause).await.ok_or_else(interrupted)?;
            }
        }
    }

    /// Reads from the objects of the file that has what was restored.
    async fn fetch_restored(&self, part: HsmPart, range: Range<u64>) -> Result<Fetched, Fault> {
        let HsmPart { from, grant, .. } = part;
        brindle_layout::check(&grant.layout)?;
        let ticket = Ticket {
            layout_epoch: grant.layout.epoch,
            truncate_epoch: grant.truncate_epoch,
            attr_epoch: grant.attr_epoch,
            must_exist: false,
        };
        let layout = Arc::new(grant.layout);
        let snapshot = LayoutSnapshot { layout, ticket, exclusive: false, cached: false, cuts: 0 };
        let parts = self.fetch_parts(from, &snapshot, range.clone(), false).await?;
        let came: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let is_whole = came as u64 == range.end - range.start;
        let pieces = joined(&snapshot, &parts, range);
        Ok(if is_whole { Fetched::Whole(pieces) } else { Fetched::WithHoles(pieces) })
    }
}
