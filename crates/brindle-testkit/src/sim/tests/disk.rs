//! Power cuts, crash points, and injected errors of the simulated disk.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use brindle_stdx::Disk;
use brindle_stdx::disk::{OpenHow, read_file, replace_file};

use super::for_seeds;
use crate::sim::{Crash, DiskOp, NodeSeams, SECTOR_LEN, World};

fn cut(world: &World, node: &str) -> NodeSeams {
    world.power_cut(node);
    world.restart(node)
}

/// A file whose name is durable and whose contents are `data`, synced.
fn durable_file(disk: &dyn Disk, path: &str, data: &[u8]) {
    let file = disk.open(path, OpenHow::CreateNew).expect("new");
    file.write_at(data, 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir("/").expect("synced");
}

#[test]
fn a_kill_keeps_everything_and_a_power_cut_what_was_synced() {
    for_seeds(50, |world| {
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/synced", &[1; 3000]);
        let file = node.seams.disk.open("/unsynced", OpenHow::CreateNew).expect("new");
        file.write_at(&[2; 3000], 0).expect("written");
        world.kill("a");
        assert!(file.read_at(&mut [0], 0).is_err(), "a dead process reads nothing");
        let node = world.restart("a");
        assert_eq!(read_file(&*node.seams.disk, "/unsynced", 1 << 20).expect("kept"), [2; 3000]);
        let node = cut(world, "a");
        assert_eq!(read_file(&*node.seams.disk, "/synced", 1 << 20).expect("kept"), [1; 3000]);
    });
}

#[test]
fn unsynced_sectors_survive_independently_and_whole() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let world = World::new(seed);
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/f", &[1; 4 * SECTOR_LEN]);
        let file = node.seams.disk.open("/f", OpenHow::Existing).expect("there");
        file.write_at(&[2; 4 * SECTOR_LEN], 0).expect("written");
        file.write_at(&[3; SECTOR_LEN], 0).expect("written");
        cut(&world, "a");
        let bytes = world.disk("a").read("/f").expect("the name was durable");
        let sectors: Vec<u8> = bytes.chunks(SECTOR_LEN).map(|s| s[0]).collect();
        for sector in bytes.chunks(SECTOR_LEN) {
            assert!(sector.iter().all(|b| *b == sector[0]), "a sector is never torn");
        }
        assert!(sectors[1..].iter().all(|b| (1..=2).contains(b)));
        outcomes.insert(sectors);
    }
    assert!(outcomes.len() > 12, "many different outcomes: {outcomes:?}");
    assert!(outcomes.contains(&vec![1; 4]) && outcomes.contains(&vec![3, 2, 2, 2]));
}

#[test]
fn what_a_cut_keeps_does_not_depend_on_the_order_of_independent_writes() {
    let run = |seed, order: [u64; 4]| {
        let world = World::new(seed);
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/f", &[1; 4 * SECTOR_LEN]);
        let file = node.seams.disk.open("/f", OpenHow::Existing).expect("there");
        for at in order {
            file.write_at(&[2; SECTOR_LEN], at * SECTOR_LEN as u64).expect("written");
        }
        cut(&world, "a");
        world.disk("a").read("/f")
    };
    for seed in 0..50 {
        assert_eq!(run(seed, [0, 1, 2, 3]), run(seed, [3, 1, 0, 2]));
    }
}

#[test]
fn a_write_after_the_sync_began_is_not_covered_by_it() {
    let mut lost = 0;
    for seed in 0..60 {
        let world = World::new(seed);
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/f", &[1; 2 * SECTOR_LEN]);
        let file = node.seams.disk.open("/f", OpenHow::Existing).expect("there");
        file.write_at(&[2; SECTOR_LEN], 0).expect("written");
        let synced = world.run_until(1_000, async {
            let sync = file.sync_data_async();
            let later = async {
                node.seams.timeout_ms(0, std::future::pending::<()>()).await;
                file.write_at(&[3; SECTOR_LEN], SECTOR_LEN as u64)
            };
            futures_util::future::join(sync, later).await
        });
        let (sync, write) = synced.expect("in time");
        sync.and(write).expect("no errors");
        cut(&world, "a");
        let bytes = world.disk("a").read("/f").expect("durable");
        assert_eq!(bytes[0], 2);
        lost += usize::from(bytes[SECTOR_LEN] == 1);
    }
    assert!((10..50).contains(&lost), "{lost} of 60");
}

