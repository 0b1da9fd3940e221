//! Quota reservations of users, groups and projects. A write takes the blocks that it may allocate from the room that the MDT gave this
//! mount, before the write is answered (`brindle-mds/src/quota.rs` has the other side). An answered write is therefore never refused
//! later.
//!
//! If the file system has no limits of bytes, this module does nothing; the MDT says so with every renewal of the lease. The project of a
//! file is asked for only if bytes of some project are limited, with the first request for room after each open. Invariant: the bytes
//! taken from a room never exceed the bytes given; they are held until the OSTs have answered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use brindle_stdx::{BoxFuture, Mono};
use brindle_types::{Attr, Code, Fault};
use brindle_wire::mds::quota::{
    QuotaFileRoom, QuotaFileRoomReq, QuotaFileRoomResp, QuotaRoomReq, QuotaRoomResp, RoomUse,
};
use brindle_wire::mds::session::LIMITS_OF_PROJECTS;
use parking_lot::Mutex;

use crate::file::gather;
use crate::file::write_behind::NOTICE_WAIT_MS;
use crate::inodes::{Inode, State};
use crate::{Client, Ctx};

/// Validity of a quota reservation: half of the time after which the MDT gives it to others.
const TRUSTED_MS: u64 = 10_000;
/// Most owners that are remembered; of owners with nothing under way the rest is asked for again.
const OWNERS_MAX: usize = 4096;
/// Block size of objects; bytes in the MDT lie in sectors.
const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
/// Most bytes that are charged at once: more than a limit can be, and small enough that sums do not overflow.
const GROWTH_MAX_BYTES: u64 = 1 << 52;
/// Pause before an unanswered question is repeated. Each question waits for an OST, and others wait behind it.
const ASK_AGAIN_MS: u64 = 1_000;
/// Interval within which the log reports only one refusal of an owner.
const REFUSAL_LOGGED_EVERY_MS: u64 = 60_000;
/// Most immediate repetitions of a request, where limits, owner or file have changed meanwhile.
const ROUNDS_MAX: usize = 8;

/// A user, a group or a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    User(u32),
    Group(u32),
    Project(u32),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Owner::User(id) => write!(f, "user {id}"),
            Owner::Group(id) => write!(f, "group {id}"),
            Owner::Project(id) => write!(f, "project {id}"),
        }
    }
}

impl Owner {
    /// The option of `lfs quota` that shows this kind.
    fn option(self) -> String {
        match self {
            Owner::User(id) => format!("-u {id}"),
            Owner::Group(id) => format!("-g {id}"),
            Owner::Project(id) => format!("-p {id}"),
        }
    }
}

/// User, group and project of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub uid: u32,
    pub gid: u32,
    /// `None` where the project does not count, or is not known.
    pub project: Option<u32>,
}

impl Owners {
    /// Owners by the attributes of a file.
    pub fn of(attr: &Attr) -> Owners {
        Owners { uid: attr.uid, gid: attr.gid, project: None }
    }

    fn each(self) -> impl Iterator<Item = Owner> {
        // 0 is no project.
        let project = self.project.filter(|id| *id != 0).map(Owner::Project);
        [Owner::User(self.uid), Owner::Group(self.gid)].into_iter().chain(project)
    }

    fn shares_one(self, other: Owners) -> bool {
        let same_project = self.project.is_some_and(|id| id != 0 && other.project == Some(id));
        self.uid == other.uid || self.gid == other.gid || same_project
    }
}

/// The project of a file, as the MDT told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownProject {
    id: u32,
    /// [`QuotaReservations::forgotten`] at that time: the project counts until that number changes.
    forgotten: u64,
}

/// The quota reservations of a mount.
#[derive(Default)]
pub(crate) struct QuotaReservations {
    /// Serial number of the limits, as the MDT told it last: 0 where there are no limits.
    serial: AtomicU64,
    /// Number of times that all reservations were forgotten.
    forgotten: AtomicU64,
    rooms: Mutex<BTreeMap<Owner, Room>>,
    /// The project of the MDT's last answer, a guess for the next file.
    last_project: AtomicU32,
    /// Only one caller asks at a time; the others take from the bytes that it gets.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Room {
    given: Given,
    /// Bytes taken that are not at an OST yet.
    held_bytes: u64,
    /// Bytes at OSTs since the last question, in files whose allocated bytes no client knows.
    uncounted_bytes: u64,
    /// Time at which the log last reported a refused write.
    refusal_logged: Option<Mono>,
}

