//! Random batches, waits, checkpoints, kills, power cuts and crashes in the middle of any disk operation. Compares
//! with a list of the batches: a reopened store always shows a prefix of them that is long enough.

use brindle_sim::{SimDisk, SplitMix};
use std::collections::{BTreeMap, BTreeSet};

use crate::{Batch, Durability, Kv, KvOptions, KvReader, LogPos};
use proptest::prelude::*;

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, small_options};

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u8, Option<u16>)>),
    Wait(bool),
    PassMs(u16),
    Checkpoint,
    Compare(u8, u8),
    Kill,
    PowerCut,
    DieAfter(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (any::<u8>(), proptest::option::weighted(0.7, 0..3000u16));
    let step = prop_oneof![
        12 => proptest::collection::vec(change, 1..6).prop_map(Step::Append),
        5 => any::<bool>().prop_map(Step::Wait),
        2 => (0..1500u16).prop_map(Step::PassMs),
        1 => Just(Step::Checkpoint),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Step::Compare(a, b)),
        1 => Just(Step::Kill),
        2 => Just(Step::PowerCut),
        2 => any::<u8>().prop_map(Step::DieAfter),
    ];
    proptest::collection::vec(step, 1..150)
}

type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of which many share a prefix; `k` and then one or two bytes.
fn key(n: u8) -> Vec<u8> {
    if n.is_multiple_of(3) { vec![b'k', n / 3] } else { vec![b'k', n / 16, n] }
}

