//! F11: an OST is full, all OSTs are full, the MDT is full. A file whose OST is full continues on another OST. When no
//! OST has space, programs get ENOSPC, no other error and without delay. Removing works and frees space. No answered
//! write is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;
use crate::stripes::{self, BLOCK};

/// Bytes of an append: over the borders of stripes, and with an end inside of one.
const APPEND_BYTES: usize = 300_000;
/// Appends to a file.
const APPENDS: u8 = 40;
/// Blocks of one write to the filling file.
const RUN: u64 = 64;
/// Longest time of a call that is refused for lack of space.
const REFUSE_LIMIT: Duration = Duration::from_secs(10);
/// The MDT asks the OSTs for their space every few seconds; until then new files may still go to the full one.
const NOTICE_LIMIT: Duration = Duration::from_secs(15);
/// Longest time until freed space is usable.
const RECLAIM_LIMIT: Duration = Duration::from_secs(40);
/// Content of the small files: as much as lies in the MDT.
const SMALL: usize = 7000;
/// A prime above [`SMALL_FILES`], to go through all numbers in another order.
const SPREAD: u64 = 1_000_003;
/// Far more small files than fit.
const SMALL_FILES: u64 = 200_000;

#[test]
fn f11_full_ost_spills_and_full_osts_refuse_and_recover() {
    seed("f11-ost");
    let options = Options { osts: 2, ost_size: Some("96MiB"), ..Options::default() };
    let cluster = Cluster::up("f11-ost", &options);
    let kept = stripe_file(&cluster, "kept", 0);
    let kept_blocks = 512;
    write_run(&kept, 1, 0..kept_blocks).unwrap();
    kept.sync_all().unwrap();

    let filling = stripe_file(&cluster, "filling", 0);
    let before = fill_until_spilled(&cluster, &filling);
    assert!(before * BLOCK as u64 > 16 << 20, "only {before} blocks fitted into 96 MiB");
    others_go_on(&cluster);
    let written = fill(&filling, before);
    assert!(written - before > before / 2, "{before} blocks fitted on one OST, and {written} on both");
    filling.sync_all().unwrap();
    check(&cluster.b().join("filling"), 2, written);
    check(&cluster.b().join("kept"), 1, kept_blocks);

    drop(filling);
    std::fs::remove_file(cluster.a().join("filling")).unwrap();
    let again = stripe_file(&cluster, "again", 0);
    let since = Instant::now();
    let mut done = 0;
    while done < written / 2 {
        match write_run(&again, 3, done..done + RUN) {
            Ok(()) => done += RUN,
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
                assert!(since.elapsed() < RECLAIM_LIMIT, "freed space does not come back");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    again.sync_all().unwrap();
    check(&cluster.b().join("again"), 3, done);
    check(&cluster.b().join("kept"), 1, kept_blocks);
    drop((kept, again));
    cluster.assert_sound();
}

/// An append goes over two OSTs, and one of them is full: it lies behind the one before it, without a hole and once.
#[test]
fn f11_appends_that_meet_a_full_ost_lie_one_behind_the_other() {
    seed("f11-append");
    let options = Options { osts: 2, ost_size: Some("96MiB"), ..Options::default() };
    let cluster = Cluster::up("f11-append", &options);
    let path = cluster.a().join("log");
    cluster.lfs(&["setstripe", "-c", "2", "-S", "64k", "-i", "0", &path.display().to_string()]);
    // Each is acknowledged by its OSTs, and not by the buffer of the mount.
    let mut log = OpenOptions::new().append(true).custom_flags(libc::O_SYNC).open(&path).unwrap();
    let record = |number: u8| vec![number; APPEND_BYTES];
    log.write_all(&record(1)).unwrap();
    let filling = stripe_file(&cluster, "filling", 0);
    fill_until_spilled(&cluster, &filling);
    let mut expected = record(1);
    for number in 2..=APPENDS {
        let written = log.write(&record(number)).unwrap_or_else(|e| panic!("the other OST has room: {e}"));
        expected.extend(&record(number)[..written]);
    }
    let seen = std::fs::read(cluster.b().join("log")).unwrap();
    let first = seen.iter().zip(&expected).position(|(seen, expected)| seen != expected);
    assert_eq!((seen.len(), first), (expected.len(), None), "length, and the first byte that is another one");
    drop((log, filling));
    cluster.assert_sound();
}

/// The other OST has room for the written bytes, but not for the bytes behind them on the full OST. Then no more moves
/// than layouts make necessary. If there is no room even for that, the write is refused, and not tried for ever.
#[test]
fn f11_a_write_for_whose_neighbours_no_ost_has_room_ends() {
    const HOLE: u64 = 16 << 20;
    const BEHIND: u64 = 24 << 20;
    /// Space left on the other OST.
    const LEFT: u64 = 8 << 20;
    const HOLE_BLOCKS: u64 = HOLE / BLOCK as u64;
    const BEHIND_BLOCKS: u64 = BEHIND / BLOCK as u64;
    seed("f11-hole");
    let options = Options { osts: 2, ost_size: Some("96MiB"), ..Options::default() };
    let cluster = Cluster::up("f11-hole", &options);
    let holed = stripe_file(&cluster, "holed", 0);
    let behind = HOLE_BLOCKS..HOLE_BLOCKS + BEHIND_BLOCKS;
    write_run(&holed, 1, behind.clone()).unwrap();
    holed.sync_all().unwrap();
    let filling = stripe_file(&cluster, "filling", 0);
    let before = fill_until_spilled(&cluster, &filling);
    let ballast = stripe_file(&cluster, "ballast", 1);
    write_run(&ballast, 3, 0..before + BEHIND_BLOCKS - LEFT / BLOCK as u64).unwrap();
    ballast.sync_all().unwrap();

    let mut done = 0;
    loop {
        let since = Instant::now();
        let written = write_run(&holed, 1, done..done + RUN).and_then(|()| holed.sync_all());
        assert!(since.elapsed() < REFUSE_LIMIT, "write and fsync took {:?}", since.elapsed());
        match written {
            Ok(()) => done += RUN,
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
                break;
            }
        }
        assert!(done < HOLE_BLOCKS, "more than the OSTs have room for");
    }
    println!("f11-hole: {done} of {HOLE_BLOCKS} blocks of the hole found room");
    assert!(done * BLOCK as u64 > 2 << 20, "the other OST has room for more than {done} blocks");
    // The components are: the part in front that the full OST still took (often nothing), the pieces, and the
    // part behind. A component for each piece would be too many in the end.
    let layout = cluster.lfs(&["getstripe", &cluster.a().join("holed").display().to_string()]);
    assert!((2..=3).contains(&layout.matches("lcme_id:").count()), "{layout}");
    let bytes = std::fs::read(cluster.b().join("holed")).unwrap();
    for (index, block) in bytes.chunks(BLOCK).enumerate().map(|(index, block)| (index as u64, block)) {
        if index < done || behind.contains(&index) {
            assert_eq!(stripes::generation_of(block, 1, index), Ok(1), "block {index}");
        }
    }
    drop((holed, filling, ballast));
    cluster.assert_sound();
}

#[test]
fn f11_full_mdt_refuses_and_recovers() {
    seed("f11-mdt");
    let options = Options { osts: 2, mdt_size: Some("160MiB"), ..Options::default() };
    let cluster = Cluster::up("f11-mdt", &options);
    std::fs::write(cluster.a().join("kept"), small(u64::MAX)).unwrap();
    let dir = cluster.a().join("many");
    std::fs::create_dir(&dir).unwrap();
    let made = make_until_full(&dir);
    println!("f11-mdt: {made} small files fitted");
    assert!(made > 100, "only {made} small files fitted into 160 MiB");
    for number in (0..made).step_by(37) {
        assert_eq!(std::fs::read(cluster.b().join("many").join(number.to_string())).unwrap(), small(number));
    }
    // In an order that meets another page of the tree each time: the dearest one for a full device.
    for number in (0..made).map(|n| n * SPREAD % made) {
        std::fs::remove_file(dir.join(number.to_string()))
            .unwrap_or_else(|e| panic!("removing file {number} of {made} from a full MDT: {e}"));
    }
    std::fs::remove_dir(&dir).unwrap();
    let since = Instant::now();
    while let Err(e) =
        std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(dir.join("again"), small(1)))
    {
        assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
        assert!(since.elapsed() < RECLAIM_LIMIT, "freed space does not come back");
        std::thread::sleep(Duration::from_millis(100));
    }
    let again = make_until_full(&dir);
    println!("f11-mdt: {again} small files fitted when those were gone");
    assert!(again > made / 2, "{made} small files fitted first, and only {again} when those were gone");
    assert_eq!(std::fs::read(cluster.b().join("kept")).unwrap(), small(u64::MAX));
    assert_eq!(std::fs::read(cluster.b().join("many/again")).unwrap(), small(1));
    cluster.assert_sound();
}

