//! list_objects: for fsck of a running cluster.

use brindle_types::Result;
use brindle_wire::oss::list::{ListObjectsReq, ListObjectsResp};

use super::OBJECTS_MAX;
use crate::service::Oss;

/// Objects behind one, in an order that stays.
pub async fn handle(oss: &Oss, req: ListObjectsReq) -> Result<ListObjectsResp> {
    let (listed, end) = oss.store.list(req.after, (req.limit as usize).min(OBJECTS_MAX)).await?;
    let objects = listed.iter().filter(|o| o.exists).map(|o| (o.object, o.len_bytes)).collect();
    Ok(ListObjectsResp { objects, end })
}
