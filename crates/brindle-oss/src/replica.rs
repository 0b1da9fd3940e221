//! A member of a replica set: one OST of several that hold the same objects on different hosts (design note 032).
//!
//! | module | holds |
//! |---|---|
//! | [`following`] | a member that is not the primary: takes changes, grants leases |
//! | [`former`] | the copies that a primary believes after a crash of its own |
//! | [`leading`] | the primary: sends every change to all members before it is answered |
//! | [`resync`] | makes objects of a member equal: after a takeover, and of a learner |
//!
//! [`SetMember`] holds what members of all kinds have in common. Invariant: changes of one range of an object are in one order
//! everywhere.

pub(crate) mod following;
mod former;
pub(crate) mod leading;
pub(crate) mod resync;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_objects::{ObjectStore, RangeLock};
use brindle_stdx::Seams;
use brindle_targets::replica::{Around, Follows, Links, Seat, SetMember};
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::Op;
use brindle_wire::mgs::replica::ReplicaSetState;
use parking_lot::Mutex;

pub use brindle_targets::replica::ReplicaRecord;

/// Most damaged objects of members that are remembered.
const SEEN_DAMAGED_MAX: usize = 4_096;

/// See the module.
pub struct Replica {
    member: SetMember,
    /// Orders changes of one object.
    locks: Mutex<BTreeMap<ObjectId, Arc<RangeLock>>>,
    pub(crate) mended_blocks: AtomicU64,
    /// Objects of members in which the scrub has seen damage. The fill of such a member verifies their blocks, because checksums may be
    /// right where bytes are not.
    seen_damaged: Mutex<BTreeSet<(String, ObjectId)>>,
}

impl Deref for Replica {
    type Target = SetMember;

    fn deref(&self) -> &SetMember {
        &self.member
    }
}

/// The store tells clients the term of the set.
struct TellsTerm(Arc<ObjectStore>);

impl Follows for TellsTerm {
    fn set_changed(&self, set: &ReplicaSetState) {
        if set.term != 0 {
            self.0.tell_term(set.term);
        }
    }

    fn links_changed(&self, _: &Links) {}

    fn can_lead(&self) -> Result<()> {
        self.0.failure().map_or(Ok(()), Err)
    }
}

impl Replica {
    /// A member that does not serve yet.
    pub(crate) fn new(
        seat: Arc<Seat>,
        seams: &Seams,
        around: Around,
        store: &Arc<ObjectStore>,
    ) -> Arc<Replica> {
        let follows = Arc::new(TellsTerm(store.clone()));
        Arc::new(Replica {
            member: SetMember::new(seat, seams, around, follows),
            locks: Mutex::default(),
            mended_blocks: AtomicU64::new(0),
            seen_damaged: Mutex::default(),
        })
    }

    /// Counts blocks that were mended from another member.
    pub(crate) fn count_mended(&self, blocks: u64) {
        self.mended_blocks.fetch_add(blocks, Ordering::AcqRel);
        self.seat.tell(|told| told.mended_blocks += blocks);
    }

    /// Damage was seen in an object of a member. Whether it is remembered: the list is bounded, and the next pass will see it again.
    pub(crate) fn note_damaged(&self, host: &str, object: ObjectId) -> bool {
        let mut seen = self.seen_damaged.lock();
        let key = (host.to_owned(), object);
        seen.contains(&key) || seen.len() < SEEN_DAMAGED_MAX && seen.insert(key)
    }

    /// Whether damage was seen in an object of a member.
    pub(crate) fn is_noted_damaged(&self, host: &str, object: ObjectId) -> bool {
        self.seen_damaged.lock().contains(&(host.to_owned(), object))
    }

    /// All blocks of an object of a member match their checksums.
    pub(crate) fn forget_damaged(&self, host: &str, object: ObjectId) {
        self.seen_damaged.lock().remove(&(host.to_owned(), object));
    }

    /// Refuses an operation that must go to another member.
    pub(crate) fn check(&self, op: Op) -> Result<()> {
        if op == Op::TargetInfo {
            return Ok(());
        }
        let is_of_members = (320..330).contains(&(op as u16));
        if is_of_members != self.is_serving() {
            return Ok(());
        }
        // Clients wait for a target that is down; a former primary has to learn that it is not the one.
        let code = if is_of_members { Code::NotPrimary } else { Code::TargetDown };
        Err(Fault::new(code).why("another member of its replica set is to be asked"))
    }

    /// The disk of this member fails, and another one in sync has everything: this one ends, and that one is to serve. Whether it is so.
    pub(crate) fn gives_way(&self, store: &ObjectStore, fault: &Fault) -> bool {
        let is_disk = matches!(fault.code, Code::OstIo | Code::NotWritable);
        let has_other = || self.current().links.iter().any(|link| link.is_required() && !link.has_failed());
        let gives_way = is_disk && self.is_serving() && has_other();
        if gives_way {
            store.give_up(fault);
        }
        gives_way
    }

    /// The lock that orders changes of an object. Unused ones are forgotten.
    pub(crate) fn lock_of(&self, object: ObjectId) -> Arc<RangeLock> {
        const FORGET_ABOVE: usize = 4096;
        let mut locks = self.locks.lock();
        if locks.len() > FORGET_ABOVE {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        locks.entry(object).or_default().clone()
    }
}

/// Reference for tasks that end when the OST is gone.
pub(crate) type WeakOss = Weak<crate::service::Oss>;
