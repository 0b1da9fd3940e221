//! The order in which the extents of a file come back: those that readers wait for, then what lies behind them, since a reader goes on there.

use std::collections::VecDeque;

use brindle_types::hsm::Extents;

/// The extents of a file that is being restored.
pub struct Order {
    count: u64,
    /// Extents that are there, compared.
    here: Extents,
    /// Extents that were given out.
    given: Extents,
    /// Extents that readers wait for.
    wanted: VecDeque<u64>,
    /// Extent that comes next if nobody waits.
    next: u64,
}

impl Order {
    /// No extent of a file of this size is there yet.
    pub fn new(size_bytes: u64) -> Order {
        let none = Extents::none(size_bytes);
        Order {
            count: Extents::count_of(size_bytes),
            here: none.clone(),
            given: none,
            wanted: VecDeque::new(),
            next: 0,
        }
    }

    /// Gives out the next extent to fetch; each once.
    pub fn give_next(&mut self) -> Option<u64> {
        while let Some(extent) = self.wanted.pop_front() {
            if extent < self.count && !self.given.has(extent) {
                return Some(self.give(extent));
            }
        }
        let behind = (self.next..self.count).chain(0..self.next);
        let found = behind.into_iter().find(|extent| !self.given.has(*extent))?;
        Some(self.give(found))
    }

    fn give(&mut self, extent: u64) -> u64 {
        self.given.add(extent);
        self.next = extent + 1;
        extent
    }

    /// Takes the extents that readers wait for now.
    pub fn want(&mut self, wanted: Vec<u64>) {
        self.wanted = wanted.into();
    }

    /// An extent has come.
    pub fn is_here(&mut self, extent: u64) {
        self.here.add(extent);
    }

    /// The extents that are there.
    pub fn here(&self) -> &Extents {
        &self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn all(order: &mut Order) -> Vec<u64> {
        std::iter::from_fn(|| order.give_next()).collect()
    }

    #[test]
    fn extents_come_in_the_order_of_the_file_if_nobody_waits() {
        let mut order = Order::new(5 * MIB - 1);
        assert_eq!(all(&mut order), [0, 1, 2, 3, 4]);
        assert_eq!(order.give_next(), None);
        assert!(order.here().is_empty(), "nothing has come yet");
        order.is_here(3);
        assert!(order.here().has(3) && order.here().len() == 1);
    }

    #[test]
    fn what_readers_wait_for_comes_first_and_what_lies_behind_it_next() {
        let mut order = Order::new(8 * MIB);
        assert_eq!(order.give_next(), Some(0));
        order.want(vec![6, 0, 99, 3]);
        assert_eq!((order.give_next(), order.give_next()), (Some(6), Some(3)), "0 was given out, 99 is none");
        assert_eq!(order.give_next(), Some(4), "the last reader goes on there");
        order.want(vec![7]);
        assert_eq!(all(&mut order), [7, 1, 2, 5], "and then the rest, each once");
    }
}
