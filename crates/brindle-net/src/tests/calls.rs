//! Calls, notifies, credits, lost connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_types::{Code, Fault};
use brindle_wire::Op;
use brindle_wire::frame::{BODY_MAX, FLAG_TRACED, Frame, Header, Kind, Priority, decode_reply, encode_body};
use brindle_wire::job::{JobTag, UsageBy, UsageReq, UsageRow};
use brindle_wire::trace::{TraceFilter, TraceReq};
use brindle_wire::version::{FEATURES, Hello, HelloReply, PeerKind, Versions};
use bytes::Bytes;

use super::{ECHO, FS_ID, GATED, HANG_UP, Mirror, RECALL, Setup, eventually, request, run};
use crate::{ServerConfig, job};

fn pattern(len: usize, seed: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + seed * 13) as u8).collect::<Vec<u8>>().into()
}

#[test]
fn calls_return_their_own_answers_with_bulk_aligned_and_whole() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer_with(|c| c.links = 2, Arc::new(Mirror));
        let sizes = [0, 1, 100, 4096, 8192, 70_000, 1 << 20, (1 << 20) + 1, 16 << 20];
        let calls = (0..90).map(|i| {
            let peer = peer.clone();
            async move {
                let len = sizes[i % sizes.len()];
                let bulk = pattern(len, i);
                let header =
                    Header { op: ECHO, slot: i as u16, reply_bulk_max: len as u32, ..Header::default() };
                let parts = vec![bulk.slice(..len / 3), bulk.slice(len / 3..)];
                let frame = Frame::new(header, pattern(i * 1000, i)).with_bulk(parts);
                let reply = peer.call(frame).await.expect("answered");
                assert_eq!(reply.body, pattern(i * 1000, i));
                assert_eq!(reply.bulk_bytes(), bulk);
                reply.verify().expect("consistent");
                if len > 0 {
                    assert_eq!(reply.bulk[0].as_ptr().align_offset(4096), 0, "bulk is aligned");
                }
            }
        });
        futures_util::future::join_all(calls).await;
        assert_eq!(peer.state().requests_in_flight, 0);
    });
}

#[test]
fn requests_in_flight_never_exceed_the_grant_and_high_priority_passes() {
    run(async || {
        let config = ServerConfig { requests_max: 5, ..ServerConfig::default() };
        let setup = Setup::start(config).await;
        let peer = setup.peer();
        let calls: Vec<_> = (0..40)
            .map(|_| {
                let peer = peer.clone();
                tokio::spawn(async move { peer.call(request(GATED, "x")).await })
            })
            .collect();
        eventually(|| setup.service.running.load(Ordering::SeqCst) == 5).await;
        let mut urgent = request(ECHO, "now");
        urgent.header.priority = Priority::High;
        assert_eq!(peer.call(urgent).await.expect("not held up").body, "now");
        setup.service.gate.add_permits(40);
        for call in calls {
            call.await.expect("no panic").expect("answered");
        }
        assert!(setup.service.running_max.load(Ordering::SeqCst) <= 6);
    });
}

#[test]
fn bytes_in_flight_are_bounded_and_larger_requests_go_alone() {
    run(async || {
        let config = ServerConfig { bytes_max: 256 << 10, ..ServerConfig::default() };
        let setup = Setup::start(config).await;
        let peer = setup.peer();
        let calls: Vec<_> = (0..12)
            .map(|i| {
                let peer = peer.clone();
                let len = if i == 6 { 1 << 20 } else { 100 << 10 };
                let frame = request(GATED, "x").with_bulk(vec![pattern(len, i)]);
                let frame = Frame { header: Header { reply_bulk_max: len as u32, ..frame.header }, ..frame };
                tokio::spawn(async move { peer.call(frame).await })
            })
            .collect();
        eventually(|| setup.service.running.load(Ordering::SeqCst) == 1).await;
        setup.service.gate.add_permits(12);
        for call in calls {
            call.await.expect("no panic").expect("answered");
        }
        assert_eq!(setup.service.running_max.load(Ordering::SeqCst), 1, "200 KiB each, 256 KiB granted");
    });
}

#[test]
fn a_dropped_call_keeps_its_credits_until_its_reply() {
    run(async || {
        let config = ServerConfig { requests_max: 1, ..ServerConfig::default() };
        let setup = Setup::start(config).await;
        let peer = setup.peer();
        let dropped = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call(request(GATED, "x")).await }
        });
        eventually(|| setup.service.running.load(Ordering::SeqCst) == 1).await;
        dropped.abort();
        assert!(dropped.await.is_err());
        let second = peer.call(request(ECHO, "y"));
        assert!(setup.seams.timeout_ms(50, second).await.is_none(), "the server granted only one");
        setup.service.gate.add_permits(1);
        assert_eq!(peer.call(request(ECHO, "z")).await.expect("answered").body, "z");
    });
}

