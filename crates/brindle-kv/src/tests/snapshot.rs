//! A moment that is read while the store goes on shows nothing that came later.

use bytes::Bytes;

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};
use crate::{Batch, Kv};

fn all(snapshot: &crate::Snapshot) -> Vec<(Bytes, Bytes)> {
    let mut rows: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let page = snapshot.rows(rows.last().map(|(key, _)| &key[..]), 7).expect("readable");
        if page.is_empty() {
            return rows;
        }
        rows.extend(page);
    }
}

#[test]
fn a_moment_stays_as_it_was() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    let fill = |round: usize| {
        for n in 0..200 {
            kv.append(put(&format!("k{n:03}"), &format!("{round} {}", "v".repeat(200))))
                .expect("there is room");
            sim.run(kv.admit()).expect("a healthy log");
        }
    };
    fill(1);
    let before = kv.scan(b"", None, 1000).expect("readable");
    let snapshot = sim.run(kv.snapshot()).expect("taken");
    assert_eq!(all(&snapshot), before);
    // Checkpoints come and go meanwhile.
    fill(2);
    let mut gone = Batch::new();
    (0..100).for_each(|n| gone.delete(format!("k{n:03}").into_bytes()));
    kv.append(gone).expect("there is room");
    sim.run(kv.checkpoint()).expect("there is room");
    fill(3);
    assert_eq!(all(&snapshot), before);
    assert_ne!(kv.scan(b"", None, 1000).expect("readable"), before);
    assert_ne!(all(&sim.run(kv.snapshot()).expect("taken")), before, "a later moment");
}

#[test]
fn a_store_in_place_of_a_lost_one_begins_above_its_terms() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create_above(&disk, DIR, &small_options(), 41).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    assert!(kv.term() > 41);
    let first = kv.term();
    let pos = kv.append(put("a", "1")).expect("there is room");
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    drop(kv);
    let sim = Sim::new(2, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("it opens again");
    assert!(kv.term() > first);
    assert_eq!(kv.get(b"a").expect("readable").as_deref(), Some(&b"1"[..]));
}
