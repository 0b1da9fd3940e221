//! Space promised to clients: a client that acknowledges bytes to a program before it sends them must find space for them.
//!
//! Every target keeps a part of its space back ([`crate::space`]) and promises this part in grants, one for each session, in the
//! replies to writes. A write that was acknowledged under a grant may use the part that is kept back. While the target has other
//! space, such writes leave the grant unchanged. Once they use up the part that is kept back, each lowers its grant by the space
//! that it takes, so promises never exceed the rest.
//!
//! Volatile. After a restart clients declare their grants. Until they have had the time to do so (`DECLARE_MS`), no grant
//! grows, and the part that is kept back stays so. Pure but for its lock. Invariant: the sum of all grants is at most what may
//! be promised, except while the file system below is filled by others.

use std::collections::BTreeMap;

use brindle_stdx::planted;
use brindle_stdx::time::Mono;
use brindle_types::{Pair, SessionId};
use brindle_wire::oss::Grant;
use brindle_wire::oss::write::Claim;
use parking_lot::Mutex;

use crate::space::ToPromise;

/// Most that one client is granted.
pub const GRANT_MAX_BYTES: u64 = 32 << 20;
/// A smaller grant is not worth giving.
const GRANT_MIN_BYTES: u64 = 64 << 10;
/// Time after writes are served again, in which no client is granted more than it held. The time is longer than
/// clients trust a grant (`brindle-client/src/grants.rs`). Therefore no client buffers under a grant of an earlier
/// process when the time is over.
const DECLARE_MS: u64 = 10_000;
/// A grant that was not used for this long may go to others.
pub const IDLE_MS: u64 = 120_000;
/// Most sessions with a grant.
const SESSIONS_MAX: usize = 1 << 16;

/// Grants by session.
pub struct Grants {
    life: u64,
    was_used: bool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Time until which clients may tell their earlier grants.
    declare_until: Mono,
    by_session: BTreeMap<SessionId, Promise>,
    sum_bytes: u64,
    serial: u64,
}

struct Promise {
    /// Epoch of the session that got the promise.
    epoch: Pair,
    bytes: u64,
    used: Mono,
}

impl Grants {
    /// Table without grants. `was_used`: an earlier process of the target may have given some. `life` is a
    /// number that no other process of the target has.
    pub fn new(life: u64, now: Mono, was_used: bool) -> Grants {
        let grants = Grants { life, was_used, table: Mutex::default() };
        grants.serving(now);
        grants
    }

    /// Writes are served from now on: the time in which clients may say what they hold begins.
    pub fn serving(&self, now: Mono) {
        self.table.lock().declare_until = if self.was_used { now.plus_ms(DECLARE_MS) } else { now };
    }

    /// A write of a session begins that needs `room_bytes`. Returns whether the write may use the space that
    /// is kept back. Promises to an older epoch of the session are over.
    pub fn covers(
        &self,
        (session, epoch): (SessionId, Pair),
        claim: Claim,
        room_bytes: u64,
        to_promise: ToPromise,
        now: Mono,
    ) -> bool {
        let mut table = self.table.lock();
        let known = table.by_session.get(&session).map(|promise| promise.epoch);
        if known.is_some_and(|known| known > epoch) {
            return false;
        }
        if known != Some(epoch) {
            table.forget(session);
            let bytes =
                claim.holds_bytes.min(GRANT_MAX_BYTES).min(to_promise.bytes.saturating_sub(table.sum_bytes));
            table.set((session, epoch), bytes, now);
        }
        claim.covered && table.by_session.get(&session).is_some_and(|promise| promise.bytes >= room_bytes)
    }

    /// The write is done; `spent_bytes` is its room if it was covered, else 0. Returns the new grant of the
    /// session: nothing, if it ended since [`Grants::covers`].
    pub fn next(&self, session: SessionId, spent_bytes: u64, to_promise: ToPromise, now: Mono) -> Grant {
        let mut table = self.table.lock();
        table.serial += 1;
        let promise = table.by_session.get(&session).map(|promise| (promise.epoch, promise.bytes));
        let Some((epoch, held)) = promise else {
            return Grant { life: self.life, serial: table.serial, bytes: 0 };
        };
        let is_declaring = now < table.declare_until;
        // The sum lacks grants of clients that have not declared them yet.
        let is_short = table.sum_bytes > to_promise.bytes || (is_declaring && !to_promise.is_whole);
        let bytes = if is_short && !planted("ost_grants_are_never_lowered") {
            held.saturating_sub(spent_bytes)
        } else if is_declaring {
            held
        } else {
            let may_be = to_promise.bytes.min(to_promise.held_bytes);
            let mut free = may_be.saturating_sub(table.sum_bytes);
            if free < GRANT_MIN_BYTES {
                table.forget_idle(session, now);
                free = may_be.saturating_sub(table.sum_bytes);
            }
            // Grant half of the free part, so that something is left for the next client.
            let more = GRANT_MAX_BYTES.min(held + free / 2);
            if more >= GRANT_MIN_BYTES { more.max(held) } else { held }
        };
        table.set((session, epoch), bytes, now);
        Grant { life: self.life, serial: table.serial, bytes }
    }

