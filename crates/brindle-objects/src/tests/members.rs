//! Two stores with the same objects, as members of a replica set have them. A block that rots on one is whole on the other, and stays whole
//! after power cuts and kills. Blocks that a crash has torn are put right. Holes of any length cost nothing.

use std::collections::BTreeSet;

use brindle_stdx::BoxFuture;
use brindle_types::Code;

use super::*;
use crate::format::{BLOCK, REGION, REGION_BLOCKS, data_pos, sum_pos};
use crate::{OtherCopies, WantedBlocks, names};

const BLOCKS: u64 = 40;

fn file() -> String {
    names::path("/ost", &O)
}

/// The copy on another member.
struct Other(Arc<ObjectStore>);

impl OtherCopies for Other {
    fn whole_blocks<'a>(&'a self, wanted: &'a WantedBlocks) -> BoxFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let read =
                self.0.read(wanted.object, wanted.offset(), wanted.len_bytes(), &Ticket::default()).await;
            read.ok().map(|read| read.data)
        })
    }
}

fn other(b: &Bench) -> Option<Arc<dyn OtherCopies>> {
    Some(Arc::new(Other(b.store.clone())))
}

/// Members with the same synced bytes.
fn members(seed: u64, bytes: usize) -> (Bench, Bench, Vec<u8>) {
    let data = noise(1, bytes);
    let member = |seed: u64| {
        let mut b = Bench::new(seed);
        b.is_member = true;
        b.restart();
        block_on(b.store.settle_left(None, None)).expect("nothing is left");
        b.write(0, &data).expect("written");
        b.sync().expect("synced");
        b.pass_ms(2000);
        b
    };
    (member(2 * seed + 1), member(2 * seed + 2), data)
}

#[test]
fn a_power_cut_of_all_blesses_no_rot_that_another_member_has_whole() {
    let (mut a, mut b, data) = members(1, 100_000);
    a.disk.flip(&file(), data_pos(5 * BLOCK + 7));
    for member in [&a, &b] {
        member.write(9 * BLOCK, &noise(2, 4096)).expect("another block of the region, unsynced");
    }
    a.power_cut();
    b.power_cut();
    block_on(b.store.settle_left(None, None)).expect("the one that does not lead");
    block_on(a.store.settle_left(None, other(&b))).expect("the one that leads");
    assert_eq!(a.read(5 * BLOCK, BLOCK).expect("whole"), data[5 * 4096..6 * 4096]);
    a.power_cut();
    block_on(a.store.settle_left(None, None)).expect("nothing is left");
    assert_eq!(a.read(5 * BLOCK, BLOCK).expect("whole"), data[5 * 4096..6 * 4096]);
}

#[test]
fn a_kill_blesses_no_rot_in_what_was_in_flight() {
    let (mut kills, mut taken) = (0, 0);
    for operation in 0..12 {
        let (mut a, b, data) = members(1, 100_000);
        a.disk.flip(&file(), data_pos(5 * BLOCK + 7));
        a.disk.die_after(operation);
        let new = noise(2, 3 * 4096);
        kills += u32::from(a.write(4 * BLOCK, &new).is_err());
        a.restart();
        block_on(a.store.settle_left(other(&b), None)).expect("settled");
        match a.read(5 * BLOCK, BLOCK) {
            Ok(read) if read == data[5 * 4096..6 * 4096] => taken += 1,
            Ok(read) => assert!(read == new[4096..8192], "killed at {operation}"),
            // The write had not begun.
            Err(fault) => assert_eq!(fault.code, Code::ObjectDamaged, "killed at {operation}"),
        }
    }
    assert!(kills > 2 && taken > 0, "{kills} kills, {taken} taken from the other one");
}

