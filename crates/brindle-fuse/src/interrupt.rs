//! Signals of callers: the table from request number to the handle that its handler watches.
//!
//! The kernel sends one INTERRUPT for a request whose caller got any signal, and then waits for the answer as
//! before. A handler that can end early does so when its [`Cancel`] fires; any other handler goes on. With several
//! readers an INTERRUPT may be read before its request is registered, or after its answer. In either case the
//! request looks unknown here: the session answers EAGAIN, and the kernel sends the INTERRUPT again if the request
//! still lives.
//!
//! Invariant: a request is in the table from before its handler runs until after its answer was written.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Shards of the table, so that readers seldom meet.
const SHARDS: usize = 16;

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    wake: Notify,
}

/// Tells a handler that its caller got a signal. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<State>);

impl Cancel {
    /// A handle that fires only through [`Cancel::request`]; for tests and for callers other than the kernel.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Whether the caller got a signal so far.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Completes once the caller gets a signal; at once if it has. The future owns all that it needs.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let state = self.0.clone();
        async move {
            // Registered before the flag is read, so that no wake-up falls in between.
            let woken = state.wake.notified();
            if !state.requested.load(Ordering::Acquire) {
                woken.await;
            }
        }
    }

    /// Fires the handle.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
        self.0.wake.notify_waiters();
    }
}

/// The requests that are being handled.
#[derive(Debug, Default)]
pub struct Interrupts {
    shards: [Mutex<HashMap<u64, Cancel>>; SHARDS],
}

impl Interrupts {
    /// An empty table.
    pub fn new() -> Arc<Interrupts> {
        Arc::new(Interrupts::default())
    }

    /// Enters a request before its handler runs.
    pub fn register(self: &Arc<Self>, unique: u64) -> Registration {
        let cancel = Cancel::new();
        self.shard(unique).lock().insert(unique, cancel.clone());
        Registration { table: self.clone(), unique, cancel }
    }

    /// Tells the handler of `unique` that its caller got a signal; false when the request is not known.
    pub fn interrupt(&self, unique: u64) -> bool {
        let cancel = self.shard(unique).lock().get(&unique).cloned();
        if let Some(cancel) = &cancel {
            cancel.request();
        }
        cancel.is_some()
    }

    /// Number of requests being handled.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// Whether no request is being handled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, unique: u64) -> &Mutex<HashMap<u64, Cancel>> {
        // The kernel counts in steps of two per processor; a multiplication spreads that.
        let mixed = unique.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
        &self.shards[mixed as usize % SHARDS]
    }
}

/// A request's entry in the table; leaves it when dropped.
#[derive(Debug)]
pub struct Registration {
    table: Arc<Interrupts>,
    unique: u64,
    cancel: Cancel,
}

impl Registration {
    /// The handle for the handler.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.shard(self.unique).lock().remove(&self.unique);
    }
}

/// Whether the thread `tid` has SIGKILL pending, so that it will never see an answer. False when that cannot be
/// told (the thread is gone, or is outside our pid namespace).
///
/// The kernel sends only one INTERRUPT for a request; a handler that went on after it asks this from time to time.
pub fn kill_pending(tid: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
    let Some(status) = read_small(&format!("/proc/{tid}/status")) else { return false };
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & SIGKILL_BIT != 0)
}

/// A file of procfs, as far as one page holds it.
fn read_small(path: &str) -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buf = vec![0u8; 4096];
    let n = rustix::io::read(&fd, &mut buf).ok()?;
    buf.truncate(n);
    String::from_utf8(buf).ok()
}

#[cfg(test)]
mod tests;
