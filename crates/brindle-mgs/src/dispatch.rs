//! Operation number -> handler: the table of contents of the MGS.

use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_targets::gate::check_speaks_for;
use brindle_targets::{log_level, log_lines};
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, decode_body, encode_body};
use brindle_wire::log_level::MgsLogLevelReq;
use brindle_wire::log_lines::MgsLogLinesReq;
use brindle_wire::mgs::durability::ChangeDurabilityReq;
use brindle_wire::mgs::limit::ChangeLimitReq;
use brindle_wire::mgs::replica::{ChangeInSyncReq, NoteOpeningReq};
use brindle_wire::mgs::scrub::NoteScrubReq;
use brindle_wire::mgs::{
    ChangePoolReq, ChangeTargetReq, HeartbeatReq, NoteTermReq, RaiseLevelReq, RegisterReq,
};
use bytes::Bytes;
use serde::Serialize;

use crate::{Mgs, ops};

/// Answers one request.
pub(crate) async fn answer(mgs: Arc<Mgs>, conn: Arc<ServerConn>, frame: Frame) -> Frame {
    let outcome = body(&mgs, &conn, &frame).await;
    // The leadership is checked right before the reply: by now the answer may be outdated.
    let outcome = mgs.check_leads().and(outcome);
    match outcome {
        Ok(body) => Frame::reply_to(&frame.header, body),
        Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
    }
}

async fn body(mgs: &Arc<Mgs>, conn: &ServerConn, frame: &Frame) -> Result<Bytes> {
    match mgs.gate.admit(conn, &frame.header).await? {
        Op::Register => {
            let request: RegisterReq = decode_body(&frame.body)?;
            check_speaks_for(Op::Register, conn.principal(), request.target)?;
            ops::hosts::check_registers(mgs, conn, &request)?;
            reply(ops::register::handle(mgs, request).await)
        }
        Op::GetMap => reply(ops::get_map::handle(mgs, conn, decode_body(&frame.body)?).await),
        Op::Heartbeat => {
            let request: HeartbeatReq = decode_body(&frame.body)?;
            check_speaks_for(Op::Heartbeat, conn.principal(), request.target)?;
            reply(ops::heartbeat::handle(mgs, &request))
        }
        Op::ChangePool => {
            let request: ChangePoolReq = decode_body(&frame.body)?;
            let subject = request.pool.to_string();
            audited(conn, "change pool", &subject, ops::pool::handle(mgs, request).await)
        }
        Op::ChangeTarget => {
            let request: ChangeTargetReq = decode_body(&frame.body)?;
            let subject = format!("{:?} {}", request.change, TargetId::ost(request.ost));
            audited(conn, "change target", &subject, ops::change_target::handle(mgs, request).await)
        }
        Op::RaiseLevel => {
            let request: RaiseLevelReq = decode_body(&frame.body)?;
            let subject = request.level.0.to_string();
            audited(conn, "raise format level", &subject, ops::raise_level::handle(mgs, request).await)
        }
        Op::Join => reply(ops::hosts::join(mgs, conn, decode_body(&frame.body)?).await),
        Op::RenewCertificate => reply(ops::hosts::renew(mgs, conn, decode_body(&frame.body)?).await),
        Op::WatchHost => reply(ops::hosts::watch(mgs, conn, decode_body(&frame.body)?).await),
        Op::ReportHost => reply(ops::hosts::report(mgs, conn, decode_body(&frame.body)?).await),
        Op::WatchAccess => reply(ops::hosts::watch_access(mgs, conn, decode_body(&frame.body)?).await),
        Op::ListHosts => reply(ops::hosts::list(mgs)),
        Op::CreateToken => reply(ops::hosts::create_token(mgs, conn, decode_body(&frame.body)?).await),
        Op::ChangeHost => reply(ops::hosts::change(mgs, conn, decode_body(&frame.body)?).await),
        Op::TakeOrders => reply(ops::hosts::take_orders(mgs, conn, decode_body(&frame.body)?).await),
        Op::RestartHost => reply(ops::hosts::restart(mgs, conn, &decode_body(&frame.body)?)),
        Op::KeepShared => reply(ops::shared::keep(mgs, conn, decode_body(&frame.body)?).await),
        Op::ListShared => reply(ops::shared::list(mgs)),
        Op::ChangeShared => reply(ops::shared::change(mgs, conn, decode_body(&frame.body)?).await),
        Op::FetchMgt => reply(ops::hosts::fetch_mgt(mgs, conn, decode_body(&frame.body)?).await),
        Op::Events => reply(ops::events::handle(mgs, conn, decode_body(&frame.body)?).await),
        Op::NoteTerm => {
            let request: NoteTermReq = decode_body(&frame.body)?;
            check_speaks_for(Op::NoteTerm, conn.principal(), request.target)?;
            reply(ops::note_term::handle(mgs, request).await)
        }
        Op::NoteScrub => {
            let request: NoteScrubReq = decode_body(&frame.body)?;
            check_speaks_for(Op::NoteScrub, conn.principal(), request.target)?;
            reply(ops::note_scrub::handle(mgs, request))
        }
        Op::TargetInfo => reply(ops::target_info::handle(mgs, conn)),
        op => sets(mgs, conn, frame, op).await,
    }
}

