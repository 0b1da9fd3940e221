//! fsync: the MDT's half. One log holds everything, so the path to the inode is durable with it.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::fsync::FsyncReq;

use crate::ask::apply_reports;
use crate::mdt::{Call, Mdt};
use crate::store::inode;

/// Applies the report and waits until the log is on the device.
pub async fn handle(mdt: &Mdt, call: &Call, req: FsyncReq) -> Result<Empty> {
    let report: Vec<_> = req.report.into_iter().map(|r| (call.session, r)).collect();
    let done = mdt.modify(call, |t| {
        t.frees_space();
        inode::get(t, req.ino)?;
        apply_reports(t, req.ino, &report)?;
        Ok(Empty {})
    });
    let done = done.await?;
    mdt.synced_as_asked().await?;
    Ok(done)
}
