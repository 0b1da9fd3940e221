//! Kept pages over restarts of servers: single histories, with whole clusters.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brindle_client::file::fallocate::Allocation;
use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx, KernelCache, Opened, WriteIn};
use brindle_stdx::{BoxFuture, Seams};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::pages::PageCache;
use brindle_testkit::sim::{Direction, World};
use brindle_types::Ino;
use brindle_wire::mds::open::{Access, OpenMode};
use tokio::sync::mpsc;

const PAGE: u64 = 4096;
const FILE_BYTES: usize = 16384;
const LIMIT_MS: u64 = 120_000;
const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };

/// A client with the pages that its kernel keeps.
struct Mount {
    client: Arc<Client>,
    pages: PageCache,
}

impl Mount {
    async fn new(cluster: &SimCluster, node: &str) -> Mount {
        let client = SimCluster::mount(&cluster.world().node(node)).await;
        let pages = PageCache::default();
        client.set_cache(Arc::new(pages.clone()));
        Mount { client, pages }
    }

    async fn make(&self) -> Ino {
        let access = Access { read: true, write: true, truncate: false, execute: false };
        let parent = self.client.root();
        let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
        let opened = self.client.create(&Ctx::root(), create).await.unwrap().opened;
        self.write(&opened, 0, &[1; FILE_BYTES]).await;
        self.client.close(opened.handle).await.unwrap();
        opened.attr.ino
    }

    async fn open(&self, ino: Ino, access: Access) -> Opened {
        let opened = self.answer_open(ino, access).await;
        if access.read {
            self.pages.opened(&opened);
        }
        opened
    }

    /// An open that is answered, and has not returned in the kernel.
    async fn answer_open(&self, ino: Ino, access: Access) -> Opened {
        self.client.open(&Ctx::root(), ino, access, false).await.unwrap()
    }

    async fn write(&self, opened: &Opened, offset: u64, data: &[u8]) {
        let write = WriteIn { offset, data: data.to_vec().into(), ..WriteIn::default() };
        self.pages.wrote(opened.attr.ino, offset, data.len() as u64);
        self.client.write(&Ctx::root(), opened.handle, write).await.unwrap();
        self.pages.wrote(opened.attr.ino, offset, data.len() as u64);
    }

    async fn read(&self, opened: &Opened, offset: u64) -> Vec<u8> {
        self.pages.read(&self.client, opened, offset, 10).await.unwrap()
    }
}

/// A restarted OST does not know which clients have pages. The OST says so to the first writer, and to nobody after that: the
/// writer's own pages have to go as well.
#[test]
fn pages_of_the_first_writer_after_a_restart_of_the_ost_are_dropped_too() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let ino = a.make().await;
        let reader = a.open(ino, READ).await;
        assert_eq!(reader.mode, OpenMode::Cached);
        let other = b.open(ino, WRITE).await;
        assert_eq!(a.read(&reader, 2 * PAGE).await, [1; 10]);
        cluster.world().kill("ost0");
        cluster.restart("ost0");
        let own = a.open(ino, WRITE).await;
        a.write(&own, 0, &[2; 10]).await;
        b.write(&other, 2 * PAGE, &[3; 10]).await;
        assert_eq!(a.read(&reader, 2 * PAGE).await, [3; 10]);
    };
    cluster.world().run_until(LIMIT_MS, history).unwrap();
    cluster.world().end();
}

/// A small file has two pages, and the MDT knows of a mount only that it keeps some: a write to one of them, or one that only makes
/// the file longer, must not make it forget the other.
#[test]
fn pages_of_a_small_file_are_dropped_whatever_was_written_to_the_other() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let ino = make(&a.client, "f").await;
        let first = a.open(ino, WRITE).await;
        a.write(&first, 0, &[1; 6000]).await;
        a.client.close(first.handle).await.unwrap();
        let reader = b.open(ino, READ).await;
        assert_eq!(reader.mode, OpenMode::Cached);
        let writer = a.open(ino, WRITE).await;
        for (byte, longer) in [(2, false), (3, true)] {
            for page in 0..2 {
                assert_eq!(b.read(&reader, page * PAGE).await, [byte - 1; 10]);
            }
            if longer {
                let how = Allocation::Reserve { keep_size: false };
                a.client.fallocate(&Ctx::root(), writer.handle, 0..7000, how).await.unwrap();
            }
            for page in 0..2 {
                a.write(&writer, page * PAGE, &[byte; 10]).await;
                assert_eq!(b.read(&reader, page * PAGE).await, [byte; 10], "page {page}");
            }
        }
    };
    cluster.world().run_until(LIMIT_MS, history).unwrap();
    cluster.world().end();
}