#[test]
fn nobody_hears_how_a_request_ends_once_the_server_stops() {
    run(async || {
        // The task of the connection and that of the request are woken together: each round is another race.
        for _ in 0..50 {
            let setup = Setup::start(ServerConfig::default()).await;
            let peer = setup.peer();
            let waiting = tokio::spawn(async move { peer.call(request(GATED, "x")).await });
            eventually(|| setup.service.running.load(Ordering::SeqCst) == 1).await;
            setup.server.stop();
            setup.service.gate.add_permits(1);
            let outcome = waiting.await.expect("no panic").map(|reply| reply.body);
            assert_eq!(outcome.map_err(|fault| fault.code), Err(Code::Disconnected));
        }
    });
}

#[test]
fn servers_ask_clients_and_get_answers() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer_with(|_| {}, Arc::new(Mirror));
        let calls = (0..100).map(|i| peer.call(request(RECALL, i.to_string())));
        for (i, reply) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
            assert_eq!(reply.expect("answered").body, i.to_string());
        }
    });
}

#[test]
fn a_lost_connection_ends_its_calls_and_the_next_ones_use_a_new_one() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer();
        assert_eq!(peer.wait_connected().await.expect("connects").generation, 1);
        let waiting = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call(request(GATED, "x")).await }
        });
        eventually(|| setup.service.running.load(Ordering::SeqCst) == 1).await;
        let fault = peer.call(request(HANG_UP, "x")).await.expect_err("lost");
        assert_eq!(fault.code, Code::Disconnected);
        assert_eq!(waiting.await.expect("no panic").expect_err("lost").code, Code::Disconnected);
        assert_eq!(peer.call(request(ECHO, "again")).await.expect("a new connection").body, "again");
        assert_eq!(peer.wait_newer(1).await.expect("connects").generation, 2);
        eventually(|| *setup.service.closed.lock() == [1]).await;
    });
}

#[test]
fn a_peer_heals_when_its_server_comes_back() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer();
        peer.wait_connected().await.expect("connects");
        let nid = setup.server.local_nid().clone();
        setup.server.stop();
        eventually(|| !peer.state().connected).await;
        let early = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call(request(ECHO, "early")).await }
        });
        eventually(|| setup.server.stats().connections == 0).await;
        drop(setup);
        let again = Setup::start_at(ServerConfig::default(), nid).await;
        assert_eq!(early.await.expect("no panic").expect("waited").body, "early");
        drop(again);
    });
}

#[test]
fn a_refusal_reaches_the_caller_and_an_occupied_port_is_named() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let fault = Fault::new(Code::WrongFs).subject("scratch");
        *setup.service.refuse.lock() = Some(fault.clone());
        let peer = setup.peer();
        assert_eq!(peer.wait_connected().await.expect_err("refused"), fault);
        assert_eq!(peer.call(request(ECHO, "x")).await.expect_err("refused"), fault);
        *setup.service.refuse.lock() = None;
        eventually(|| peer.state().connected).await;
        peer.call(request(ECHO, "x")).await.expect("welcome now");
        let nid = setup.server.local_nid();
        let listening = setup.transport.listen(nid).await;
        assert_eq!(listening.err().map(|e| e.fault(nid).code), Some(Code::AddressInUse));
    });
}

#[test]
fn messages_beyond_the_limits_are_refused_before_they_are_sent() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer();
        let fault = peer.call(request(ECHO, vec![0; BODY_MAX + 1])).await.expect_err("too large");
        assert_eq!(fault.code, Code::BadFrame);
        let no_room = request(ECHO, "x").with_bulk(vec![pattern(10, 1)]);
        let reply = peer.call(no_room).await.expect("an answer");
        assert_eq!(decode_reply::<()>(&reply).expect_err("no room for the bulk").code, Code::Bug);
        assert_eq!(peer.generation(), 1, "the connection survives both");
    });
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    run(async || {
        let setup = Setup::start(ServerConfig { connections_max: 2, ..ServerConfig::default() }).await;
        let (a, b) = (setup.peer(), setup.peer());
        a.wait_connected().await.expect("fits");
        b.wait_connected().await.expect("fits");
        let c = setup.peer();
        eventually(|| setup.server.stats().refused > 0).await;
        drop(a);
        c.wait_connected().await.expect("fits now");
        b.call(request(ECHO, "x")).await.expect("not disturbed");
    });
}

