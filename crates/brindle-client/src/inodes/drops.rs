//! Pages of one file that are to be dropped, in the background.
//!
//! A page that was changed through a mapping is written back first, which takes as long as its OST is away, and a thread that waits in
//! the kernel. Each range therefore has a task of its own, shared by all that ask for the range, and no range waits for another. The
//! tasks are at most as many as there are questions of servers that wait for one, and one for the whole file.
//!
//! Invariant: a wanted drop is over when a round that began after the request for it has ended.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges whose pages are being dropped.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// Drops under way, by first byte and end.
    under_way: BTreeMap<(u64, u64), Rounds>,
    /// Counts what was wanted.
    last: u64,
}

#[derive(Debug)]
struct Rounds {
    /// The last that was wanted.
    wanted: u64,
    /// The last that is over.
    done: u64,
}

/// A request that the pages of a range be dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    range: (u64, u64),
    number: u64,
}

impl Drops {
    /// Pages are to be dropped; and whether nobody is at it, so that rounds have to begin.
    pub fn want(&mut self, range: &Range<u64>) -> (Wanted, bool) {
        self.last += 1;
        let (range, number) = ((range.start, range.end), self.last);
        let is_under_way = self.under_way.contains_key(&range);
        let rounds = self.under_way.entry(range).or_insert(Rounds { wanted: number, done: number - 1 });
        rounds.wanted = number;
        (Wanted { range, number }, !is_under_way)
    }

    /// A round begins; it is about what was wanted up to what is returned.
    pub fn begin(&self, range: &Range<u64>) -> u64 {
        self.under_way.get(&(range.start, range.end)).map_or(self.last, |rounds| rounds.wanted)
    }

    /// The pages are gone that were wanted gone up to `number`; whether another round has to begin.
    pub fn end(&mut self, range: &Range<u64>, number: u64) -> bool {
        let range = (range.start, range.end);
        let Some(rounds) = self.under_way.get_mut(&range) else { return false };
        rounds.done = number;
        let goes_on = rounds.wanted > number;
        if !goes_on {
            self.under_way.remove(&range);
        }
        goes_on
    }

    /// Whether the pages are gone.
    pub fn is_over(&self, wanted: Wanted) -> bool {
        self.under_way.get(&wanted.range).is_none_or(|rounds| rounds.done >= wanted.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_for_what_was_wanted_before_it_began() {
        let (mut drops, range) = (Drops::default(), 0..4096);
        let (first, begins) = drops.want(&range);
        assert!(begins && !drops.is_over(first));
        let round = drops.begin(&range);
        let (second, begins) = drops.want(&range);
        assert!(!begins, "somebody is at it");
        let (other, begins) = drops.want(&(0..u64::MAX));
        assert!(begins, "another range waits for none");
        assert!(drops.end(&range, round), "one more round");
        assert!(drops.is_over(first) && !drops.is_over(second) && !drops.is_over(other));
        let round = drops.begin(&range);
        assert!(!drops.end(&range, round));
        assert!(drops.is_over(second));
        let (third, begins) = drops.want(&range);
        assert!(begins && drops.is_over(first) && drops.is_over(second) && !drops.is_over(third));
        let all = drops.begin(&(0..u64::MAX));
        assert!(!drops.end(&(0..u64::MAX), all) && drops.is_over(other));
    }
}
