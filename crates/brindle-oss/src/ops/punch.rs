//! punch and allocate.

use std::sync::Arc;

use brindle_objects::{ALL, PunchOp};
use brindle_types::Result;
use brindle_wire::oss::punch::{AllocateReq, PunchReq};
use brindle_wire::oss::replica::ReplicaChange;

use super::{Copies, check_end, once, plain_body, sync};
use crate::dispatch::{Answer, Call};
use crate::replica::leading::Forward;
use crate::service::Oss;

/// Makes a range read as zeros.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: PunchReq) -> Result<Answer> {
    let op = PunchOp { object: req.object, offset: req.offset, len_bytes: req.len_bytes, ticket: req.ticket };
    let range = req.offset..req.offset.saturating_add(req.len_bytes);
    let copies = Copies {
        order: ALL,
        in_steps: true,
        forward: || {
            let PunchReq { object, offset, len_bytes, keep_space, ticket } = req;
            Some(Forward::plain(ReplicaChange::Punch { object, offset, len_bytes, keep_space, ticket }))
        },
    };
    let punched = once(oss, call, req.object, range, plain_body, copies, async |store, turn| {
        store.punch(&op, req.keep_space, turn).await
    });
    let punched = punched.await?;
    sync::before_answer(oss, op.object, &punched).await?;
    Ok(punched.plain())
}

/// Reserves space for a range.
pub async fn handle_allocate(oss: &Arc<Oss>, call: &Call, req: AllocateReq) -> Result<Answer> {
    check_end(req.object, req.offset, req.len_bytes)?;
    let op = PunchOp { object: req.object, offset: req.offset, len_bytes: req.len_bytes, ticket: req.ticket };
    // Pages of readers stay true: reserved space reads as the zeros that were there.
    let copies = Copies {
        order: ALL,
        in_steps: true,
        forward: || {
            let AllocateReq { object, offset, len_bytes, keep_len, ticket } = req;
            Some(Forward::plain(ReplicaChange::Allocate { object, offset, len_bytes, keep_len, ticket }))
        },
    };
    let allocated = once(oss, call, req.object, 0..0, plain_body, copies, async |store, turn| {
        store.allocate(&op, req.keep_len, turn).await
    });
    let allocated = allocated.await?;
    sync::before_answer(oss, op.object, &allocated).await?;
    Ok(allocated.plain())
}
