//! A flag that is set once and can be waited for by many: how tasks of one connection tell each other to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

/// Unset at first; once set it stays set.
#[derive(Default)]
pub struct Latch {
    set: AtomicBool,
    waiters: Notify,
}

impl Latch {
    /// Sets the latch and wakes all tasks that wait.
    pub fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waiters.notify_waiters();
    }

    /// Whether the latch is set.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Completes once the latch is set.
    pub async fn wait(&self) {
        let mut notified = std::pin::pin!(self.waiters.notified());
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }

    /// Runs `work` unless and until the latch is set; `None` then. `work` takes no step more once it is set. Work that is done at once never waits
    /// for the latch, and costs no more than a look at it.
    pub async fn until<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut set) = (std::pin::pin!(work), std::pin::pin!(self.wait()));
        std::future::poll_fn(|context| {
            if self.is_set() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(out) = work.as_mut().poll(context) {
                return Poll::Ready(Some(out));
            }
            set.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}
