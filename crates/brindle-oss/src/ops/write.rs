//! write: Step 7 of write: from `brindle-client/src/file/scatter.rs` to `brindle-objects/src/write.rs`. Epochs, slot, then
//! the store; the answer tells whose kept pages the bytes make old.

use std::sync::Arc;

use brindle_objects::WriteOp;
use brindle_types::Result;
use brindle_wire::oss::write::WriteReq;

use super::once;
use crate::dispatch::{Answer, Call};
use crate::service::Oss;

/// Writes the request's bulk.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: WriteReq) -> Result<Answer> {
    oss.marks.told(&req.told)?;
    let op = WriteOp {
        object: req.object,
        offset: req.offset,
        data: call.frame.bulk_bytes(),
        crc: call.frame.header.bulk_crc,
        ticket: req.ticket,
        sync: req.sync,
    };
    let range = req.offset..req.offset.saturating_add(op.data.len() as u64);
    once(oss, call, req.object, range, async |store, turn| store.write(&op, turn).await).await
}
