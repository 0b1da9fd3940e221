//! A lock over ranges of blocks of one object: readers share, writers exclude, in order of arrival.
//!
//! Every operation on an object holds one range. Overlapping ones are thereby ordered, others run in parallel.
//! Invariant: a range is granted only when it conflicts with none that is held and none that asked before.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The whole object, and its length.
pub const ALL: Range<u64> = 0..u64::MAX;

/// The lock of one object.
#[derive(Default)]
pub struct RangeLock {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next_id: u64,
    held: Vec<Claim>,
    waiting: VecDeque<(Claim, oneshot::Sender<()>)>,
}

#[derive(Clone)]
struct Claim {
    id: u64,
    range: Range<u64>,
    write: bool,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        (self.write || other.write)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// A range that is held, or waited for; given up when dropped.
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl RangeLock {
    /// Shares a range with other readers.
    pub async fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.acquire(range, false).await
    }

    /// Locks a range exclusively.
    pub async fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.acquire(range, true).await
    }

    async fn acquire(&self, range: Range<u64>, write: bool) -> RangeGuard<'_> {
        let (guard, wait) = {
            let mut inner = self.inner.lock();
            inner.next_id += 1;
            let claim = Claim { id: inner.next_id, range, write };
            let guard = RangeGuard { lock: self, id: claim.id };
            let blocked =
                inner.held.iter().chain(inner.waiting.iter().map(|(c, _)| c)).any(|c| c.conflicts(&claim));
            if blocked {
                let (wake, wait) = oneshot::channel();
                inner.waiting.push_back((claim, wake));
                (guard, Some(wait))
            } else {
                inner.held.push(claim);
                (guard, None)
            }
        };
        if let Some(wait) = wait {
            wait.await.expect("a waiter is woken before its sender is dropped");
        }
        guard
    }
}

impl Inner {
    /// Grants waiting locks that have become possible.
    fn grant(&mut self) {
        let mut still: VecDeque<(Claim, oneshot::Sender<()>)> = VecDeque::new();
        for (claim, wake) in std::mem::take(&mut self.waiting) {
            let blocked = self.held.iter().chain(still.iter().map(|(c, _)| c)).any(|c| c.conflicts(&claim));
            if blocked {
                still.push_back((claim, wake));
            } else {
                self.held.push(claim);
                // A receiver that is gone drops its guard, which gives the range up again.
                let _ = wake.send(());
            }
        }
        self.waiting = still;
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.lock.inner.lock();
        inner.held.retain(|c| c.id != self.id);
        inner.waiting.retain(|(c, _)| c.id != self.id);
        inner.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    fn now<T>(f: &mut BoxFuture<'_, T>) -> Option<T> {
        f.now_or_never()
    }

    #[test]
    fn overlapping_claims_are_served_in_order_and_others_at_once() {
        let lock = RangeLock::default();
        let first = lock.write(0..10).now_or_never().expect("free");
        assert!(lock.write(10..20).now_or_never().is_some(), "no overlap");
        let mut reader = lock.read(5..15).boxed();
        assert!(now(&mut reader).is_none());
        let mut writer = lock.write(14..16).boxed();
        assert!(now(&mut writer).is_none(), "behind the reader that waits");
        let mut other = lock.read(15..30).boxed();
        assert!(now(&mut other).is_none(), "behind the writer that waits");
        drop(first);
        let got = now(&mut reader).expect("granted");
        assert!(now(&mut writer).is_none());
        drop(got);
        let got = now(&mut writer).expect("granted");
        drop(got);
        assert!(now(&mut other).is_some());
    }

    #[test]
    fn giving_up_a_wait_lets_the_next_go() {
        let lock = RangeLock::default();
        let held = lock.read(0..10).now_or_never().expect("free");
        let mut writer = lock.write(ALL).boxed();
        assert!(now(&mut writer).is_none());
        let mut reader = lock.read(3..4).boxed();
        assert!(now(&mut reader).is_none());
        drop(writer);
        assert!(now(&mut reader).is_some());
        drop(held);
        assert!(lock.inner.lock().waiting.is_empty());
    }
}
