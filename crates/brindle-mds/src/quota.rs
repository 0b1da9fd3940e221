//! Limits of users, groups and projects, and the room that mounts are given under them.
//!
//! The number of inodes is looked at in the batch that makes one. Bytes are written to OSTs without the MDT:
//! a mount asks for room first (`ops/quota.rs`) and takes of it what a write may allocate before the write is
//! answered, so that nothing that was answered meets a limit later. Room given to a mount counts as used
//! until it asks again.
//!
//! What was written and is in no counter (no client knows what the objects of a file have allocated that several write) is
//! *uncounted*: it is summed here, and when a limit seems to be reached the OSTs are asked, and the sum begins anew. So does that
//! of an owner of whom nothing is known, after a restart and with his first limit.
//!
//! Rooms are volatile. After a restart mounts ask anew and say what they have taken; until each has, the limits may be exceeded by
//! what it has in its buffer.
//!
//! A soft limit counts when its grace time is over. The time begins in the batch in which usage goes over the limit, and ends in the one
//! in which it goes back ([`QuotaTable::graces`]), whatever causes it.
//! Invariant: what is used, uncounted, held and given under a limit is at most the limit, or nothing more is given.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Result, SessionId};
use brindle_wire::mds::quota::RoomUse;
use brindle_wire::mds::session::LIMITS_OF_PROJECTS;

use crate::mdt::Txn;
use crate::store::limit::{self, Limit, Settings};
use crate::store::row::FormatLevel;
use crate::store::usage::{self, Delta, Kind, Owners};
use crate::store::{Changes, Rows};

/// Most room that a mount is given at once, unless it wants to write more.
const ROOM_MAX_BYTES: u64 = 32 << 20;
/// A mount gets such a part of what is left, so that others get something too.
const ROOM_PART: u64 = 8;
/// Room that was not asked for again for so long is nobody's any more, and what became of it is not known. Clients trust it for half
/// of that.
pub const LAPSE_MS: u64 = 20_000;
/// Time for which no request waits again for an OST that did not answer, or for a count that took too long.
const PUT_OFF_MS: u64 = 10_000;

/// Most bytes that a session of a limited host can hold of an owner where nothing is known of it, after a restart or with a new limit: its
/// largest buffer.
const UNKNOWN_ROOM_MAX_BYTES: u64 = 64 << 20;

/// Bytes that an owner may use under a soft limit whose grace time is not over, without a hard limit.
const UNTIL_GRACE_ENDS_BYTES: u64 = 1 << 62;

/// A user, a group or a project.
pub type Owner = (Kind, u32);

/// Limits of users, groups and projects, and the reservations of mounts.
#[derive(Default)]
pub struct QuotaTable {
    /// Limits as they are in the rows.
    by_owner: BTreeMap<Owner, Limit>,
    settings: Settings,
    term: u32,
    /// Number of changes of limits in this term.
    changes: u32,
    rooms: BTreeMap<Owner, Rooms>,
}

/// The room under one limit.
struct Rooms {
    /// [`QuotaTable::changes`] when the limit began.
    begun: u32,
    by_session: BTreeMap<SessionId, Room>,
    /// Bytes that were written, perhaps, and are perhaps in no counter.
    uncounted_bytes: u64,
    /// Bytes that counts have taken out of `uncounted_bytes`, modulo 2^64.
    counted_bytes: u64,
    /// Number of times that an unknown number of bytes became uncounted; `doubts_cleared`: its value when the
    /// OSTs were asked last.
    doubts: u64,
    doubts_cleared: u64,
    /// An OST did not answer, or all took too long: until then nobody is kept waiting for what is in doubt.
    put_off_until: Mono,
    /// Counting took too long: nothing is counted before this time.
    slow_until: Mono,
}

/// Reservation of a mount: bytes that were given to it, or on their way when it asked.
struct Room {
    bytes: u64,
    /// Time at which the reservation lapses.
    lapses: Mono,
}

/// A question for room.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Use of earlier reservations.
    pub room: RoomUse,
    /// Bytes wanted.
    pub wanted_bytes: u64,
    /// Treatment of bytes in doubt.
    pub doubts: Doubts,
}

/// Whether an owner of whom something is in doubt gets room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubts {
    /// No: the OSTs are to be asked first.
    Count,
    /// Yes: they were, or it is no use at present.
    Pass,
}

