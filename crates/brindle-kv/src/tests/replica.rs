//! Replicas that take in records of a primary, with kills and power cuts in between. A replica always holds a prefix of the
//! primary's log that is long enough. A replica that leads has every row and a later term.

use std::collections::BTreeMap;

use brindle_types::Code;
use proptest::prelude::*;

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};
use crate::{Batch, Filling, Kv, KvOptions, LogPos, Replica, decode_records, encode_rows};

#[derive(Clone, Debug)]
enum Step {
    /// Sends so many records; `true`: after the primary has taken another term.
    Send(u8, bool),
    /// Sends a record once more that is there.
    Again(u8),
    Sync,
    /// A checkpoint, while this many records come in.
    Checkpoint(u8),
    /// The primary tells that it takes another term, and dies.
    Term,
    Kill,
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u8..40, proptest::bool::weighted(0.2)).prop_map(|(n, term)| Step::Send(n, term)),
        1 => any::<u8>().prop_map(Step::Again),
        2 => Just(Step::Sync),
        1 => (0u8..10).prop_map(Step::Checkpoint),
        1 => Just(Step::Term),
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
        let mut disk = new_disk(seed, LARGE_BYTES);
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
                Step::Checkpoint(meanwhile) => {
                    let writing = replica.begin_checkpoint().expect("begun").expect("none is written");
                    synced = sent;
                    prop_assert!(replica.begin_checkpoint().expect("refused").is_none());
                    let many: Vec<(LogPos, Batch)> = (0..u64::from(meanwhile))
                        .map(|n| (LogPos { term, index: sent as u64 + 1 + n }, record(sent as u64 + 1 + n)))
                        .collect();
                    log.truncate(sent);
                    log.extend(many.iter().cloned());
                    sent = log.len();
                    replica.apply_all(&many).expect("the next ones");
                    replica.end_checkpoint(writing.write().expect("written"));
                }
                Step::Term => {
                    term += 1;
                    replica.begin_term(term).expect("noted");
                    synced = sent;
                    prop_assert_eq!(replica.next_term(), term + 1);
                    // Records of the one before are late.
                    let late = LogPos { term: term - 1, index: sent as u64 + 1 };
                    prop_assert!(replica.apply(late, &record(1)).is_err());
                    log.truncate(sent);
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
                    disk = disk.power_cut();
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
        let again = open(&Sim::new(seed, &disk.power_cut()));
        prop_assert_eq!(again.last(), pos, "it can follow again");
    }
}

#[test]
fn records_of_an_earlier_primary_are_refused() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let mut replica = Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens");
    let pos = |term, index| LogPos { term, index };
    replica.apply(pos(3, 1), &put("k", "v")).expect("the first");
    let late = replica.apply(pos(2, 2), &put("k", "old")).expect_err("of an earlier term");
    assert_eq!(late.code, Code::LogDamaged);
    assert_eq!(replica.get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
    // The refusal holds after a restart, too, and for a member that led once without writing a record.
    drop(replica);
    let (kv, report) =
        Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens").lead().expect("leads");
    assert_eq!(report.term, 4);
    drop(kv);
    let mut replica = Replica::open(sim.seams.clone(), DIR, small_options()).expect("opens");
    assert!(replica.apply(pos(3, 2), &put("k", "old")).is_err());
    replica.apply(pos(5, 2), &put("k", "new")).expect("a later term");
}

#[test]
fn a_filled_store_goes_on_where_its_rows_end() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let options = KvOptions { tail_bytes_max: 1 << 20, ..small_options() };
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, options.clone()).expect("opens");
    for n in 1..=300 {
        kv.append(record(n)).expect("appended");
        if n % 50 == 0 {
            sim.run(kv.admit()).expect("room");
        }
    }
    let snapshot = sim.run(kv.snapshot()).expect("taken");
    let at = snapshot.at();
    assert_eq!(at, kv.last_pos());
    for n in 301..=400 {
        kv.append(record(n)).expect("appended");
    }
    sim.run(kv.wait_synced(kv.last_pos())).expect("synced");
    let copy = "copy";
    let mut filling = Filling::begin(sim.seams.clone(), copy, options.clone(), at)
        .expect("an empty directory takes a store");
    let rows = snapshot.rows(None, 10_000).expect("read");
    for page in rows.chunks(7) {
        let bytes = encode_rows(at, page.to_vec());
        for (_, batch) in decode_records(&bytes).expect("decoded") {
            filling.put(batch).expect("taken");
        }
    }
    assert!(Replica::open(sim.seams.clone(), copy, options.clone()).is_err(), "it is no store yet");
    filling.finish().expect("complete");
    let mut replica = Replica::open(sim.seams.clone(), copy, options.clone()).expect("opens");
    assert_eq!(replica.last(), at);
    while replica.last() != kv.last_pos() {
        let records = kv.records_after(replica.last(), 3000).expect("in memory");
        let bytes: Vec<u8> = records.iter().flat_map(|(_, record)| record.to_vec()).collect();
        replica.apply_all(&decode_records(&bytes.into()).expect("decoded")).expect("the next ones");
    }
    let all = |kv: &Kv| kv.scan(&[1], None, 10_000).expect("read");
    let wanted = all(&kv);
    let (led, report) = replica.lead().expect("leads");
    assert_eq!(all(&led), wanted);
    assert!(report.term > kv.term());
    drop(led);
    drop(Replica::open(Sim::new(2, &disk).seams.clone(), copy, options).expect("opens once more"));
}

#[test]
fn nothing_is_answered_before_the_other_members_have_it() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let options = KvOptions { tail_bytes_max: 1 << 20, ..small_options() };
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, options).expect("opens");
    kv.require(0, 0);
    let pos = kv.append(put("k", "v")).expect("appended");
    let answered = || sim.run_for(5_000, kv.wait_reply(pos));
    let synced = || sim.run_for(5_000, kv.wait_synced(pos));
    assert!(answered().is_none() && synced().is_none());
    assert_eq!(kv.synced_pos(), pos, "it is on the disk here");
    kv.require(pos.index, 0);
    assert_eq!(answered(), Some(Ok(())));
    assert!(synced().is_none(), "and may be lost there");
    kv.require(pos.index, pos.index);
    assert_eq!(synced(), Some(Ok(())));
    // Waiting callers hear of it when another member serves.
    kv.require(0, 0);
    kv.abandon();
    let fault = answered().expect("not for ever").expect_err("not kept");
    assert_eq!(fault.code, Code::NotOwner, "they ask the other one, which may have it");
}
