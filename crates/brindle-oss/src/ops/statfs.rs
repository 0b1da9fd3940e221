//! ost_statfs.

use brindle_types::Result;
use brindle_wire::oss::statfs::{OstStatfsReq, OstStatfsResp};

use crate::service::Oss;

/// Space as users may have it.
pub async fn handle(oss: &Oss, _req: OstStatfsReq) -> Result<OstStatfsResp> {
    let space = oss.store.space()?;
    let on_others = oss.replica.as_ref().map_or(u64::MAX, |replica| replica.available_bytes());
    Ok(OstStatfsResp {
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes.min(on_others),
        total_inodes: space.total_inodes,
        free_inodes: space.free_inodes,
        device_id: space.device_id,
        boot_term: oss.store.told_term(oss.store.boot_term()),
        degraded: super::target_info::failure(oss).is_some(),
    })
}
