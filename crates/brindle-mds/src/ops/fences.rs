//! fence_table: the epochs of all sessions, for an OST that was away while some were ended.

use brindle_types::Result;
use brindle_wire::mds::fences::{FenceTableReq, FenceTableResp};

use crate::mdt::{Call, Mdt};

/// Answers from durable state.
pub async fn handle(mdt: &Mdt, _call: &Call, _req: FenceTableReq) -> Result<FenceTableResp> {
    // First: what is ended meanwhile may be missing in the table, not in a version that says it is there.
    let version = mdt.fences_version();
    let fences = mdt.live().sessions.iter().map(|(id, s)| (*id, s.row.epoch)).collect();
    mdt.synced().await?;
    Ok(FenceTableResp { fences, version })
}
