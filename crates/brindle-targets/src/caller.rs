//! Calls to one target that are answered exactly once: slots, sending again, the map, the session.
//!
//! Clients, servers and commands have one for each target that they ask; [`crate::Directory`] makes them. A request is sent until it is
//! answered, however long the server is away: a slotted one always under the same slot and sequence, so that it has one effect and one
//! answer. [`Caller::probe`] sends once.
//! Invariant: a slotted request whose caller went away is still sent until its outcome is known, and its slot stays
//! reserved so long.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use brindle_net::latch::Latch;
use brindle_net::{Peer, job};
use brindle_stdx::{BoxFuture, Seams, planted};
use brindle_types::{Code, Fault, Pair, SessionId, TargetId};
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::{FLAG_RESENT, Frame, Header, Priority, decode_body, decode_reply, encode_body};
use brindle_wire::job::JobTag;
use brindle_wire::{Message, Op};
use bytes::Bytes;

use crate::caller::failout::Failout;
use crate::map_watch::MapWatch;
use crate::slots::{Slot, SlotTable};
use crate::waits::Waits;

mod failout;

/// First pause before a request is sent again.
const BACKOFF_MIN_MS: u64 = 20;
/// Longest pause before a request is sent again.
const BACKOFF_MAX_MS: u64 = 1_000;
/// Time after the first failed attempt to connect at which [`Caller::probe_within`] takes the failure for an
/// answer.
const REFUSED_MS: u64 = 300;

/// Identity of the asking side, as servers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The session; 0 for none.
    pub session: SessionId,
    /// Fencing epoch of the session.
    pub epoch: Pair,
}

/// The session behind a caller.
pub trait Host: Send + Sync + 'static {
    /// The identity now.
    fn identity(&self) -> Identity;
    /// Completes when requests may go out: the session is open on the present connection, and what the server lost in
    /// a restart was reclaimed. `None`: they may go out now. Called before each sending.
    fn ready(&self) -> Option<BoxFuture<'_, Result<(), Fault>>>;
    /// A server refused requests of `seen` with `StaleSession`, `SessionLost` or `Fenced`. Completes when there is
    /// another session, or fails when there will be none.
    fn refused<'a>(&'a self, seen: Identity, fault: &'a Fault) -> BoxFuture<'a, Result<(), Fault>>;
    /// The moment before a request is sent, for [`Host::told`].
    fn asked(&self) -> u64 {
        0
    }
    /// Header of every answer of the target.
    fn answered(&self, header: &Header) {
        let _ = header;
    }
    /// Time for which the target may be unreachable before calls end with `OstUnreachable`; `None`: they wait
    /// for it.
    fn failout_ms(&self) -> Option<u64> {
        None
    }
    /// The highest version of an MDT's table of fenced sessions that was told; 0 for none.
    fn fences_version(&self) -> u64 {
        0
    }
    /// Takes in the updates that an answer carries. `None` when the request was sent several times: it may have been carried out, and
    /// answered, without news of what it changed.
    /// The caller gets the answer when the returned future has completed.
    fn told(&self, asked: u64, news: Option<&CacheUpdates>) -> Option<BoxFuture<'static, ()>> {
        let _ = (asked, news);
        None
    }
}

/// Calling side without a session: servers, commands, the MGS.
pub struct NoSession;

impl Host for NoSession {
    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn ready(&self) -> Option<BoxFuture<'_, Result<(), Fault>>> {
        None
    }

    fn refused<'a>(&'a self, _: Identity, fault: &'a Fault) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Err(fault.clone())))
    }
}

/// Options of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Class of the request.
    pub priority: Priority,
    /// Largest bulk that the reply may carry.
    pub reply_bulk_max: u32,
    /// Milliseconds after which the caller will not wait any longer, told to the server; 0 for never.
    pub deadline_ms: u32,
    /// Send only under this session (that of the handle that the operation uses): `SessionLost` once there is
    /// another.
    pub only_as: Option<Identity>,
}

/// Runs when the caller of a slotted request that was sent goes away, or gives the target up. The returned value lives until the
/// outcome is known.
pub type Guard = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// Calls one target. Cheap to clone.
#[derive(Clone)]
pub struct Caller {
    inner: Arc<Inner>,
}

