//! Flipped bits in every kind of file of an open store are found, and what is right is never called damaged.

use brindle_sim::{SimDisk, SplitMix};
use brindle_stdx::Disk;

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};
use crate::verify::VERIFY_BYTES;
use crate::{Digest, FileDamage, Kv, Replica, Snapshot, encode_rows, verify};

const STORE: &str = "/mdt/kv/checkpoint.redb";

fn open(disk: &SimDisk, seed: u64) -> (Sim, Kv) {
    let sim = Sim::new(seed, disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("it opens");
    (sim, kv)
}

fn append(sim: &Sim, kv: &Kv, range: std::ops::Range<u64>) {
    for n in range {
        let pos = kv.append(put(&format!("I{:04}", n % 300), &format!("{n:0200}"))).expect("a healthy log");
        sim.run(kv.admit()).expect("a healthy log");
        sim.run(kv.wait_synced(pos)).expect("a healthy log");
    }
}

/// A store with rows in its checkpoint and in its log.
fn filled() -> (SimDisk, Sim, Kv) {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let (sim, kv) = open(&disk, 1);
    append(&sim, &kv, 0..400);
    sim.run(kv.checkpoint()).expect("there is room");
    append(&sim, &kv, 400..450);
    (disk, sim, kv)
}

/// Damage in all files.
fn damage(kv: &Kv) -> Vec<FileDamage> {
    let (mut place, mut found) = (None, Vec::new());
    loop {
        let seen = verify(&|| Ok(kv.verifier()), place.as_ref()).expect("readable");
        assert!(seen.read_bytes <= 4 * VERIFY_BYTES as u64);
        found.extend(seen.damaged);
        match seen.next {
            Some(next) => place = Some(next),
            None => return found,
        }
    }
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(DIR).expect("listed");
    names.into_iter().filter(|name| name.starts_with("log-0")).collect()
}

fn rows(kv: &Kv) -> usize {
    kv.scan(b"", None, usize::MAX).expect("readable").len()
}

#[test]
fn a_whole_store_has_no_damage_at_any_time() {
    let (disk, sim, kv) = filled();
    assert!(damage(&kv).is_empty());
    let mut random = SplitMix::new(7);
    for round in 0..40 {
        let first = 450 + round * 20;
        append(&sim, &kv, first..first + random.below(40));
        if random.below(4) == 0 {
            sim.run(kv.checkpoint()).expect("there is room");
        }
        assert_eq!(damage(&kv), [], "round {round}");
    }
    drop(kv);
    let (_sim, kv) = open(&disk, 2);
    assert_eq!(damage(&kv), [], "after a start");
}

#[test]
fn a_flipped_bit_in_a_segment_is_found_and_a_checkpoint_takes_it_away() {
    // The header, the first record, a later one.
    for at in [10, 60, 4096 + 12, 4096 + 240 * 3 + 40] {
        let (disk, sim, kv) = filled();
        let before = rows(&kv);
        let newest = segments(&disk).pop().expect("a segment");
        disk.edit(&format!("{DIR}/{newest}"), |bytes| bytes[at] ^= 1);
        let found = damage(&kv);
        assert_eq!(found.len(), 1, "at {at}: {found:?}");
        assert!(found[0].file == newest && found[0].is_in_log() && !found[0].is_mended, "{found:?}");
        sim.run(kv.renew_log()).expect("there is room");
        assert!(!segments(&disk).contains(&newest));
        assert_eq!(damage(&kv), []);
        drop(kv);
        let (sim, kv) = open(&disk, 2);
        assert_eq!(rows(&kv), before);
        append(&sim, &kv, 500..520);
        assert_eq!(damage(&kv), []);
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let (disk, _sim, kv) = filled();
    let newest = segments(&disk).pop().expect("a segment");
    disk.remove(&format!("{DIR}/{newest}")).expect("removed");
    let found = damage(&kv);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].file, &*found[0].why), (&newest, "the file is missing"));
}

#[test]
fn a_flipped_bit_in_any_block_of_the_checkpoint_is_found() {
    let blocks = filled().0.read(STORE).expect("there").len() / 4096;
    let mut found_in = 0;
    for n in 0..blocks {
        let (disk, _sim, kv) = filled();
        disk.edit(STORE, |bytes| bytes[n * 4096 + 100] ^= 4);
        let found = damage(&kv);
        found_in += usize::from(!found.is_empty());
        assert!(found.len() <= 1 && found.iter().all(|d| d.offset == n as u64 * 4096 && !d.is_in_log()));
        // The bytes of the first block are kept in memory.
        assert_eq!(found.first().is_some_and(|d| d.is_mended), n == 0 && !found.is_empty(), "block {n}");
        if n == 0 {
            assert_eq!((found.len(), damage(&kv)), (1, Vec::new()));
        }
        if found.is_empty() {
            // A block that redb has neither read nor written: no row is there.
            let before = rows(&kv);
            drop(kv);
            let (_sim, kv) = open(&disk, 2);
            assert_eq!(rows(&kv), before, "block {n}");
        }
    }
    assert!(found_in > 10, "{found_in} of {blocks} blocks are known");
}

