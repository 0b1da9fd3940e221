//! Files mapped into memory, beside reads and writes of the same file.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use brindle_tests::area::{Area, mtime};
use brindle_tests::child::{Child, Ending};
use brindle_tests::maps::Map;
use brindle_tests::{bytes, fails, same_bytes};
use rustix::io::Errno;

const LEN: usize = 2 << 20;
const PAGE: usize = 4096;

fn file_with(area: &Area, data: &[u8]) -> File {
    let path = area.file("f", data);
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_shared_mapping_and_descriptors_see_each_other() {
    let area = Area::new();
    let file = file_with(&area, &bytes(1, LEN));
    let map = Map::shared(&file, LEN).unwrap();
    same_bytes(&map.read(0, LEN), &bytes(1, LEN), "mapped");
    map.write(1_000_000, &bytes(2, 100_000));
    map.sync(libc::MS_SYNC).unwrap();
    let mut found = vec![0; 100_000];
    file.read_exact_at(&mut found, 1_000_000).unwrap();
    same_bytes(&found, &bytes(2, 100_000), "mapped, written, synced, read");
    file.write_all_at(&bytes(3, 70_000), 990_000).unwrap();
    same_bytes(&map.read(990_000, 70_000), &bytes(3, 70_000), "written beside the mapping");
    map.write(5, b"no sync");
    drop(map);
    let mut seven = [0; 7];
    File::open(area.at("f")).unwrap().read_exact_at(&mut seven, 5).unwrap();
    assert_eq!(&seven, b"no sync");
}

#[test]
fn small_steps_in_turns() {
    let area = Area::new();
    let file = file_with(&area, &[0; 10_000]);
    let map = Map::shared(&file, 10_000).unwrap();
    for n in 0u8..100 {
        let at = usize::from(n) * 97;
        map.write(at, &[n; 10]);
        map.sync(libc::MS_SYNC).unwrap();
        let mut ten = [0; 10];
        file.read_exact_at(&mut ten, at as u64).unwrap();
        assert_eq!(ten, [n; 10], "round {n}: written through the mapping");
        file.write_all_at(&[n + 100; 10], at as u64 + 20).unwrap();
        assert_eq!(map.read(at + 20, 10), [n + 100; 10], "round {n}: written through the descriptor");
    }
}

#[test]
fn two_mappings_and_two_processes_share_one_file() {
    let area = Area::new();
    let file = file_with(&area, &[0; LEN]);
    let (a, b) = (
        Map::shared(&file, LEN).unwrap(),
        Map::shared(&File::options().read(true).write(true).open(area.at("f")).unwrap(), LEN).unwrap(),
    );
    a.write(777, b"hello");
    assert_eq!(b.read(777, 5), b"hello");
    let path = area.at("f");
    let mut child = Child::start(move |link| {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let map = Map::shared(&file, LEN)?;
        map.write(1 << 20, b"from the child");
        link.say(1)?;
        link.hear()?;
        let heard = map.read(2000, 4) == b"back";
        if heard { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::EPROTO)) }
    });
    child.hear();
    assert_eq!(a.read(1 << 20, 14), b"from the child");
    b.write(2000, b"back");
    child.say(1);
    child.ok();
}

#[test]
fn a_private_mapping_keeps_its_changes_to_itself() {
    let area = Area::new();
    let file = file_with(&area, &bytes(1, 100_000));
    let map = Map::new(&file, 0, 100_000, false, true).unwrap();
    map.write(50_000, b"mine");
    assert_eq!(map.read(50_000, 4), b"mine");
    drop(map);
    same_bytes(&fs::read(area.at("f")).unwrap(), &bytes(1, 100_000), "the file");
}

