//! Operation number -> handler: the table of contents of the MGS.

use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, decode_body, encode_body};
use bytes::Bytes;
use serde::Serialize;

use crate::{Mgs, ops};

/// Answers one request.
pub(crate) async fn answer(mgs: Arc<Mgs>, conn: Arc<ServerConn>, frame: Frame) -> Frame {
    match body(&mgs, &conn, &frame).await {
        Ok(body) => Frame::reply_to(&frame.header, body),
        Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
    }
}

async fn body(mgs: &Arc<Mgs>, conn: &ServerConn, frame: &Frame) -> Result<Bytes> {
    if let Some(target) = frame.header.target.filter(|t| *t != TargetId::MGT) {
        return Err(Fault::new(Code::WrongTarget)
            .subject(mgs.superblock.name())
            .why(format!("the request is for {target}")));
    }
    mgs.check_fs_id(frame.header.fs_id)?;
    match Op::from_number(frame.header.op) {
        Some(Op::Register) => reply(ops::register::handle(mgs, decode_body(&frame.body)?).await),
        Some(Op::GetMap) => reply(ops::get_map::handle(mgs, conn, decode_body(&frame.body)?).await),
        Some(Op::Heartbeat) => reply(ops::heartbeat::handle(mgs, &decode_body(&frame.body)?)),
        Some(Op::ChangePool) => reply(ops::pool::handle(mgs, decode_body(&frame.body)?).await),
        Some(Op::ChangeTarget) => reply(ops::change_target::handle(mgs, decode_body(&frame.body)?).await),
        Some(Op::TargetInfo) => reply(ops::target_info::handle(mgs)),
        _ => Err(Fault::new(Code::UnknownOp)
            .subject(mgs.superblock.name())
            .why(format!("the MGS has no operation {}", frame.header.op))),
    }
}

/// The outcome as it goes over the wire.
fn reply<T: Serialize>(outcome: Result<T>) -> Result<Bytes> {
    let outcome: Result<T> = Ok(outcome?);
    Ok(encode_body(&outcome))
}