#[test]
fn a_block_that_the_page_cache_has_whole_is_written_anew() {
    let (disk, _sim, kv) = filled();
    disk.make_direct_reads_stale();
    let found: Vec<FileDamage> = damage(&kv).into_iter().filter(|d| !d.is_in_log()).collect();
    assert!(!found.is_empty() && found.iter().all(|d| d.is_mended), "{found:?}");
}

#[test]
fn a_sector_that_the_device_does_not_give_is_damage() {
    let (disk, _sim, kv) = filled();
    let known = |n: u64| {
        disk.fail_reads(STORE, n * 4096..n * 4096 + 512);
        damage(&kv)
    };
    let found = (1..40).map(known).find(|found| !found.is_empty()).expect("a block of rows");
    assert!(found[0].why.starts_with("the device does not give the block"), "{found:?}");
}

/// A member with the rows of a primary, and the primary's rows at the member's record.
fn member() -> (Snapshot, Snapshot, Sim) {
    let options = crate::KvOptions { tail_bytes_max: 1 << 20, ..small_options() };
    let (own, other) = (new_disk(1, LARGE_BYTES), new_disk(2, LARGE_BYTES));
    Kv::create(&own, DIR, &options).expect("an empty disk takes a store");
    Kv::create(&other, DIR, &options).expect("an empty disk takes a store");
    let (sim, there) = (Sim::new(1, &own), Sim::new(2, &other));
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, options.clone()).expect("it opens");
    let mut replica = Replica::open(there.seams.clone(), DIR, options).expect("it opens");
    let send = |replica: &mut Replica| {
        for (pos, record) in kv.records_after(replica.last(), usize::MAX).expect("in memory") {
            let batches = crate::decode_records(&record).expect("a record");
            batches.iter().for_each(|(_, batch)| replica.apply(pos, batch).expect("it follows"));
        }
    };
    append(&sim, &kv, 0..100);
    send(&mut replica);
    let mine = sim.run(kv.snapshot()).expect("taken");
    // The member's moment is a later one.
    append(&sim, &kv, 90..130);
    let mut gone = crate::Batch::new();
    gone.delete("I0003");
    let pos = kv.append(gone).expect("there is room");
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    send(&mut replica);
    let checkpoint = replica.begin_checkpoint().expect("begun").expect("none was under way");
    replica.end_checkpoint(checkpoint.write().expect("written"));
    let theirs = replica.snapshot();
    let records = kv.records_after(mine.at(), usize::MAX).expect("in memory");
    let upto: Vec<_> = records.into_iter().filter(|(pos, _)| *pos <= theirs.at()).collect();
    let mine = mine.with_records(&upto).expect("they follow");
    assert_eq!(mine.at(), theirs.at());
    (mine, theirs, sim)
}

/// All digests of pieces of about `bytes_max`.
fn digests(rows: &Snapshot, bytes_max: u64) -> Vec<Digest> {
    let mut found: Vec<Digest> = Vec::new();
    while !found.last().is_some_and(|digest| digest.is_end) {
        let after = found.last().map(|digest| digest.last.clone()).unwrap_or_default();
        found.push(rows.digest(&after, None, u64::MAX, bytes_max).expect("readable"));
    }
    found
}

/// A member that follows has the rows of its primary, however they are cut into pieces.
pub fn members_are_equal() {
    let (mine, theirs, _sim) = member();
    for bytes_max in [1, 500, 5_000, u64::MAX] {
        let (a, b) = (digests(&mine, bytes_max), digests(&theirs, bytes_max));
        let same = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.is_same(b));
        assert!(same, "the rows of a member differ from those of its primary");
        assert_eq!(a.iter().map(|digest| digest.rows).sum::<u64>(), 129);
    }
}

#[test]
fn members_are_compared_at_the_same_record_whatever_is_in_memory_or_on_the_disk() {
    members_are_equal();
}

#[test]
fn a_digest_depends_on_each_byte_and_on_where_keys_end() {
    let of = |rows: &[(&str, &str)]| {
        let disk = new_disk(1, LARGE_BYTES);
        Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
        let (sim, kv) = open(&disk, 1);
        rows.iter().for_each(|(key, value)| assert!(kv.append(put(key, value)).is_ok()));
        let snapshot = sim.run(kv.snapshot()).expect("taken");
        snapshot.digest(b"", None, 10, u64::MAX).expect("readable")
    };
    let whole = of(&[("a", "xy"), ("b", "z")]);
    for other in [
        &[("a", "xy"), ("b", "y")][..],
        &[("ax", "y"), ("b", "z")],
        &[("a", "xy"), ("c", "z")],
        &[("a", "xy")],
    ] {
        assert!(!of(other).is_same(&whole), "{other:?}");
    }
    let encoded = encode_rows(crate::LogPos { term: 1, index: 1 }, Vec::new());
    assert!(crate::decode_records(&encoded).is_ok_and(|records| records[0].1.is_empty()));
}