    /// The session is at its end: nothing of it is sent any more.
    pub fn give_back(&self, session: SessionId) {
        self.table.lock().forget(session);
    }

    /// The epochs of a session below `below` are over: nothing of them is sent any more.
    pub fn end(&self, session: SessionId, below: Pair) {
        let mut table = self.table.lock();
        if table.by_session.get(&session).is_some_and(|promise| promise.epoch < below) {
            table.forget(session);
        }
    }

    /// Bytes that are promised now.
    pub fn sum_bytes(&self) -> u64 {
        self.table.lock().sum_bytes
    }
}

impl Table {
    fn set(&mut self, (session, epoch): (SessionId, Pair), bytes: u64, now: Mono) {
        if self.by_session.len() >= SESSIONS_MAX && !self.by_session.contains_key(&session) {
            self.forget_idle(session, now);
            if self.by_session.len() >= SESSIONS_MAX {
                return;
            }
        }
        let promise = self.by_session.entry(session).or_insert(Promise { epoch, bytes: 0, used: now });
        self.sum_bytes = self.sum_bytes - promise.bytes + bytes;
        *promise = Promise { epoch, bytes, used: now };
    }

    fn forget(&mut self, session: SessionId) {
        if let Some(promise) = self.by_session.remove(&session) {
            self.sum_bytes -= promise.bytes;
        }
    }

