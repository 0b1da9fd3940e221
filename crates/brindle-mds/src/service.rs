//! The MDT on the network: requests in, replies out, sessions on their connections.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::{ServerConn, Service};
use brindle_session::Registration;
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Result, SessionId};
use brindle_wire::Op;
use brindle_wire::frame::{FLAG_FAULT, Frame, Header, decode_body, encode_body};
use brindle_wire::mds::session::{SessionOpenReq, SessionOpenResp};
use brindle_wire::news::News;
use bytes::Bytes;

use crate::connections::Connections;
use crate::dispatch::dispatch;
use crate::mdt::{Call, Event, Mdt};
use crate::ops::{session, target_info};

/// One MDT behind its connections.
pub struct MdsService {
    mdt: Arc<Mdt>,
    connections: Arc<Connections>,
    /// Id of the file system; 0 until the MGS has told it.
    fs_id: AtomicU64,
    registration: OnceLock<Arc<Registration>>,
}

impl MdsService {
    /// A service that is not registered yet.
    pub fn new(mdt: Arc<Mdt>, connections: Arc<Connections>, fs_id: u64) -> Arc<MdsService> {
        let fs_id = AtomicU64::new(fs_id);
        Arc::new(MdsService { mdt, connections, fs_id, registration: OnceLock::new() })
    }

    /// The MGS knows the target.
    pub fn registered(&self, registration: Arc<Registration>) {
        self.fs_id.store(registration.map().current().fs_id, Ordering::Release);
        // There is one registration in the life of a service.
        drop(self.registration.set(registration));
    }

    /// The registration, once there is one.
    pub fn registration(&self) -> Option<&Arc<Registration>> {
        self.registration.get()
    }

    /// The MDT.
    pub fn mdt(&self) -> &Arc<Mdt> {
        &self.mdt
    }

    async fn answer(&self, conn: &Arc<ServerConn>, frame: &Frame) -> Result<(Bytes, News)> {
        let header = &frame.header;
        let bare = |body| Ok((body, News::default()));
        self.check_target(header)?;
        let number = || Fault::new(Code::UnknownOp).why(format!("operation {}", header.op));
        let op = Op::from_number(header.op).ok_or_else(number)?;
        let call = Call::new(header, op);
        if matches!(op, Op::TargetInfo | Op::SetStripe | Op::OstUse) {
            // Who has changed a pool may name it at once; who has drained an OST may count what is on it.
            self.mdt.osts().until_map(header.map_version).await;
        }
        match op {
            Op::SessionOpen => {
                let answer = self.open_session(conn, &frame.body).await?;
                return bare(encode_body(&Ok::<_, Fault>(answer)));
            }
            Op::TargetInfo => {
                return bare(encode_body(&Ok::<_, Fault>(target_info::handle(&self.mdt).await?)));
            }
            _ => {}
        }
        if header.session.0 != 0 {
            self.check_session(&call)?;
            self.check_epoch(header)?;
            self.check_connection(conn, call.session)?;
        } else if op.slotted() {
            return Err(Fault::new(Code::StaleSession).why("the request names no session"));
        }
        let body = match op {
            Op::SessionClose => {
                let answer = session::handle_close(&self.mdt, &call, decode_body(&frame.body)?).await?;
                self.connections.unbind(call.session);
                encode_body(&Ok::<_, Fault>(answer))
            }
            _ => dispatch(&self.mdt, &call, &frame.body).await,
        };
        Ok((body, call.take_news()))
    }

    async fn open_session(&self, conn: &Arc<ServerConn>, body: &[u8]) -> Result<SessionOpenResp> {
        let request: SessionOpenReq = decode_body(body)?;
        let answer = session::handle_open(&self.mdt, request).await?;
        self.connections.bind(answer.session, conn);
        if conn.is_closed() {
            // `closed` may have run before `bind`.
            self.connections.closed(conn.id());
        }
        // Who waits for the session to be reachable looks again.
        self.mdt.live_mut().events.fire(Event::Session(answer.session));
        Ok(answer)
    }

    fn check_target(&self, header: &Header) -> Result<()> {
        let own = self.mdt.identity().target();
        if header.target.is_none_or(|target| target == own) {
            return Ok(());
        }
        let asked = header.target.map_or_else(String::new, |target| target.to_string());
        Err(Fault::new(Code::WrongTarget).subject(asked).why(format!("{own} is served here")))
    }

    /// Refuses sessions that are not alive, and what a client asks before it has declared what it had: that waited for a
    /// connection while the MDT was away, and may be about a handle that is not known yet.
    fn check_session(&self, call: &Call) -> Result<()> {
        let must_reclaim = self.mdt.live().session(call.session, call.epoch).map(|s| s.must_reclaim);
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
            _ => Ok(()),
        }
    }

    /// Refuses what comes late, over a connection that the client has given up: it has sent it again, may have had the answer long
    /// ago, and nobody listens there. An unlock that came twice would give up the next lock.
    fn check_connection(&self, conn: &ServerConn, session: SessionId) -> Result<()> {
        if !self.connections.has_moved(session, conn.id()) {
            return Ok(());
        }
        Err(Fault::new(Code::Disconnected).why(format!("{session} has come by another connection since")))
    }

    /// Refuses clients that know only an earlier server of this target.
    fn check_epoch(&self, header: &Header) -> Result<()> {
        let own = self.registration.get().map_or(0, |r| r.epoch());
        if header.target_epoch == 0 || header.target_epoch >= own {
            return Ok(());
        }
        let why = format!("the target is at epoch {own}, the request has {}", header.target_epoch);
        Err(Fault::new(Code::StaleEpoch).why(why))
    }
}

impl Service for MdsService {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        let (own, theirs) = (self.fs_id.load(Ordering::Acquire), conn.hello().fs_id);
        if own == 0 {
            return Err(Fault::new(Code::TargetDown).why("the MGS has not told it its file system yet"));
        }
        if theirs == 0 || theirs == own {
            return Ok(own);
        }
        Err(Fault::new(Code::WrongFs)
            .subject(self.mdt.identity().name())
            .why(format!("this is file system {own:016x}"))
            .why(format!("the peer wants file system {theirs:016x}")))
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let mut reply = match self.answer(&conn, &frame).await {
                Ok((body, news)) => {
                    let mut reply = Frame::reply_to(&frame.header, body);
                    if reply.body.first() == Some(&1) {
                        reply.header.flags |= FLAG_FAULT;
                    }
                    reply.with_news(&news)
                }
                Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
            };
            reply.header.fences_version = self.mdt.fences_version();
            reply
        })
    }

    fn closed(&self, conn_id: u64) {
        self.connections.closed(conn_id);
    }
}
