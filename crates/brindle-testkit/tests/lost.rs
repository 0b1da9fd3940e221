//! Tests of a power cut of the MDT that takes contents of a file. An fsync that succeeds has found all bytes
//! there; one that does not find them tells the writer.
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
use brindle_client::{Client, Ctx, SetAttr, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::{LIMITED_BYTES, NetConfig};
use brindle_types::{Code, Fault, Ino, StripePolicy};
use brindle_wire::Op;
use brindle_wire::mds::open::Access;

/// Worlds in which the cut is tried; in some of them the change survives it.
const SEEDS: u64 = 4;
/// Worlds of a small change, which few cuts spare.
const SMALL_SEEDS: u64 = 24;
/// Longest time of one.
const RUN_MS: u64 = 120_000;

async fn make(client: &Client, ctx: &Ctx) -> (Ino, u64) {
    let access = Access { read: true, write: true, truncate: false, execute: false };
    let create =
        CreateIn { parent: client.root(), name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
    let opened = client.create(ctx, create).await.unwrap().opened;
    write(client, ctx, opened.handle, 0, b"synced").await;
    client.fsync(opened.handle).await.unwrap();
    (opened.attr.ino, opened.handle)
}

async fn write(client: &Client, ctx: &Ctx, handle: u64, offset: u64, data: &[u8]) {
    // Not kept in the client's buffer, from which it could be sent again.
    let write = WriteIn { offset, data: data.to_vec().into(), direct: true, ..WriteIn::default() };
    assert_eq!(client.write(ctx, handle, write).await.unwrap(), data.len() as u64);
}

/// The contents as another mount sees them.
async fn contents(cluster: &SimCluster, ino: Ino) -> Vec<u8> {
    let witness: Arc<Client> = SimCluster::mount(&cluster.world().node("witness")).await;
    let access = Access { read: true, ..Access::default() };
    let opened = witness.open(&Ctx::root(), ino, access, false).await.unwrap();
    let read = witness.read(opened.handle, 0, 1 << 20, false).await.unwrap().into_bytes().to_vec();
    witness.close(opened.handle).await.unwrap();
    witness.unmount().await;
    read
}

/// Changes a file, cuts the power of the MDT, and syncs through the handle that `change` gives: whether fsync said that all is there,
/// and what is. If it did not, it says `DataLost`, and goes on saying so.
fn cut_after(seed: u64, change: impl AsyncFnOnce(&Client, &Ctx) -> (Ino, u64)) -> (bool, Vec<u8>) {
    let cluster = SimCluster::new(seed, Options::default());
    let world = cluster.world().clone();
    let node = world.node("c0");
    // The cut is made by the world, so that no task of the client is in the middle of anything.
    let (client, (ino, handle)) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let changed = change(&client, &Ctx::root()).await;
            (client, changed)
        })
        .unwrap();
    world.power_cut("mdt0");
    cluster.restart("mdt0");
    let found = world
        .run_until(RUN_MS, async {
            let synced = client.fsync(handle).await;
            let seen = contents(&cluster, ino).await;
            if let Err(fault) = &synced {
                assert_eq!(fault.code, Code::DataLost, "seed {seed}");
                let flushed = client.flush(handle, None).await;
                assert!(flushed.is_err(), "seed {seed}: it stays said until the close");
            }
            client.close(handle).await.unwrap();
            client.unmount().await;
            (synced.is_ok(), seen)
        })
        .unwrap();
    world.end();
    found
}

/// Writes at `offset` before the cut; whether the write survived.
fn survived(seed: u64, offset: u64) -> bool {
    let (all_there, seen) = cut_after(seed, async |client, ctx| {
        let (ino, handle) = make(client, ctx).await;
        write(client, ctx, handle, offset, b"acknowledged").await;
        (ino, handle)
    });
    assert_eq!(&seen[..6], b"synced", "seed {seed}");
    assert_eq!(
        seen.ends_with(b"acknowledged"),
        all_there,
        "seed {seed}: fsync tells whether the write is gone"
    );
    all_there
}

#[test]
fn an_fsync_tells_of_small_writes_that_the_mdt_lost() {
    let survived = (1..=SMALL_SEEDS).filter(|seed| survived(*seed, 6)).count() as u64;
    assert!(
        0 < survived && survived < SMALL_SEEDS,
        "{survived} of {SMALL_SEEDS} writes survived: both must happen"
    );
}

