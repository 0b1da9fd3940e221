//! Bytes and sizes (promises 6, 7, 9).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::area::Area;
use brindle_tests::maps::Map;
use brindle_tests::{bytes, same_bytes};

use crate::both_ways;

/// Sizes kept in different places: inside the inode's server, in one stripe, in several.
const SIZES: [usize; 4] = [100, 10_000, 200_000, 5 << 20];
/// Longest time until another client's mapping shows a write (read and stat show it at once).
const MAPPED_WITHIN: Duration = Duration::from_secs(10);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn all_of(file: &File) -> Vec<u8> {
    let mut data = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut data, 0).unwrap();
    data
}

/// Through every door: the open file, a new one, and the sizes.
#[track_caller]
fn sees(reader: Option<&File>, path: &Path, wanted: &[u8], what: &str) {
    if let Some(reader) = reader {
        assert_eq!(reader.metadata().unwrap().len(), wanted.len() as u64, "{what}: fstat");
        same_bytes(&all_of(reader), wanted, &format!("{what}: open file"));
    }
    assert_eq!(fs::metadata(path).unwrap().len(), wanted.len() as u64, "{what}: stat");
    same_bytes(&fs::read(path).unwrap(), wanted, &format!("{what}: new open"));
}

#[test]
fn a_write_is_seen_whoever_opened_first() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        for size in SIZES {
            // The reader opens before the file has anything, and keeps what it has read in its cache.
            let writer = open(&there);
            let reader = File::open(&here).unwrap();
            sees(Some(&reader), &here, b"", "empty");
            writer.write_all_at(&bytes(1, size), 0).unwrap();
            sees(Some(&reader), &here, &bytes(1, size), "reader first");
            sees(Some(&reader), &here, &bytes(1, size), "again, from the cache");
            writer.write_all_at(&bytes(2, size), 0).unwrap();
            sees(Some(&reader), &here, &bytes(2, size), "written over");
            drop(writer);
            sees(Some(&reader), &here, &bytes(2, size), "writer closed");
            // The writer comes while the reader has the file cached.
            let writer = OpenOptions::new().write(true).open(&there).unwrap();
            writer.write_all_at(b"short", (size / 2) as u64).unwrap();
            let mut wanted = bytes(2, size);
            wanted[size / 2..size / 2 + 5].copy_from_slice(b"short");
            sees(Some(&reader), &here, &wanted, "writer second");
            drop((reader, writer));
            sees(None, &here, &wanted, "nobody has it open");
            fs::remove_file(&there).unwrap();
        }
    }
}

#[test]
fn what_was_read_and_closed_is_not_kept_beyond_a_change() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        for round in 0..30 {
            let data = bytes(round, 1000 + 3000 * round as usize);
            fs::write(&there, &data).unwrap();
            sees(None, &here, &data, &format!("round {round}"));
            // The write has the same size, but other bytes, and does not truncate.
            open(&there).write_all_at(&bytes(round + 100, data.len()), 0).unwrap();
            sees(None, &here, &bytes(round + 100, data.len()), &format!("round {round}, written over"));
        }
    }
}

#[test]
fn clients_write_in_turns() {
    let area = Area::on_two_mounts();
    let (a, b) = (open(&area.at("f")), open(&area.other("f")));
    let mut wanted = vec![0; 300_000];
    a.write_all_at(&wanted, 0).unwrap();
    for round in 0..200u64 {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let at = (round * 7919 % 290_000) as usize;
        let data = bytes(round, 1 + (round as usize * 53) % 9000);
        writer.write_all_at(&data, at as u64).unwrap();
        wanted[at..at + data.len()].copy_from_slice(&data);
        let mut found = vec![0; data.len() + 20];
        let from = at.saturating_sub(10);
        reader.read_exact_at(&mut found, from as u64).unwrap();
        same_bytes(&found, &wanted[from..from + data.len() + 20], &format!("round {round}"));
    }
    same_bytes(&all_of(&a), &wanted, "at the end, one client");
    same_bytes(&all_of(&b), &wanted, "at the end, the other");
}

