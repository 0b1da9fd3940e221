//! Acknowledgements of marks, on their way to the OSTs that gave the marks: they ride on the next write to that OST. An
//! OST that is not told gives the same marks out again, which costs a message and nothing else. The acknowledgements are
//! therefore bounded, and none is sent twice.

use std::collections::{BTreeMap, VecDeque};

use brindle_wire::oss::{AcknowledgedMarks, TOLD_MAX};
use parking_lot::Mutex;

/// Confirmations kept for one OST; the oldest go first.
const KEPT_MAX: usize = 1024;

/// Confirmations that wait for the next write, by OST.
#[derive(Default)]
pub(crate) struct MarkAcks {
    by_ost: Mutex<BTreeMap<u16, VecDeque<AcknowledgedMarks>>>,
}

impl MarkAcks {
    /// The pages are gone.
    pub fn add(&self, takings: impl IntoIterator<Item = (u16, AcknowledgedMarks)>) {
        let mut by_ost = self.by_ost.lock();
        for (ost, told) in takings {
            let waiting = by_ost.entry(ost).or_default();
            if waiting.len() == KEPT_MAX {
                waiting.pop_front();
            }
            waiting.push_back(told);
        }
    }

    /// Takes the confirmations that the next request to `ost` carries.
    pub fn take(&self, ost: u16) -> Vec<AcknowledgedMarks> {
        let mut by_ost = self.by_ost.lock();
        let Some(waiting) = by_ost.get_mut(&ost) else { return Vec::new() };
        waiting.drain(..waiting.len().min(TOLD_MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, ObjectId, Pair};

    #[test]
    fn confirmations_are_bounded_and_sent_once_in_order() {
        let object = ObjectId { ino: Ino(2), generation: Pair { term: 1, counter: 1 }, stripe: 0 };
        let told = |taking| (3, AcknowledgedMarks { object, taking, offset: 0, len_bytes: 1 });
        let mark_acks = MarkAcks::default();
        mark_acks.add((0..KEPT_MAX as u64 + 5).map(told));
        assert_eq!(mark_acks.take(4), []);
        let mut sent = Vec::new();
        loop {
            let next = mark_acks.take(3);
            assert!(next.len() <= TOLD_MAX);
            if next.is_empty() {
                break;
            }
            sent.extend(next.into_iter().map(|t| t.taking));
        }
        assert_eq!(sent, (5..KEPT_MAX as u64 + 5).collect::<Vec<_>>());
    }
}
