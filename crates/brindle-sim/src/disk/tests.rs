//! Power cuts, crash points, and injected errors of the simulated disk.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use brindle_stdx::disk::{IoKind, OpenHow, read_file, replace_file};
use brindle_stdx::{Disk, DiskFile};
use futures_util::FutureExt;

use super::{DiskModel, DiskOp, SECTOR_LEN, SimDisk, Survival};
use crate::{Crash, Node, Sim};

fn new_disk(seed: u64) -> SimDisk {
    SimDisk::new(seed, DiskModel::default())
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
    for seed in 0..50 {
        let disk = new_disk(seed);
        durable_file(&disk, "/synced", &[1; 3000]);
        let file = disk.open("/unsynced", OpenHow::CreateNew).expect("new");
        file.write_at(&[2; 3000], 0).expect("written");
        let next = disk.kill();
        assert!(file.read_at(&mut [0], 0).is_err(), "a dead process reads nothing");
        assert!(disk.create_dir_all("/d").is_err() && disk.list("/").is_err(), "and has no effect");
        assert_eq!(read_file(&next, "/unsynced", 1 << 20).expect("kept"), [2; 3000]);
        let next = next.power_cut();
        assert_eq!(read_file(&next, "/synced", 1 << 20).expect("kept"), [1; 3000]);
    }
}

#[test]
fn unsynced_sectors_survive_independently_and_whole() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let disk = new_disk(seed);
        durable_file(&disk, "/f", &[1; 4 * SECTOR_LEN]);
        let file = disk.open("/f", OpenHow::Existing).expect("there");
        file.write_at(&[2; 4 * SECTOR_LEN], 0).expect("written");
        file.write_at(&[3; SECTOR_LEN], 0).expect("written");
        let bytes = disk.power_cut().read("/f").expect("the name was durable");
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
        let disk = new_disk(seed);
        durable_file(&disk, "/f", &[1; 4 * SECTOR_LEN]);
        let file = disk.open("/f", OpenHow::Existing).expect("there");
        for at in order {
            file.write_at(&[2; SECTOR_LEN], at * SECTOR_LEN as u64).expect("written");
        }
        disk.power_cut().read("/f")
    };
    for seed in 0..50 {
        assert_eq!(run(seed, [0, 1, 2, 3]), run(seed, [3, 1, 0, 2]));
    }
}

/// A node of a simulation, with a durable file of one byte value.
fn node_with_file(seed: u64, sectors: usize) -> (Arc<Sim>, Node, Arc<dyn DiskFile>) {
    let sim = Sim::new(seed);
    let node = Node::new(&sim, "a");
    durable_file(node.disk(), "/f", &vec![1; sectors * SECTOR_LEN]);
    let file = node.disk().open("/f", OpenHow::Existing).expect("there");
    (sim, node, file)
}

/// Syncs a file and makes other writes meanwhile.
fn sync_and_write(sim: &Sim, node: &Node, file: &dyn DiskFile, write: impl Fn() -> std::io::Result<()>) {
    let seams = node.seams();
    let synced = sim.run_until(1_000, async {
        let sync = file.sync_data_async();
        let later = async {
            seams.timeout_ms(0, std::future::pending::<()>()).await;
            write()
        };
        futures_util::future::join(sync, later).await
    });
    let (sync, write) = synced.expect("in time");
    sync.and(write).expect("no errors");
}

fn cut(node: &mut Node) -> SimDisk {
    node.crash(Crash::PowerCut);
    node.restart();
    node.disk().clone()
}

#[test]
fn a_write_after_the_sync_began_is_not_covered_by_it() {
    let mut lost = 0;
    for seed in 0..60 {
        let (sim, mut node, file) = node_with_file(seed, 2);
        file.write_at(&[2; SECTOR_LEN], 0).expect("written");
        sync_and_write(&sim, &node, &*file, || file.write_at(&[3; SECTOR_LEN], SECTOR_LEN as u64));
        let bytes = cut(&mut node).read("/f").expect("durable");
        assert_eq!(bytes[0], 2);
        lost += usize::from(bytes[SECTOR_LEN] == 1);
    }
    assert!((10..50).contains(&lost), "{lost} of 60");
}

