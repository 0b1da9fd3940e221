//! note_scrub: an OST or an MDT tells of its scrub, for the events.

use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::mgs::scrub::{NoteScrubReq, NoteScrubResp};

use crate::Mgs;

/// Keeps the pass in memory; the next look for events finds it.
pub(crate) fn handle(mgs: &Mgs, req: NoteScrubReq) -> Result<NoteScrubResp> {
    let map = mgs.store.current();
    if req.target.role == Role::Mgt || map.target(req.target).is_none() {
        return Err(Fault::new(Code::UnknownTarget).subject(map.fs.target(req.target)));
    }
    mgs.scrubs.lock().insert(req.target, req.pass);
    Ok(NoteScrubResp {})
}
