//! A member of a replica set: one OST of several that hold the same objects on different hosts (design note 032).
//!
//! | module | holds |
//! |---|---|
//! | [`seat`] | the set as the MGS wants it, what this member tells of itself, its record on the disk |
//! | [`following`] | a member that is not the primary: takes changes, grants leases |
//! | [`leading`] | the primary: sends every change to all members before it is answered, keeps the lease, puts out who is silent |
//! | [`resync`] | makes objects of a member equal: after a takeover, and of a learner |
//!
//! Invariants: a change is answered only when every member in sync has it, or was taken out of the set by compare-and-swap; a primary answers
//! only while its lease holds; a member takes messages of its highest attachment only; changes of one range of an object are in one order.

pub(crate) mod following;
pub(crate) mod leading;
pub(crate) mod resync;
pub mod seat;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_net::Peer;
use brindle_net::latch::Latch;
use brindle_objects::RangeLock;
use brindle_stdx::{Mono, Seams};
use brindle_targets::OwnerLease;
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::Op;
use brindle_wire::mgs::replica::ReplicaSetState;
use brindle_wire::oss::replica::Attachment;
use parking_lot::Mutex;

pub use seat::{ReplicaRecord, Seat};

/// How long a member may take for a change before the primary goes on without it.
pub(crate) const CHANGE_LIMIT_MS: u64 = 4_000;
/// How often the primary renews its lease.
pub(crate) const RENEW_EVERY_MS: u64 = 400;
/// How long a member may take to grant a lease.
pub(crate) const GRANT_LIMIT_MS: u64 = 1_200;
/// A member that has granted no lease for so long is put out.
pub(crate) const UNGRANTED_MS: u64 = 3_000;
/// A new primary waits so much longer than the lease, for clocks that do not run alike.
pub(crate) const LEASE_MARGIN_MS: u64 = 500;

/// A member as its primary reaches it.
pub(crate) struct Link {
    pub(crate) host: String,
    pub(crate) peer: Arc<Peer>,
    pub(crate) attachment: Attachment,
    /// Boot term of its store when it was attached.
    pub(crate) boot_term: u32,
    /// A [`Standing`], as a number.
    pub(crate) standing: AtomicU8,
    /// It has missed something; nothing is sent to it any more.
    pub(crate) has_failed: AtomicBool,
    /// Moment of its last grant.
    pub(crate) granted: AtomicU64,
    /// Bytes that are available there; `u64::MAX` until it has told.
    pub(crate) available_bytes: AtomicU64,
}

/// What a member that is attached is to its primary. It only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It is filled. It may fail without anybody being asked.
    Learner = 0,
    /// The MGS was asked to take it in, or will be: nothing is answered without it.
    Joining = 1,
    /// The MGS has it as in sync: likewise.
    InSync = 2,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.peer.stop();
    }
}

/// The members that changes go to, at a moment. Whoever makes a change holds it until that has ended.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) epoch: u64,
    pub(crate) links: Vec<Arc<Link>>,
}

/// See the module.
pub struct Replica {
    pub(crate) seat: Arc<Seat>,
    pub(crate) seams: Seams,
    pub(crate) following: following::Following,
    is_serving: AtomicBool,
    pub(crate) links: Mutex<Arc<Links>>,
    /// All of them that may be in use.
    pub(crate) published: Mutex<Vec<Weak<Links>>>,
    /// Orders changes of one object.
    locks: Mutex<BTreeMap<ObjectId, Arc<RangeLock>>>,
    pub(crate) lease: Arc<OwnerLease>,
    /// Changes of who is in sync come one after the other.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Another member is the primary now.
    pub(crate) deposed: Latch,
    attachments: AtomicU64,
    pub(crate) mended_blocks: AtomicU64,
}

impl Replica {
    /// A member that does not serve yet.
    pub(crate) fn new(seat: Arc<Seat>, seams: &Seams) -> Arc<Replica> {
        Arc::new(Replica {
            seat,
            seams: seams.clone(),
            following: following::Following::new(seams.now()),
            is_serving: AtomicBool::new(false),
            links: Mutex::default(),
            published: Mutex::default(),
            locks: Mutex::default(),
            lease: Arc::new(OwnerLease::new(seams)),
            changing: tokio::sync::Mutex::default(),
            deposed: Latch::default(),
            attachments: AtomicU64::new(0),
            mended_blocks: AtomicU64::new(0),
        })
    }

    /// The set as this host knows it.
    pub(crate) fn set(&self) -> ReplicaSetState {
        self.seat.set()
    }

    /// Whether it serves clients.
    pub fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Acquire)
    }

    pub(crate) fn serve(&self) {
        self.is_serving.store(true, Ordering::Release);
    }

    /// Refuses what another member is to be asked for.
    pub(crate) fn check(&self, op: Op) -> Result<()> {
        if op == Op::TargetInfo {
            return Ok(());
        }
        let is_of_members = (320..340).contains(&(op as u16));
        if is_of_members != self.is_serving() {
            return Ok(());
        }
        // Clients wait for a target that is down; a former primary has to learn that it is not the one.
        let code = if is_of_members { Code::NotPrimary } else { Code::TargetDown };
        Err(Fault::new(code).why("another member of its replica set is to be asked"))
    }

    /// Members that changes go to now.
    pub(crate) fn current(&self) -> Arc<Links> {
        self.links.lock().clone()
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

    /// A number for a new attachment: higher than all of this process, and of earlier ones as far as the clock has not gone back.
    pub(crate) fn next_attachment(&self) -> u64 {
        let wall = self.seams.wall();
        let millis = wall.secs.unsigned_abs() * 1000 + u64::from(wall.nanos / 1_000_000);
        let mut last = self.attachments.load(Ordering::Acquire);
        loop {
            let next = millis.max(last + 1);
            match self.attachments.compare_exchange(last, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(now) => last = now,
            }
        }
    }

    /// Completes when the lease that this member may have granted to a former primary has ended.
    pub(crate) async fn outlive_granted_lease(&self) {
        loop {
            let quiet_ms = self.seams.now().ms_since(self.following.heard());
            let wanted_ms = brindle_targets::OWNER_LEASE_MS + LEASE_MARGIN_MS;
            if quiet_ms >= wanted_ms {
                return;
            }
            self.seams.sleep_ms(wanted_ms - quiet_ms).await;
        }
    }

    /// The smallest room that any member has.
    pub(crate) fn available_bytes(&self) -> u64 {
        let links = self.current();
        links.links.iter().map(|link| link.available_bytes.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }
}

/// A moment in a word.
pub(crate) fn mono(word: &AtomicU64) -> Mono {
    Mono(word.load(Ordering::Acquire))
}

/// For tasks that end when the OST is gone.
pub(crate) type WeakOss = Weak<crate::service::Oss>;
