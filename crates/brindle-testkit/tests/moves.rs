//! Files of several objects, and files whose objects change: programs see the contents of the file, wherever its bytes lie.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use brindle_client::file::copy_range::CopyIn;
use brindle_client::file::fallocate::Allocation;
use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, SetAttr, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::{Direction, LIMITED_BYTES};
use brindle_types::layout::{ComponentPolicy, EOF};
use brindle_types::{Code, Ino, LayoutPolicy, StripePolicy};
use brindle_wire::mds::migrate::MigrateReq;
use brindle_wire::mds::open::Access;
use tokio::sync::oneshot;

const RUN_MS: u64 = 120_000;
/// Worlds in which a power cut is tried; in some of them all survives it.
const SEEDS: u64 = 8;
const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const BOTH: Access = Access { read: true, write: true, truncate: false, execute: false };
const UNIT: u64 = 64 << 10;
/// Longer than objects wait to be destroyed, and than a close takes.
const SETTLED_MS: u64 = 3_000;

/// Mounts in one cluster of two OSTs.
struct Bench {
    cluster: SimCluster,
    mounts: Vec<Arc<Client>>,
}

/// OSTs of the cluster.
const OSTS: u16 = 2;

impl Bench {
    fn new() -> Bench {
        Bench::of(1)
    }

    fn of(seed: u64) -> Bench {
        let cluster = SimCluster::new(seed, Options { osts: OSTS, clients: 3 });
        let nodes = cluster.clone();
        let mounting = async move {
            let mut mounts = Vec::new();
            for name in ["c0", "c1", "c2"] {
                mounts.push(SimCluster::mount(&nodes.world().node(name)).await);
            }
            mounts
        };
        let mounts = cluster.world().run_until(RUN_MS, mounting).unwrap();
        Bench { cluster, mounts }
    }

    fn run<T>(&self, history: impl Future<Output = T>) -> T {
        self.cluster.world().run_until(RUN_MS, history).unwrap()
    }

    /// A new file with these components, each with so many stripes of [`UNIT`] from an OST on: open for reading and writing.
    async fn make(&self, components: &[(u64, i32, i32)]) -> (Ino, u64) {
        let client = &self.mounts[0];
        let parent = client.root();
        let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access: BOTH };
        let opened = client.create(&Ctx::root(), create).await.unwrap().opened;
        let (ino, seams) = (opened.attr.ino, self.cluster.world().node("c0").seams);
        for ost in 0..i32::from(OSTS) {
            let on_it = policy(&[(EOF, 1, ost)]);
            while let Err(fault) = client.set_stripe(&Ctx::root(), ino, Some(on_it.clone())).await {
                assert_eq!(fault.code, Code::BadStripe, "not all OSTs have joined yet");
                seams.sleep_ms(100).await;
            }
        }
        client.set_stripe(&Ctx::root(), ino, Some(policy(components))).await.unwrap();
        (ino, opened.handle)
    }

    async fn move_off_ost0(&self, ino: Ino) {
        let mut offset = Some(0);
        while let Some(at) = offset {
            let (cred, avoid, copy_max_bytes) = (Ctx::root().cred, vec![0], 1 << 20);
            let request = MigrateReq { ino, offset: at, policy: None, avoid, copy_max_bytes, cred };
            offset = self.mounts[2].migrate(request).await.unwrap().next;
        }
    }

    async fn allocated_bytes(&self, ino: Ino) -> u64 {
        self.mounts[2].getattr(ino).await.unwrap().allocated_bytes
    }
}

fn policy(components: &[(u64, i32, i32)]) -> LayoutPolicy {
    let part = |(end_bytes, count, ost): &(u64, i32, i32)| {
        let (count, start_ost) = (Some(*count), Some(*ost));
        let stripe =
            StripePolicy { count, size_bytes: Some(UNIT as u32), start_ost, ..StripePolicy::default() };
        ComponentPolicy { end_bytes: *end_bytes, stripe }
    };
    LayoutPolicy { components: components.iter().map(part).collect(), ..LayoutPolicy::default() }
}

async fn open(client: &Client, ino: Ino, access: Access) -> u64 {
    client.open(&Ctx::root(), ino, access, false).await.unwrap().handle
}

async fn write(client: &Client, handle: u64, offset: u64, len_bytes: u64) {
    let write = WriteIn { offset, data: vec![1; len_bytes as usize].into(), ..WriteIn::default() };
    assert_eq!(client.write(&Ctx::root(), handle, write).await.unwrap(), len_bytes);
}

async fn close(client: &Client, handle: u64) {
    client.flush(handle, None).await.unwrap();
    client.close(handle).await.unwrap();
}

