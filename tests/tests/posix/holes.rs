//! Holes: allocation, punching, zeroing, and finding them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use brindle_tests::area::{Area, mtime};
use brindle_tests::{bytes, fails, same_bytes};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

const LEN: usize = 3 << 20;

fn file_with(area: &Area, name: &str, data: &[u8]) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(area.at(name));
    let file = options.unwrap();
    file.write_all_at(data, 0).unwrap();
    file
}

fn all_of(file: &File) -> Vec<u8> {
    let mut data = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut data, 0).unwrap();
    data
}

/// Ranges that begin and end inside blocks, on blocks, and across stripes.
const RANGES: [(usize, usize); 7] = [
    (0, 1),
    (100, 200),
    (4096, 4096),
    (4000, 10_000),
    (1_048_000, 5000),
    (500_000, 2_000_000),
    (LEN - 10, 10),
];

#[test]
fn punched_and_zeroed_ranges_read_as_zeros_and_nothing_else_changes() {
    let area = Area::new();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero_keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    for (name, flags) in [("punch", punch), ("zero", FallocateFlags::ZERO_RANGE), ("zero-keep", zero_keep)] {
        let mut wanted = bytes(9, LEN);
        let file = file_with(&area, name, &wanted);
        for (at, len) in RANGES {
            fallocate(&file, flags, at as u64, len as u64).unwrap();
            wanted[at..at + len].fill(0);
            same_bytes(&all_of(&file), &wanted, &format!("{name} of {len} bytes at {at}"));
        }
        file.write_all_at(&bytes(1, 5000), 999_000).unwrap();
        wanted[999_000..1_004_000].copy_from_slice(&bytes(1, 5000));
        same_bytes(&all_of(&file), &wanted, "written again");
    }
}

#[test]
fn ranges_beyond_the_end() {
    let area = Area::new();
    let file = file_with(&area, "f", &[7; 10_000]);
    let size = || file.metadata().unwrap().len();
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 9_000, 100_000).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 500_000, 100_000).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 8_000, 100_000).unwrap();
    fallocate(&file, keep, 0, 200_000).unwrap();
    assert_eq!(size(), 10_000);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 7_000, 13_000).unwrap();
    assert_eq!(size(), 20_000);
    fallocate(&file, FallocateFlags::empty(), 30_000, 2_000_000).unwrap();
    assert_eq!(size(), 2_030_000);
    fallocate(&file, FallocateFlags::empty(), 0, 1).unwrap();
    assert_eq!(size(), 2_030_000);
    let mut wanted = vec![7; 7_000];
    wanted.resize(2_030_000, 0);
    same_bytes(&all_of(&file), &wanted, "the whole file");

    assert_eq!(fails(fallocate(&file, FallocateFlags::empty(), 0, 0)), Errno::INVAL);
    assert_eq!(fails(fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 10)), Errno::OPNOTSUPP);
    let reader = File::open(area.at("f")).unwrap();
    assert_eq!(fails(fallocate(&reader, FallocateFlags::empty(), 0, 10)), Errno::BADF);
}

#[test]
fn a_punch_gives_space_back_and_moves_the_times() {
    let area = Area::new();
    let file = file_with(&area, "f", &bytes(3, 8 << 20));
    file.sync_all().unwrap();
    let (before, time) = (file.metadata().unwrap().blocks(), mtime(&area.at("f")));
    area.tick();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 6 << 20).unwrap();
    file.sync_all().unwrap();
    let after = file.metadata().unwrap().blocks();
    assert!(after + (5 << 20) / 512 < before, "{before} blocks before, {after} after");
    assert!(mtime(&area.at("f")) > time);
}

