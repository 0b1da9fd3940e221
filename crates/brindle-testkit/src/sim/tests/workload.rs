//! A small service with a durable log, under every fault: the same seed gives the same run.

use std::sync::Arc;

use brindle_net::{ServerConn, ServerHandle, Service};
use brindle_stdx::disk::{IoKind, OpenHow};
use brindle_stdx::{BoxFuture, DiskFile, Seams};
use brindle_types::{Code, Fault};
use brindle_wire::frame::Frame;

use super::network::{peer, request, serve};
use crate::sim::{Crash, Direction, NodeSeams, World};

/// Writes each request's sequence into its file, syncs it, and only then answers.
struct Log {
    seams: Seams,
    file: Arc<dyn DiskFile>,
}

impl Service for Log {
    fn hello(&self, _conn: &Arc<ServerConn>) -> Result<u64, Fault> {
        Ok(1)
    }

    fn request(self: Arc<Self>, _conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            let sequence = frame.header.sequence;
            let saved = async {
                let _permit = self.seams.disk.admit(IoKind::Write, 8).await;
                self.file.write_at(&sequence.to_le_bytes(), sequence * 8)?;
                self.file.sync_data_async().await
            };
            match saved.await {
                Ok(()) => Frame::reply_to(&frame.header, frame.body),
                Err(e) => {
                    let fault = Fault::io(Code::OstIo, "cannot write", "/log", &e);
                    Frame::fault_reply_to(&frame.header, &fault)
                }
            }
        })
    }

    fn closed(&self, _conn_id: u64) {}
}

async fn start(node: NodeSeams) -> ServerHandle {
    let file = node.seams.disk.open("/log", OpenHow::OpenOrCreate).expect("opens");
    file.sync_data().expect("synced");
    node.seams.disk.sync_dir("/").expect("synced");
    serve(&node, Arc::new(Log { seams: node.seams.clone(), file })).await
}

/// Sends requests until each is acknowledged; returns how many calls that took.
async fn client(node: NodeSeams, first: u64, count: u64) -> u64 {
    let peer = peer(&node, "server");
    let mut calls = 0;
    for sequence in first..first + count {
        node.seams.sleep_ms(node.seams.rng.next_u64() % 200).await;
        loop {
            calls += 1;
            let outcome = node.seams.timeout_ms(30_000, peer.call(request(sequence))).await;
            if outcome.is_some_and(|o| o.is_ok_and(|reply| reply.header.flags == 0)) {
                break;
            }
        }
    }
    calls
}

async fn chaos(world: World) {
    let driver = world.node("driver").seams;
    let mut server = start(world.node("server")).await;
    for _ in 0..8 {
        driver.sleep_ms(50 + world.choose(2_000)).await;
        match world.choose(5) {
            0 => world.kill("server"),
            1 => world.power_cut("server"),
            2 => {
                let how = if world.choose(2) == 0 { Crash::Kill } else { Crash::PowerCut };
                world.crash_after("server", world.choose(20), how);
            }
            3 => {
                world.partition("server", "c0", Direction::OneWay);
                driver.sleep_ms(world.choose(4_000)).await;
                world.heal();
            }
            _ => drop(world.break_connections("c1", "server")),
        }
        driver.sleep_ms(world.choose(500)).await;
        if !world.is_running("server") {
            server = start(world.restart("server")).await;
        }
    }
    // A planned crash may still lie ahead; the last incarnation has none.
    driver.sleep_ms(100).await;
    drop(server);
    server = start(world.restart("server")).await;
    driver.sleep_ms(3_600_000).await;
    drop(server);
}

/// Runs the workload; returns the hash of all events and the calls made.
fn run(seed: u64) -> (u64, u64, World) {
    let world = World::new(seed);
    world.node("driver").seams.spawn("chaos", chaos(world.clone()));
    world.set_net_config(crate::sim::NetConfig { slow_one_in: 10, ..Default::default() });
    let clients = (0..3).map(|i| client(world.node(&format!("c{i}")), i * 60, 60));
    let calls =
        world.run_until(600_000, futures_util::future::join_all(clients)).expect("all are acknowledged");
    (world.trace_hash(), calls.iter().sum(), world)
}

#[test]
fn one_seed_gives_one_run_and_what_was_acknowledged_survives() {
    let mut hashes = std::collections::BTreeSet::new();
    let mut resent = 0;
    for seed in 0..30 {
        let (hash, calls, world) = run(seed);
        let (again, calls_again, second) = run(seed);
        second.end();
        assert_eq!((hash, calls), (again, calls_again), "seed {seed} runs differently the second time");
        hashes.insert(hash);
        resent += calls - 180;
        world.power_cut("server");
        let bytes = world.disk("server").read("/log").expect("durable");
        for (i, word) in bytes.chunks(8).enumerate() {
            assert_eq!(word, (i as u64).to_le_bytes(), "seed {seed}");
        }
        assert_eq!(bytes.len(), 180 * 8, "seed {seed}");
        world.end();
    }
    assert_eq!(hashes.len(), 30, "different seeds give different runs");
    assert!(resent > 20, "faults were felt: {resent}");
}