#[test]
fn blocks_that_no_member_has_whole_count_as_they_are() {
    for seed in 0..30 {
        let (mut a, _, _) = members(seed, 100_000);
        let before = a.read(0, 100_000).expect("read");
        let new = noise(seed + 9, 60_000);
        a.write(8192, &new).expect("written over, unsynced");
        a.power_cut();
        struct Nobody;
        impl OtherCopies for Nobody {
            fn whole_blocks<'a>(&'a self, _: &'a WantedBlocks) -> BoxFuture<'a, Option<Bytes>> {
                Box::pin(async { None })
            }
        }
        block_on(a.store.settle_left(None, Some(Arc::new(Nobody)))).expect("settled");
        let after = a.read(0, 100_000).expect("every block can be read");
        let is_one_of = |at: usize| {
            let written = at.checked_sub(8192).and_then(|at| new.get(at));
            after[at] == before[at] || Some(&after[at]) == written
        };
        assert!((0..100_000).all(is_one_of), "seed {seed}");
    }
}

/// After any writes, power cuts and rotten blocks, each byte is the synced one or one that was written since.
#[test]
fn each_byte_is_the_synced_one_or_a_later_one() {
    for seed in 0..60 {
        let (mut a, mut b, synced) = members(seed, (BLOCKS * BLOCK) as usize);
        let mut legal: Vec<BTreeSet<u8>> = synced.iter().map(|byte| BTreeSet::from([*byte])).collect();
        let mut touched = BTreeSet::new();
        let mut draw = noise(seed + 77, 64).into_iter();
        let mut next = || u64::from(draw.next().unwrap_or_default());
        for _ in 0..1 + next() % 5 {
            let len = 1 + (next() * 61) % 20_000;
            let offset = (next() * 613 + next()) % (BLOCKS * BLOCK - len);
            let bytes = noise(next() + seed, len as usize);
            for member in [&a, &b] {
                member.write(offset, &bytes).expect("written, unsynced");
            }
            touched.extend(offset / BLOCK..=(offset + len - 1) / BLOCK);
            bytes.iter().enumerate().for_each(|(n, byte)| {
                legal[offset as usize + n].insert(*byte);
            });
        }
        let rotten: Vec<u64> = (0..BLOCKS).filter(|block| !touched.contains(block)).step_by(3).collect();
        rotten.iter().for_each(|block| a.disk.flip(&file(), data_pos(block * BLOCK + seed)));
        a.power_cut();
        b.power_cut();
        block_on(b.store.settle_left(None, None)).expect("settled");
        block_on(a.store.settle_left(None, other(&b))).expect("settled");
        for block in 0..BLOCKS {
            let read = a.read(block * BLOCK, BLOCK).expect("every block is whole");
            let at = (block * BLOCK) as usize;
            let is_legal = read.iter().enumerate().all(|(n, byte)| legal[at + n].contains(byte));
            assert!(is_legal, "seed {seed}, block {block}, rotten {rotten:?}");
        }
    }
}

#[test]
fn a_part_of_a_damaged_block_is_written_where_another_member_has_it_whole() {
    let (a, b, mut data) = members(3, 20_000);
    a.disk.flip(&file(), data_pos(BLOCK));
    a.disk.fail_reads(&file(), data_pos(3 * BLOCK)..data_pos(3 * BLOCK) + 512);
    assert_eq!(a.write(BLOCK + 100, b"part").expect_err("alone").code, Code::ObjectDamaged);
    a.store.ask_others(other(&b));
    // Damage both edges: one has a wrong checksum, one cannot be read.
    let bytes = noise(7, 2 * 4096);
    a.write(BLOCK + 100, &bytes).expect("written");
    data[4196..4196 + bytes.len()].copy_from_slice(&bytes);
    assert_eq!(a.read(0, 20_000).expect("whole"), data);
    a.disk.flip(&file(), data_pos(2 * BLOCK));
    b.disk.flip(&file(), data_pos(2 * BLOCK));
    assert_eq!(a.write(2 * BLOCK, b"part").expect_err("on both").code, Code::ObjectDamaged);
    // A hole whose edges are damaged.
    a.write(2 * BLOCK, &data[8192..12_288]).expect("all of it");
    a.disk.flip(&file(), data_pos(0));
    a.punch(10, 100, false).expect("punched");
    data[10..110].fill(0);
    assert_eq!(a.read(0, 4096).expect("whole"), data[..4096]);
}

