//! Life of one of a peer's connections: connect, hello, read and write until it ends, pause, again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Nid};
use brindle_wire::earlier::Part;
use brindle_wire::frame::{Frame, Header, Kind, decode_reply, encode_body};
use brindle_wire::version::{FEATURES, Hello, HelloReply, Versions, negotiate};
use futures_util::future::select_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::{
    BACKOFF_MAX_MS, BACKOFF_MIN_MS, BYTES_UNIT, HELLO_TIMEOUT_MS, HIGH_REQUESTS_MAX, Inner, Link, LinkInfo,
    LinkState, NOTIFIES_MAX, rail,
};
use crate::latch::Latch;
use crate::outbox::Outbox;
use crate::transport::{Connection, Delivery, FrameRx};
use crate::{NetError, SOFTWARE};

/// A connection that lasted this long was a good one: the next attempt needs no pause.
const GOOD_AFTER_MS: u64 = 1_000;

/// Another rail of a host is tried when one has not answered for this long.
const NEXT_RAIL_AFTER_MS: u64 = 300;

/// Pause after a server has said that this host was removed from its cluster.
const REMOVED_PAUSE_MS: u64 = 5_000;

/// Outcome of an attempt that made no connection.
enum Failure {
    /// The server does not want us, and said why.
    Refused(Fault),
    /// The server was not reached.
    Unreachable(Fault),
}

/// Keeps connection `index` of the peer alive until the peer is stopped.
pub(super) async fn run(inner: Arc<Inner>, index: usize) {
    let mut failures = 0u32;
    let mut was_up = false;
    let mut is_removed = false;
    let mut known = inner.nids.subscribe();
    let mut last: Option<Nid> = None;
    while !inner.stop.is_set() {
        let nids = known.borrow_and_update().clone();
        let own = rail::addresses(&inner.config, index, &nids);
        if own.is_empty() && index > 0 {
            // The host has fewer rails than this peer has connections: this one has no address for now, and was not
            // refused.
            inner.set_link(index, LinkState::Connecting);
            inner.stop.until(known.changed()).await;
            continue;
        }
        let mut order: Vec<&Nid> = own.iter().collect();
        // The address whose connection has just ended is tried after the others.
        order.sort_by_key(|nid| Some(*nid) == last.as_ref());
        for host in rail::hosts(&order) {
            let attempt = tokio::select! {
                biased;
                () = inner.stop.wait() => None,
                _ = known.wait_for(|now| *now != nids) => None,
                opened = open_on_any_rail(&inner, host) => Some(opened),
            };
            match attempt {
                None => {
                    failures = 0;
                    break;
                }
                Some(Ok((link, incoming))) => {
                    (is_removed, was_up) = (false, true);
                    let started = inner.seams.now();
                    last = Some(link.info.nid.clone());
                    serve(&inner, index, link, incoming).await;
                    let good = inner.seams.now().ms_since(started) >= GOOD_AFTER_MS;
                    failures = if good { 0 } else { failures + 1 };
                    break;
                }
                Some(Err(failure)) => {
                    failures += 1;
                    is_removed =
                        matches!(&failure, Failure::Refused(fault) if fault.code == Code::HostRemoved);
                    note_failure(&inner, index, failure);
                }
            }
        }
        if failures > 0 || nids.is_empty() {
            let random = inner.seams.rng.next_u64();
            // The host may join again; until then frequent attempts gain nothing.
            let pause_ms = if is_removed { REMOVED_PAUSE_MS } else { backoff_ms(failures, random) };
            let pause = async {
                inner.seams.sleep_ms(pause_ms).await;
                if !was_up {
                    rail::pause_never_up(&inner, failures).await;
                }
            };
            let pause = async {
                tokio::select! {
                    biased;
                    _ = known.wait_for(|now| *now != nids) => {}
                    () = pause => {}
                }
            };
            inner.stop.until(pause).await;
        }
    }
    inner.set_link(index, LinkState::Stopped);
}

/// Doubles from [`BACKOFF_MIN_MS`] to [`BACKOFF_MAX_MS`]; between half and all of that, by chance.
fn backoff_ms(failures: u32, random: u64) -> u64 {
    let full = (BACKOFF_MIN_MS << failures.saturating_sub(1).min(16)).min(BACKOFF_MAX_MS);
    full / 2 + random % (full / 2 + 1)
}