/// A read waits for an OST, while the file is moved elsewhere and its object there is given up. The read then
/// asks for an object that the OST does not know, and so for a hole.
#[test]
fn what_is_read_while_its_object_goes_is_read_where_it_lies_now() {
    let bench = Bench::new();
    let world = bench.cluster.world().clone();
    let seams = world.node("c1").seams;
    let (ino, reader) = bench.run(async {
        let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
        write(&bench.mounts[0], writer, 0, 4 * UNIT).await;
        close(&bench.mounts[0], writer).await;
        (ino, open(&bench.mounts[1], ino, READ).await)
    });
    world.partition("c1", "ost0", Direction::Both);
    let [reading, seeking] = [true, false].map(|reads| {
        let (tell, told) = oneshot::channel();
        let client = bench.mounts[1].clone();
        seams.spawn("waits for an OST", async move {
            let found = match reads {
                true => client.read(reader, 0, 1000, false).await.unwrap().into_bytes().to_vec(),
                false => vec![u8::from(client.seek(reader, 10, true).await == Ok(10))],
            };
            tell.send(found).unwrap();
        });
        told
    });
    bench.run(async {
        bench.move_off_ost0(ino).await;
        seams.sleep_ms(SETTLED_MS).await;
        let read = bench.mounts[1].read(reader, 3 * UNIT, 10, false).await.unwrap().into_bytes();
        assert_eq!(read[..], [1; 10], "the new layout is known");
    });
    world.heal();
    bench.run(async {
        assert_eq!(reading.await.unwrap(), [1; 1000]);
        assert_eq!(seeking.await.unwrap(), [1], "there is data");
    });
    world.end();
}

/// A move is no change: the last writer and the time of the last write stay.
#[test]
fn a_move_of_a_file_that_two_write_leaves_its_times() {
    let bench = Bench::new();
    let seams = bench.cluster.world().node("c1").seams;
    bench.run(async {
        let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
        let other = open(&bench.mounts[1], ino, BOTH).await;
        write(&bench.mounts[0], writer, 0, 4 * UNIT).await;
        seams.sleep_ms(10_000).await;
        let before = bench.mounts[2].getattr(ino).await.unwrap();
        bench.move_off_ost0(ino).await;
        let after = bench.mounts[2].getattr(ino).await.unwrap();
        assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
        for (client, handle) in [(0, writer), (1, other)] {
            close(&bench.mounts[client], handle).await;
        }
        seams.sleep_ms(SETTLED_MS).await;
        let closed = bench.mounts[2].getattr(ino).await.unwrap();
        assert_eq!((closed.mtime, closed.size_bytes), (before.mtime, 4 * UNIT));
    });
    bench.cluster.world().end();
}

#[test]
fn a_reservation_that_finds_no_room_leaves_the_file_as_long_as_it_was() {
    let bench = Bench::new();
    for (ost, room) in [("ost0", 8 << 20), ("ost1", 1 << 20)] {
        bench.cluster.world().disk(ost).set_room_bytes(Some(LIMITED_BYTES / 20 + room));
    }
    bench.run(async {
        let (ino, writer) = bench.make(&[(16 * UNIT, 1, 0), (EOF, 1, 1)]).await;
        let how = Allocation::Reserve { keep_size: false };
        let full = bench.mounts[0].fallocate(&Ctx::root(), writer, 0..LIMITED_BYTES, how).await;
        assert_eq!(full.unwrap_err().code, Code::OstFull);
        let theirs = open(&bench.mounts[1], ino, BOTH).await;
        assert_eq!(bench.mounts[1].getattr(ino).await.unwrap().size_bytes, 0);
        let append = WriteIn { data: vec![1; 10].into(), append: true, ..WriteIn::default() };
        assert_eq!(bench.mounts[1].write(&Ctx::root(), theirs, append).await, Ok(10));
        assert_eq!(bench.mounts[0].getattr(ino).await.unwrap().size_bytes, 10);
        // An allocation with enough room makes the file longer, over several objects.
        let done = bench.mounts[0].fallocate(&Ctx::root(), writer, 0..17 * UNIT + 1, how).await;
        assert_eq!(done, Ok(()));
        assert_eq!(bench.mounts[1].getattr(ino).await.unwrap().size_bytes, 17 * UNIT + 1);
    });
    bench.cluster.world().end();
}

/// The MDT asks the writer to let writes under way end before bytes move, and the only write under way waits for the move.
#[test]
fn what_was_acknowledged_and_finds_no_room_goes_elsewhere_with_what_lies_behind_it() {
    acknowledged_in_pieces(&[(0, UNIT)]);
    // More than are sent at once: some have not been tried when others wait.
    let pieces: Vec<(u64, u64)> = (0..60).map(|n| (n * 8192, 4096)).collect();
    acknowledged_in_pieces(&pieces);
}

