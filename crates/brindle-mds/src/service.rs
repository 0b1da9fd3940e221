//! The MDT on the network: requests in, replies out, sessions on their connections.

use std::sync::Arc;

use brindle_net::{Limits, ServerConn, Service};
use brindle_stdx::BoxFuture;
use brindle_targets::{Gate, log_level, log_lines};
use brindle_types::{Code, Fault, Result, SessionId};
use brindle_wire::Op;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::{FLAG_FAULT, Frame, decode_body, encode_body};
use brindle_wire::job::{MdtSharesReq, MdtUsageReq, SharesReq};
use brindle_wire::log_level::MdtLogLevelReq;
use brindle_wire::log_lines::MdtLogLinesReq;
use brindle_wire::mds::scrub::MdtScrubReq;
use brindle_wire::mds::session::{SessionOpenReq, SessionOpenResp};
use brindle_wire::oss::scrub::ScrubReq;
use brindle_wire::trace::MdtTraceReq;
use bytes::Bytes;

use crate::admission::{self, numbers};
use crate::connections::Connections;
use crate::dispatch::dispatch;
use crate::expire;
use crate::mdt::{Call, Event, Mdt};
use crate::ops::{mount_logs, session, target_info};
use crate::scrub;

/// Reason for the end of a session whose host may do less than before.
const TIGHTER: &str = "its nodemap allows less than before";

/// An MDT behind its connections.
pub struct MdsService {
    mdt: Arc<Mdt>,
    connections: Arc<Connections>,
    gate: Arc<Gate>,
}

impl MdsService {
    /// A service behind `gate`.
    pub fn new(mdt: Arc<Mdt>, connections: Arc<Connections>, gate: Arc<Gate>) -> Arc<MdsService> {
        Arc::new(MdsService { mdt, connections, gate })
    }

    /// The gate in front of the service.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The MDT.
    pub fn mdt(&self) -> &Arc<Mdt> {
        &self.mdt
    }

    async fn answer(&self, conn: &Arc<ServerConn>, frame: &Frame) -> Result<(Bytes, CacheUpdates)> {
        let header = &frame.header;
        let bare = |body| Ok((body, CacheUpdates::default()));
        let op = self.gate.admit(conn, header).await?;
        let call = Call::new(header, op);
        if matches!(op, Op::TargetInfo | Op::SetStripe | Op::OstUse) {
            // A caller that has just changed a pool may name it at once. A caller that has drained an OST may
            // count the files on it.
            self.mdt.osts().until_map(header.map_version).await;
        }
        match op {
            Op::SessionOpen => {
                let answer = self.open_session(conn, &frame.body).await?;
                return bare(encode_body(&Ok::<_, Fault>(answer)));
            }
            Op::TargetInfo => {
                let mut info = target_info::handle(&self.mdt).await?;
                info.counters.push(("refused_callers".to_owned(), self.gate.refused_callers()));
                info.counters.push(self.gate.accepts_anybody());
                info.releases = conn.releases();
                return bare(encode_body(&Ok::<_, Fault>(info)));
            }
            op if op.askers().is_administrators_only() => {
                if let Some(answer) = self.administer(conn, op, &frame.body).await? {
                    return bare(answer);
                }
            }
            _ => {}
        }
        let limits = self.gate.limits(conn);
        if header.session.0 != 0 {
            let before = self.check_session(&call, conn)?;
            self.check_connection(conn, call.session)?;
            if before != limits {
                self.limits_changed(&call, before.as_deref(), limits.as_ref())?;
            }
        }
        let maps = limits.clone().filter(|limits| limits.ids.maps());
        let body = match limits {
            Some(limits) => admission::admit(&call, limits, &frame.body),
            None => frame.body.clone(),
        };
        let answer = match op {
            Op::SessionClose => {
                let answer = session::handle_close(&self.mdt, &call, decode_body(&body)?).await?;
                self.connections.unbind(call.session);
                encode_body(&Ok::<_, Fault>(answer))
            }
            _ => dispatch(&self.mdt, &call, &body).await,
        };
        let mut updates = call.take_cache_updates();
        let Some(limits) = maps else { return Ok((answer, updates)) };
        // The reply cache holds numbers of the file system: an answer that is given again has those of the nodemap that counts then.
        numbers::show_updates(&limits, &mut updates);
        Ok((numbers::shown(op, &limits, &body, answer)?, updates))
    }