#[test]
fn a_silent_host_is_left_for_another_address_and_asked_again_when_that_one_ends() {
    run(async || {
        let (one, other) =
            (Setup::start(ServerConfig::default()).await, Setup::start(ServerConfig::default()).await);
        let both = vec![one.server.local_nid().clone(), other.server.local_nid().clone()];
        let peer = one.peer();
        peer.wait_connected().await.expect("connected");
        peer.try_others(&[]);
        assert_eq!(peer.generation(), 1, "there is no other");
        peer.set_nids(both.clone());
        let at = async |generation: u64| peer.wait_newer(generation).await.expect("connected").nid;
        // The server accepts connections, and does nothing else: only a request finds that out.
        peer.try_others(&[]);
        assert_eq!(at(1).await, both[1]);
        // The silent host may be known by another name.
        peer.try_others(&both[..1]);
        assert_eq!(peer.generation(), 2, "all of them are silent");
        other.server.stop();
        assert_eq!(at(2).await, both[0]);
    });
}

/// A server that takes jobs sees the body as it was made, and the job; one of the release before gets no job.
#[test]
fn jobs_go_only_to_servers_that_take_them() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer();
        let (tag, body) = (JobTag::new("4711", 1000), "x".repeat(4090));
        for job in [Some(tag), None] {
            let sent = request(Op::Getattr as u16, body.clone()).with_bulk(vec!["data".into()]);
            let sent = Frame { header: Header { reply_bulk_max: 4, ..sent.header }, ..sent };
            let reply = job::with(job, peer.call(sent)).await.expect("answered");
            assert_eq!((&reply.body[..], &reply.bulk_bytes()[..]), (body.as_bytes(), &b"data"[..]));
        }
        let ask = |by| setup.server.usage().answer(&UsageReq { by, clear: None }).rows;
        let [row] = &ask(UsageBy::Job)[..] else { panic!("one job: {:?}", ask(UsageBy::Job)) };
        let counted =
            |row: &UsageRow| row.ops.iter().map(|(op, tally)| (*op, tally.count)).collect::<Vec<_>>();
        assert_eq!((row.name.as_str(), counted(row)), ("4711", vec![(Op::Getattr as u16, 1)]));
        assert_eq!(
            (ask(UsageBy::User)[0].name.as_str(), counted(&ask(UsageBy::Client)[0])[0].1),
            ("1000", 2)
        );
    });
}

/// The hello of a client of the release before has no features, and what it sends has no job, whatever stands in the field.
#[test]
fn a_client_of_the_release_before_is_understood() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        for features in [0, FEATURES, u64::MAX] {
            let mut connection = setup.transport.connect(setup.server.local_nid()).await.expect("connects");
            let hello = Hello {
                versions: Versions::OURS,
                fs_id: FS_ID,
                kind: PeerKind::Client,
                software: "brindle 0".to_owned(),
                host: "old".to_owned(),
                features,
            };
            let header = Header { kind: Kind::Hello, ..Header::default() };
            connection.tx.send(vec![Frame::new(header, encode_body(&hello))]).await.expect("sent");
            let reply = connection.rx.recv().await.expect("a hello");
            let agreed: HelloReply = decode_reply(&reply).expect("accepted");
            assert_eq!(agreed.features, features & FEATURES, "only what both have");
            let sent = request(ECHO, "body");
            let sent = if features == 0 { sent } else { sent.with_job(&JobTag::new("4711", 1)) };
            connection
                .tx
                .send(vec![Frame { header: Header { kind: Kind::Request, ..sent.header }, ..sent }])
                .await
                .expect("sent");
            let reply = connection.rx.recv().await.expect("a reply");
            assert_eq!(&reply.body[..], b"body", "{features:x}");
        }
    });
}

/// Callers measure the network only while the server makes traces; each request tells of the one before it.
#[test]
fn requests_tell_their_time_on_the_network_while_a_trace_runs() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let peer = setup.peer();
        let ask = |ends| {
            let asked = TraceReq { trace: 1, filter: TraceFilter::default(), ends };
            setup.server.tracer().answer(&asked).expect("answered").records
        };
        let call = async || peer.call(request(Op::Getattr as u16, "x")).await.expect("answered").header;
        assert_eq!(call().await.flags & FLAG_TRACED, 0, "no trace runs");
        assert!(ask(false).is_empty());
        // The first answer says that a trace runs, the second is measured, the third request tells how long that one was.
        for _ in 0..3 {
            assert_ne!(call().await.flags & FLAG_TRACED, 0);
        }
        let records = ask(true);
        assert_eq!(records.len(), 3, "{records:?}");
        assert!(records.iter().all(|record| record.op == Op::Getattr as u16), "{records:?}");
        assert!(records[..2].iter().all(|record| record.network_us == 0), "{records:?}");
        assert!(records[2].network_us > 0, "{records:?}");
        assert_eq!(call().await.flags & FLAG_TRACED, 0, "the trace has ended");
    });
}