/// Pieces within the first 8 units of a file, by offset and length.
fn acknowledged_in_pieces(pieces: &[(u64, u64)]) {
    let bench = Bench::new();
    let seams = bench.cluster.world().node("c0").seams;
    bench.run(async {
        let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
        // The first write is told a grant; the last one comes to lie behind a hole.
        write(&bench.mounts[0], writer, 8 * UNIT, UNIT).await;
        write(&bench.mounts[0], writer, 12 * UNIT, UNIT).await;
        bench.mounts[0].fsync(writer).await.unwrap();
        // Foreign files fill the disk, including the space that was promised.
        bench.cluster.world().disk("ost0").set_room_bytes(Some(LIMITED_BYTES / 20));
        seams.sleep_ms(200).await;
        for (offset, len_bytes) in pieces {
            write(&bench.mounts[0], writer, *offset, *len_bytes).await;
        }
        bench.mounts[0].fsync(writer).await.unwrap();
        close(&bench.mounts[0], writer).await;
        let reader = open(&bench.mounts[1], ino, READ).await;
        let before = [(8 * UNIT, 1), (9 * UNIT, 0), (12 * UNIT, 1)];
        for (at, byte) in before.into_iter().chain(pieces.iter().map(|(offset, _)| (*offset, 1))) {
            let read = bench.mounts[1].read(reader, at, 10, false).await.unwrap().into_bytes();
            assert_eq!(read[..], [byte; 10], "at {at}");
        }
        assert_eq!(bench.mounts[1].getattr(ino).await.unwrap().size_bytes, 13 * UNIT);
    });
    bench.cluster.world().end();
}

/// A writer that has not written all objects does not know their allocated bytes.
#[test]
fn what_a_file_has_allocated_is_what_all_its_objects_have() {
    let bench = Bench::new();
    let seams = bench.cluster.world().node("c0").seams;
    bench.run(async {
        let (ino, writer) = bench.make(&[(EOF, 2, 0)]).await;
        write(&bench.mounts[0], writer, 0, 4 * UNIT).await;
        close(&bench.mounts[0], writer).await;
        seams.sleep_ms(SETTLED_MS).await;
        let whole = bench.allocated_bytes(ino).await;
        // (An OST does not count what it keeps beside the bytes.)
        assert!(whole > 3 * UNIT, "{whole}");
        for synced in [false, true] {
            let writer = open(&bench.mounts[0], ino, BOTH).await;
            write(&bench.mounts[0], writer, UNIT, 1).await;
            if synced {
                bench.mounts[0].fsync(writer).await.unwrap();
            }
            close(&bench.mounts[0], writer).await;
            seams.sleep_ms(SETTLED_MS).await;
            assert_eq!(bench.allocated_bytes(ino).await, whole, "one byte was written again");
        }
        let writers = [open(&bench.mounts[0], ino, BOTH).await, open(&bench.mounts[1], ino, BOTH).await];
        // The third unit lies in the first object, the sixth in the second.
        write(&bench.mounts[0], writers[0], 4 * UNIT, UNIT).await;
        write(&bench.mounts[1], writers[1], 5 * UNIT, UNIT).await;
        for (client, writer) in bench.mounts.iter().zip(writers) {
            close(client, writer).await;
        }
        seams.sleep_ms(SETTLED_MS).await;
        let now = bench.allocated_bytes(ino).await;
        assert!(now > whole + UNIT, "{whole} and then {now}");
    });
    bench.cluster.world().end();
}

/// Every open tells the last change of the file: a value older than the client's looks like a power cut of
/// the MDT.
#[test]
fn a_file_that_was_emptied_and_laid_out_anew_has_lost_nothing() {
    let bench = Bench::new();
    bench.run(async {
        let (client, ctx) = (&bench.mounts[0], Ctx::root());
        let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
        write(client, writer, 0, 10).await;
        close(client, writer).await;
        let empty = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
        client.setattr(&ctx, ino, empty).await.unwrap();
        client.set_stripe(&ctx, ino, Some(policy(&[(EOF, 2, 0)]))).await.unwrap();
        let writer = open(client, ino, BOTH).await;
        write(client, writer, 0, 10).await;
        assert_eq!(client.fsync(writer).await, Ok(()));
        close(client, writer).await;
    });
    bench.cluster.world().end();
}

