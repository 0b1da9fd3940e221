//! Runs random operations against the POSIX model and a real tree, and reports the first difference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brindle_testkit::model::{Generator, Model, Op, Outcome};

use crate::syscalls::Syscalls;

/// Slots of each client.
const SLOTS: usize = 6;
/// Largest offset drawn, in bytes.
const SIZE_MAX: u64 = 3 << 20;

/// Runs `count` operations from `seed` through the clients at `roots` (all showing one empty directory); returns how
/// many succeeded.
///
/// # Errors
/// Text that names the operation, what the model says and what was answered, with the operations before it.
pub fn compare(roots: Vec<PathBuf>, seed: u64, count: usize) -> Result<usize, String> {
    let clients = roots.len() as u64;
    let (mut model, mut real) = (Model::default(), Syscalls::new(roots, SLOTS));
    let mut generator = Generator::new(seed, SIZE_MAX);
    let mut inos = BTreeMap::new();
    let mut recent: Vec<String> = Vec::new();
    let mut succeeded = 0;
    for step in 0..count {
        let client = generator.below(clients) as usize;
        let op = generator.next_op(&model, client * SLOTS);
        let expected = model.apply(&op);
        succeeded += usize::from(!matches!(expected, Outcome::Errno(_)));
        let got = real.apply(client, &op);
        recent.push(format!("  {step} client {client}: {op:?}"));
        if recent.len() > 25 {
            recent.remove(0);
        }
        if !same(&expected, &got, &op, &mut inos) {
            let before = recent.join("\n");
            return Err(format!(
                "seed {seed}, step {step}: {op:?}\n  model: {}\n  real:  {}\nlast operations:\n{before}",
                short(&expected, &got),
                short(&got, &expected),
            ));
        }
    }
    Ok(succeeded)
}

/// Equal, with inode numbers compared through a one-to-one map.
fn same(expected: &Outcome, got: &Outcome, op: &Op, inos: &mut BTreeMap<u64, u64>) -> bool {
    match (expected, got) {
        (Outcome::Stat(a), Outcome::Stat(b)) => {
            let known = *inos.entry(a.ino).or_insert(b.ino);
            known == b.ino && (a.mode, a.nlink, a.size) == (b.mode, b.nlink, b.size)
        }
        // A copy of nothing onto overlapping ranges is refused or not depending on where the size is looked at.
        (Outcome::Errno(_), Outcome::Count(0)) | (Outcome::Count(0), Outcome::Errno(_)) => {
            matches!(op, Op::Copy { .. })
        }
        _ => expected == got,
    }
}

/// An outcome as one line; of bytes, the length and the first difference.
fn short(a: &Outcome, b: &Outcome) -> String {
    let (Outcome::Bytes(x), Outcome::Bytes(y)) = (a, b) else { return format!("{a:?}") };
    let at = x.iter().zip(y).position(|(p, q)| p != q).unwrap_or(x.len().min(y.len()));
    let end = (at + 8).min(x.len());
    format!("{} bytes, from byte {at}: {:?}", x.len(), &x[at..end])
}
