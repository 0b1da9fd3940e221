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
    if let Some(released) = live.hsm.restored_from(req.ino) {
        // Whoever has opened the released file reads what has come back of it.
        let held = live.opens.held(released, req.session);
        let reads = held.is_some_and(|handle| handle.read || handle.execute);
        return Ok(SessionRightsResp { read: reads, ..none });
    }
    let held = live.opens.held(req.ino, req.session);
    let reads = held.is_some_and(|handle| handle.read || handle.execute);
    Ok(SessionRightsResp { read: reads, write: held.is_some_and(|handle| handle.write), is_unsettled: false })
}
