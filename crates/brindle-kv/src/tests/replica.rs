//! Replicas: records of a primary in, kills and power cuts in between; what is there is always a prefix of the primary's log, long
//! enough, and a replica that leads has every row and a later term.

use std::collections::BTreeMap;

use brindle_types::Code;
use proptest::prelude::*;

use super::disk::CrashDisk;
use super::sim::{Chance, Sim};
use super::{DIR, put, small_options};
use crate::{Batch, Kv, LogPos, Replica};

#[derive(Clone, Debug)]
enum Step {
    /// Sends so many records; `true`: after the primary has taken another term.
    Send(u8, bool),
    /// Sends a record once more that is there.
    Again(u8),
    Sync,
    Kill,
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u8..40, proptest::bool::weighted(0.2)).prop_map(|(n, term)| Step::Send(n, term)),
        1 => any::<u8>().prop_map(Step::Again),
        2 => Just(Step::Sync),
        1 => Just(Step::Kill),
        1 => Just(Step::PowerCut),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The n-th record of the primary.
fn record(n: u64) -> Batch {
    let mut batch = put(&format!("k{}", n % 97), &format!("{n}-{}", "x".repeat((n * 37 % 900) as usize)));
    if n.is_multiple_of(5) {
        batch.delete(format!("k{}", (n / 5) % 97).into_bytes());
    }
    batch
}

/// Rows after these records.
fn rows(log: &[(LogPos, Batch)]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for change in log.iter().flat_map(|(_, batch)| &batch.changes) {
        match &change.value {
            Some(value) => drop(rows.insert(change.key.to_vec(), value.to_vec())),
            None => drop(rows.remove(&*change.key)),
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_replica_has_a_prefix_of_its_primary_and_can_take_its_place(steps in steps(), seed in any::<u64>()) {
        let (mut disk, mut chance) = (CrashDisk::new(1 << 30), Chance::new(seed));
        Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
        let mut sim = Sim::new(seed, &disk);
        let open = |sim: &Sim| Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens");
        let mut replica = open(&sim);
        let mut log: Vec<(LogPos, Batch)> = Vec::new();
        let (mut term, mut sent, mut synced) = (2, 0, 0);
        for step in steps {
            match step {
                Step::Send(count, is_new_term) => {
                    term += u32::from(is_new_term);
                    for _ in 0..count {
                        if sent == log.len() {
                            let pos = LogPos { term, index: log.len() as u64 + 1 };
                            log.push((pos, record(pos.index)));
                        }
                        let (pos, batch) = &log[sent];
                        replica.apply(*pos, batch).expect("the next one");
                        sent += 1;
                    }
                    let gap = LogPos { term, index: sent as u64 + 2 };
                    let refused = replica.apply(gap, &record(1)).expect_err("a gap");
                    prop_assert_eq!(refused.code, Code::LogDamaged);
                }
                Step::Again(n) if sent > 0 => {
                    let (pos, batch) = &log[usize::from(n) % sent];
                    if pos.term == replica.last().term {
                        replica.apply(*pos, batch).expect("left out");
                    }
                }
                Step::Again(_) => {}
                Step::Sync => {
                    replica.sync().expect("synced");
                    synced = sent;
                }
                Step::Kill => {
                    drop(replica);
                    disk = disk.kill();
                    sim = Sim::new(seed, &disk);
                    replica = open(&sim);
                    prop_assert_eq!(replica.last().index, sent as u64, "a kill takes nothing");
                }
                Step::PowerCut => {
                    drop(replica);
                    disk = disk.power_cut(&mut chance);
                    sim = Sim::new(seed, &disk);
                    replica = open(&sim);
                    let survived = replica.last().index as usize;
                    prop_assert!((synced..=sent).contains(&survived), "{synced} <= {survived} <= {sent}");
                    (sent, synced) = (survived, survived);
                }
            }
            if sent > 0 {
                prop_assert_eq!(replica.last(), log[sent - 1].0);
            }
        }
        let want = rows(&log[..sent]);
        for n in 0..97 {
            let key = format!("k{n}").into_bytes();
            let found = replica.get(&key).expect("read").map(|value| value.to_vec());
            prop_assert_eq!(found.as_ref(), want.get(&key), "{}", n);
        }
        let seen = replica.last().term;
        let (kv, report) = replica.lead().expect("leads");
        prop_assert!(report.term > seen && report.last.index == sent as u64);
        let all = kv.scan(&[1], None, 1000).expect("read");
        let all: BTreeMap<Vec<u8>, Vec<u8>> = all.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        prop_assert_eq!(&all, &want);
        let pos = kv.append(put("own", "row")).expect("appended");
        prop_assert_eq!(pos, LogPos { term: report.term, index: sent as u64 + 1 });
        sim.run(kv.wait_synced(pos)).expect("synced");
        drop(kv);
        let again = open(&Sim::new(seed, &disk.power_cut(&mut chance)));
        prop_assert_eq!(again.last(), pos, "it can follow again");
    }
}

#[test]
fn records_of_an_earlier_primary_are_refused() {
    let disk = CrashDisk::new(1 << 30);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let mut replica = Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens");
    let pos = |term, index| LogPos { term, index };
    replica.apply(pos(3, 1), &put("k", "v")).expect("the first");
    let late = replica.apply(pos(2, 2), &put("k", "old")).expect_err("of an earlier term");
    assert_eq!(late.code, Code::LogDamaged);
    assert_eq!(replica.get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
    // Also after a restart, and by whoever led once without writing anything.
    drop(replica);
    let (kv, report) =
        Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens").lead().expect("leads");
    assert_eq!(report.term, 4);
    drop(kv);
    let mut replica = Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens");
    assert!(replica.apply(pos(3, 2), &put("k", "old")).is_err());
    replica.apply(pos(5, 2), &put("k", "new")).expect("a later term");
}
