//! Fences: on disk before the answer.

use std::sync::Arc;

use brindle_types::{ObjectId, Pair, Result, SessionId};
use brindle_wire::mds::Empty;
use brindle_wire::oss::fence::{FenceLayoutReq, FenceSessionReq};
use brindle_wire::oss::replica::ReplicaChange;

use super::{bounded, everywhere};
use crate::service::Oss;

/// Refuses everything of a session below an epoch. The marks that its last changes took may never be told to anybody,
/// so none counts as known.
pub async fn handle_session(oss: &Arc<Oss>, req: FenceSessionReq) -> Result<Empty> {
    fence_session(oss, req.session, req.epoch).await?;
    oss.marks.forget_all();
    Ok(Empty {})
}

/// Refuses everything of an older layout on objects, existing or not.
pub async fn handle_layout(oss: &Arc<Oss>, req: FenceLayoutReq) -> Result<Empty> {
    bounded(&req.objects)?;
    let (objects, layout_epoch) = (req.objects, req.layout_epoch);
    let raise = async {
        for id in &objects {
            oss.store.fence_layout(*id, layout_epoch).await?;
        }
        Ok(())
    };
    let change = ReplicaChange::FenceLayout { objects: objects.clone(), layout_epoch };
    everywhere(oss, &objects, raise, change).await?;
    Ok(Empty {})
}

async fn fence_session(oss: &Arc<Oss>, session: SessionId, epoch: Pair) -> Result<()> {
    let change = ReplicaChange::FenceSession { session, epoch };
    everywhere(oss, &[], oss.store.fence_sessions(vec![(session, epoch)]), change).await
}

/// Checks the session of an MDT, whose epoch is its term. A new term is known to all members before anything is done under it.
pub(crate) async fn admit_mdt(oss: &Arc<Oss>, session: SessionId, epoch: Pair) -> Result<()> {
    let is_new = oss.store.admits_anew(session, epoch);
    oss.store.admit_mdt(session, epoch).await?;
    if is_new && oss.replica.is_some() {
        fence_session(oss, session, epoch).await?;
    }
    Ok(())
}

/// Sets an object aside; other members forget it.
pub(crate) async fn quarantine(oss: &Arc<Oss>, object: ObjectId) -> Result<()> {
    everywhere(oss, &[object], oss.store.quarantine(object), ReplicaChange::Forget { object }).await
}
