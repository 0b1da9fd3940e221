//! The changelog: a record of each change for readers, written in the batch of the change.
//!
//! | promise | by |
//! |---|---|
//! | a change and its record are both there or neither is | one batch; a request that is sent again finds its reply, not a second record |
//! | records come in the order of the log | the index is taken under the writer lock, just before the batch |
//! | an index is never given out twice | it holds the term, which is durable before the first record ([`INDEX_TERM_SHIFT`]) |
//! | readers see only records that survive a power cut | a read waits until its records are synced |
//! | it cannot fill the MDT | the oldest records go when it is larger than [`Log::bytes_max`], or older than a month; while the device is full it does not grow |
//! | a reader knows when it has missed something | a GAP stands for records that were removed before the reader had cleared them |
//!
//! Without a reader nothing is written and nothing is counted: [`note`] looks at one word in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::changelog::{
    FLAG_ATIME, FLAG_GID, FLAG_MODE, FLAG_MTIME, FLAG_SIZE, FLAG_UID, INDEX_TERM_SHIFT,
};
use brindle_types::{Change, ChangeKind, ChangeMask, Code, Fault, Ino, Result};
use brindle_wire::mds::setattr::SetattrReq;
use brindle_wire::{Cred, Op};
use tokio::sync::Notify;

use crate::mdt::{Call, Live, Mdt, Txn};
use crate::store::changelog::{Size, State, Stored};
use crate::store::{Changes, changelog};

/// Readers of one MDT.
pub const READERS_MAX: usize = 32;
/// The changelog takes at most this part of the MDT's device.
const DEVICE_PART: u64 = 64;
/// Records that are removed at once when the changelog is too large.
const TRIM_RECORDS: usize = 256;
/// Records that one batch of the background removes.
const PURGE_RECORDS: usize = 1024;
/// Interval at which the age of the oldest record is checked.
const LOOK_MS: u64 = 60_000;
/// Pause after records could not be removed.
const PAUSE_MS: u64 = 1_000;

/// Numbers of records, and the bounds of the changelog.
pub struct Log {
    term: u32,
    /// The last number of this term.
    counter: AtomicU64,
    bytes_max: u64,
    cleared: Notify,
}

impl Log {
    /// The changelog of an opening of the MDT.
    pub fn new(term: u32, bytes_max: u64, device_bytes: u64) -> Log {
        let bytes_max = bytes_max.min(device_bytes / DEVICE_PART);
        Log { term, counter: AtomicU64::new(0), bytes_max, cleared: Notify::new() }
    }

    /// The last index that was given out.
    pub fn current(&self) -> u64 {
        u64::from(self.term) << INDEX_TERM_SHIFT | self.counter.load(Ordering::Relaxed)
    }

    /// Most bytes of records.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Signals that there may be records which no reader needs any more.
    pub fn cleared(&self) {
        self.cleared.notify_one();
    }

    /// The next index. Called under the writer lock.
    fn next(&self) -> Result<u64> {
        let number = self.counter.load(Ordering::Relaxed) + 1;
        if number >> INDEX_TERM_SHIFT != 0 || u64::from(self.term) >> (u64::BITS - INDEX_TERM_SHIFT) != 0 {
            return Err(Fault::new(Code::Bug)
                .what("the changelog has used up its indices")
                .why(format!("term {}, record {number}", self.term))
                .data("nothing was changed")
                .next("start the MDT again: each start has indices of its own"));
        }
        self.counter.store(number, Ordering::Relaxed);
        Ok(u64::from(self.term) << INDEX_TERM_SHIFT | number)
    }

    /// Puts the records of an operation into its batch, and lets the oldest go if they are too many.
    /// `is_low`: the device is full. Returns the volatile state for when the batch is in the log.
    pub fn enter(
        &self,
        t: &mut Changes<'_>,
        known: &Known,
        changes: &[Change],
        is_low: bool,
    ) -> Result<Known> {
        let before = self.current();
        let mut next = known.clone();
        for change in changes {
            let index = self.next()?;
            next.size.bytes += changelog::put(t, index, change);
            next.size.records += 1;
        }
        let (least, bytes_max) = match is_low {
            true => (0, known.size.bytes.min(self.bytes_max)),
            false => (TRIM_RECORDS, self.bytes_max),
        };
        if next.size.bytes > bytes_max {
            // Take only the sizes of these records: a damaged record must not keep anybody from changing files.
            let oldest = changelog::sizes_behind(t, known.gone_to, TRIM_RECORDS)?;
            let oldest = oldest.into_iter().take_while(|(index, _)| *index <= before);
            for (number, (index, bytes)) in oldest.enumerate() {
                if number >= least && next.size.bytes <= bytes_max {
                    break;
                }
                next.remove(t, index, bytes);
            }
        }
        changelog::put_size(t, next.size);
        if next.state != known.state {
            changelog::put_state(t, &next.state);
        }
        Ok(next)
    }
}

/// The rows beside the records, in memory.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Readers.
    pub state: State,
    /// Number and bytes of the records.
    pub size: Size,
    /// Types that any reader wants.
    wanted: Wanted,
    /// All records up to this index are removed; a hint that keeps scans away from removed rows.
    gone_to: u64,
}

/// A mask that is empty at first.
#[derive(Clone, Copy, Debug)]
struct Wanted(ChangeMask);

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted(ChangeMask::NONE)
    }
}

impl Known {
    /// State as the rows have it.
    pub fn load(rows: &(impl crate::store::Rows + ?Sized)) -> Result<Known> {
        let mut known = Known { size: changelog::size(rows)?, ..Known::default() };
        known.set(changelog::state(rows)?);
        Ok(known)
    }