#[derive(Clone, Copy, Default)]
enum Given {
    /// The MDT is to be asked.
    #[default]
    Unknown,
    Unlimited,
    Bytes {
        left: u64,
        asked: Mono,
    },
}

impl Given {
    fn has(self, bytes: u64, now: Mono) -> bool {
        match self {
            Given::Unknown => false,
            Given::Unlimited => true,
            Given::Bytes { left, asked } => left >= bytes && now.ms_since(asked) < TRUSTED_MS,
        }
    }
}

/// Room taken for bytes of a file; held until this value is dropped.
pub(crate) struct Charge {
    limits: Arc<QuotaReservations>,
    owners: Owners,
    bytes: u64,
}

impl QuotaReservations {
    /// The MDT has told its limits' serial. Reservations given under another serial are gone.
    pub fn told(&self, serial: u64) {
        if self.serial.swap(serial, Ordering::Relaxed) != serial {
            self.forget();
        }
    }

    /// Forgets all reservations: the session is another one.
    pub fn forget(&self) {
        let mut rooms = self.rooms.lock();
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        rooms.values_mut().for_each(|room| room.given = Given::Unknown);
        rooms.retain(|_, room| room.is_used());
    }

    /// Whether there are limits.
    pub fn is_on(&self) -> bool {
        self.serial.load(Ordering::Relaxed) != 0
    }

    /// Whether there are limits of projects.
    pub fn limits_projects(&self) -> bool {
        self.serial.load(Ordering::Relaxed) & LIMITS_OF_PROJECTS != 0
    }

    /// Owners that a file counts for, with its project where there are limits of projects. `Err`: the project
    /// is unknown, and the MDT is to be asked.
    fn owners(&self, state: &State) -> Result<Option<Owners>, ()> {
        let Some(owners) = state.owners else { return Ok(None) };
        if !self.limits_projects() {
            return Ok(Some(owners));
        }
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        let known = state.project.filter(|known| known.forgotten == forgotten).ok_or(())?;
        Ok(Some(Owners { project: Some(known.id), ..owners }))
    }

    /// Like [`QuotaReservations::owners`], with the last project as a guess where the project is unknown.
    fn owners_or_guess(&self, state: &State) -> Option<Owners> {
        let last = self.last_project.load(Ordering::Relaxed);
        let guess = |owners: Owners| Owners { project: Some(last), ..owners };
        self.owners(state).unwrap_or_else(|()| state.owners.map(guess))
    }

    /// Takes room for bytes of all of them; `None` if the MDT is to be asked.
    fn take(self: &Arc<Self>, owners: Owners, bytes: u64, now: Mono) -> Option<Charge> {
        let is_there = take(&mut self.rooms.lock(), owners, bytes, now);
        is_there.then(|| Charge { limits: self.clone(), owners, bytes })
    }

    /// The MDT is about to be asked: until it answers, nothing is taken.
    fn ask(&self, owners: Owners, now: Mono) -> Asked {
        let mut rooms = self.rooms.lock();
        if rooms.len() >= OWNERS_MAX {
            rooms.retain(|_, room| room.is_used());
        }
        let told = owners.each().map(|owner| {
            let room = rooms.entry(owner).or_default();
            room.given = Given::Unknown;
            let uncounted_bytes = std::mem::take(&mut room.uncounted_bytes);
            RoomUse { held_bytes: room.held_bytes, uncounted_bytes }
        });
        let told = told.collect();
        Asked { owners, told, sent: now, forgotten: self.forgotten.load(Ordering::Relaxed) }
    }

    /// Takes in the answer of the MDT. The caller takes `bytes` of it before others can.
    fn answered(
        self: &Arc<Self>,
        asked: &Asked,
        given: &[Option<u64>],
        (bytes, now): (u64, Mono),
    ) -> Result<Charge, Declined> {
        let mut rooms = self.rooms.lock();
        if asked.forgotten != self.forgotten.load(Ordering::Relaxed) {
            return Err(Declined::Forgotten);
        }
        for (given, owner) in given.iter().zip(asked.owners.each()) {
            let bytes = |left| Given::Bytes { left, asked: asked.sent };
            rooms.entry(owner).or_default().given = given.map_or(Given::Unlimited, bytes);
        }
        match take(&mut rooms, asked.owners, bytes, now) {
            true => Ok(Charge { limits: self.clone(), owners: asked.owners, bytes }),
            false => Err(Declined::TooLittle),
        }
    }

