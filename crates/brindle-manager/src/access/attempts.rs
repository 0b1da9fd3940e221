//! Tries to log in: only so many in a while from one address, and for one user.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;

/// Time in which tries are counted.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Most failed tries from one address.
pub const OF_ADDRESS_MAX: u32 = 10;
/// Most failed tries for one user, from wherever.
pub const OF_USER_MAX: u32 = 50;
/// Most addresses and users that are remembered; the one whose window began first is forgotten first.
pub const REMEMBERED_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Address(IpAddr),
    User(String),
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    since: Mono,
    count: u32,
}

/// The counts.
pub struct Attempts {
    clock: Arc<dyn Clock>,
    tries: Mutex<BTreeMap<Key, Tries>>,
}

impl Attempts {
    /// Nobody has tried yet.
    pub fn new(clock: Arc<dyn Clock>) -> Attempts {
        Attempts { clock, tries: Mutex::default() }
    }

    /// Counts a try before the password is looked at, so that many at once count, too; refuses it where there were too many.
    pub fn begin(&self, address: IpAddr, user: &str) -> Result<()> {
        let now = self.clock.now();
        let mut tries = self.tries.lock();
        tries.retain(|_, tries| now.ms_since(tries.since) < WINDOW_MS);
        let keys = [(Key::Address(address), OF_ADDRESS_MAX), (Key::User(user.to_owned()), OF_USER_MAX)];
        let spent = keys.iter().find(|(key, max)| tries.get(key).is_some_and(|t| t.count >= *max));
        if let Some((key, max)) = spent {
            let whose = match key {
                Key::Address(address) => format!("from {address}"),
                Key::User(_) => "for this user".to_owned(),
            };
            return Err(Fault::new(Code::TooManyTries)
                .why(format!("there were {max} {whose} in {} minutes", WINDOW_MS / 60_000)));
        }
        for (key, _) in keys {
            if tries.len() >= REMEMBERED_MAX && !tries.contains_key(&key) {
                forget_oldest(&mut tries);
            }
            tries.entry(key).or_insert(Tries { since: now, count: 0 }).count += 1;
        }
        Ok(())
    }

    /// The try was good: it does not count.
    pub fn succeeded(&self, address: IpAddr, user: &str) {
        let mut tries = self.tries.lock();
        for key in [Key::Address(address), Key::User(user.to_owned())] {
            if let Some(tries) = tries.get_mut(&key) {
                tries.count = tries.count.saturating_sub(1);
            }
        }
    }
}

fn forget_oldest(tries: &mut BTreeMap<Key, Tries>) {
    let oldest = tries.iter().min_by_key(|(_, tries)| tries.since).map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        tries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn an_address_may_try_so_often_in_a_while() {
        let hand = Hand::new();
        let attempts = Attempts::new(hand.clone());
        for n in 0..OF_ADDRESS_MAX {
            attempts.begin(ip(1), &format!("user{n}")).unwrap();
        }
        assert_eq!(attempts.begin(ip(1), "other").unwrap_err().code, Code::TooManyTries);
        attempts.begin(ip(2), "other").unwrap();
        hand.forward_ms(WINDOW_MS);
        attempts.begin(ip(1), "other").unwrap();
    }

    #[test]
    fn a_user_is_tried_so_often_from_many_addresses_and_good_tries_do_not_count() {
        let attempts = Attempts::new(Hand::new());
        for n in 0..OF_USER_MAX {
            attempts.begin(ip(n), "ada").unwrap();
        }
        assert_eq!(attempts.begin(ip(9999), "ada").unwrap_err().code, Code::TooManyTries);
        for _ in 0..3 * OF_USER_MAX {
            attempts.begin(ip(7), "bob").unwrap();
            attempts.succeeded(ip(7), "bob");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let attempts = Attempts::new(Hand::new());
        for n in 0..REMEMBERED_MAX as u32 {
            attempts.begin(ip(n), &n.to_string()).unwrap();
        }
        assert_eq!(attempts.tries.lock().len(), REMEMBERED_MAX);
    }
}
