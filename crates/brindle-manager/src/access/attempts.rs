//! Log-in attempts: a limited number in a time from one address, and for one user.
//!
//! A user who has logged in from an address has a separate count there: attempts from elsewhere do not keep the user from the usual place.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;

/// Time in which tries are counted.
pub const WINDOW_MS: u64 = 5 * 60 * 1000;
/// Most failed tries from one address, or for one user from an address that he has logged in from.
pub const OF_ADDRESS_MAX: u32 = 10;
/// Most failed tries for one user, from wherever he has not logged in before.
pub const OF_USER_MAX: u32 = 50;
/// Most addresses that are remembered; the one whose window began first is forgotten first, unless its tries are used up.
pub const REMEMBERED_MAX: usize = 4096;
/// Characters of a name that count; no user has a longer one.
const NAME_MAX_CHARS: usize = 64;
/// Most usual places of users that are remembered; the one that was used longest ago is forgotten first.
const USUAL_MAX: usize = 1024;
/// Bits of an IPv6 address that count: an owner of one address has all of its network.
const NETWORK_BITS: u32 = 64;

/// An address, or the network that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(IpAddr);

impl Origin {
    /// The one that an address belongs to.
    pub fn of(address: IpAddr) -> Origin {
        Origin(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let host_bits = u128::BITS - NETWORK_BITS;
                IpAddr::V6((u128::from(v6) >> host_bits << host_bits).into())
            }
            v4 => v4,
        })
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => write!(f, "{v4}"),
            IpAddr::V6(v6) => write!(f, "{v6}/{NETWORK_BITS}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    since: Mono,
    count: u32,
    /// A refusal was told in this window.
    is_told: bool,
}

impl Tries {
    fn new(now: Mono) -> Tries {
        Tries { since: now, count: 0, is_told: false }
    }

    /// A refusal once there were too many; `whose` says of what.
    fn check(&mut self, max: u32, whose: impl FnOnce() -> String) -> std::result::Result<(), Refused> {
        if self.count < max {
            return Ok(());
        }
        let is_first = !std::mem::replace(&mut self.is_told, true);
        Err(refused(format!("there were {max} {} in {} minutes", whose(), WINDOW_MS / 60_000), is_first))
    }

    fn is_over(&self, now: Mono) -> bool {
        now.ms_since(self.since) >= WINDOW_MS
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The refusal, for the user who tried.
    pub fault: Fault,
    /// The first one of this reason in its window. Further ones need not be written down.
    pub is_first: bool,
}

fn refused(why: String, is_first: bool) -> Refused {
    Refused { fault: Fault::new(Code::TooManyTries).why(why), is_first }
}

/// A place that a user has logged in from.
struct Usual {
    used: Mono,
    tries: Tries,
}

#[derive(Default)]
struct Table {
    origins: BTreeMap<Origin, Tries>,
    /// Users that exist: they are not forgotten for made-up names.
    users: BTreeMap<String, Tries>,
    /// Names that no user has: they are refused alike, so that nobody learns which names exist.
    strangers: BTreeMap<String, Tries>,
    usual: BTreeMap<(String, Origin), Usual>,
    /// When a refusal for want of room was told last.
    full_told: Option<Mono>,
}

/// The counts.
pub struct Attempts {
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

impl Attempts {
    /// A table without any attempts.
    pub fn new(clock: Arc<dyn Clock>) -> Attempts {
        Attempts { clock, table: Mutex::default() }
    }

    /// Counts a try of something that is no user.
    pub fn begin(&self, address: IpAddr, what: &str) -> Result<()> {
        self.begin_for(address, what, false).map_err(|refused| refused.fault)
    }

