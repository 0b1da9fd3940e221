//! Objects that the last writer of a file left unsynced when it closed the file, with the boot term of their OST then. If a
//! power cut takes such writes, a later sync of the file reports the loss, by whatever handle.
//!
//! OSTs sync dirty data by themselves, within 5 s if they are not too busy. A while after the close the client asks them for a
//! sync, which mostly costs nothing. If the boot term is still the one of the close, the object is then synced. If it differs,
//! the object may have lost what was written, and the file counts as one that lost bytes.
//!
//! The table is bounded; files beyond the bound are forgotten. For files whose contents lie in the MDT, `inodes.rs` keeps the
//! last change.

use std::collections::BTreeMap;

use brindle_stdx::{Mono, planted};
use brindle_types::{Fault, Ino, Layout, ObjectId, Pair, TargetId};
use parking_lot::Mutex;

use crate::Client;
use crate::inodes::Inode;

/// OSTs sync dirty data within 5 s; after this time a closed file hardly needs a sync any more.
const OSTS_SYNC_WITHIN_MS: u64 = 10_000;
/// Interval of the search for objects whose time is over.
const LOOK_EVERY_MS: u64 = 2_500;
/// Longest wait for an OST; the next round asks it again.
pub(crate) const ANSWER_WITHIN_MS: u64 = 30_000;
/// Most objects that are remembered.
const LEFT_MAX: usize = 1 << 16;

/// An object of a closed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedObject {
    /// OST of the object.
    pub ost: u16,
    /// Oldest boot term under which it was written.
    pub term: u32,
    /// Identity of the contents that it belongs to ([`Layout::body`]).
    pub body: Pair,
    /// Time of the close.
    pub closed: Mono,
}

/// The objects of closed files that may not have been synced.
#[derive(Default)]
pub(crate) struct ClosedUnsynced {
    objects: Mutex<BTreeMap<ObjectId, ClosedObject>>,
}

impl ClosedUnsynced {
    /// Adds an object. An earlier entry for it stays in force.
    pub fn add(&self, object: ObjectId, left: ClosedObject) {
        let mut objects = self.objects.lock();
        let term = objects.get(&object).map_or(left.term, |before| before.term.min(left.term));
        objects.insert(object, ClosedObject { term, ..left });
        while objects.len() > LEFT_MAX {
            objects.pop_first();
        }
    }

    /// The entry of an object.
    pub fn get(&self, object: &ObjectId) -> Option<ClosedObject> {
        self.objects.lock().get(object).copied()
    }

    /// All objects, by OST.
    pub fn by_ost(
        &self,
        wanted: impl Fn(&ClosedObject) -> bool,
    ) -> BTreeMap<u16, Vec<(ObjectId, ClosedObject)>> {
        let mut by_ost: BTreeMap<u16, Vec<_>> = BTreeMap::new();
        for (object, left) in self.objects.lock().iter().filter(|(_, left)| wanted(left)) {
            by_ost.entry(left.ost).or_default().push((*object, *left));
        }
        by_ost
    }

    /// Objects of a file that its layout does not name any more, by OST: the file was moved since.
    pub fn outside(&self, ino: Ino, layout: &Layout) -> BTreeMap<u16, Vec<(ObjectId, ClosedObject)>> {
        let first = |ino| ObjectId { ino, generation: Pair::ZERO, stripe: 0 };
        let mut by_ost: BTreeMap<u16, Vec<_>> = BTreeMap::new();
        for (object, left) in self.objects.lock().range(first(ino)..first(Ino(ino.0 + 1))) {
            if layout.ost_of(object.named()).is_none() {
                by_ost.entry(left.ost).or_default().push((*object, *left));
            }
        }
        by_ost
    }

    /// Notes that an object is synced, or that its loss was reported. An object left unsynced since then stays.
    pub fn forget(&self, object: &ObjectId, left: ClosedObject) {
        let mut objects = self.objects.lock();
        if objects.get(object) == Some(&left) {
            objects.remove(object);
        }
    }

    /// Notes that a file was emptied here: its objects do not matter any more.
    pub fn forget_file(&self, ino: Ino) {
        let first = |ino| ObjectId { ino, generation: Pair::ZERO, stripe: 0 };
        let mut objects = self.objects.lock();
        let gone: Vec<ObjectId> = objects.range(first(ino)..first(Ino(ino.0 + 1))).map(|(o, _)| *o).collect();
        for object in gone {
            objects.remove(&object);
        }
    }
}

impl Client {
    /// Remembers unsynced objects: the last writer of a file closes it, or has lost its session.
    pub(crate) fn note_left_unsynced(&self, inode: &Inode) {
        if planted("client_forgets_what_it_closed") {
            return;
        }
        let closed = self.seams.now();
        let state = inode.lock();
        let Some(layout) = &state.layout else { return };
        for (stripe, unsynced) in &state.unsynced {
            if let (Some(ost), Some(term)) = (layout.ost_of(*stripe), unsynced.oldest_term()) {
                self.closed_unsynced.add(
                    ObjectId::of(inode.ino, *stripe),
                    ClosedObject { ost, term, body: layout.body, closed },
                );
            }
        }
    }

    /// Takes in the boot term of an OST after a sync of the given objects. The objects are forgotten; objects that were
    /// written under another term are lost. Returns the fault for the first lost one.
    pub(crate) fn settle_left(&self, objects: &[(ObjectId, ClosedObject)], boot_term: u32) -> Option<Fault> {
        let mut first = None;
        for (object, left) in objects {
            self.closed_unsynced.forget(object, *left);
            if left.term != boot_term {
                let fault = self.data_lost(object.ino);
                first.get_or_insert(fault);
            }
        }
        first
    }

    /// Asks the OSTs whether they have synced the objects that were left a while ago, as long as the mount lives.
    pub(crate) async fn look_after_left(&self) {
        while !self.session.is_ended() {
            self.seams.sleep_ms(LOOK_EVERY_MS).await;
            let now = self.seams.now();
            let map = self.map();
            for (ost, due) in
                self.closed_unsynced.by_ost(|left| now.ms_since(left.closed) > OSTS_SYNC_WITHIN_MS)
            {
                if map.is_removed(TargetId::ost(ost)) {
                    // Objects of a removed OST were moved and synced before.
                    due.iter().for_each(|(object, left)| self.closed_unsynced.forget(object, *left));
                    continue;
                }
                // A sync of synced objects costs nothing. The next fsync reports a loss.
                let synced = self.seams.timeout_ms(ANSWER_WITHIN_MS, self.sync_left(ost, &due)).await;
                if let Some(Err(fault)) = synced {
                    tracing::debug!(ost, %fault, "of what was closed unsynced");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_term_counts_and_what_is_left_again_is_not_forgotten() {
        let object = ObjectId { ino: Ino(2), generation: Pair { term: 1, counter: 1 }, stripe: 0 };
        let at =
            |term, ms| ClosedObject { ost: 3, term, body: Pair::ZERO, closed: Mono::default().plus_ms(ms) };
        let left = ClosedUnsynced::default();
        left.add(object, at(4, 10));
        let before = left.get(&object).expect("left");
        left.add(object, at(5, 20));
        assert_eq!(left.get(&object), Some(at(4, 20)));
        left.forget(&object, before);
        assert_eq!(left.get(&object), Some(at(4, 20)), "it was left again");
        assert_eq!(left.by_ost(|left| left.term == 5), BTreeMap::new());
        left.forget(&object, at(4, 20));
        assert_eq!(left.get(&object), None);
    }
}