#[test]
fn an_fsync_tells_of_a_layout_that_the_mdt_lost() {
    let survived = (1..=SMALL_SEEDS).filter(|seed| survived(*seed, 20_000)).count() as u64;
    assert!(
        0 < survived && survived < SMALL_SEEDS,
        "{survived} of {SMALL_SEEDS} writes survived: both must happen"
    );
}

/// A loss on one OST is found by an fsync that never ends, because another OST is away. The next fsync tells
/// of the loss.
#[test]
fn a_loss_found_by_an_fsync_that_is_given_up_is_told_by_the_next() {
    const STRIPE: u64 = 65_536;
    let cluster = SimCluster::new(1, Options { osts: 2, clients: 2 });
    let world = cluster.world().clone();
    let (node, other) = (world.node("c0"), world.node("c1"));
    let seams = node.seams.clone();
    let (client, handle) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let other = SimCluster::mount(&other).await;
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let parent = client.root();
            let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
            let opened = client.create(&Ctx::root(), create).await.unwrap().opened;
            let stripe =
                StripePolicy { count: Some(2), size_bytes: Some(STRIPE as u32), ..StripePolicy::default() };
            client.set_stripe(&Ctx::root(), opened.attr.ino, Some(stripe.into())).await.unwrap();
            // A second client may write the file: no bytes are kept to be written again.
            other.open(&Ctx::root(), opened.attr.ino, access, false).await.unwrap();
            for at in [0, STRIPE] {
                write(&client, &Ctx::root(), opened.handle, at, b"acknowledged").await;
            }
            (client, opened.handle)
        })
        .unwrap();
    world.power_cut("ost0");
    cluster.restart("ost0");
    world.isolate("ost1");
    let given_up = world.run_until(RUN_MS, seams.timeout_ms(10_000, client.fsync(handle))).unwrap();
    assert!(given_up.is_none(), "one OST is away");
    world.heal();
    let told = world.run_until(RUN_MS, client.fsync(handle)).unwrap();
    assert_eq!(told.unwrap_err().code, Code::DataLost);
    world.end();
}

/// Empties a file that lies in objects before the cut, and writes a little, which is buffered for the MDT; whether the emptying
/// survived. If not, the file lies in objects as before, and the MDT does not want the bytes.
fn emptying_survived(seed: u64) -> bool {
    const LONG: usize = 20_000;
    let (all_there, seen) = cut_after(seed, async |client, ctx| {
        let (ino, first) = make(client, ctx).await;
        write(client, ctx, first, 0, &[7; LONG]).await;
        client.fsync(first).await.unwrap();
        client.close(first).await.unwrap();
        let access = Access { read: true, write: true, truncate: true, execute: false };
        let handle = client.open(ctx, ino, access, false).await.unwrap().handle;
        let write = WriteIn { data: b"anew".to_vec().into(), ..WriteIn::default() };
        client.write(ctx, handle, write).await.unwrap();
        (ino, handle)
    });
    let expected: &[u8] = if all_there { b"anew" } else { &[7; LONG] };
    assert_eq!(seen, expected, "seed {seed}");
    all_there
}

#[test]
fn bytes_of_a_file_whose_emptying_the_mdt_lost_are_told_to_be_lost() {
    let survived = (1..=SEEDS).filter(|seed| emptying_survived(*seed)).count() as u64;
    assert!(survived < SEEDS, "{survived} of {SEEDS} survived: it must be lost, too");
}

/// A program that syncs what others wrote, as the checkpointer of a database does, opens the file after the loss.
#[test]
fn an_fsync_through_a_handle_opened_after_a_loss_tells_of_it_once() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let (node, other) = (world.node("c0"), world.node("c1"));
    let ctx = Ctx::root();
    let (client, ino, writer) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let (ino, writer) = make(&client, &ctx).await;
            (client, ino, writer)
        })
        .unwrap();
    world.isolate("c0");
    world
        .run_until(RUN_MS, async {
            let write = WriteIn { offset: 6, data: b" and buffered".to_vec().into(), ..WriteIn::default() };
            client.write(&ctx, writer, write).await.unwrap();
            // A second client opens the file: the session of the silent client is ended.
            let other = SimCluster::mount(&other).await;
            let access = Access { read: true, write: true, truncate: false, execute: false };
            other.open(&ctx, ino, access, false).await.unwrap();
            other.unmount().await;
        })
        .unwrap();
    world.heal();
    world
        .run_until(RUN_MS, async {
            let access = Access { read: true, ..Access::default() };
            let open = async || client.open(&ctx, ino, access, false).await.unwrap().handle;
            let lost = client.flush(writer, None).await.unwrap_err();
            assert_eq!(lost.code, Code::SessionLost);
            let after = open().await;
            assert_eq!(client.fsync(after).await.unwrap_err().code, Code::SessionLost);
            assert_eq!(client.fsync(after).await.unwrap_err().code, Code::SessionLost, "until it is closed");
            assert_eq!(client.flush(after, None).await, Ok(()), "it has not written");
            let later = open().await;
            assert_eq!(client.fsync(later).await, Ok(()), "an fsync has told of it");
            assert_eq!(client.fsync(writer).await.unwrap_err().code, Code::SessionLost);
        })
        .unwrap();
    world.end();
}