/// Outcome of asking the OSTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All have answered.
    All,
    /// Some have not; what was known of files on them was left.
    SomeSilent,
    /// Asking was given up.
    TooSlow,
}

/// Bytes that were not counted when the OSTs were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    begun: u32,
    uncounted_bytes: u64,
    counted_bytes: u64,
    doubts: u64,
}

impl Rooms {
    fn new(begun: u32) -> Rooms {
        // The owner may have written bytes before it had a limit.
        let doubts = 1;
        let (uncounted_bytes, counted_bytes, doubts_cleared) = (0, 0, 0);
        let (by_session, put_off_until, slow_until) = (BTreeMap::new(), Mono::default(), Mono::default());
        Rooms {
            begun,
            by_session,
            uncounted_bytes,
            counted_bytes,
            doubts,
            doubts_cleared,
            put_off_until,
            slow_until,
        }
    }

    fn add(&mut self, bytes: u64) {
        self.uncounted_bytes = self.uncounted_bytes.saturating_add(bytes);
    }

    /// The OSTs have told of all that was uncounted when they were asked. Of that, other counts may have told meanwhile.
    fn take_out(&mut self, counting: &Counting) {
        let by_others = self.counted_bytes.wrapping_sub(counting.counted_bytes);
        let bytes = counting.uncounted_bytes.saturating_sub(by_others).min(self.uncounted_bytes);
        self.uncounted_bytes -= bytes;
        self.counted_bytes = self.counted_bytes.wrapping_add(bytes);
    }

    fn is_in_doubt(&self, now: Mono) -> bool {
        self.doubts > self.doubts_cleared && now >= self.put_off_until
    }

    /// Whether the OSTs may know better.
    fn is_to_count(&self, now: Mono) -> bool {
        now >= self.slow_until && (self.is_in_doubt(now) || self.uncounted_bytes > 0)
    }

    fn put_off(&mut self, now: Mono) {
        self.doubts = self.doubts.max(self.doubts_cleared + 1);
        self.put_off_until = now.plus_ms(PUT_OFF_MS);
    }
}

impl QuotaTable {
    /// Table of the limits in the rows.
    pub fn load(rows: &impl Rows, term: u32) -> Result<QuotaTable> {
        let by_owner = limit::list(rows)?.into_iter().collect();
        let settings = limit::settings(rows)?;
        Ok(QuotaTable { by_owner, settings, term, ..QuotaTable::default() })
    }

    /// Limits of `owner` that count; zeros for none.
    pub fn of(&self, owner: Owner) -> Limit {
        let row = self.by_owner.get(&owner).copied();
        let default = self.settings.of(owner.0).limit;
        match row {
            Some(own) if !own.is_default => own,
            // Root, its group, and what has no project have no default.
            _ if default.is_none() || owner.1 == 0 => Limit::default(),
            row => {
                let Limit { inodes_grace_end, bytes_grace_end, .. } = row.unwrap_or_default();
                Limit { inodes_grace_end, bytes_grace_end, is_default: true, ..default }
            }
        }
    }

    /// Settings of users, groups and projects.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Owners with a row, of one kind, behind a number.
    pub fn owners_behind(&self, kind: Kind, behind: Option<u32>) -> impl Iterator<Item = u32> {
        let first = behind.map_or(Some(0), |last| last.checked_add(1));
        let ids = first.map(|first| self.by_owner.range((kind, first)..=(kind, u32::MAX)));
        ids.into_iter().flatten().map(|((_, id), _)| *id)
    }

    /// Grace times under the default limits of one kind, as their rows are.
    pub fn default_graces(&self, kind: Kind) -> impl Iterator<Item = (Owner, Limit)> {
        let rows = self.by_owner.range((kind, 0)..=(kind, u32::MAX));
        rows.filter(|(_, row)| row.is_default).map(|(owner, row)| (*owner, *row))
    }

    /// The row of `owner` is this one from now on.
    pub fn set(&mut self, owner: Owner, row: Option<Limit>) {
        self.changes += 1;
        self.set_graces(owner, row);
        self.drop_rooms();
    }