/// A new file with one stripe on this OST.
fn stripe_file(cluster: &Cluster, name: &str, ost: u16) -> File {
    let path = cluster.a().join(name);
    let ost = ost.to_string();
    cluster.lfs(&["setstripe", "-c", "1", "-i", &ost, &path.display().to_string()]);
    OpenOptions::new().write(true).open(path).unwrap()
}

fn write_run(file: &File, id: u64, run: std::ops::Range<u64>) -> io::Result<()> {
    let at = run.start * BLOCK as u64;
    let bytes: Vec<u8> = run.flat_map(|index| stripes::block(id, index, 1)).collect();
    file.write_all_at(&bytes, at)
}

/// Writes until the file goes on on the other OST; gives the number of blocks.
fn fill_until_spilled(cluster: &Cluster, file: &File) -> u64 {
    let path = cluster.a().join("filling").display().to_string();
    let mut done = 0;
    while cluster.lfs(&["find", &path, "-ost", "1"]).is_empty() {
        assert!(done * (BLOCK as u64) < 96 << 20, "more than an OST holds lies on it");
        for _ in 0..8 {
            write_run(file, 2, done..done + RUN).unwrap_or_else(|e| panic!("the other OST has room: {e}"));
            done += RUN;
        }
    }
    done
}

/// Writes on until nothing fits any more; gives the number of blocks whose write was answered.
fn fill(file: &File, mut done: u64) -> u64 {
    loop {
        let since = Instant::now();
        match write_run(file, 2, done..done + RUN) {
            Ok(()) => done += RUN,
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "a full OST: {e}");
                assert!(since.elapsed() < REFUSE_LIMIT, "the refusal took {:?}", since.elapsed());
                return done;
            }
        }
    }
}

