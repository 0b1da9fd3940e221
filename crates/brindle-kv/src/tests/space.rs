//! A full device: what frees space goes on, everything else is refused, and nothing is lost.

use crate::{Batch, Kv, KvOptions};
use brindle_sim::SplitMix;
use brindle_types::Code;

use super::sim::{Sim, new_disk};
use super::{DIR, put, small_options};

fn deletion(key: &str) -> Batch {
    let mut batch = Batch::new();
    batch.delete(key.as_bytes().to_vec());
    batch.frees_space();
    batch
}

#[test]
fn a_full_device_takes_deletions_only_and_recovers() {
    let disk = new_disk(1, 16 << 20);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    for n in 0..100 {
        kv.append(put(&format!("k{n:03}"), &"v".repeat(500))).expect("there is room");
        sim.run(kv.admit()).expect("a healthy log");
    }
    sim.run(kv.checkpoint()).expect("there is room");
    // Other files fill the device to within less than the reserve.
    disk.set_capacity_bytes(Some(disk.used_bytes() + (200 << 10)));
    sim.pass_ms(10);
    let mut refused = None;
    for n in 0..200 {
        match kv.append(put(&format!("x{n:03}"), &"v".repeat(30_000))) {
            Ok(pos) => sim.run(kv.wait_reply(pos)).expect("what was accepted is written"),
            Err(fault) => {
                refused = Some((n, fault.code));
                break;
            }
        }
        sim.run(kv.admit()).expect("a healthy log");
    }
    let (accepted, code) = refused.expect("the reserve is defended");
    assert_eq!(code, Code::MdtFull);
    assert_eq!(kv.space().expect("asked").available_bytes, 0);
    for n in 0..100 {
        let pos = kv.append(deletion(&format!("k{n:03}"))).expect("deleting always works");
        sim.run(kv.wait_synced(pos)).expect("deleting always works");
        sim.run(kv.admit()).expect("a healthy log");
    }
    assert_eq!(kv.failed(), None);
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), accepted);
    disk.set_capacity_bytes(Some(64 << 20));
    sim.pass_ms(3000);
    let pos = kv.append(put("y", "1")).expect("there is room again");
    sim.run(kv.wait_reply(pos)).expect("there is room again");
    sim.run(kv.checkpoint()).expect("there is room again");
    drop(kv);
    let disk = disk.power_cut();
    let sim = Sim::new(2, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("nothing is damaged");
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), accepted + 1);
}

/// The device has no space at all: the log lives on its spare segment, checkpoints fail and are tried again,
/// reads go on.
#[test]
fn without_any_space_the_spare_segment_still_takes_deletions() {
    let disk = new_disk(1, 16 << 20);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    for n in 0..600 {
        kv.append(put(&format!("k{n:03}"), &"v".repeat(100))).expect("there is room");
        sim.run(kv.admit()).expect("a healthy log");
    }
    sim.run(kv.checkpoint()).expect("there is room");
    sim.pass_ms(3000);
    disk.set_capacity_bytes(Some(disk.used_bytes()));
    let mut deletions = 0;
    let exhausted = loop {
        match kv.append(deletion(&format!("k{:03}", deletions % 600))) {
            Ok(pos) => {
                sim.run_for(5000, kv.wait_synced(pos)).expect("in time").expect("what was accepted is safe")
            }
            Err(fault) => break fault,
        }
        deletions += 1;
    };
    // A segment of 64 KiB takes more than a thousand deletions of 48 bytes.
    assert!(deletions > 1000, "only {deletions} deletions were taken");
    assert_eq!(exhausted.code, Code::MdtFull);
    sim.pass_ms(5000);
    assert_eq!(kv.failed(), None);
    assert_eq!(kv.append(put("y", "1")).expect_err("full").code, Code::MdtFull);
    assert_eq!(kv.scan(b"k", None, 1000).expect("readable").len(), 0);
    disk.set_capacity_bytes(Some(64 << 20));
    sim.pass_ms(5000);
    let pos = kv.append(put("y", "1")).expect("there is room again");
    sim.run(kv.wait_synced(pos)).expect("there is room again");
    sim.run(kv.checkpoint()).expect("there is room again");
    let disk = disk.power_cut();
    let sim = Sim::new(2, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("nothing is damaged");
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), 1);
}

