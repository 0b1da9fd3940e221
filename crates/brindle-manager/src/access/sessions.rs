//! Sessions: who is logged in. In memory: a restart of the manager logs everybody out.

use std::collections::HashMap;
use std::sync::Arc;

use brindle_stdx::{Clock, Mono};
use brindle_types::Result;
use parking_lot::Mutex;

use super::secret::{self, Hashed};

/// A session ends after so long without a request.
pub const IDLE_MAX_MS: u64 = 60 * 60 * 1000;
/// A session ends after so long, whatever it does.
pub const AGE_MAX_MS: u64 = 12 * 60 * 60 * 1000;
/// Most sessions; the one that was quiet for longest ends when another begins.
pub const SESSIONS_MAX: usize = 256;
/// Most sessions of one user, likewise.
pub const SESSIONS_OF_USER_MAX: usize = 16;

/// Name of the user of the manager's local socket.
pub const LOCAL_USER: &str = "root";

/// Values that a browser gets when a session begins.
pub struct Begun {
    /// The cookie's value.
    pub id: String,
    /// Value that every changing request must carry.
    pub csrf: String,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    /// User of the session.
    pub user: String,
    /// Value that every changing request must carry.
    pub csrf: String,
    began: Mono,
    used: Mono,
}

impl Session {
    /// The session of a command on the manager's own host, which has no cookie and no end.
    pub fn local(now: Mono) -> Session {
        Session::of_token(LOCAL_USER, now)
    }

    /// The session of one request of a program: it shows its token each time.
    pub fn of_token(user: &str, now: Mono) -> Session {
        Session { user: user.to_owned(), csrf: String::new(), began: now, used: now }
    }
}

/// All sessions.
pub struct Sessions {
    clock: Arc<dyn Clock>,
    sessions: Mutex<HashMap<Hashed, Session>>,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(clock: Arc<dyn Clock>) -> Sessions {
        Sessions { clock, sessions: Mutex::default() }
    }

    /// Begins a session of a user, under a number that nobody has known before.
    pub fn begin(&self, user: &str) -> Result<Begun> {
        let begun = Begun { id: secret::new()?, csrf: secret::new()? };
        let now = self.clock.now();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| is_alive(session, now));
        make_room(&mut sessions, |session| session.user == user, SESSIONS_OF_USER_MAX);
        make_room(&mut sessions, |_| true, SESSIONS_MAX);
        let session = Session { user: user.to_owned(), csrf: begun.csrf.clone(), began: now, used: now };
        sessions.insert(secret::hashed(&begun.id), session);
        Ok(begun)
    }

    /// The session with this number, which is used now.
    pub fn used(&self, id: &str) -> Option<Session> {
        let now = self.clock.now();
        let key = secret::hashed(id);
        let mut sessions = self.sessions.lock();
        let session = sessions.get_mut(&key)?;
        if !is_alive(session, now) {
            sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.clone())
    }

    /// Ends a session.
    pub fn end(&self, id: &str) {
        self.sessions.lock().remove(&secret::hashed(id));
    }

    /// Ends all sessions of a user.
    pub fn end_of(&self, user: &str) {
        self.sessions.lock().retain(|_, session| session.user != user);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sessions.lock().len()
    }
}

fn is_alive(session: &Session, now: Mono) -> bool {
    now.ms_since(session.used) < IDLE_MAX_MS && now.ms_since(session.began) < AGE_MAX_MS
}

/// Ends the session that was quiet for longest, of those that are meant, if there are `max` of them.
fn make_room(sessions: &mut HashMap<Hashed, Session>, is_meant: impl Fn(&Session) -> bool, max: usize) {
    let meant = sessions.iter().filter(|(_, session)| is_meant(session));
    if meant.clone().count() < max {
        return;
    }
    if let Some(oldest) = meant.min_by_key(|(_, session)| session.used).map(|(key, _)| *key) {
        sessions.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    #[test]
    fn sessions_end_when_they_are_quiet_and_when_they_are_old() {
        let hand = Hand::new();
        let sessions = Sessions::new(hand.clone());
        let quiet = sessions.begin("ada").unwrap();
        hand.forward_ms(IDLE_MAX_MS);
        assert!(sessions.used(&quiet.id).is_none(), "quiet for an hour");
        let busy = sessions.begin("ada").unwrap();
        for _ in 0..23 {
            hand.forward_ms(AGE_MAX_MS / 24);
            assert!(sessions.used(&busy.id).is_some());
        }
        hand.forward_ms(AGE_MAX_MS / 24);
        assert!(sessions.used(&busy.id).is_none(), "twelve hours old");
    }

    #[test]
    fn sessions_are_bounded_and_unknown_numbers_are_none() {
        let hand = Hand::new();
        let sessions = Sessions::new(hand.clone());
        let mut of_ada = Vec::new();
        for _ in 0..=SESSIONS_OF_USER_MAX {
            hand.forward_ms(1);
            of_ada.push(sessions.begin("ada").unwrap().id);
        }
        assert_eq!(sessions.count(), SESSIONS_OF_USER_MAX);
        assert!(sessions.used(&of_ada[0]).is_none(), "the oldest has ended");
        for n in 0..2 * SESSIONS_MAX {
            sessions.begin(&format!("user{n}")).unwrap();
        }
        assert_eq!(sessions.count(), SESSIONS_MAX);
        assert!(sessions.used("").is_none() && sessions.used(&"0".repeat(64)).is_none());
    }

    #[test]
    fn log_out_ends_one_session_and_removal_of_a_user_all_of_theirs() {
        let sessions = Sessions::new(Hand::new());
        let (one, two) = (sessions.begin("ada").unwrap(), sessions.begin("ada").unwrap());
        let bob = sessions.begin("bob").unwrap();
        sessions.end(&one.id);
        assert!(sessions.used(&one.id).is_none() && sessions.used(&two.id).is_some());
        sessions.end_of("ada");
        assert!(sessions.used(&two.id).is_none() && sessions.used(&bob.id).is_some());
    }
}