/// New files that may lie anywhere go to the other OST.
fn others_go_on(cluster: &Cluster) {
    let dir = cluster.a().join("elsewhere");
    std::fs::create_dir(&dir).unwrap();
    cluster.lfs(&["setstripe", "-c", "1", &dir.display().to_string()]);
    // Until the MDT has asked the OSTs again, the round robin may still choose the full one.
    let since = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < 8 {
        let path = dir.join(in_a_row.to_string());
        match new_file(&path) {
            Ok(()) => {
                check(&path, 10, RUN);
                in_a_row += 1;
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
                assert!(since.elapsed() < NOTICE_LIMIT, "new files go to the full OST");
                in_a_row = 0;
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

fn new_file(path: &Path) -> io::Result<()> {
    // A file of an earlier try is on the full OST.
    let _ = std::fs::remove_file(path);
    let file = File::create_new(path)?;
    write_run(&file, 10, 0..RUN).and_then(|()| file.sync_all())
}

/// All blocks that were answered are there, with their bytes.
fn check(path: &Path, id: u64, blocks: u64) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() as u64 >= blocks * BLOCK as u64, "{} has {} bytes", path.display(), bytes.len());
    for (index, block) in (0..blocks).zip(bytes.chunks(BLOCK)) {
        assert_eq!(stripes::generation_of(block, id, index), Ok(1), "{}", path.display());
    }
}

fn small(number: u64) -> Vec<u8> {
    brindle_tests::bytes(number, SMALL)
}

/// Makes small files until the MDT is full; gives their number. The last one, which did not fit, is removed.
fn make_until_full(dir: &Path) -> u64 {
    for number in 0..SMALL_FILES {
        let path: PathBuf = dir.join(number.to_string());
        let since = Instant::now();
        let made = File::create_new(&path).and_then(|mut file| file.write_all(&small(number)));
        if let Err(e) = made {
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "a full MDT, at file {number}: {e}");
            assert!(since.elapsed() < REFUSE_LIMIT, "the refusal took {:?}", since.elapsed());
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::NotFound, "removing from a full MDT: {e}"),
            }
            return number;
        }
    }
    panic!("{SMALL_FILES} small files fitted");
}