struct Inner {
    target: TargetId,
    peer: Arc<Peer>,
    map: Arc<MapWatch>,
    host: Arc<dyn Host>,
    waits: Arc<Waits>,
    slots: SlotTable,
    seams: Seams,
    stop: Latch,
    /// Reason why calls end, once `stop` is set.
    ended: OnceLock<Fault>,
    failout: Failout,
}

impl Caller {
    /// A caller of `target` over `peer`.
    pub fn new(
        seams: &Seams,
        target: TargetId,
        peer: Arc<Peer>,
        map: Arc<MapWatch>,
        host: Arc<dyn Host>,
        waits: Arc<Waits>,
    ) -> Caller {
        let slots = SlotTable::default();
        let (stop, ended) = (Latch::default(), OnceLock::new());
        let failout = Failout::default();
        let inner =
            Inner { target, peer, map, host, waits, slots, seams: seams.clone(), stop, ended, failout };
        Caller { inner: Arc::new(inner) }
    }

    /// Sends `request` with `bulk` until it is answered.
    pub async fn call<M: Message>(&self, request: &M, bulk: Vec<Bytes>) -> Result<(M::Resp, Bytes), Fault> {
        self.call_with(request, bulk, Options::default()).await
    }

    /// Sends `request` until it is answered; neither side has bulk.
    pub async fn ask<M: Message>(&self, request: &M) -> Result<M::Resp, Fault> {
        Ok(self.call(request, Vec::new()).await?.0)
    }

    /// Like [`Caller::ask`], in the class that never waits behind others: renewals, returns of leases.
    pub async fn ask_high<M: Message>(&self, request: &M) -> Result<M::Resp, Fault> {
        let options = Options { priority: Priority::High, ..Options::default() };
        Ok(self.call_with(request, Vec::new(), options).await?.0)
    }

    /// Sends `request` with `bulk` until it is answered. When the future of a slotted request is dropped the request
    /// goes on in the background, and its slot stays reserved until the outcome is known.
    pub async fn call_with<M: Message>(
        &self,
        request: &M,
        bulk: Vec<Bytes>,
        options: Options,
    ) -> Result<(M::Resp, Bytes), Fault> {
        self.call_guarded(request, bulk, options, None).await
    }

    /// Like [`Caller::call`], with a guard. The guard goes with the request when its caller goes away.
    pub async fn call_guarded<M: Message>(
        &self,
        request: &M,
        bulk: Vec<Bytes>,
        options: Options,
        guard: Option<Guard>,
    ) -> Result<(M::Resp, Bytes), Fault> {
        let (reply, _) = self.exchange_encoded(M::OP, encode_body(request), bulk, options, guard).await?;
        Ok((decode_reply(&reply)?, reply.bulk_bytes()))
    }

    /// Sends `request` until it is answered; the answer, and what it told beside itself (which the host knows already).
    pub async fn ask_with_updates<M: Message>(&self, request: &M) -> Result<(M::Resp, CacheUpdates), Fault> {
        let body = encode_body(request);
        let (reply, news) = self.exchange_encoded(M::OP, body, Vec::new(), Options::default(), None).await?;
        Ok((decode_reply(&reply)?, news))
    }

    /// Like [`Caller::call_with`], of a request that is encoded already; the whole reply. A reply that is a fault is returned as one.
    pub async fn call_encoded(
        &self,
        op: Op,
        body: Bytes,
        bulk: Vec<Bytes>,
        options: Options,
    ) -> Result<Frame, Fault> {
        Ok(self.exchange_encoded(op, body, bulk, options, None).await?.0)
    }

    async fn exchange_encoded(
        &self,
        op: Op,
        body: Bytes,
        bulk: Vec<Bytes>,
        options: Options,
        guard: Option<Guard>,
    ) -> Result<(Frame, CacheUpdates), Fault> {
        match self.inner.host.failout_ms() {
            None => {
                let abandoning = Abandoning { guard, given_up: None };
                self.exchange_whatever_comes(op, body, bulk, options, abandoning).await
            }
            Some(limit_ms) => self.exchange_or_fail_out(limit_ms, op, body, bulk, options, guard).await,
        }
    }

