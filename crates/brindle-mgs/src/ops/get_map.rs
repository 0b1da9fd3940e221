//! get_map: the map, now or as soon as it is newer than the caller's.

use brindle_net::ServerConn;
use brindle_types::Result;
use brindle_wire::map::delta::{MapDelta, MapUpdate};
use brindle_wire::mgs::{GetMapReq, GetMapResp};

use crate::{MAP_WAIT_MAX_MS, Mgs};

/// Answers at once with a newer map, or waits for one for as long as the caller does.
pub(crate) async fn handle(mgs: &Mgs, conn: &ServerConn, req: GetMapReq) -> Result<GetMapResp> {
    mgs.check_fs(&req.fs)?;
    let newer = || (mgs.store.current().version > req.known_version).then(|| update(mgs, req.known_version));
    if let Some(update) = newer() {
        return Ok(GetMapResp { update: Some(update) });
    }
    let wait_ms = u64::from(req.wait_ms.min(MAP_WAIT_MAX_MS));
    // With too many waiting, callers poll: they wait on their own side and ask again.
    let Ok(_place) = mgs.waiters.try_acquire() else { return Ok(GetMapResp { update: None }) };
    if wait_ms > 0 && !conn.is_closed() {
        mgs.seams.timeout_ms(wait_ms, mgs.store.newer_than(req.known_version)).await;
    }
    Ok(GetMapResp { update: newer() })
}

/// The update from a version to the newest: the changes, or the whole map.
fn update(mgs: &Mgs, known_version: u64) -> MapUpdate {
    let now = mgs.map_now();
    match mgs.store.earlier(known_version) {
        Some(earlier) => MapUpdate::Delta(MapDelta::between(&earlier, &now)),
        None => MapUpdate::Whole(now),
    }
}
