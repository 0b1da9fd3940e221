//! Tests of the end of sessions: an OST that the MDT cannot reach, an MDT that stood still, clients that are
//! silent all at once.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "sessions/id_maps.rs"]
mod id_maps;
#[path = "sessions/nodemaps.rs"]
mod nodemaps;

use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::{Direction, World};
use brindle_types::{Ino, Result, StripePolicy};
use brindle_wire::mds::lock::{LockKind, LockSpace, LockState};
use brindle_wire::mds::open::Access;

/// Longest time of one step.
const STEP_MS: u64 = 120_000;
/// Longer than a lease, its end and the fence, and shorter than TCP keeps a silent connection.
const HELD_MS: u64 = 10_500;
const BLOCK: usize = 64 << 10;
const RW: Access = Access { read: true, write: true, truncate: false, execute: false };

/// A cluster with one OST, and its clients.
fn cluster(clients: usize) -> (SimCluster, Vec<Arc<Client>>) {
    let cluster = SimCluster::new(7, Options { osts: 1, clients });
    let world = cluster.world().clone();
    let mounted = cluster
        .clients()
        .iter()
        .map(|name| world.run_until(STEP_MS, SimCluster::mount(&world.node(name))).unwrap())
        .collect();
    (cluster, mounted)
}

async fn make(client: &Client) -> (Ino, u64) {
    let (parent, ctx) = (client.root(), Ctx::root());
    let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access: RW };
    let opened = client.create(&ctx, create).await.unwrap().opened;
    let stripe = StripePolicy { count: Some(1), ..StripePolicy::default() };
    client.set_stripe(&ctx, opened.attr.ino, Some(stripe.into())).await.unwrap();
    write(client, opened.handle, b'-').await.unwrap();
    client.fsync(opened.handle).await.unwrap();
    (opened.attr.ino, opened.handle)
}

/// A block of one letter, past every buffer.
async fn write(client: &Client, handle: u64, letter: u8) -> Result<u64> {
    let data = vec![letter; BLOCK].into();
    client.write(&Ctx::root(), handle, WriteIn { offset: 0, data, direct: true, ..WriteIn::default() }).await
}

/// Waits for a lock of the whole file.
async fn lock(client: &Client, ino: Ino, owner: u64) -> Result<()> {
    let (space, kind) = (LockSpace::Posix, LockKind::Write);
    let state = LockState { space, owner, kind, start: 0, end: u64::MAX, pid: 1 };
    client.set_lock(&Ctx::root(), ino, state, true).await
}

async fn first_byte(client: &Client, handle: u64) -> u8 {
    client.read(handle, 0, BLOCK as u64, true).await.unwrap().into_bytes()[0]
}

fn cut(world: &World, a: &str, b: &str) {
    world.partition(a, b, Direction::Both);
}

/// The MDT cannot tell the OST that it ended the first client's session; both clients reach the OST. The
/// second client writes under the lock that it was given. Earlier writes of the first client do not overwrite
/// these bytes.
#[test]
fn late_writes_of_an_ended_session_never_land_on_what_came_after_it() {
    let (cluster, clients) = cluster(2);
    let world = cluster.world().clone();
    let (first, second) = (clients[0].clone(), clients[1].clone());
    let seams = world.node("driver").seams;
    let (ino, handle) = world.run_until(STEP_MS, make(&first)).unwrap();
    let before = async {
        let opened = second.open(&Ctx::root(), ino, RW, false).await.unwrap();
        lock(&first, ino, 1).await.unwrap();
        opened.handle
    };
    let second_handle = world.run_until(STEP_MS, before).unwrap();
    cut(&world, "mdt0", "ost0");
    cut(&world, "c0", "mdt0");
    world.partition("c0", "ost0", Direction::OneWay);
    world.node("c0").seams.spawn("late write", async move {
        // The write ends with the session.
        let _ = write(&first, handle, b'1').await;
    });
    let writing = async {
        lock(&second, ino, 2).await.unwrap();
        write(&second, second_handle, b'2').await.unwrap();
    };
    let healing = async {
        seams.sleep_ms(HELD_MS).await;
        // The write that was held up arrives, where the OST has not heard of the fence.
        world.heal_between("c0", "ost0");
        seams.sleep_ms(1_000).await;
        world.heal();
    };
    world.run_until(STEP_MS, futures_util::future::join(writing, healing)).unwrap();
    let seen = world.run_until(STEP_MS, first_byte(&second, second_handle)).unwrap();
    assert_eq!(char::from(seen), '2', "what was acknowledged to the second client is there");
    world.end();
}