#[test]
fn a_sync_keeps_its_promise_however_often_the_sector_is_written_meanwhile() {
    for seed in 0..60 {
        let (sim, mut node, file) = node_with_file(seed, 1);
        file.write_at(&[2; SECTOR_LEN], 0).expect("written");
        file.write_at(&[2; SECTOR_LEN], SECTOR_LEN as u64).expect("longer");
        sync_and_write(&sim, &node, &*file, || {
            (3..100u8).try_for_each(|n| {
                file.write_at(&[n; SECTOR_LEN], 0)?;
                file.write_at(&[n], SECTOR_LEN as u64 * 2 + u64::from(n))
            })
        });
        let bytes = cut(&mut node).read("/f").expect("durable");
        let (len, first) = (bytes.len(), bytes[0]);
        assert!(len >= 2 * SECTOR_LEN && first >= 2, "{len} bytes, the first {first}");
    }
}

#[test]
fn a_sync_that_was_interrupted_promises_nothing() {
    let mut lost = 0;
    for seed in 0..60 {
        let (sim, mut node, file) = node_with_file(seed, 1);
        node.disk().set_sync_ms(50, 60);
        node.seams().spawn("sync", async move {
            file.write_at(&[2; SECTOR_LEN], 0).expect("written");
            file.sync_data_async().await.expect("never ends");
            unreachable!("the power went first");
        });
        assert!(sim.run_until(20, std::future::pending::<()>()).is_err());
        lost += usize::from(cut(&mut node).read("/f").expect("durable")[0] == 1);
    }
    assert!((10..50).contains(&lost), "{lost} of 60");
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let mut vanished = 0;
    for seed in 0..60 {
        let disk = new_disk(seed);
        disk.create_dir_all("/d/e").expect("made");
        disk.sync_dir("/").expect("synced");
        disk.sync_dir("/d").expect("synced");
        let file = disk.open("/d/e/f", OpenHow::CreateNew).expect("new");
        file.write_at(b"x", 0).expect("written");
        file.sync_data().expect("synced: the contents, not the name");
        match disk.power_cut().read("/d/e/f") {
            None => vanished += 1,
            Some(bytes) => assert_eq!(bytes, b"x", "if the name is there, so are the synced contents"),
        }
    }
    assert!((10..50).contains(&vanished), "{vanished} of 60");
}

#[test]
fn names_below_a_directory_that_vanished_are_gone_too() {
    for seed in 0..60 {
        let disk = new_disk(seed);
        disk.create_dir_all("/d").expect("made");
        durable_file(&disk, "/d/f", b"x");
        disk.sync_dir("/d").expect("synced");
        let disk = disk.power_cut();
        assert_eq!(disk.stat("/d").is_ok(), disk.stat("/d/f").is_ok());
    }
}

#[test]
fn replacing_a_file_gives_the_old_or_the_new_contents_wherever_it_crashes() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        for crash_point in 0..7 {
            let disk = new_disk(seed);
            durable_file(&disk, "/f", b"old");
            disk.die_after(crash_point);
            let replaced = replace_file(&disk, "/f", b"new contents");
            assert_eq!((replaced.is_err(), disk.is_dead()), (crash_point < 6, crash_point < 6));
            let bytes = disk.power_cut().read("/f").expect("never gone");
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
        let disk = new_disk(seed);
        durable_file(&disk, "/f", b"old");
        let file = disk.open("/f.new", OpenHow::CreateNew).expect("new");
        file.write_at(b"new contents", 0).expect("written");
        // The sync of the file is missing here.
        disk.rename("/f.new", "/f").expect("renamed");
        disk.sync_dir("/").expect("synced");
        damaged += usize::from(disk.power_cut().read("/f").expect("there") != b"new contents");
    }
    assert!(damaged > 20, "{damaged} of 100");
}

#[test]
fn lengths_and_holes_read_as_on_linux() {
    let file = new_disk(1).open("/f", OpenHow::CreateNew).expect("new");
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
    let disk = new_disk(1);
    durable_file(&disk, "/f", &[1; 1024]);
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    disk.set_room_bytes(Some(3072));
    let full = file.write_at(&[2; 8192], 0).expect_err("full");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    file.write_at(&[2; 1024], 0).expect("overwriting needs no space");
    file.write_at(&[2; 3000], 1024).expect("fits");
    assert_eq!(disk.space("/").expect("space").available_bytes, 0);
    disk.remove("/f").expect("removing always works");
    drop(file);
    assert_eq!(disk.space("/").expect("space").available_bytes, 4096);
    disk.set_room_bytes(None);
    durable_file(&disk, "/g", &[1; 512]);
    let file = disk.open("/g", OpenHow::Existing).expect("there");
    disk.fail_next(DiskOp::Read, 1);
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    assert!(file.read_at(&mut [0; 4], 0).is_ok());
    assert!(disk.rot("/g", 17));
    let mut byte = [0];
    file.read_at(&mut byte, 17).expect("read");
    assert_eq!(byte, [0x11]);
    assert!(!disk.rot("/nowhere", 0));
}

