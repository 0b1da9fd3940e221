//! read: bytes of one object, verified; a reader that may keep them leaves its mark first.

use std::sync::Arc;

use brindle_net::trace::{Part, in_part};
use brindle_types::{Fault, Result};
use brindle_wire::frame::encode_body;
use brindle_wire::oss::read::{ReadReq, ReadResp};

use crate::dispatch::{Answer, Call};
use crate::service::Oss;

/// Reads. The mark is set before the bytes are, so that a write in between finds it.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: ReadReq) -> Result<Answer> {
    if req.may_cache {
        let end = req.offset.saturating_add(req.len_bytes.into());
        oss.marks.read(req.object, call.frame.header.session, req.offset..end);
    }
    let reading = async {
        match &oss.replica {
            None => oss.store.read(req.object, req.offset, req.len_bytes.into(), &req.ticket).await,
            Some(replica) => Box::pin(replica.read(oss, &req)).await,
        }
    };
    let out = in_part(Part::Disk, reading).await?;
    let body = encode_body(&Ok::<_, Fault>(ReadResp {
        exists: out.exists,
        boot_term: oss.store.told_term(out.boot_term),
    }));
    Ok(Answer { body, bulk: out.data, bulk_crc: out.crc })
}