/// A file of which `a` keeps a page, and has no handle, when `b` writes over it.
async fn kept_and_written_over(a: &Mount, b: &Mount) -> Ino {
    let ino = a.make().await;
    let reader = a.open(ino, READ).await;
    assert_eq!(reader.mode, OpenMode::Cached);
    assert_eq!(a.read(&reader, PAGE).await, [1; 10]);
    a.client.close(reader.handle).await.unwrap();
    let reader = a.open(ino, READ).await;
    assert!(reader.keep_cache, "nobody has written");
    a.client.close(reader.handle).await.unwrap();
    let writer = b.open(ino, WRITE).await;
    b.write(&writer, PAGE, &[2; 10]).await;
    b.client.close(writer.handle).await.unwrap();
    ino
}

/// The kernel drops the pages of before when the open returns there, which one whose caller was killed never does.
#[test]
fn an_open_whose_caller_was_killed_makes_no_old_pages_good() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let ino = kept_and_written_over(&a, &b).await;
        let killed = a.answer_open(ino, READ).await;
        assert_eq!(killed.mode, OpenMode::Cached);
        a.client.close(killed.handle).await.unwrap();
        let reader = a.open(ino, READ).await;
        assert_eq!(reader.mode, OpenMode::Cached);
        assert_eq!(a.read(&reader, PAGE).await, [2; 10]);
        a.client.close(reader.handle).await.unwrap();
        assert!(a.open(ino, READ).await.keep_cache, "this one has returned");
    };
    cluster.world().run_until(LIMIT_MS, history).unwrap();
    cluster.world().end();
}

#[test]
fn an_open_that_returns_before_one_that_was_answered_before_it_shows_no_old_pages() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let ino = kept_and_written_over(&a, &b).await;
        let (first, second) = (a.answer_open(ino, READ).await, a.answer_open(ino, READ).await);
        a.pages.opened(&second);
        assert_eq!(a.read(&second, PAGE).await, [2; 10]);
        a.pages.opened(&first);
        assert_eq!(a.read(&first, PAGE).await, [2; 10]);
    };
    cluster.world().run_until(LIMIT_MS, history).unwrap();
    cluster.world().end();
}

/// Number of ways in which a growing file gets its next bytes to the servers.
const WAYS: u64 = 4;

