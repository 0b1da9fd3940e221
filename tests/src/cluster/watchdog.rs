//! Ends a test that hangs: aborts the mounts' connections, so that every waiting call fails and the test goes on to its
//! end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::leftovers;

struct Shared {
    over: Mutex<bool>,
    changed: Condvar,
    fired: AtomicBool,
}

/// Watches over one cluster until it is dropped.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Aborts all mounts below `base` after `limit`.
    pub fn start(name: &str, base: &Path, limit: Duration) -> Watchdog {
        let shared = Arc::new(Shared {
            over: Mutex::new(false),
            changed: Condvar::new(),
            fired: AtomicBool::new(false),
        });
        let (watched, name, base) = (shared.clone(), name.to_owned(), base.to_owned());
        let thread = std::thread::spawn(move || watch(&watched, &name, base, limit));
        Watchdog { shared, thread: Some(thread) }
    }

    /// Whether it had to act.
    pub fn fired(&self) -> bool {
        self.shared.fired.load(Ordering::SeqCst)
    }
}

fn watch(shared: &Shared, name: &str, base: PathBuf, limit: Duration) {
    let over = shared.over.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = shared.changed.wait_timeout_while(over, limit, |over| !*over);
    let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if *over {
        return;
    }
    shared.fired.store(true, Ordering::SeqCst);
    eprintln!("{name}: not at its end after {} s; its mounts are aborted", limit.as_secs());
    leftovers::abort_mounts(&base);
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread only waits and writes to /sys.
            let _ = thread.join();
        }
    }
}