/// Travel time of a frame in these tests.
const LATENCY_US: u64 = 10_000;
/// The answer to what a client declares has come within so much time.
const DECLARED_WITHIN_MS: usize = 30;

/// The power cut of a MDT takes a write, and the connection breaks so long after the client has declared what
/// it had. The next open is told of the file's state: whether an fsync of the writer said that all is there,
/// and whether it is.
fn told_after_break(seed: u64, broken_ms: u64) -> (bool, bool) {
    let cluster = SimCluster::new(seed, Options::default());
    let world = cluster.world().clone();
    let node = world.node("c0");
    let ctx = Ctx::root();
    let (client, ino, handle) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let (ino, handle) = make(&client, &ctx).await;
            write(&client, &ctx, handle, 6, b"acknowledged").await;
            (client, ino, handle)
        })
        .unwrap();
    let (latency_min_us, latency_max_us) = (LATENCY_US, LATENCY_US);
    world.set_net_config(NetConfig { latency_min_us, latency_max_us, slow_one_in: 0, slow_max_us: 0 });
    world.power_cut("mdt0");
    cluster.restart("mdt0");
    world.keep_lines(100);
    let declares = format!("Request op {} ", Op::Reclaim as u32);
    while !world.lines().iter().any(|line| line.contains("c0 -> mdt0") && line.contains(&declares)) {
        world.run_for(1);
    }
    world.run_for(broken_ms);
    world.break_connections("c0", "mdt0");
    let found = world
        .run_until(RUN_MS, async {
            let access = Access { read: true, ..Access::default() };
            client.open(&ctx, ino, access, false).await.unwrap();
            let synced = client.fsync(handle).await;
            let seen = contents(&cluster, ino).await;
            (synced.is_ok(), seen == b"syncedacknowledged")
        })
        .unwrap();
    world.end();
    found
}

#[test]
fn a_loss_is_told_although_the_answer_that_shows_it_was_lost_as_well() {
    let takes_the_write = |seed: &u64| !told_after_break(*seed, 0).1;
    let seed = (1..=SMALL_SEEDS).find(takes_the_write).expect("a power cut takes the write in some world");
    for broken_ms in (0..DECLARED_WITHIN_MS).step_by(3) {
        let (all_there, is_there) = told_after_break(seed, broken_ms as u64);
        assert!(!is_there, "the power cut takes the write in this world");
        assert!(!all_there, "the connection broke after {broken_ms} ms");
    }
}

/// A change of a file that nobody has open any more, and the power cut of a server.
#[derive(Clone, Copy)]
struct Closed {
    /// Offset of the write: in the MDT, or in objects.
    offset: u64,
    server: &'static str,
    /// Time between the close and the cut.
    cut_after_ms: u64,
    /// Time between the cut and the look.
    look_after_ms: u64,
    /// Looks with `brindle sync`, otherwise with an fsync through a new handle.
    all: bool,
    /// The file lay in objects before, synced and closed: it was opened once more, and only became longer.
    grown: bool,
    /// Whether the mode is set between the close and the cut.
    chmod: bool,
}

/// Makes the file as long as where it will be written next, synced and closed, and long enough ago that all of it is durable; then
/// opens it again.
async fn grow(client: &Client, ctx: &Ctx, (ino, handle): (Ino, u64), size_bytes: u64) -> u64 {
    write(client, ctx, handle, 6, &vec![7; size_bytes as usize - 6]).await;
    client.fsync(handle).await.unwrap();
    client.close(handle).await.unwrap();
    client.seams().sleep_ms(3_000).await;
    let access = Access { read: false, write: true, truncate: false, execute: false };
    client.open(ctx, ino, access, false).await.unwrap().handle
}

