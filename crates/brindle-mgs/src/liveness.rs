//! Liveness of targets: volatile, derived from heartbeats, shown in every map that is given out.
//!
//! A target that falls silent is not a change of the map: its address and epoch are as they were, and its clients wait
//! for it anyway. Therefore the MGS writes nothing and raises no version when the target goes down or comes back; a
//! caller of the map sees the state of that moment. After a restart of the MGS every target counts as heard of for one
//! lease.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_types::TargetId;
use brindle_wire::map::{Map, TargetState};

/// Time at which each target was heard of last.
#[derive(Debug)]
pub struct Liveness {
    started: Mono,
    lease_ms: u64,
    heard: BTreeMap<TargetId, Mono>,
}

impl Liveness {
    /// Table without hosts: none has been heard of yet.
    pub fn new(started: Mono, lease_ms: u64) -> Liveness {
        Liveness { started, lease_ms, heard: BTreeMap::new() }
    }

    /// A registration or heartbeat came.
    pub fn heard(&mut self, target: TargetId, now: Mono) {
        self.heard.insert(target, now);
    }

    /// Time at which the target was heard of last; the start of the MGS if not since.
    pub fn last(&self, target: TargetId) -> Mono {
        self.heard.get(&target).copied().unwrap_or(self.started)
    }

    /// Up for one lease after it was heard of.
    pub fn state(&self, target: TargetId, now: Mono) -> TargetState {
        let silent_ms = now.ms_since(self.last(target));
        // The MGS itself answers, so it is there.
        if target == TargetId::MGT || silent_ms <= self.lease_ms {
            TargetState::Up
        } else {
            TargetState::Down
        }
    }

    /// Fills in the states.
    pub fn show(&self, now: Mono, map: &mut Map) {
        for target in &mut map.targets {
            target.state = self.state(target.id, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_for_a_lease_is_down_and_a_word_is_up() {
        let start = Mono(0).plus_ms(1000);
        let mut l = Liveness::new(start, 6000);
        let ost = TargetId::ost(1);
        assert_eq!(l.state(ost, start.plus_ms(6000)), TargetState::Up, "a lease of grace after the start");
        assert_eq!(l.state(ost, start.plus_ms(6001)), TargetState::Down);
        l.heard(ost, start.plus_ms(7000));
        assert_eq!(l.state(ost, start.plus_ms(13_000)), TargetState::Up);
        assert_eq!(l.state(ost, start.plus_ms(13_001)), TargetState::Down);
        assert_eq!(l.state(TargetId::MGT, start.plus_ms(1 << 40)), TargetState::Up);
    }
}
