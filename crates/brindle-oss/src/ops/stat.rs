//! stat_objects.

use brindle_types::Result;
use brindle_wire::oss::stat::{StatObjectsReq, StatObjectsResp};

use super::bounded;
use crate::service::Oss;

/// Length and times of objects.
pub async fn handle(oss: &Oss, req: StatObjectsReq) -> Result<StatObjectsResp> {
    bounded(&req.objects)?;
    let mut objects = Vec::with_capacity(req.objects.len());
    for id in &req.objects {
        objects.push(oss.store.stat(*id).await?);
    }
    Ok(StatObjectsResp { objects, boot_term: oss.store.told_term(oss.store.boot_term()) })
}
