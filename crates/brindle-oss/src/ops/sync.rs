//! sync_objects.

use brindle_objects::sync::Synced;
use brindle_types::{ObjectId, Result};
use brindle_wire::mgs::durability::Mode;
use brindle_wire::oss::sync::{SyncObjectsReq, SyncObjectsResp};
use brindle_wire::principal::PrincipalKind;

use super::bounded;
use crate::service::Oss;

/// Makes objects durable on all members.
async fn everywhere(oss: &Oss, objects: &[ObjectId]) -> Result<Synced> {
    match &oss.replica {
        None => oss.store.sync(objects).await,
        Some(replica) => Box::pin(replica.sync(oss, objects)).await,
    }
}

/// The last step before a change is answered: where the OST is `sync`, the object is durable on all members.
pub async fn before_answer(oss: &Oss, object: ObjectId) -> Result<()> {
    if oss.mode.now() == Mode::Sync {
        everywhere(oss, &[object]).await?;
    }
    Ok(())
}

/// Makes objects durable; those of a `scratch` OST only where a server asks, which gives up another copy of the bytes.
pub async fn handle(oss: &Oss, asker: PrincipalKind, req: SyncObjectsReq) -> Result<SyncObjectsResp> {
    bounded(&req.objects)?;
    let synced = match oss.mode.now() {
        Mode::Scratch if asker == PrincipalKind::Client => oss.store.synced_in_words(&req.objects).await?,
        _ => everywhere(oss, &req.objects).await?,
    };
    Ok(SyncObjectsResp {
        boot_term: oss.store.told_term(synced.boot_term),
        exists: synced.exists,
        allocated_bytes: synced.allocated_bytes,
    })
}
