//! A value that many wait for changes of: `tokio::sync::watch` with those who wait woken in the order in which they came.
//! Tokio wakes them in an order of chance, so that a simulated run would not be the same each time.
//!
//! Invariant: whoever looks for a change (`changed`, `wait_for`) sees every value or a later one; a change between two
//! looks is never missed.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// Changes the value. The last one to go ends what the receivers wait for.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Waits for changes of the value.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value at a moment; changes wait while it is held.
pub struct Ref<'a, T>(RwLockReadGuard<'a, Versioned<T>>);

/// Every sender is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

struct Versioned<T> {
    value: T,
    version: u64,
}

struct Shared<T> {
    state: RwLock<Versioned<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

/// A value with its first receiver.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Sender<T> {
        Sender::new(T::default())
    }
}

impl<T> Sender<T> {
    /// Channel without waiting receivers.
    pub fn new(value: T) -> Sender<T> {
        let state = RwLock::new(Versioned { value, version: 0 });
        let (senders, receivers) = (AtomicUsize::new(1), AtomicUsize::new(0));
        Sender { shared: Arc::new(Shared { state, senders, receivers, changed: Notify::new() }) }
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state.read())
    }

    /// A receiver that has seen the value as it is now.
    pub fn subscribe(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        let seen = self.shared.state.read().version;
        Receiver { shared: self.shared.clone(), seen }
    }

    /// Changes the value, which counts as a change whatever `change` does.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value; nobody is woken if `change` says that it changed nothing.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = {
            let mut state = self.shared.state.write();
            let changed = change(&mut state.value);
            state.version += u64::from(changed);
            changed
        };
        if changed {
            self.shared.changed.notify_waiters();
        }
        changed
    }

    /// Puts another value. Returns the former one.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|old| std::mem::swap(old, &mut value));
        value
    }

    /// Whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.shared.receivers.load(Ordering::Relaxed) == 0
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Receiver<T> {
    /// The value now, without marking it as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.state.read())
    }

    /// The value now, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.state.read();
        self.seen = state.version;
        Ref(state)
    }

    /// Waits for a value that was not seen yet, and counts it as seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        let seen = self.seen;
        self.look(|state| state.version != seen).await
    }

    /// Waits for a value of which `wanted` is true, the present one included.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        self.look(|state| wanted(&state.value)).await?;
        // The value may be a later one by now; `wanted` was true of an earlier one.
        Ok(Ref(self.shared.state.read()))
    }

    async fn look(&mut self, mut wanted: impl FnMut(&Versioned<T>) -> bool) -> Result<(), Closed> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.shared.state.read();
                if wanted(&state) {
                    self.seen = state.version;
                    return Ok(());
                }
            }
            if self.shared.senders.load(Ordering::Acquire) == 0 {
                return Err(Closed);
            }
            changed.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::task::{ArcWake, waker};
    use parking_lot::Mutex;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    struct Named(usize, Arc<Mutex<Vec<usize>>>);

    impl ArcWake for Named {
        fn wake_by_ref(this: &Arc<Named>) {
            this.1.lock().push(this.0);
        }
    }

    #[test]
    fn no_change_is_missed_and_the_end_is_told() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(receiver.changed().now_or_never(), None);
        sender.send_modify(|v| *v += 1);
        assert_eq!(*receiver.borrow(), 2);
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())), "looking at it is not seeing it");
        assert_eq!(receiver.changed().now_or_never(), None);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.changed().now_or_never(), None);
        assert_eq!(sender.send_replace(7), 2);
        assert_eq!(receiver.wait_for(|v| *v == 7).now_or_never().map(|v| v.map(|v| *v)), Some(Ok(7)));
        assert_eq!(receiver.changed().now_or_never(), None, "it was seen");
        let second = sender.clone();
        sender.send_replace(8);
        drop((sender, second));
        assert_eq!(receiver.changed().now_or_never(), Some(Ok(())), "what was sent before the end is seen");
        assert_eq!(receiver.changed().now_or_never(), Some(Err(Closed)));
        assert!(receiver.wait_for(|v| *v == 8).now_or_never().expect("at once").is_ok());
    }

    #[test]
    fn receivers_are_counted() {
        let (sender, receiver) = channel(());
        let other = receiver.clone();
        drop(receiver);
        assert!(!sender.is_closed());
        drop(other);
        assert!(sender.is_closed());
    }

    #[test]
    fn whoever_waits_is_woken_in_order() {
        let (sender, receiver) = channel(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut receivers: Vec<_> = (0..40).map(|_| receiver.clone()).collect();
        let mut waiting: Vec<_> = receivers.iter_mut().map(|r| Box::pin(r.changed())).collect();
        for (n, wait) in waiting.iter_mut().enumerate() {
            let waker = waker(Arc::new(Named(n, woken.clone())));
            assert!(pin!(wait).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        sender.send_replace(1);
        assert_eq!(*woken.lock(), (0..40).collect::<Vec<_>>());
    }
}