/// The checkpoint file does not shrink; what removed rows leave in it is space all the same.
#[test]
fn removing_rows_makes_room_for_others_on_a_full_device() {
    let disk = new_disk(1, 6 << 20);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    let fill = |round: &str| {
        let mut count = 0;
        loop {
            match kv.append(put(&format!("{round}{count:04}"), &"v".repeat(3000))) {
                Ok(pos) => sim.run(kv.wait_reply(pos)).expect("what was accepted is written"),
                Err(fault) => {
                    assert_eq!(fault.code, Code::MdtFull);
                    return count;
                }
            }
            sim.run(kv.admit()).expect("a healthy log");
            count += 1;
            assert!(count < 10_000, "the device never gets full");
        }
    };
    let first = fill("a");
    assert!(first > 200, "only {first} rows fitted");
    empty(&sim, &kv);
    let second = fill("b");
    assert!(second > first * 3 / 4, "{first} rows fitted first, and only {second} when those were gone");
    assert_eq!(kv.failed(), None);
    assert_eq!(kv.scan(b"b", None, 10_000).expect("readable").len(), second + 1);
    empty(&sim, &kv);
    let third = fill("c");
    assert!(
        third > first * 3 / 4,
        "{first} rows fitted first, and only {third} when the second ones were gone"
    );
}

/// Deletes all rows, and waits until a new one is accepted, with the key `probe`.
fn empty(sim: &Sim, kv: &Kv) {
    for (key, _) in kv.scan(b"", None, 100_000).expect("readable") {
        let key = String::from_utf8(key.to_vec()).expect("keys of these tests are text");
        let pos = kv.append(deletion(&key)).expect("deleting always works");
        sim.run(kv.wait_reply(pos)).expect("deleting always works");
        sim.run(kv.admit()).expect("a healthy log");
    }
    // A refused append makes the store look again; a few seconds are enough.
    for _ in 0..5 {
        if kv.append(put("probe", "1")).is_ok() {
            break;
        }
        sim.pass_ms(2000);
    }
}

/// Making the file shorter may end at any of its writes.
#[test]
fn reclaiming_space_may_die_anywhere() {
    let (mut died, mut compacted) = (0, 0);
    for seed in 0..12 {
        let mut chance = SplitMix::new(seed);
        let disk = new_disk(seed, 3 << 20);
        Kv::create(&disk, DIR, &full_options()).expect("an empty disk takes a store");
        let sim = Sim::new(seed, &disk);
        let (kv, _) = Kv::open(sim.seams.clone(), DIR, full_options()).expect("a new store opens");
        let pos = kv.append(put("kept", "1")).expect("there is room");
        sim.run(kv.wait_synced(pos)).expect("a healthy log");
        let count = fill_with_small_rows(&sim, &kv);
        // The file is made shorter as soon as enough is free, and again when the last rows are gone.
        let dies_at = count / 4 + chance.below(count * 3 / 4);
        let (dying, dies_after) = (disk.clone(), chance.below(300));
        let deleted = delete_all_over(&sim, &kv, count, |n| {
            if n == dies_at {
                dying.die_after(dies_after);
            }
        });
        compacted += kv.stats().compactions;
        died += u64::from(disk.is_dead());
        sim.kill_tasks();
        drop(kv);
        let disk = if seed % 2 == 0 { disk.power_cut() } else { disk.kill() };
        let sim = Sim::new(seed + 1000, &disk);
        let (kv, _) = Kv::open(sim.seams.clone(), DIR, full_options())
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let left = kv.scan(b"", None, 100_000).expect("readable");
        assert_eq!(left.last().map(|(key, _)| &key[..]), Some(&b"kept"[..]), "seed {seed}");
        let done = count + 1 - left.len() as u64;
        let least = if seed % 2 == 0 { 0 } else { deleted };
        assert!((least..=deleted + 1).contains(&done), "seed {seed}: {deleted} answered, {done} done");
    }
    assert!(died > 4 && compacted > 4, "{died} of 12 died, {compacted} were made shorter: the test is none");
}

