//! Marks: which clients may hold pages of which part of an object, because they read it since it was last changed.
//!
//! In memory only. Nothing is known of an object until its first change after the start: that change answers
//! [`Marks::Unknown`] (everybody with a readable handle may hold any page of the object, so that all of it must go), and
//! from then on its marks are exact. Bounded: when the table is full the object that was first changed longest ago is
//! forgotten, which makes it unknown again.
//!
//! A mark is the hull of what a client read. A change takes from it what it covers: pages outside stay with the client,
//! and the next change there must find the mark.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use brindle_types::{ObjectId, SessionId};
use brindle_wire::oss::Marks;
use parking_lot::Mutex;

/// Objects whose marks are known.
const OBJECTS_MAX: usize = 1 << 17;
/// Marks of one object; beyond them everybody counts.
const SESSIONS_MAX: usize = 256;
/// Clients keep whole pages; stripes begin at page boundaries, so that objects have the same ones.
const PAGE: u64 = 4096;

#[derive(Default)]
struct Inner {
    known: BTreeMap<ObjectId, BTreeMap<SessionId, Range<u64>>>,
    order: VecDeque<ObjectId>,
}

/// The table of marks.
#[derive(Default)]
pub struct MarkTable {
    inner: Mutex<Inner>,
}

fn pages(range: Range<u64>) -> Range<u64> {
    range.start / PAGE * PAGE..range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

impl MarkTable {
    /// A client that may keep pages reads. Nothing to note for an object of which nothing is known: everybody counts.
    pub fn read(&self, object: ObjectId, session: SessionId, range: Range<u64>) {
        let mut inner = self.inner.lock();
        let Some(marks) = inner.known.get_mut(&object) else { return };
        let range = pages(range);
        let hull = marks.entry(session).or_insert_with(|| range.clone());
        *hull = hull.start.min(range.start)..hull.end.max(range.end);
        if marks.len() > SESSIONS_MAX {
            inner.known.remove(&object);
        }
    }

    /// A range of the object was changed by `writer`: the marks of others that it meets. The writer's own kernel knows
    /// of the change; its mark stays, for changes by others.
    pub fn change(&self, object: ObjectId, writer: SessionId, range: Range<u64>) -> Marks {
        if range.is_empty() {
            return Marks::None;
        }
        let mut inner = self.inner.lock();
        let Some(marks) = inner.known.get_mut(&object) else {
            inner.begin(object);
            return Marks::Unknown;
        };
        let range = pages(range);
        let mut met = Vec::new();
        for (session, hull) in marks.iter_mut().filter(|(s, _)| **s != writer) {
            if hull.start < range.end && range.start < hull.end {
                met.push(*session);
                *hull = without(hull, &range);
            }
        }
        marks.retain(|_, hull| !hull.is_empty());
        if met.is_empty() { Marks::None } else { Marks::Sessions(met) }
    }

    /// Nothing is known of any object any more: a session was ended, and whatever marks its last changes took, it may never
    /// have heard of them.
    pub fn forget_all(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Nothing is known of the object any more: it was removed, or an answer that told of its marks was not delivered.
    pub fn forget(&self, object: ObjectId) {
        self.inner.lock().known.remove(&object);
    }
}

impl Inner {
    fn begin(&mut self, object: ObjectId) {
        while self.order.len() >= OBJECTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(object, BTreeMap::new());
        self.order.push_back(object);
    }
}

/// What is left of a hull; a change in its middle takes nothing, because a hull has no holes.
fn without(hull: &Range<u64>, taken: &Range<u64>) -> Range<u64> {
    match (taken.start <= hull.start, taken.end >= hull.end) {
        (true, true) => 0..0,
        (true, false) => taken.end..hull.end,
        (false, true) => hull.start..taken.start,
        (false, false) => hull.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, Pair};

    const O: ObjectId = ObjectId { ino: Ino(9), generation: Pair { term: 1, counter: 1 }, stripe: 0 };
    const W: SessionId = SessionId(100);

    fn sessions(of: &[u64]) -> Marks {
        Marks::Sessions(of.iter().map(|s| SessionId(*s)).collect())
    }

    #[test]
    fn marks_are_taken_by_the_change_that_meets_them() {
        let table = MarkTable::default();
        table.read(O, SessionId(1), 0..10);
        assert_eq!(table.change(O, W, 7..7), Marks::None, "nothing was changed");
        assert_eq!(table.change(O, W, 0..1), Marks::Unknown, "nothing is known after a restart");
        assert_eq!(table.change(O, W, 0..1), Marks::None);
        table.read(O, SessionId(2), 100..200);
        table.read(O, SessionId(1), 8000..9000);
        assert_eq!(table.change(O, W, 0..1), sessions(&[2]), "the same page");
        assert_eq!(table.change(O, W, 0..1 << 20), sessions(&[1]));
        assert_eq!(table.change(O, W, 0..1 << 20), Marks::None);
        for s in 0..=SESSIONS_MAX as u64 {
            table.read(O, SessionId(s), 0..1);
        }
        assert_eq!(table.change(O, W, 0..1), Marks::Unknown, "too many to remember");
        table.forget(O);
        assert_eq!(table.change(O, W, 0..1), Marks::Unknown);
        assert_eq!(table.change(O, W, 0..1), Marks::None);
        table.forget_all();
        assert_eq!(table.change(O, W, 0..1), Marks::Unknown);
    }

    #[test]
    fn pages_outside_the_change_keep_their_mark() {
        let table = MarkTable::default();
        table.change(O, W, 0..1);
        table.read(O, SessionId(1), 0..40_960);
        for at in [3, 5, 3, 0, 9] {
            assert_eq!(table.change(O, W, at * PAGE..at * PAGE + 1), sessions(&[1]), "page {at}");
        }
        assert_eq!(table.change(O, W, 0..PAGE), Marks::None, "taken already");
        assert_eq!(table.change(O, W, 9 * PAGE..u64::MAX), Marks::None, "taken already");
        assert_eq!(table.change(O, W, 0..9 * PAGE), sessions(&[1]));
    }

    #[test]
    fn a_writer_is_not_told_of_itself_but_others_are() {
        let table = MarkTable::default();
        table.change(O, W, 0..1);
        table.read(O, W, 0..100);
        assert_eq!(table.change(O, W, 0..100), Marks::None);
        assert_eq!(table.change(O, SessionId(5), 0..100), sessions(&[100]));
    }
}
