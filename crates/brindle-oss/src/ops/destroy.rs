//! destroy_objects: asked by the MDT, after the cause is durable there.

use std::sync::Arc;

use brindle_objects::Destroyed;
use brindle_types::{ObjectId, Result};
use brindle_wire::oss::destroy::{DestroyObjectsReq, DestroyObjectsResp};
use brindle_wire::oss::replica::ReplicaChange;

use super::{bounded, everywhere};
use crate::service::Oss;

/// Removes objects, durably.
pub async fn handle(oss: &Arc<Oss>, req: DestroyObjectsReq) -> Result<DestroyObjectsResp> {
    bounded(&req.objects)?;
    let Destroyed { removed, stuck } = destroy(oss, &req.objects).await?;
    for id in &req.objects {
        oss.marks.forget(*id);
        oss.confirmed.forget(id);
    }
    Ok(DestroyObjectsResp { removed, stuck })
}

/// Removes objects here and on all members.
pub(crate) async fn destroy(oss: &Arc<Oss>, objects: &[ObjectId]) -> Result<Destroyed> {
    let change = ReplicaChange::Destroy { objects: objects.to_vec() };
    everywhere(oss, objects, oss.store.destroy(objects), change).await
}