    /// Takes over who reads.
    pub fn set(&mut self, state: State) {
        let of = |reader: &changelog::Reader| reader.mask.unwrap_or(state.mask);
        self.wanted = Wanted(state.readers.iter().map(of).fold(ChangeMask::NONE, ChangeMask::union));
        self.state = state;
    }

    /// Index up to which no reader needs a record.
    pub fn cleared_to(&self) -> u64 {
        self.state.readers.iter().map(|reader| reader.cleared).min().unwrap_or(u64::MAX)
    }

    /// Index behind which a scan for needed records begins.
    pub fn begin(&self) -> u64 {
        self.cleared_to().max(self.gone_to).max(self.state.dropped_to)
    }

    fn remove(&mut self, t: &mut Changes<'_>, index: u64, bytes: u64) {
        changelog::delete(t, index);
        self.size.records = self.size.records.saturating_sub(1);
        self.size.bytes = self.size.bytes.saturating_sub(bytes);
        self.gone_to = index;
        if index > self.cleared_to() {
            self.state.dropped_to = index;
        }
    }
}

/// Notes a change, if a reader wants to know of such.
pub fn note(t: &mut Txn<'_>, kind: ChangeKind, fill: impl FnOnce(&mut Change)) {
    if !t.live().changelog.wanted.0.has(kind) {
        return;
    }
    let mut change = Change::new(kind, t.now);
    fill(&mut change);
    t.noted(change);
}

/// Notes that a name was made or removed.
pub fn named(
    t: &mut Txn<'_>,
    kind: ChangeKind,
    (parent, name): (Ino, &[u8]),
    target: Ino,
    cred: &Cred,
    flags: u32,
) {
    note(t, kind, |change| {
        (change.target, change.parent, change.flags) = (Some(target), Some(parent), flags);
        change.name = name.to_vec();
        change.user = Some((cred.uid, cred.gid));
    });
}

/// Notes that something about an inode changed. `cred`: of whoever did it; `None` for the MDT itself, and where a client does
/// not tell.
pub fn about(t: &mut Txn<'_>, kind: ChangeKind, target: Ino, cred: Option<&Cred>) {
    note(t, kind, |change| {
        change.target = Some(target);
        change.user = cred.map(|cred| (cred.uid, cred.gid));
    });
}

/// Notes that attributes were set: one record, of the first type that somebody wants, whose flags say what was set.
pub fn attributes(t: &mut Txn<'_>, req: &SetattrReq) {
    let owner_or_mode = req.mode.is_some() || req.uid.is_some() || req.gid.is_some() || req.kill_suidgid;
    let kinds = [
        (req.size_bytes.is_some(), ChangeKind::Truncate),
        (owner_or_mode, ChangeKind::Setattr),
        (req.mtime.is_some(), ChangeKind::Mtime),
        (req.atime.is_some(), ChangeKind::Atime),
    ];
    let wanted = t.live().changelog.wanted.0;
    let Some((_, kind)) = kinds.into_iter().find(|(is_set, kind)| *is_set && wanted.has(*kind)) else {
        return;
    };
    let flags = [
        (req.size_bytes.is_some(), FLAG_SIZE),
        (req.mode.is_some(), FLAG_MODE),
        (req.uid.is_some(), FLAG_UID),
        (req.gid.is_some(), FLAG_GID),
        (req.mtime.is_some(), FLAG_MTIME),
        (req.atime.is_some(), FLAG_ATIME),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    note(t, kind, |change| {
        (change.target, change.flags) = (Some(req.ino), flags);
        change.user = Some((req.cred.uid, req.cred.gid));
    });
}

/// Changes who reads, in the batch of `t`.
pub fn change_state(t: &mut Txn<'_>, state: State) {
    changelog::put_state(t, &state);
    t.after(move |live: &mut Live| live.changelog.set(state));
}

/// Removes records that nobody needs, and those that are too old, for as long as the MDT runs.
pub async fn keep_small(mdt: Arc<Mdt>) {
    loop {
        match remove_some(&mdt).await {
            Ok(true) => {}
            // Looks at the age again after a while.
            Ok(false) => drop(mdt.seams().timeout_ms(LOOK_MS, mdt.changelog().cleared.notified()).await),
            Err(fault) => {
                tracing::error!(%fault, "cannot remove records of the changelog");
                mdt.seams().sleep_ms(PAUSE_MS).await;
            }
        }
    }
}

/// Removes old records, in one batch. Returns whether there may be more to remove.
pub async fn remove_some(mdt: &Mdt) -> Result<bool> {
    if mdt.live().changelog.size.records == 0 {
        return Ok(false);
    }
    let age_max_secs = mdt.config().changelog_age_max_secs;
    mdt.step(&Call::internal(Op::ChangelogClear), |t| {
        t.frees_space();
        let known = t.live().changelog.clone();
        let mut next = known.clone();
        let oldest_allowed = t.now.secs.saturating_sub_unsigned(age_max_secs);
        let may_go =
            |stored: &Stored| stored.index <= known.cleared_to() || stored.change.time.secs < oldest_allowed;
        let found = changelog::behind(t, known.gone_to, PURGE_RECORDS)?;
        let going: Vec<Stored> = found.into_iter().take_while(may_go).collect();
        going.iter().for_each(|stored| next.remove(t, stored.index, stored.bytes));
        if !going.is_empty() {
            changelog::put_size(t, next.size);
        }
        if next.state != known.state {
            changelog::put_state(t, &next.state);
        }
        t.after(move |live| live.changelog = next);
        Ok(going.len() == PURGE_RECORDS)
    })
    .await
}
