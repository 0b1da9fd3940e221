//! events: returns events, now or as soon as there are new ones.

use brindle_net::ServerConn;
use brindle_types::Result;
use brindle_wire::mgs::{EventsReq, EventsResp};

use crate::{MAP_WAIT_MAX_MS, Mgs};

/// Answers with the events behind a number.
pub(crate) async fn handle(mgs: &Mgs, conn: &ServerConn, req: EventsReq) -> Result<EventsResp> {
    let wait_ms = u64::from(req.wait_ms.min(MAP_WAIT_MAX_MS));
    // With too many waiting, callers poll: they wait on their own side and ask again.
    if wait_ms > 0
        && !conn.is_closed()
        && let Ok(_place) = mgs.waiters.try_acquire()
    {
        mgs.seams.timeout_ms(wait_ms, mgs.events.later_than(req.after)).await;
    }
    Ok(EventsResp { events: mgs.events.after(req.after) })
}
