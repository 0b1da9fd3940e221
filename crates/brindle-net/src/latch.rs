//! A flag that is set once and can be waited for by many: how tasks of one connection tell each other to end.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
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
    pub fn until<W: Future>(&self, work: W) -> impl Future<Output = Option<W::Output>> + use<'_, W> {
        until_set(Some(self), work)
    }
}

pin_project! {
    /// Work and the latch that ends it. The work is held once; see [`brindle_stdx::unless`].
    struct UntilSet<'a, W, S> {
        latch: Option<&'a Latch>,
        #[pin]
        work: W,
        #[pin]
        set: S,
    }
}

/// [`Latch::until`] for a latch that there may be; without one it is `work`.
pub fn until_set<W: Future>(
    latch: Option<&Latch>,
    work: W,
) -> impl Future<Output = Option<W::Output>> + use<'_, W> {
    let set = async move {
        match latch {
            Some(latch) => latch.wait().await,
            None => std::future::pending().await,
        }
    };
    UntilSet { latch, work, set }
}

impl<W: Future, S: Future<Output = ()>> Future for UntilSet<'_, W, S> {
    type Output = Option<W::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.latch.is_some_and(Latch::is_set) {
            return Poll::Ready(None);
        }
        match this.work.poll(context) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending if this.latch.is_none() => Poll::Pending,
            Poll::Pending => this.set.poll(context).map(|()| None),
        }
    }
}
