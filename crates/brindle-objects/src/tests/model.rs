//! Random operations against a plain vector of bytes, with the process killed in between.

use proptest::prelude::*;

use super::*;
use crate::format::REGION;

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize),
    Truncate(u64),
    Punch(u64, u64, bool),
    Allocate(u64, u64, bool),
    Sync,
    Restart,
    PowerCutAfterSync,
    Pass(u64),
}

/// Offsets where things happen: the start, both sides of the first and second region's end.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..20_000,
        REGION - 10_000..REGION + 10_000,
        2 * REGION - 5_000..2 * REGION + 9_000,
        (0u64..12).prop_map(|n| n * 4096),
    ]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..100, 1u64..20_000, (1u64..5).prop_map(|n| n * 4096), 1u64..(REGION + 50_000)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (offset(), len()).prop_map(|(o, l)| Op::Write(o, l as usize)),
        2 => offset().prop_map(Op::Truncate),
        2 => (offset(), len(), any::<bool>()).prop_map(|(o, l, k)| Op::Punch(o, l, k)),
        1 => (offset(), len(), any::<bool>()).prop_map(|(o, l, k)| Op::Allocate(o, l, k)),
        2 => Just(Op::Sync),
        1 => Just(Op::Restart),
        1 => Just(Op::PowerCutAfterSync),
        1 => (0u64..6000).prop_map(Op::Pass),
    ]
}

fn step(b: &mut Bench, model: &mut Vec<u8>, n: u64, op: &Op) {
    match *op {
        Op::Write(offset, len) => {
            let data = noise(n + 1, len);
            b.write(offset, &data).expect("written");
            let end = offset as usize + len;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
        }
        Op::Truncate(len) => {
            b.truncate(len).expect("truncated");
            model.resize(len as usize, 0);
        }
        Op::Punch(offset, len, keep) => {
            b.punch(offset, len, keep).expect("punched");
            let end = (offset + len).min(model.len() as u64) as usize;
            model.get_mut(offset as usize..end).into_iter().for_each(|s| s.fill(0));
        }
        Op::Allocate(offset, len, keep_len) => {
            b.allocate(offset, len, keep_len).expect("allocated");
            if !keep_len {
                model.resize(model.len().max((offset + len) as usize), 0);
            }
        }
        Op::Sync => drop(b.sync().expect("synced")),
        Op::Restart => b.restart(),
        Op::PowerCutAfterSync => {
            b.sync().expect("synced");
            b.power_cut();
        }
        Op::Pass(ms) => b.pass_ms(ms),
    }
}

fn check_seeks(b: &Bench, model: &[u8], from: u64) {
    let seek = |data| block_on(b.store.seek(O, from, data, false)).expect("sought");
    if let Some(at) = seek(true) {
        assert!(at >= from && at < model.len() as u64);
        assert!(model[from as usize..at as usize].iter().all(|x| *x == 0), "data was skipped");
    } else {
        assert!(model.iter().skip(from as usize).all(|x| *x == 0), "data was not found");
    }
    let hole = seek(false).expect("the end is a hole");
    assert!(hole >= from && hole <= from.max(model.len() as u64));
    if hole < model.len() as u64 {
        let block_end = model.len().min((hole as usize / 4096 + 1) * 4096);
        assert!(model[hole as usize..block_end].iter().all(|x| *x == 0), "a hole that holds data");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn an_object_is_a_vector_of_bytes(
        ops in proptest::collection::vec(op(), 1..25), probes in proptest::collection::vec((offset(), len()), 4),
    ) {
        let mut b = Bench::new(3);
        let mut model = Vec::new();
        for (n, op) in ops.iter().enumerate() {
            step(&mut b, &mut model, n as u64, op);
            prop_assert_eq!(b.len(), model.len() as u64, "after {:?}", op);
        }
        prop_assert!(b.read(0, 16 << 20).expect("read") == model, "contents differ");
        for (offset, len) in probes {
            let from = (offset as usize).min(model.len());
            let to = (from + len as usize).min(model.len());
            prop_assert!(b.read(from as u64, (to - from) as u64).expect("read") == model[from..to]);
            check_seeks(&b, &model, offset.min(model.len() as u64));
        }
        prop_assert_eq!(b.stat("damaged_blocks"), 0);
        prop_assert_eq!(b.stat("resummed_blocks"), 0);
    }
}