/// A kernel takes the size that a LOOKUP returns for the size of the file. No returned size may be older than a write that has
/// returned, by whatever way the MDT hears of the write, or does not.
#[test]
fn a_name_that_is_looked_up_knows_what_was_written_before() {
    const WRITES: u64 = 300;
    for (seed, piece_bytes) in [(1, 10), (2, 10), (3, 10), (1, 5000), (2, 5000), (3, 5000)] {
        let cluster = SimCluster::new(seed, Options { osts: 1, clients: 1 });
        let world = cluster.world().clone();
        let history = async {
            let node = world.node("c0");
            let client = SimCluster::mount(&node).await;
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let parent = client.root();
            let create = CreateIn { parent, name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
            let made = client.create(&Ctx::root(), create).await.unwrap().opened;
            let written = Arc::new(AtomicU64::new(0));
            let over = Arc::new(AtomicBool::new(false));
            let (writer, wrote, ends) = (client.clone(), written.clone(), over.clone());
            let mut looks = 0;
            let (choices, world, seams) = (world.clone(), world.clone(), node.seams.clone());
            node.seams.spawn("write", async move {
                let mut handle = made.handle;
                for n in 0..WRITES {
                    let data = vec![1; piece_bytes].into();
                    let write = WriteIn { offset: n * piece_bytes as u64, data, ..WriteIn::default() };
                    writer.write(&Ctx::root(), handle, write).await.unwrap();
                    wrote.store((n + 1) * piece_bytes as u64, Ordering::Relaxed);
                    match world.choose(WAYS) {
                        0 => drop(writer.getattr(made.attr.ino).await.unwrap()),
                        1 => writer.fsync(handle).await.unwrap(),
                        2 => {
                            writer.close(handle).await.unwrap();
                            handle =
                                writer.open(&Ctx::root(), made.attr.ino, WRITE, false).await.unwrap().handle;
                        }
                        _ => seams.sleep_ms(world.choose(3)).await,
                    }
                }
                ends.store(true, Ordering::Relaxed);
            });
            while !over.load(Ordering::Relaxed) {
                let before = written.load(Ordering::Relaxed);
                let found = client.lookup(parent, b"f").await.unwrap();
                assert!(found.size_bytes >= before, "{} of {before} bytes, seed {seed}", found.size_bytes);
                looks += 1;
                // A lookup of known attributes takes no time.
                node.seams.sleep_ms(choices.choose(2)).await;
            }
            assert!(looks > WRITES / 10, "{looks} looks");
        };
        cluster.world().run_until(LIMIT_MS, history).unwrap();
        cluster.world().end();
    }
}

/// A mount that has no file open hears of no writes. The mount's read-ahead bytes must be gone when it opens the file again, whatever
/// handles of an older session programs still hold.
#[test]
fn what_was_read_ahead_goes_with_the_last_live_handle() {
    const LEN: usize = 65_536;
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let read = async |client: &Client, opened: &Opened, offset: u64| {
        client.read(opened.handle, offset, PAGE, false).await.unwrap().into_bytes()
    };
    let fill = async |client: &Client, ino: Ino, byte: u8| {
        let opened = client.open(&Ctx::root(), ino, WRITE, false).await.unwrap();
        let write = WriteIn { offset: 0, data: vec![byte; LEN].into(), ..WriteIn::default() };
        client.write(&Ctx::root(), opened.handle, write).await.unwrap();
        client.close(opened.handle).await.unwrap();
    };
    let (a, b, ino) = world
        .run_until(LIMIT_MS, async {
            let (a, b) = (Mount::new(&cluster, "c0").await.client, Mount::new(&cluster, "c1").await.client);
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let create =
                CreateIn { parent: a.root(), name: b"f", mode: 0o644, umask: 0, exclusive: true, access };
            let made = a.create(&Ctx::root(), create).await.unwrap().opened;
            a.close(made.handle).await.unwrap();
            fill(&a, made.attr.ino, 1).await;
            // Stops in the midst of the file, and is never closed.
            let left = b.open(&Ctx::root(), made.attr.ino, READ, false).await.unwrap();
            for page in 0..3 {
                assert!(read(&b, &left, page * PAGE).await.iter().all(|byte| *byte == 1), "page {page}");
            }
            (a, b, made.attr.ino)
        })
        .unwrap();
    world.isolate("c1");
    let end_session = async { fill(&a, ino, 2).await };
    world.run_until(LIMIT_MS, end_session).unwrap();
    world.heal();
    let history = async {
        let again = loop {
            match b.open(&Ctx::root(), ino, READ, false).await {
                Ok(opened) => break opened,
                Err(_) => world.node("c1").seams.sleep_ms(100).await,
            }
        };
        for page in 0..LEN as u64 / PAGE {
            assert!(read(&b, &again, page * PAGE).await.iter().all(|byte| *byte == 2), "page {page}");
        }
        b.close(again.handle).await.unwrap();
    };
    world.run_until(LIMIT_MS, history).unwrap();
    // The MDT learns of the close, before handles that nobody reads through have nothing kept for them anyway.
    world.run_for(2_000);
    let history = async {
        fill(&a, ino, 3).await;
        let last = b.open(&Ctx::root(), ino, READ, false).await.unwrap();
        for page in 0..LEN as u64 / PAGE {
            assert!(read(&b, &last, page * PAGE).await.iter().all(|byte| *byte == 3), "page {page}");
        }
    };
    world.run_until(LIMIT_MS, history).unwrap();
    world.end();
}

/// Each mount is granted what the one before it was: what is promised to clients that are gone would make the others wait for
/// every write.
#[test]
fn a_mount_that_ends_leaves_its_grants_to_the_next() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 1 });
    let world = cluster.world().clone();
    for round in 0..3 {
        let history = async {
            let client = SimCluster::mount(&world.node("c0")).await;
            let name = format!("f{round}");
            let access = Access { read: true, write: true, truncate: false, execute: false };
            let create = CreateIn {
                parent: client.root(),
                name: name.as_bytes(),
                mode: 0o644,
                umask: 0,
                exclusive: true,
                access,
            };
            let made = client.create(&Ctx::root(), create).await.unwrap().opened;
            let data = vec![7; 1 << 20];
            let write = WriteIn { offset: 0, data: data.into(), ..WriteIn::default() };
            client.write(&Ctx::root(), made.handle, write).await.unwrap();
            client.fsync(made.handle).await.unwrap();
            assert!(cluster.granted_bytes("ost0").unwrap() > 0, "round {round}");
            client.unmount().await;
            assert_eq!(cluster.granted_bytes("ost0"), Some(0), "round {round}");
        };
        world.run_until(LIMIT_MS, history).unwrap();
    }
    world.end();
}