/// Operations about replica sets and spare hosts.
async fn sets(mgs: &Arc<Mgs>, conn: &ServerConn, frame: &Frame, op: Op) -> Result<Bytes> {
    match op {
        Op::KeepReplicas => reply(ops::replica::keep(mgs, conn, decode_body(&frame.body)?).await),
        Op::ListSpares => reply(ops::replica::list_spares(mgs)),
        Op::ReportSpare => reply(ops::replica::report_spare(mgs, conn, decode_body(&frame.body)?)),
        Op::ChangeSpare => reply(ops::replica::change_spare(mgs, conn, decode_body(&frame.body)?).await),
        Op::ListReplicas => reply(ops::replica::list(mgs)),
        Op::ChangeReplicas => reply(ops::replica::change(mgs, conn, decode_body(&frame.body)?).await),
        Op::ShowReplica => reply(ops::replica::show(mgs, conn, decode_body(&frame.body)?).await),
        Op::ChangeInSync => {
            let request: ChangeInSyncReq = decode_body(&frame.body)?;
            check_speaks_for(Op::ChangeInSync, conn.principal(), request.target)?;
            reply(ops::replica::change_in_sync(mgs, conn, request).await)
        }
        Op::NoteOpening => {
            let request: NoteOpeningReq = decode_body(&frame.body)?;
            check_speaks_for(Op::NoteOpening, conn.principal(), request.target)?;
            reply(ops::replica::note_opening(mgs, conn, request).await)
        }
        op => rules(mgs, conn, frame, op).await,
    }
}

/// Operations about nodemaps, limits, durability and the log.
async fn rules(mgs: &Arc<Mgs>, conn: &ServerConn, frame: &Frame, op: Op) -> Result<Bytes> {
    match op {
        Op::WatchNodemaps => reply(ops::nodemap::watch(mgs, conn, decode_body(&frame.body)?).await),
        Op::ListNodemaps => reply(ops::nodemap::list(mgs)),
        Op::ChangeNodemap => reply(ops::nodemap::change(mgs, conn, decode_body(&frame.body)?).await),
        Op::WatchMappedNodemaps => {
            reply(ops::nodemap::watch_mapped(mgs, conn, decode_body(&frame.body)?).await)
        }
        Op::ListMappedNodemaps => reply(ops::nodemap::list_mapped(mgs)),
        Op::ChangeMappedNodemap => {
            reply(ops::nodemap::change_mapped(mgs, conn, decode_body(&frame.body)?).await)
        }
        Op::WatchLimits => reply(ops::limit::watch(mgs, conn, decode_body(&frame.body)?).await),
        Op::ChangeLimit => {
            let request: ChangeLimitReq = decode_body(&frame.body)?;
            let subject = request.change.name().to_owned();
            audited(conn, "change limit", &subject, ops::limit::change(mgs, request).await)
        }
        Op::WatchDurability => reply(ops::durability::watch(mgs, conn, decode_body(&frame.body)?).await),
        Op::ChangeDurability => {
            let request: ChangeDurabilityReq = decode_body(&frame.body)?;
            let subject = format!("{} {}", request.target, request.mode);
            let changed = ops::durability::change(mgs, request.clone()).await;
            if request.is_dry_run {
                reply(changed)
            } else {
                audited(conn, "change durability", &subject, changed)
            }
        }
        Op::MgsLogLevel => reply(log_level::handle(conn, &decode_body::<MgsLogLevelReq>(&frame.body)?.0)),
        Op::MgsLogLines => reply(log_lines::handle(&decode_body::<MgsLogLinesReq>(&frame.body)?.0)),
        op => Err(Fault::new(Code::UnknownOp)
            .subject(mgs.superblock.name())
            .why(format!("the MGS has no operation {}", op.name()))),
    }
}

/// The outcome of an administrator's change, which is also written to the log.
fn audited<T: Serialize>(
    conn: &ServerConn,
    action: &'static str,
    subject: &str,
    outcome: Result<T>,
) -> Result<Bytes> {
    ops::hosts::audit(conn, action, subject, &outcome);
    reply(outcome)
}

/// The outcome as it goes over the wire.
fn reply<T: Serialize>(outcome: Result<T>) -> Result<Bytes> {
    let outcome: Result<T> = Ok(outcome?);
    Ok(encode_body(&outcome))
}
