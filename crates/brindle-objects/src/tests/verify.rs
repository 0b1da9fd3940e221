//! Reads of the scrub: every damaged block is told, with the checksums of all, and nothing is counted or changed.

use brindle_types::Code;

use super::*;
use crate::format::{BLOCK, data_pos, sum_pos};
use crate::{DamagedBlock, names};

fn file() -> String {
    names::path("/ost", &O)
}

fn verified(b: &Bench, from_block: u64, count: u64) -> crate::Verified {
    block_on(b.store.verify(O, from_block, count)).expect("verified")
}

fn damaged(b: &Bench) -> Vec<u64> {
    verified(b, 0, 256).damaged.iter().map(|DamagedBlock { block, .. }| *block).collect()
}

#[test]
fn all_damaged_blocks_are_told_and_nothing_is_counted() {
    let b = Bench::new(3);
    b.write(0, &noise(1, 600_000)).expect("written");
    b.sync().expect("synced");
    assert_eq!(damaged(&b), []);
    for block in [2, 3, 100] {
        b.disk.flip(&file(), data_pos(block * BLOCK + 5));
    }
    b.disk.flip(&file(), sum_pos(50));
    assert_eq!(damaged(&b), [2, 3, 50, 100]);
    assert_eq!(verified(&b, 3, 40).damaged.len(), 1);
    assert_eq!((b.stat("damaged_blocks"), b.store.findings().len()), (0, 0));
    let seen = verified(&b, 0, 256);
    let (image, sums) = block_on(b.store.look(O, 0, 256)).expect("looked at");
    assert_eq!((seen.image, seen.sums), (image, sums), "checksums as they are stored");
    b.write(3 * BLOCK, &noise(2, 4096)).expect("written anew");
    assert_eq!(damaged(&b), [2, 50, 100]);
}

#[test]
fn ends_holes_and_objects_that_are_not_there_are_no_damage() {
    let b = Bench::new(4);
    assert!(!verified(&b, 0, 256).image.exists);
    b.write(9 << 20, &noise(1, 5000)).expect("written");
    assert_eq!((damaged(&b), verified(&b, 0, 256).read_bytes), (vec![], 0), "a hole is not read");
    let last = verified(&b, (9 << 20) / BLOCK, 256);
    assert_eq!((last.damaged.len(), last.sums.len()), (0, 8));
    assert_eq!(verified(&b, 1 << 20, 256).sums.len(), 0, "behind the end");
}

#[test]
fn after_a_crash_torn_blocks_are_put_right_before_and_a_bad_header_is_told() {
    let mut b = Bench::new(5);
    b.write(0, &noise(1, 100_000)).expect("written");
    b.sync().expect("synced");
    for seed in 0..20 {
        b.write(8192, &noise(seed, 50_000)).expect("written over");
        b.power_cut();
        assert_eq!(damaged(&b), [], "seed {seed}");
    }
    b.sync().expect("synced");
    b.restart();
    b.disk.flip(&file(), 100);
    let fault = block_on(b.store.verify(O, 0, 256)).expect_err("its header is rotten");
    assert_eq!(fault.code, Code::ObjectDamaged);
}