/// Two processes on each of two mounts open a file that has just been made, and append at once: every record is in it once, and
/// who appended sees the file that long. (An answer to an open that was asked for before a process of the same mount wrote knows
/// nothing of that.)
#[test]
fn processes_that_open_a_file_at_once_append_behind_each_other() {
    const RECORDS: u8 = 2;
    for (seed, record_bytes) in [(13, 40), (4, 3000), (5, 9000)] {
        let run = move |Process { client, seams, world, ino, number }| async move {
            seams.sleep_ms(world.choose(2)).await;
            let opened = client.open(&Ctx::root(), ino, WRITE, false).await.unwrap();
            for record in 1..=RECORDS {
                append(&client, &opened, vec![number * RECORDS + record; record_bytes]).await;
                let size_bytes = client.getattr(ino).await.unwrap().size_bytes;
                let least = u64::from(record) * record_bytes as u64;
                assert!(size_bytes >= least, "seed {seed}: {size_bytes} after {least}");
            }
            client.close(opened.handle).await.unwrap();
            RECORDS
        };
        four_processes(seed, 100, run, |file, read, written| {
            let mut records: Vec<u8> = read.chunks(record_bytes).map(|record| record[0]).collect();
            records.sort_unstable();
            let all: Vec<u8> = (1..=written.iter().sum()).collect();
            assert_eq!(records, all, "seed {seed}, file {file}, records of {record_bytes} bytes");
        });
    }
}

/// Processes of two mounts append records to one file, open it again and again, and some of these opens empty it: what is left is
/// whole records, and of each process the last ones that it wrote.
#[test]
fn files_that_are_emptied_while_others_append_hold_whole_records_and_no_holes() {
    const ROUNDS: usize = 6;
    for (seed, record_bytes) in [(1, 40), (2, 40), (3, 3000), (4, 9000)] {
        let run = move |Process { client, seams, world, ino, number }| async move {
            let mut record = 0;
            for _ in 0..ROUNDS {
                seams.sleep_ms(world.choose(3)).await;
                let access = Access { truncate: world.choose(4) == 0, ..WRITE };
                let opened = client.open(&Ctx::root(), ino, access, false).await.unwrap();
                for _ in 0..=world.choose(2) {
                    append(&client, &opened, vec![(number + 1) << 4 | record; record_bytes]).await;
                    record += 1;
                }
                client.close(opened.handle).await.unwrap();
            }
            record
        };
        four_processes(seed, 40, run, |file, read, written| {
            let mut next = [None; 4];
            for record in read.chunks(record_bytes) {
                let (process, number) = (record[0] >> 4, record[0] & 15);
                let told = format!("seed {seed}, file {file}: {number} of {process}, expected {next:?}");
                let is_whole = record.iter().all(|byte| *byte == record[0]);
                assert!(is_whole && (1..=4).contains(&process), "{told}");
                let next = &mut next[usize::from(process) - 1];
                assert!(next.is_none_or(|next| next == number), "{told}");
                *next = Some(number + 1);
            }
            for (written, next) in written.iter().zip(next) {
                let told = format!("seed {seed}, file {file}: {written} written, the last but {next:?}");
                assert!(next.is_none_or(|next| next == *written), "{told}");
            }
        });
    }
}

/// Process that works on a file; there are four.
struct Process {
    client: Arc<Client>,
    seams: Seams,
    world: World,
    ino: Ino,
    /// Number of the process, from 0.
    number: u8,
}