/// Rows of 100 bytes until the device is full; gives their number.
fn fill_with_small_rows(sim: &Sim, kv: &Kv) -> u64 {
    for n in 0..100_000 {
        match kv.append(put(&format!("a{n:06}"), &"v".repeat(100))) {
            Ok(pos) => sim.run(kv.wait_reply(pos)).expect("what was accepted is written"),
            Err(fault) => {
                assert_eq!(fault.code, Code::MdtFull);
                return n;
            }
        }
        sim.run(kv.admit()).expect("a healthy log");
    }
    panic!("the device never gets full");
}

/// Deletes in an order that meets another page each time; calls `each` with the number of deletions so far. Ends with
/// the first failure.
fn delete_all_over(sim: &Sim, kv: &Kv, count: u64, mut each: impl FnMut(u64)) -> u64 {
    for n in 0..count {
        each(n);
        let Ok(pos) = kv.append(deletion(&format!("a{:06}", n * 7919 % count))) else { return n };
        if sim.run(kv.wait_reply(pos)).is_err() {
            return n;
        }
        let admitted = sim.run_for(60_000, kv.admit());
        if admitted.expect("deletions wait for space that only they can free").is_err() {
            return n + 1;
        }
    }
    count
}

/// A reserve that is less than what a memtable of deletions rewrites.
fn full_options() -> KvOptions {
    KvOptions { memtable_bytes_max: 64 << 10, reserve_bytes: 384 << 10, ..small_options() }
}

/// A checkpoint of deletions all over the tree rewrites most of its pages: more than a full device has at once.
#[test]
fn deleting_all_over_a_full_store_needs_no_more_space_than_there_is() {
    let disk = new_disk(1, 6 << 20);
    Kv::create(&disk, DIR, &full_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, full_options()).expect("a new store opens");
    let count = fill_with_small_rows(&sim, &kv);
    assert_eq!(delete_all_over(&sim, &kv, count, |_| {}), count);
    assert_eq!(kv.failed(), None);
    assert!(kv.stats().checkpoint_pieces > 0, "the reserve took whole checkpoints: the test is none");
    assert_eq!(kv.scan(b"", None, 10).expect("readable").len(), 0);
}

/// A checkpoint that is written in pieces may end between any two of them.
#[test]
fn a_checkpoint_in_pieces_may_die_anywhere() {
    let mut in_pieces = 0;
    for seed in 0..8 {
        let mut chance = SplitMix::new(seed);
        let disk = new_disk(seed, 5 << 20);
        Kv::create(&disk, DIR, &full_options()).expect("an empty disk takes a store");
        let sim = Sim::new(seed, &disk);
        let (kv, _) = Kv::open(sim.seams.clone(), DIR, full_options()).expect("a new store opens");
        let count = fill_with_small_rows(&sim, &kv);
        let dies_at = chance.below(count * 3 / 4);
        let dies_after = chance.below(600);
        let dying = disk.clone();
        let deleted = delete_all_over(&sim, &kv, count, |n| {
            if n == dies_at {
                dying.die_after(dies_after);
            }
        });
        in_pieces += kv.stats().checkpoint_pieces;
        let cut = seed % 2 == 0;
        sim.kill_tasks();
        drop(kv);
        let disk = if cut { disk.power_cut() } else { disk.kill() };
        let sim = Sim::new(seed + 1000, &disk);
        let (kv, _) = Kv::open(sim.seams.clone(), DIR, full_options())
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let left = kv.scan(b"a", None, 100_000).expect("readable");
        let left: Vec<&[u8]> = left.iter().map(|(key, _)| &key[..]).collect();
        // A prefix of the deletions is done: after a kill all that were answered and at most the one in flight.
        let done = count - left.len() as u64;
        let least = if cut { 0 } else { deleted };
        assert!((least..=deleted + 1).contains(&done), "seed {seed}: {deleted} answered, {done} done");
        let mut wanted: Vec<String> = (done..count).map(|n| format!("a{:06}", n * 7919 % count)).collect();
        wanted.sort();
        assert!(wanted.iter().map(String::as_bytes).eq(left.iter().copied()), "seed {seed}: rows differ");
    }
    assert!(in_pieces > 100, "only {in_pieces} pieces were written: the test is none");
}
