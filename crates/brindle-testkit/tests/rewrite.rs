//! Bytes that an OST lost in a power cut are written again by the client that kept them. Rewritten bytes never come to
//! lie over newer bytes: neither of others that write the file by now, nor of the client itself.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::{Direction, NetConfig};
use brindle_types::Ino;
use brindle_wire::Op;
use brindle_wire::mds::migrate::MigrateReq;
use brindle_wire::mds::open::Access;

const RUN_MS: u64 = 120_000;
const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };
/// Writes that are kept, and the bytes of each.
const WRITES: u64 = 300;
const PIECE: u64 = 1000;
const LAST: u64 = (WRITES - 1) * PIECE;

/// A file of [`WRITES`] pieces of 1, written by one client that keeps them; none is synced.
struct UnsyncedFile {
    cluster: SimCluster,
    writer: Arc<Client>,
    other: Arc<Client>,
    ino: Ino,
    handle: u64,
}

async fn open(client: &Client, ino: Ino, access: Access) -> u64 {
    client.open(&Ctx::root(), ino, access, false).await.unwrap().handle
}

async fn write(client: &Client, handle: u64, offset: u64, byte: u8) {
    let data = vec![byte; PIECE as usize];
    let write = WriteIn { offset, data: data.into(), ..WriteIn::default() };
    assert_eq!(client.write(&Ctx::root(), handle, write).await.unwrap(), PIECE);
}

async fn byte_at(client: &Client, ino: Ino, offset: u64) -> u8 {
    let handle = open(client, ino, READ).await;
    let read = client.read(handle, offset, 1, false).await.unwrap().into_bytes();
    client.close(handle).await.unwrap();
    read[0]
}

impl UnsyncedFile {
    fn new() -> UnsyncedFile {
        UnsyncedFile::on(1)
    }

    /// Test file in a cluster with `osts` OSTs; the file lies on one of them.
    fn on(osts: u16) -> UnsyncedFile {
        let cluster = SimCluster::new(1, Options { osts, clients: 3 });
        let nodes = cluster.clone();
        let made = async move {
            let writer = SimCluster::mount(&nodes.world().node("c0")).await;
            let other = SimCluster::mount(&nodes.world().node("c1")).await;
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let parent = writer.root();
            let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
            let opened = writer.create(&Ctx::root(), create).await.unwrap().opened;
            for n in 0..WRITES {
                write(&writer, opened.handle, n * PIECE, 1).await;
            }
            (writer, other, opened.attr.ino, opened.handle)
        };
        let (writer, other, ino, handle) = cluster.world().run_until(RUN_MS, made).unwrap();
        UnsyncedFile { cluster, writer, other, ino, handle }
    }

    fn cut_power(&self) {
        self.cluster.world().power_cut("ost0");
        self.cluster.restart("ost0");
    }

    fn run<T: Send + 'static>(&self, history: impl Future<Output = T> + Send + 'static) -> T {
        self.cluster.world().run_until(RUN_MS, history).unwrap()
    }
}

#[test]
fn what_a_writer_kept_is_written_again() {
    let kept = UnsyncedFile::new();
    kept.cut_power();
    let (writer, other, ino, handle) = (kept.writer.clone(), kept.other.clone(), kept.ino, kept.handle);
    kept.run(async move {
        writer.fsync(handle).await.unwrap();
        for n in 0..WRITES {
            assert_eq!(byte_at(&other, ino, n * PIECE).await, 1);
        }
    });
    kept.cluster.world().end();
}

#[test]
fn bytes_of_a_closed_writer_never_undo_the_writes_of_others() {
    let kept = UnsyncedFile::new();
    let (writer, ino, handle) = (kept.writer.clone(), kept.ino, kept.handle);
    let reader = kept.run(async move {
        let reader = open(&writer, ino, READ).await;
        writer.flush(handle, None).await.unwrap();
        writer.close(handle).await.unwrap();
        reader
    });
    kept.cut_power();
    let (writer, other) = (kept.writer.clone(), kept.other.clone());
    kept.run(async move {
        let theirs = open(&other, ino, WRITE).await;
        write(&other, theirs, LAST, 2).await;
        // Whether it tells of the loss or not: nothing is written again.
        let _ = writer.fsync(reader).await;
        assert_eq!(byte_at(&other, ino, LAST).await, 2);
    });
    kept.cluster.world().end();
}

/// A second client writes the last piece anew while all pieces are written again; returns the final byte.
fn written_meanwhile(by_other: bool, after_ms: u64) -> u8 {
    let kept = UnsyncedFile::new();
    kept.cut_power();
    let (writer, other, ino, handle) = (kept.writer.clone(), kept.other.clone(), kept.ino, kept.handle);
    let node = kept.cluster.world().node("c0").seams;
    let found = kept.run(async move {
        heard_of_again(&writer, handle).await;
        let syncing = writer.clone();
        node.spawn("sync", async move { drop(syncing.fsync(handle).await) });
        node.sleep_ms(after_ms).await;
        if by_other {
            let theirs = open(&other, ino, WRITE).await;
            write(&other, theirs, LAST, 2).await;
        } else {
            write(&writer, handle, LAST, 2).await;
        }
        node.sleep_ms(5_000).await;
        byte_at(&other, ino, LAST).await
    });
    kept.cluster.world().end();
    found
}

