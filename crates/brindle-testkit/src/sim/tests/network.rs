//! Connections, partitions, breaks; the real ends of `brindle-net` over them.

use std::sync::Arc;

use brindle_net::peer::NoNotifies;
use brindle_net::{NetError, Peer, PeerConfig, RpcServer, ServerConfig, ServerConn, ServerHandle, Service};
use brindle_stdx::{BoxFuture, Mono};
use brindle_types::{Code, Fault, Nid};
use brindle_wire::frame::{Frame, Header};
use brindle_wire::version::PeerKind;
use bytes::Bytes;
use parking_lot::Mutex;

use super::for_seeds;
use crate::sim::{Direction, NodeSeams, World};

/// Echoes requests, and remembers them.
#[derive(Default)]
pub(super) struct Echo {
    pub seen: Mutex<Vec<u64>>,
}

impl Service for Echo {
    fn hello(&self, _conn: &Arc<ServerConn>) -> Result<u64, Fault> {
        Ok(1)
    }

    fn request(self: Arc<Self>, _conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        self.seen.lock().push(frame.header.sequence);
        Box::pin(async move { Frame::reply_to(&frame.header, frame.body).with_bulk(frame.bulk) })
    }

    fn closed(&self, _conn_id: u64) {}
}

pub(super) fn nid(host: &str) -> Nid {
    Nid { host: host.to_owned(), port: 9880, rail: 0 }
}

pub(super) async fn serve(node: &NodeSeams, service: Arc<dyn Service>) -> ServerHandle {
    let (transport, config) = (node.transport.clone(), ServerConfig::default());
    let nid = nid(&node.name);
    RpcServer::serve(transport, &node.seams, &nid, config, service).await.expect("listens")
}

pub(super) fn peer(node: &NodeSeams, host: &str) -> Arc<Peer> {
    let config = PeerConfig::new(1, PeerKind::Client, node.name.clone());
    Peer::new(node.transport.clone(), node.seams.clone(), vec![nid(host)], config, Arc::new(NoNotifies))
}

pub(super) fn request(sequence: u64) -> Frame {
    let body = Bytes::from(sequence.to_string());
    let header = Header { op: 1, sequence, reply_bulk_max: 1 << 20, ..Header::default() };
    Frame::new(header, body.clone()).with_bulk(vec![body.clone(), body])
}

fn code(outcome: Result<Frame, Fault>) -> Option<Code> {
    outcome.err().map(|fault| fault.code)
}

fn with_echo(world: &World) -> (Arc<Echo>, ServerHandle, Arc<Peer>) {
    let service = Arc::new(Echo::default());
    let server = world.run_until(1_000, serve(&world.node("server"), service.clone())).expect("starts");
    (service, server, peer(&world.node("client"), "server"))
}

#[test]
fn calls_go_through_and_large_frames_take_longer() {
    for_seeds(20, |world| {
        let (_, _server, peer) = with_echo(world);
        let reply = world.run_until(1_000, peer.call(request(7))).expect("in time").expect("answered");
        assert_eq!((&reply.body[..], &reply.bulk_bytes()[..]), (&b"7"[..], &b"77"[..]));
        let mut large = request(8).with_bulk(vec![vec![5; 8 << 20].into()]);
        large.header.reply_bulk_max = 8 << 20;
        let start = world.now();
        let reply = world.run_until(1_000, peer.call(large)).expect("in time").expect("answered");
        assert_eq!(reply.bulk_bytes().len(), 8 << 20);
        assert!(world.now().ms_since(start) >= 16);
    });
}

#[test]
fn frames_of_one_connection_keep_their_order() {
    for_seeds(20, |world| {
        let (service, _server, peer) = with_echo(world);
        let calls = (0..200).map(|i| peer.call(request(i)));
        let all = world.run_until(10_000, futures_util::future::join_all(calls)).expect("in time");
        assert!(all.iter().all(Result::is_ok));
        // Requests start in order; their tasks may be chosen in another one.
        assert_eq!(service.seen.lock().len(), 200);
    });
}

#[test]
fn raw_connections_are_ordered_and_end_after_what_was_sent() {
    for_seeds(50, |world| {
        let (a, b) = (world.node("a"), world.node("b"));
        let got = world.run_until(5_000, async {
            let mut listener = b.transport.listen(&nid("b")).await.expect("listens");
            let mut sender = a.transport.connect(&nid("b")).await.expect("connects");
            let mut receiver = listener.accept().await.expect("accepts");
            for i in 0..100 {
                sender.tx.send(vec![request(i)]).await.expect("sent");
            }
            drop(sender);
            let mut got = Vec::new();
            loop {
                match receiver.rx.recv().await {
                    Ok(frame) => got.push(frame.header.sequence),
                    Err(e) => return (got, e),
                }
            }
        });
        assert_eq!(got.expect("in time"), ((0..100).collect(), NetError::Closed));
    });
}