#[test]
fn after_a_failed_sync_the_next_one_does_not_save_the_same_pages() {
    let disk = new_disk(1);
    durable_file(&disk, "/f", &[1; 512]);
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    file.write_at(&[2; 512], 0).expect("written");
    disk.fail_next(DiskOp::Sync, 1);
    file.sync_data().expect_err("injected");
    file.sync_data().expect("nothing is dirty any more");
    assert_eq!(disk.read("/f").expect("there")[0], 2, "still in the page cache");
    assert_eq!(disk.power_cut().read("/f").expect("there")[0], 1, "never on the platter");
}

#[test]
fn an_open_file_outlives_its_name_but_not_its_process() {
    let disk = new_disk(1);
    durable_file(&disk, "/f", b"x");
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    disk.remove("/f").expect("removed");
    assert_eq!(disk.open("/f", OpenHow::Existing).err().map(|e| e.kind()), Some(ErrorKind::NotFound));
    assert_eq!(file.len().expect("len"), 1);
    disk.kill();
    assert!(file.len().is_err());
}

#[test]
fn the_boot_identity_changes_at_power_cuts_only() {
    let identity = |disk: &SimDisk| disk.boot_identity("/").expect("known");
    let disk = new_disk(1);
    let first = identity(&disk);
    let disk = disk.kill();
    assert_eq!(identity(&disk), first);
    assert_ne!(identity(&disk.power_cut()), first);
}

#[test]
fn a_failed_sync_takes_written_lengths_and_keeps_those_that_were_set() {
    let disk = new_disk(1);
    for (path, written_again) in [("/lost", false), ("/again", true)] {
        durable_file(&disk, path, &[1; 2000]);
        let file = disk.open(path, OpenHow::Existing).expect("there");
        file.set_len(1000).expect("cut");
        file.write_at(&[2; 500], 1000).expect("written behind the end");
        disk.fail_next(DiskOp::Sync, 1);
        file.sync_data().expect_err("injected");
        if written_again {
            file.write_at(&[2; 500], 1000).expect("written again");
        }
        file.sync_data().expect("synced");
    }
    let disk = disk.power_cut();
    let read = |path: &str| disk.read(path).expect("there");
    assert_eq!(read("/lost"), [1; 1000]);
    assert_eq!(read("/again"), [[1; 1000].as_slice(), &[2; 500]].concat());
}

#[test]
fn a_power_cut_keeps_what_its_kind_says() {
    let outcomes = |survival| {
        let mut outcomes = BTreeSet::new();
        for seed in 0..80 {
            let disk = SimDisk::new(seed, DiskModel { survival, ..DiskModel::default() });
            durable_file(&disk, "/f", &[1; 4 * SECTOR_LEN]);
            let file = disk.open("/f", OpenHow::Existing).expect("there");
            file.write_at(&[2; 4 * SECTOR_LEN], 0).expect("written");
            file.write_at(&[2], 5000).expect("longer");
            disk.open("/g", OpenHow::CreateNew).expect("new");
            let disk = disk.power_cut();
            let bytes = disk.read("/f").expect("the name was durable");
            let sectors: Vec<u8> = bytes.chunks(SECTOR_LEN).take(4).map(|s| s[0]).collect();
            outcomes.insert((sectors, bytes.len(), disk.stat("/g").is_ok()));
        }
        outcomes
    };
    let nothing = (vec![1; 4], 4 * SECTOR_LEN, false);
    let everything = (vec![2; 4], 5001, true);
    assert_eq!(outcomes(Survival::Nothing), BTreeSet::from([nothing.clone()]));
    for survival in [Survival::Any, Survival::Mixed] {
        let all = outcomes(survival);
        assert!(all.len() > 20, "{survival:?}: {} outcomes", all.len());
        assert!(survival == Survival::Any || all.contains(&nothing) && all.contains(&everything));
    }
}

#[test]
fn a_rename_is_one_change_unless_the_disk_tears_renames() {
    for tears_renames in [false, true] {
        let mut outcomes = BTreeSet::new();
        for seed in 0..60 {
            let disk = SimDisk::new(seed, DiskModel { tears_renames, ..DiskModel::default() });
            durable_file(&disk, "/a", b"x");
            disk.rename("/a", "/b").expect("renamed");
            assert_eq!(disk.list("/").expect("listed"), ["b"]);
            outcomes.insert(disk.power_cut().files().len());
        }
        assert_eq!(outcomes, if tears_renames { BTreeSet::from([0, 1, 2]) } else { BTreeSet::from([1]) });
    }
}