/// On each of so many files that have just been made four processes `run` at once, on two mounts, or all on one for every other file.
/// `check` gets the number of the file, what it holds then, and what they have returned.
fn four_processes<R: Future<Output = u8> + Send + 'static>(
    seed: u64,
    files: usize,
    run: impl Fn(Process) -> R,
    check: impl Fn(usize, Vec<u8>, [u8; 4]),
) {
    let cluster = SimCluster::new(seed, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let history = async {
        let nodes = [world.node("c0"), world.node("c1")];
        let mounts = [SimCluster::mount(&nodes[0]).await, SimCluster::mount(&nodes[1]).await];
        for file in 0..files {
            let ino = make(&mounts[0], &format!("f{file}")).await;
            let (returned, mut all) = mpsc::unbounded_channel();
            for number in 0..4u8 {
                let at = if file % 2 == 0 { 0 } else { usize::from(number) % 2 };
                let (client, seams, world) = (mounts[at].clone(), nodes[at].seams.clone(), world.clone());
                let (returned, running) =
                    (returned.clone(), run(Process { client, seams, world, ino, number }));
                nodes[at]
                    .seams
                    .spawn("process", async move { returned.send((number, running.await)).unwrap() });
            }
            drop(returned);
            let mut written = [0; 4];
            while let Some((number, what)) = all.recv().await {
                written[usize::from(number)] = what;
            }
            check(file, contents(&mounts[0], ino).await, written);
        }
    };
    world.run_until(LIMIT_MS, history).unwrap();
    world.end();
}

/// `fallocate` of a small file on one mount makes it longer, and never shorter: it takes nothing from what another appends.
#[test]
fn room_asked_for_takes_nothing_from_what_others_append() {
    const FILES: usize = 60;
    const RECORD: usize = 50;
    const RECORDS: u8 = 5;
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let history = async {
        let nodes = [world.node("c0"), world.node("c1")];
        let mounts = [SimCluster::mount(&nodes[0]).await, SimCluster::mount(&nodes[1]).await];
        for file in 0..FILES {
            let ino = make(&mounts[0], &format!("f{file}")).await;
            let over = Arc::new(AtomicBool::new(false));
            let (client, seams, ends, choices) =
                (mounts[1].clone(), nodes[1].seams.clone(), over.clone(), world.clone());
            nodes[1].seams.spawn("append", async move {
                let opened = client.open(&Ctx::root(), ino, WRITE, false).await.unwrap();
                for record in 1..=RECORDS {
                    append(&client, &opened, vec![record; RECORD]).await;
                    seams.sleep_ms(choices.choose(3)).await;
                }
                client.close(opened.handle).await.unwrap();
                ends.store(true, Ordering::Relaxed);
            });
            let opened = mounts[0].open(&Ctx::root(), ino, WRITE, false).await.unwrap();
            let mut end = 0;
            while !over.load(Ordering::Relaxed) {
                end += world.choose(100);
                let how = Allocation::Reserve { keep_size: false };
                mounts[0].fallocate(&Ctx::root(), opened.handle, 0..end.max(1), how).await.unwrap();
                nodes[0].seams.sleep_ms(world.choose(3)).await;
            }
            mounts[0].close(opened.handle).await.unwrap();
            let read = contents(&mounts[1], ino).await;
            assert!(
                read.len() as u64 >= end,
                "{} bytes of file {file}, and there was room for {end}",
                read.len()
            );
            for record in 1..=RECORDS {
                let bytes = read.iter().filter(|byte| **byte == record).count();
                assert_eq!(bytes, RECORD, "record {record} of file {file}");
            }
        }
    };
    world.run_until(LIMIT_MS, history).unwrap();
    world.end();
}

/// A new empty file that nobody has open.
async fn make(client: &Client, name: &str) -> Ino {
    let (name, parent) = (name.as_bytes(), client.root());
    let create = CreateIn { parent, name, mode: 0o644, umask: 0, exclusive: true, access: WRITE };
    let made = client.create(&Ctx::root(), create).await.unwrap().opened;
    client.close(made.handle).await.unwrap();
    made.attr.ino
}

async fn append(client: &Client, opened: &Opened, data: Vec<u8>) {
    let write = WriteIn { data: data.into(), append: true, ..WriteIn::default() };
    client.write(&Ctx::root(), opened.handle, write).await.unwrap();
}

async fn contents(client: &Client, ino: Ino) -> Vec<u8> {
    let opened = client.open(&Ctx::root(), ino, READ, false).await.unwrap();
    let read = client.read(opened.handle, 0, 1 << 20, false).await.unwrap().into_bytes().to_vec();
    client.close(opened.handle).await.unwrap();
    read
}

/// A kernel that has changed pages of one file, which it cannot write back: they are never gone.
#[derive(Clone, Default)]
struct Holding {
    pages: PageCache,
    held: Arc<AtomicU64>,
}

impl KernelCache for Holding {
    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()> {
        match self.held.load(Ordering::Relaxed) == ino.0 {
            true => Box::pin(std::future::pending()),
            false => self.pages.invalidate(ino, offset, len_bytes),
        }
    }
}

/// The lease is over: pages of all other files go, although those of one cannot.
#[test]
fn pages_that_cannot_be_dropped_keep_no_others_when_the_lease_is_over() {
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let seams = cluster.world().node("c0").seams;
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let kernel = Holding { pages: a.pages.clone(), ..Holding::default() };
        a.client.set_cache(Arc::new(kernel.clone()));
        let held = make(&a.client, "held").await;
        let ino = a.make().await;
        let (_holder, reader) = (a.open(held, READ).await, a.open(ino, READ).await);
        assert_eq!(reader.mode, OpenMode::Cached);
        assert_eq!(a.read(&reader, 0).await, [1; 10]);
        kernel.held.store(held.0, Ordering::Relaxed);
        cluster.world().isolate("c0");
        let writer = b.open(ino, WRITE).await;
        b.write(&writer, 0, &[2; 10]).await;
        let read = seams.timeout_ms(1_000, a.read(&reader, 0)).await;
        assert_eq!(read, None, "it has to ask, and reaches nobody");
    };
    cluster.world().run_until(LIMIT_MS, history).unwrap();
    cluster.world().end();
}

