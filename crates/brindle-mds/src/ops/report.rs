//! report: what a writer tells of its writes about once a second.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result, Stripe};
use brindle_wire::mds::Empty;
use brindle_wire::mds::report::{REPORT_ITEMS_MAX, ReportReq, SyncedObjects};

use crate::ask::apply_reports;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::reports;
use crate::store::inode;

/// Applies the reports of several files in one batch. A report of a file that the session has closed meanwhile is
/// ignored: the close has told all of it. Synced objects of closed files are recorded, too.
pub async fn handle(mdt: &Mdt, call: &Call, req: ReportReq) -> Result<Empty> {
    let most = req.items.len().max(req.synced.len());
    if most > REPORT_ITEMS_MAX {
        return Err(Fault::new(Code::InvalidArgument).why(format!("{most} reports at once")));
    }
    let items: Vec<_> = req.items.into_iter().map(|(ino, r)| (ino, [(call.session, r)])).collect();
    mdt.modify(call, |t| {
        for (ino, report) in &items {
            if t.live().opens.reported(*ino, call.session).is_some() {
                apply_reports(t, *ino, report)?;
            }
        }
        for synced in &req.synced {
            // If a limited host has closed the file, its word does not count: the MDT finds out by itself which
            // objects exist.
            let counts = t.live().limits(call.session).is_none()
                || t.live().opens.is_written_by(synced.ino, call.session);
            if counts {
                record(t, synced)?;
            }
        }
        Ok(Empty {})
    })
    .await
}

/// Records which objects of a file exist. Does nothing if the file is gone or holds other contents by now.
fn record(t: &mut Txn<'_>, synced: &SyncedObjects) -> Step<()> {
    // Rows grow by a bit at most, and synced objects must be recorded even when the MDT is full.
    t.frees_space();
    let Some(mut file) = inode::find(t, synced.ino)? else { return Ok(()) };
    let Some(body) = &mut file.file else { return Ok(()) };
    let known = |stripe: &Stripe| body.layout.object_known(*stripe);
    if synced.stripes.iter().all(known) {
        return Ok(());
    }
    reports::objects_exist(Arc::make_mut(body), synced.body, &synced.stripes);
    inode::put(t, &file)?;
    Ok(())
}
