//! destroy_objects: asked by the MDT, after the cause is durable there.

use brindle_objects::Destroyed;
use brindle_types::Result;
use brindle_wire::oss::destroy::{DestroyObjectsReq, DestroyObjectsResp};

use super::bounded;
use crate::service::Oss;

/// Removes objects, durably.
pub async fn handle(oss: &Oss, req: DestroyObjectsReq) -> Result<DestroyObjectsResp> {
    bounded(&req.objects)?;
    let Destroyed { removed, stuck } = oss.store.destroy(&req.objects).await?;
    for id in &req.objects {
        oss.marks.forget(*id);
        oss.confirmed.forget(id);
    }
    Ok(DestroyObjectsResp { removed, stuck })
}