#[test]
fn behind_the_end_of_the_file_is_nothing() {
    let area = Area::new();
    let file = file_with(&area, &[1; 100]);
    let map = Map::shared(&file, 2 * PAGE).unwrap();
    assert_eq!(map.read(100, PAGE - 100), vec![0; PAGE - 100], "the rest of the last page");
    map.write(200, b"lost");
    map.sync(libc::MS_SYNC).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100);
    let touch = |at: usize| {
        let path = area.at("f");
        Child::start(move |_| {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            Map::shared(&file, 2 * PAGE)?.read(at, 1);
            Ok(())
        })
        .end()
    };
    assert_eq!(touch(50), Ending::Ok);
    assert_eq!(touch(PAGE), Ending::Signal(libc::SIGBUS));
    file.set_len(2 * PAGE as u64).unwrap();
    assert_eq!(touch(PAGE), Ending::Ok);
    let mut four = [1; 4];
    file.read_exact_at(&mut four, 200).unwrap();
    assert_eq!(four, [0; 4], "what was written behind the end does not appear when the file grows");
}

#[test]
fn a_mapping_follows_truncation() {
    let area = Area::new();
    let file = file_with(&area, &[7; 4 * PAGE]);
    let path = area.at("f");
    let mut child = Child::start(move |link| {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let map = Map::shared(&file, 4 * PAGE)?;
        map.read(3 * PAGE, 1);
        link.say(1)?;
        link.hear()?;
        map.read(3 * PAGE, 1);
        Ok(())
    });
    child.hear();
    let map = Map::shared(&file, 4 * PAGE).unwrap();
    file.set_len(PAGE as u64 + 10).unwrap();
    child.say(1);
    assert_eq!(child.end(), Ending::Signal(libc::SIGBUS));
    assert_eq!(map.read(PAGE, 20), [vec![7; 10], vec![0; 10]].concat());
    file.set_len(4 * PAGE as u64).unwrap();
    assert_eq!(map.read(PAGE + 10, 3 * PAGE - 10), vec![0; 3 * PAGE - 10]);
}

#[test]
fn rights_of_mappings_come_from_the_descriptor() {
    let area = Area::new();
    drop(file_with(&area, &[1; 100]));
    let reader = File::open(area.at("f")).unwrap();
    assert_eq!(fails(Map::shared(&reader, 100).map(drop)), Errno::ACCESS);
    Map::new(&reader, 0, 100, true, false).unwrap();
    Map::new(&reader, 0, 100, false, true).unwrap();
    let writer = OpenOptions::new().write(true).open(area.at("f")).unwrap();
    assert_eq!(fails(Map::new(&writer, 0, 100, true, false).map(drop)), Errno::ACCESS);
}

#[test]
fn writing_through_a_mapping_moves_the_times() {
    let area = Area::new();
    let file = file_with(&area, &[1; PAGE]);
    let before = mtime(&area.at("f"));
    area.tick();
    let map = Map::shared(&file, PAGE).unwrap();
    map.write(0, b"x");
    map.sync(libc::MS_SYNC).unwrap();
    drop((map, file));
    assert!(mtime(&area.at("f")) > before);
}

#[test]
fn a_mapping_outlives_its_descriptor_and_its_name() {
    let area = Area::new();
    let file = file_with(&area, &bytes(1, LEN));
    let map = Map::shared(&file, LEN).unwrap();
    drop(file);
    fs::remove_file(area.at("f")).unwrap();
    same_bytes(&map.read(0, LEN), &bytes(1, LEN), "mapped, closed, unlinked");
    map.write(0, &bytes(2, 10_000));
    map.sync(libc::MS_SYNC).unwrap();
    same_bytes(&map.read(0, 10_000), &bytes(2, 10_000), "written after that");
}

