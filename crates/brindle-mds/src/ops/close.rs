//! close: the handle goes; the last write close ends the write session.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::close::CloseReq;

use crate::ask::apply_reports;
use crate::grant;
use crate::mdt::{Call, Mdt};
use crate::store::inode;

/// Gives a handle back, after its last report.
pub async fn handle(mdt: &Mdt, call: &Call, req: CloseReq) -> Result<Empty> {
    let report: Vec<_> = req.report.into_iter().map(|r| (call.session, r)).collect();
    mdt.modify(call, |t| {
        t.frees_space();
        apply_reports(t, req.ino, &report)?;
        if let Some(mut file) = inode::find(t, req.ino)? {
            grant::close(t, call.session, &mut file, req.handle)?;
        }
        Ok(Empty {})
    })
    .await
}