    async fn exchange_whatever_comes(
        &self,
        op: Op,
        body: Bytes,
        bulk: Vec<Bytes>,
        options: Options,
        abandoning: Abandoning,
    ) -> Result<(Frame, CacheUpdates), Fault> {
        let slot = if op.slotted() { Some(self.inner.slots.acquire().await) } else { None };
        let slotted = slot.is_some();
        let job = job::current();
        let exchange = Exchange { inner: self.inner.clone(), op, body, bulk, options, slot, job };
        let work = exchange.until_stopped();
        if slotted {
            Undropped { work: Some(Box::pin(work)), inner: self.inner.clone(), abandoning }.await
        } else {
            work.await
        }
    }

    /// Sends a request once, outside every slot and session gate (the session's own operations, probes).
    pub async fn once<M: Message>(&self, request: &M, identity: Identity) -> Result<M::Resp, Fault> {
        let options = Options { priority: Priority::High, ..Options::default() };
        self.send_once(request, identity, options).await
    }

    /// Sends a request once, as whoever the host says that this is: for what is asked again in any case, and for commands.
    /// `Disconnected`: its fate is unknown. Waits for a connection.
    pub async fn probe<M: Message>(&self, request: &M) -> Result<M::Resp, Fault> {
        decode_reply(&self.probe_encoded(M::OP, encode_body(request)).await?)
    }

    async fn send_once<M: Message>(
        &self,
        request: &M,
        identity: Identity,
        options: Options,
    ) -> Result<M::Resp, Fault> {
        decode_reply(&self.send_encoded_once(M::OP, encode_body(request), identity, options).await?)
    }

    /// Like [`Caller::probe`], for people who wait: gives up after `patience_ms`, or as soon as it is clear that nobody listens, with
    /// `TargetDown` and the reason.
    pub async fn probe_within<M: Message>(&self, request: &M, patience_ms: u64) -> Result<M::Resp, Fault> {
        let (peer, seams) = (&self.inner.peer, &self.inner.seams);
        let refused = async {
            loop {
                seams.sleep_ms(REFUSED_MS).await;
                let state = peer.state();
                if !state.connected && state.last_error.is_some() {
                    break;
                }
            }
        };
        let first = async {
            tokio::select! {
                biased;
                answer = self.probe(request) => Some(answer),
                () = refused => None,
            }
        };
        let answered = seams.timeout_ms(patience_ms, first).await.flatten();
        answered.unwrap_or_else(|| Err(self.silent(patience_ms)))
    }

    /// Fault for a target that has not answered, with the reason that the attempts to connect tell.
    fn silent(&self, patience_ms: u64) -> Fault {
        let nids: Vec<String> = self.inner.peer.nids().iter().map(ToString::to_string).collect();
        let fault = Fault::new(Code::TargetDown).what("no answer from").subject(nids.join(", "));
        match self.inner.peer.state().last_error {
            Some(last) if !last.why.is_empty() => last.why.into_iter().fold(fault, Fault::why),
            Some(last) => fault.why(last.what),
            None => fault.why(format!("it is connected, and does not answer for {} s", patience_ms / 1000)),
        }
    }

    /// Like [`Caller::probe`], of a request that is encoded already; the whole reply.
    pub async fn probe_encoded(&self, op: Op, body: Bytes) -> Result<Frame, Fault> {
        let identity = self.inner.host.identity();
        let reply = self.send_encoded_once(op, body, identity, Options::default()).await?;
        if let Some(fault) = fault_of(&reply)
            && matches!(next_after(fault.code), Next::NewSession)
        {
            // The host that keeps the session must learn of this here, too: an MDT that was replaced may send
            // nothing else.
            self.inner.host.refused(identity, &fault).await?;
        }
        Ok(reply)
    }

    async fn send_encoded_once(
        &self,
        op: Op,
        body: Bytes,
        identity: Identity,
        options: Options,
    ) -> Result<Frame, Fault> {
        assert!(!op.slotted(), "what goes through a slot is sent until its outcome is known");
        let header = self.inner.header(op, identity, options);
        let sending = self.inner.peer.call(Frame::new(header, body));
        let reply = self.inner.stop.until(sending).await.unwrap_or_else(|| Err(self.inner.ending()))?;
        self.inner.host.answered(&reply.header);
        Ok(reply)
    }