#[test]
fn a_truncate_is_seen_and_nothing_comes_back() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        for size in SIZES {
            let (writer, reader) = (open(&there), open(&here));
            writer.write_all_at(&bytes(1, size), 0).unwrap();
            sees(Some(&reader), &here, &bytes(1, size), "written");
            writer.set_len(size as u64 / 3).unwrap();
            sees(Some(&reader), &here, &bytes(1, size)[..size / 3], "cut");
            reader.set_len(size as u64).unwrap();
            let mut wanted = bytes(1, size)[..size / 3].to_vec();
            wanted.resize(size, 0);
            sees(Some(&writer), &there, &wanted, "extended by the other");
            drop(File::create(&there).unwrap());
            sees(Some(&reader), &here, b"", "opened with O_TRUNC");
            reader.write_all_at(b"end", 50).unwrap();
            let mut wanted = vec![0; 50];
            wanted.extend(b"end");
            sees(Some(&writer), &there, &wanted, "written behind the end");
            fs::remove_file(&there).unwrap();
        }
    }
}

#[test]
fn a_cut_is_the_end_for_reads_behind_it_and_across_it() {
    // The reader's kernel still knows the old size, and reads at several places behind the new end at once: beyond it, and
    // ahead of the page that it lies in.
    const OLD: usize = 262_108;
    const NEW: usize = 8_278;
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        for round in 0..100 {
            fs::write(&there, vec![b'x'; OLD]).unwrap();
            let reader = File::open(&here).unwrap();
            let mut page = [0; 4096];
            assert_eq!(reader.read_at(&mut page, 0).unwrap(), page.len());
            OpenOptions::new().write(true).open(&there).unwrap().set_len(NEW as u64).unwrap();
            assert_eq!(reader.read_at(&mut page, 68_901).unwrap(), 0, "round {round}: beyond the end");
            assert_eq!(
                reader.read_at(&mut page, 4_782).unwrap(),
                NEW - 4_782,
                "round {round}: across the end"
            );
            fs::remove_file(&there).unwrap();
        }
    }
}

#[test]
fn holes_made_by_one_are_holes_for_the_other() {
    use rustix::fs::{FallocateFlags, fallocate};
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let data = bytes(1, 3 << 20);
        fs::write(&there, &data).unwrap();
        let reader = File::open(&here).unwrap();
        sees(Some(&reader), &here, &data, "written");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(open(&there), punch, 500_000, 1_500_000).unwrap();
        let mut wanted = data;
        wanted[500_000..2_000_000].fill(0);
        sees(Some(&reader), &here, &wanted, "punched");
        fallocate(open(&there), FallocateFlags::empty(), 0, 4 << 20).unwrap();
        wanted.resize(4 << 20, 0);
        sees(Some(&reader), &here, &wanted, "allocated behind the end");
    }
}

#[test]
fn a_reader_with_a_mapping() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let len = 1 << 20;
        fs::write(&there, bytes(1, len)).unwrap();
        let reader = File::open(&here).unwrap();
        let map = Map::new(&reader, 0, len, true, false).unwrap();
        same_bytes(&map.read(0, len), &bytes(1, len), "mapped");
        let writer = OpenOptions::new().write(true).open(&there).unwrap();
        for round in 0..20 {
            let data = bytes(round, 10_000);
            let at = round as usize * 50_000;
            writer.write_all_at(&data, at as u64).unwrap();
            let mut found = vec![0; 10_000];
            reader.read_exact_at(&mut found, at as u64).unwrap();
            same_bytes(&found, &data, &format!("read beside a mapping, round {round}"));
            let since = Instant::now();
            while map.read(at, 10_000) != data {
                assert!(since.elapsed() < MAPPED_WITHIN, "round {round}: the mapping never shows it");
            }
        }
    }
}

