//! Numbers that are never given out twice, not even after a power cut: inode numbers from durable reservations, pairs
//! (term, counter) from the durable term.

use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Ino, Pair};
use tokio::sync::Notify;

use crate::store::meta::LostTerms;

/// Inode numbers reserved at once.
pub const INODES_RESERVED: u64 = 1 << 16;
/// Counters up to here are reserved for inodes that exist from the beginning (the root is 1).
pub const INODES_FIRST: u64 = 16;

/// Counters of one opening of the MDT.
pub struct Numbers {
    mdt_index: u16,
    term: u32,
    counter: AtomicU64,
    /// Next inode counter.
    next_inode: AtomicU64,
    /// End of the reservation that is known to be durable.
    inodes_end: AtomicU64,
    /// The reservation is half used.
    low: Notify,
    /// Terms of which a backup, that this MDT was restored from, does not know all.
    lost: LostTerms,
}

impl Numbers {
    /// Numbers of a new term; inode counters begin at `first_inode` and none is reserved yet.
    pub fn new(mdt_index: u16, term: u32, first_inode: u64) -> Numbers {
        Numbers {
            mdt_index,
            term,
            counter: AtomicU64::new(1),
            next_inode: AtomicU64::new(first_inode),
            inodes_end: AtomicU64::new(first_inode),
            low: Notify::new(),
            lost: LostTerms::default(),
        }
    }

    /// Numbers of an MDT that was restored from a backup, which has lost a part of these terms.
    pub fn without(self, lost: LostTerms) -> Numbers {
        Numbers { lost, ..self }
    }

    /// Whether something of this term may have been made after the backup that the MDT was restored from. The
    /// objects made then are unknown, so none of them may be called garbage.
    pub fn is_lost(&self, term: u32) -> bool {
        self.lost.ranges.iter().any(|range| range.contains(&term))
    }

    /// Term of this opening.
    pub fn term(&self) -> u32 {
        self.term
    }

    /// The next pair.
    pub fn pair(&self) -> Pair {
        Pair { term: self.term, counter: self.counter.fetch_add(1, Ordering::Relaxed) }
    }

    /// The next inode number; `None` when the reservation is used up (it is extended in the background). Called under
    /// the writer lock.
    pub fn ino(&self) -> Option<Ino> {
        let end = self.inodes_end.load(Ordering::Acquire);
        let next = self.next_inode.load(Ordering::Relaxed);
        if end.saturating_sub(next) <= INODES_RESERVED / 2 {
            self.low.notify_one();
        }
        if next >= end {
            return None;
        }
        self.next_inode.store(next + 1, Ordering::Relaxed);
        Some(Ino::new(self.mdt_index, next))
    }

    /// End of the durable reservation.
    pub fn reserved(&self) -> u64 {
        self.inodes_end.load(Ordering::Acquire)
    }

    /// A reservation up to `end` is durable.
    pub fn set_reserved(&self, end: u64) {
        let before = self.inodes_end.swap(end, Ordering::AcqRel);
        assert!(before <= end, "a reservation of inode numbers up to {end} behind one up to {before}");
    }

    /// Completes when the reservation is half used.
    pub async fn until_low(&self) {
        self.low.notified().await;
    }

    /// Whether this MDT may have given out an inode number in any term.
    pub fn issued(&self, ino: Ino) -> bool {
        ino.mdt() == self.mdt_index && ino.counter() < self.reserved()
    }
}
