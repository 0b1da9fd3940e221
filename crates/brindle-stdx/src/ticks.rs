//! The kernel's ticks. Entries kept "for a tick" run out by the kernel's count of ticks (jiffies). A virtual
//! processor that its host does not run may hold that count up while other clocks go on.
//! CLOCK_MONOTONIC_COARSE is moved by the same interrupt as the count. (`tick_do_update_jiffies64` in
//! `kernel/time/tick-sched.c`, Linux 6.18.)

use std::sync::OnceLock;
use std::time::Duration;

use crate::cast::{from_i64, nanos};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// The slowest clock there is (100 Hz), for a kernel that does not say.
const LONGEST_NS: u64 = 10_000_000;

/// Nanoseconds of a time since the start of the machine, or of a length of time.
pub(crate) fn ns(time: Timespec) -> u64 {
    from_i64(time.tv_sec) * 1_000_000_000 + from_i64(time.tv_nsec)
}

/// Length of a tick: 1 to 10 ms. The kernel is asked once.
pub fn length() -> Duration {
    static LENGTH: OnceLock<Duration> = OnceLock::new();
    *LENGTH.get_or_init(|| {
        let length_ns = ns(clock_getres(ClockId::MonotonicCoarse));
        Duration::from_nanos(if length_ns == 0 { LONGEST_NS } else { length_ns.min(LONGEST_NS) })
    })
}

/// Ticks since the machine was started, to within one.
pub fn now() -> u64 {
    ns(clock_gettime(ClockId::MonotonicCoarse)) / nanos(length())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_go_on_as_fast_as_they_say() {
        let (began, since) = (now(), std::time::Instant::now());
        while now() < began + 3 {
            std::thread::yield_now();
        }
        let took = since.elapsed();
        assert!(took > length(), "three ticks after {took:?}");
        assert!((1..=10).contains(&length().as_millis()), "{:?}", length());
    }
}