/// Whether the look said that all is there, and whether it is. If it did not, the next look says that all is well: it was told.
fn told_of_closed(seed: u64, case: Closed) -> (bool, bool) {
    let cluster = SimCluster::new(seed, Options { osts: 1, clients: 1 });
    let world = cluster.world().clone();
    let node = world.node("c0");
    let ctx = Ctx::root();
    let access = Access { read: true, ..Access::default() };
    let (client, ino) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let (ino, mut handle) = make(&client, &ctx).await;
            if case.grown {
                handle = grow(&client, &ctx, (ino, handle), case.offset).await;
            }
            write(&client, &ctx, handle, case.offset, b"acknowledged").await;
            client.close(handle).await.unwrap();
            if case.chmod {
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                client.setattr(&ctx, ino, set).await.unwrap();
            }
            (client, ino)
        })
        .unwrap();
    world.run_for(case.cut_after_ms);
    world.power_cut(case.server);
    cluster.restart(case.server);
    world.run_for(case.look_after_ms);
    let look = async || match case.all {
        true => client.sync_all().await,
        false => {
            let handle = client.open(&ctx, ino, access, false).await.unwrap().handle;
            let synced = client.fsync(handle).await;
            client.close(handle).await.unwrap();
            synced
        }
    };
    let found = world
        .run_until(RUN_MS, async {
            let said = look().await;
            let seen = contents(&cluster, ino).await;
            if let Err(fault) = &said {
                assert_eq!(fault.code, Code::DataLost, "seed {seed}");
                assert_eq!(look().await, Ok(()), "seed {seed}: it was told");
            }
            client.unmount().await;
            (said.is_ok(), seen.ends_with(b"acknowledged"))
        })
        .unwrap();
    world.end();
    found
}

/// No client has the file open when the power fails. A program that syncs the file later is told all the
/// same, by an fsync or by a sync of all files.
#[test]
fn what_a_power_cut_took_of_a_closed_file_is_told_to_the_next_who_syncs_it() {
    let at_ost = Closed {
        offset: 20_000,
        server: "ost0",
        cut_after_ms: 100,
        look_after_ms: 0,
        all: false,
        grown: false,
        chmod: false,
    };
    let at_mdt = Closed { offset: 6, server: "mdt0", ..at_ost };
    let cases = [
        at_ost,
        Closed { look_after_ms: 60_000, ..at_ost },
        Closed { all: true, ..at_ost },
        at_mdt,
        Closed { offset: 20_000, grown: true, ..at_mdt },
        Closed { offset: 20_000, grown: true, chmod: true, ..at_mdt },
    ];
    for case in cases {
        let found: Vec<(bool, bool)> = (1..=SEEDS).map(|seed| told_of_closed(seed, case)).collect();
        let (server, after_ms, all) = (case.server, case.look_after_ms, case.all);
        assert!(
            found.iter().all(|(said, is_there)| said <= is_there),
            "{server} after {after_ms} ms, {all}: a sync said that all is there: {found:?}"
        );
        assert!(found.iter().any(|(said, _)| !said), "{server}: a cut must take some: {found:?}");
    }
}

/// Bytes that the servers have synced by themselves do not count as lost when the power fails much later.
#[test]
fn a_power_cut_long_after_a_close_is_no_loss() {
    let at_ost = Closed {
        offset: 20_000,
        server: "ost0",
        cut_after_ms: 20_000,
        look_after_ms: 0,
        all: false,
        grown: false,
        chmod: false,
    };
    let at_mdt = Closed { server: "mdt0", ..at_ost };
    let cases = [
        at_ost,
        Closed { all: true, ..at_ost },
        Closed { offset: 6, ..at_mdt },
        Closed { grown: true, ..at_mdt },
    ];
    for case in cases {
        assert_eq!(told_of_closed(1, case), (true, true), "{}", case.server);
    }
}

/// Room that an OST keeps back of a disk that is [`LIMITED_BYTES`] large, for what must succeed when it is full.
const KEPT_BACK_BYTES: u64 = LIMITED_BYTES / 20 + LIMITED_BYTES / 64;