#[test]
fn a_file_is_written_from_its_own_mapping() {
    // The kernel has to bring in the pages of the buffer while it holds locks of the file.
    let area = Area::new();
    let data = bytes(1, LEN);
    drop(file_with(&area, &data));
    let path = area.at("f");
    let child = Child::start(move |_| {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let map = Map::shared(&file, LEN)?;
        for (from, to, len) in [(1 << 20, 0, 500_000), (0, 1_500_000, 400_000)] {
            // SAFETY: the buffer lies inside the mapping.
            let n = unsafe { libc::pwrite(file.as_raw_fd(), map.address().add(from).cast(), len, to) };
            if n != len as isize {
                return Err(std::io::Error::last_os_error());
            }
        }
        // SAFETY: as above.
        let n = unsafe { libc::pread(file.as_raw_fd(), map.address().add(600_000).cast(), 100_000, 1 << 20) };
        if n == 100_000 { map.sync(libc::MS_SYNC) } else { Err(std::io::Error::last_os_error()) }
    });
    child.ok();
    let mut wanted = data;
    wanted.copy_within((1 << 20)..(1 << 20) + 500_000, 0);
    wanted.copy_within(0..400_000, 1_500_000);
    wanted.copy_within((1 << 20)..(1 << 20) + 100_000, 600_000);
    same_bytes(&fs::read(area.at("f")).unwrap(), &wanted, "the file");
}

#[test]
fn holes_can_be_mapped_and_filled() {
    let area = Area::new();
    let file = file_with(&area, b"");
    file.set_len(LEN as u64).unwrap();
    let map = Map::shared(&file, LEN).unwrap();
    assert!(map.read(0, LEN).iter().all(|b| *b == 0));
    for at in (0..LEN).step_by(100_000) {
        map.write(at, &at.to_le_bytes());
    }
    map.sync(libc::MS_SYNC).unwrap();
    drop(map);
    let mut wanted = vec![0; LEN];
    for at in (0..LEN).step_by(100_000) {
        wanted[at..at + 8].copy_from_slice(&at.to_le_bytes());
    }
    same_bytes(&fs::read(area.at("f")).unwrap(), &wanted, "the file");
}

/// `cp --sparse` and tar look for data with lseek: what was changed through a mapping is data.
#[test]
fn what_is_changed_through_a_mapping_is_no_hole() {
    const MIB: usize = 1 << 20;
    let area = Area::new();
    let file = file_with(&area, &[]);
    file.write_all_at(&bytes(1, 64 << 10), 0).unwrap();
    file.write_all_at(b"end", 8 * MIB as u64).unwrap();
    let map = Map::shared(&file, 8 * MIB).unwrap();
    let looks = |file: &File, at: usize| {
        let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at as u64 - MIB as u64)).unwrap();
        assert!((at - MIB..=at).contains(&(data as usize)), "data at {data}");
        let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(at as u64)).unwrap();
        assert!(hole as usize > at, "a hole at {hole}");
    };
    map.write(4 * MIB, b"changed");
    looks(&file, 4 * MIB);
    let opened = File::open(area.at("f")).unwrap();
    map.write(6 * MIB, b"changed");
    looks(&opened, 6 * MIB);
    assert_eq!(map.read(4 * MIB, 7), b"changed");
}

/// (xfstests generic/346 does the like.) One process writes into every page, another stores into the same pages through a mapping:
/// while a small file grows, and in a large one.
#[test]
fn writes_and_mapped_stores_to_the_same_pages_are_both_kept() {
    const ROUNDS: usize = 15;
    const PAGES: usize = 64;
    let area = Area::new();
    for round in 0..ROUNDS {
        let path = area.file(&format!("f{round}"), b"");
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.set_len((PAGES * PAGE) as u64).unwrap();
        let store = {
            let path = path.clone();
            Child::start(move |_| {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let map = Map::shared(&file, PAGES * PAGE)?;
                (0..PAGES).for_each(|page| map.write(page * PAGE + 3072, b"MMMMMMMM"));
                Ok(())
            })
        };
        for page in 0..PAGES {
            file.write_all_at(b"WWWWWWWW", (page * PAGE + 1024) as u64).unwrap();
        }
        store.ok();
        file.sync_all().unwrap();
        let mut all = vec![0; PAGES * PAGE];
        file.read_exact_at(&mut all, 0).unwrap();
        for page in 0..PAGES {
            let at = page * PAGE;
            assert_eq!(&all[at + 1024..at + 1032], b"WWWWWWWW", "round {round}, page {page}: written");
            assert_eq!(&all[at + 3072..at + 3080], b"MMMMMMMM", "round {round}, page {page}: stored");
        }
    }
}
