//! truncate_object: the MDT cuts an object.

use brindle_types::Result;
use brindle_wire::oss::truncate::TruncateObjectReq;
use brindle_wire::oss::{ChangeResp, Marks};

use crate::service::Oss;

/// Cuts or extends; durable before the answer.
pub async fn handle(oss: &Oss, req: TruncateObjectReq) -> Result<ChangeResp> {
    let TruncateObjectReq { object, len_bytes, truncate_epoch, make, must_exist } = req;
    let changed = oss.store.truncate(object, len_bytes, truncate_epoch, make, must_exist).await?;
    // The MDT tells every client of the cut itself; marks in front of it stay for the changes to come.
    let boot_term = oss.store.told_term(changed.boot_term);
    let allocated_bytes = changed.allocated_bytes;
    Ok(ChangeResp { boot_term, marks: Marks::None, takings: Vec::new(), allocated_bytes })
}
