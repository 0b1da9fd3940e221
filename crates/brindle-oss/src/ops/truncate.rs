//! truncate_object: the MDT cuts an object.

use brindle_types::Result;
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::truncate::TruncateObjectReq;

use crate::service::Oss;

/// Cuts or extends; durable before the answer.
pub async fn handle(oss: &Oss, req: TruncateObjectReq) -> Result<ChangeResp> {
    let changed = oss.store.truncate(req.object, req.len_bytes, req.truncate_epoch, req.make).await?;
    let marks = oss.marks.change(req.object);
    Ok(ChangeResp { boot_term: changed.boot_term, marks, allocated_bytes: changed.allocated_bytes })
}
