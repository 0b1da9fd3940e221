//! Life of one accepted connection: hello, then requests until it ends.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::Seams;
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Nid};
use brindle_wire::Op;
use brindle_wire::earlier::Part;
use brindle_wire::frame::{FLAG_TRACED, Frame, Header, Kind, Priority, decode_body, encode_body};
use brindle_wire::job::JobTag;
use brindle_wire::version::{self, FEATURE_JOB, FEATURES, Hello, HelloReply};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{STRANGER_MS, ServerConn, Shared};
use crate::fair;
use crate::latch::Latch;
use crate::outbox::{Outbox, Outgoing};
use crate::peer::{BYTES_UNIT, HELLO_TIMEOUT_MS, HIGH_REQUESTS_MAX, NOTIFIES_MAX, bytes_units};
use crate::transport::{Caller, Connection, FrameRx, FrameTx};
use crate::usage::{self, Cost};
use crate::{NetError, SOFTWARE, job, trace};

/// Longest time for the last message to a bad peer.
const LAST_WORDS_MS: u64 = 1_000;

/// Credits as this end counts them.
struct Credits {
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_units_max: u32,
    high: Arc<Semaphore>,
}

/// Serves a connection to its end; `room` is its place among the server's connections. Connections of
/// strangers are few and short.
pub(super) async fn run(shared: Arc<Shared>, connection: Connection, room: OwnedSemaphorePermit) {
    if connection.caller != Caller::Stranger {
        return serve(shared, connection, room).await;
    }
    let Ok(_place) = shared.strangers.try_acquire() else {
        shared.stats.lock().refused += 1;
        return;
    };
    let until = Arc::<Latch>::default();
    let serving = serve_until(shared.clone(), connection, room, &until);
    let ends = async {
        shared.seams.sleep_ms(STRANGER_MS).await;
        until.set();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = serving => {}
        () = ends => {}
    }
}

async fn serve(shared: Arc<Shared>, connection: Connection, room: OwnedSemaphorePermit) {
    serve_until(shared, connection, room, &Latch::default()).await;
}

/// Serves a connection to its end, or until `until` is set.
async fn serve_until(
    shared: Arc<Shared>,
    connection: Connection,
    _room: OwnedSemaphorePermit,
    until: &Latch,
) {
    let Connection { peer, caller, tx, mut rx, .. } = connection;
    let greeted = shared.stop.until(greet(&shared, (&peer, &caller), tx, &mut rx)).await;
    let Some(Ok(conn)) = greeted else { return };
    let writer = conn.clone();
    shared.seams.spawn("server.write", async move { writer.outbox.run(&writer.down).await });
    let reading = conn.down.until(read(&shared, &conn, &mut rx));
    let ended = tokio::select! {
        biased;
        () = until.wait() => None,
        () = removed(&shared, &conn) => {
            tracing::warn!(peer = %conn.peer, host = %conn.principal.host, "its host was removed or has another name: closing its connection");
            None
        }
        ended = shared.stop.until(reading) => ended.flatten(),
    };
    if let Some(e) = ended {
        last_words(&shared, &conn, e).await;
    }
    conn.end();
    shared.releases.left(&conn.hello.software, conn.version);
    shared.service.closed(conn.id);
}

/// Completes when the host at the other end is removed from the cluster, or has to go by another name.
async fn removed(shared: &Shared, conn: &ServerConn) {
    match (&shared.removed, conn.proof()) {
        (Some(removed), Some(proof)) => removed.until_removed(proof).await,
        _ => std::future::pending().await,
    }
}

/// Reads the hello and answers it; a peer that is refused hears why.
async fn greet(
    shared: &Shared,
    (peer, caller): (&Nid, &Caller),
    mut tx: Box<dyn FrameTx>,
    rx: &mut Box<dyn FrameRx>,
) -> Result<Arc<ServerConn>, NetError> {
    let first = shared.seams.timeout_ms(HELLO_TIMEOUT_MS, rx.recv()).await.unwrap_or(Err(NetError::TimedOut));
    let first = match first {
        Ok(frame) => frame,
        Err(e) => return Err(refuse(shared, peer, &mut tx, None, e).await),
    };
    let header = first.header.clone();
    // No await after the service has consented: from there on, `closed` must be called.
    match welcome(shared, (peer, caller), first) {
        Ok(conn) => {
            conn.outbox.open(tx);
            Ok(conn)
        }
        Err(fault) => Err(refuse(shared, peer, &mut tx, Some(header), NetError::bad(fault)).await),
    }
}

/// Tells a peer that was not accepted why, where that is possible.
async fn refuse(
    shared: &Shared,
    peer: &Nid,
    tx: &mut Box<dyn FrameTx>,
    header: Option<Header>,
    e: NetError,
) -> NetError {
    shared.note_bad(peer, &e);
    if let NetError::Bad { fault, header: read } = &e
        && let Some(header) = header.or(read.as_deref().cloned())
    {
        let words = tx.send(vec![Frame::fault_reply_to(&header, fault)]);
        shared.seams.timeout_ms(LAST_WORDS_MS, words).await;
    }
    e
}

