//! The first log-in: no user and no password exist before it. The start prints an address with a secret; the person who
//! opens it becomes the first administrator.

use std::sync::Arc;

use brindle_stdx::{Clock, Mono};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;

use super::secret::{self, Hashed};

/// How long the address can be used.
pub const LIFE_MS: u64 = 60 * 60 * 1000;

/// The secret of the first log-in, while there is one.
pub struct FirstLogIn {
    clock: Arc<dyn Clock>,
    open: Mutex<Option<(Hashed, Mono)>>,
}

impl FirstLogIn {
    /// A state in which no first log-in is possible.
    pub fn closed(clock: Arc<dyn Clock>) -> FirstLogIn {
        FirstLogIn { clock, open: Mutex::new(None) }
    }

    /// Makes one possible; its secret.
    pub fn open(&self) -> Result<String> {
        let token = secret::new()?;
        *self.open.lock() = Some((secret::hashed(&token), self.clock.now().plus_ms(LIFE_MS)));
        Ok(token)
    }

    /// Takes the secret: it cannot be used a second time, unless it is given back.
    pub fn take(&self, token: &str) -> Result<Taken<'_>> {
        let mut open = self.open.lock();
        let is_good =
            open.is_some_and(|(hash, ends)| hash == secret::hashed(token) && self.clock.now() < ends);
        if !is_good {
            return Err(Fault::new(Code::LogInRefused)
                .what("cannot log in for the first time")
                .why("the address is not the one that the manager printed, or it was used, or it has run out")
                .next("start the manager again: while it has no users, each start prints an address"));
        }
        let taken = open.take();
        Ok(Taken { first: self, taken })
    }
}

/// A secret that was taken.
pub struct Taken<'a> {
    first: &'a FirstLogIn,
    taken: Option<(Hashed, Mono)>,
}

impl Taken<'_> {
    /// Makes the token usable again, because nobody became administrator.
    pub fn give_back(self) {
        *self.first.open.lock() = self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    #[test]
    fn the_secret_works_once_and_for_an_hour() {
        let hand = Hand::new();
        let first = FirstLogIn::closed(hand.clone());
        assert!(first.take("").is_err());
        let token = first.open().unwrap();
        assert!(first.take(&token[1..]).is_err());
        first.take(&token).unwrap().give_back();
        first.take(&token).unwrap();
        assert_eq!(first.take(&token).err().unwrap().code, Code::LogInRefused, "used");
        let token = first.open().unwrap();
        hand.forward_ms(LIFE_MS);
        assert!(first.take(&token).is_err(), "run out");
    }
}
