//! list_mounts, mount_log_lines and mount_log_level: programs with a session, the last lines of their logs and the levels of those, for
//! administrators.
//!
//! A mount listens at no address. The MDT asks it over the connection of its session, and passes the answer on as it is.

use std::ops::Bound;

use brindle_types::{Code, Fault, Result, SessionId};
use brindle_wire::Message;
use brindle_wire::frame::{decode_body, encode_body};
use brindle_wire::log_level::{LogLevelNotice, LogLevelResp, MountLogLevelReq};
use brindle_wire::log_lines::{
    ListMountsReq, ListMountsResp, LogLinesNotice, LogLinesResp, MOUNT_BYTES_MAX, MOUNTS_MAX, MountEntry,
    MountLogLinesReq,
};

use crate::mdt::Mdt;

/// Longest wait for the answer of a mount.
const ANSWER_MS: u64 = 3_000;

/// Tells the mounts that have sessions.
pub fn handle_list(mdt: &Mdt, request: &ListMountsReq) -> ListMountsResp {
    let live = mdt.live();
    let after = (Bound::Excluded(SessionId(request.after)), Bound::Unbounded);
    let is_meant = |host: &str| request.host.is_empty() || request.host == host;
    let alive = live.sessions.range(after).filter(|(_, s)| !s.row.ended && is_meant(&s.row.host));
    let mut mounts: Vec<MountEntry> = alive
        .take(MOUNTS_MAX + 1)
        .map(|(session, s)| MountEntry {
            session: *session,
            host: cut(&s.row.host),
            mount: cut(&s.row.mount),
            is_connected: mdt.notifier().is_connected(*session),
        })
        .collect();
    let has_more = mounts.len() > MOUNTS_MAX;
    mounts.truncate(MOUNTS_MAX);
    ListMountsResp { mounts, has_more }
}

/// A text that a client chose, of bounded length.
fn cut(text: &str) -> String {
    let mut end = text.len().min(MOUNT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Asks a mount for lines of its log.
pub async fn handle_lines(mdt: &Mdt, request: MountLogLinesReq) -> Result<LogLinesResp> {
    ask(mdt, request.session, &LogLinesNotice(request.lines)).await
}

/// Asks a mount for the level of its log, or has it changed; `by`: who asks.
pub async fn handle_level(mdt: &Mdt, request: MountLogLevelReq, by: String) -> Result<LogLevelResp> {
    ask(mdt, request.session, &LogLevelNotice { level: request.level, by }).await
}

/// Asks a mount over the connection of its session. A mount that does not answer keeps its session.
async fn ask<M: Message>(mdt: &Mdt, session: SessionId, notice: &M) -> Result<M::Resp> {
    let asking = mdt.notifier().ask(session, M::OP, encode_body(notice));
    let refused = |why: String| {
        Fault::new(Code::Disconnected)
            .what("cannot ask for the log of")
            .subject(session.to_string())
            .why(why)
            .data("nothing was changed")
    };
    match mdt.seams().timeout_ms(ANSWER_MS, asking).await {
        Some(Ok(answer)) => decode_body::<Result<M::Resp>>(&answer)?,
        Some(Err(_)) => Err(refused("it is not connected".to_owned())),
        None => Err(refused(format!("it has not answered for {} s", ANSWER_MS / 1_000))),
    }
}