#[test]
fn a_new_writer_waits_for_bytes_that_are_being_written_again() {
    let found = [3, 10, 20, 30].map(|ms| written_meanwhile(true, ms));
    assert_eq!(found, [2; 4]);
}

#[test]
fn own_writes_wait_for_bytes_that_are_being_written_again() {
    let found = [3, 10, 20, 30].map(|ms| written_meanwhile(false, ms));
    assert_eq!(found, [2; 4]);
}

#[test]
fn bytes_that_were_synced_by_their_write_are_not_undone_by_older_ones() {
    for cut_before in [false, true] {
        let kept = UnsyncedFile::new();
        let (writer, other, ino, handle) = (kept.writer.clone(), kept.other.clone(), kept.ino, kept.handle);
        if cut_before {
            kept.cut_power();
        }
        let synced = writer.clone();
        kept.run(async move {
            let data = vec![2; PIECE as usize];
            let write = WriteIn { offset: LAST, data: data.into(), sync: true, ..WriteIn::default() };
            assert_eq!(synced.write(&Ctx::root(), handle, write).await.unwrap(), PIECE);
        });
        if !cut_before {
            kept.cut_power();
        }
        kept.run(async move {
            writer.fsync(handle).await.unwrap();
            assert_eq!((byte_at(&other, ino, LAST).await, byte_at(&other, ino, 0).await), (2, 1));
        });
        kept.cluster.world().end();
    }
}

/// Travel time of frames: a cut must find some on their way.
const LATENCY_US: u64 = 10_000;

/// A move of the file gives up waiting for bytes that are being written again, because their OST is out of the writer's
/// reach. A second client writes all of the file anew and syncs it, as soon as that is possible. Returns the final byte.
fn written_after_a_move_was_called_off(after_ms: u64) -> Vec<u8> {
    let kept = UnsyncedFile::on(2);
    let (other, ino) = (kept.other.clone(), kept.ino);
    let world = kept.cluster.world().clone();
    let (mover, seams) = (world.node("c2"), world.node("c1").seams);
    let moving = kept.run({
        let mover = mover.clone();
        async move { SimCluster::mount(&mover).await }
    });
    for ost in kept.cluster.osts() {
        world.power_cut(&ost);
        kept.cluster.restart(&ost);
    }
    let (writer, handle) = (kept.writer.clone(), kept.handle);
    kept.run(async move { heard_of_again(&writer, handle).await });
    mover.seams.spawn("move", async move {
        let (cred, avoid, copy_max_bytes) = (Ctx::root().cred, Vec::new(), 1 << 20);
        let request = MigrateReq { ino, offset: 0, policy: None, avoid, copy_max_bytes, cred };
        drop(moving.migrate(request).await);
    });
    let (latency_min_us, latency_max_us) = (LATENCY_US, LATENCY_US);
    world.set_net_config(NetConfig { latency_min_us, latency_max_us, slow_one_in: 0, slow_max_us: 0 });
    world.keep_lines(100);
    let settles = format!("Notify op {} ", Op::SettleNotice as u32);
    while !world.lines().iter().any(|line| line.contains("mdt0 -> c0") && line.contains(&settles)) {
        world.run_for(1);
    }
    world.run_for(after_ms);
    kept.cluster.osts().iter().for_each(|ost| world.partition("c0", ost, Direction::Both));
    world.run_for(200);
    // No second try of the move refuses what is under way.
    world.kill("c2");
    world.run_for(3_000);
    let writing = other.clone();
    let write_all = async move {
        let handle = open(&writing, ino, WRITE).await;
        for n in 0..WRITES {
            write(&writing, handle, n * PIECE, 2).await;
        }
        writing.fsync(handle).await.unwrap();
    };
    let mut writing = Box::pin(write_all);
    let begun = kept.cluster.world().run_until(RUN_MS, seams.timeout_ms(1_000, &mut writing)).unwrap();
    world.heal();
    world.run_for(5_000);
    let found = kept.cluster.world().run_until(RUN_MS, async {
        if begun.is_none() {
            writing.await;
        }
        let mut found = Vec::new();
        for n in 0..WRITES {
            found.push(byte_at(&other, ino, n * PIECE).await);
        }
        found
    });
    world.end();
    found.unwrap()
}

#[test]
fn bytes_that_nobody_waits_for_any_more_do_not_come_to_lie_over_those_of_the_next_writer() {
    for after_ms in (0..70).step_by(5) {
        assert_eq!(
            written_after_a_move_was_called_off(after_ms),
            [2; WRITES as usize],
            "after {after_ms} ms"
        );
    }
}

/// Reads, whatever is there: the OST answers again.
async fn heard_of_again(client: &Client, handle: u64) {
    client.read(handle, LAST, 1, false).await.unwrap();
}
