//! Read-ahead for reads that fill no pages: small reads of a file that somebody writes travel together, and still show every
//! change at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;
use crate::leases::requests;

/// Bytes of one read.
const READ: usize = 4096;
/// Reads of the whole file.
const READS: u64 = 1024;
/// Requests for all of it: a megabyte each, the first read, which is none in sequence, and what that leaves for the end.
const REQUESTS_MAX: u64 = 4 + 2;
/// Longest wait for an event that comes at once, and the interval of the checks.
const SLACK: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Rounds of a writer and a reader in turns.
const TURNS: u64 = 300;

fn content(page: u64, generation: u64) -> [u8; READ] {
    let mut bytes = [generation as u8; READ];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    bytes
}

/// Reads a page and says which generation it is of.
fn generation(file: &File, page: u64) -> u64 {
    let mut bytes = [0; READ];
    file.read_exact_at(&mut bytes, page * READ as u64).unwrap();
    let found = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == content(page, found), "page {page} is a mixture");
    found
}

fn write(file: &File, page: u64, generation: u64) {
    file.write_all_at(&content(page, generation), page * READ as u64).unwrap();
}

fn read_all(cluster: &Cluster, file: &File) -> u64 {
    let before = requests(cluster, "read");
    (0..READS).for_each(|page| assert_eq!(generation(file, page), 0));
    requests(cluster, "read") - before
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

#[test]
fn small_reads_of_a_file_that_somebody_writes_travel_together_and_are_fresh() {
    seed("ahead");
    let cluster = Cluster::up("ahead", &Options { osts: 2, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("f"), cluster.mounts()[1].join("f"));
    cluster.lfs(&["setstripe", "-c", "1", &a.display().to_string()]);
    let writer = OpenOptions::new().write(true).open(&a).unwrap();
    (0..READS).for_each(|page| write(&writer, page, 0));
    let reader = File::open(&b).unwrap();
    let spent = read_all(&cluster, &reader);
    assert!((4..=REQUESTS_MAX).contains(&spent), "{spent} requests");

    // The reader goes on through its window, and is overtaken by the writer again and again.
    let mut expected = vec![0; READS as usize];
    for turn in 1..=TURNS {
        let first = turn * 3 % (READS - 8);
        for page in first..first + 4 {
            assert_eq!(generation(&reader, page), expected[page as usize], "turn {turn}");
        }
        let changed = first + 4 + turn % 3;
        write(&writer, changed, turn);
        expected[changed as usize] = turn;
        for page in first + 4..first + 8 {
            assert_eq!(generation(&reader, page), expected[page as usize], "turn {turn}");
        }
    }

    // Bytes that were cut off are not read, and their place reads as zeros.
    for page in 0..8 {
        generation(&reader, page);
    }
    writer.set_len(8 * READ as u64).unwrap();
    let mut bytes = [1; READ];
    assert_eq!(reader.read_at(&mut bytes, 8 * READ as u64).unwrap(), 0);
    writer.set_len(READS * READ as u64).unwrap();
    reader.read_exact_at(&mut bytes, 9 * READ as u64).unwrap();
    assert_eq!(bytes, [0; READ]);
    drop((reader, writer));

    // O_DIRECT reads give the same, where no client writes, and where the reader also writes.
    let file = File::create(&a).unwrap();
    (0..READS).for_each(|page| write(&file, page, 0));
    drop(file);
    let spent = read_all_aligned(&cluster, &direct(&b));
    assert!((4..=REQUESTS_MAX).contains(&spent), "{spent} requests");
    let both = OpenOptions::new().read(true).write(true).open(&b).unwrap();
    for turn in 1..=TURNS {
        let page = turn % (READS - 1);
        generation(&both, page);
        write(&both, page + 1, turn);
        assert_eq!(generation(&both, page + 1), turn);
    }
    cluster.assert_sound();
}

/// O_DIRECT wants memory that begins at a block.
fn read_all_aligned(cluster: &Cluster, file: &File) -> u64 {
    let before = requests(cluster, "read");
    let mut memory = brindle_stdx::buffers::Buffer::new(READ);
    for page in 0..READS {
        file.read_exact_at(&mut memory, page * READ as u64).unwrap();
        assert_eq!(memory[..], content(page, 0));
    }
    requests(cluster, "read") - before
}

/// Bytes of a long piece, distance from one piece to the next, and number of pieces. No piece crosses a multiple of a
/// megabyte.
const PIECE: usize = 256 << 10;
const STEP: u64 = 768 << 10;
const PIECES: u64 = 40;

/// A reader that has looked at every third part of a file in order goes on doing so, and is asked for nothing else; what was
/// fetched for it is fresh all the same.
#[test]
fn long_pieces_at_one_distance_are_fetched_once_and_are_fresh() {
    let cluster = Cluster::up("pieces", &Options { osts: 2, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("f"), cluster.mounts()[1].join("f"));
    let writer = OpenOptions::new().write(true).create_new(true).open(&a).unwrap();
    let put = |n: u64, generation: u64| {
        let piece: Vec<u8> =
            (0..PIECE / READ).flat_map(|page| content(n * 100 + page as u64, generation)).collect();
        writer.write_all_at(&piece, n * STEP).unwrap();
    };
    let get = |file: &File, n: u64, generation: u64| {
        let mut piece = vec![0; PIECE];
        file.read_exact_at(&mut piece, n * STEP).unwrap();
        let pages = piece.chunks(READ).enumerate();
        let are_right =
            pages.into_iter().all(|(page, bytes)| bytes == content(n * 100 + page as u64, generation));
        assert!(are_right, "piece {n} is not of generation {generation}");
    };
    (0..PIECES).for_each(|n| put(n, 0));
    // The OSTs are asked for more than was read, before it is.
    let (reader, before, begun) = (File::open(&b).unwrap(), requests(&cluster, "read"), Instant::now());
    (0..6).for_each(|n| get(&reader, n, 0));
    while requests(&cluster, "read") - before < 10 {
        assert!(begun.elapsed() < SLACK, "nothing is fetched ahead");
        std::thread::sleep(LOOK_EVERY);
    }
    drop(reader);

    let count = |file: &File| {
        let before = requests(&cluster, "read");
        (0..PIECES).for_each(|n| get(file, n, 0));
        requests(&cluster, "read") - before
    };
    assert_eq!(count(&File::open(&b).unwrap()), PIECES, "while somebody has it open for writing");

    // Each piece that was fetched ahead is changed before it is read.
    let reader = File::open(&b).unwrap();
    for turn in 1..=TURNS / 20 {
        for n in 0..PIECES {
            get(&reader, n, if n % 5 == 4 { turn } else { 0 });
            if n % 5 == 3 {
                put(n + 1, turn);
            }
        }
    }
    (0..PIECES).for_each(|n| put(n, 0));
    drop((reader, writer));

    let reader = File::open(&b).unwrap();
    let spent = count(&reader);
    // The last piece that was fetched ahead may have come after its last change.
    assert!((PIECES - 1..PIECES + 5).contains(&spent), "{spent} requests where the kernel keeps the pages");
    cluster.assert_sound();
}