#[test]
fn what_a_mapping_wrote_is_seen_after_msync_and_after_munmap() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        let len = 500_000;
        fs::write(&there, vec![0; len]).unwrap();
        let reader = File::open(&here).unwrap();
        sees(Some(&reader), &here, &vec![0; len], "before");
        let writer = open(&there);
        let map = Map::shared(&writer, len).unwrap();
        map.write(100_000, &bytes(1, 100_000));
        map.sync(libc::MS_SYNC).unwrap();
        let mut wanted = vec![0; len];
        wanted[100_000..200_000].copy_from_slice(&bytes(1, 100_000));
        sees(Some(&reader), &here, &wanted, "after msync");
        map.write(300_000, &bytes(2, 100_000));
        drop((map, writer));
        wanted[300_000..400_000].copy_from_slice(&bytes(2, 100_000));
        sees(Some(&reader), &here, &wanted, "after munmap and close");
        fs::remove_file(&there).unwrap();
    }
}

#[test]
fn neighbouring_bytes_of_two_writers() {
    const LEN: u64 = 6000;
    let area = Area::on_two_mounts();
    let paths = [area.at("f"), area.other("f")];
    File::create(&paths[0]).unwrap();
    std::thread::scope(|scope| {
        for (parity, path) in paths.iter().enumerate() {
            scope.spawn(move || {
                let file = open(path);
                // Every other byte, so that both are in every block all the time.
                for at in (parity as u64..LEN).step_by(2) {
                    file.write_all_at(&[(at % 251) as u8 + 1], at).unwrap();
                }
            });
        }
    });
    let wanted: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 + 1).collect();
    for path in &paths {
        same_bytes(&fs::read(path).unwrap(), &wanted, "interleaved bytes");
    }
}

#[test]
fn records_of_eight_writers_across_blocks_and_stripes() {
    const RECORD: usize = 10_007;
    const EACH: usize = 60;
    let area = Area::on_two_mounts();
    File::create(area.at("f")).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let path = if n % 2 == 0 { area.at("f") } else { area.other("f") };
            scope.spawn(move || {
                let file = open(&path);
                for i in 0..EACH {
                    let record = i * 8 + n;
                    file.write_all_at(&bytes(record as u64, RECORD), (record * RECORD) as u64).unwrap();
                    // The writer's own bytes are there at once, whatever the neighbours do.
                    let mut found = vec![0; RECORD];
                    file.read_exact_at(&mut found, (record * RECORD) as u64).unwrap();
                    same_bytes(&found, &bytes(record as u64, RECORD), "just written");
                }
            });
        }
    });
    let wanted: Vec<u8> = (0..8 * EACH).flat_map(|n| bytes(n as u64, RECORD)).collect();
    for path in [area.at("f"), area.other("f")] {
        same_bytes(&fs::read(path).unwrap(), &wanted, "all records");
    }
}

#[test]
fn a_growing_file_never_shrinks_and_never_shows_what_was_not_written() {
    const STEPS: u64 = 300;
    const STEP: usize = 5001;
    let area = Area::on_two_mounts();
    let (there, here) = (area.at("f"), area.other("f"));
    File::create(&there).unwrap();
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = open(&there);
            for step in 0..STEPS {
                file.write_all_at(&bytes(step, STEP), step * STEP as u64).unwrap();
                written.store((step + 1) * STEP as u64, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        let kept = File::open(&here).unwrap();
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let at_least = written.load(Ordering::SeqCst);
            let size = kept.metadata().unwrap().len();
            assert!(size >= at_least && size >= last, "{size} bytes after {at_least} and {last}");
            last = size;
            if at_least > 0 {
                // The last record that was certainly written, from a file open all the time and from a new one.
                let step = at_least / STEP as u64 - 1;
                for reader in [&kept, &File::open(&here).unwrap()] {
                    let mut found = vec![0; STEP];
                    reader.read_exact_at(&mut found, step * STEP as u64).unwrap();
                    same_bytes(&found, &bytes(step, STEP), &format!("record {step}"));
                }
            }
        }
    });
}