    fn forget_idle(&mut self, but: SessionId, now: Mono) {
        let used =
            |session: SessionId, promise: &Promise| session == but || now.ms_since(promise.used) < IDLE_MS;
        self.by_session.retain(|session, promise| used(*session, promise));
        self.sum_bytes = self.by_session.values().map(|promise| promise.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const E: Pair = Pair { term: 1, counter: 1 };
    const LATER: Mono = Mono(DECLARE_MS * 1_000_000);

    fn claim(covered: bool, holds_bytes: u64) -> Claim {
        Claim { covered, holds_bytes }
    }

    /// Room of `bytes` to promise, with no byte of it used up.
    fn whole(bytes: u64) -> ToPromise {
        ToPromise { bytes, is_whole: true, held_bytes: u64::MAX }
    }

    /// A write that is not covered.
    fn next(grants: &Grants, session: SessionId, promised_max: u64, now: Mono) -> Grant {
        assert!(!grants.covers((session, E), claim(false, 0), 4096, whole(promised_max), now));
        grants.next(session, 0, whole(promised_max), now)
    }

    #[test]
    fn a_grant_stays_while_there_is_room_and_shrinks_with_what_is_kept_back() {
        let grants = Grants::new(7, Mono(0), true);
        assert!(!grants.covers((A, E), claim(true, 0), 4096, whole(8 << 20), LATER), "nothing was promised");
        let first = grants.next(A, 0, whole(8 << 20), LATER);
        assert_eq!((first.life, first.bytes), (7, 4 << 20));
        let next = grants.next(A, 1 << 20, whole(8 << 20), LATER);
        assert!(next.serial > first.serial && next.bytes == 6 << 20, "what is written is not taken off");
        assert!(grants.covers((A, E), claim(true, 0), 1 << 20, whole(5 << 20), LATER));
        let less = grants.next(A, 1 << 20, whole(5 << 20), LATER);
        assert_eq!(less.bytes, 5 << 20, "what is kept back is used up: the write is taken off");
        assert!(!grants.covers((A, E), claim(true, 0), (5 << 20) + 1, whole(5 << 20), LATER));
        assert_eq!(grants.next(A, 0, whole(5 << 20), LATER).bytes, 5 << 20);
        assert_eq!(grants.sum_bytes(), 5 << 20);
    }

    /// Grant as a client knows it.
    #[derive(Clone, Copy, Default)]
    struct Believed {
        bytes: u64,
        told: Mono,
    }

    #[test]
    fn promises_never_exceed_what_is_kept_back_and_are_kept_by_the_next_process_too() {
        // Writes of any size by many sessions, while the target fills up and is emptied, and now and then restarts.
        let mut seed = 1u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let hold = 16 << 20;
        let mut left = 20 << 20;
        let mut grants = Grants::new(1, Mono(0), true);
        let mut believed = [Believed::default(); 9];
        let (mut kept, mut restarts) = (0, 0);
        for step in 0..200_000u64 {
            let now = Mono(LATER.0 + step * 10_000_000);
            // A client that has written for a while is silent for a minute.
            let n = (step / 1_500 + below(5)) % 9;
            let (session, mine) = (SessionId(1 + n), &mut believed[n as usize]);
            let room = 4096 * (1 + below(64));
            let to_promise =
                |left: u64| ToPromise { bytes: left.min(hold), is_whole: left >= hold, held_bytes: u64::MAX };
            // Clients trust a grant for less time than an OST waits after a start.
            let relies = below(2) == 0 && mine.bytes >= room && now.ms_since(mine.told) < DECLARE_MS - 2_000;
            let covered = grants.covers((session, E), claim(relies, mine.bytes), room, to_promise(left), now);
            let must_stay = if covered { 0 } else { hold };
            if left < room + must_stay {
                assert!(!relies, "step {step}: a promise is broken");
            } else {
                left -= room;
                let spent = if covered { room } else { 0 };
                let grant = grants.next(session, spent, to_promise(left), now);
                *mine = Believed { bytes: grant.bytes, told: now };
                kept += u64::from(relies && left < hold);
            }
            assert!(grants.sum_bytes() <= left.min(hold), "step {step}");
            if below(40) == 0 {
                left += below(4 << 20);
            }
            if below(200) == 0 {
                grants.give_back(session);
                *mine = Believed::default();
            }
            if below(4_000) == 0 {
                grants = Grants::new(step, now, true);
                restarts += 1;
            }
        }
        assert!(kept > 1_000 && restarts > 20, "{kept} promises kept when it mattered, {restarts} restarts");
    }

    #[test]
    fn a_restarted_target_takes_what_clients_hold_and_gives_no_more_for_a_while() {
        let grants = Grants::new(1, Mono(0), true);
        assert!(grants.covers((A, E), claim(true, 3 << 20), 1 << 20, whole(4 << 20), Mono(0)));
        assert_eq!(grants.next(A, 1 << 20, whole(4 << 20), Mono(1)).bytes, 3 << 20);
        assert!(
            !grants.covers((B, E), claim(true, 3 << 20), 2 << 20, whole(4 << 20), Mono(2)),
            "only 1 MiB is left"
        );
        assert_eq!(grants.next(B, 0, whole(4 << 20), Mono(3)).bytes, 1 << 20);
    }

    #[test]
    fn the_time_to_say_what_is_held_begins_when_writes_are_served() {
        let grants = Grants::new(1, Mono(0), true);
        let short = ToPromise { bytes: 4 << 20, is_whole: false, held_bytes: u64::MAX };
        // The MDT was away for long.
        grants.serving(LATER);
        let then = LATER.plus_ms(DECLARE_MS / 2);
        assert!(grants.covers((A, E), claim(true, 3 << 20), 1 << 20, short, then));
        let left = ToPromise { bytes: 3 << 20, is_whole: false, held_bytes: u64::MAX };
        assert_eq!(grants.next(A, 1 << 20, left, then).bytes, 2 << 20, "B holds the rest");
        assert!(grants.covers((B, E), claim(true, 1 << 20), 1 << 20, left, then));
    }

    #[test]
    fn a_promise_ends_with_its_epoch_and_a_session_that_begins_again_says_what_it_holds() {
        let grants = Grants::new(1, Mono(0), true);
        let newer = Pair { counter: E.counter + 1, ..E };
        assert!(grants.covers((A, E), claim(true, 3 << 20), 4096, whole(8 << 20), Mono(0)));
        grants.end(A, E);
        assert_eq!(grants.sum_bytes(), 3 << 20, "a fence below the epoch that lives");
        assert!(
            !grants.covers((A, newer), claim(true, 0), 4096, whole(8 << 20), Mono(0)),
            "it holds nothing"
        );
        assert!(!grants.covers((A, E), claim(true, 3 << 20), 4096, whole(8 << 20), Mono(0)), "of before");
        assert!(grants.covers((B, E), claim(true, 1 << 20), 4096, whole(8 << 20), Mono(0)));
        assert_eq!(grants.sum_bytes(), 1 << 20);
        grants.end(B, newer);
        assert_eq!(grants.sum_bytes(), 0);
    }

    #[test]
    fn idle_and_ended_sessions_make_room_for_others() {
        let grants = Grants::new(1, Mono(0), true);
        let mut held = 0;
        for _ in 0..20 {
            held = next(&grants, A, 1 << 20, LATER).bytes;
        }
        assert!(held > (1 << 20) - GRANT_MIN_BYTES);
        assert_eq!(next(&grants, B, 1 << 20, LATER).bytes, 0);
        let later = LATER.plus_ms(IDLE_MS);
        assert_eq!(next(&grants, B, 1 << 20, later).bytes, 512 << 10);
        grants.end(B, Pair { counter: E.counter + 1, ..E });
        assert_eq!(grants.sum_bytes(), 0);
        assert_eq!(grants.next(B, 0, whole(1 << 20), later).bytes, 0, "it ended while it was writing");
        assert_eq!(grants.sum_bytes(), 0);
        assert!(next(&Grants::new(1, LATER, false), A, 1 << 20, LATER).bytes > 0, "a new target");
    }
}