    /// The MDT did not answer, and may not have heard the question.
    fn not_answered(&self, asked: &Asked) {
        let mut rooms = self.rooms.lock();
        for (told, owner) in asked.told.iter().zip(asked.owners.each()) {
            rooms.entry(owner).or_default().add_uncounted(told.uncounted_bytes);
        }
    }

    /// A write is refused because of an owner; whether the log is to say so.
    fn is_to_log(&self, owner: Owner, now: Mono) -> bool {
        let mut rooms = self.rooms.lock();
        let room = rooms.entry(owner).or_default();
        let is_due = room.refusal_logged.is_none_or(|last| now.ms_since(last) >= REFUSAL_LOGGED_EVERY_MS);
        if is_due {
            room.refusal_logged = Some(now);
        }
        is_due
    }

    /// Bytes of these owners that are taken and not at OSTs.
    #[cfg(test)]
    fn held_bytes(&self, owners: Owners) -> u64 {
        let rooms = self.rooms.lock();
        owners.each().filter_map(|owner| rooms.get(&owner)).map(|room| room.held_bytes).sum()
    }
}

/// Reason why no bytes are taken of a reservation that the MDT gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declined {
    /// The reservation was given under other limits, or to another session.
    Forgotten,
    /// A reservation is too small, or was told too long ago.
    TooLittle,
}

/// Takes room of all owners, or of none if one has too little.
fn take(rooms: &mut BTreeMap<Owner, Room>, owners: Owners, bytes: u64, now: Mono) -> bool {
    let has = |owner: Owner| rooms.get(&owner).is_some_and(|room| room.given.has(bytes, now));
    if !owners.each().all(has) {
        return false;
    }
    for owner in owners.each() {
        let room = rooms.entry(owner).or_default();
        if let Given::Bytes { left, .. } = &mut room.given {
            *left -= bytes;
        }
        room.held_bytes = room.held_bytes.saturating_add(bytes);
    }
    true
}

/// A question for room.
struct Asked {
    owners: Owners,
    /// Report to the MDT on each.
    told: Vec<RoomUse>,
    sent: Mono,
    /// [`QuotaReservations::forgotten`].
    forgotten: u64,
}

impl Room {
    /// Only owners with a limit are asked for again, and reported.
    fn add_uncounted(&mut self, bytes: u64) {
        if !matches!(self.given, Given::Unlimited) {
            self.uncounted_bytes = self.uncounted_bytes.saturating_add(bytes);
        }
    }

    fn is_used(&self) -> bool {
        self.held_bytes > 0 || self.uncounted_bytes > 0
    }
}

impl Charge {
    /// Takes in a further reservation of the same owners, or gives it back.
    pub fn join(&mut self, mut other: Charge) -> Result<(), Charge> {
        if self.owners != other.owners {
            return Err(other);
        }
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
        Ok(())
    }

    /// Notes that the bytes have arrived. `is_reported`: whether this client's reports include their allocation.
    pub fn arrived(self, is_reported: bool) {
        if !is_reported {
            let mut rooms = self.limits.rooms.lock();
            for owner in self.owners.each() {
                rooms.entry(owner).or_default().add_uncounted(self.bytes);
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut rooms = self.limits.rooms.lock();
        for owner in self.owners.each() {
            let room = rooms.entry(owner).or_default();
            room.held_bytes = room.held_bytes.saturating_sub(self.bytes);
        }
    }
}

/// Limits that count for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Quota reservations count.
    Limited,
    /// No limits: root writes, or the bytes were charged before.
    Free,
}

impl Bound {
    /// Limits that count for a call. Pages that the kernel writes back have no user.
    pub fn of(ctx: &Ctx, page: bool) -> Bound {
        if ctx.cred.uid == 0 && !page { Bound::Free } else { Bound::Limited }
    }
}

/// Bytes that a write may allocate.
#[derive(Clone, Debug)]
pub(crate) enum Growth {
    /// Bytes of a range that have no blocks yet.
    Range(Range<u64>),
    /// Bytes at an unknown place.
    Anywhere(u64),
}

impl State {
    fn block_bytes(&self) -> u64 {
        let is_inline = self.layout.as_ref().is_some_and(|layout| layout.inline);
        if is_inline { SECTOR_BYTES } else { BLOCK_BYTES }
    }

