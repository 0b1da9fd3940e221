//! The lease under which the owner of a shared target answers.
//!
//! The owner's daemon rewrites the owner block of the device twice a second and extends the lease from before the write began
//! ([`OwnerLease::extend`]). Each reply of the target is checked right before it is sent ([`crate::Gate::reply`]). Therefore an owner that
//! was frozen, or that has lost the device, sends no answer that another owner may have made wrong.

use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::{Mono, Seams};
use brindle_types::{Code, Fault};

/// Time for which an owner answers after it began to write its block, in milliseconds. A host that takes the
/// device over waits longer than that.
pub const OWNER_LEASE_MS: u64 = 2_000;

/// The right to answer for a shared target, until a moment that moves on.
pub struct OwnerLease {
    seams: Seams,
    until: AtomicU64,
}

impl OwnerLease {
    /// A lease that does not hold yet.
    pub fn new(seams: &Seams) -> OwnerLease {
        OwnerLease { seams: seams.clone(), until: AtomicU64::new(0) }
    }

    /// The block was rewritten, and read back; `began` is from before that.
    pub fn extend(&self, began: Mono) {
        self.until.fetch_max(began.plus_ms(OWNER_LEASE_MS).0, Ordering::AcqRel);
    }

    /// Whether the lease holds now.
    pub fn holds(&self) -> bool {
        self.seams.now().0 < self.until.load(Ordering::Acquire)
    }

    /// Time since the lease ended, in milliseconds; `None` while it holds.
    pub fn ended_ms_ago(&self) -> Option<u64> {
        let until = Mono(self.until.load(Ordering::Acquire));
        (!self.holds()).then(|| self.seams.now().ms_since(until))
    }

    /// Refuses an answer if the lease does not hold.
    pub fn check(&self) -> Result<(), Fault> {
        if self.holds() { Ok(()) } else { Err(Fault::new(Code::NotOwner)) }
    }
}

impl std::fmt::Debug for OwnerLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnerLease until {}", self.until.load(Ordering::Acquire))
    }
}
