//! The client's table of slots for one target: which are free, and the last sequence of each.
//!
//! Called by [`crate::caller`]. A request that changes durable state takes a slot and the next sequence in it, and
//! keeps both until its outcome is known, however often it is sent again and whoever has given up waiting for it.
//! Invariant: at most one request uses a slot at a time, and sequences in a slot only grow.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most slots of a session at one target.
pub const SLOTS_MAX: u16 = 256;

/// Free slots and sequences of one target.
pub struct SlotTable {
    table: Arc<Mutex<Table>>,
    permits: Arc<Semaphore>,
}

struct Table {
    free: BTreeSet<u16>,
    sequences: Vec<u64>,
    limit: u16,
}

/// A slot that is in use; free again when dropped.
pub struct Slot {
    table: Arc<Mutex<Table>>,
    number: u16,
    sequence: u64,
    _permit: OwnedSemaphorePermit,
}

impl Default for SlotTable {
    fn default() -> SlotTable {
        SlotTable::new(SLOTS_MAX)
    }
}

impl SlotTable {
    /// A table of `slots` slots, all free.
    pub fn new(slots: u16) -> SlotTable {
        let slots = slots.clamp(1, SLOTS_MAX);
        let table = Table { free: (0..slots).collect(), sequences: vec![0; slots.into()], limit: slots };
        SlotTable { table: Arc::new(Mutex::new(table)), permits: Arc::new(Semaphore::new(slots.into())) }
    }

    /// Uses only `slots` slots from now on, if that is fewer than before (the server said how many it keeps).
    /// Called before the first slot is taken.
    pub fn limit(&self, slots: u16) {
        let mut table = self.table.lock();
        let slots = slots.max(1);
        if slots < table.limit {
            self.permits.forget_permits((table.limit - slots).into());
            table.limit = slots;
        }
    }

    /// Takes the lowest free slot and the next sequence in it; waits while all are in use. First come, first served.
    pub async fn acquire(&self) -> Slot {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let mut table = self.table.lock();
        let number = table.free.pop_first().expect("as many permits as free slots");
        let sequence = &mut table.sequences[usize::from(number)];
        *sequence += 1;
        Slot { table: self.table.clone(), number, sequence: *sequence, _permit: permit }
    }

    /// Number of slots in use.
    pub fn in_use(&self) -> usize {
        let table = self.table.lock();
        table.sequences.len() - table.free.len()
    }
}

impl Slot {
    /// Number of the slot.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The sequence of this use.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Goes on to the next sequence: for a request that was certainly not executed and is made anew.
    pub fn renew(&mut self) {
        let mut table = self.table.lock();
        let sequence = &mut table.sequences[usize::from(self.number)];
        *sequence += 1;
        self.sequence = *sequence;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.lock().free.insert(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn sequences_grow_and_slots_are_bounded() {
        let table = SlotTable::new(4);
        table.limit(2);
        let a = table.acquire().now_or_never().expect("free");
        let b = table.acquire().now_or_never().expect("free");
        assert_eq!((a.number(), a.sequence(), b.number()), (0, 1, 1));
        assert!(table.acquire().now_or_never().is_none(), "two slots only");
        drop(a);
        let mut c = table.acquire().now_or_never().expect("freed");
        assert_eq!((c.number(), c.sequence()), (0, 2));
        c.renew();
        assert_eq!(c.sequence(), 3);
        drop(c);
        assert_eq!(table.acquire().now_or_never().expect("free").sequence(), 4);
        drop(b);
        assert_eq!(table.in_use(), 0);
    }

    #[test]
    fn a_waiter_that_gave_up_loses_nothing() {
        let table = SlotTable::new(1);
        let held = table.acquire().now_or_never().expect("free");
        let mut waiting = Box::pin(table.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        drop(waiting);
        assert!(table.acquire().now_or_never().is_some());
    }
}