    /// Bytes that a change allocates at most in the file.
    fn growth_bytes(&self, growth: &Growth) -> u64 {
        self.growth_bytes_beside(growth, &self.allocated_range)
    }

    /// Like [`State::growth_bytes`], if all blocks of `allocated_range` are known to be allocated, too.
    fn growth_bytes_with(&self, growth: &Growth, allocated_range: &Range<u64>) -> u64 {
        self.growth_bytes(growth).min(self.growth_bytes_beside(growth, allocated_range))
    }

    fn growth_bytes_beside(&self, growth: &Growth, allocated_range: &Range<u64>) -> u64 {
        let bytes = match growth {
            Growth::Range(range) => {
                let wanted = self.blocks(range);
                let there = wanted
                    .end
                    .min(allocated_range.end)
                    .saturating_sub(wanted.start.max(allocated_range.start));
                wanted.end.saturating_sub(wanted.start) - there
            }
            Growth::Anywhere(bytes) => bytes.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES,
        };
        bytes.min(GROWTH_MAX_BYTES)
    }

    fn grown(&mut self, growth: &Growth) {
        if let Growth::Range(range) = growth {
            self.add_allocated_range(self.blocks(range));
        }
    }

    /// Notes that all blocks of a range are allocated. Of separate ranges the longest is remembered.
    fn add_allocated_range(&mut self, range: Range<u64>) {
        // A second mount that writes the file may make holes in it, and a truncate under way removes blocks. Then nothing is noted.
        if !self.exclusive || self.cutting > 0 {
            return;
        }
        if range.start <= self.allocated_range.end && self.allocated_range.start <= range.end {
            self.allocated_range =
                self.allocated_range.start.min(range.start)..self.allocated_range.end.max(range.end);
        } else if range.end - range.start > self.allocated_range.end - self.allocated_range.start {
            self.allocated_range = range;
        }
    }

    /// Blocks of the file may have gone.
    pub fn void_allocated_range(&mut self) {
        self.allocated_range = 0..0;
        self.allocated_range_epoch += 1;
    }

    /// The file goes from the MDT to objects.
    pub fn no_more_sectors(&mut self) {
        let Range { start, end } = self.allocated_range;
        self.allocated_range = start.next_multiple_of(BLOCK_BYTES)..end / BLOCK_BYTES * BLOCK_BYTES;
        if self.allocated_range.is_empty() {
            self.allocated_range = 0..0;
        }
    }

    /// The blocks that a range of bytes lies in.
    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block_bytes = self.block_bytes();
        let end = range.end.checked_next_multiple_of(block_bytes).unwrap_or(u64::MAX);
        range.start / block_bytes * block_bytes..end
    }
}

/// Range in which all blocks are allocated, as the MDT told a write.
#[derive(Default)]
struct AllocatedRange {
    allocated_range: Range<u64>,
    /// [`State::allocated_range_epoch`] at that time.
    voids: u64,
}

impl AllocatedRange {
    /// Forgets the range if blocks of the file may have gone since.
    fn check(&mut self, state: &State) {
        if self.voids != state.allocated_range_epoch {
            *self = AllocatedRange { allocated_range: 0..0, voids: state.allocated_range_epoch };
        }
    }
}

/// Outcome of a question for a reservation.
enum Answer {
    /// The bytes were taken; `None`: none are needed.
    Taken(Option<Charge>),
    /// Reservations, owner or file changed meanwhile: the question must be repeated.
    Void,
    /// The room is smaller than wanted.
    Short {
        /// Whether there may be more room when bytes on their way have arrived.
        is_held: bool,
        /// Whether the file may have the blocks already.
        may_have_blocks: bool,
        /// Owner that has too little.
        owner: Owner,
    },
}

