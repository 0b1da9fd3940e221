//! A flag that is set once and can be waited for by many: how tasks of one connection tell each other to end.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Unset at first; once set it stays set.
#[derive(Default)]
pub struct Latch {
    set: AtomicBool,
    waiters: Notify,
}

impl Latch {
    /// Sets it and wakes everybody who waits.
    pub fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waiters.notify_waiters();
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Completes once it is set.
    pub async fn wait(&self) {
        let mut notified = std::pin::pin!(self.waiters.notified());
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }

    /// Runs `work` unless and until the latch is set; `None` then.
    pub async fn until<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.wait() => None,
            out = work => Some(out),
        }
    }
}