/// The MDT dies while the answer to a session that begins again is on its way: at the next it is a session that was there before,
/// and has to declare itself, although it has nothing to declare.
#[test]
fn a_session_that_began_again_just_before_the_mdt_died_goes_on() {
    const SYNC_MS: u64 = 60_000;
    /// Less than the MDT waits for clients that do not declare themselves.
    const AT_ONCE_MS: u64 = 3_000;
    let cluster = SimCluster::new(1, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    let seams = world.node("c0").seams;
    let history = async {
        let (a, b) = (Mount::new(&cluster, "c0").await, Mount::new(&cluster, "c1").await);
        let ino = a.make().await;
        let reader = a.open(ino, READ).await;
        assert_eq!(reader.mode, OpenMode::Cached);
        let log = make(&a.client, "log").await;
        let (of_a, of_b) = (a.open(log, WRITE).await, b.open(log, WRITE).await);
        append(&b.client, &of_b, vec![3; 100_000]).await;
        // The session ends with an append under way that has its place.
        world.partition("c0", "ost0", Direction::Both);
        let client = a.client.clone();
        seams.spawn("append", async move {
            let write = WriteIn { append: true, data: vec![9; 10].into(), ..WriteIn::default() };
            assert!(client.write(&Ctx::root(), of_a.handle, write).await.is_err());
        });
        seams.sleep_ms(1_000).await;
        world.isolate("c0");
        let writer = b.open(ino, WRITE).await;
        b.write(&writer, 0, &[2; 10]).await;
        b.client.close(writer.handle).await.unwrap();
        append(&b.client, &of_b, vec![4; 10]).await;
        // The session of c0 is over. The one that it begins is written, and not yet answered.
        world.disk("mdt0").set_sync_ms(SYNC_MS, SYNC_MS);
        world.heal();
        seams.sleep_ms(2_000).await;
        world.kill("mdt0");
        world.disk("mdt0").set_sync_ms(0, 1);
        cluster.restart("mdt0");
        let again = seams.timeout_ms(AT_ONCE_MS, async {
            let reader = a.open(ino, READ).await;
            let read = a.read(&reader, 0).await;
            append(&b.client, &of_b, vec![5; 10]).await;
            (read, contents(&a.client, log).await.len())
        });
        assert_eq!(again.await, Some((vec![2; 10], 100_020)));
    };
    world.run_until(LIMIT_MS, history).unwrap();
    world.end();
}