/// A power cut of an OST takes unsynced bytes of a file; then the OST is full, and what the file gets from there on lies on another
/// one. Whether the next fsync says that all is there, and whether it is.
fn lost_where_the_file_looks_no_more(seed: u64, room_bytes: u64) -> (bool, bool) {
    let cluster = SimCluster::new(seed, Options { osts: 2, clients: 1 });
    let world = cluster.world().clone();
    let node = world.node("c0");
    let ctx = Ctx::root();
    const LEN: u64 = 65_536;
    let (client, ino, handle, ost) = world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&node).await;
            let (ino, handle) = make(&client, &ctx).await;
            write(&client, &ctx, handle, 0, &[1; LEN as usize]).await;
            client.fsync(handle).await.unwrap();
            write(&client, &ctx, handle, LEN, &[2; LEN as usize]).await;
            let layout = client.get_stripe(ino).await.unwrap().layout.unwrap();
            let (_, ost) = layout.stripes().next().unwrap();
            (client, ino, handle, format!("ost{ost}"))
        })
        .unwrap();
    world.power_cut(&ost);
    cluster.restart(&ost);
    world.run_for(2_000);
    world.disk(&ost).set_room_bytes(Some(KEPT_BACK_BYTES + room_bytes));
    let found = world
        .run_until(RUN_MS, async {
            write(&client, &ctx, handle, 2 * LEN, &[3; 4 * LEN as usize]).await;
            let synced = client.fsync(handle).await;
            let seen = contents(&cluster, ino).await;
            (synced.is_ok(), seen[LEN as usize..2 * LEN as usize].iter().all(|byte| *byte == 2))
        })
        .unwrap();
    world.end();
    found
}

#[test]
fn bytes_that_a_power_cut_took_are_not_written_to_where_the_file_looks_no_more() {
    for room_kib in [208, 256] {
        let found: Vec<_> =
            (1..=SEEDS).map(|seed| lost_where_the_file_looks_no_more(seed, room_kib << 10)).collect();
        assert!(found.iter().all(|(said, is_there)| said <= is_there), "{room_kib} KiB of room: {found:?}");
    }
}

/// Bytes wait in the buffer for the OST that has promised their room. A write that is not buffered finds that OST full, and the file is about to go on
/// on another one, which has promised nothing: what was acknowledged before goes where its room is.
#[test]
fn what_waits_in_the_buffer_goes_to_the_ost_that_promised_room_when_the_file_goes_on_elsewhere() {
    const LEN: u64 = 65_536;
    // Layouts are cut at multiples of 64 KiB: what is buffered of the last one lies behind the cut.
    const BUFFERED: usize = 65_536 + 61_440;
    for seed in 1..=SEEDS {
        let cluster = SimCluster::new(seed, Options { osts: 2, clients: 1 });
        let world = cluster.world().clone();
        let ctx = Ctx::root();
        let (client, ino, handle, ost) = world
            .run_until(RUN_MS, async {
                let client = SimCluster::mount(&world.node("c0")).await;
                let (ino, handle) = make(&client, &ctx).await;
                write(&client, &ctx, handle, 0, &[1; LEN as usize]).await;
                client.fsync(handle).await.unwrap();
                let layout = client.get_stripe(ino).await.unwrap().layout.unwrap();
                let (_, ost) = layout.stripes().next().unwrap();
                (client, ino, handle, ost)
            })
            .unwrap();
        world.disk(&format!("ost{ost}")).set_room_bytes(Some(KEPT_BACK_BYTES));
        world.disk(&format!("ost{}", 1 - ost)).set_room_bytes(Some(KEPT_BACK_BYTES + (208 << 10)));
        // The servers have to notice that; then there is less space, as the MDT finds out later.
        world.run_for(3_000);
        world.disk(&format!("ost{}", 1 - ost)).set_room_bytes(Some(KEPT_BACK_BYTES + (24 << 10)));
        world.run_for(150);
        let seen = world
            .run_until(RUN_MS, async {
                let data = vec![2; BUFFERED].into();
                let buffered = WriteIn { offset: LEN, data, ..WriteIn::default() };
                assert_eq!(client.write(&ctx, handle, buffered).await.unwrap(), BUFFERED as u64);
                let offset = LEN + BUFFERED as u64;
                let direct =
                    WriteIn { offset, data: vec![3; 4096].into(), direct: true, ..WriteIn::default() };
                match client.write(&ctx, handle, direct).await {
                    // If the bytes that have to move as well find no space, this write is told so.
                    Ok(_) | Err(Fault { code: Code::OstFull, .. }) => {}
                    Err(fault) => panic!("seed {seed}: {fault}"),
                }
                client.fsync(handle).await.expect("what was acknowledged finds its room");
                contents(&cluster, ino).await
            })
            .unwrap();
        assert!(seen[LEN as usize..][..BUFFERED].iter().all(|byte| *byte == 2), "seed {seed}");
        world.end();
    }
}