#[test]
fn a_sync_keeps_its_promise_however_often_the_sector_is_written_meanwhile() {
    for seed in 0..60 {
        let world = World::new(seed);
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/f", &[1; SECTOR_LEN]);
        let file = node.seams.disk.open("/f", OpenHow::Existing).expect("there");
        file.write_at(&[2; SECTOR_LEN], 0).expect("written");
        file.write_at(&[2; SECTOR_LEN], SECTOR_LEN as u64).expect("longer");
        let synced = world.run_until(1_000, async {
            let sync = file.sync_data_async();
            let later = async {
                node.seams.timeout_ms(0, std::future::pending::<()>()).await;
                (3..30u8).try_for_each(|n| {
                    file.write_at(&[n; SECTOR_LEN], 0)?;
                    file.write_at(&[n], SECTOR_LEN as u64 * 2 + u64::from(n))
                })
            };
            futures_util::future::join(sync, later).await
        });
        let (sync, write) = synced.expect("in time");
        sync.and(write).expect("no errors");
        cut(&world, "a");
        let bytes = world.disk("a").read("/f").expect("durable");
        assert!(
            bytes.len() >= 2 * SECTOR_LEN && bytes[0] >= 2,
            "{} bytes, the first {}",
            bytes.len(),
            bytes[0]
        );
    }
}

#[test]
fn a_sync_that_was_interrupted_promises_nothing() {
    let mut lost = 0;
    for seed in 0..60 {
        let world = World::new(seed);
        let node = world.node("a");
        durable_file(&*node.seams.disk, "/f", &[1; SECTOR_LEN]);
        world.disk("a").set_sync_ms(50, 60);
        let disk = node.seams.disk.clone();
        node.seams.spawn("sync", async move {
            let file = disk.open("/f", OpenHow::Existing).expect("there");
            file.write_at(&[2; SECTOR_LEN], 0).expect("written");
            file.sync_data_async().await.expect("never ends");
            unreachable!("the power went first");
        });
        world.run_for(20);
        cut(&world, "a");
        lost += usize::from(world.disk("a").read("/f").expect("durable")[0] == 1);
    }
    assert!((10..50).contains(&lost), "{lost} of 60");
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let mut vanished = 0;
    for seed in 0..60 {
        let world = World::new(seed);
        let disk = world.node("a").seams.disk;
        disk.create_dir_all("/d/e").expect("made");
        disk.sync_dir("/").expect("synced");
        disk.sync_dir("/d").expect("synced");
        let file = disk.open("/d/e/f", OpenHow::CreateNew).expect("new");
        file.write_at(b"x", 0).expect("written");
        file.sync_data().expect("synced: the contents, not the name");
        cut(&world, "a");
        match world.disk("a").read("/d/e/f") {
            None => vanished += 1,
            Some(bytes) => assert_eq!(bytes, b"x", "if the name is there, so are the synced contents"),
        }
    }
    assert!((10..50).contains(&vanished), "{vanished} of 60");
}

#[test]
fn names_below_a_directory_that_vanished_are_gone_too() {
    for_seeds(60, |world| {
        let disk = world.node("a").seams.disk;
        disk.create_dir_all("/d").expect("made");
        durable_file(&*disk, "/d/f", b"x");
        disk.sync_dir("/d").expect("synced");
        let disk = cut(world, "a").seams.disk;
        assert_eq!(disk.stat("/d").is_ok(), disk.stat("/d/f").is_ok());
    });
}

#[test]
fn replacing_a_file_gives_the_old_or_the_new_contents_wherever_it_crashes() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        for crash_point in 0..7 {
            let world = World::new(seed);
            let node = world.node("a");
            durable_file(&*node.seams.disk, "/f", b"old");
            world.crash_after("a", crash_point, Crash::PowerCut);
            let disk = node.seams.disk.clone();
            node.seams.spawn("replace", async move { drop(replace_file(&*disk, "/f", b"new contents")) });
            world.run_for(10);
            cut(&world, "a");
            let bytes = world.disk("a").read("/f").expect("never gone");
            assert!(bytes == b"old" || bytes == b"new contents", "{bytes:?}");
            if crash_point == 6 {
                assert_eq!(bytes, b"new contents", "after its last operation it is durable");
            }
            outcomes.insert((crash_point, bytes));
        }
    }
    assert!(outcomes.len() > 6, "both outcomes occur: {outcomes:?}");
}

#[test]
fn a_careless_replacement_is_caught() {
    let mut damaged = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let disk = world.node("a").seams.disk;
        durable_file(&*disk, "/f", b"old");
        let file = disk.open("/f.new", OpenHow::CreateNew).expect("new");
        file.write_at(b"new contents", 0).expect("written");
        // The sync of the file is missing here.
        disk.rename("/f.new", "/f").expect("renamed");
        disk.sync_dir("/").expect("synced");
        cut(&world, "a");
        damaged += usize::from(world.disk("a").read("/f").expect("there") != b"new contents");
    }
    assert!(damaged > 20, "{damaged} of 100");
}