    /// Counts a try before the password is looked at, so that many at once count, too; refuses it where there were too many.
    /// `exists`: there is a user of this name.
    pub fn begin_for(&self, address: IpAddr, user: &str, exists: bool) -> std::result::Result<(), Refused> {
        let (now, origin) = (self.clock.now(), Origin::of(address));
        let user: String = user.chars().take(NAME_MAX_CHARS).collect();
        let mut table = self.table.lock();
        if let Some(usual) = table.usual.get_mut(&(user.clone(), origin)) {
            if usual.tries.is_over(now) {
                usual.tries = Tries::new(now);
            }
            usual.tries.check(OF_ADDRESS_MAX, || format!("for this user from {origin}"))?;
            usual.tries.count += 1;
            return Ok(());
        }
        table.origins.retain(|_, tries| !tries.is_over(now));
        table.users.retain(|_, tries| !tries.is_over(now));
        table.strangers.retain(|_, tries| !tries.is_over(now));
        if let Some(tries) = table.origins.get_mut(&origin) {
            tries.check(OF_ADDRESS_MAX, || format!("from {origin}"))?;
        }
        if let Some(tries) = table.names(exists).get_mut(&user) {
            tries.check(OF_USER_MAX, || "for this user".to_owned())?;
        }
        if !table.origins.contains_key(&origin) {
            table.make_room(now)?;
        }
        table.origins.entry(origin).or_insert(Tries::new(now)).count += 1;
        let names = table.names(exists);
        if names.len() >= REMEMBERED_MAX && !names.contains_key(&user) {
            let oldest = names.iter().min_by_key(|(_, tries)| tries.since).map(|(name, _)| name.clone());
            oldest.map(|oldest| names.remove(&oldest));
        }
        names.entry(user).or_insert(Tries::new(now)).count += 1;
        Ok(())
    }

    /// The try was good: it does not count.
    pub fn succeeded(&self, address: IpAddr, user: &str) {
        let (now, origin) = (self.clock.now(), Origin::of(address));
        let mut table = self.table.lock();
        let key = (user.to_owned(), origin);
        if let Some(usual) = table.usual.get_mut(&key) {
            usual.used = now;
            usual.tries.count = usual.tries.count.saturating_sub(1);
            return;
        }
        if let Some(tries) = table.origins.get_mut(&origin) {
            tries.count = tries.count.saturating_sub(1);
        }
        if let Some(tries) = table.users.get_mut(user) {
            tries.count = tries.count.saturating_sub(1);
        }
        if table.usual.len() >= USUAL_MAX {
            let oldest = table.usual.iter().min_by_key(|(_, usual)| usual.used).map(|(key, _)| key.clone());
            oldest.map(|oldest| table.usual.remove(&oldest));
        }
        table.usual.insert(key, Usual { used: now, tries: Tries::new(now) });
    }
}

impl Table {
    fn names(&mut self, exists: bool) -> &mut BTreeMap<String, Tries> {
        if exists { &mut self.users } else { &mut self.strangers }
    }

