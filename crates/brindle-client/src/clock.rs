//! The MDT's clock, as far as its answers tell (design note 018).
//!
//! Each answer carries the time of the MDT's clock when the answer was made, which is before it arrived. The MDT's clock now therefore
//! shows at least the sum of the carried time and the time since the arrival. The largest such bound of the last 10 to 20 s is taken: it is
//! late by the shortest way that an answer has had, and ahead by no more than the two clocks drift apart meanwhile. (The MDT takes no time
//! in its future.) A time that was taken after an answer is no earlier than any time that this answer may have told.
//!
//! Invariant: later calls give later times, or the same.

use brindle_stdx::Mono;
use brindle_types::attr::Time;
use parking_lot::Mutex;

/// Validity of a bound. In this time two clocks drift apart by some 100 us, by 5 ms where one is being
/// corrected, and either may be set.
const BOUND_MS: u64 = 10_000;

#[derive(Debug, Default)]
struct State {
    /// Begin of the present while, and the largest bound in it and in the one before: wall clock of the MDT minus ours, in ns.
    since: Mono,
    present: Option<i64>,
    before: Option<i64>,
    /// The last time that was given.
    last_ns: i64,
}

/// The MDT's clock, bounded from below by its answers.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<State>);

impl ServerClock {
    /// An answer arrived that was made at this time.
    pub fn answered(&self, now: Mono, server_ns: i64) {
        let mut state = self.0.lock();
        if now.ms_since(state.since) >= BOUND_MS {
            (state.since, state.before, state.present) = (now, state.present, None);
        }
        let bound = server_ns.saturating_sub_unsigned(now.0);
        state.present = Some(state.present.map_or(bound, |present| present.max(bound)));
    }

    /// The MDT's clock shows this time now, or a later one; `None` before it has answered.
    pub fn time(&self, now: Mono) -> Option<Time> {
        let mut state = self.0.lock();
        let bound = state.present.max(state.before)?;
        state.last_ns = state.last_ns.max(bound.saturating_add_unsigned(now.0));
        Some(Time::from_ns(state.last_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_never_ahead_never_goes_back_and_is_as_late_as_the_shortest_way() {
        let clock = ServerClock::default();
        let at = |ms: u64| Mono(ms * 1_000_000);
        let ns = |ms: i64| ms * 1_000_000;
        assert_eq!(clock.time(at(0)), None);
        // The MDT's clock shows 5000 ms more than ours.
        clock.answered(at(130), ns(5100));
        assert_eq!(clock.time(at(200)), Some(Time::from_ns(ns(5170))), "that answer took 30 ms");
        clock.answered(at(201), ns(5200));
        assert_eq!(clock.time(at(300)), Some(Time::from_ns(ns(5299))));
        clock.answered(at(400), ns(5350));
        assert_eq!(clock.time(at(400)), Some(Time::from_ns(ns(5399))), "a slow answer changes nothing");
        // The MDT's clock is set back by a second: the earlier bounds run out, and no time goes back.
        clock.answered(at(11_000), ns(14_999));
        assert_eq!(clock.time(at(11_000)), Some(Time::from_ns(ns(15_999))));
        clock.answered(at(21_100), ns(25_099));
        assert_eq!(clock.time(at(21_100)), Some(Time::from_ns(ns(25_099))));
        clock.answered(at(21_100), ns(24_000));
        assert_eq!(clock.time(at(21_100)), Some(Time::from_ns(ns(25_099))));
    }
}
