//! Work of the MDT's own: objects to destroy, inode numbers to reserve. Each task is a loop that ends with the MDT.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_layout::Candidate;
use brindle_types::{Ino, ObjectId, Result};
use brindle_wire::Op;
use brindle_wire::oss::destroy::DestroyObjectsReq;
use futures_util::future::join_all;

use crate::mdt::{Call, Mdt};
use crate::store::destroy_queue;
use crate::{attrs, recovery};

/// Objects that one request destroys at most.
pub(crate) const DESTROY_MAX: usize = 1024;
/// Longest wait for an OST to destroy objects.
const DESTROY_TIMEOUT_MS: u64 = 10_000;
/// Longest wait for the objects of a file to tell their allocated bytes.
const RECOUNT_TIMEOUT_MS: u64 = 1_000;
/// Time for which objects gather in the queue before a round: each round syncs the log, and directories at
/// the OSTs.
const GATHER_MS: u64 = 1_000;
/// Free share of an OST below which its queue is emptied at once: a writer may wait for the space.
const FREE_PERCENT_MIN: u64 = 10;
/// Pause after an OST did not answer.
const PAUSE_MS: u64 = 1_000;
/// Pause when all that is left are objects that the disks of their OSTs do not let go.
const STUCK_PAUSE_MS: u64 = 60_000;

/// Extends the reservation of inode numbers whenever half of it is used.
pub async fn reserve_inodes(mdt: Arc<Mdt>) {
    loop {
        mdt.numbers().until_low().await;
        if let Err(fault) = mdt.reserve_inodes().await {
            tracing::error!(%fault, "cannot reserve inode numbers");
            mdt.seams().sleep_ms(PAUSE_MS).await;
        }
    }
}

/// Removes replaced files a moment after their replacement.
pub async fn purge_replaced(mdt: Arc<Mdt>) {
    loop {
        let now = mdt.seams().now();
        let (next_due, due) = {
            let replaced = &mut mdt.live_mut().replaced;
            (replaced.next_due(), replaced.take_due(now))
        };
        match (next_due, due) {
            (None, _) => mdt.replaced().notified().await,
            (Some(due), None) => mdt.seams().sleep_ms(due.ms_since(now).max(1)).await,
            (_, Some(ino)) => {
                if let Err(fault) = recovery::purge(&mdt, ino).await {
                    tracing::error!(%fault, ino = ino.0, "cannot remove a file that was replaced; the next start does");
                    mdt.seams().sleep_ms(PAUSE_MS).await;
                }
            }
        }
    }
}

/// Asks objects how much they have allocated where no writer could say, one file after the other; those whose OST is away again later.
pub async fn recount(mdt: Arc<Mdt>) {
    let due = mdt.live().recounts_due.clone();
    let mut last = Ino(0);
    loop {
        let next = mdt.live_mut().next_recount(last);
        let Some(ino) = next else {
            due.notified().await;
            continue;
        };
        last = ino;
        let counted = mdt.seams().timeout_ms(RECOUNT_TIMEOUT_MS, attrs::recount(&mdt, ino)).await;
        if let Some(Ok(())) = counted {
            continue;
        }
        let why = counted.and_then(std::result::Result::err).map(|fault| fault.to_string());
        tracing::debug!(ino = ino.0, why, "what a file has allocated cannot be asked now");
        mdt.live_mut().recount(ino);
        mdt.seams().sleep_ms(PAUSE_MS).await;
    }
}

/// Destroys the objects in the queue, for as long as the MDT runs.
pub async fn destroy_objects(mdt: Arc<Mdt>) {
    loop {
        match destroy_some(&mdt).await {
            Ok(Progress::Empty) => {
                mdt.destroy_queue().notified().await;
                gather(&mdt).await;
            }
            Ok(Progress::Some) => gather(&mdt).await,
            Ok(Progress::Full) => {}
            Ok(Progress::Unanswered) => mdt.seams().sleep_ms(PAUSE_MS).await,
            Ok(Progress::Stuck) => {
                // Sooner when there is more to do.
                let _ = mdt.seams().timeout_ms(STUCK_PAUSE_MS, mdt.destroy_queue().notified()).await;
                gather(&mdt).await;
            }
            Err(fault) => {
                tracing::error!(%fault, "cannot work on the destroy queue");
                mdt.seams().sleep_ms(PAUSE_MS).await;
            }
        }
    }
}