    /// The row has other grace times.
    pub fn set_graces(&mut self, owner: Owner, row: Option<Limit>) {
        match row {
            None => _ = self.by_owner.remove(&owner),
            Some(limit) => _ = self.by_owner.insert(owner, limit),
        }
    }

    /// Default limits and grace times are these from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.changes += 1;
        self.settings = settings;
        self.drop_rooms();
    }

    /// Drops the reservations of owners that have no limit any more.
    fn drop_rooms(&mut self) {
        let mut rooms = std::mem::take(&mut self.rooms);
        rooms.retain(|owner, _| self.of(*owner).limits_bytes());
        self.rooms = rooms;
    }

    /// A mount is to ask for all that it was given, because a file has another project.
    pub fn void_rooms(&mut self) {
        self.changes += 1;
    }

    /// Whether the bytes of some owner of this kind are limited.
    fn limits_bytes(&self, kind: Kind) -> bool {
        let own = self.by_owner.range((kind, 0)..=(kind, u32::MAX)).any(|(_, limit)| limit.limits_bytes());
        own || self.settings.of(kind).limit.limits_bytes()
    }

    /// Another number after each change; 0 where no limit of bytes is. Says also whether there are any of projects.
    pub fn serial(&self) -> u64 {
        if !Kind::ALL.into_iter().any(|kind| self.limits_bytes(kind)) {
            return 0;
        }
        let of_projects = if self.limits_bytes(Kind::Project) { LIMITS_OF_PROJECTS } else { 0 };
        ((u64::from(self.term) << 32) + u64::from(self.changes) + 1) | of_projects
    }

    fn is_empty(&self) -> bool {
        self.by_owner.is_empty() && self.settings == Settings::default()
    }

    /// Refuses a batch that takes somebody over his limit, if limits count for it.
    pub fn check(&self, t: &Txn<'_>) -> Result<()> {
        let changes: &Changes<'_> = t;
        if self.is_empty() || !changes.is_limited() {
            return Ok(());
        }
        for (owner, delta) in changes.usage_changes() {
            let limit = self.of(owner);
            if limit.is_none() {
                continue;
            }
            let (used, max) = (usage::get(t, owner)?.apply(delta), limit.enforced(t.now));
            if delta.inodes > 0 && max.inodes > 0 && used.inodes > max.inodes {
                let what = format!("{} files and directories", max.inodes);
                return Err(over(owner, what, max.inodes != limit.inodes_max));
            }
            if delta.bytes > 0 && max.bytes > 0 && used.bytes > max.bytes {
                let what = format!("{} KiB", max.bytes / 1024);
                return Err(over(owner, what, max.bytes != limit.bytes_max));
            }
        }
        Ok(())
    }

    /// Owners whose grace times begin or end with a batch, and their rows from then on.
    pub fn graces(&self, t: &Txn<'_>) -> Result<Vec<(Owner, Option<Limit>)>> {
        let mut begun = Vec::new();
        if self.is_empty() {
            return Ok(begun);
        }
        let changes: &Changes<'_> = t;
        for (owner, delta) in changes.usage_changes().filter(|(_, delta)| *delta != Delta::default()) {
            let limit = self.of(owner);
            if !limit.has_soft() {
                // The row may be from a default soft limit that existed earlier.
                if self.by_owner.get(&owner).is_some_and(|row| row.is_default) {
                    begun.push((owner, None));
                }
                continue;
            }
            let timed = limit.timed(usage::get(t, owner)?.apply(delta), self.settings.of(owner.0), t.now);
            if timed != limit {
                begun.push((owner, row_of(timed)));
            }
        }
        Ok(begun)
    }

    fn rooms_mut(&mut self, owner: Owner) -> Option<&mut Rooms> {
        if !self.of(owner).limits_bytes() {
            return None;
        }
        let begun = self.changes;
        Some(self.rooms.entry(owner).or_insert_with(|| Rooms::new(begun)))
    }

    /// What a session of a limited host says of its room, as far as it can be true: a mount holds and has written of a limit at most what it
    /// was given. More would keep others of the same owner from writing.
    pub fn believed(&self, owner: Owner, session: SessionId, told: RoomUse) -> RoomUse {
        let given = self.rooms.get(&owner).and_then(|rooms| rooms.by_session.get(&session));
        let most = given.map_or(UNKNOWN_ROOM_MAX_BYTES, |room| room.bytes);
        let RoomUse { held_bytes, uncounted_bytes } = told;
        RoomUse { held_bytes: held_bytes.min(most), uncounted_bytes: uncounted_bytes.min(most) }
    }

    /// Bytes were written for `owner` that are counted only when the OSTs are asked.
    pub fn add_uncounted(&mut self, owner: Owner, bytes: u64) {
        if let Some(rooms) = self.rooms_mut(owner) {
            rooms.add(bytes);
        }
    }

    /// Usage of these owners in a file is no longer known to any client.
    pub fn doubt(&mut self, owners: Owners) {
        for owner in owners.each() {
            if let Some(rooms) = self.rooms.get_mut(&owner) {
                rooms.doubts += 1;
            }
        }
    }

    /// Count to make at the OSTs; `None` if there is nothing to ask for.
    pub fn counting(&self, owner: Owner, now: Mono) -> Option<Counting> {
        let rooms = self.rooms.get(&owner).filter(|rooms| rooms.is_to_count(now))?;
        let Rooms { begun, uncounted_bytes, counted_bytes, doubts, .. } = *rooms;
        Some(Counting { begun, uncounted_bytes, counted_bytes, doubts })
    }

    /// Takes in a count of the OSTs. Bytes on OSTs that did not answer stay in doubt; no client writes to
    /// these OSTs meanwhile. A count that took too long changes nothing. Both are repeated after
    /// [`PUT_OFF_MS`].
    pub fn counted(&mut self, owner: Owner, counting: Counting, outcome: Outcome, now: Mono) {
        let Some(rooms) = self.rooms.get_mut(&owner).filter(|rooms| rooms.begun == counting.begun) else {
            return;
        };
        if outcome != Outcome::All {
            rooms.put_off(now);
        }
        match outcome {
            Outcome::All => rooms.doubts_cleared = rooms.doubts_cleared.max(counting.doubts),
            Outcome::SomeSilent => {}
            Outcome::TooSlow => {
                rooms.slow_until = rooms.put_off_until;
                return;
            }
        }
        rooms.take_out(&counting);
    }

    /// A session has ended: nobody knows what became of its room.
    pub fn end(&mut self, session: SessionId) {
        for rooms in self.rooms.values_mut() {
            if let Some(room) = rooms.by_session.remove(&session) {
                rooms.add(room.bytes);
            }
        }
    }

    /// Gives a mount room for what it wants or more, in the place of all that it had and does not hold any more; nothing where
    /// there is not so much, `None` where there is no limit. `used_bytes`: what the counters say.
    pub fn give(
        &mut self,
        (owner, used_bytes): (Owner, u64),
        session: SessionId,
        ask: Ask,
        (now, civil): (Mono, Time),
    ) -> Option<u64> {
        let Ask { room, wanted_bytes, doubts } = ask;
        let bytes_max = match self.of(owner).enforced(civil).bytes {
            0 => UNTIL_GRACE_ENDS_BYTES,
            bytes => bytes,
        };
        let rooms = self.rooms_mut(owner)?;
        rooms.by_session.remove(&session);
        // A reservation that lapses may have been used for writes.
        let mut lapsed_bytes = 0u64;
        rooms.by_session.retain(|_, other| {
            let has_lapsed = other.lapses <= now;
            lapsed_bytes = lapsed_bytes.saturating_add(if has_lapsed { other.bytes } else { 0 });
            !has_lapsed
        });
        rooms.add(lapsed_bytes);
        let others = rooms.by_session.values().map(|other| other.bytes);
        let taken = [used_bytes, rooms.uncounted_bytes, room.held_bytes].into_iter().chain(others);
        let left = bytes_max.saturating_sub(taken.fold(0, u64::saturating_add));
        let is_certain = doubts == Doubts::Pass || !rooms.is_in_doubt(now);
        let bytes = match left >= wanted_bytes && is_certain {
            true => wanted_bytes.max(ROOM_MAX_BYTES.min(left / ROOM_PART)),
            false => 0,
        };
        let given = Room { bytes: room.held_bytes.saturating_add(bytes), lapses: now.plus_ms(LAPSE_MS) };
        rooms.by_session.insert(session, given);
        Some(bytes)
    }
}

