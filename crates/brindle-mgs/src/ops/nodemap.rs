//! Operations about nodemaps: watch, list, change.
//!
//! The operations without mappings serve hosts of the last release. These hosts see nodemaps as they are stored; a nodemap with a mapping
//! appears closed to them.

use brindle_net::ServerConn;
use brindle_types::Result;
use brindle_wire::mgs::id_map::{
    ChangeMappedNodemapReq, ChangeMappedNodemapResp, IdMapEdit, ListMappedNodemapsResp,
    WatchMappedNodemapsReq, WatchMappedNodemapsResp,
};
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

/// All nodemaps with their mappings, now or as soon as something has changed.
pub(crate) async fn watch_mapped(
    mgs: &Mgs,
    conn: &ServerConn,
    req: WatchMappedNodemapsReq,
) -> Result<WatchMappedNodemapsResp> {
    let hosts = mgs.hosts()?;
    wait(mgs, hosts, conn, req.known_version, req.wait_ms).await;
    let rows = hosts.rows();
    let nodemaps = (rows.version() != req.known_version).then(|| rows.mapped_nodemaps().collect());
    Ok(WatchMappedNodemapsResp { version: rows.version(), nodemaps })
}

/// All nodemaps.
pub(crate) fn list(mgs: &Mgs) -> Result<ListNodemapsResp> {
    Ok(ListNodemapsResp { nodemaps: mgs.hosts()?.rows().nodemaps().cloned().collect() })
}

/// All nodemaps with their mappings.
pub(crate) fn list_mapped(mgs: &Mgs) -> Result<ListMappedNodemapsResp> {
    Ok(ListMappedNodemapsResp { nodemaps: mgs.hosts()?.rows().mapped_nodemaps().collect() })
}

/// Changes a nodemap, and leaves its mapping as it is.
pub(crate) async fn change(mgs: &Mgs, conn: &ServerConn, req: ChangeNodemapReq) -> Result<ChangeNodemapResp> {
    let ChangeNodemapReq { name, change, is_dry_run } = req;
    let req = ChangeMappedNodemapReq { name, change, ids: IdMapEdit::default(), is_dry_run };
    let ChangeMappedNodemapResp { changed, nodemap } = change_mapped(mgs, conn, req).await?;
    Ok(ChangeNodemapResp { changed, nodemap: nodemap.map(|mapped| mapped.nodemap) })
}

/// Changes a nodemap and its mapping.
pub(crate) async fn change_mapped(
    mgs: &Mgs,
    conn: &ServerConn,
    req: ChangeMappedNodemapReq,
) -> Result<ChangeMappedNodemapResp> {
    let hosts = mgs.hosts()?;
    let decide = |rows: &Rows| nodemaps::change(rows, &req.name, &req.change, &req.ids);
    if req.is_dry_run {
        let (changes, nodemap) = decide(&hosts.rows())?;
        return Ok(ChangeMappedNodemapResp { changed: !changes.is_empty(), nodemap });
    }
    let outcome = hosts.change(decide).await;
    let action = match req.change {
        NodemapChange::Add(_) => "add nodemap",
        NodemapChange::Set(_) => "set nodemap",
        NodemapChange::Remove => "remove nodemap",
    };
    audit(conn, action, &req.name, &outcome);
    let (changed, nodemap) = outcome?;
    Ok(ChangeMappedNodemapResp { changed, nodemap })
}