/// Waits for more objects before the next round, unless space is short.
async fn gather(mdt: &Mdt) {
    let is_low = |free: u64, total: u64| free < total / 100 * FREE_PERCENT_MIN;
    let is_short =
        |c: &Candidate| is_low(c.free_bytes, c.total_bytes) || is_low(c.free_inodes, c.total_inodes);
    if !mdt.osts().candidates().iter().any(is_short) {
        mdt.seams().sleep_ms(GATHER_MS).await;
    }
}

/// Outcome of a round, at one OST. The outcome of a whole round is the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// The queue was empty.
    Empty,
    /// The disk let go of no object.
    Stuck,
    /// An OST does not answer.
    Unanswered,
    /// Objects were destroyed.
    Some,
    /// One OST got as many objects as a round takes; more may be queued.
    Full,
}

/// A round over all OSTs with entries in the queue. Sends only after the batches that queued the entries are durable.
pub async fn destroy_some(mdt: &Mdt) -> Result<Progress> {
    let behind = mdt.live().destroyed_up_to.clone();
    let queued = mdt
        .read(|t| {
            let osts = destroy_queue::osts(t)?;
            let first = |ost| Ok((ost, destroy_queue::first(t, ost, behind.get(&ost), DESTROY_MAX)?));
            osts.into_iter().map(first).collect::<Result<Vec<_>>>()
        })
        .await?;
    if queued.is_empty() {
        return Ok(Progress::Empty);
    }
    if !brindle_stdx::planted("mds_destroy_before_durable") {
        mdt.synced().await?;
    }
    let rounds = queued.iter().map(|(ost, objects)| destroy_at(mdt, *ost, objects));
    let parts = join_all(rounds).await.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(parts.into_iter().max().unwrap_or(Progress::Empty))
}

/// Destroys objects at one OST and takes them off the queue. If some objects are stuck and more are queued, the next round goes on
/// behind them; at the end of the queue it begins anew.
async fn destroy_at(mdt: &Mdt, ost: u16, objects: &[ObjectId]) -> Result<Progress> {
    if objects.is_empty() {
        mdt.live_mut().destroyed_up_to.remove(&ost);
        return Ok(Progress::Stuck);
    }
    let request = DestroyObjectsReq { objects: objects.to_vec() };
    let asked = mdt.osts().ask(ost, &request);
    let stuck: BTreeSet<ObjectId> = match mdt.seams().timeout_ms(DESTROY_TIMEOUT_MS, asked).await {
        Some(Ok(answer)) => answer.stuck.into_iter().collect(),
        // The objects went away with their OST.
        _ if mdt.osts().is_removed(ost) => BTreeSet::new(),
        Some(Err(fault)) => {
            tracing::debug!(ost, %fault, "objects are destroyed later");
            return Ok(Progress::Unanswered);
        }
        None => return Ok(Progress::Unanswered),
    };
    let is_full = objects.len() == DESTROY_MAX;
    match objects.last() {
        Some(last) if is_full && !stuck.is_empty() => mdt.live_mut().destroyed_up_to.insert(ost, *last),
        Some(_) if is_full => None,
        _ => mdt.live_mut().destroyed_up_to.remove(&ost),
    };
    let gone: Vec<&ObjectId> = objects.iter().filter(|object| !stuck.contains(object)).collect();
    if gone.is_empty() {
        tracing::warn!(ost, objects = stuck.len(), "objects are still there: the disk of their OST fails");
        return Ok(Progress::Stuck);
    }
    let call = Call::internal(Op::DestroyObjects);
    mdt.step(&call, |t| {
        t.frees_space();
        gone.iter().for_each(|object| destroy_queue::delete(t, ost, object));
        Ok(())
    })
    .await?;
    Ok(if is_full { Progress::Full } else { Progress::Some })
}