/// Stopped for longer than a lease, whatever and however often: no session ends, and the handles go on.
#[test]
fn a_server_that_stands_still_ends_nobodys_session() {
    let (cluster, clients) = cluster(2);
    let world = cluster.world().clone();
    let (ino, handle) = world.run_until(STEP_MS, make(&clients[0])).unwrap();
    let other = world.run_until(STEP_MS, clients[1].open(&Ctx::root(), ino, RW, false)).unwrap().unwrap();
    for (round, server) in ["mdt0", "ost0", "mdt0", "mgs", "mdt0"].into_iter().enumerate() {
        world.stand_still(server, 15_000);
        let letter = b'a' + round as u8;
        world.run_until(STEP_MS, write(&clients[0], handle, letter)).unwrap().unwrap();
        let seen = world.run_until(STEP_MS, first_byte(&clients[1], other.handle)).unwrap();
        assert_eq!(seen, letter, "{server}");
        world.run_for(16_000);
    }
    for client in &clients {
        world
            .run_until(
                STEP_MS,
                client.fsync(if Arc::ptr_eq(client, &clients[0]) { handle } else { other.handle }),
            )
            .unwrap()
            .unwrap();
    }
    world.end();
}

/// A client that is dead while the server pauses again and again ends after one lease of real listening.
#[test]
fn pauses_of_the_server_do_not_keep_the_dead_alive() {
    let (cluster, clients) = cluster(2);
    let world = cluster.world().clone();
    let (ino, _) = world.run_until(STEP_MS, make(&clients[0])).unwrap();
    world.power_cut("c0");
    let began = world.now();
    let ctx = Ctx::root();
    let opening = clients[1].open(&ctx, ino, RW, false);
    let pauses = async {
        let seams = world.node("driver").seams;
        loop {
            seams.sleep_ms(1_500).await;
            world.stand_still("mdt0", 3_000);
            seams.sleep_ms(3_000).await;
        }
    };
    let opened = world.run_until(STEP_MS, futures_util::future::select(Box::pin(opening), Box::pin(pauses)));
    assert!(matches!(opened, Ok(futures_util::future::Either::Left((Ok(_), _)))));
    let took_ms = world.now().ms_since(began);
    assert!(took_ms < 40_000, "the dead client held the file for {took_ms} ms");
    world.end();
}

/// The network at the MDT's side is down for longer than a lease: all are silent at once, and none is ended.
#[test]
fn clients_that_are_silent_all_at_once_are_waited_for() {
    let (cluster, clients) = cluster(3);
    let world = cluster.world().clone();
    let (_, handle) = world.run_until(STEP_MS, make(&clients[0])).unwrap();
    let names = cluster.clients();
    names.iter().for_each(|name| cut(&world, "mdt0", name));
    world.run_for(30_000);
    world.heal();
    world
        .run_until(STEP_MS, async {
            write(&clients[0], handle, b'x').await.unwrap();
            clients[0].fsync(handle).await.expect("its session and its handle live");
        })
        .unwrap();
    // A single silent client is not waited for.
    let other = world.run_until(STEP_MS, async {
        cut(&world, "mdt0", "c0");
        let began = world.now();
        let found = clients[1].lookup_path("f").await.unwrap();
        clients[1].open(&Ctx::root(), found.ino, RW, false).await.unwrap();
        world.now().ms_since(began)
    });
    let took_ms = other.unwrap();
    assert!(took_ms < 20_000, "it held the file for {took_ms} ms");
    world.end();
}
