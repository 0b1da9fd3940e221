//! Waits of requests, for `brindle waits` and the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::{Mono, Seams};
use parking_lot::Mutex;

/// Waits that are listed; further ones are not.
const WAITS_MAX: usize = 4096;
/// Waits longer than this are logged when they end.
const REPORT_MS: u64 = 5_000;

/// The table of waits.
pub struct Waits {
    seams: Seams,
    next: AtomicU64,
    table: Mutex<BTreeMap<u64, Wait>>,
}

struct Wait {
    what: &'static str,
    why: String,
    since: Mono,
}

impl Waits {
    /// An empty list of waits.
    pub fn new(seams: Seams) -> Arc<Waits> {
        Arc::new(Waits { seams, next: AtomicU64::new(0), table: Mutex::new(BTreeMap::new()) })
    }

    /// Lists a wait until the guard is dropped.
    pub fn enter(self: &Arc<Waits>, what: &'static str, why: impl FnOnce() -> String) -> Waiting {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let since = self.seams.now();
        let mut table = self.table.lock();
        if table.len() < WAITS_MAX {
            table.insert(id, Wait { what, why: why(), since });
        }
        Waiting { waits: self.clone(), id }
    }

    /// (name of the waiting operation, what it waits for, milliseconds so far), longest first.
    pub fn list(&self) -> Vec<(String, String, u64)> {
        let now = self.seams.now();
        let row = |w: &Wait| (w.what.to_owned(), w.why.clone(), now.ms_since(w.since));
        let mut list: Vec<_> = self.table.lock().values().map(row).collect();
        list.sort_by_key(|(_, _, ms)| std::cmp::Reverse(*ms));
        list
    }
}

/// A listed wait.
pub struct Waiting {
    waits: Arc<Waits>,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(wait) = self.waits.table.lock().remove(&self.id) else { return };
        let ms = self.waits.seams.now().ms_since(wait.since);
        if ms >= REPORT_MS {
            tracing::warn!(what = wait.what, waited_for = %wait.why, ms, "an operation waited long");
        }
    }
}
