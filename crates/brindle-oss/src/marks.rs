//! Marks: which clients may hold pages of an object, because they read it since it was last changed.
//!
//! In memory only. After a restart nothing is known, so that an object's first change answers [`Marks::Unknown`] (all
//! readers count); from then on its marks are exact. Bounded: when the table is full, an object is forgotten, which makes
//! it unknown again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brindle_types::{ObjectId, SessionId};
use brindle_wire::oss::Marks;
use parking_lot::Mutex;

/// Objects whose marks are known.
const OBJECTS_MAX: usize = 1 << 17;
/// Marks of one object; beyond them everybody counts.
const SESSIONS_MAX: usize = 256;

#[derive(Default)]
struct Inner {
    known: BTreeMap<ObjectId, BTreeSet<SessionId>>,
    order: VecDeque<ObjectId>,
}

/// The table of marks.
#[derive(Default)]
pub struct MarkTable {
    inner: Mutex<Inner>,
}

impl MarkTable {
    /// A client that may keep pages reads. Nothing to note for an object of which nothing is known: everybody counts.
    pub fn read(&self, object: ObjectId, session: SessionId) {
        let mut inner = self.inner.lock();
        let Some(sessions) = inner.known.get_mut(&object) else { return };
        sessions.insert(session);
        if sessions.len() > SESSIONS_MAX {
            inner.known.remove(&object);
        }
    }

    /// The object is changed: takes its marks. `made`: this very change made it, so that nobody can have read it.
    pub fn change(&self, object: ObjectId) -> Marks {
        let mut inner = self.inner.lock();
        match inner.known.get_mut(&object) {
            Some(sessions) if sessions.is_empty() => Marks::None,
            Some(sessions) => Marks::Sessions(std::mem::take(sessions).into_iter().collect()),
            None => {
                if inner.known.len() >= OBJECTS_MAX
                    && let Some(oldest) = inner.order.pop_front()
                {
                    inner.known.remove(&oldest);
                }
                inner.known.insert(object, BTreeSet::new());
                inner.order.push_back(object);
                Marks::Unknown
            }
        }
    }

    /// The answer that told of these marks was not delivered, so they are still due.
    pub fn forget(&self, object: ObjectId) {
        self.inner.lock().known.remove(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, Pair};

    #[test]
    fn marks_are_taken_by_the_next_change() {
        let object = ObjectId { ino: Ino(9), generation: Pair { term: 1, counter: 1 }, stripe: 0 };
        let table = MarkTable::default();
        table.read(object, SessionId(1));
        assert_eq!(table.change(object), Marks::Unknown, "nothing is known after a restart");
        assert_eq!(table.change(object), Marks::None);
        table.read(object, SessionId(2));
        table.read(object, SessionId(2));
        table.read(object, SessionId(1));
        assert_eq!(table.change(object), Marks::Sessions(vec![SessionId(1), SessionId(2)]));
        assert_eq!(table.change(object), Marks::None);
        (0..=SESSIONS_MAX as u64).for_each(|s| table.read(object, SessionId(s)));
        assert_eq!(table.change(object), Marks::Unknown, "too many to remember");
    }
}
