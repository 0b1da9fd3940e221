//! write: Step 7 of write: from `brindle-client/src/file/scatter.rs` to `brindle-objects/src/write.rs`. Epochs, slot, then
//! the store; the answer tells the clients whose cached pages are stale now, and the new grant.

use std::sync::Arc;

use brindle_objects::WriteOp;
use brindle_types::{Fault, Result};
use brindle_wire::frame::encode_body;
use brindle_wire::oss::ChangeResp;
use brindle_wire::oss::replica::ReplicaChange;
use brindle_wire::oss::write::{WriteReq, WriteResp, room_bytes};
use bytes::Bytes;

use super::{Copies, Outcome, check_end, once, sync};
use crate::dispatch::{Answer, Call};
use crate::replica::leading::Forward;
use crate::service::Oss;

/// Bytes of a block of an object.
const BLOCK_BYTES: u64 = 4096;

/// Writes the request's bulk.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: WriteReq) -> Result<Answer> {
    let data = call.frame.bulk_bytes();
    check_end(req.object, req.offset, data.len() as u64)?;
    oss.marks.told(&req.told)?;
    let (session, epoch) = (call.frame.header.session, call.frame.header.session_epoch);
    let room = room_bytes(req.offset, data.len() as u64);
    // The last moment at which it is decided: a request that is sent again and was executed spends nothing twice.
    let covers = || match req.claim {
        Some(claim) => oss.store.covers((session, epoch), claim, room),
        None => Ok(false),
    };
    let (mut spent_bytes, object) = (0, req.object);
    let range = req.offset..req.offset.saturating_add(data.len() as u64);
    let copies = Copies {
        // Whole blocks: their checksums are what members are compared by.
        order: range.start / BLOCK_BYTES * BLOCK_BYTES
            ..range.end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX),
        in_steps: false,
        forward: || {
            let WriteReq { object, offset, ticket, sync, .. } = req;
            let (bulk, bulk_crc) = (call.frame.bulk_bytes(), call.frame.header.bulk_crc);
            Some(Forward { change: ReplicaChange::Write { object, offset, ticket, sync }, bulk, bulk_crc })
        },
    };
    let written = once(oss, call, req.object, range, stored_body, copies, async |store, turn| {
        let covered = covers()?;
        spent_bytes = if covered { room } else { 0 };
        let op = WriteOp {
            object: req.object,
            offset: req.offset,
            data,
            crc: call.frame.header.bulk_crc,
            ticket: req.ticket,
            sync: req.sync,
            covered,
        };
        store.write(&op, turn).await
    });
    let written = written.await?;
    sync::before_answer(oss, object, &written).await?;
    let change = match written {
        Outcome::Made(change) => change,
        Outcome::Stored(body) => return Ok(Answer::plain(body)),
    };
    // Without an answer the client assumes that the grant it spent is gone.
    let grant = req.claim.and_then(|_| oss.store.next_grant(session, spent_bytes).ok());
    Ok(Answer::plain(encode_body(&Ok::<_, Fault>(WriteResp { change, grant }))))
}

/// Stored form of an answer: without a grant, which would be outdated.
fn stored_body(change: &ChangeResp) -> Bytes {
    encode_body(&Ok::<_, Fault>(WriteResp { change: change.clone(), grant: None }))
}