    /// Forgets an address where there are too many. An address whose tries are used up stays: forgetting it would give it new ones.
    fn make_room(&mut self, now: Mono) -> std::result::Result<(), Refused> {
        if self.origins.len() < REMEMBERED_MAX {
            return Ok(());
        }
        let open = self.origins.iter().filter(|(_, tries)| tries.count < OF_ADDRESS_MAX);
        let oldest = open.min_by_key(|(_, tries)| tries.since).map(|(origin, _)| *origin);
        if let Some(oldest) = oldest {
            self.origins.remove(&oldest);
            return Ok(());
        }
        let is_first = self.full_told.is_none_or(|told| now.ms_since(told) >= WINDOW_MS);
        if is_first {
            self.full_told = Some(now);
        }
        Err(refused(format!("there were too many from {REMEMBERED_MAX} addresses"), is_first))
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
    fn a_refusal_is_the_first_one_once_in_a_window() {
        let hand = Hand::new();
        let attempts = Attempts::new(hand.clone());
        for _ in 0..2 {
            for _ in 0..OF_ADDRESS_MAX {
                attempts.begin(ip(1), "x").unwrap();
            }
            let firsts: Vec<bool> =
                (0..3).map(|_| attempts.begin_for(ip(1), "x", false).unwrap_err().is_first).collect();
            assert_eq!(firsts, [true, false, false]);
            hand.forward_ms(WINDOW_MS);
        }
    }

    #[test]
    fn a_user_is_tried_so_often_from_many_addresses_and_good_tries_do_not_count() {
        let attempts = Attempts::new(Hand::new());
        for n in 0..OF_USER_MAX {
            attempts.begin_for(ip(n), "ada", true).unwrap();
        }
        assert_eq!(attempts.begin_for(ip(9999), "ada", true).unwrap_err().fault.code, Code::TooManyTries);
        for _ in 0..3 * OF_USER_MAX {
            attempts.begin_for(ip(7), "bob", true).unwrap();
            attempts.succeeded(ip(7), "bob");
        }
    }

    #[test]
    fn a_name_that_no_user_has_is_refused_alike() {
        let attempts = Attempts::new(Hand::new());
        for n in 0..OF_USER_MAX {
            attempts.begin_for(ip(n), "nobody", false).unwrap();
            attempts.begin_for(ip(1000 + n), "ada", true).unwrap();
        }
        let refused = |user, exists| attempts.begin_for(ip(9999), user, exists).unwrap_err().fault;
        assert_eq!(refused("nobody", false), refused("ada", true));
    }

    #[test]
    fn tries_from_elsewhere_keep_nobody_from_the_usual_place() {
        let hand = Hand::new();
        let attempts = Attempts::new(hand.clone());
        attempts.begin_for(ip(7), "ada", true).unwrap();
        attempts.succeeded(ip(7), "ada");
        for n in 100..100 + 2 * OF_USER_MAX {
            drop(attempts.begin_for(ip(n), "ada", true));
            drop(attempts.begin_for(ip(7), "somebody else", true));
        }
        for _ in 0..OF_ADDRESS_MAX {
            attempts.begin_for(ip(7), "ada", true).unwrap();
        }
        let refused = attempts.begin_for(ip(7), "ada", true).unwrap_err();
        assert_eq!(refused.fault.code, Code::TooManyTries, "there it is counted, too");
        hand.forward_ms(WINDOW_MS);
        attempts.begin_for(ip(7), "ada", true).unwrap();
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let attempts = Attempts::new(Hand::new());
        let v6 = |host: u32| IpAddr::from([0xfd00, 0, 0, 7, 0, 0, (host >> 16) as u16, host as u16]);
        for n in 0..OF_ADDRESS_MAX {
            attempts.begin(v6(n), "x").unwrap();
        }
        assert_eq!(attempts.begin(v6(0xffff_ffff), "x").unwrap_err().code, Code::TooManyTries);
        attempts.begin("fd00:0:0:8::1".parse().unwrap(), "x").unwrap();
        // An address of IPv4 in a coat of IPv6 is the one inside.
        for n in 0..OF_ADDRESS_MAX {
            let coat = IpAddr::from(std::net::Ipv4Addr::from(9).to_ipv6_mapped());
            attempts.begin(if n % 2 == 0 { ip(9) } else { coat }, "x").unwrap();
        }
        assert!(attempts.begin(ip(9), "x").is_err());
        attempts.begin(ip(10), "x").unwrap();
    }

    #[test]
    fn memory_is_bounded_and_who_has_tried_too_often_is_not_forgotten() {
        let attempts = Attempts::new(Hand::new());
        for _ in 0..OF_ADDRESS_MAX {
            attempts.begin(ip(0), "x").unwrap();
        }
        for n in 1..2 * REMEMBERED_MAX as u32 {
            attempts.begin(ip(n), &n.to_string()).unwrap();
        }
        let table = attempts.table.lock();
        let lens = (table.origins.len(), table.users.len(), table.strangers.len());
        assert_eq!(lens, (REMEMBERED_MAX, 0, REMEMBERED_MAX));
        drop(table);
        assert_eq!(attempts.begin(ip(0), "x").unwrap_err().code, Code::TooManyTries);
        for n in 0..2 * USUAL_MAX as u32 {
            attempts.succeeded(ip(n), "ada");
        }
        assert_eq!(attempts.table.lock().usual.len(), USUAL_MAX);
    }

    #[test]
    fn where_all_have_tried_too_often_only_usual_places_go_on() {
        let attempts = Attempts::new(Hand::new());
        attempts.succeeded(ip(7), "ada");
        for n in 100..100 + REMEMBERED_MAX as u32 {
            for _ in 0..OF_ADDRESS_MAX {
                attempts.begin(ip(n), &n.to_string()).unwrap();
            }
        }
        assert!(attempts.begin_for(ip(1), "ada", true).unwrap_err().is_first);
        assert!(!attempts.begin_for(ip(2), "ada", true).unwrap_err().is_first);
        attempts.begin_for(ip(7), "ada", true).unwrap();
    }
}
