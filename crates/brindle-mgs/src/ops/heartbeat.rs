//! heartbeat: a target is alive.

use std::sync::atomic::Ordering;

use brindle_types::Result;
use brindle_wire::mgs::{HeartbeatReq, HeartbeatResp};

use crate::Mgs;

/// Remembers that the target was heard of, if it is the one that the map names.
pub(crate) fn handle(mgs: &Mgs, req: &HeartbeatReq) -> Result<HeartbeatResp> {
    mgs.check_fs(&req.fs)?;
    let map = mgs.store.current();
    let known = map.target(req.target).is_some_and(|t| t.uuid == req.uuid && t.epoch == req.epoch);
    if known {
        mgs.liveness.lock().heard(req.target, mgs.seams.now());
    }
    mgs.stats.heartbeats.fetch_add(1, Ordering::Relaxed);
    Ok(HeartbeatResp { map_version: map.version, known })
}
