//! scan: a page of a walk over a tree, with a predicate or sums (`lfs find`, `brindle file du`).
//!
//! A scan reads committed rows without a lock, so it is not a snapshot: it may or may not find entries that are created,
//! removed or renamed while it runs. It finds an entry that stays, in directories that stay, exactly once. If a
//! directory moves from a scanned part to a later one, its contents are found twice; in the other direction they are not
//! found, as with find(1). A file with several names is found under each of them. Sums list such files apart, so that a
//! caller that adds sums up counts each file once.
//!
//! Sizes, space and times are those that the MDT knows without asking anybody. For a file that is open for writing they
//! may be about a second behind (a write session reports that often); for all others they are exact.

use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::scan::{ScanReq, ScanResp};

use crate::mdt::{Call, Mdt};
use crate::namespace::NAME_BYTES_MAX;
use crate::scan::{Limits, Walk};

/// Makes one page. Pages of several scans are made one after the other.
pub async fn handle(mdt: &Mdt, call: &Call, req: ScanReq) -> Result<ScanResp> {
    if req.start_name.len() > NAME_BYTES_MAX {
        return Err(Fault::new(Code::NameTooLong).why(format!("the name has {} bytes", req.start_name.len())));
    }
    let page = {
        let _turn = mdt.scans().acquire().await;
        let wall = mdt.seams().wall();
        let now = Time { secs: wall.secs, nanos: wall.nanos };
        let host = call.admission().map(|admitted| admitted.limits());
        Walk::page_for(host, mdt.engine(), mdt.engine().format().hash_key, &req, now, Limits::PAGE)?
    };
    mdt.engine().wait_reply(mdt.engine().last_pos()).await?;
    Ok(page)
}