    /// The target.
    pub fn target(&self) -> TargetId {
        self.inner.target
    }

    /// The connections below.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.inner.peer
    }

    /// The slots, for status and to set their limit.
    pub fn slots(&self) -> &SlotTable {
        &self.inner.slots
    }

    /// Ends every present and future call with `Shutdown`.
    pub fn stop(&self) {
        self.end(Fault::new(Code::Shutdown));
    }

    /// Ends every present and future call with `why`.
    pub fn end(&self, why: Fault) {
        // The first reason is the one that counts.
        let _ = self.inner.ended.set(why);
        self.inner.stop.set();
        self.inner.peer.stop();
    }
}

impl Inner {
    /// Completes when requests may go out.
    async fn until_ready(&self) -> Result<(), Fault> {
        match self.host.ready() {
            Some(ready) => ready.await,
            None => Ok(()),
        }
    }

    fn ending(&self) -> Fault {
        self.ended.get().cloned().unwrap_or_else(|| Fault::new(Code::Shutdown))
    }

    fn header(&self, op: Op, identity: Identity, options: Options) -> Header {
        let map = self.map.current();
        Header {
            op: op as u16,
            priority: options.priority,
            fs_id: map.fs_id,
            session: identity.session,
            session_epoch: identity.epoch,
            target: Some(self.target),
            map_version: map.version,
            target_epoch: map.target(self.target).map_or(0, |t| t.epoch),
            reply_bulk_max: options.reply_bulk_max,
            deadline_ms: options.deadline_ms,
            fences_version: self.host.fences_version(),
            ..Header::default()
        }
    }
}

/// A request on its way to its answer.
struct Exchange {
    inner: Arc<Inner>,
    op: Op,
    body: Bytes,
    bulk: Vec<Bytes>,
    options: Options,
    slot: Option<Slot>,
    /// Job that the call works for, even after its caller has gone.
    job: Option<JobTag>,
}

/// The next step after a fault.
enum Next {
    /// Return the fault to the caller.
    Fail,
    /// Wait a little and send again.
    Again,
    /// Fetch the map and send again.
    NewMap,
    /// Get another session.
    NewSession,
}

/// The next step for each fault of a server. A server has not executed a request whose fault leads to sending it again.
fn next_after(code: Code) -> Next {
    match code {
        Code::Overloaded | Code::BadChecksum | Code::Disconnected | Code::TargetDown => Next::Again,
        Code::WrongTarget | Code::StaleEpoch => Next::NewMap,
        Code::StaleSession | Code::SessionLost | Code::Fenced => Next::NewSession,
        _ => Next::Fail,
    }
}

impl Exchange {
    async fn until_stopped(self) -> Result<(Frame, CacheUpdates), Fault> {
        let inner = self.inner.clone();
        inner.stop.until(self.run()).await.unwrap_or_else(|| Err(inner.ending()))
    }

