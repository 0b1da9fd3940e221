//! Operation number -> handler: the only match over operations.

use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_net::trace::{Part, in_part};
use brindle_targets::{log_level, log_lines};
use brindle_types::{Code, Fault, Result};
use brindle_wire::frame::{Frame, decode_body, encode_body};
use brindle_wire::job::{OstSharesReq, OstUsageReq};
use brindle_wire::log_level::OstLogLevelReq;
use brindle_wire::log_lines::OstLogLinesReq;
use brindle_wire::trace::OstTraceReq;
use brindle_wire::{Message, Op};
use bytes::Bytes;

use crate::ops::*;
use crate::replica::following;
use crate::service::Oss;

/// A request as operations see it.
pub struct Call {
    /// The frame, bulk included.
    pub frame: Frame,
    /// The connection of the request.
    pub conn: Arc<ServerConn>,
}

/// A reply.
pub struct Answer {
    /// The message.
    pub body: Bytes,
    /// Bytes of an object.
    pub bulk: Bytes,
    /// CRC32C of the bulk, from the checksums of its blocks.
    pub bulk_crc: u32,
}

impl Answer {
    /// A reply without bulk.
    pub fn plain(body: Bytes) -> Answer {
        Answer { body, bulk: Bytes::new(), bulk_crc: 0 }
    }
}

/// Answers one request.
pub async fn dispatch(oss: &Arc<Oss>, op: Op, call: &Call) -> Result<Answer> {
    match op {
        Op::Read => read::handle(oss, call, decode_body(&call.frame.body)?).await,
        Op::Write => write::handle(oss, call, decode_body(&call.frame.body)?).await,
        Op::Punch => punch::handle(oss, call, decode_body(&call.frame.body)?).await,
        Op::Allocate => punch::handle_allocate(oss, call, decode_body(&call.frame.body)?).await,
        Op::CopyRange => copy_range::handle(oss, call, decode_body(&call.frame.body)?).await,
        Op::TruncateObject => plain(call, |req| in_part(Part::Disk, truncate::handle(oss, req))).await,
        Op::SyncObjects => plain(call, |req| sync::handle(oss, call.conn.principal().kind, req)).await,
        Op::StatObjects => plain(call, |req| in_part(Part::Disk, stat::handle(oss, req))).await,
        Op::ReplicaAttach => plain(call, |req| following::attach(oss, &call.conn, req)).await,
        Op::ReplicaLease => plain(call, |req| following::lease(oss, &call.conn, req)).await,
        Op::ReplicaChange => plain(call, |req| following::change(oss, call, req)).await,
        Op::ReplicaLook => following::look(oss, call, decode_body(&call.frame.body)?).await,
        Op::ReplicaList => plain(call, |req| following::list(oss, &call.conn, req)).await,
        Op::ReplicaRead => following::read(oss, call, decode_body(&call.frame.body)?).await,
        Op::ReplicaVerify => following::verify(oss, call, decode_body(&call.frame.body)?).await,
        Op::ReplicaScrub => plain(call, |req| following::keep_scrub(oss, &call.conn, req)).await,
        Op::Scrub => plain(call, |req| scrub::handle(oss, req)).await,
        Op::DestroyObjects => plain(call, |req| in_part(Part::Disk, destroy::handle(oss, req))).await,
        Op::Seek => plain(call, |req| in_part(Part::Disk, seek::handle(oss, req))).await,
        Op::FenceSession => plain(call, |req| fence::handle_session(oss, req)).await,
        Op::FenceLayout => plain(call, |req| fence::handle_layout(oss, req)).await,
        Op::OstStatfs => plain(call, |req| statfs::handle(oss, req)).await,
        Op::ReturnGrant => plain(call, |req| grant::handle(oss, call, req)).await,
        Op::ListObjects => plain(call, |req| list::handle(oss, req)).await,
        Op::OstLogLevel => {
            plain(call, async |req: OstLogLevelReq| log_level::handle(&call.conn, &req.0)).await
        }
        Op::OstLogLines => plain(call, async |req: OstLogLinesReq| log_lines::handle(&req.0)).await,
        Op::OstTrace => plain(call, async |req: OstTraceReq| call.conn.tracer().answer(&req.0)).await,
        Op::OstUsage => plain(call, async |req: OstUsageReq| Ok(call.conn.usage().answer(&req.0))).await,
        Op::OstShares => {
            let shares = |_: OstSharesReq| async {
                Ok(call.conn.fair().map(|fair| fair.answer()).unwrap_or_default())
            };
            plain(call, shares).await
        }
        Op::TargetInfo => plain(call, |req| target_info::handle(oss, &call.conn, req)).await,
        _ => Err(Fault::new(Code::UnknownOp).why(format!("operation {} ({})", op as u16, op.name()))),
    }
}

/// An operation without bulk and without a slot.
async fn plain<M: Message>(call: &Call, handler: impl AsyncFnOnce(M) -> Result<M::Resp>) -> Result<Answer> {
    let answer = handler(decode_body(&call.frame.body)?).await?;
    Ok(Answer::plain(encode_body(&Ok::<_, Fault>(answer))))
}