/// Checks the hello, lets the service look at the connection, and queues the answer.
fn welcome(shared: &Shared, (peer, caller): (&Nid, &Caller), first: Frame) -> Result<Arc<ServerConn>, Fault> {
    if first.header.kind != Kind::Hello {
        return Err(Fault::new(Code::BadFrame).why("the first frame of a connection is not a hello"));
    }
    let hello: Hello = decode_body(&first.body)?;
    let version = version::accept(shared.protocols.versions, &hello, SOFTWARE)?;
    let features = hello.features & FEATURES;
    let principal = caller.principal(&hello, first.header.target)?;
    let conn = Arc::new(ServerConn {
        id: shared.next_conn_id.fetch_add(1, Ordering::Relaxed),
        peer: peer.clone(),
        host: usage::shown(&principal.host).into(),
        principal,
        caller: caller.clone(),
        hello,
        version,
        outbox: Outbox::new(),
        notifies: Mutex::new(Some(BTreeMap::new())),
        notify_room: Semaphore::new(NOTIFIES_MAX),
        next_xid: AtomicU64::new(1),
        down: Latch::default(),
        usage: shared.usage.clone(),
        tracer: shared.tracer.clone(),
        fair: shared.fair.clone(),
        protocols: shared.protocols,
        releases: shared.releases.clone(),
    });
    let reply = HelloReply {
        version,
        fs_id: shared.service.hello(&conn)?,
        software: SOFTWARE.to_owned(),
        features,
        requests_max: shared.config.requests_max,
        bytes_max: shared.config.bytes_max,
    };
    shared.releases.came(&conn.hello.software, version);
    let outcome: Result<HelloReply, Fault> = Ok(reply);
    conn.send(Frame::reply_to(&first.header, encode_body(&outcome)), Vec::new());
    Ok(conn)
}

/// Starts requests until the connection ends; returns why it did.
async fn read(shared: &Arc<Shared>, conn: &Arc<ServerConn>, rx: &mut Box<dyn FrameRx>) -> NetError {
    let bytes_units_max = (shared.config.bytes_max / BYTES_UNIT).clamp(1, 1 << 30) as u32;
    let credits = Credits {
        requests: Arc::new(Semaphore::new(shared.config.requests_max.max(1) as usize)),
        bytes: Arc::new(Semaphore::new(bytes_units_max as usize)),
        bytes_units_max,
        high: Arc::new(Semaphore::new(HIGH_REQUESTS_MAX)),
    };
    loop {
        let mut frame = match rx.recv().await {
            Ok(frame) => frame,
            Err(e) => return e,
        };
        match frame.header.kind {
            Kind::Request => {
                let job = match conn.hello.features & FEATURE_JOB {
                    0 => None,
                    _ => match frame.take_job() {
                        Ok(job) => job,
                        Err(fault) => return NetError::bad_with(fault, frame.header),
                    },
                };
                let taken = credits.take(&frame.header).await;
                start(shared, conn, (frame, job), taken);
            }
            Kind::NotifyReply => conn.answered(frame),
            other => {
                let fault = Fault::new(Code::BadFrame).why(format!("a {other:?} from a client"));
                return NetError::bad_with(fault, frame.header);
            }
        }
    }
}

impl Credits {
    /// Waits until the request may run. A peer that keeps to its credits waits at most until its last reply is
    /// written.
    async fn take(&self, header: &Header) -> Vec<OwnedSemaphorePermit> {
        const NEVER_CLOSED: &str = "the semaphore is never closed";
        if header.priority == Priority::High {
            return vec![self.high.clone().acquire_owned().await.expect(NEVER_CLOSED)];
        }
        let units = u32::try_from(bytes_units(header)).unwrap_or(u32::MAX).min(self.bytes_units_max);
        let request = self.requests.clone().acquire_owned().await.expect(NEVER_CLOSED);
        let bytes = self.bytes.clone().acquire_many_owned(units).await.expect(NEVER_CLOSED);
        vec![request, bytes]
    }
}