#[test]
fn lengths_and_holes_read_as_on_linux() {
    let world = World::new(1);
    let file = world.node("a").seams.disk.open("/f", OpenHow::CreateNew).expect("new");
    file.write_at(b"abcdef", 5000).expect("written");
    assert_eq!(file.len().expect("len"), 5006);
    let mut buf = [9; 12];
    assert_eq!(file.read_at(&mut buf, 4998).expect("read"), 8);
    assert_eq!(&buf[..8], b"\0\0abcdef");
    assert_eq!(file.next_data(0).expect("data"), Some(4608));
    assert_eq!(file.next_hole(4700).expect("hole"), 5006);
    file.set_len(5003).expect("cut");
    file.set_len(6000).expect("extended");
    assert_eq!(file.read_at(&mut buf, 5000).expect("read"), 12);
    assert_eq!(&buf, b"abc\0\0\0\0\0\0\0\0\0");
    file.write_at(&[7; 2048], 0).expect("written");
    file.punch_hole(100, 1500).expect("punched");
    assert_eq!(file.next_hole(0).expect("hole"), 512);
    assert_eq!(file.next_data(600).expect("data"), Some(1536));
    let mut all = vec![0; 2048];
    file.read_at(&mut all, 0).expect("read");
    assert!(all[..100].iter().chain(&all[1600..]).all(|b| *b == 7) && all[100..1600].iter().all(|b| *b == 0));
    file.allocate(0, 8192, true).expect("allocated");
    assert_eq!((file.len().expect("len"), file.next_hole(0).expect("hole")), (6000, 6000));
    assert_eq!(file.stat().expect("stat").allocated_bytes, 8192);
}

#[test]
fn full_disks_and_injected_errors_are_reported_and_leave_the_rest_alone() {
    let world = World::new(1);
    let disk = world.node("a").seams.disk;
    durable_file(&*disk, "/f", &[1; 1024]);
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    let control = world.disk("a");
    control.set_room_bytes(Some(3072));
    let full = file.write_at(&[2; 8192], 0).expect_err("full");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    file.write_at(&[2; 1024], 0).expect("overwriting needs no space");
    file.write_at(&[2; 3000], 1024).expect("fits");
    assert_eq!(disk.space("/").expect("space").available_bytes, 0);
    disk.remove("/f").expect("removing always works");
    drop(file);
    assert_eq!(disk.space("/").expect("space").available_bytes, 4096);
    control.set_room_bytes(None);
    durable_file(&*disk, "/g", &[1; 512]);
    let file = disk.open("/g", OpenHow::Existing).expect("there");
    control.fail_next(DiskOp::Read, 1);
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    assert!(file.read_at(&mut [0; 4], 0).is_ok());
    assert!(control.rot("/g", 17));
    let mut byte = [0];
    file.read_at(&mut byte, 17).expect("read");
    assert_eq!(byte, [0x11]);
    assert!(!control.rot("/nowhere", 0));
}

#[test]
fn after_a_failed_sync_the_next_one_does_not_save_the_same_pages() {
    let world = World::new(1);
    let disk = world.node("a").seams.disk;
    durable_file(&*disk, "/f", &[1; 512]);
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    file.write_at(&[2; 512], 0).expect("written");
    world.disk("a").fail_next(DiskOp::Sync, 1);
    file.sync_data().expect_err("injected");
    file.sync_data().expect("nothing is dirty any more");
    assert_eq!(world.disk("a").read("/f").expect("there")[0], 2, "still in the page cache");
    cut(&world, "a");
    assert_eq!(world.disk("a").read("/f").expect("there")[0], 1, "never on the platter");
}

#[test]
fn an_open_file_outlives_its_name_but_not_its_process() {
    let world = World::new(1);
    let disk = world.node("a").seams.disk;
    durable_file(&*disk, "/f", b"x");
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    disk.remove("/f").expect("removed");
    assert_eq!(disk.open("/f", OpenHow::Existing).err().map(|e| e.kind()), Some(ErrorKind::NotFound));
    assert_eq!(file.len().expect("len"), 1);
    world.kill("a");
    assert!(file.len().is_err());
}

#[test]
fn the_boot_identity_changes_at_power_cuts_only() {
    let world = World::new(1);
    let identity = |node: NodeSeams| node.seams.disk.boot_identity("/").expect("known");
    let first = identity(world.node("a"));
    world.kill("a");
    assert_eq!(identity(world.restart("a")), first);
    assert_ne!(identity(cut(&world, "a")), first);
}

#[test]
fn a_failed_sync_takes_written_lengths_and_keeps_those_that_were_set() {
    let world = World::new(1);
    let disk = world.node("a").seams.disk;
    for (path, written_again) in [("/lost", false), ("/again", true)] {
        durable_file(&*disk, path, &[1; 2000]);
        let file = disk.open(path, OpenHow::Existing).expect("there");
        file.set_len(1000).expect("cut");
        file.write_at(&[2; 500], 1000).expect("written behind the end");
        world.disk("a").fail_next(DiskOp::Sync, 1);
        file.sync_data().expect_err("injected");
        if written_again {
            file.write_at(&[2; 500], 1000).expect("written again");
        }
        file.sync_data().expect("synced");
    }
    cut(&world, "a");
    let read = |path: &str| world.disk("a").read(path).expect("there");
    assert_eq!(read("/lost"), [1; 1000]);
    assert_eq!(read("/again"), [[1; 1000].as_slice(), &[2; 500]].concat());
}
