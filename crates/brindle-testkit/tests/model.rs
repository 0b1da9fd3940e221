//! Two simulated clients without faults against the POSIX model: every answer is equal. `BRINDLE_MODEL_OPS` says how many
//! operations, `BRINDLE_SEED` from which seed.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test tells people how to replay what it found"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::fs::{ClientFs, InodeMap};
use brindle_testkit::model::{Generator, Model, SLOTS};

/// Operations of an ordinary `cargo test`.
const OPS_DEFAULT: usize = 100_000;
/// Longest virtual time.
const LIMIT_MS: u64 = 1_000_000_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn two_clients_answer_as_the_model() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = number("BRINDLE_SEED").unwrap_or(now % 1_000_000_000);
    let ops = number("BRINDLE_MODEL_OPS").map_or(OPS_DEFAULT, |n| n as usize);
    eprintln!("{ops} operations; replay: BRINDLE_SEED={seed}");
    let cluster = SimCluster::new(seed, Options::default());
    let world = cluster.world().clone();
    let all = async {
        let mut mounts = Vec::new();
        for name in ["c0", "c1"] {
            let client = SimCluster::mount(&world.node(name)).await;
            let root = client.root();
            mounts.push(ClientFs::new(client, root));
        }
        let (mut model, mut inodes) = (Model::default(), InodeMap::default());
        let mut generator = Generator::new(seed, 1_200_000);
        for n in 0..ops {
            let which = generator.below(2) as usize;
            let op = generator.next_op(&model, which * SLOTS);
            let expected = model.apply(&op);
            let got = mounts[which].apply(&op).await;
            let got = got.unwrap_or_else(|fault| panic!("seed {seed}, operation {n} {op:?}: {fault:?}"));
            assert!(
                inodes.same(&expected, &got),
                "seed {seed}, operation {n} on c{which}: {op:?}\n answered {:.300}\n expected {:.300}",
                format!("{got:?}"),
                format!("{expected:?}")
            );
        }
    };
    world.run_until(LIMIT_MS, all).unwrap();
    world.end();
}
