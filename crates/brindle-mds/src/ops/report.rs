//! report: what a writer tells of its writes about once a second.

use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::report::{REPORT_ITEMS_MAX, ReportReq};

use crate::ask::apply_reports;
use crate::mdt::{Call, Mdt};

/// Applies the reports of several files in one batch. One of a file that the session has closed meanwhile was
/// overtaken: the close said all of it.
pub async fn handle(mdt: &Mdt, call: &Call, req: ReportReq) -> Result<Empty> {
    if req.items.len() > REPORT_ITEMS_MAX {
        return Err(Fault::new(Code::InvalidArgument).why(format!("{} reports at once", req.items.len())));
    }
    let items: Vec<_> = req.items.into_iter().map(|(ino, r)| (ino, [(call.session, r)])).collect();
    mdt.modify(call, |t| {
        for (ino, report) in &items {
            if t.live().opens.reported(*ino, call.session).is_some() {
                apply_reports(t, *ino, report)?;
            }
        }
        Ok(Empty {})
    })
    .await
}
