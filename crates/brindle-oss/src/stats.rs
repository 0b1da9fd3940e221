//! Counters of the service, beside those of its store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_wire::Op;

/// Requests by operation and outcome.
pub struct OssStats {
    by_op: BTreeMap<u16, AtomicU64>,
    /// Requests that were refused or failed.
    pub faults: AtomicU64,
    /// Resent requests that were answered from the slot table.
    pub answered_again: AtomicU64,
    /// Objects that the MDT disowned and that were removed.
    pub garbage: AtomicU64,
    /// Objects that the MDT never heard of and that were set aside.
    pub unknown_owners: AtomicU64,
}

impl Default for OssStats {
    fn default() -> OssStats {
        OssStats {
            by_op: Op::ALL.iter().map(|op| (*op as u16, AtomicU64::new(0))).collect(),
            faults: AtomicU64::new(0),
            answered_again: AtomicU64::new(0),
            garbage: AtomicU64::new(0),
            unknown_owners: AtomicU64::new(0),
        }
    }
}

impl OssStats {
    /// Counts a request.
    pub fn count(&self, op: Op) {
        if let Some(counter) = self.by_op.get(&(op as u16)) {
            add(counter, 1);
        }
    }

    /// Requests by operation, those that came at all.
    pub fn requests(&self) -> Vec<(&'static str, u64)> {
        let count = |op: &Op| Some((op.name(), self.by_op.get(&(*op as u16))?.load(Ordering::Relaxed)));
        Op::ALL.iter().filter_map(count).filter(|(_, n)| *n > 0).collect()
    }

    /// Counters beside those by operation: name, explanation, value.
    pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let requests = self.by_op.values().map(get).sum();
        vec![
            ("requests", "Requests answered.", requests),
            ("faults", "Requests that were refused or failed.", get(&self.faults)),
            (
                "answered_again",
                "Resent requests that were answered from the slot table.",
                get(&self.answered_again),
            ),
            ("garbage", "Objects that the MDT disowned and that were removed.", get(&self.garbage)),
            (
                "unknown_owners",
                "Objects that the MDT never heard of and that were set aside.",
                get(&self.unknown_owners),
            ),
        ]
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
