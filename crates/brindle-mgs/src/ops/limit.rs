//! watch_limits and change_limit: limits of jobs, users and hosts.

use brindle_net::ServerConn;
use brindle_types::Result;
use brindle_wire::mgs::limit::{ChangeLimitReq, ChangeLimitResp, WatchLimitsReq, WatchLimitsResp};

use crate::{MAP_WAIT_MAX_MS, Mgs};

/// The limits, now or as soon as they are others than the caller's.
pub(crate) async fn watch(mgs: &Mgs, conn: &ServerConn, req: WatchLimitsReq) -> Result<WatchLimitsResp> {
    let other = || {
        let (version, rules) = mgs.limits.now(mgs.seams.wall().secs);
        (version != req.known_version).then_some(WatchLimitsResp { version, rules: Some(rules) })
    };
    let unchanged = || WatchLimitsResp { version: req.known_version, rules: None };
    if let Some(other) = other() {
        return Ok(other);
    }
    // With too many waiting, callers poll.
    let Ok(_place) = mgs.waiters.try_acquire() else { return Ok(unchanged()) };
    let wait_ms = u64::from(req.wait_ms.min(MAP_WAIT_MAX_MS));
    if wait_ms > 0 && !conn.is_closed() {
        mgs.seams.timeout_ms(wait_ms, mgs.limits.other_than(req.known_version)).await;
    }
    Ok(other().unwrap_or_else(unchanged))
}

/// Makes, changes or removes a limit.
pub(crate) async fn change(mgs: &Mgs, req: ChangeLimitReq) -> Result<ChangeLimitResp> {
    let now_s = mgs.seams.wall().secs;
    let (changed, rule) = mgs.limits.change(&req.change, now_s, req.is_dry_run).await?;
    Ok(ChangeLimitResp { changed, rule })
}