/// The row of these limits; `None` where the default ones count and no grace time runs.
pub fn row_of(limit: Limit) -> Option<Limit> {
    let Limit { inodes_grace_end, bytes_grace_end, is_default, .. } = limit;
    match (is_default, inodes_grace_end, bytes_grace_end) {
        (false, ..) => Some(limit),
        (true, None, None) => None,
        (true, ..) => Some(Limit { inodes_grace_end, bytes_grace_end, is_default, ..Limit::default() }),
    }
}

/// The refusal.
fn over(owner: Owner, limit: String, is_soft: bool) -> Fault {
    let why = match is_soft {
        true => format!("the soft limit is {limit}, and its grace time is over"),
        false => format!("the limit is {limit}"),
    };
    Fault::new(Code::OverQuota).what("this is more than is allowed to").subject(name(owner)).why(why)
}

/// The refusal of what not all servers can read yet.
pub fn needs_level(t: &Txn<'_>, what: &'static str, subject: String, needs: &'static str) -> Fault {
    let (needed, level) = (FormatLevel::PROJECTS.0, t.mdt().engine().level().0);
    Fault::new(Code::NewerFormat)
        .what(what)
        .subject(subject)
        .why(format!("{needs} format level {needed}, and the file system has {level}"))
        .data("nothing was changed")
        .next("upgrade all servers, then: brindle fs upgrade")
}

