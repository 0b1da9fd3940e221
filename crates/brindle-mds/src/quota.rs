//! Limits of users, groups and projects, and the quota reservations ("room") that mounts are given under them.
//!
//! The number of inodes is looked at in the batch that makes one. Bytes are written to OSTs without the MDT: a mount asks for room first
//! (`ops/quota_room.rs`). Before it answers a write, it takes from its room as much as the write may allocate, so that no answered write
//! meets a limit later. Room given to a mount counts as used until the mount asks again.
//!
//! Bytes that were written and are in no counter are *uncounted*: if several clients write a file, none of them knows how much its
//! objects have allocated. Uncounted bytes are summed here. When a limit seems to be reached, the OSTs are asked and the sum begins
//! anew. The OSTs are also asked for an owner of whom nothing is known: after a restart, or when an owner gets a first limit.
//!
//! Rooms are volatile. After a restart each mount asks anew and declares what it has taken. Until then its buffered bytes may exceed the
//! limits.
//!
//! A soft limit counts when its grace time is over. The time begins in the batch in which usage goes over the limit, and ends in the one
//! in which it goes back ([`QuotaTable::graces`]), whatever causes it. Invariant: room is given only while used, uncounted, held and
//! given bytes together are at most the limit.

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
/// A mount gets this part of the rest, so that others get something, too.
const ROOM_PART: u64 = 8;
/// Room that a mount has not renewed for this long is taken back; how much of it was used is then unknown. Clients trust it for half
/// of that.
pub const LAPSE_MS: u64 = 20_000;
/// Time for which no request waits again for an OST that did not answer, or for a count that took too long.
const PUT_OFF_MS: u64 = 10_000;

/// Most bytes that the MDT believes a session of a limited host to hold of an owner of whom nothing is known, after a restart or with a
/// new limit: the largest buffer of a mount.
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
    /// Time until which requests do not wait for a count, because an OST did not answer or all took too long.
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
    /// The owner gets none: the OSTs are to be asked first.
    Count,
    /// The owner gets room: the OSTs were asked, or asking is of no use at present.
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
        // The owner may have written bytes before the limit was set.
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
            // Defaults do not apply to root, root's group, and inodes without a project.
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

    /// Sets the default limits and grace times.
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

    /// A number that changes with each change of limits; 0 if no limit of bytes exists. A bit of it says whether
    /// limits of projects exist.
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

    /// The report of a limited host's session about its room, capped at what can be true: a mount holds and has written at most what it was
    /// given. A higher report would keep others of the same owner from writing.
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

    /// Takes in a count of the OSTs. Bytes on OSTs that did not answer stay in doubt; no client writes to these OSTs
    /// meanwhile. A count that took too long changes nothing. Incomplete counts and late ones are repeated after
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

    /// Notes that a session has ended: how much of its room was used is unknown.
    pub fn end(&mut self, session: SessionId) {
        for rooms in self.rooms.values_mut() {
            if let Some(room) = rooms.by_session.remove(&session) {
                rooms.add(room.bytes);
            }
        }
    }

    /// Gives a mount room for at least what it wants. The new room replaces all room that the mount had and does not hold any
    /// more. Gives 0 if there is not enough; `None` if there is no limit. `used_bytes`: sum of the counters.
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

/// The refusal of a setting that not all servers can read yet.
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
mod tests;