#[test]
fn data_and_holes_are_found() {
    const FAR: u64 = 64 << 20;
    let area = Area::new();
    let file = file_with(&area, "f", b"");
    file.write_all_at(&[1; 65_536], FAR).unwrap();
    file.write_all_at(&[2; 65_536], 2 * FAR).unwrap();
    file.set_len(3 * FAR).unwrap();
    let data = |at| seek(&file, SeekFrom::Data(at));
    let hole = |at| seek(&file, SeekFrom::Hole(at));
    assert_eq!(hole(0).unwrap(), 0, "the file begins with a hole");
    assert_eq!(data(0).unwrap(), FAR);
    assert_eq!(data(FAR + 5).unwrap(), FAR + 5);
    assert_eq!(hole(FAR).unwrap(), FAR + 65_536);
    assert_eq!(data(FAR + 65_536).unwrap(), 2 * FAR);
    assert_eq!(hole(2 * FAR + 1).unwrap(), 2 * FAR + 65_536);
    assert_eq!(fails(data(2 * FAR + 65_536)), Errno::NXIO);
    assert_eq!(hole(2 * FAR + 65_536).unwrap(), 2 * FAR + 65_536);
    assert_eq!(hole(3 * FAR - 1).unwrap(), 3 * FAR - 1);
    assert_eq!(fails(hole(3 * FAR)), Errno::NXIO);
    assert_eq!(fails(data(3 * FAR)), Errno::NXIO);

    let full = file_with(&area, "full", &[1; 100_000]);
    assert_eq!(seek(&full, SeekFrom::Hole(0)).unwrap(), 100_000, "the end counts as a hole");
    assert_eq!(seek(&full, SeekFrom::Data(99_999)).unwrap(), 99_999);
    let empty = file_with(&area, "empty", b"");
    assert_eq!(fails(seek(&empty, SeekFrom::Data(0))), Errno::NXIO);
    let small = file_with(&area, "small", b"small enough to be kept elsewhere");
    assert_eq!(seek(&small, SeekFrom::Hole(3)).unwrap(), 33);
    assert_eq!(seek(&small, SeekFrom::Data(3)).unwrap(), 3);
}

#[test]
fn no_byte_of_data_lies_in_what_is_called_a_hole() {
    let area = Area::new();
    let file = file_with(&area, "f", b"");
    let mut wanted = vec![0u8; 12 << 20];
    for n in 0..40u64 {
        let at = ((n * 7_654_321) % (12 << 20)) as usize;
        let len = (n as usize * 997) % 30_000;
        let end = (at + len).min(wanted.len());
        wanted[at..end].fill(n as u8 + 1);
        file.write_all_at(&wanted[at..end], at as u64).unwrap();
    }
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3 << 20, 1 << 20).unwrap();
    wanted[3 << 20..4 << 20].fill(0);
    file.set_len(wanted.len() as u64).unwrap();
    let mut at = 0;
    while (at as usize) < wanted.len() {
        let data = seek(&file, SeekFrom::Data(at)).unwrap_or(wanted.len() as u64);
        assert!(data >= at);
        assert!(wanted[at as usize..data as usize].iter().all(|b| *b == 0), "data in a hole after {at}");
        if data == wanted.len() as u64 {
            break;
        }
        at = seek(&file, SeekFrom::Hole(data)).unwrap();
        assert!(at > data);
    }
    same_bytes(&all_of(&file), &wanted, "the file");
}

/// First data and first hole at or after a place; `None` for ENXIO.
fn sought(file: &File, from: u64) -> (Option<u64>, Option<u64>) {
    let found = |from| match seek(file, from) {
        Ok(at) => Some(at),
        Err(e) => {
            assert_eq!(e, Errno::NXIO);
            None
        }
    };
    (found(SeekFrom::Data(from)), found(SeekFrom::Hole(from)))
}

#[test]
fn small_files_have_holes_too_and_keep_them_when_they_grow() {
    const BLOCK: u64 = 4096;
    let area = Area::new();
    for size in [8193, 32_768, 1 << 20, 1 << 40] {
        let file = file_with(&area, &format!("front{size}"), &[7; 4096]);
        file.set_len(size).unwrap();
        let look = || {
            assert_eq!(sought(&file, 0), (Some(0), Some(BLOCK)), "size {size}");
            assert_eq!(sought(&file, 4095), (Some(4095), Some(BLOCK)), "size {size}");
            assert_eq!(sought(&file, BLOCK), (None, Some(BLOCK)), "size {size}");
            assert_eq!(sought(&file, size - 1), (None, Some(size - 1)), "size {size}");
            assert_eq!(sought(&file, size), (None, None), "size {size}");
        };
        look();
        file.sync_all().unwrap();
        look();
        let read_only = File::open(area.at(format!("front{size}"))).unwrap();
        assert_eq!(sought(&read_only, 0), (Some(0), Some(BLOCK)));
        drop(read_only);
        // A byte far behind: the bytes leave their place, and the hole stays.
        file.write_all_at(b"x", 3 << 20).unwrap();
        assert_eq!(sought(&file, 0), (Some(0), Some(BLOCK)));
        assert_eq!(sought(&file, BLOCK).0, Some(3 << 20));
    }
    let file = file_with(&area, "behind", b"");
    file.write_all_at(b"x", 5000).unwrap();
    assert_eq!(sought(&file, 0), (Some(BLOCK), Some(0)));
    file.write_all_at(b"x", 3 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!(sought(&file, 0), (Some(BLOCK), Some(0)));
    assert!(sought(&file, BLOCK).1.unwrap() <= 2 * BLOCK);
}
