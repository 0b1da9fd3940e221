//! Operations about nodemaps: watch, list, change.

use brindle_net::ServerConn;
use brindle_types::Result;
use brindle_wire::mgs::nodemap::{
    ChangeNodemapReq, ChangeNodemapResp, ListNodemapsResp, NodemapChange, WatchNodemapsReq, WatchNodemapsResp,
};

use super::hosts::{audit, wait};
use crate::Mgs;
use crate::hosts::nodemaps;
use crate::hosts::rows::Rows;

/// All nodemaps, now or as soon as something has changed.
pub(crate) async fn watch(mgs: &Mgs, conn: &ServerConn, req: WatchNodemapsReq) -> Result<WatchNodemapsResp> {
    let hosts = mgs.hosts()?;
    wait(mgs, hosts, conn, req.known_version, req.wait_ms).await;
    let rows = hosts.rows();
    let nodemaps = (rows.version() != req.known_version).then(|| rows.nodemaps().cloned().collect());
    Ok(WatchNodemapsResp { version: rows.version(), nodemaps })
}

/// All nodemaps.
pub(crate) fn list(mgs: &Mgs) -> Result<ListNodemapsResp> {
    Ok(ListNodemapsResp { nodemaps: mgs.hosts()?.rows().nodemaps().cloned().collect() })
}

/// Changes a nodemap.
pub(crate) async fn change(mgs: &Mgs, conn: &ServerConn, req: ChangeNodemapReq) -> Result<ChangeNodemapResp> {
    let hosts = mgs.hosts()?;
    let decide = |rows: &Rows| nodemaps::change(rows, &req.name, &req.change);
    if req.is_dry_run {
        let (changes, nodemap) = decide(&hosts.rows())?;
        return Ok(ChangeNodemapResp { changed: !changes.is_empty(), nodemap });
    }
    let outcome = hosts.change(decide).await;
    let action = match req.change {
        NodemapChange::Add(_) => "add nodemap",
        NodemapChange::Set(_) => "set nodemap",
        NodemapChange::Remove => "remove nodemap",
    };
    audit(conn, action, &req.name, &outcome);
    let (changed, nodemap) = outcome?;
    Ok(ChangeNodemapResp { changed, nodemap })
}