#[test]
fn nobody_there_is_refused_and_unknown_hosts_time_out() {
    let world = World::new(1);
    let (a, _b) = (world.node("a"), world.node("b"));
    let connect = |host| world.run_until(10_000, a.transport.connect(&nid(host))).expect("in time").err();
    assert_eq!(connect("b"), Some(NetError::Refused));
    assert_eq!(connect("nowhere"), Some(NetError::TimedOut));
    let twice = world.run_until(10, async {
        let first = a.transport.listen(&nid("a")).await.expect("listens");
        (a.transport.listen(&nid("a")).await.err(), first.local_nid())
    });
    assert_eq!(twice, Ok((Some(NetError::AddressInUse), nid("a"))));
}

#[test]
fn a_short_partition_delays_and_a_long_one_disconnects() {
    for_seeds(20, |world| {
        let (service, _server, peer) = with_echo(world);
        world.run_until(1_000, peer.wait_connected()).expect("in time").expect("connects");
        for direction in [Direction::Both, Direction::OneWay] {
            world.partition("client", "server", direction);
            let call = peer.call(request(1));
            let healed = async {
                world.node("driver").seams.sleep_ms(3_000).await;
                assert!(service.seen.lock().is_empty(), "nothing passes");
                world.heal();
            };
            let (outcome, ()) =
                world.run_until(10_000, futures_util::future::join(call, healed)).expect("in time");
            outcome.expect("the frame waited");
            service.seen.lock().clear();
        }
        world.partition("client", "server", Direction::Both);
        let start = world.now();
        let outcome = world.run_until(60_000, peer.call(request(2))).expect("in time");
        assert_eq!(code(outcome), Some(Code::Disconnected));
        assert!((5_000..20_000).contains(&world.now().ms_since(start)));
        assert!(!peer.state().connected);
        world.heal();
        world.run_until(10_000, peer.call(request(3))).expect("in time").expect("a new connection");
        assert_eq!(service.seen.lock()[..], [3], "nothing arrives on a connection that has ended");
    });
}

#[test]
fn a_one_way_partition_lets_requests_through_and_no_replies() {
    for_seeds(10, |world| {
        let (service, _server, peer) = with_echo(world);
        world.run_until(1_000, peer.wait_connected()).expect("in time").expect("connects");
        world.partition("server", "client", Direction::OneWay);
        let outcome = world.run_until(60_000, peer.call(request(5))).expect("in time");
        assert_eq!(code(outcome), Some(Code::Disconnected));
        assert_eq!(service.seen.lock()[..], [5]);
    });
}

#[test]
fn a_killed_server_is_noticed_at_once_and_a_dark_one_after_seconds() {
    for_seeds(20, |world| {
        let (_, server, peer) = with_echo(world);
        world.run_until(1_000, peer.wait_connected()).expect("in time").expect("connects");
        world.kill("server");
        world.run_for(200);
        assert!(!peer.state().connected);
        let again = world.restart("server");
        let second = world.run_until(1_000, serve(&again, Arc::new(Echo::default()))).expect("starts");
        world.run_until(10_000, peer.call(request(1))).expect("in time").expect("answered");
        world.power_cut("server");
        world.run_for(5_000);
        assert!(peer.state().connected, "nobody has said anything");
        world.run_for(10_000);
        assert!(!peer.state().connected);
        drop((server, second));
    });
}

#[test]
fn a_host_that_is_back_resets_old_connections() {
    for_seeds(20, |world| {
        let (_, _server, peer) = with_echo(world);
        world.run_until(1_000, peer.wait_connected()).expect("in time").expect("connects");
        world.power_cut("server");
        let again = world.restart("server");
        let service = Arc::new(Echo::default());
        let _second = world.run_until(1_000, serve(&again, service.clone())).expect("starts");
        let start = world.now();
        let outcome = world.run_until(60_000, peer.call(request(1))).expect("in time");
        assert_eq!(code(outcome), Some(Code::Disconnected));
        assert!(world.now().ms_since(start) < 1_000);
        assert!(service.seen.lock().is_empty());
    });
}

#[test]
fn a_broken_connection_loses_a_tail_only() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(seed);
        let (service, _server, peer) = with_echo(&world);
        world.run_until(1_000, peer.wait_connected()).expect("in time").expect("connects");
        let calls = futures_util::future::join_all((0..20).map(|i| peer.call(request(i))));
        let broken = async {
            let clock = world.node("driver").seams.clock;
            clock.sleep_until(Mono(clock.now().0 + world.choose(400_000))).await;
            assert_eq!(world.break_connections("client", "server"), 1);
        };
        let (outcomes, ()) =
            world.run_until(10_000, futures_util::future::join(calls, broken)).expect("in time");
        world.run_for(10);
        let mut arrived = service.seen.lock().clone();
        arrived.sort_unstable();
        assert_eq!(arrived, (0..arrived.len() as u64).collect::<Vec<_>>(), "a prefix arrived");
        let answered = outcomes.iter().filter(|o| o.is_ok()).count();
        assert!(answered <= arrived.len());
        seen.insert(arrived.len());
    }
    assert!(seen.len() > 3, "breaks come at different places: {seen:?}");
}
