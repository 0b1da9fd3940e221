//! Written bytes that no `fsync` has covered yet: which OST, under which boot term, and the bytes themselves while
//! there is memory for them. If an OST loses the bytes in a power cut, they can be written again.
//!
//! Owned by an inode's shared state, and free of I/O. Bytes are kept only while no other client can write the file: a
//! second write of kept bytes could otherwise undo a later write of somebody else. Invariant: [`Unsynced::plan`]
//! never answers "nothing to do" while a write of an older term is uncovered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes of unsynced writes that one mount keeps.
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Pieces shorter than this are copied, so that they do not pin the large buffer they lie in.
const COPY_BELOW_BYTES: usize = 256 << 10;

/// Limit of the bytes that a mount keeps.
pub(crate) struct Budget {
    max_bytes: usize,
    used_bytes: AtomicUsize,
}

/// Memory for some kept bytes; given back when dropped.
pub(crate) struct Room {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(max_bytes: usize) -> Budget {
        Budget { max_bytes, used_bytes: AtomicUsize::new(0) }
    }

    /// Takes bytes of the budget, if there are enough.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Room { budget: self.clone(), bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

struct UnsyncedEntry {
    sequence: u64,
    term: u32,
    offset: u64,
    data: Bytes,
    _room: Room,
}

/// Unsynced writes to one object.
#[derive(Default)]
pub(crate) struct Unsynced {
    kept: Vec<UnsyncedEntry>,
    /// Terms of writes that are not kept: (sequence of the last, oldest term, newest term).
    unkept: Option<(u64, u32, u32)>,
}

/// The plan for an OST that runs under a certain term.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Every write was made under the term.
    Nothing,
    /// Write these again, in this order: (offset in the object, bytes).
    Resend(Vec<(u64, Bytes)>),
    /// At least one write is lost for good.
    Lost,
}

impl Unsynced {
    /// Notes a write; `sequence` grows from write to write of the inode. Bytes are kept if `keep` has room for them.
    pub fn add(&mut self, sequence: u64, term: u32, offset: u64, data: &Bytes, keep: Option<&Arc<Budget>>) {
        match keep.and_then(|budget| budget.take(data.len())) {
            Some(room) => {
                let copy = data.len() < COPY_BELOW_BYTES;
                let data = if copy { Bytes::copy_from_slice(data) } else { data.clone() };
                self.kept.push(UnsyncedEntry { sequence, term, offset, data, _room: room });
            }
            None => self.add_unkept(sequence, term),
        }
    }

    /// Notes a change whose bytes are not kept.
    pub fn add_unkept(&mut self, sequence: u64, term: u32) {
        let (last, oldest, newest) = self.unkept.unwrap_or((sequence, term, term));
        self.unkept = Some((last.max(sequence), oldest.min(term), newest.max(term)));
    }

    /// Gives the bytes up (another client may write the file from now on, or it was truncated); the terms stay.
    pub fn drop_bytes(&mut self) {
        for kept in std::mem::take(&mut self.kept) {
            self.add_unkept(kept.sequence, kept.term);
        }
    }

    /// The plan for an OST that runs under `term`.
    pub fn plan(&self, term: u32) -> Plan {
        if self.unkept.is_some_and(|(_, oldest, _)| oldest != term) {
            return Plan::Lost;
        }
        let Some(first) = self.kept.iter().position(|k| k.term != term) else { return Plan::Nothing };
        if self.unkept.is_some() {
            // A newer write whose place is not known could lie under an older one that is sent again.
            return Plan::Lost;
        }
        Plan::Resend(self.kept[first..].iter().map(|k| (k.offset, k.data.clone())).collect())
    }

    /// Sets the boot term of all bytes that were written again to `term`.
    pub fn resent(&mut self, term: u32) {
        for kept in &mut self.kept {
            kept.term = term;
        }
    }

    /// Notes that writes up to `sequence` are on stable storage; returns whether no write is left.
    pub fn synced(&mut self, sequence: u64) -> bool {
        self.kept.retain(|k| k.sequence > sequence);
        if self.unkept.is_some_and(|(last, _, _)| last <= sequence) {
            self.unkept = None;
        }
        self.kept.is_empty() && self.unkept.is_none()
    }

    /// Oldest term of a write.
    pub fn oldest_term(&self) -> Option<u32> {
        let kept = self.kept.iter().map(|k| k.term).min();
        let unkept = self.unkept.map(|(_, oldest, _)| oldest);
        kept.into_iter().chain(unkept).min()
    }

    /// The term to check against if the writes were made under several: the OST is known to have lost some.
    pub fn torn(&self) -> Option<u32> {
        let kept = self.kept.iter().map(|k| k.term).max();
        let newest = kept.into_iter().chain(self.unkept.map(|(_, _, newest)| newest)).max()?;
        (self.oldest_term() != Some(newest)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(n: usize) -> Bytes {
        Bytes::from(vec![7; n])
    }

    #[test]
    fn what_a_power_cut_took_is_sent_again_in_order() {
        let budget = Arc::new(Budget::new(KEPT_BYTES_MAX));
        let mut u = Unsynced::default();
        u.add(1, 4, 0, &data(10), Some(&budget));
        u.add(2, 5, 5, &data(10), Some(&budget));
        assert_eq!(u.torn(), Some(5));
        assert_eq!(u.plan(5), Plan::Resend(vec![(0, data(10)), (5, data(10))]));
        u.resent(5);
        assert_eq!(u.plan(5), Plan::Nothing);
        assert!(!u.synced(1), "the second write is still there");
        assert!(u.synced(2));
        assert_eq!(budget.used_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_not_kept_is_lost_with_its_term() {
        let mut u = Unsynced::default();
        u.add(1, 4, 0, &data(10), None);
        assert_eq!((u.plan(4), u.plan(5)), (Plan::Nothing, Plan::Lost));
        let budget = Arc::new(Budget::new(KEPT_BYTES_MAX));
        let mut u = Unsynced::default();
        u.add(1, 4, 0, &data(10), Some(&budget));
        u.add(2, 5, 0, &data(KEPT_BYTES_MAX), Some(&budget));
        assert_eq!(u.plan(5), Plan::Lost, "the newer write had no room, and may lie over the older");
        u.drop_bytes();
        assert_eq!(u.oldest_term(), Some(4));
        assert!(u.synced(2));
    }
}
