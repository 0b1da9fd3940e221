//! Calls under way: each has an entry, so that a wait can be named after some seconds (`brindle waits`, log).
//!
//! Kept by [`crate::caller`]; listed and logged by the client. Invariant: an entry lives exactly as long as its call.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_types::TargetId;
use brindle_wire::Op;
use parking_lot::Mutex;

/// A call that takes longer is reported.
pub const REPORT_AFTER_MS: u64 = 5_000;

/// Calls under way.
#[derive(Default)]
pub struct Waits {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    calls: BTreeMap<u64, Entry>,
}

struct Entry {
    op: Op,
    target: TargetId,
    since: Mono,
    reported: bool,
}

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The operation.
    pub op: Op,
    /// The target that was asked.
    pub target: TargetId,
    /// Waiting time, in milliseconds.
    pub ms: u64,
}

/// A call under way; ends when dropped.
pub(crate) struct Waiting {
    waits: Arc<Waits>,
    id: u64,
}

impl Waits {
    pub(crate) fn begin(self: &Arc<Self>, op: Op, target: TargetId, now: Mono) -> Waiting {
        let mut table = self.table.lock();
        table.next += 1;
        let id = table.next;
        table.calls.insert(id, Entry { op, target, since: now, reported: false });
        Waiting { waits: self.clone(), id }
    }

    /// Calls that have taken longer than [`REPORT_AFTER_MS`], oldest first.
    pub fn list(&self, now: Mono) -> Vec<Wait> {
        let table = self.table.lock();
        let waits =
            table.calls.values().map(|e| Wait { op: e.op, target: e.target, ms: now.ms_since(e.since) });
        waits.filter(|w| w.ms >= REPORT_AFTER_MS).collect()
    }

    /// Entries of [`Waits::list`] that this function has not returned before: what to log.
    pub fn newly_long(&self, now: Mono) -> Vec<Wait> {
        let mut out = Vec::new();
        for entry in self.table.lock().calls.values_mut() {
            let ms = now.ms_since(entry.since);
            if ms >= REPORT_AFTER_MS && !entry.reported {
                entry.reported = true;
                out.push(Wait { op: entry.op, target: entry.target, ms });
            }
        }
        out
    }

    /// Number of calls under way.
    pub fn under_way(&self) -> usize {
        self.table.lock().calls.len()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.table.lock().calls.remove(&self.id);
    }
}