/// A program is killed while its write waits for an OST, and its file is closed. A later writer must not find
/// that write over its own.
#[test]
fn what_a_killed_program_was_writing_comes_before_what_others_write() {
    let bench = Bench::new();
    let world = bench.cluster.world().clone();
    let (seams, theirs) = (world.node("c0").seams, world.node("c1").seams);
    let (ino, writer) = bench.run(async {
        let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
        write(&bench.mounts[0], writer, 0, UNIT).await;
        bench.mounts[0].fsync(writer).await.unwrap();
        (ino, writer)
    });
    world.partition("c0", "ost0", Direction::Both);
    let killed = bench.mounts[0].clone();
    seams.spawn("killed", async move {
        let write = WriteIn { data: vec![2; UNIT as usize].into(), direct: true, ..WriteIn::default() };
        drop(killed.write(&Ctx::root(), writer, write).await);
    });
    world.run_for(100);
    drop(bench.mounts[0].close_later(writer).unwrap());
    let (tell, told) = oneshot::channel();
    let other = bench.mounts[1].clone();
    theirs.spawn("next", async move {
        let next = open(&other, ino, BOTH).await;
        let write = WriteIn { data: vec![3; UNIT as usize].into(), ..WriteIn::default() };
        other.write(&Ctx::root(), next, write).await.unwrap();
        other.fsync(next).await.unwrap();
        tell.send(next).unwrap();
    });
    // Longer than a lease: who waits for an OST is not ended.
    world.run_for(10_000);
    world.heal();
    bench.run(async {
        let next = told.await.unwrap();
        seams.sleep_ms(SETTLED_MS).await;
        let read = bench.mounts[1].read(next, 0, UNIT, false).await.unwrap().into_bytes();
        assert!(read.iter().all(|byte| *byte == 3), "{:?}", read.first());
        assert_eq!(bench.mounts[0].getattr(ino).await.unwrap().size_bytes, UNIT, "its session is alive");
    });
    world.end();
}

/// The kernel asks for the attributes of a file right behind its creation. The attributes told then count
/// until another thread has written the file.
#[test]
fn what_was_told_of_a_new_file_counts_until_somebody_has_written_it() {
    let bench = Bench::new();
    bench.run(async {
        let client = &bench.mounts[0];
        let (parent, access) = (client.root(), BOTH);
        let create = CreateIn { parent, name: b"new", mode: 0o644, umask: 0, exclusive: true, access };
        let made = client.create(&Ctx::root(), create).await.unwrap().opened;
        assert!(client.is_as_made(&made.attr));
        write(client, made.handle, 0, 10).await;
        assert!(!client.is_as_made(&made.attr), "in the buffer");
        client.fsync(made.handle).await.unwrap();
        assert!(!client.is_as_made(&made.attr), "at the MDT");
    });
    bench.cluster.world().end();
}

/// The file lies elsewhere by the time of a sync: earlier losses are losses all the same.
#[test]
fn what_an_ost_lost_of_a_closed_file_is_told_also_where_the_file_was_moved_since() {
    let mut lost = 0;
    for seed in 1..=SEEDS {
        let bench = Bench::of(seed);
        let world = bench.cluster.world().clone();
        let ino = bench.run(async {
            let (ino, writer) = bench.make(&[(EOF, 1, 0)]).await;
            write(&bench.mounts[0], writer, 0, UNIT).await;
            close(&bench.mounts[0], writer).await;
            ino
        });
        world.power_cut("ost0");
        bench.cluster.restart("ost0");
        lost += bench.run(async {
            bench.move_off_ost0(ino).await;
            let later = open(&bench.mounts[0], ino, BOTH).await;
            let synced = bench.mounts[0].fsync(later).await;
            let read = bench.mounts[0].read(later, 0, UNIT, false).await.unwrap().into_bytes();
            let is_there = read.len() as u64 == UNIT && read.iter().all(|byte| *byte == 1);
            assert!(synced.is_err() || is_there, "seed {seed}: an fsync said that all is there");
            u32::from(!is_there)
        });
        world.end();
    }
    assert!(lost > 0, "a cut must take something");
}

/// The kernel does not say with a copy that its target was opened with O_SYNC.
#[test]
fn a_copy_into_a_synchronous_file_waits_in_no_buffer() {
    let bench = Bench::new();
    bench.run(async {
        let client = &bench.mounts[0];
        let (_, handle) = bench.make(&[(EOF, 1, 0)]).await;
        write(client, handle, 0, 2 * UNIT).await;
        let copy = |target_offset| CopyIn {
            source: handle,
            source_offset: 0,
            target: handle,
            target_offset,
            len_bytes: 1000,
            kill_suidgid: false,
        };
        assert_eq!(client.copy_range(&Ctx::root(), copy(UNIT)).await, Ok(1000));
        assert!(client.is_behind(handle), "nobody has asked for more");
        client.fsync(handle).await.unwrap();
        client.make_synchronous(handle);
        assert_eq!(client.copy_range(&Ctx::root(), copy(UNIT)).await, Ok(1000));
        assert!(!client.is_behind(handle));
    });
    bench.cluster.world().end();
}
