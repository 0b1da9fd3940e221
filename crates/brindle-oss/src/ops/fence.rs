//! Fences: on disk before the answer.

use std::sync::Arc;

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::oss::fence::{FenceLayoutReq, FenceSessionReq};

use super::bounded;
use crate::service::Oss;

/// Refuses everything of a session below an epoch. The marks that its last changes took may never be told to anybody,
/// so none counts as known.
pub async fn handle_session(oss: &Arc<Oss>, req: FenceSessionReq) -> Result<Empty> {
    oss.store.fence_sessions(vec![(req.session, req.epoch)]).await?;
    oss.marks.forget_all();
    Ok(Empty {})
}

/// Refuses everything of an older layout on objects, existing or not.
pub async fn handle_layout(oss: &Oss, req: FenceLayoutReq) -> Result<Empty> {
    bounded(&req.objects)?;
    for id in &req.objects {
        oss.store.fence_layout(*id, req.layout_epoch).await?;
    }
    Ok(Empty {})
}
