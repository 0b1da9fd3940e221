//! The attempts that an agent has under way: how far each is, and whether it is still wanted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_client::Cancel;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::hsm::HsmAttempt;
use parking_lot::Mutex;

/// An attempt under way.
#[derive(Default)]
pub struct Attempt {
    moved_bytes: AtomicU64,
    cancel: Cancel,
}

impl Attempt {
    fn new() -> Attempt {
        Attempt { moved_bytes: AtomicU64::new(0), cancel: Cancel::new() }
    }

    /// Counts `bytes` more copied bytes.
    pub fn moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs `work` unless and until the attempt is given up.
    pub async fn until<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.cancel.until(work).await.unwrap_or_else(|| {
            Err(Fault::new(Code::StaleAttempt).why("the action was cancelled or given to another agent"))
        })
    }
}

/// All of them.
#[derive(Default)]
pub struct Attempts(Mutex<BTreeMap<HsmAttempt, Arc<Attempt>>>);

impl Attempts {
    /// Registers an attempt; dropping the returned value removes it.
    pub fn enter(self: &Arc<Self>, name: HsmAttempt) -> Entered {
        let attempt = Arc::new(Attempt::new());
        self.0.lock().insert(name, attempt.clone());
        Entered { all: self.clone(), name, attempt }
    }

    /// Copied bytes of each attempt.
    pub fn moved_bytes(&self) -> Vec<(HsmAttempt, u64)> {
        let all = self.0.lock();
        all.iter().map(|(name, attempt)| (*name, attempt.moved_bytes.load(Ordering::Relaxed))).collect()
    }

    /// Cancels attempts that are not wanted any more.
    pub fn give_up(&self, gone: &[HsmAttempt]) {
        let all = self.0.lock();
        gone.iter().filter_map(|name| all.get(name)).for_each(|attempt| attempt.cancel.cancel());
    }
}

/// An attempt that is under way.
pub struct Entered {
    all: Arc<Attempts>,
    name: HsmAttempt,
    /// The attempt.
    pub attempt: Arc<Attempt>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.name);
    }
}