#[test]
fn to_mend_leaves_no_write_intent_and_is_durable() {
    let (mut a, b, data) = members(4, 100_000);
    a.disk.flip(&file(), data_pos(5 * BLOCK));
    let whole = b.read(5 * BLOCK, BLOCK).expect("whole");
    let before = block_on(a.store.look(O, 0, 0)).expect("looked at");
    block_on(a.store.mend(O, 5 * BLOCK, whole.clone(), crc(&whole))).expect("mended");
    assert_eq!(block_on(a.store.look(O, 0, 0)).expect("looked at"), before);
    assert_eq!(a.store.intents.objects(), []);
    a.disk.flip(&file(), data_pos(6 * BLOCK));
    a.power_cut();
    block_on(a.store.settle_left(None, None)).expect("settled");
    assert_eq!(a.read(6 * BLOCK, 10).expect_err("rot in the same region").code, Code::ObjectDamaged);
    assert_eq!(a.read(5 * BLOCK, BLOCK).expect("durable"), data[5 * 4096..6 * 4096]);
}

#[test]
fn the_longest_object_with_two_blocks_of_data_is_passed_in_a_few_steps() {
    let (mut a, _, _) = members(5, 5000);
    let far = 1 << 61;
    a.truncate(far).expect("longer");
    a.write(far - BLOCK, &noise(1, 4096)).expect("written");
    let (mut steps, mut block) = (0, Some(0));
    let mut read_bytes = 0;
    while let Some(from) = block {
        let seen = block_on(a.store.verify(O, from, 256)).expect("verified");
        (steps, block) = (steps + 1, seen.next_data);
        read_bytes += seen.read_bytes;
        assert!(steps <= 2 * REGION_BLOCKS / 256, "from {from}");
    }
    assert!(read_bytes <= 2 * REGION, "{read_bytes}");
    assert_eq!(block_on(a.store.next_data(O, 0)).expect("found"), Some(0));
    let last_region = (far / BLOCK - 1) / REGION_BLOCKS * REGION_BLOCKS;
    assert_eq!(block_on(a.store.next_data(O, REGION_BLOCKS)).expect("found"), Some(last_region));
    assert_eq!(block_on(a.store.next_data(O, far / BLOCK)).expect("found"), None);
    let (listed, _) = block_on(a.store.list(None, 10)).expect("listed");
    assert_eq!(listed[0].len_bytes, far);
    assert!(listed[0].allocated_bytes < REGION, "{:?}", listed[0]);
}

#[test]
fn what_the_disk_does_not_return_is_named_and_the_rest_goes_on() {
    let (mut a, _, _) = members(6, 100_000);
    let second = ObjectId { ino: Ino(0x78), ..O };
    a.write_to(second, 0, b"second").expect("written");
    block_on(a.store.sync(&[second])).expect("synced");
    a.disk.fail_reads(&file(), data_pos(4 * BLOCK)..data_pos(4 * BLOCK) + 512);
    let seen = block_on(a.store.verify(O, 0, 256)).expect("verified");
    let damaged: Vec<u64> = seen.damaged.iter().map(|damaged| damaged.block).collect();
    assert_eq!((damaged, seen.read_bytes), (vec![4], 24 * BLOCK));
    a.write(4 * BLOCK, &noise(3, 4096)).expect("written anew");
    assert_eq!(block_on(a.store.verify(O, 0, 256)).expect("verified").damaged, []);
    // Sums, and so a whole region.
    a.disk.fail_reads(&file(), sum_pos(0)..sum_pos(0) + 512);
    assert_eq!(block_on(a.store.verify(O, 0, 256)).expect_err("none of it").code, Code::OstIo);
    // The header of a short file: the list goes on behind it.
    a.restart();
    block_on(a.store.settle_left(None, None)).expect("settled");
    let empty = ObjectId { ino: Ino(0x79), ..O };
    block_on(a.store.truncate(empty, 0, pair(1), true, false)).expect("made");
    a.disk.fail_reads(&names::path("/ost", &empty), 0..512);
    let (listed, _) = block_on(a.store.list(None, 10)).expect("listed");
    let listed: BTreeSet<ObjectId> = listed.iter().filter(|l| l.exists).map(|l| l.object).collect();
    assert_eq!(listed, BTreeSet::from([O, second, empty]));
}
