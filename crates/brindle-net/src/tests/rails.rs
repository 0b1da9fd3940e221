//! A host with several addresses: requests are spread over them, and one that ends is done without.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_types::{Code, Nid};
use bytes::Bytes;

use super::{ECHO, GATED, Setup, eventually, request, run};
use crate::peer::{NoNotifies, RAILS_MAX};
use crate::{Peer, PeerConfig, ServerConfig};

fn second_rail() -> Nid {
    "127.0.0.2:0@tcp1".parse().expect("a NID")
}

fn peer_of(setup: &Setup, nids: Vec<Nid>) -> Arc<Peer> {
    let peer = setup.peer_with(|config: &mut PeerConfig| config.each_rail = true, Arc::new(NoNotifies));
    peer.set_nids(nids);
    peer
}

#[test]
fn bytes_under_way_are_spread_over_the_rails() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let rails = [second_rail()];
        setup.server.serve_rails(&*setup.transport, &rails).await.expect("listens on both");
        let nids = setup.server.nids(&rails);
        assert_eq!((nids.len(), nids[0].port), (2, nids[1].port));
        let peer = peer_of(&setup, nids);
        eventually(|| peer.state().up.len() == 2).await;
        let bulk = Bytes::from(vec![7; 64 << 10]);
        let mut calls = Vec::new();
        for n in 1..=8 {
            let (peer, bulk) = (peer.clone(), bulk.clone());
            let mut frame = request(GATED, "x").with_bulk(vec![bulk.clone()]);
            frame.header.reply_bulk_max = bulk.len() as u32;
            calls.push(tokio::spawn(async move { peer.call(frame).await }));
            eventually(|| setup.service.running.load(Ordering::SeqCst) == n).await;
        }
        let asked: Vec<usize> = setup.service.asked.lock().values().copied().collect();
        assert_eq!(asked, [4, 4], "each goes where less is under way");
        setup.service.gate.add_permits(8);
        for call in calls {
            assert_eq!(call.await.expect("no panic").expect("answered").bulk_bytes(), bulk);
        }
    });
}

#[test]
fn a_rail_that_ends_is_done_without_until_it_is_back() {
    run(async || {
        let one = Setup::start(ServerConfig::default()).await;
        let other = Setup::start_at(ServerConfig::default(), second_rail()).await;
        let (first, second) = (one.server.local_nid().clone(), other.server.local_nid().clone());
        let peer = peer_of(&one, vec![first.clone(), second.clone()]);
        eventually(|| peer.state().up.len() == 2).await;
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let peer = peer.clone();
                tokio::spawn(async move { peer.call(request(GATED, "x")).await })
            })
            .collect();
        let running = |setup: &Setup| setup.service.running.load(Ordering::SeqCst);
        eventually(|| running(&one) == 1 && running(&other) == 1).await;
        other.server.stop();
        eventually(|| peer.state().up == [first.clone()]).await;
        assert!(peer.state().connected, "the host is reached");
        for _ in 0..10 {
            assert_eq!(
                peer.call(request(ECHO, "over the first")).await.expect("answered").body,
                "over the first"
            );
        }
        one.service.gate.add_permits(1);
        let mut outcomes = Vec::new();
        for call in waiting {
            outcomes.push(call.await.expect("no panic").map(|_| ()).map_err(|fault| fault.code));
        }
        assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(Code::Disconnected)), "{outcomes:?}");
        drop(other);
        let again = Setup::start_at(ServerConfig::default(), second.clone()).await;
        eventually(|| peer.state().up.len() == 2).await;
        drop(one);
        eventually(|| peer.state().up == [second.clone()]).await;
        assert_eq!(
            peer.call(request(ECHO, "over the second")).await.expect("answered").body,
            "over the second"
        );
        drop(again);
        eventually(|| !peer.state().connected).await;
    });
}

#[test]
fn addresses_that_come_and_go_are_used_as_they_are() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let rails = [second_rail()];
        setup.server.serve_rails(&*setup.transport, &rails).await.expect("listens on both");
        let nids = setup.server.nids(&rails);
        let peer = peer_of(&setup, nids[..1].to_vec());
        eventually(|| peer.state().up == nids[..1]).await;
        peer.set_nids(nids.clone());
        eventually(|| peer.state().up == nids).await;
        peer.set_nids(nids[1..].to_vec());
        eventually(|| peer.state().up == nids[1..]).await;
        assert_eq!(peer.call(request(ECHO, "x")).await.expect("answered").body, "x");
        assert!(nids.len() < RAILS_MAX, "connections without an address wait for one");
    });
}
