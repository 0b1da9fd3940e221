//! sync_objects.

use brindle_types::Result;
use brindle_wire::oss::sync::{SyncObjectsReq, SyncObjectsResp};

use super::bounded;
use crate::service::Oss;

/// Makes objects durable.
pub async fn handle(oss: &Oss, req: SyncObjectsReq) -> Result<SyncObjectsResp> {
    bounded(&req.objects)?;
    let synced = match &oss.replica {
        None => oss.store.sync(&req.objects).await?,
        Some(replica) => Box::pin(replica.sync(oss, &req.objects)).await?,
    };
    Ok(SyncObjectsResp {
        boot_term: oss.store.told_term(synced.boot_term),
        exists: synced.exists,
        allocated_bytes: synced.allocated_bytes,
    })
}
