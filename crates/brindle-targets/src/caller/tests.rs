//! Properties of calls over connections that break: one effect, one answer, a slot that stays taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::peer::NoNotifies;
use brindle_net::{
    Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service, TcpTransport,
};
use brindle_stdx::{BoxFuture, Seams, real};
use brindle_types::{Code, Fault, Ino, Nid, Pair, Role, SessionId, TargetId};
use brindle_wire::frame::{FLAG_RESENT, Frame, decode_body, encode_body};
use brindle_wire::map::Map;
use brindle_wire::mds::Empty;
use brindle_wire::mds::lookup::LookupReq;
use brindle_wire::mds::unlink::UnlinkReq;
use brindle_wire::version::PeerKind;
use brindle_wire::{Cred, Op};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::*;

const TARGET: TargetId = TargetId { role: Role::Mdt, index: 0 };

/// Behaviour of the server on one request before it answers.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    CutBefore,
    CutAfter,
    Refuse(Code),
}

/// Chooses the trouble of the n-th request.
type Tells = Box<dyn Fn(u64, &Frame) -> Option<Trouble> + Send + Sync>;

/// A server that keeps a reply cache by slot, and gets into trouble as told.
struct Stub {
    effects: Mutex<BTreeMap<Vec<u8>, u32>>,
    slots: Mutex<BTreeMap<(SessionId, u16), u64>>,
    trouble: Tells,
    seen: AtomicU64,
    gate: Semaphore,
}

impl Service for Stub {
    fn hello(&self, _: &Arc<ServerConn>) -> Result<u64, Fault> {
        Ok(7)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let number = self.seen.fetch_add(1, Ordering::SeqCst);
            let trouble = (self.trouble)(number, &frame);
            match trouble {
                Some(Trouble::CutBefore) => {
                    conn.close();
                    return std::future::pending().await;
                }
                Some(Trouble::Refuse(code)) => {
                    return Frame::fault_reply_to(&frame.header, &Fault::new(code));
                }
                _ => {}
            }
            let passed = self.gate.acquire().await;
            drop(passed);
            self.run(&frame);
            if trouble == Some(Trouble::CutAfter) {
                conn.close();
            }
            Frame::reply_to(&frame.header, encode_body(&Ok::<_, Fault>(Empty {})))
        })
    }

    fn closed(&self, _: u64) {}
}

impl Stub {
    fn run(&self, frame: &Frame) {
        let header = &frame.header;
        assert_eq!(header.op, Op::Unlink as u16);
        let request: UnlinkReq = decode_body(&frame.body).expect("decodes");
        let mut slots = self.slots.lock();
        let last = slots.entry((header.session, header.slot)).or_default();
        assert!(header.sequence >= *last, "a slot went back");
        if header.sequence > *last {
            *last = header.sequence;
            *self.effects.lock().entry(request.name).or_default() += 1;
        } else {
            assert!(header.flags & FLAG_RESENT != 0, "a sequence was used twice");
        }
    }
}

/// A session that the server may end once.
struct TestHost {
    session: AtomicU64,
    refusals: AtomicU64,
    /// Work that the next answer leaves to be done.
    left: Mutex<Option<oneshot::Receiver<()>>>,
    failout_ms: Option<u64>,
}

impl Host for TestHost {
    fn identity(&self) -> Identity {
        Identity { session: SessionId(self.session.load(Ordering::SeqCst)), epoch: Pair::ZERO }
    }