    async fn run(mut self) -> Result<(Frame, CacheUpdates), Fault> {
        let inner = self.inner.clone();
        let asked = inner.host.asked();
        let _waiting = inner.waits.begin(self.op, inner.target, inner.seams.now());
        // Whether a sending was lost, so that the request may have been executed, and under which session.
        let mut lost: Option<SessionId> = None;
        let mut failures = 0u32;
        loop {
            inner.until_ready().await?;
            let identity = inner.host.identity();
            if self.options.only_as.is_some_and(|wanted| wanted != identity) {
                return Err(Fault::new(Code::SessionLost));
            }
            if let Some(session) = lost
                && self.slot.is_some()
                && session != identity.session
            {
                return Err(Fault::new(Code::OutcomeUnknown).why("the session was ended meanwhile"));
            }
            let frame = self.frame(identity, lost.is_some());
            let map_version = frame.header.map_version;
            let next = match inner.peer.call_for(self.job, frame).await {
                Err(fault) => {
                    if fault.code == Code::Disconnected {
                        lost = Some(identity.session);
                    }
                    Next::Again
                }
                Ok(reply) => {
                    inner.host.answered(&reply.header);
                    let news = reply.cache_updates()?;
                    let known = lost.is_none() || self.slot.is_none();
                    if let Some(left) = inner.host.told(asked, known.then_some(&news)) {
                        left.await;
                    }
                    match fault_of(&reply) {
                        None => return Ok((reply, news)),
                        Some(fault) if fault.code == Code::NotOwner => {
                            // The answer was held back, so it may have been carried out.
                            lost = Some(identity.session);
                            Next::NewMap
                        }
                        Some(fault) if fault.code == Code::NotLeading => {
                            // The answer was held back here, too, so the operation may have been carried out.
                            // Another MGS is the active one, or will be.
                            lost = Some(identity.session);
                            inner.map.mgs_is_silent();
                            Next::Again
                        }
                        Some(fault) => match next_after(fault.code) {
                            Next::Fail => return Err(fault),
                            Next::NewSession => {
                                inner.host.refused(identity, &fault).await?;
                                if fault.code != Code::StaleSession || identity == inner.host.identity() {
                                    return Err(session_lost(fault));
                                }
                                if let (Some(slot), None) = (&mut self.slot, lost) {
                                    slot.renew();
                                }
                                continue;
                            }
                            next => next,
                        },
                    }
                }
            };
            if matches!(next, Next::NewMap) {
                inner.map.refresh(map_version).await;
            }
            failures += 1;
            inner.seams.sleep_ms(backoff_ms(failures, inner.seams.rng.next_u64())).await;
        }
    }

    fn frame(&mut self, identity: Identity, resent: bool) -> Frame {
        let mut header = self.inner.header(self.op, identity, self.options);
        if let Some(slot) = &mut self.slot {
            if resent && planted("client_new_sequence_on_resend") {
                slot.renew();
            }
            header.slot = slot.number();
            header.sequence = slot.sequence();
        }
        if resent {
            header.flags |= FLAG_RESENT;
        }
        let frame = Frame::new(header, self.body.clone());
        if self.bulk.is_empty() { frame } else { frame.with_bulk(self.bulk.clone()) }
    }
}

/// The fault that a handle's user sees when its session is gone.
fn session_lost(fault: Fault) -> Fault {
    let why = if fault.why.is_empty() { vec![fault.what] } else { fault.why };
    why.into_iter().fold(Fault::new(Code::SessionLost), Fault::why)
}

/// The fault that a reply carries; a reply that does not decode as one is left to the typed decoder.
fn fault_of(reply: &Frame) -> Option<Fault> {
    if reply.body.first() != Some(&1) {
        return None;
    }
    decode_body::<Result<(), Fault>>(reply.outcome()).ok()?.err()
}

/// Doubles from [`BACKOFF_MIN_MS`] to [`BACKOFF_MAX_MS`]; between half and all of that, by chance.
fn backoff_ms(failures: u32, random: u64) -> u64 {
    let full = (BACKOFF_MIN_MS << failures.saturating_sub(1).min(16)).min(BACKOFF_MAX_MS);
    full / 2 + random % (full / 2 + 1)
}

type Work = Pin<Box<dyn Future<Output = Result<(Frame, CacheUpdates), Fault>> + Send>>;

/// Actions for a slotted request whose caller goes away.
struct Abandoning {
    guard: Option<Guard>,
    /// Set by a caller that goes away because the target is given up.
    given_up: Option<Arc<AtomicBool>>,
}

/// A slotted exchange: when its caller goes away it is handed to the task runner, which brings it to its end.
struct Undropped {
    work: Option<Work>,
    inner: Arc<Inner>,
    abandoning: Abandoning,
}

impl Future for Undropped {
    type Output = Result<(Frame, CacheUpdates), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("not polled after it completed");
        let outcome = work.as_mut().poll(cx);
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }
}

impl Drop for Undropped {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let Abandoning { guard, given_up } = &mut self.abandoning;
            let guarded = guard.take().map(|guard| guard());
            let is_given_up = given_up.as_ref().is_some_and(|given_up| given_up.load(Ordering::Acquire));
            let unsettled = is_given_up.then(|| self.inner.failout.unsettled());
            self.inner.seams.spawn("call.abandoned", async move {
                // The answer does not matter. The slot becomes free only now.
                drop(work.await);
                drop((guarded, unsettled));
            });
        }
    }
}

#[cfg(test)]
mod tests;
