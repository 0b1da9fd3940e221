//! Random choices from a seed, so that runs differ, and a run can be repeated as far as real processes
//! allow.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A second die, independent of this one's later throws.
    pub fn split(&mut self) -> Dice {
        Dice(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }

    pub fn millis(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to - from))
    }
}

/// The seed of a test, printed: `BRINDLE_SEED`, or a fresh one.
pub fn seed(test: &str) -> u64 {
    let given = std::env::var("BRINDLE_SEED").ok().and_then(|text| text.parse().ok());
    let fresh =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| u64::from(t.subsec_nanos()) + 1);
    let seed = given.unwrap_or_else(fresh);
    println!("{test}: BRINDLE_SEED={seed}");
    seed
}

/// Number of repetitions of the faults of a test: 1 in `make test`, more in the soak
/// (`BRINDLE_FAULT_ROUNDS`).
pub fn rounds() -> u64 {
    std::env::var("BRINDLE_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
