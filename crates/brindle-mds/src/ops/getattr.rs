//! getattr: attributes of an inode, as everybody may see them at this moment.

use brindle_types::Result;
use brindle_wire::mds::getattr::{GetattrReq, GetattrResp};

use crate::ask::apply_reports;
use crate::attrs;
use crate::mdt::{Call, Mdt};
use crate::store::inode;

/// Applies the caller's own report and answers.
pub async fn handle(mdt: &Mdt, call: &Call, req: GetattrReq) -> Result<GetattrResp> {
    if let Some(report) = req.report {
        let report = [(call.session, report)];
        mdt.step(call, |t| apply_reports(t, req.ino, &report)).await?;
    }
    let attr = attrs::fresh(mdt, call.session, req.ino).await?;
    mdt.read(|t| inode::find(t, req.ino)?.map_or(Ok(()), |inode| t.tell_inode(call, &inode))).await?;
    Ok(GetattrResp { attr })
}
