//! Trace of events: a hash over all events, counters, and on request the last lines as text.

use std::collections::{BTreeMap, VecDeque};

use super::rng::{mix, mix_text};

/// Record of a run.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    counts: BTreeMap<&'static str, u64>,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    /// Adds an event to the hash.
    pub fn event(&mut self, what: &'static str, numbers: &[u64]) {
        self.hash = numbers.iter().fold(mix_text(self.hash, what), |h, n| mix(h, *n));
    }

    /// Counts an event of this kind.
    pub fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Keeps a line of text, if lines are kept.
    pub fn line(&mut self, line: impl FnOnce() -> String) {
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line());
    }

    /// Keeps the last `lines_max` lines from now on.
    pub fn keep_lines(&mut self, lines_max: usize) {
        self.lines_max = lines_max;
    }

    /// The lines that are kept.
    pub fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// Hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events by kind.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.clone()
    }
}
