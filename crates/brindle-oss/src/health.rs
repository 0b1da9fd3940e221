//! Whether the OST's disk returned errors lately: for the log, where they are said once a minute, and for `brindle status`.
//!
//! Called by the service for every answer. A read-only or dying disk leaves the process running and its space as it was, so
//! that only this module notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault};
use parking_lot::Mutex;

/// After this time without an error, a change that succeeds shows that the disk is well again.
const QUIET_MS: u64 = 10_000;
/// The log repeats the error after this time.
const SAY_AGAIN_MS: u64 = 60_000;

/// See the module.
pub struct DiskHealth {
    clock: Arc<dyn Clock>,
    failing: AtomicBool,
    last: Mutex<Option<Errors>>,
}

struct Errors {
    last: Fault,
    count: u64,
    at: Mono,
    said_at: Mono,
}

impl DiskHealth {
    /// No error so far.
    pub fn new(clock: Arc<dyn Clock>) -> DiskHealth {
        DiskHealth { clock, failing: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// Takes note of an answer that is a fault.
    pub fn failed(&self, target: &str, fault: &Fault) {
        if fault.code != Code::OstIo {
            return;
        }
        let now = self.clock.now();
        let mut last = self.last.lock();
        let (count, said_at) = last.as_ref().map_or((0, None), |e| (e.count, Some(e.said_at)));
        let say = said_at.is_none_or(|at| now.ms_since(at) >= SAY_AGAIN_MS);
        if say {
            tracing::error!(code = %fault.code, target, errors = count + 1, %fault, "the disk returned an error");
        }
        let said_at = said_at.filter(|_| !say).unwrap_or(now);
        *last = Some(Errors { last: fault.clone(), count: count + 1, at: now, said_at });
        self.failing.store(true, Ordering::Release);
    }

    /// Takes note of a change that reached the disk.
    pub fn succeeded(&self) {
        if !self.failing.load(Ordering::Acquire) {
            return;
        }
        let mut last = self.last.lock();
        if last.as_ref().is_some_and(|e| self.clock.now().ms_since(e.at) >= QUIET_MS) {
            *last = None;
            self.failing.store(false, Ordering::Release);
        }
    }

    /// The last error, if nothing has succeeded since.
    pub fn problem(&self, target: &str) -> Option<Fault> {
        let last = self.last.lock();
        let errors = last.as_ref()?;
        let seconds = self.clock.now().ms_since(errors.at) / 1000;
        let fault = Fault::new(Code::OstIo)
            .what("the disk returns errors:")
            .subject(target.to_owned())
            .why(format!("{} so far, the last {seconds} s ago: {}", errors.count, errors.last.what));
        let fault = errors.last.why.iter().cloned().fold(fault, Fault::why);
        Some(
            fault
                .data("what was refused was not acknowledged; what was synced is as safe as the disk")
                .next("look at the disk: dmesg, and the mount of the target's directory (read-only?); the target goes on by itself when it can write again"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_stdx::{BoxFuture, Timestamp};

    struct Hand(Mutex<Mono>);

    impl Clock for Hand {
        fn now(&self) -> Mono {
            *self.0.lock()
        }

        fn wall(&self) -> Timestamp {
            Timestamp::default()
        }

        fn sleep_until(&self, _at: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn errors_are_told_until_a_later_change_succeeds() {
        let clock = Arc::new(Hand(Mutex::new(Mono(1))));
        let health = DiskHealth::new(clock.clone());
        let error =
            Fault::new(Code::OstIo).what("cannot write the write intents").why("Read-only file system");
        health.failed("dev-OST0001", &Fault::new(Code::OstFull));
        assert_eq!(health.problem("dev-OST0001"), None);
        health.failed("dev-OST0001", &error);
        health.failed("dev-OST0001", &error);
        health.succeeded();
        *clock.0.lock() = Mono(1).plus_ms(QUIET_MS);
        let told = health.problem("dev-OST0001").expect("two errors");
        assert_eq!(
            told.to_string(),
            "the disk returns errors: dev-OST0001\n  \
             why:  2 so far, the last 10 s ago: cannot write the write intents\n  \
             why:  Read-only file system\n  \
             data: what was refused was not acknowledged; what was synced is as safe as the disk\n  \
             next: look at the disk: dmesg, and the mount of the target's directory (read-only?); the target goes on by itself when it can write again\n  \
             code: E4004 (brindle explain E4004)"
        );
        health.succeeded();
        assert_eq!(health.problem("dev-OST0001"), None);
    }
}