/// Space in blocks of the usual size: a byte takes a whole one, and only whole ones are freed.
#[test]
fn space_is_taken_and_freed_in_blocks() {
    let disk = SimDisk::new(1, DiskModel { block_bytes: 4096, ..DiskModel::default() });
    let file = disk.open("/f", OpenHow::CreateNew).expect("new");
    file.write_at(&[1], 10_000).expect("written");
    let allocated = || file.stat().expect("stat").allocated_bytes;
    assert_eq!((allocated(), file.next_data(0).expect("sought")), (4096, Some(8192)));
    file.write_at(&[1; 8192], 0).expect("written");
    file.punch_hole(100, 5000).expect("punched");
    assert_eq!((allocated(), file.next_hole(0).expect("sought")), (3 * 4096, 10_001));
    file.punch_hole(0, 5000).expect("punched");
    assert_eq!((allocated(), file.next_data(0).expect("sought")), (2 * 4096, Some(4096)));
    file.allocate(1 << 20, 1 << 30, true).expect("allocated");
    assert_eq!(allocated(), 2 * 4096 + (1 << 30));
    file.set_len(4096).expect("cut");
    assert_eq!(allocated(), 0);
}

#[test]
fn a_write_to_a_full_disk_takes_what_fits() {
    let disk = SimDisk::new(1, DiskModel { block_bytes: 4096, ..DiskModel::default() });
    let file = disk.open("/f", OpenHow::CreateNew).expect("new");
    file.write_at(&[1; 100], 0).expect("written");
    disk.set_capacity_bytes(Some(8192));
    assert_eq!(file.write_at(&[2; 20_000], 50).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().expect("len"), 8192);
    assert_eq!((disk.used_bytes(), file.allocate(0, 20_000, true).is_err()), (8192, true));
    disk.keep_room("/kept", 1).expect_err("nothing is left");
    disk.set_capacity_bytes(None);
    file.write_at(&[2; 20_000], 50).expect("never full");
}

#[test]
fn what_was_allocated_may_be_lost_without_a_sync_and_bytes_keep_their_space() {
    let mut sizes = BTreeSet::new();
    for seed in 0..60 {
        let disk = new_disk(seed);
        durable_file(&disk, "/f", b"");
        let file = disk.open("/f", OpenHow::Existing).expect("there");
        file.allocate(0, 1 << 20, true).expect("allocated");
        file.write_at(&[7; SECTOR_LEN], 4096).expect("written");
        file.punch_hole(0, 1 << 20).expect("punched");
        let disk = disk.power_cut();
        let file = disk.open("/f", OpenHow::Existing).expect("there");
        sizes.insert(file.stat().expect("stat").allocated_bytes);
        if disk.read("/f").expect("there").iter().any(|b| *b != 0) {
            assert_eq!(file.next_hole(4096).expect("sought").min(4608), 4608, "a byte in a hole");
        }
    }
    assert!(sizes.len() > 5 && sizes.contains(&0), "{sizes:?}");
}

#[test]
fn injected_errors_hit_what_they_are_meant_for() {
    let disk = new_disk(1);
    durable_file(&disk, "/f", &[1; 2048]);
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    disk.fail_later(DiskOp::SyncFile, 1, 2);
    disk.sync_dir("/").expect("no file");
    let synced: Vec<bool> = (0..4).map(|_| file.sync_data().is_ok()).collect();
    assert_eq!(synced, [true, false, false, true]);
    disk.fail_writes_at("/f", 512, 1);
    let written: Vec<bool> = [0, 512, 512].map(|at| file.write_at(&[3], at).is_ok()).to_vec();
    assert_eq!(written, [true, false, true]);
    disk.fail_reads("/f", 600..700);
    let read = |at| file.read_at(&mut [0; 100], at).is_ok();
    assert_eq!([read(0), read(550), read(699), read(700)], [true, false, false, true]);
    file.write_at(&[4; 50], 600).expect("written");
    assert!(!read(600), "half of it is no cure");
    file.write_at(&[4; 100], 600).expect("written");
    assert!(read(600));
    disk.stick("/f");
    assert!(disk.remove("/f").is_err() && disk.stat("/f").is_ok());
    disk.limit_len(4096);
    assert_eq!(file.set_len(4097).expect_err("too long").kind(), ErrorKind::FileTooLarge);
    disk.make_direct_reads_stale();
    let mut byte = [9];
    file.read_direct(&mut byte, 0).expect("read");
    assert_eq!(byte, [0]);
    file.read_at(&mut byte, 0).expect("read");
    assert_eq!(byte, [3]);
    disk.flip("/f", 0);
    file.read_at(&mut byte, 0).expect("read");
    assert_eq!(byte, [0xfc]);
}

