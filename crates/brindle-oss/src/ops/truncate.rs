//! truncate_object: the MDT cuts an object.

use std::sync::Arc;

use brindle_types::Result;
use brindle_wire::oss::replica::ReplicaChange;
use brindle_wire::oss::truncate::TruncateObjectReq;
use brindle_wire::oss::{ChangeResp, Marks};

use super::everywhere;
use crate::service::Oss;

/// Cuts or extends; durable before the answer.
pub async fn handle(oss: &Arc<Oss>, req: TruncateObjectReq) -> Result<ChangeResp> {
    let TruncateObjectReq { object, len_bytes, truncate_epoch, make, must_exist } = req;
    let cut = oss.store.truncate(object, len_bytes, truncate_epoch, make, must_exist);
    let change = ReplicaChange::Truncate { object, len_bytes, epoch: truncate_epoch, make };
    let changed = everywhere(oss, &[object], cut, change).await?;
    // The MDT tells every client of the cut itself; marks in front of it stay for the changes to come.
    let boot_term = oss.store.told_term(changed.boot_term);
    let allocated_bytes = changed.allocated_bytes;
    Ok(ChangeResp { boot_term, marks: Marks::None, takings: Vec::new(), allocated_bytes })
}
