//! close: handles go; the last write close of a file ends its write session.

use std::collections::BTreeSet;

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::close::{CLOSES_MAX, CloseReq};

use crate::ask::apply_reports;
use crate::grant;
use crate::mdt::{Call, Mdt};
use crate::store::inode;

/// Gives handles back, each after its last report, in one batch.
pub async fn handle(mdt: &Mdt, call: &Call, req: CloseReq) -> Result<Empty> {
    let inodes: BTreeSet<Ino> = req.closes.iter().map(|close| close.ino).collect();
    if req.closes.len() > CLOSES_MAX || inodes.len() < req.closes.len() {
        let why = "too many handles at once, or two of one inode: which is its last must be seen";
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    mdt.modify(call, |t| {
        t.frees_space();
        for close in &req.closes {
            let report: Vec<_> = close.report.iter().map(|r| (call.session, r.clone())).collect();
            apply_reports(t, close.ino, &report)?;
            if let Some(mut file) = inode::find(t, close.ino)? {
                grant::close(t, call.session, &mut file, close.handle)?;
            }
        }
        Ok(Empty {})
    })
    .await
}
