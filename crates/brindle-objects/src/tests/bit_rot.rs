//! Damage that no crash explains is always reported, named, and never returned or blessed.

use brindle_types::Code;

use super::*;
use crate::check::{Problem, check};
use crate::format::{REGION, data_pos, sum_pos};
use crate::names;

fn synced(bytes: usize) -> (Bench, Vec<u8>) {
    synced_from(9, bytes)
}

fn synced_from(seed: u64, bytes: usize) -> (Bench, Vec<u8>) {
    let b = Bench::new(seed);
    let data = noise(1, bytes);
    b.write(0, &data).expect("written");
    b.sync().expect("synced");
    b.pass_ms(2000);
    (b, data)
}

fn file() -> String {
    names::path("/ost", &O)
}

fn problems(b: &Bench) -> Vec<Problem> {
    let mut all = Vec::new();
    check(&b.disk, "/ost", true, |c| all.extend(c.problems)).expect("checked");
    all
}

#[test]
fn a_rotten_block_is_named_and_its_neighbours_are_read() {
    let (mut b, data) = synced(20_000);
    assert_eq!(problems(&b), []);
    b.disk.flip(&file(), data_pos(8192 + 77));
    for turn in 0..3 {
        let fault = b.read(8000, 1000).expect_err("damaged");
        assert_eq!(fault.code, Code::ObjectDamaged);
        assert_eq!(fault.subject, format!("object {O} at offset 8192 (4096 bytes)"));
        assert_eq!(b.read(0, 8192).expect("good"), data[..8192]);
        assert_eq!(b.read(12_288, 9000).expect("good"), data[12_288..]);
        assert!(matches!(problems(&b)[..], [Problem::Block(8192, _, _)]), "{:?}", problems(&b));
        b.pass_ms(250);
        match turn {
            0 => b.restart(),
            _ => b.power_cut(),
        }
    }
    assert_eq!(b.store.findings().len(), 2, "each boot term tells of it once");
    let part = b.write(8192, &[1; 100]).expect_err("part of a damaged block");
    assert_eq!(part.code, Code::ObjectDamaged);
    b.write(8192, &[2; 4096]).expect("all of it");
    assert_eq!(b.read(8192, 4096).expect("healed"), vec![2; 4096]);
}

#[test]
fn rot_in_sums_headers_and_names_is_damage_too() {
    let (b, _) = synced(5000);
    b.disk.flip(&file(), sum_pos(1));
    assert_eq!(b.read(4096, 10).expect_err("its sum is rotten").code, Code::ObjectDamaged);

    let (mut b, _) = synced(5000);
    b.disk.flip(&file(), 20);
    b.restart();
    assert_eq!(b.read(0, 10).expect_err("its header is rotten").code, Code::ObjectDamaged);
    assert_eq!(b.write(0, &[1]).expect_err("its header is rotten").code, Code::ObjectDamaged);
    assert!(matches!(problems(&b)[..], [Problem::Header(_)]));
    assert_eq!(block_on(b.store.destroy(&[O])).expect("it can be removed").removed, 1);

    let (mut b, _) = synced(5000);
    let other = ObjectId { stripe: 1, ..O };
    b.write_to(other, 0, b"other").expect("written");
    let (one, two) = (file(), names::path("/ost", &other));
    for (from, to) in [(one.as_str(), "/ost/x"), (two.as_str(), one.as_str()), ("/ost/x", two.as_str())] {
        brindle_stdx::Disk::rename(&b.disk, from, to).expect("renamed");
    }
    b.restart();
    let fault = b.read(0, 10).expect_err("swapped");
    assert_eq!(fault.code, Code::ObjectDamaged);
    assert_eq!(fault.why[0], format!("its file holds object {other}"));
}

#[test]
fn an_object_cut_by_others_is_damaged_behind_its_end() {
    let (mut b, data) = synced(20_000);
    let opened = brindle_stdx::Disk::open(&b.disk, &file(), brindle_stdx::disk::OpenHow::Existing);
    opened.expect("open").set_len(data_pos(8192)).expect("cut");
    b.restart();
    assert_eq!(b.read(0, 8192).expect("what is left"), data[..8192]);
    assert_eq!(b.read(0, 8193).expect_err("what is gone").code, Code::ObjectDamaged);
    assert!(matches!(problems(&b)[..], [Problem::Header(_)]));
}

#[test]
fn cutting_through_a_damaged_block_leaves_it_damaged() {
    // A power cut may keep the mark of the cut that is under way, or the end of it.
    for seed in 0..20 {
        let (mut b, _) = synced_from(seed, 20_000);
        b.disk.flip(&file(), data_pos(4096));
        b.truncate(6000).expect("a cut is always possible");
        assert_eq!(b.read(4096, 10).expect_err("still damaged").code, Code::ObjectDamaged);
        b.power_cut();
        assert_eq!(b.read(4096, 10).expect_err("still damaged").code, Code::ObjectDamaged, "seed {seed}");
        b.truncate(4096).expect("the damage goes");
        b.truncate(9000).expect("extended");
        assert_eq!(b.read(4096, 5000).expect("zeros"), vec![0; 4904]);
    }
}

#[test]
fn extending_within_a_damaged_block_leaves_it_damaged() {
    let (mut b, data) = synced(5000);
    b.disk.flip(&file(), data_pos(4096));
    b.truncate(6000).expect("an extension is always possible");
    assert_eq!(b.read(4096, 10).expect_err("still damaged").code, Code::ObjectDamaged);
    b.restart();
    assert_eq!(b.read(4096, 10).expect_err("still damaged").code, Code::ObjectDamaged);
    assert_eq!(b.read(0, 4096).expect("good"), data[..4096]);

    let (mut b, data) = synced(5000);
    b.truncate(6000).expect("extended");
    assert_eq!(b.read(0, 5000).expect("good"), data);
    assert_eq!(b.read(5000, 2000).expect("zeros"), vec![0; 1000]);
}

#[test]
fn a_kill_in_a_reservation_blesses_nothing() {
    for operation in 0..8 {
        let (mut b, _) = synced(20_000);
        b.disk.flip(&file(), data_pos(4096));
        b.disk.die_after(operation);
        // The result is the same whether or not the operation ended before the process.
        drop(b.allocate(0, 30_000, false));
        b.restart();
        let fault = b.read(4096, 10).expect_err("no crash explains it");
        assert_eq!(fault.code, Code::ObjectDamaged, "killed at operation {operation}");
    }
}

#[test]
fn a_mark_makes_its_region_lenient_and_no_other() {
    let (mut b, _) = synced(2 * REGION as usize);
    b.write(0, &[7; 10]).expect("an overwrite, unsynced");
    b.disk.flip(&file(), data_pos(REGION + 5));
    b.power_cut();
    assert_eq!(b.read(REGION, 10).expect_err("not marked").code, Code::ObjectDamaged);
    b.read(0, REGION).expect("marked");
    b.pass_ms(2000);
    b.disk.flip(&file(), data_pos(100_000));
    b.power_cut();
    assert_eq!(b.read(100_000, 10).expect_err("the mark is gone").code, Code::ObjectDamaged);
}

#[test]
fn unsynced_blocks_are_verified_strictly_while_the_boot_term_lasts() {
    let mut b = Bench::new(1);
    b.write(0, &[1; 9000]).expect("written, unsynced");
    b.disk.flip(&file(), data_pos(50));
    assert_eq!(b.read(0, 10).expect_err("no crash explains it").code, Code::ObjectDamaged);
    b.restart();
    assert_eq!(b.read(0, 10).expect_err("a kill tears only what was in flight").code, Code::ObjectDamaged);
}
