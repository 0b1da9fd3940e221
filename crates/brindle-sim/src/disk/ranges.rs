//! A set of numbers as ranges: the blocks of a file that take space.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch each other.
#[derive(Clone, Default)]
pub(super) struct RangeSet {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
    count: u64,
}

impl RangeSet {
    /// Number of members.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The range that holds `at`, or else the first behind it.
    fn at_or_behind(&self, at: u64) -> Option<Range<u64>> {
        let before = self.ends.range(..=at).next_back().filter(|(_, end)| **end > at);
        let (start, end) = before.or_else(|| self.ends.range(at..).next())?;
        Some(*start..*end)
    }

    pub fn contains(&self, at: u64) -> bool {
        self.at_or_behind(at).is_some_and(|found| found.start <= at)
    }

    /// Members within `range`.
    pub fn count_within(&self, range: Range<u64>) -> u64 {
        let mut count = 0;
        let mut at = range.start;
        while let Some(found) = self.at_or_behind(at).filter(|found| found.start < range.end) {
            count += found.end.min(range.end) - found.start.max(range.start);
            at = found.end;
        }
        count
    }

    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty()
            || self.at_or_behind(range.start).is_some_and(|f| f.start <= range.start && range.end <= f.end)
        {
            return;
        }
        let Range { mut start, mut end } = range;
        // Takes in whatever it overlaps or touches.
        while let Some((from, to)) = self.ends.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            self.ends.remove(&from);
            self.count -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.ends.insert(start, end);
        self.count += end - start;
    }

    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some(found) = self.at_or_behind(range.start).filter(|found| found.start < range.end) {
            self.ends.remove(&found.start);
            self.count -= found.end - found.start;
            for rest in [found.start..range.start, range.end..found.end] {
                if rest.start < rest.end {
                    self.ends.insert(rest.start, rest.end);
                    self.count += rest.end - rest.start;
                }
            }
        }
    }

    /// The number behind the last member; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.ends.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// First member at or behind `at`.
    pub fn next_member(&self, at: u64) -> Option<u64> {
        Some(self.at_or_behind(at)?.start.max(at))
    }

    /// First number at or behind `at` that is no member.
    pub fn next_gap(&self, at: u64) -> u64 {
        self.at_or_behind(at).filter(|found| found.start <= at).map_or(at, |found| found.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::SplitMix;

    #[test]
    fn a_set_of_ranges_is_the_set_of_their_numbers() {
        for seed in 0..200 {
            let (mut set, mut model, mut rng) = (RangeSet::default(), BTreeSet::new(), SplitMix::new(seed));
            for _ in 0..100 {
                let start = rng.below(60);
                let range = start..start + rng.below(12);
                if rng.one_in(2) {
                    set.remove(range.clone());
                    model.retain(|n| !range.contains(n));
                } else {
                    set.insert(range.clone());
                    model.extend(range.clone());
                }
                assert_eq!(set.count(), model.len() as u64);
                let at = rng.below(70);
                assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
                assert_eq!(set.contains(at), model.contains(&at));
                assert_eq!(set.next_member(at), model.range(at..).next().copied());
                assert_eq!(Some(set.next_gap(at)), (at..).find(|n| !model.contains(n)));
                let within = at..at + rng.below(20);
                assert_eq!(set.count_within(within.clone()), model.range(within).count() as u64);
                let touching =
                    set.ends.iter().zip(set.ends.keys().skip(1)).any(|((_, end), next)| end >= next);
                assert!(!touching, "seed {seed}: {:?}", set.ends);
            }
        }
    }
}
