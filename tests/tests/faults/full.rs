//! F11: an OST is full. Programs get ENOSPC, nothing else and without delay; other OSTs go on; removing
//! works and brings the space back; nothing that was answered is lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;
use crate::stripes::{self, BLOCK};

/// Blocks of one write to the filling file.
const RUN: u64 = 64;
/// Longest time of a call that is refused for lack of space.
const REFUSE_LIMIT: Duration = Duration::from_secs(10);
/// The MDT asks the OSTs for their space every few seconds; until then new files may still go to the full one.
const NOTICE_LIMIT: Duration = Duration::from_secs(15);
/// How long freed space may take to be usable.
const RECLAIM_LIMIT: Duration = Duration::from_secs(40);
#[test]
fn f11_full_ost_refuses_and_recovers() {
    seed("f11-ost");
    let options = Options { osts: 2, ost_size: Some("96MiB"), ..Options::default() };
    let cluster = Cluster::up("f11-ost", &options);
    let kept = stripe_file(&cluster, "kept", 0);
    let kept_blocks = 512;
    write_run(&kept, 1, 0..kept_blocks).unwrap();
    kept.sync_all().unwrap();

    let filling = stripe_file(&cluster, "filling", 0);
    let written = fill(&filling);
    assert!(written * BLOCK as u64 > 16 << 20, "only {written} blocks fitted into 96 MiB");
    filling.sync_all().unwrap();
    check(&cluster.b().join("filling"), 2, written);
    others_go_on(&cluster);
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

/// Writes until nothing fits any more; gives the number of blocks whose write was answered.
fn fill(file: &File) -> u64 {
    let mut done = 0;
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
    let since = Instant::now();
    while let Err(e) = new_file(&dir.join("probe")) {
        assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
        assert!(since.elapsed() < NOTICE_LIMIT, "new files go to the full OST");
        std::thread::sleep(Duration::from_millis(200));
    }
    for number in 0..8u64 {
        let path = dir.join(number.to_string());
        new_file(&path).unwrap_or_else(|e| panic!("file {number}, while another OST has room: {e}"));
        check(&path, 10, RUN);
    }
}

fn new_file(path: &Path) -> io::Result<()> {
    // What an earlier try left is on the full OST.
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
