//! Request rate of this process: one beat for each request, for a watcher that adapts the machine to it.
//!
//! One count for the process, because what is adapted is the machine's. Invariant: a beat costs an addition; the watcher
//! is woken by every [`BEATS_PER_WAKE`]th beat, and only while it rests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};

/// Beats after which a resting watcher is woken.
pub const BEATS_PER_WAKE: u64 = 64;

static BEATS: AtomicU64 = AtomicU64::new(0);
static RESTING: AtomicBool = AtomicBool::new(false);
static WATCHER: OnceLock<Thread> = OnceLock::new();

/// A request has come.
pub fn beat() {
    let beats = BEATS.fetch_add(1, Ordering::Relaxed) + 1;
    if beats.is_multiple_of(BEATS_PER_WAKE)
        && RESTING.load(Ordering::Relaxed)
        && let Some(watcher) = WATCHER.get()
    {
        watcher.unpark();
    }
}

/// Requests so far.
pub fn beats() -> u64 {
    BEATS.load(Ordering::Relaxed)
}

/// Makes this thread the watcher, of which there is one, and waits for beats: about [`BEATS_PER_WAKE`] of them, sometimes
/// fewer.
pub fn rest() {
    WATCHER.get_or_init(thread::current);
    RESTING.store(true, Ordering::Relaxed);
    thread::park();
    RESTING.store(false, Ordering::Relaxed);
}