/// A cut by others is no loss, however the client learns of the new end.
#[test]
fn a_cut_by_others_of_a_file_that_was_written_and_closed_before_is_no_loss() {
    for empties in [false, true] {
        let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
        let ctx = Ctx::root();
        let history = async {
            let [a, b] = ["c0", "c1"].map(|node| cluster.world().node(node));
            let (a, b) = (SimCluster::mount(&a).await, SimCluster::mount(&b).await);
            let (ino, handle) = make(&a, &ctx).await;
            write(&a, &ctx, handle, 6, &[7; 20_000]).await;
            a.close(handle).await.unwrap();
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let again = a.open(&ctx, ino, access, false).await.unwrap().handle;
            let emptied = Access { read: false, write: true, truncate: empties, execute: false };
            let theirs = b.open(&ctx, ino, emptied, false).await.unwrap().handle;
            if !empties {
                let cut = SetAttr { size_bytes: Some(10), ..SetAttr::default() };
                b.setattr(&ctx, ino, cut).await.unwrap();
            }
            b.close(theirs).await.unwrap();
            assert_eq!(a.getattr(ino).await.unwrap().size_bytes, if empties { 0 } else { 10 });
            assert_eq!(a.fsync(again).await, Ok(()));
            a.close(again).await.unwrap();
            let last = a.open(&ctx, ino, access, false).await.unwrap().handle;
            assert_eq!(a.fsync(last).await, Ok(()));
        };
        cluster.world().run_until(RUN_MS, history).unwrap();
        cluster.world().end();
    }
}

/// No program asks for a sync: the mount has a closed file synced and tells the MDT which objects there are.
/// When one of them is gone later, reads fail, and writes make no new object.
#[test]
fn an_object_of_a_file_that_was_only_closed_is_missed_when_it_is_gone() {
    let cluster = SimCluster::new(3, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let (node, other) = (world.node("c0"), world.node("c1"));
    let seams = node.seams.clone();
    let ctx = Ctx::root();
    let access = Access { read: true, write: true, truncate: false, execute: false };
    let ino = world.run_until(RUN_MS, async {
        let client = SimCluster::mount(&node).await;
        let parent = client.root();
        let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
        let opened = client.create(&ctx, create).await.unwrap().opened;
        let write = WriteIn { data: vec![7; 20_000].into(), ..WriteIn::default() };
        client.write(&ctx, opened.handle, write).await.unwrap();
        client.close(opened.handle).await.unwrap();
        // OSTs sync within 5 s; the mount asks after 10.
        seams.sleep_ms(15_000).await;
        opened.attr.ino
    });
    let ino = ino.unwrap();
    world.kill("ost0");
    let disk = world.disk("ost0");
    let object = disk.files().into_iter().find(|path| path.contains("/objects/")).expect("one object");
    assert!(disk.lose(&object));
    cluster.restart("ost0");
    world
        .run_until(RUN_MS, async {
            let client = SimCluster::mount(&other).await;
            let opened = client.open(&ctx, ino, access, false).await.unwrap();
            let read = client.read(opened.handle, 0, 100, false).await;
            assert_eq!(read.err().expect("nothing is there").code, Code::ObjectMissing);
            let write =
                WriteIn { offset: 30_000, data: vec![8; 100].into(), direct: true, ..WriteIn::default() };
            let written = client.write(&ctx, opened.handle, write).await;
            let fault = written.expect_err("another object would hide the loss");
            assert_eq!(fault.code, Code::ObjectMissing);
            assert!(fault.subject.contains(&ino.fid().to_string()), "{fault}");
            let cut = SetAttr { size_bytes: Some(100), handle: opened.handle, ..SetAttr::default() };
            let cut = client.setattr(&ctx, ino, cut).await;
            assert_eq!(cut.expect_err("nothing to cut").code, Code::ObjectMissing);
            client.close(opened.handle).await.unwrap();
        })
        .unwrap();
    assert!(disk.files().iter().all(|path| !path.contains("/objects/")), "no other object is made");
    world.end();
}
