//! Extents of files that are being restored: those that have come back, and those that readers wait for (design note 054).
//!
//! | promise | by |
//! |---|---|
//! | extents count only for the attempt that goes on | they are forgotten when the action is given out again, and a late report is refused |
//! | a file without a name that is gone is not read | its row is looked at with each answer; its objects go after its row |
//! | readers that come first are served first | `wanted` keeps their order; agents fetch those extents next |
//!
//! All of it is in memory: an agent tells every extent each time, so one report after a restart of the MDT is enough.

use std::collections::VecDeque;
use std::ops::Range;

use brindle_types::hsm::Extents;
use brindle_types::{Ino, Pair};
use brindle_wire::mds::hsm::{HsmAttempt, WANTED_MAX};

use super::queue::Queue;

/// Extents of a file that is being restored.
#[derive(Default)]
pub struct Restoring {
    /// The report of the attempt that goes on.
    part: Option<Part>,
    /// Extents that readers wait for, first come first; at most [`WANTED_MAX`].
    wanted: VecDeque<u64>,
}

/// Extents that an attempt has restored.
#[derive(Clone, Debug)]
pub struct Part {
    /// Number of the attempt.
    pub attempt: Pair,
    /// The file without a name that has the bytes.
    pub from: Ino,
    /// The extents that are there.
    pub here: Extents,
}

impl Part {
    /// Whether all bytes of a range are there.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.here.touched(range).all(|extent| self.here.has(extent))
    }
}

impl Restoring {
    /// Extents that readers wait for, first come first.
    pub(super) fn wanted(&self) -> impl Iterator<Item = u64> {
        self.wanted.iter().copied()
    }

    /// Extents that an agent has restored for another one, of this attempt.
    pub(super) fn add(&mut self, at: &HsmAttempt, extents: Range<u64>) {
        if let Some(part) = self.part.as_mut().filter(|part| part.attempt == at.attempt) {
            extents.clone().for_each(|extent| part.here.add(extent));
            self.wanted.retain(|extent| !extents.contains(extent));
        }
    }
}

impl Queue {
    /// Extents of a file that have come back, if its attempt has reported any.
    pub fn part(&self, ino: Ino) -> Option<&Part> {
        self.restoring.get(&ino)?.part.as_ref()
    }

    /// The released file whose bytes an attempt puts into this one.
    pub fn restored_from(&self, from: Ino) -> Option<Ino> {
        let is_from = |part: &Part| part.from == from;
        self.restoring.iter().find(|(_, known)| known.part.as_ref().is_some_and(is_from)).map(|(ino, _)| *ino)
    }

    /// Notes that a reader waits for extents. Where too many wait, the agent comes to the others in the order of the file.
    pub fn want(&mut self, ino: Ino, extents: Range<u64>) {
        if !self.actions.contains_key(&ino) {
            return;
        }
        let known = self.restoring.entry(ino).or_default();
        for extent in extents.take(WANTED_MAX) {
            if known.wanted.len() < WANTED_MAX && !known.wanted.contains(&extent) {
                known.wanted.push_back(extent);
            }
        }
    }

    /// Takes in what an attempt has restored. Returns the extents that readers still wait for, and whether any extent is new; `None` if
    /// the attempt is over.
    pub fn take_extents(&mut self, at: &HsmAttempt, from: Ino, here: Extents) -> Option<(Vec<u64>, bool)> {
        if !self.is_running(at) {
            return None;
        }
        let mut here = here;
        // The report may be older than what other agents have told.
        self.restored_spans(at).into_iter().flatten().for_each(|extent| here.add(extent));
        let known = self.restoring.entry(at.ino).or_default();
        let before = known.part.as_ref().filter(|part| part.from == from).map_or(0, |part| part.here.len());
        let is_more = here.len() > before;
        known.wanted.retain(|extent| !here.has(*extent));
        known.part = Some(Part { attempt: at.attempt, from, here });
        Some((known.wanted.iter().copied().collect(), is_more))
    }

    /// The attempt at a file is over: what it has restored is nobody's. Its readers still wait.
    pub(super) fn end_attempt(&mut self, ino: Ino) {
        if let Some(known) = self.restoring.get_mut(&ino) {
            known.part = None;
        }
    }
}