impl Client {
    /// Takes room, if it is there. `Ok(None)`: none is needed; `Err(())`: the MDT is to be asked.
    pub(crate) fn take_room(
        &self,
        state: &mut State,
        bound: Bound,
        growth: &Growth,
    ) -> Result<Option<Charge>, ()> {
        if bound == Bound::Free || !self.limits.is_on() {
            return Ok(None);
        }
        let bytes = state.growth_bytes(growth);
        if bytes == 0 {
            return Ok(None);
        }
        let Some(owners) = self.limits.owners(state)? else { return Ok(None) };
        let charge = self.limits.take(owners, bytes, self.seams.now()).ok_or(())?;
        state.grown(growth);
        Ok(Some(charge))
    }

    /// Takes room, and asks the MDT for more if that is needed; `OverQuota` if there is none.
    pub(crate) async fn room(
        &self,
        inode: &Inode,
        bound: Bound,
        growth: Growth,
    ) -> Result<Option<Charge>, Fault> {
        let (mut is_sent, mut told, mut rounds) = (false, AllocatedRange::default(), 0);
        loop {
            if let Ok(taken) = self.take_room(&mut inode.lock(), bound, &growth) {
                return Ok(taken);
            }
            let answer = {
                let _one_asks = self.limits.asking.lock().await;
                // An earlier caller may have got enough for both.
                if let Ok(taken) = self.take_room(&mut inode.lock(), bound, &growth) {
                    return Ok(taken);
                }
                self.ask_room(inode, &growth, &mut told).await?
            };
            match answer {
                Answer::Taken(taken) => return Ok(taken),
                Answer::Void if rounds < ROUNDS_MAX => rounds += 1,
                Answer::Void => self.seams.sleep_ms(ASK_AGAIN_MS).await,
                // Buffered writes hold a larger reservation than they will need: they are sent before a
                // refusal.
                Answer::Short { is_held: true, .. } if !is_sent => {
                    self.send_held(inode).await;
                    is_sent = true;
                }
                // An OST that is away would keep the write itself waiting, too, in most cases.
                Answer::Short { may_have_blocks: true, .. } => {
                    // After a failout no OST tells whether there are blocks.
                    self.check_failout(inode).await?;
                    self.seams.sleep_ms(ASK_AGAIN_MS).await;
                }
                Answer::Short { owner, .. } => {
                    let fault = refusal(inode, owner);
                    if self.limits.is_to_log(owner, self.seams.now()) {
                        tracing::warn!(code = %fault.code, ino = inode.ino.0, "{fault}");
                    }
                    return Err(fault);
                }
            }
        }
    }