    fn ready(&self) -> Option<BoxFuture<'_, Result<(), Fault>>> {
        None
    }

    fn told(&self, _: u64, _: Option<&CacheUpdates>) -> Option<BoxFuture<'static, ()>> {
        let left = self.left.lock().take()?;
        Some(Box::pin(async move { left.await.expect("it is done") }))
    }

    fn failout_ms(&self) -> Option<u64> {
        self.failout_ms
    }

    fn refused<'a>(&'a self, seen: Identity, _: &'a Fault) -> BoxFuture<'a, Result<(), Fault>> {
        self.refusals.fetch_add(1, Ordering::SeqCst);
        self.session.store(seen.session.0 + 1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Rig {
    stub: Arc<Stub>,
    host: Arc<TestHost>,
    caller: Caller,
    seams: Seams,
    transport: Arc<TcpTransport>,
    server: ServerHandle,
}

async fn rig(trouble: impl Fn(u64, &Frame) -> Option<Trouble> + Send + Sync + 'static) -> Rig {
    rig_with(None, trouble).await
}

async fn rig_with(
    failout_ms: Option<u64>,
    trouble: impl Fn(u64, &Frame) -> Option<Trouble> + Send + Sync + 'static,
) -> Rig {
    let seams = real::seams(tokio::runtime::Handle::current());
    let transport = Arc::new(TcpTransport::new(seams.clone()));
    let stub = Arc::new(Stub {
        effects: Mutex::default(),
        slots: Mutex::default(),
        trouble: Box::new(trouble),
        seen: AtomicU64::new(0),
        gate: Semaphore::new(1),
    });
    let anywhere = Nid { host: "127.0.0.1".into(), port: 0, rail: 0 };
    let server =
        RpcServer::serve(transport.clone(), &seams, &anywhere, ServerConfig::default(), stub.clone());
    let server = server.await.expect("listens");
    let config = PeerConfig::new(7, PeerKind::Client, "test");
    let peer = |nids| Peer::new(transport.clone(), seams.clone(), nids, config.clone(), Arc::new(NoNotifies));
    let map = Map::new("test".parse().expect("a name"), 7);
    let map = MapWatch::new(&seams, peer(Vec::new()), map);
    let host = Arc::new(TestHost {
        session: AtomicU64::new(1),
        refusals: AtomicU64::new(0),
        left: Mutex::default(),
        failout_ms,
    });
    let peer = peer(vec![server.local_nid().clone()]);
    let caller = Caller::new(&seams, TARGET, peer, map, host.clone(), Arc::default());
    Rig { stub, host, caller, seams, transport, server }
}

fn unlink(n: u32) -> UnlinkReq {
    UnlinkReq { parent: Ino::ROOT, name: format!("file{n}").into_bytes(), cred: Cred::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_one_effect_and_one_answer_whatever_breaks() {
    const CALLS: u32 = 200;
    let rig = rig(|number, _| match number {
        3 | 250 => Some(Trouble::CutBefore),
        20 | 110 | 400 => Some(Trouble::CutAfter),
        n if n % 9 == 6 => Some(Trouble::Refuse(Code::Overloaded)),
        _ => None,
    })
    .await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..CALLS {
        let caller = rig.caller.clone();
        calls.spawn(async move { caller.ask(&unlink(n)).await });
    }
    while let Some(outcome) = calls.join_next().await {
        outcome.expect("no panic").expect("answered in the end");
    }
    let effects = rig.stub.effects.lock();
    assert_eq!(effects.len(), CALLS as usize);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(rig.caller.slots().in_use(), 0);
}

#[tokio::test]
async fn an_abandoned_call_keeps_its_slot_until_its_outcome_is_known() {
    let rig = rig(|number, _| (number == 1).then_some(Trouble::CutAfter)).await;
    rig.caller.ask(&unlink(0)).await.expect("answered");
    let held = rig.stub.gate.acquire().await.expect("open");
    let request = unlink(1);
    let abandoned = rig.seams.timeout_ms(50, rig.caller.ask(&request)).await;
    assert!(abandoned.is_none());
    assert_eq!(rig.caller.slots().in_use(), 1, "the outcome is not known");
    drop(held);
    while rig.caller.slots().in_use() > 0 {
        rig.seams.sleep_ms(5).await;
    }
    assert_eq!(rig.stub.effects.lock().get(b"file1".as_slice()), Some(&1));
}

#[tokio::test]
async fn a_target_that_stays_away_is_given_up_and_what_it_may_have_got_goes_first_when_it_is_back() {
    const LIMIT_MS: u64 = 300;
    let rig = rig_with(Some(LIMIT_MS), |_, _| None).await;
    let code = |outcome: Result<Empty, Fault>| outcome.map(drop).map_err(|f| f.code);
    let held = rig.stub.gate.acquire().await.expect("open");
    let begun = rig.seams.now();
    let sent = rig.caller.clone();
    let guarded = Arc::new(());
    let kept = guarded.clone();
    let guard: Guard = Box::new(move || -> Box<dyn Any + Send> { Box::new(kept) });
    let sent = tokio::spawn(async move {
        let answer = sent.call_guarded(&unlink(0), Vec::new(), Options::default(), Some(guard)).await;
        answer.map(|(answer, _)| answer)
    });
    while rig.stub.seen.load(Ordering::SeqCst) == 0 {
        rig.seams.sleep_ms(1).await;
    }
    let nid = rig.server.local_nid().clone();
    drop(rig.server);
    assert_eq!(code(sent.await.expect("no panic")), Err(Code::OstUnreachable));
    assert!(rig.seams.now().ms_since(begun) >= LIMIT_MS, "not before its time");
    assert_eq!(rig.caller.slots().in_use(), 1, "the outcome is not known");
    assert_eq!(Arc::strong_count(&guarded), 2, "the guard goes with the request");

    let begun = rig.seams.now();
    let fault = rig.caller.ask(&unlink(1)).await.expect_err("it is away");
    assert!(fault.to_string().contains("failout=0") && fault.why.len() > 1, "it is explained: {fault}");
    let lookup = LookupReq { parent: Ino::ROOT, name: b"x".to_vec() };
    assert_eq!(rig.caller.ask(&lookup).await.map(drop).map_err(|f| f.code), Err(Code::OstUnreachable));
    assert_eq!(rig.caller.until_reachable().await.map_err(|f| f.code), Err(Code::OstUnreachable));
    assert!(rig.caller.is_failed_out() && rig.seams.now().ms_since(begun) < LIMIT_MS, "at once");

    let server =
        RpcServer::serve(rig.transport.clone(), &rig.seams, &nid, ServerConfig::default(), rig.stub.clone());
    let _server = server.await.expect("listens again");
    let connects = async {
        while rig.caller.is_failed_out() {
            rig.seams.sleep_ms(1).await;
        }
    };
    rig.seams.timeout_ms(5_000, connects).await.expect("it connects again");
    rig.caller.until_reachable().await.expect("it is back");
    let later = rig.caller.clone();
    let mut later = Box::pin(async move { later.ask(&unlink(2)).await });
    assert!(rig.seams.timeout_ms(100, &mut later).await.is_none(), "what was given up is not settled");
    assert!(rig.stub.seen.load(Ordering::SeqCst) < 3, "nothing else was sent");
    drop(held);
    later.await.expect("everything works again");
    assert_eq!(Arc::strong_count(&guarded), 1, "the outcome is known");
    let effects = rig.stub.effects.lock();
    assert_eq!(effects.get(b"file0".as_slice()), Some(&1), "once, and before what came later");
    assert_eq!(effects.get(b"file1".as_slice()), None, "it was refused before it was sent");
}

#[tokio::test]
async fn a_refused_session_is_replaced_but_never_repeats_what_may_have_happened() {
    let rig = rig(|number, frame| match number {
        0 => Some(Trouble::Refuse(Code::StaleSession)),
        2 => Some(Trouble::CutAfter),
        _ if frame.header.session == SessionId(2) && number == 3 => Some(Trouble::Refuse(Code::StaleSession)),
        _ => None,
    })
    .await;
    rig.caller.ask(&unlink(0)).await.expect("executed under the second session");
    assert_eq!(rig.host.refusals.load(Ordering::SeqCst), 1);
    let fault = rig.caller.ask(&unlink(1)).await.expect_err("it may have been executed");
    assert_eq!(fault.code, Code::OutcomeUnknown);
    assert_eq!(rig.stub.effects.lock().get(b"file1".as_slice()), Some(&1));
}

/// An MDT that was replaced may send nothing but what it asks once.
#[tokio::test]
async fn whoever_keeps_the_session_learns_of_a_refusal_of_what_is_sent_once() {
    let rig = rig(|_, _| Some(Trouble::Refuse(Code::Fenced))).await;
    let request = LookupReq { parent: Ino(1), name: b"f".to_vec() };
    assert_eq!(rig.caller.probe(&request).await.expect_err("refused").code, Code::Fenced);
    assert_eq!(rig.host.refusals.load(Ordering::SeqCst), 1);
}

/// The receiver of answers never blocks: the call itself waits for the work that an answer leaves, and other
/// calls go on.
#[tokio::test]
async fn an_answer_is_given_when_what_it_leaves_is_done_and_keeps_nobody_else_waiting() {
    let rig = rig(|_, _| None).await;
    let (done, left) = oneshot::channel();
    *rig.host.left.lock() = Some(left);
    let first = rig.caller.clone();
    let mut first = Box::pin(async move { first.ask(&unlink(0)).await });
    assert!(rig.seams.timeout_ms(100, &mut first).await.is_none(), "something is left to be done");
    assert!(rig.host.left.lock().is_none(), "though it was answered");
    rig.caller.ask(&unlink(1)).await.expect("answered meanwhile");
    done.send(()).expect("it is waited for");
    first.await.expect("answered");
}

#[tokio::test]
async fn faults_that_mean_something_are_told_and_a_stop_ends_what_waits() {
    let rig = rig(|number, _| match number {
        0 => Some(Trouble::Refuse(Code::NotFound)),
        1 => Some(Trouble::Refuse(Code::Fenced)),
        _ => None,
    })
    .await;
    let code = |outcome: Result<Empty, Fault>| outcome.map(drop).map_err(|f| f.code);
    assert_eq!(code(rig.caller.ask(&unlink(0)).await), Err(Code::NotFound));
    assert_eq!(code(rig.caller.ask(&unlink(0)).await), Err(Code::SessionLost));
    let held = rig.stub.gate.acquire().await.expect("open");
    let waiting = rig.caller.clone();
    let waiting = tokio::spawn(async move { waiting.ask(&unlink(2)).await });
    while rig.caller.slots().in_use() == 0 {
        rig.seams.sleep_ms(1).await;
    }
    rig.caller.stop();
    assert_eq!(code(waiting.await.expect("no panic")), Err(Code::Shutdown));
    drop(held);
    let lookup = LookupReq { parent: Ino::ROOT, name: b"x".to_vec() };
    assert_eq!(rig.caller.ask(&lookup).await.map(drop).map_err(|f| f.code), Err(Code::Shutdown));
}
