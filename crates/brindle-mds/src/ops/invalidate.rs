//! invalidate: a write met marks of clients that keep pages; they drop them before the write is acknowledged.

use brindle_types::Result;
use brindle_wire::mds::Empty;
use brindle_wire::mds::invalidate::{Holders, InvalidateReq};
use brindle_wire::notify::InvalidateNotice;
use futures_util::future::join_all;

use crate::ask;
use crate::mdt::{Call, Mdt};

/// Asks the holders, all at once. A silent one is ended after its lease; it drops its pages itself before that.
pub async fn handle(mdt: &Mdt, call: &Call, req: InvalidateReq) -> Result<Empty> {
    let mut holders = match req.holders {
        Holders::Sessions(sessions) => sessions,
        // A client that has not declared its handles since a restart may keep pages, too.
        Holders::AllReaders => {
            let everybody = mdt.step(call, |t| {
                t.settled(req.ino, call.session)?;
                Ok(t.live().opens.other_readers(req.ino, call.session))
            });
            everybody.await?
        }
    };
    holders.retain(|s| *s != call.session);
    holders.sort();
    holders.dedup();
    let notice = InvalidateNotice { ino: req.ino, offset: req.offset, len_bytes: req.len_bytes };
    join_all(holders.iter().map(|session| ask::drop_pages(mdt, *session, &notice))).await;
    Ok(Empty {})
}