#[test]
fn direct_io_of_one_and_cached_reads_of_the_other() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, bytes(1, 1 << 20)).unwrap();
        let reader = File::open(&here).unwrap();
        sees(Some(&reader), &here, &bytes(1, 1 << 20), "cached");
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&there).unwrap();
        let block = Block(bytes(2, 4096).try_into().unwrap());
        direct.write_all_at(&block.0, 8192).unwrap();
        let mut wanted = bytes(1, 1 << 20);
        wanted[8192..12_288].copy_from_slice(&block.0);
        sees(Some(&reader), &here, &wanted, "written direct");
    }
}

/// Memory that direct I/O accepts.
#[repr(align(4096))]
struct Block([u8; 4096]);

#[test]
fn a_file_that_lost_its_name_elsewhere_stays_usable() {
    let area = Area::on_two_mounts();
    for (there, here) in both_ways(&area, "f") {
        fs::write(&there, bytes(1, 100_000)).unwrap();
        let mut file = open(&here);
        fs::remove_file(&there).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        same_bytes(&all_of(&file), &bytes(1, 100_000), "unlinked by the other client");
        file.write_all(&bytes(2, 200_000)).unwrap();
        file.sync_all().unwrap();
        fs::write(&there, "another file").unwrap();
        same_bytes(&all_of(&file), &bytes(2, 200_000), "written after that");
        assert_eq!(fs::read(&here).unwrap(), b"another file");
        fs::rename(&there, there.with_extension("moved")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 200_000);
    }
}

#[test]
fn two_clients_that_truncate_a_file_both_have_mapped_never_wait_for_each_other() {
    const ROUNDS: u64 = 150;
    /// The page that every cut goes through, so that it always exists and is always to be dropped.
    const PAGE: usize = 8192;
    let area = Area::on_two_mounts();
    fs::write(area.at("f"), [1; PAGE + 4096]).unwrap();
    std::thread::scope(|scope| {
        for (number, path) in [(0, area.at("f")), (1, area.other("f"))] {
            scope.spawn(move || {
                let file = open(&path);
                let map = Map::shared(&file, PAGE + 4096).unwrap();
                for round in 0..ROUNDS {
                    map.write(PAGE, &[round as u8; 64]);
                    let len = PAGE as u64 + 100 + (round * 37 + number * 1900) % 3900;
                    file.set_len(len).unwrap_or_else(|e| panic!("client {number}, round {round}: {e}"));
                }
                map.sync(libc::MS_SYNC).unwrap();
            });
        }
    });
    let [a, b] = [area.at("f"), area.other("f")].map(|path| fs::read(path).unwrap());
    same_bytes(&a, &b, "after both have ended");
    assert!((PAGE + 100..PAGE + 4000).contains(&a.len()));
}

#[test]
fn a_cut_and_a_recall_of_one_mapped_file_pass_each_other() {
    const ROUNDS: u64 = 60;
    const PAGE: usize = 8192;
    let area = Area::on_two_mounts();
    fs::write(area.at("f"), [1; PAGE + 4096]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                // The sole writer, until the other client opens the file.
                let file = open(&area.at("f"));
                let map = Map::shared(&file, PAGE + 4096).unwrap();
                for cut in 0..4 {
                    map.write(PAGE, &[round as u8; 64]);
                    let len = PAGE as u64 + 100 + (round * 37 + cut * 900) % 3900;
                    file.set_len(len).unwrap_or_else(|e| panic!("round {round}: {e}"));
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            assert!(fs::read(area.other("f")).unwrap().len() > PAGE);
        }
    });
    same_bytes(
        &fs::read(area.at("f")).unwrap(),
        &fs::read(area.other("f")).unwrap(),
        "after both have ended",
    );
}
