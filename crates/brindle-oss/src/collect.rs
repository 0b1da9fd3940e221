//! Garbage: objects that nobody wants are found by asking the MDT, object by object, and only its word counts.
//!
//! A pass goes over all objects in order, slowly. What the MDT disowns is destroyed; what it never issued is set aside.
//! A write makes an object long before the MDT hears of it, but never before the MDT has recorded its generation, so that
//! the answer is right at any moment.

use std::sync::Arc;

use brindle_types::{ObjectId, Result, TargetId};
use brindle_wire::mds::owner::{OwnerQueryReq, Verdict};

use crate::peers::passes;
use crate::service::Oss;

/// Objects in one question.
const ASK_MAX: usize = 1024;
/// Pause between questions.
const PAUSE_MS: u64 = 200;
/// Pause between passes.
const REST_MS: u64 = 30_000;
/// Pause when the MDT does not answer.
const RETRY_MS: u64 = 1_000;

/// Goes over the objects again and again, for as long as the OST runs.
pub async fn run(oss: Arc<Oss>) {
    loop {
        let mut after = None;
        loop {
            match some(&oss, after).await {
                Ok(Some(last)) => after = Some(last),
                Ok(None) => break,
                Err(fault) if passes(&fault) => oss.seams.sleep_ms(RETRY_MS).await,
                Err(fault) => {
                    tracing::warn!(code = %fault.code, "cannot look for garbage: {fault}");
                    oss.seams.sleep_ms(REST_MS).await;
                }
            }
            oss.seams.sleep_ms(PAUSE_MS).await;
        }
        oss.seams.sleep_ms(REST_MS).await;
    }
}

/// Asks about the objects behind `after`; the last of them, or `None` at the end.
async fn some(oss: &Oss, after: Option<ObjectId>) -> Result<Option<ObjectId>> {
    let (listed, end) = oss.store.list(after, ASK_MAX).await?;
    let objects: Vec<ObjectId> = listed.iter().map(|o| o.object).collect();
    let Some(last) = objects.last().copied() else { return Ok(None) };
    let ost = oss.identity.target.index;
    // One MDT so far; an inode number names its home.
    let home = TargetId::mdt(0);
    let question = OwnerQueryReq { objects, ost };
    let answer = oss.peers.ask(home, &question).await?;
    let mut garbage = Vec::new();
    for (object, verdict) in question.objects.iter().zip(answer.verdicts) {
        match verdict {
            Verdict::Owned => {}
            Verdict::Disowned => garbage.push(*object),
            Verdict::Unknown => oss.store.quarantine(*object).await?,
        }
    }
    if !garbage.is_empty() {
        let removed = oss.store.destroy(&garbage).await?;
        tracing::info!(removed, "removed objects that the MDT disowns");
    }
    Ok((!end).then_some(last))
}