/// An owner for people.
pub fn name((kind, id): Owner) -> String {
    match kind {
        Kind::User => format!("user {id}"),
        Kind::Group => format!("group {id}"),
        Kind::Project => format!("project {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOB: Owner = (Kind::User, 1000);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const NOTHING: RoomUse = RoomUse { held_bytes: 0, uncounted_bytes: 0 };
    const NOW: Mono = Mono(0);
    const CIVIL: Time = Time { secs: 1000, nanos: 0 };

    fn limited(bytes_max: u64) -> QuotaTable {
        let mut limits = QuotaTable { term: 3, ..QuotaTable::default() };
        limits.set(BOB, Some(Limit { bytes_max, ..Limit::default() }));
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "the OSTs were not asked");
        count(&mut limits);
        limits
    }

    fn give(
        limits: &mut QuotaTable,
        used: (Owner, u64),
        session: SessionId,
        (room, wanted_bytes): (RoomUse, u64),
        now: Mono,
    ) -> Option<u64> {
        limits.give(used, session, Ask { room, wanted_bytes, doubts: Doubts::Count }, (now, CIVIL))
    }

    fn count(limits: &mut QuotaTable) {
        let counting = limits.counting(BOB, NOW).expect("there is something to count");
        limits.counted(BOB, counting, Outcome::All, NOW);
        assert_eq!(limits.counting(BOB, NOW), None);
    }

    #[test]
    fn a_limited_host_is_believed_to_hold_what_it_was_given() {
        let mut limits = limited(1 << 30);
        let all = RoomUse { held_bytes: u64::MAX, uncounted_bytes: u64::MAX };
        let unknown = limits.believed(BOB, B, all);
        assert_eq!((unknown.held_bytes, unknown.uncounted_bytes), (64 << 20, 64 << 20));
        assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW), Some(32 << 20));
        let known = limits.believed(BOB, B, all);
        assert_eq!((known.held_bytes, known.uncounted_bytes), (32 << 20, 32 << 20));
        let less = RoomUse { held_bytes: 7, uncounted_bytes: 8 };
        assert_eq!(limits.believed(BOB, B, less), less);
        give(&mut limits, (BOB, 0), B, (known, 0), NOW);
        assert!(give(&mut limits, (BOB, 0), A, (NOTHING, 4096), NOW) > Some(4096), "others go on");
    }

    #[test]
    fn no_number_that_a_mount_tells_is_kept_behind_a_count() {
        let mut limits = limited(1 << 20);
        let held = RoomUse { held_bytes: u64::MAX, uncounted_bytes: 0 };
        give(&mut limits, (BOB, 0), A, (held, 0), NOW);
        limits.add_uncounted(BOB, u64::MAX);
        limits.end(A);
        count(&mut limits);
        limits.add_uncounted(BOB, 1 << 20);
        assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 1), NOW), Some(0), "the limit is reached");
    }

    #[test]
    fn counts_at_the_same_time_take_nothing_out_twice() {
        let left = |limits: &QuotaTable| limits.rooms[&BOB].uncounted_bytes;
        for is_first_first in [true, false] {
            let mut limits = limited(1 << 20);
            limits.add_uncounted(BOB, 100);
            let first = limits.counting(BOB, NOW).expect("there is something to count");
            let same = limits.counting(BOB, NOW).expect("there is something to count");
            limits.add_uncounted(BOB, 50);
            let second = limits.counting(BOB, NOW).expect("there is something to count");
            limits.add_uncounted(BOB, 7);
            let (one, other) = if is_first_first { (first, second) } else { (second, first) };
            limits.counted(BOB, one, Outcome::All, NOW);
            limits.counted(BOB, same, Outcome::All, NOW);
            limits.counted(BOB, other, Outcome::All, NOW);
            assert_eq!(left(&limits), 7);
        }
    }

    #[test]
    fn the_serial_is_zero_without_limits_of_bytes_and_never_the_same_twice() {
        let mut limits = QuotaTable { term: 3, ..QuotaTable::default() };
        limits.set(BOB, Some(Limit { inodes_max: 5, ..Limit::default() }));
        assert_eq!(limits.serial(), 0, "inodes are counted without mounts");
        limits.set(BOB, Some(Limit { inodes_max: 5, bytes_max: 1, ..Limit::default() }));
        let first = limits.serial();
        limits.set(BOB, None);
        assert_eq!(limits.serial(), 0);
        limits.set(BOB, Some(Limit { bytes_max: 1, ..Limit::default() }));
        assert!(limits.serial() > first && first >> 32 == 3);
        assert_eq!(limits.of((Kind::Group, 1000)), Limit::default());
    }

    #[test]
    fn what_is_given_counts_until_it_is_asked_for_again_or_lapses() {
        let mut limits = limited(1 << 20);
        assert_eq!(give(&mut limits, ((Kind::User, 7), 0), A, (NOTHING, 1), NOW), None, "no limit");
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 4096), NOW), Some(128 << 10), "an eighth of it");
        assert_eq!(
            give(&mut limits, (BOB, 0), A, (NOTHING, 1 << 20), NOW),
            Some(1 << 20),
            "in the place of it"
        );
        assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW), Some(0), "another mount has all");
        let held = RoomUse { held_bytes: 900 << 10, ..NOTHING };
        assert_eq!(give(&mut limits, (BOB, 0), A, (held, 200 << 10), NOW), Some(0));
        assert_eq!(
            give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW),
            Some(15872),
            "what is held is not left"
        );
        let later = NOW.plus_ms(LAPSE_MS);
        assert_eq!(
            give(&mut limits, (BOB, 0), B, (NOTHING, 200 << 10), later),
            Some(0),
            "A still holds what it holds"
        );
        limits.end(A);
        assert_eq!(
            give(&mut limits, (BOB, 0), B, (NOTHING, 200 << 10), later),
            Some(0),
            "it does not count twice"
        );
        count(&mut limits);
        assert_eq!(give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1 << 19), later), Some(1 << 19));
        limits.add_uncounted(BOB, 1 << 19);
        assert_eq!(give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1), later), Some(0), "nobody knows");
        let counting = limits.counting(BOB, NOW).expect("there is something to count");
        limits.add_uncounted(BOB, 1 << 18);
        limits.counted(BOB, counting, Outcome::All, NOW);
        assert_eq!(
            give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1), later),
            Some(1 << 15),
            "what came meanwhile counts"
        );
        limits.end(B);
        assert_eq!(
            give(&mut limits, (BOB, 1 << 19), A, (NOTHING, 1), later),
            Some(28672),
            "as if all were written"
        );
        assert_eq!(
            give(&mut limits, (BOB, 2 << 20), A, (NOTHING, 0), later),
            Some(0),
            "over the limit already"
        );
    }

    #[test]
    fn what_lapses_is_counted_before_others_get_it() {
        let mut limits = limited(1 << 20);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1 << 20), NOW), Some(1 << 20));
        let later = NOW.plus_ms(LAPSE_MS);
        assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 1), later), Some(0));
        count(&mut limits);
        assert_eq!(
            give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1 << 19), later),
            Some(1 << 19),
            "A has written a half"
        );
    }

    #[test]
    fn an_ost_that_does_not_answer_leaves_a_doubt_that_is_passed_over() {
        let mut limits = limited(1 << 20);
        limits.add_uncounted(BOB, 1 << 20);
        let counting = limits.counting(BOB, NOW).expect("nobody knows what it takes");
        limits.counted(BOB, counting, Outcome::SomeSilent, NOW);
        assert_eq!(
            give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW),
            Some(1 << 17),
            "the others are believed"
        );
        assert_eq!(limits.counting(BOB, NOW), None);
        limits.add_uncounted(BOB, 1);
        let counting = limits.counting(BOB, NOW).expect("the others may know better");
        limits.counted(BOB, counting, Outcome::SomeSilent, NOW);
        let later = NOW.plus_ms(PUT_OFF_MS);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), later), Some(0), "it is asked again");
        assert!(limits.counting(BOB, later).is_some());
        let ask = Ask { room: NOTHING, wanted_bytes: 1, doubts: Doubts::Pass };
        assert_eq!(
            limits.give((BOB, 0), A, ask, (later, CIVIL)),
            Some(1 << 17),
            "and if it is silent again, believed"
        );
    }

    #[test]
    fn what_takes_too_long_to_count_stays_uncounted_and_is_not_tried_at_once_again() {
        let mut limits = limited(1 << 20);
        limits.add_uncounted(BOB, 1 << 20);
        let counting = limits.counting(BOB, NOW).expect("nobody knows what it takes");
        limits.counted(BOB, counting, Outcome::TooSlow, NOW);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "it may be all");
        assert_eq!(limits.counting(BOB, NOW), None, "whoever is refused does not wait for that each time");
        let later = NOW.plus_ms(PUT_OFF_MS);
        let counting = limits.counting(BOB, later).expect("it is tried again");
        limits.counted(BOB, counting, Outcome::All, later);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), later), Some(1 << 17));
    }

    #[test]
    fn a_doubt_is_cleared_by_what_was_asked_after_it() {
        let mut limits = limited(1 << 20);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(1 << 17));
        limits.doubt(Owners { uid: 1000, gid: 7, project: 0 });
        let counting = limits.counting(BOB, NOW).expect("a file is in doubt");
        limits.doubt(Owners { uid: 7, gid: 1000, project: 1000 });
        limits.doubt(Owners { uid: 1000, gid: 7, project: 0 });
        limits.counted(BOB, counting, Outcome::All, NOW);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "another one came meanwhile");
        let old = limits.counting(BOB, NOW).expect("it is in doubt");
        limits.set(BOB, None);
        limits.set(BOB, Some(Limit { bytes_max: 1 << 20, ..Limit::default() }));
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "as with a first limit");
        limits.counted(BOB, old, Outcome::All, NOW);
        assert_eq!(
            give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW),
            Some(0),
            "that was under another limit"
        );
        count(&mut limits);
        assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(1 << 17));
    }

    #[test]
    fn however_mounts_ask_no_more_is_written_than_the_limit_allows() {
        let mut seed = 7u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let max = 1 << 30;
        let mut limits = limited(max);
        // By mount: room that is left, bytes in the buffer, bytes that are at OSTs and not reported.
        let mut mounts = [(0u64, 0u64, 0u64); 5];
        let (mut reported, mut refused) = (0u64, 0);
        for step in 0..50_000u64 {
            let at = below(5) as usize;
            let now = Mono(step * 1_000_000);
            let wanted = 1 + below(4 << 20);
            let (left, held, written) = mounts[at];
            mounts[at] = match below(3) {
                0 => (left, 0, written + held),
                _ if left >= wanted => (left - wanted, held + wanted, written),
                _ => {
                    reported += written;
                    let room = RoomUse { held_bytes: held, uncounted_bytes: 0 };
                    let session = SessionId(1 + at as u64);
                    let given =
                        give(&mut limits, (BOB, reported), session, (room, wanted), now).expect("limited");
                    refused += u64::from(given < wanted);
                    (given, held, 0)
                }
            };
            let all: u64 = mounts.iter().map(|(_, held, written)| held + written).sum();
            assert!(reported + all <= max, "step {step}");
            if reported > max / 2 && below(500) == 0 {
                reported -= max / 4;
            }
        }
        assert!(refused > 100, "the limit was never near");
    }
}