fn note_failure(inner: &Inner, index: usize, failure: Failure) {
    let fault = match failure {
        Failure::Refused(fault) => {
            tracing::warn!(code = %fault.code, "refused: {fault}");
            inner.set_link(index, LinkState::Refused(fault.clone()));
            fault
        }
        Failure::Unreachable(fault) => {
            inner.links[index].send_if_modified(|state| {
                let refused = matches!(state, LinkState::Refused(_));
                if refused {
                    *state = LinkState::Connecting;
                }
                refused
            });
            inner.changes.send_modify(|n| *n += 1);
            fault
        }
    };
    let mut status = inner.status.lock();
    status.last_error = Some(fault);
    status.failed_attempts += 1;
}

type Opened = (Arc<Link>, Incoming);

/// The receiving side of a connection.
struct Incoming {
    rx: Box<dyn FrameRx>,
    delivery: Option<Box<dyn Delivery>>,
}

/// Connects to a host over its rails, each attempt a little later than the one before, since a rail that was cut does not answer.
async fn open_on_any_rail(inner: &Inner, rails: &[&Nid]) -> Result<Opened, Failure> {
    if let [nid] = rails {
        return open(inner, nid).await;
    }
    let attempt = |(n, nid): (usize, &&Nid)| -> BoxFuture<'_, Result<Opened, Failure>> {
        let nid = (*nid).clone();
        Box::pin(async move {
            inner.seams.sleep_ms(n as u64 * NEXT_RAIL_AFTER_MS).await;
            open(inner, &nid).await
        })
    };
    let mut attempts: Vec<_> = rails.iter().enumerate().map(attempt).collect();
    loop {
        let (opened, _, others) = select_all(attempts).await;
        if opened.is_ok() || others.is_empty() {
            return opened;
        }
        attempts = others;
    }
}

/// Connects to `nid` and exchanges hellos.
async fn open(inner: &Inner, nid: &Nid) -> Result<Opened, Failure> {
    let lost = |e: NetError| Failure::Unreachable(e.fault(nid));
    let connected = inner.transport.connect(nid).await;
    let mut connection = connected.map_err(|e| match e.is_refusal() {
        true => Failure::Refused(e.fault(nid)),
        false => lost(e),
    })?;
    let work = greet(inner, &mut connection);
    let reply = inner.seams.timeout_ms(HELLO_TIMEOUT_MS, work).await;
    let reply = reply.unwrap_or(Err(NetError::TimedOut)).map_err(lost)?;
    if reply.header.kind != Kind::HelloReply {
        let fault = Fault::new(Code::BadFrame).why("the first answer is not a hello");
        return Err(lost(NetError::bad(fault)));
    }
    let hello: HelloReply = decode_reply(&reply).map_err(|f| Failure::Refused(named(f, nid)))?;
    let theirs = Versions { min: hello.version, max: hello.version };
    if negotiate(inner.transport.protocols().versions, theirs).is_none() {
        let fault = Fault::new(Code::VersionMismatch).why(format!("{nid} chose {theirs}"));
        return Err(Failure::Refused(named(fault, nid)));
    }
    let link = new_link(inner, nid, hello);
    link.outbox.open(connection.tx);
    Ok((link, Incoming { rx: connection.rx, delivery: connection.delivery }))
}

fn named(fault: Fault, nid: &Nid) -> Fault {
    if fault.subject.is_empty() { fault.subject(nid.to_string()) } else { fault }
}

async fn greet(inner: &Inner, connection: &mut Connection) -> Result<Frame, NetError> {
    let hello = Hello {
        versions: inner.transport.protocols().versions,
        fs_id: inner.config.fs_id,
        kind: inner.config.kind,
        software: SOFTWARE.to_owned(),
        host: inner.config.host.clone(),
        features: FEATURES,
    };
    let (fs_id, target) = (inner.config.fs_id, inner.config.serves);
    let header = Header { kind: Kind::Hello, fs_id, target, ..Header::default() };
    connection.tx.send(vec![Frame::new(header, encode_body(&hello))]).await?;
    connection.rx.recv().await
}

fn new_link(inner: &Inner, nid: &Nid, hello: HelloReply) -> Arc<Link> {
    let requests = inner.config.requests_max.min(hello.requests_max).max(1);
    let bytes_units = (inner.config.bytes_max.min(hello.bytes_max) / BYTES_UNIT).clamp(1, 1 << 30) as u32;
    Arc::new(Link {
        info: LinkInfo {
            generation: inner.generation.fetch_add(1, Ordering::AcqRel) + 1,
            nid: nid.clone(),
            hello,
        },
        protocols: inner.transport.protocols(),
        outbox: Outbox::new(),
        pending: Mutex::new(Some(BTreeMap::new())),
        requests: Arc::new(Semaphore::new(requests as usize)),
        bytes: Arc::new(Semaphore::new(bytes_units as usize)),
        bytes_units_max: bytes_units,
        high: Arc::new(Semaphore::new(HIGH_REQUESTS_MAX)),
        notifies: Arc::new(Semaphore::new(NOTIFIES_MAX)),
        down: Latch::default(),
        busy: Notify::new(),
        received: AtomicU64::new(0),
        is_measured: AtomicBool::new(false),
        network_us: AtomicU32::new(0),
        wrong_since: Mutex::new(None),
    })
}