#[test]
fn syncs_pause_and_can_be_held_and_permits_are_bounded() {
    let disk = SimDisk::new(1, DiskModel { sync_pauses: 2, ..DiskModel::default() });
    durable_file(&disk, "/f", b"x");
    let file = disk.open("/f", OpenHow::Existing).expect("there");
    let mut sync = file.sync_data_async();
    let polls = (0..9).find(|_| (&mut sync).now_or_never().is_some());
    assert_eq!(polls, Some(2));
    disk.hold_syncs(true);
    let mut sync = file.sync_data_async();
    assert!((0..9).all(|_| (&mut sync).now_or_never().is_none()));
    disk.hold_syncs(false);
    sync.now_or_never().expect("let go").expect("synced");
    let permits = disk.limit_in_flight(1);
    let first = disk.admit(IoKind::Write, 1).now_or_never().expect("admitted");
    assert!(disk.admit(IoKind::Write, 1).now_or_never().is_none());
    assert_eq!(permits.available_permits(), 0);
    drop(first);
    assert!(disk.admit(IoKind::Read, 1).now_or_never().is_some());
}

#[test]
fn files_that_tests_put_there_are_durable_and_edited_in_place() {
    let disk = new_disk(1);
    disk.put("/d/e/f", b"abc");
    disk.put_dir("/g");
    let open = disk.open("/d/e/f", OpenHow::Existing).expect("there");
    disk.edit("/d/e/f", |bytes| bytes.push(b'd'));
    assert_eq!(open.len().expect("len"), 4);
    assert_eq!(disk.list("/").expect("listed"), ["d", "g"]);
    let hash = disk.ops_hash();
    let disk = disk.power_cut();
    assert_eq!(disk.contents().into_iter().collect::<Vec<_>>(), [("/d/e/f".to_owned(), b"abcd".to_vec())]);
    assert!(disk.stat("/g").expect("there").is_dir);
    assert_eq!(disk.ops_hash(), hash, "nobody but the test did anything");
    disk.create_dir_all("/h").expect("made");
    assert_ne!(disk.ops_hash(), hash);
}

#[test]
fn a_directory_is_renamed_with_all_that_is_in_it() {
    let disk = new_disk(1);
    disk.create_dir_all("/made").expect("made");
    disk.create_dir_all("/empty").expect("made");
    disk.sync_dir("/").expect("synced");
    durable_file(&disk, "/made/kept", &[1; 700]);
    disk.sync_dir("/made").expect("synced");
    disk.open("/made/new", OpenHow::CreateNew).expect("created");
    disk.rename("/made", "/empty").expect("over an empty directory");
    assert_eq!(disk.list("/empty").expect("there"), ["kept", "new"]);
    assert_eq!(disk.list("/").expect("there"), ["empty"]);
    assert!(disk.rename("/empty", "/empty/below").is_err());
    // Names in the directory are made durable by its new name, once that is durable.
    disk.sync_dir("/").expect("synced");
    disk.sync_dir("/empty").expect("synced");
    let disk = disk.power_cut();
    assert_eq!(disk.list("/empty").expect("there"), ["kept", "new"]);
    disk.create_dir_all("/full").expect("made");
    durable_file(&disk, "/full/one", &[1; 7]);
    disk.sync_dir("/full").expect("synced");
    assert!(disk.rename("/empty", "/full").is_err(), "something is in it");
    // A rename that is lost leaves what was durable under the former name.
    disk.rename("/empty", "/lost").expect("renamed");
    let disk = disk.power_cut();
    let under = |dir: &str| disk.list(dir).is_ok_and(|names| names == ["kept", "new"]);
    assert!(under("/empty") != under("/lost"), "one of the two names");
}

#[test]
fn a_disk_that_lies_loses_what_it_has_acknowledged() {
    let disk = SimDisk::new(1, DiskModel { survival: Survival::Nothing, ..DiskModel::default() });
    durable_file(&disk, "/kept", &[1; 700]);
    disk.lie(true);
    durable_file(&disk, "/lost", &[2; 700]);
    let disk = disk.power_cut();
    assert_eq!(disk.list("/").expect("there"), ["kept"]);
    disk.lie(false);
    durable_file(&disk, "/again", &[3; 700]);
    assert_eq!(disk.power_cut().list("/").expect("there"), ["again", "kept"]);
}
