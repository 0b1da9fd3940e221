//! Marks: which clients may hold pages of which part of an object, because they read it since it was last changed.
//!
//! The table is in memory only. An object is unknown until its first change after the start. That change answers
//! [`Marks::Unknown`]: every client with a readable handle may hold any page of the object, so all pages must go. From
//! then on the marks of the object are exact. The table is bounded: when it is full, it forgets the object that was
//! first changed longest ago, which makes that object unknown again.
//!
//! A mark is the hull of a client's reads. A change takes the part of the mark that it covers: pages outside stay with
//! the client, and the next change there must find the mark.
//!
//! The part that a change has taken is a [`Taking`] until its writer says that the pages are gone ([`AcknowledgedMarks`]). Until then
//! every other change that meets the taking is given the same marks: that change may be acknowledged first, and must not
//! leave those pages behind. A change that meets only takings makes no new one, so they end with the first writer that
//! has told the readers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use brindle_stdx::planted;
use brindle_types::{Code, Fault, ObjectId, Result, SessionId};
use brindle_wire::oss::{AcknowledgedMarks, Marks, TOLD_MAX};
use parking_lot::Mutex;

/// Objects whose marks are known.
const OBJECTS_MAX: usize = 1 << 17;
/// Marks of one object; beyond this number all clients count.
const SESSIONS_MAX: usize = 256;
/// Most takings of one object that are not confirmed. Beyond them marks are given out without being taken.
const TAKINGS_MAX: usize = 64;
/// Pieces that a taking falls into when parts of it are confirmed. Beyond them nothing is cut out of its middle, so that its
/// readers are told once more than they need to be.
const RANGES_MAX: usize = 16;
/// Takings that one answer names; the others that it met are left to others to confirm.
const NAMED_MAX: usize = 4;
/// Clients keep whole pages; stripes begin at page boundaries, so that objects have the same ones.
const PAGE: u64 = 4096;
/// Every page that there can be.
const ALL: Range<u64> = 0..u64::MAX;

/// Clients whose marks a change met, and the numbers to confirm when their pages are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Clients whose marks were met.
    pub marks: Marks,
    /// Numbers of the takings that the change met ([`AcknowledgedMarks::taking`]).
    pub takings: Vec<u64>,
}

impl Met {
    const NOBODY: Met = Met { marks: Marks::None, takings: Vec::new() };
}

/// Marks that were given to a change and not confirmed yet.
struct Taking {
    /// Ranges that the change covered, less the confirmed ones: disjoint, in no order.
    ranges: Vec<Range<u64>>,
    /// `None`: everybody.
    sessions: Option<BTreeSet<SessionId>>,
}

#[derive(Default)]
struct Object {
    held: BTreeMap<SessionId, Range<u64>>,
    takings: BTreeMap<u64, Taking>,
}

struct Inner {
    known: BTreeMap<ObjectId, Object>,
    order: VecDeque<ObjectId>,
    /// Number of the next taking.
    next: u64,
}

/// The table of marks.
pub struct MarkTable {
    inner: Mutex<Inner>,
}

