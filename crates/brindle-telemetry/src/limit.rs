//! Limiter of log lines: the same text about the same subject at most once a minute, with a count of the
//! lines left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_stdx::{Clock, Mono};
use parking_lot::Mutex;

/// Pause between two messages of the same text about the same subject.
pub const PAUSE_MS: u64 = 60_000;
/// Most (subject, text) pairs that are remembered; the one that was quiet for longest is forgotten first.
const REMEMBERED_MAX: usize = 1024;

/// Decides which lines are repeated.
pub struct Limiter {
    clock: Arc<dyn Clock>,
    said: Mutex<BTreeMap<(String, String), Said>>,
}

struct Said {
    at: Mono,
    left_out: u64,
}

impl Limiter {
    /// A limiter that has said nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Limiter {
        Limiter { clock, said: Mutex::new(BTreeMap::new()) }
    }

    /// Whether to say `text` about `subject` now: `Some(n)` for yes, with the number of times that it was left out
    /// since it was said last.
    pub fn allow(&self, subject: &str, text: &str) -> Option<u64> {
        let now = self.clock.now();
        let mut said = self.said.lock();
        let key = (subject.to_owned(), text.to_owned());
        if let Some(last) = said.get_mut(&key) {
            if now.ms_since(last.at) < PAUSE_MS {
                last.left_out += 1;
                return None;
            }
            let left_out = std::mem::take(&mut last.left_out);
            last.at = now;
            return Some(left_out);
        }
        if said.len() >= REMEMBERED_MAX {
            let oldest = said.iter().min_by_key(|(_, s)| s.at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                said.remove(&oldest);
            }
        }
        said.insert(key, Said { at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_stdx::{BoxFuture, Timestamp};

    #[derive(Default)]
    struct Hand(Mutex<u64>);

    impl Clock for Hand {
        fn now(&self) -> Mono {
            Mono(*self.0.lock() * 1_000_000)
        }
        fn wall(&self) -> Timestamp {
            Timestamp::default()
        }
        fn sleep_until(&self, _at: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn the_same_text_once_a_minute_with_a_count() {
        let clock = Arc::new(Hand::default());
        let limiter = Limiter::new(clock.clone());
        assert_eq!(limiter.allow("OST0000", "slow"), Some(0));
        assert_eq!(limiter.allow("OST0000", "slow"), None);
        assert_eq!(limiter.allow("OST0001", "slow"), Some(0), "another subject");
        assert_eq!(limiter.allow("OST0000", "slow"), None);
        *clock.0.lock() = PAUSE_MS;
        assert_eq!(limiter.allow("OST0000", "slow"), Some(2));
        assert_eq!(limiter.allow("OST0000", "slow"), None);
    }

    #[test]
    fn memory_is_bounded() {
        let clock = Arc::new(Hand::default());
        let limiter = Limiter::new(clock.clone());
        for n in 0..REMEMBERED_MAX + 5 {
            *clock.0.lock() = n as u64;
            assert_eq!(limiter.allow(&n.to_string(), "x"), Some(0));
        }
        assert_eq!(limiter.said.lock().len(), REMEMBERED_MAX);
        assert_eq!(limiter.allow("0", "x"), Some(0), "the oldest was forgotten");
    }
}
