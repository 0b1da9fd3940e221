//! watch_durability and change_durability: the moment at which changes of a target are answered.

use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::mgs::durability::{
    ChangeDurabilityReq, ChangeDurabilityResp, Mode, WatchDurabilityReq, WatchDurabilityResp,
};

use crate::{MAP_WAIT_MAX_MS, Mgs};

/// The modes, now or as soon as they are others than the caller's.
pub(crate) async fn watch(
    mgs: &Mgs,
    conn: &ServerConn,
    req: WatchDurabilityReq,
) -> Result<WatchDurabilityResp> {
    let other = || {
        let (version, modes) = mgs.durability.now();
        (version != req.known_version).then(|| WatchDurabilityResp { version, modes: Some((*modes).clone()) })
    };
    let unchanged = || WatchDurabilityResp { version: req.known_version, modes: None };
    if let Some(other) = other() {
        return Ok(other);
    }
    // With too many waiting, callers poll.
    let Ok(_place) = mgs.waiters.try_acquire() else { return Ok(unchanged()) };
    let wait_ms = u64::from(req.wait_ms.min(MAP_WAIT_MAX_MS));
    if wait_ms > 0 && !conn.is_closed() {
        mgs.seams.timeout_ms(wait_ms, mgs.durability.other_than(req.known_version)).await;
    }
    Ok(other().unwrap_or_else(unchanged))
}

/// Gives a target a mode.
pub(crate) async fn change(mgs: &Mgs, req: ChangeDurabilityReq) -> Result<ChangeDurabilityResp> {
    let name = mgs.superblock.fs.target(req.target);
    let refuse = |code: Code, why: &'static str| {
        Fault::new(code)
            .what("cannot change the durability of")
            .subject(name.clone())
            .why(why)
            .data("nothing was changed")
    };
    if req.target.role == Role::Mgt {
        return Err(refuse(Code::BadArgument, "the configuration is synced before anything of it is told"));
    }
    if mgs.store.current().target(req.target).is_none() {
        return Err(refuse(Code::UnknownTarget, "the file system has no such target")
            .next("list them: brindle target list"));
    }
    let rows = mgs.hosts.as_ref().map(|hosts| hosts.rows()).unwrap_or_default();
    if rows.shared_target(req.target).is_some() && req.mode != Mode::Sync {
        return Err(refuse(
            Code::BadArgument,
            "two hosts reach its device, and a takeover is a power cut of the former owner: it is always sync",
        ));
    }
    let (changed, before) = mgs.durability.change(req.target, req.mode, req.is_dry_run).await?;
    Ok(ChangeDurabilityResp { changed, before })
}