    /// Questions about the server rather than the MDT; `None` for other operations.
    async fn administer(&self, conn: &Arc<ServerConn>, op: Op, body: &[u8]) -> Result<Option<Bytes>> {
        Ok(Some(match op {
            Op::MdtLogLevel => {
                let request: MdtLogLevelReq = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(log_level::handle(conn, &request.0)?))
            }
            Op::MdtLogLines => {
                let request: MdtLogLinesReq = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(log_lines::handle(&request.0)?))
            }
            Op::ListMounts => {
                encode_body(&Ok::<_, Fault>(mount_logs::handle_list(&self.mdt, &decode_body(body)?)))
            }
            Op::MountLogLines => {
                encode_body(&Ok::<_, Fault>(mount_logs::handle_lines(&self.mdt, decode_body(body)?).await?))
            }
            Op::MountLogLevel => {
                let by = format!("{} at {}", conn.principal(), conn.peer());
                let asked = mount_logs::handle_level(&self.mdt, decode_body(body)?, by).await?;
                encode_body(&Ok::<_, Fault>(asked))
            }
            Op::MdtScrub => {
                let MdtScrubReq(ScrubReq { order }) = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(scrub::order(&self.mdt, order).await?))
            }
            Op::MdtTrace => {
                let request: MdtTraceReq = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(conn.tracer().answer(&request.0)?))
            }
            Op::MdtUsage => {
                let request: MdtUsageReq = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(conn.usage().answer(&request.0)))
            }
            Op::MdtShares => {
                let MdtSharesReq(SharesReq {}) = decode_body(body)?;
                encode_body(&Ok::<_, Fault>(conn.fair().map(|fair| fair.answer()).unwrap_or_default()))
            }
            _ => return Ok(None),
        }))
    }

    async fn open_session(&self, conn: &Arc<ServerConn>, body: &[u8]) -> Result<SessionOpenResp> {
        let request: SessionOpenReq = decode_body(body)?;
        let limits = self.gate.limits(conn);
        if request.resume {
            self.end_if_tighter(&request, limits.as_deref()).await;
        }
        let is_former = |name: &str| self.gate.is_former_name(conn, name);
        let answer = session::handle_open(&self.mdt, request, &conn.principal().host, is_former).await;
        let answer = answer.inspect_err(|fault| self.gate.count(fault))?;
        if let Some(session) = self.mdt.live_mut().sessions.get_mut(&answer.session) {
            session.limits = limits;
        }
        self.connections.bind(answer.session, conn);
        if conn.is_closed() {
            // `closed` may have run before `bind`.
            self.connections.closed(conn.id());
        }
        // Operations that wait for a connection of the session look again.
        self.mdt.live_mut().events.fire(Event::Session(answer.session));
        Ok(answer)
    }

    /// Refuses requests of sessions that are not alive, and requests that a client sent before it has declared what it
    /// had. Such a request waited for a connection while the MDT was away, and may concern a handle that is not known
    /// yet.
    ///
    /// A session belongs to the host that opened it. Returns the host's limits, as far as the session knows them.
    fn check_session(&self, call: &Call, conn: &ServerConn) -> Result<Option<Arc<Limits>>> {
        let host = &conn.principal().host;
        let (owner, must_reclaim, limits) = {
            let live = self.mdt.live();
            let owner =
                live.sessions.get(&call.session).filter(|s| s.row.host != *host).map(|s| s.row.host.clone());
            let limits = live.sessions.get(&call.session).and_then(|s| s.limits.clone());
            (owner, live.session(call.session, call.epoch).map(|s| s.must_reclaim), limits)
        };
        if let Some(owner) = owner.filter(|_| !brindle_stdx::planted("mds_session_of_another_host")) {
            let fault = session::of_another_host(call.session, host, &owner);
            self.gate.count(&fault);
            return Err(fault);
        }
        let is_the_sessions_own = matches!(call.op, Op::SessionRenew | Op::SessionClose | Op::Reclaim);
        match must_reclaim {
            Some(true) if !is_the_sessions_own => {
                let why =
                    format!("{} has not declared yet what it had before the MDT restarted", call.session);
                Err(Fault::new(Code::Disconnected).why(why))
            }
            None if !brindle_stdx::planted("mds_stale_epoch_accepted") => {
                Err(Fault::new(Code::StaleSession)
                    .subject(format!("{} of epoch {}", call.session, call.epoch)))
            }
            _ => Ok(limits),
        }
    }

    /// A session ends if its host may not keep the open files under the present nodemap.
    async fn end_if_tighter(&self, request: &SessionOpenReq, now: Option<&Limits>) {
        let known = {
            let live = self.mdt.live();
            let mut sessions = live.sessions.iter();
            // After a restart each handle is judged when it is declared again.
            sessions
                .find(|(_, s)| s.row.client_uuid == request.client_uuid && !s.must_reclaim)
                .filter(|(_, s)| Limits::are_tighter(s.limits.as_deref(), now))
                .map(|(id, _)| *id)
        };
        if let Some(session) = known {
            expire::end(&self.mdt, session, TIGHTER).await;
        }
    }

    /// A nodemap that takes more away ends the sessions of its hosts: their handles and leases were given under the one before.
    fn limits_changed(&self, call: &Call, before: Option<&Limits>, now: Option<&Arc<Limits>>) -> Result<()> {
        let id = call.session;
        if call.op == Op::SessionClose {
            return Ok(());
        }
        // Declarations after a restart of the MDT are judged handle by handle.
        let must_reclaim = self.mdt.live().session(id, call.epoch).is_some_and(|s| s.must_reclaim);
        if must_reclaim || !Limits::are_tighter(before, now.map(Arc::as_ref)) {
            if let Some(session) = self.mdt.live_mut().sessions.get_mut(&id) {
                session.limits = now.cloned();
            }
            return Ok(());
        }
        let is_ending = self.mdt.live().ending.contains(&id);
        if let Some(mdt) = self.mdt.me().filter(|_| !is_ending) {
            mdt.clone().spawn("session end", async move { expire::end(&mdt, id, TIGHTER).await });
        }
        Err(Fault::new(Code::StaleSession).subject(format!("{id} of epoch {}", call.epoch)).why(TIGHTER))
    }

    /// Refuses late requests over a connection that the client has given up. The client has sent the request again, may have had
    /// the answer long ago, and does not listen there any more. An unlock that ran twice would give up the next lock.
    fn check_connection(&self, conn: &ServerConn, session: SessionId) -> Result<()> {
        if !self.connections.has_moved(session, conn.id()) {
            return Ok(());
        }
        Err(Fault::new(Code::Disconnected).why(format!("{session} has come by another connection since")))
    }
}

impl Service for MdsService {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        self.gate.hello(conn)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let answered = self.mdt.stopped().until(self.answer(&conn, &frame)).await;
            let is_left_to_another = self.gate.has_owner() && self.mdt.engine().failed().is_some();
            let answer = answered.filter(|_| !is_left_to_another);
            let mut reply = match answer.unwrap_or_else(|| Err(Fault::new(Code::NotOwner))) {
                Ok((body, news)) => {
                    let mut reply = Frame::reply_to(&frame.header, body);
                    if reply.body.first() == Some(&1) {
                        reply.header.flags |= FLAG_FAULT;
                    }
                    reply.with_cache_updates(&news)
                }
                Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
            };
            reply.header.fences_version = self.mdt.fences_version();
            self.gate.reply(&frame.header, reply)
        })
    }

    fn closed(&self, conn_id: u64) {
        self.connections.closed(conn_id);
    }
}