/// Publishes the connection and runs it to its end.
async fn serve(inner: &Arc<Inner>, index: usize, link: Arc<Link>, incoming: Incoming) {
    let Incoming { rx, delivery } = incoming;
    note_up(inner, 1);
    inner.set_link(index, LinkState::Up(link.clone()));
    let writer = link.clone();
    inner.seams.spawn("peer.write", async move { writer.outbox.run(&writer.down).await });
    let reading = async {
        tokio::select! {
            biased;
            ended = read(inner, &link, rx) => ended,
            silent = rail::until_silent(inner, &link, delivery) => silent,
        }
    };
    let reading = link.down.until(reading);
    let ended = inner.stop.until(reading).await.flatten();
    let why = ended.unwrap_or(NetError::Closed).fault(&link.info.nid);
    let fault = Fault::new(Code::Disconnected).subject(link.info.nid.to_string());
    let fault = why.why.iter().fold(fault, |f, w| f.why(w.clone()));
    inner.set_link(index, LinkState::Connecting);
    note_up(inner, -1);
    inner.status.lock().last_error = Some(if why.code == Code::Disconnected { fault.clone() } else { why });
    link.end(&fault);
}

/// Counts the connections that exist, and since when all do or not.
fn note_up(inner: &Inner, change: isize) {
    let mut status = inner.status.lock();
    let before = inner.is_connected(status.up_count);
    status.up_count = status.up_count.saturating_add_signed(change);
    status.failed_attempts = 0;
    if inner.is_connected(status.up_count) != before {
        status.since = inner.seams.now();
    }
}

/// Hands out replies and notifies until the connection ends; returns why it did.
async fn read(inner: &Arc<Inner>, link: &Arc<Link>, mut rx: Box<dyn FrameRx>) -> NetError {
    loop {
        let frame = match rx.recv().await {
            Ok(frame) => frame,
            Err(e) => return e,
        };
        link.received.fetch_add(1, Ordering::Relaxed);
        match frame.header.kind {
            Kind::Reply => {
                let request = link.pending.lock().as_mut().and_then(|p| p.remove(&frame.header.xid));
                match request {
                    // The caller may have gone away; its credits come back here all the same.
                    Some(request) => {
                        let reply = link.up(Part::Reply, frame).unwrap_or_else(|refusal| refusal);
                        drop(request.answer.send(Ok(reply)));
                    }
                    None => tracing::debug!(xid = frame.header.xid, "a reply that nobody waits for"),
                }
            }
            Kind::Notify => {
                if let Err(e) = start_notify(inner, link, frame) {
                    return e;
                }
            }
            other => {
                let fault = Fault::new(Code::BadFrame).why(format!("a {other:?} from a server"));
                return NetError::bad(fault);
            }
        }
    }
}

/// Runs the handler in a task of its own. A server that has more unanswered notifies than both sides agreed on
/// loses the connection: waiting here would hold up the replies that the running handlers may need.
fn start_notify(inner: &Arc<Inner>, link: &Arc<Link>, frame: Frame) -> Result<(), NetError> {
    let Ok(permit) = link.notifies.clone().try_acquire_owned() else {
        let fault = Fault::new(Code::Overloaded).why(format!("more than {NOTIFIES_MAX} unanswered notifies"));
        return Err(NetError::bad(fault));
    };
    let (handler, link) = (inner.notifies.clone(), link.clone());
    inner.seams.spawn("peer.notify", async move {
        let xid = frame.header.xid;
        let answer = match link.up(Part::Request, frame) {
            Ok(notice) => handler.notify(notice).await,
            Err(refusal) => refusal,
        };
        let mut answer = link.down(Part::Reply, answer).unwrap_or_else(|refusal| refusal);
        answer.header.kind = Kind::NotifyReply;
        answer.header.xid = xid;
        answer.header.version = link.info.hello.version;
        drop(permit);
        link.outbox.send(answer.into(), &link.down);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        for failures in 0..100 {
            for random in [0, 1, 499, u64::MAX] {
                let ms = backoff_ms(failures, random);
                assert!((BACKOFF_MIN_MS / 2..=BACKOFF_MAX_MS).contains(&ms), "{failures} {random} {ms}");
            }
        }
        assert!(backoff_ms(9, 0) > backoff_ms(1, u64::MAX));
    }
}