fn pages(range: Range<u64>) -> Range<u64> {
    range.start / PAGE * PAGE..range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl MarkTable {
    /// An empty table. `first` numbers its first taking. The table of an earlier process is unlikely to have come to that
    /// number, so confirmations meant for that process have no effect here.
    pub fn new(first: u64) -> MarkTable {
        MarkTable { inner: Mutex::new(Inner { known: BTreeMap::new(), order: VecDeque::new(), next: first }) }
    }

    /// Notes a read by a client that may keep the pages. An unknown object needs no note: all clients count as
    /// readers.
    pub fn read(&self, object: ObjectId, session: SessionId, range: Range<u64>) {
        let mut inner = self.inner.lock();
        let Some(marks) = inner.known.get_mut(&object) else { return };
        let range = pages(range);
        let hull = marks.held.entry(session).or_insert_with(|| range.clone());
        *hull = hull.start.min(range.start)..hull.end.max(range.end);
        if marks.held.len() > SESSIONS_MAX {
            inner.known.remove(&object);
        }
    }

    /// A range of the object was changed by `writer`: the marks of others that it meets. The writer's own kernel knows
    /// of the change; its mark stays, for changes by others.
    pub fn change(&self, object: ObjectId, writer: SessionId, range: Range<u64>) -> Met {
        if range.is_empty() {
            return Met::NOBODY;
        }
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let next = inner.next;
        let Some(marks) = inner.known.get_mut(&object) else {
            inner.next = next.wrapping_add(1);
            inner.begin(object, next);
            return Met { marks: Marks::Unknown, takings: vec![next] };
        };
        let range = pages(range);
        let mut met = marks.met_takings(writer, &range);
        let held = marks.met_marks(writer, &range);
        met.sessions.extend(&held);
        // If there are too many takings, the marks stay where they are.
        if !held.is_empty() && marks.takings.len() < TAKINGS_MAX {
            marks.take(&held, &range);
            marks.takings.insert(next, Taking { ranges: vec![range], sessions: Some(held) });
            met.takings.push(next);
            inner.next = next.wrapping_add(1);
        }
        met.answer()
    }

    /// Takings whose pages are gone.
    pub fn told(&self, told: &[AcknowledgedMarks]) -> Result<()> {
        if told.len() > TOLD_MAX {
            let why = format!("{} marks are confirmed, {TOLD_MAX} can be", told.len());
            return Err(Fault::new(Code::InvalidArgument).why(why));
        }
        let mut inner = self.inner.lock();
        for AcknowledgedMarks { object, taking, offset, len_bytes } in told {
            let Some(marks) = inner.known.get_mut(object) else { continue };
            let Some(entry) = marks.takings.get_mut(taking) else { continue };
            entry.confirm(&pages(*offset..offset.saturating_add(*len_bytes)));
            if entry.ranges.is_empty() {
                marks.takings.remove(taking);
            }
        }
        Ok(())
    }

    /// Forgets the marks of all objects: a session was ended. If its last changes took marks, the session may
    /// never have heard of them.
    pub fn forget_all(&self) {
        let mut inner = self.inner.lock();
        inner.known.clear();
        inner.order.clear();
    }

    /// Forgets the marks of an object: it was removed, or an answer that told of its marks was not delivered.
    pub fn forget(&self, object: ObjectId) {
        self.inner.lock().known.remove(&object);
    }
}

/// Marks that a change meets, while they are being collected.
#[derive(Default)]
struct Meeting {
    everybody: bool,
    sessions: BTreeSet<SessionId>,
    takings: Vec<u64>,
}

impl Meeting {
    fn answer(mut self) -> Met {
        self.takings.truncate(NAMED_MAX);
        let marks = match (self.everybody, self.sessions) {
            (true, _) => Marks::Unknown,
            (false, sessions) if sessions.is_empty() => return Met::NOBODY,
            (false, sessions) => Marks::Sessions(sessions.into_iter().collect()),
        };
        Met { marks, takings: self.takings }
    }
}

impl Object {
    /// The takings that a change of `range` meets.
    fn met_takings(&self, writer: SessionId, range: &Range<u64>) -> Meeting {
        let mut met = Meeting::default();
        if planted("ost_mark_given_once") {
            return met;
        }
        for (number, taking) in &self.takings {
            if !taking.ranges.iter().any(|r| meet(r, range)) {
                continue;
            }
            match &taking.sessions {
                None => met.everybody = true,
                // The writer's own pages are not dropped for this change, so the writer cannot confirm that
                // they are gone.
                Some(sessions) if sessions.contains(&writer) => {
                    met.sessions.extend(sessions.iter().filter(|s| **s != writer));
                    continue;
                }
                Some(sessions) => met.sessions.extend(sessions),
            }
            met.takings.push(*number);
        }
        met
    }

    /// Sessions whose marks meet `range`, other than the writer.
    fn met_marks(&self, writer: SessionId, range: &Range<u64>) -> BTreeSet<SessionId> {
        let met = self.held.iter().filter(|(session, hull)| **session != writer && meet(hull, range));
        met.map(|(session, _)| *session).collect()
    }

    /// Takes the parts in `range` from marks.
    fn take(&mut self, from: &BTreeSet<SessionId>, range: &Range<u64>) {
        for (_, hull) in self.held.iter_mut().filter(|(session, _)| from.contains(session)) {
            *hull = without(hull, range);
        }
        self.held.retain(|_, hull| !hull.is_empty());
    }
}

impl Taking {
    /// Pages of `range` are gone.
    fn confirm(&mut self, range: &Range<u64>) {
        let left = self
            .ranges
            .iter()
            .flat_map(|r| [r.start..r.end.min(range.start), r.start.max(range.end)..r.end])
            .filter(|r| !r.is_empty());
        let left: Vec<Range<u64>> = left.collect();
        if left.len() <= RANGES_MAX {
            self.ranges = left;
        }
    }
}

impl Inner {
    /// Begins to know the marks of an object; they are complete once all clients have dropped their pages.
    fn begin(&mut self, object: ObjectId, taking: u64) {
        while self.order.len() >= OBJECTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let everybody = Taking { ranges: vec![ALL], sessions: None };
        let takings = BTreeMap::from([(taking, everybody)]);
        self.known.insert(object, Object { held: BTreeMap::new(), takings });
        self.order.push_back(object);
    }
}

/// Rest of a hull. A change in its middle takes nothing, because a hull has no holes.
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

    fn told(taking: u64, range: Range<u64>) -> AcknowledgedMarks {
        AcknowledgedMarks { object: O, taking, offset: range.start, len_bytes: range.end - range.start }
    }

    /// A change by `writer` that is told at once.
    fn change_and_tell(table: &MarkTable, writer: SessionId, range: Range<u64>) -> Marks {
        let met = table.change(O, writer, range.clone());
        let dropped = if met.marks == Marks::Unknown { ALL } else { range };
        let all: Vec<AcknowledgedMarks> =
            met.takings.iter().map(|taking| told(*taking, dropped.clone())).collect();
        table.told(&all).unwrap();
        met.marks
    }

    #[test]
    fn marks_are_taken_by_the_change_that_meets_them() {
        let table = MarkTable::new(7);
        let change = |range| change_and_tell(&table, W, range);
        table.read(O, SessionId(1), 0..10);
        assert_eq!(change(7..7), Marks::None, "nothing was changed");
        assert_eq!(change(0..1), Marks::Unknown, "nothing is known after a restart");
        assert_eq!(change(0..1), Marks::None);
        table.read(O, SessionId(2), 100..200);
        table.read(O, SessionId(1), 8000..9000);
        assert_eq!(change(0..1), sessions(&[2]), "the same page");
        assert_eq!(change(0..1 << 20), sessions(&[1]));
        assert_eq!(change(0..1 << 20), Marks::None);
        for s in 0..=SESSIONS_MAX as u64 {
            table.read(O, SessionId(s), 0..1);
        }
        assert_eq!(change(0..1), Marks::Unknown, "too many to remember");
        table.forget(O);
        assert_eq!(change(0..1), Marks::Unknown);
        assert_eq!(change(0..1), Marks::None);
        table.forget_all();
        assert_eq!(change(0..1), Marks::Unknown);
    }

    #[test]
    fn pages_outside_the_change_keep_their_mark() {
        let table = MarkTable::new(7);
        let change = |range| change_and_tell(&table, W, range);
        change(0..1);
        table.read(O, SessionId(1), 0..40_960);
        for at in [3, 5, 3, 0, 9] {
            assert_eq!(change(at * PAGE..at * PAGE + 1), sessions(&[1]), "page {at}");
        }
        assert_eq!(change(0..PAGE), Marks::None, "taken already");
        assert_eq!(change(9 * PAGE..u64::MAX), Marks::None, "taken already");
        assert_eq!(change(0..9 * PAGE), sessions(&[1]));
    }

    #[test]
    fn a_writer_is_not_told_of_itself_but_others_are() {
        let table = MarkTable::new(7);
        change_and_tell(&table, W, 0..1);
        table.read(O, W, 0..100);
        assert_eq!(change_and_tell(&table, W, 0..100), Marks::None);
        assert_eq!(table.change(O, SessionId(5), 0..100).marks, sessions(&[100]));
        let met = table.change(O, W, 0..100);
        assert_eq!(met, Met::NOBODY, "its own kernel drops its pages");
        assert_eq!(table.change(O, SessionId(6), 0..100).marks, sessions(&[100]), "5 may not have told W");
    }

    #[test]
    fn marks_are_given_to_every_change_until_their_pages_are_gone() {
        let table = MarkTable::new(u64::MAX);
        let first = table.change(O, W, 0..1);
        let second = table.change(O, SessionId(5), 9000..9001);
        assert_eq!((&first, &first.marks), (&second, &Marks::Unknown), "everybody's pages of all of it");
        table.told(&[told(second.takings[0], ALL)]).unwrap();
        assert_eq!(table.change(O, W, 0..1), Met::NOBODY, "one of them has told everybody");

        table.read(O, SessionId(1), 0..8 * PAGE);
        let first = table.change(O, W, 0..4 * PAGE);
        assert_eq!(first.marks, sessions(&[1]));
        let second = table.change(O, SessionId(5), PAGE..PAGE + 1);
        assert_eq!(second, first, "W may not have told 1");
        table.told(&[told(second.takings[0], PAGE..PAGE + 1)]).unwrap();
        assert_eq!(table.change(O, W, PAGE..2 * PAGE), Met::NOBODY, "5 has");
        assert_eq!(table.change(O, W, 0..PAGE), first, "of that page only");
        assert_eq!(table.change(O, W, 2 * PAGE..3 * PAGE), first, "of that page only");
        assert_eq!(table.change(O, W, 4 * PAGE..5 * PAGE).marks, sessions(&[1]), "what 1 held besides");

        table.read(O, SessionId(1), 0..1);
        table.told(&[told(first.takings[0], ALL)]).unwrap();
        assert_eq!(table.change(O, W, 0..1).marks, sessions(&[1]), "read again after it was dropped");
        assert_eq!(table.told(&[told(0, ALL); TOLD_MAX + 1]).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn a_taking_falls_into_few_pieces_and_none_of_them_is_forgotten() {
        let table = MarkTable::new(7);
        change_and_tell(&table, W, 0..1);
        let all = 0..1000 * PAGE;
        table.read(O, SessionId(1), all.clone());
        let taking = table.change(O, W, all.clone()).takings[0];
        for page in (1..1000).step_by(2) {
            table.told(&[told(taking, page * PAGE..(page + 1) * PAGE)]).unwrap();
        }
        assert_eq!(table.inner.lock().known[&O].takings[&taking].ranges.len(), RANGES_MAX);
        for page in (0..1000).step_by(2) {
            let met = table.change(O, SessionId(5), page * PAGE..page * PAGE + 1);
            assert_eq!(met.marks, sessions(&[1]), "page {page}");
        }
        table.told(&[told(taking, all.clone())]).unwrap();
        assert_eq!(table.change(O, SessionId(5), all), Met::NOBODY);
    }

    #[test]
    fn marks_that_nobody_confirms_are_bounded_and_stay() {
        let table = MarkTable::new(7);
        change_and_tell(&table, W, 0..1);
        for at in 0..4 * TAKINGS_MAX as u64 {
            table.read(O, SessionId(1), at * PAGE..(at + 1) * PAGE);
            assert_eq!(table.change(O, W, at * PAGE..(at + 1) * PAGE).marks, sessions(&[1]));
        }
        assert_eq!(table.inner.lock().known[&O].takings.len(), TAKINGS_MAX);
        for at in 0..4 * TAKINGS_MAX as u64 {
            let met = table.change(O, W, at * PAGE..at * PAGE + 1);
            assert_eq!(met.marks, sessions(&[1]), "page {at}");
            assert!(met.takings.len() <= NAMED_MAX);
        }
    }
}
