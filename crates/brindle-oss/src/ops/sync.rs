//! sync_objects.

use brindle_net::trace::{Part, in_part};
use brindle_objects::sync::Synced;
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::mgs::durability::Mode;
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::sync::{SyncObjectsReq, SyncObjectsResp};
use brindle_wire::principal::PrincipalKind;

use super::{Outcome, bounded};
use crate::service::Oss;

/// Makes objects durable on all members.
async fn everywhere(oss: &Oss, objects: &[ObjectId]) -> Result<Synced> {
    let syncing = async {
        match &oss.replica {
            None => oss.store.sync(objects).await,
            Some(replica) => Box::pin(replica.sync(oss, objects)).await,
        }
    };
    in_part(Part::Disk, syncing).await
}

/// The last step before a change is answered: where the OST is `sync`, the object is durable on all members.
pub(super) async fn before_answer(oss: &Oss, object: ObjectId, made: &Outcome) -> Result<()> {
    if oss.mode.is_fixed() || oss.mode.now() != Mode::Sync {
        return Ok(());
    }
    everywhere(oss, &[object]).await?;
    // A sync that fails takes what was written before with it, and the next one knows nothing of that.
    let is_of_this_term =
        |change: &ChangeResp| change.boot_term == oss.store.told_term(oss.store.boot_term());
    match made {
        Outcome::Made(change) if !is_of_this_term(change) => Err(Fault::new(Code::OstIo)
            .subject(format!("object {object}"))
            .why("a sync of this target failed while the change was on its way to its disk")
            .data("what was written since the last sync may be lost")),
        _ => Ok(()),
    }
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