struct World {
    seed: u64,
    big: bool,
    chance: SplitMix,
    disk: SimDisk,
    sim: Sim,
    kv: Option<Kv>,
    batches: Vec<(LogPos, Changes)>,
    /// Every position ever given out.
    given: BTreeSet<(u32, u64)>,
    written: LogPos,
    synced: LogPos,
    term: u32,
    appended: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = new_disk(seed, LARGE_BYTES);
        Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
        let mut world = World {
            seed,
            big: seed.is_multiple_of(2),
            chance: SplitMix::new(seed),
            sim: Sim::new(seed, &disk),
            disk,
            kv: None,
            batches: Vec::new(),
            given: BTreeSet::new(),
            written: LogPos::default(),
            synced: LogPos::default(),
            term: 1,
            appended: 0,
        };
        world.reopen(false);
        world
    }

    fn options(&self) -> KvOptions {
        // Half of the worlds have more segments than checkpoints, the others the other way round.
        let memtable_bytes_max = if self.big { 400 << 10 } else { small_options().memtable_bytes_max };
        KvOptions { memtable_bytes_max, ..small_options() }
    }

    /// The process has died, with the power if `cut`. The surviving records must be a prefix that is long
    /// enough.
    fn reopen(&mut self, cut: bool) {
        self.kv = None;
        self.sim.kill_tasks();
        self.disk = if cut { self.disk.power_cut() } else { self.disk.kill() };
        self.seed += 1;
        self.sim = Sim::new(self.seed, &self.disk);
        let reader = KvReader::open_read_only(&self.disk, DIR).expect("there is a store");
        assert_eq!(reader.damage(), [], "a crash is not damage");
        let (kv, report) =
            Kv::open(self.sim.seams.clone(), DIR, self.options()).expect("a crash does no damage");
        assert_eq!(reader.report().last, report.last, "the reader and the opening agree");
        assert!(report.term > self.term, "terms grow: {} after {}", report.term, self.term);
        self.term = report.term;
        let at_least = if cut { self.synced } else { self.written.max(self.synced) };
        assert!(report.last >= at_least, "{} survived, {at_least} was promised", report.last);
        self.batches.retain(|(pos, _)| pos.index <= report.last.index);
        (self.written, self.synced) = (report.last, report.last);
        self.kv = Some(kv);
        self.compare(0, 255);
        let mut seen = State::new();
        let each = &mut |key: &[u8], value: Result<bytes::Bytes, _>| {
            seen.insert(key.to_vec(), value.expect("an undamaged row").to_vec());
        };
        reader.for_each(b"", each).expect("an undamaged file");
        assert!(seen == self.state(), "the reader shows other rows than the store");
    }

    fn kv(&self) -> Kv {
        self.kv.clone().expect("open between steps")
    }

    fn state(&self) -> State {
        let mut state = State::new();
        for (_, changes) in &self.batches {
            for (key, value) in changes {
                match value {
                    Some(value) => drop(state.insert(key.clone(), value.clone())),
                    None => drop(state.remove(key)),
                }
            }
        }
        state
    }

    fn compare(&self, a: u8, b: u8) {
        let (kv, state) = (self.kv(), self.state());
        let (start, end) = (key(a.min(b)), key(a.max(b)));
        let scan = |start: &[u8], end: Option<&[u8]>, limit| -> Vec<(Vec<u8>, Vec<u8>)> {
            let rows = kv.scan(start, end, limit).expect("an undamaged store");
            rows.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
        };
        let model = |from: &[u8], to: Option<&[u8]>| -> Vec<(Vec<u8>, Vec<u8>)> {
            let inside = state.iter().filter(|(k, _)| &k[..] >= from && to.is_none_or(|to| &k[..] < to));
            inside.map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        assert_eq!(scan(b"", None, usize::MAX), model(b"", None));
        assert_eq!(
            scan(&start, Some(&end), 7),
            model(&start, Some(&end)).into_iter().take(7).collect::<Vec<_>>()
        );
        for k in [&start, &end] {
            let got = kv.get(k).expect("an undamaged store").map(|v| v.to_vec());
            assert!(got.as_ref() == state.get(k), "row {k:?} differs from the model");
        }
        let prefix = &end[..2];
        let mut paged = Vec::new();
        loop {
            let after = paged.last().map(|(k, _): &(Vec<u8>, Vec<u8>)| k.clone());
            let page = kv.scan_prefix(prefix, after.as_deref(), 2).expect("an undamaged store");
            if page.is_empty() {
                break;
            }
            paged.extend(page.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())));
        }
        let with_prefix: Vec<_> =
            model(prefix, None).into_iter().filter(|(k, _)| k.starts_with(prefix)).collect();
        assert!(paged == with_prefix, "the pages of prefix {prefix:?} differ from the model");
        let last =
            kv.last_with_prefix(prefix).expect("an undamaged store").map(|(k, v)| (k.to_vec(), v.to_vec()));
        assert!(
            last == with_prefix.last().cloned(),
            "the last row of prefix {prefix:?} differs from the model"
        );
    }

    fn append(&mut self, rows: &[(u8, Option<u16>)]) {
        let mut batch = Batch::new();
        let mut changes = Vec::new();
        for (n, value) in rows {
            self.appended += 1;
            let value = value.map(|len| {
                let mut value = self.appended.to_be_bytes().to_vec();
                value.resize(8 + len as usize, *n);
                value
            });
            match &value {
                Some(value) => batch.put(key(*n), value.clone()),
                None => batch.delete(key(*n)),
            }
            changes.push((key(*n), value));
        }
        if self.sim.run(self.kv().admit()).is_err() {
            return;
        }
        let Ok(pos) = self.kv().append(batch) else { return };
        assert_eq!(pos.term, self.term);
        assert!(self.given.insert((pos.term, pos.index)), "{pos} was given out twice");
        self.batches.push((pos, changes));
    }

    fn wait(&mut self, synced: bool) {
        let pos = self.kv().last_pos();
        let durability = if synced { Durability::Synced } else { Durability::Written };
        if self.sim.run(self.kv().wait(pos, durability)).is_err() {
            return;
        }
        self.written = self.written.max(pos);
        if synced {
            self.synced = self.synced.max(pos);
            assert!(self.kv().synced_pos() >= pos);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(rows) => self.append(rows),
            Step::Wait(synced) => self.wait(*synced),
            Step::PassMs(ms) => self.sim.pass_ms((*ms).into()),
            Step::Checkpoint => drop(self.sim.run(self.kv().checkpoint())),
            Step::Compare(a, b) if !self.disk.is_dead() => self.compare(*a, *b),
            Step::Compare(..) => {}
            Step::Kill => self.reopen(false),
            Step::PowerCut => self.reopen(true),
            Step::DieAfter(ops) => self.disk.die_after(u64::from(*ops) / 4),
        }
        if self.disk.is_dead() {
            let cut = self.chance.below(2) == 0;
            self.reopen(cut);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_survives_is_a_prefix_that_is_long_enough(steps in steps(), seed in 1..u64::MAX / 2) {
        let mut world = World::new(seed);
        for step in &steps {
            world.step(step);
        }
        world.reopen(true);
    }
}

/// One run of random steps from a seed, without shrinking. The test of the planted bugs repeats it.
pub fn random_run(seed: u64) {
    let mut world = World::new(seed);
    let mut chance = SplitMix::new(seed ^ 0x57e95);
    for _ in 0..120 {
        let n = chance.next_u64() as u8;
        world.step(&match chance.below(28) {
            0..6 => Step::Wait(n.is_multiple_of(2)),
            6 | 7 => Step::PassMs(chance.below(1500) as u16),
            8 => Step::Checkpoint,
            9 => Step::Kill,
            10 | 11 => Step::PowerCut,
            12 | 13 => Step::DieAfter(n),
            _ => Step::Append(vec![(n, Some(u16::from(n) * 60)), (n / 2, None), (n / 3, Some(5))]),
        });
    }
    world.reopen(true);
}

/// Dies at every single disk operation of an opening, one after the other.
#[test]
fn an_opening_may_die_anywhere() {
    for cut in [false, true] {
        for ops in 0..60 {
            let mut world = World::new(1000 + ops);
            for n in 0..40 {
                world.append(&[(n, Some(300)), (n.wrapping_mul(7), None)]);
            }
            world.wait(true);
            world.append(&[(1, Some(3))]);
            world.wait(false);
            world.kv = None;
            world.sim.kill_tasks();
            world.disk = world.disk.kill();
            world.disk.die_after(ops);
            world.sim = Sim::new(ops, &world.disk);
            let opened = Kv::open(world.sim.seams.clone(), DIR, small_options());
            assert_eq!(opened.is_err(), world.disk.is_dead());
            if let Ok((_, report)) = opened {
                world.term = report.term;
            }
            world.reopen(cut);
        }
    }
}

/// Runs with the same seed make the same disk operations, byte for byte: neither this code nor redb depends
/// on chance.
#[test]
fn a_seed_replays() {
    let run = || {
        let mut world = World::new(42);
        let mut chance = SplitMix::new(4242);
        for _ in 0..400 {
            let n = chance.next_u64() as u8;
            match chance.below(20) {
                0 => world.reopen(false),
                1 => world.reopen(true),
                2 | 3 => world.wait(true),
                4..8 => world.wait(false),
                8 => world.sim.pass_ms(700),
                _ => world.append(&[(n, Some(u16::from(n) * 9)), (n / 2, None), (n / 3, Some(5))]),
            }
        }
        (world.disk.ops_hash(), world.state())
    };
    let first = run();
    assert!(first.1.len() > 20, "the run did something");
    assert!(first == run(), "the second run differs");
}