fn start(
    shared: &Arc<Shared>,
    conn: &Arc<ServerConn>,
    (frame, job): (Frame, Option<JobTag>),
    credits: Vec<OwnedSemaphorePermit>,
) {
    brindle_stdx::request_rate::beat();
    let op = Op::from_number(frame.header.op);
    {
        let mut stats = shared.stats.lock();
        stats.requests += 1;
        if let Some(op) = op {
            *stats.requests_by_op.entry(op).or_default() += 1;
        }
    }
    let header = frame.header.clone();
    let frame = match conn.protocols.frame_up(conn.version, Part::Request, frame) {
        Ok(frame) => frame,
        Err(fault) => {
            let refusal = Frame::fault_reply_to(&header, &fault);
            return conn.send(checked(refusal, &header, conn), credits);
        }
    };
    let bytes = usage::known_bytes(op, &frame);
    let arrived = shared.tracer.is_on().then(|| shared.seams.now());
    let (serving, asking) = (shared.clone(), conn.clone());
    let work = async move {
        let (shared, conn) = (serving, asking);
        let (service, seams) = (shared.service.clone(), &shared.seams);
        let began = seams.now();
        let written_bytes = op.map_or(0, |op| usage::written_bytes(op, &frame));
        let caller = (&conn.principal, job.as_ref());
        let traced = arrived.zip(op).and_then(|(at, op)| shared.tracer.begin(caller, op, &frame, at));
        let spans = traced.as_ref().map(|traced| traced.spans());
        // Requests to other servers count for the same job.
        let serving = pin!(job::with_spans(job, spans, service.request(conn.clone(), frame)));
        let (answer, worked_micros) = match op.is_some_and(usage::waits_for_others) {
            true => usage::timed(seams, serving).await,
            false => (serving.await, seams.now().0.saturating_sub(began.0) / 1_000),
        };
        if shared.stop.is_set() {
            // The server is stopping, which may be why the request failed. Its caller asks again.
            return;
        }
        let read_bytes = op.map_or(0, |op| usage::read_bytes(op, &answer));
        let code = traced.as_ref().map_or(0, |_| trace::code_of(&answer));
        let mut reply = checked(answer, &header, &conn);
        reply.header.job_key = wall_ns(seams);
        if let Some(arrived) = arrived {
            let micros = seams.now().0.saturating_sub(arrived.0) / 1_000;
            reply.header.flags |= FLAG_TRACED;
            reply.header.queued_us = u32::try_from(micros).unwrap_or(u32::MAX);
        }
        if let Some(op) = op {
            if let (Some(fair), Op::InlineRead) = (&shared.fair, op) {
                fair.pay(&fair_request(&conn, Some(op), job.as_ref(), read_bytes));
            }
            let cost = Cost { op, read_bytes, written_bytes, micros: worked_micros };
            conn.usage.charge(&conn.principal, job.as_ref(), cost);
            if let Some(traced) = traced {
                shared.tracer.end(caller, *traced, cost, code);
            }
        }
        conn.send(reply, credits);
    };
    let Some(fair) = &shared.fair else {
        shared.seams.spawn("server.request", work);
        return;
    };
    fair.run(&fair_request(conn, op, job.as_ref(), bytes), work);
}

fn fair_request<'a>(
    conn: &'a ServerConn,
    op: Option<Op>,
    job: Option<&'a JobTag>,
    bytes: u64,
) -> fair::Request<'a> {
    let (principal, host, address) = (&conn.principal, &conn.host, conn.peer.host.as_str());
    fair::Request { op, principal, host, address, job, bytes }
}

/// Nanoseconds since 1970 by this host's clock; 0 before.
fn wall_ns(seams: &Seams) -> u64 {
    let wall = seams.wall();
    let ns = Time { secs: wall.secs, nanos: wall.nanos }.ns();
    ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

/// The reply as it may go out: paired with its request, in the form of the connection's version, and within the size that the request
/// allows.
fn checked(reply: Frame, request: &Header, conn: &ServerConn) -> Frame {
    let reply = Frame { header: Header { op: request.op, ..reply.header }, ..reply };
    let spoken = conn.protocols.frame_down(conn.version, Part::Reply, reply);
    let mut reply = spoken.unwrap_or_else(|fault| Frame::fault_reply_to(request, &fault));
    reply.header.reply_bulk_max = 0;
    let too_large = reply.header.bulk_len > request.reply_bulk_max;
    if too_large || reply.header.check_lengths().is_err() {
        let why = format!(
            "the reply to operation {} has a body of {} bytes and bulk of {} bytes; the request gave it room for {}",
            request.op, reply.header.body_len, reply.header.bulk_len, request.reply_bulk_max
        );
        reply = Frame::fault_reply_to(request, &Fault::new(Code::Bug).why(why));
    }
    reply.header.kind = Kind::Reply;
    reply.header.xid = request.xid;
    reply.header.version = conn.version;
    reply
}

/// Tells a peer that sent what cannot be understood about it, if its header was readable, and gives the reply a
/// second to go out.
async fn last_words(shared: &Shared, conn: &ServerConn, e: NetError) {
    shared.note_bad(&conn.peer, &e);
    let NetError::Bad { fault, header: Some(header) } = e else { return };
    let frame = Frame::fault_reply_to(&header, &fault);
    conn.outbox.send(Outgoing { last: true, ..frame.into() }, &conn.down);
    shared.seams.timeout_ms(LAST_WORDS_MS, conn.down.wait()).await;
}