    /// Sends buffered bytes of files that share an owner with this one.
    async fn send_held(&self, inode: &Inode) {
        let Some(owners) = self.limits.owners_or_guess(&inode.lock()) else { return };
        let shares = |inode: &Arc<Inode>| {
            self.limits.owners_or_guess(&inode.lock()).is_some_and(|of| of.shares_one(owners))
        };
        let inodes: Vec<_> = self.inodes.all().into_iter().filter(shares).collect();
        let sending = inodes.iter().map(|inode| -> BoxFuture<'_, bool> {
            Box::pin(self.flush_behind_within(inode, NOTICE_WAIT_MS))
        });
        gather(sending.collect()).await;
    }

    /// Asks the MDT for room, and takes of it.
    async fn ask_room(
        &self,
        inode: &Inode,
        growth: &Growth,
        told: &mut AllocatedRange,
    ) -> Result<Answer, Fault> {
        let (owners, wanted_bytes, voids) = {
            let state = inode.lock();
            let owners = self.limits.owners_or_guess(&state);
            let owners = owners.ok_or_else(|| Fault::new(Code::Bug).why("a file without an owner"))?;
            told.check(&state);
            (owners, state.growth_bytes_with(growth, &told.allocated_range), state.allocated_range_epoch)
        };
        let seen = inode.asked();
        // Bytes that arrive from now on are in the figures of these answers; bytes that arrived before are in
        // the reports.
        let asked = self.limits.ask(owners, self.seams.now());
        let answer = match self.report_all().await {
            Ok(()) => self.ask_mdt_for_room(inode, &asked, wanted_bytes).await,
            Err(code) => Err(Fault::new(code)),
        };
        let answer = answer.inspect_err(|_| self.limits.not_answered(&asked))?;
        let mut state = inode.lock();
        // An answer from before a notice does not bring the former project back.
        if owners.project.is_some() && !state.crossed(seen) {
            state.project = Some(KnownProject { id: answer.project, forgotten: asked.forgotten });
            self.limits.last_project.store(answer.project, Ordering::Relaxed);
        }
        let Some(room) = answer.room else {
            // The guess was wrong: nothing was given.
            self.limits.not_answered(&asked);
            return Ok(Answer::Void);
        };
        let given = [room.user_bytes, room.group_bytes, room.project_bytes];
        let has_too_little = |given: &Option<u64>| given.is_some_and(|given| given < wanted_bytes);
        let short = owners.each().zip(&given).find(|(_, given)| has_too_little(given));
        let short = short.map(|(owner, _)| owner);
        // Blocks may have gone since the MDT was asked where they are.
        let is_old = state.allocated_range_epoch != voids;
        let allocated_end = room.allocated_end.filter(|end| *end == 0 || !is_old);
        told.check(&state);
        // The MDT looks for allocated blocks only where the room is too small. In all other cases the earlier answer still holds.
        if short.is_some() || allocated_end.is_some_and(|end| end > 0) {
            *told = AllocatedRange {
                allocated_range: state.blocks(&(0..allocated_end.unwrap_or(0))),
                voids: state.allocated_range_epoch,
            };
        }
        if !told.allocated_range.is_empty() {
            state.add_allocated_range(told.allocated_range.clone());
        }
        let bytes = state.growth_bytes_with(growth, &told.allocated_range);
        let taken = self.limits.answered(&asked, &given, (bytes, self.seams.now()));
        if bytes == 0 {
            return Ok(Answer::Taken(None));
        }
        let is_same = |now: Owners| (now.uid, now.gid) == (owners.uid, owners.gid);
        Ok(match (taken, short) {
            _ if !state.owners.is_some_and(is_same) => Answer::Void,
            (Ok(charge), _) => {
                state.grown(growth);
                Answer::Taken(Some(charge))
            }
            // The MDT gives nothing rather than a part of what is asked for: less may be there.
            (Err(Declined::TooLittle), Some(owner)) if bytes >= wanted_bytes => Answer::Short {
                is_held: asked.told.iter().any(|told| told.held_bytes > 0),
                may_have_blocks: allocated_end.is_none() && matches!(growth, Growth::Range(_)),
                owner,
            },
            (Err(_), _) => Answer::Void,
        })
    }

    /// Asks for room of user and group, and of the project where that counts.
    async fn ask_mdt_for_room(
        &self,
        inode: &Inode,
        asked: &Asked,
        wanted_bytes: u64,
    ) -> Result<QuotaFileRoomResp, Fault> {
        let Owners { uid, gid, project } = asked.owners;
        let told = |at: usize| asked.told.get(at).copied().unwrap_or_default();
        let (user, group, ino) = (told(0), told(1), inode.ino);
        if project.is_some() {
            let in_project = told(2);
            let request = QuotaFileRoomReq { ino, uid, gid, project, wanted_bytes, user, group, in_project };
            return self.mds.ask(&request).await;
        }
        let answer = self.mds.ask(&QuotaRoomReq { uid, gid, wanted_bytes, user, group, ino }).await?;
        let QuotaRoomResp { user_bytes, group_bytes, allocated_end } = answer;
        let room = QuotaFileRoom { user_bytes, group_bytes, project_bytes: None, allocated_end };
        Ok(QuotaFileRoomResp { project: 0, room: Some(room) })
    }

    /// Ends a write for which room was taken; `has_arrived`: all of it is at the OSTs.
    pub(crate) fn room_used(&self, inode: &Inode, charge: Option<Charge>, has_arrived: bool) {
        let Some(charge) = charge else { return };
        let mut state = inode.lock();
        if !has_arrived {
            // A part of the bytes may have arrived, and it is unknown which.
            state.void_allocated_range();
        }
        let is_reported = state.reports_allocated();
        drop(state);
        charge.arrived(is_reported);
    }
}

/// No room is left for a file.
fn refusal(inode: &Inode, owner: Owner) -> Fault {
    let of = |o: Owners| format!("a file of user {} and group {}", o.uid, o.gid);
    let owners = inode.lock().owners;
    Fault::new(Code::OverQuota)
        .what("no more may be written to")
        .subject(owners.map(of).unwrap_or_default())
        .why(format!("{owner} has used up what is allowed"))
        .next(format!("remove files, or ask the administrator for more: lfs quota {}", owner.option()))
}

#[cfg(test)]
mod tests;
