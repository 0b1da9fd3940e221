//! Garbage from a seed, for tests of everything that reads bytes or text from outside.
//!
//! `BRINDLE_SEED=n` throws the same dice again; `BRINDLE_FUZZ_ROUNDS=n` tries n times each: `make soak` many more than `make test`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cast::{low_u8, to_u64, to_usize};

/// Default number of tries.
const ROUNDS_DEFAULT: u64 = 2_000;
/// Good inputs that are changed to make others.
const CORPUS_MAX: usize = 64;
/// Longest input made from nothing.
const NEW_BYTES_MAX: u64 = 120;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The seed that a test is to use.
pub fn seed() -> u64 {
    from_env("BRINDLE_SEED", 1)
}

/// Number of rounds of a test.
pub fn rounds() -> u64 {
    from_env("BRINDLE_FUZZ_ROUNDS", ROUNDS_DEFAULT)
}

/// Numbers from a seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// Dice for the test called `what`.
    pub fn new(what: &str) -> Dice {
        Dice(seed() ^ what.bytes().fold(7, |sum, b| sum * 31 % 0x7fff_ffff + u64::from(b)))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// An index of a list of `len`; 0 for an empty one.
    fn index(&mut self, len: usize) -> usize {
        to_usize(self.below(to_u64(len)))
    }

    /// Picks one of `things`, which must not be empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.index(things.len())]
    }

    /// Mostly small numbers, which are lengths and variants, and the edges of variable-length integers.
    pub fn byte(&mut self) -> u8 {
        match self.below(10) {
            0 => low_u8(self.bits()),
            1 => *self.pick(&[0x7f, 0x80, 0xff, 0xfe]),
            2 => low_u8(self.below(6)),
            _ => low_u8(self.below(2)),
        }
    }

    /// Changes some bytes, and often the length.
    pub fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.index(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] = self.byte(),
                _ => bytes.push(self.byte()),
            }
        }
    }

    /// Changes some bytes and keeps the length.
    pub fn overwrite(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let at = self.index(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte = self.byte();
            }
        }
    }

    fn bytes(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.below(3) == 0 {
            let len = self.below(NEW_BYTES_MAX);
            return (0..len).map(|_| self.byte()).collect();
        }
        let mut bytes = self.pick(corpus).clone();
        self.change(&mut bytes);
        bytes
    }
}

/// Tries bytes on `read`, which gives `None` for those that it refuses, and of those that it takes their own, proper form. Returns how
/// many it took.
///
/// # Panics
/// When `read` panics, or says why what it does is wrong.
pub fn try_bytes(
    what: &str,
    good: Vec<Vec<u8>>,
    mut read: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, String>,
) -> u64 {
    let (mut dice, mut corpus, mut taken) = (Dice::new(what), good, 0);
    for round in 0..rounds() {
        let bytes = dice.bytes(&corpus);
        match catch_unwind(AssertUnwindSafe(|| read(&bytes))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(own))) => {
                taken += 1;
                let at = dice.index(CORPUS_MAX);
                if corpus.len() < CORPUS_MAX { corpus.push(own) } else { corpus[at] = own }
            }
            Ok(Err(why)) => panic!("{what}, seed {}, round {round}: {why}: {bytes:02x?}", seed()),
            Err(_) => panic!("{what}, seed {}, round {round} panicked: {bytes:02x?}", seed()),
        }
    }
    taken
}

/// Tries texts made of `parts` on `read`, which says whether it takes them. Returns how many it took.
///
/// # Panics
/// When `read` panics, or says why what it does is wrong.
pub fn try_texts(what: &str, parts: &[&str], mut read: impl FnMut(&str) -> Result<bool, String>) -> u64 {
    const PARTS_MAX: u64 = 8;
    let (mut dice, mut taken) = (Dice::new(what), 0);
    for round in 0..rounds() {
        let mut text = String::new();
        for _ in 0..dice.below(PARTS_MAX) {
            match dice.below(8) {
                0 => text.push(char::from(b' ' + low_u8(dice.below(95)))),
                1 => text.push(*dice.pick(&['\0', '\u{e9}', '\u{10ffff}', '\n', '-', ','])),
                2 => text.push_str(&dice.bits().to_string()),
                _ => text.push_str(dice.pick::<&str>(parts)),
            }
        }
        match catch_unwind(AssertUnwindSafe(|| read(&text))) {
            Ok(Ok(is_taken)) => taken += u64::from(is_taken),
            Ok(Err(why)) => panic!("{what}, seed {}, round {round}: {why}: {text:?}", seed()),
            Err(_) => panic!("{what}, seed {}, round {round} panicked: {text:?}", seed()),
        }
    }
    taken
}
