//! session_rights: what a session of a limited host may do with the objects of a file. The answer comes from the table of open files
//! without waiting, because an OST waits for it.

use brindle_types::Result;
use brindle_wire::mds::rights::{SessionRightsReq, SessionRightsResp};

use crate::mdt::{Call, Mdt};

/// Rights from the open files of the session. None for a session that is not alive under this epoch, or that another host has opened.
pub async fn handle(mdt: &Mdt, _call: &Call, req: SessionRightsReq) -> Result<SessionRightsResp> {
    let none = SessionRightsResp { read: false, write: false, is_unsettled: false };
    let live = mdt.live();
    let Some(session) = live.session(req.session, req.epoch).filter(|known| known.row.host == req.host)
    else {
        return Ok(none);
    };
    if session.must_reclaim {
        return Ok(SessionRightsResp { is_unsettled: true, ..none });
    }
    let reads = |ino| live.opens.held(ino, req.session).is_some_and(|handle| handle.read || handle.execute);
    // Whoever has opened a released file reads the extents that have come back; the agent goes on writing them.
    let read = reads(req.ino) || live.hsm.restored_from(req.ino).is_some_and(reads);
    let write = live.opens.held(req.ino, req.session).is_some_and(|handle| handle.write);
    Ok(SessionRightsResp { read, write, is_unsettled: false })
}
