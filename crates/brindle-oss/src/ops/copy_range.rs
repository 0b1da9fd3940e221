//! copy_range: bytes of another object into this one, read where they lie: here, or from another OST.

use std::sync::Arc;

use brindle_objects::WriteOp;
use brindle_types::{Code, Fault, Result};
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::write::CopyRangeReq;
use bytes::{Bytes, BytesMut};

use super::once;
use crate::dispatch::{Answer, Call};
use crate::service::Oss;

/// Most bytes copied by one request.
const COPY_BYTES_MAX: u64 = 8 << 20;

/// Reads the source and writes what it holds; what lies behind the source's end, or in a missing source, is zeros.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: CopyRangeReq) -> Result<Answer> {
    if req.len_bytes > COPY_BYTES_MAX {
        let why = format!("{} bytes are asked for, {COPY_BYTES_MAX} are possible", req.len_bytes);
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    let data = padded(source(oss, &req).await?, req.len_bytes);
    let op = WriteOp {
        object: req.object,
        offset: req.offset,
        crc: brindle_stdx::crc(&data),
        data,
        ticket: req.ticket,
        sync: false,
    };
    once(oss, call, req.object, async |store, turn| store.write(&op, turn).await).await
}

async fn source(oss: &Arc<Oss>, req: &CopyRangeReq) -> Result<Bytes> {
    if req.source_ost == oss.identity.target.index {
        let (id, offset) = (req.source, req.source_offset);
        return Ok(oss.store.read(id, offset, req.len_bytes, &req.ticket, req.source_known).await?.data);
    }
    let question = ReadReq {
        object: req.source,
        offset: req.source_offset,
        len_bytes: req.len_bytes as u32,
        may_cache: false,
        known: req.source_known,
        ticket: req.ticket,
    };
    oss.peers.read(req.source_ost, &question).await
}

fn padded(data: Bytes, len_bytes: u64) -> Bytes {
    if data.len() as u64 >= len_bytes {
        return data.slice(..len_bytes as usize);
    }
    let mut all = BytesMut::from(&data[..]);
    all.resize(len_bytes as usize, 0);
    all.freeze()
}
