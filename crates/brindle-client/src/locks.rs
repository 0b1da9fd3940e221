//! File locks of this client: requests for them to the MDT, and a record of the locks held, so that they can be reclaimed after the MDT
//! restarted.
//!
//! Invariants: once a call has returned, the record has at least the locks that the MDT holds for this session. While a call is under way,
//! the record never has more: others may have been granted the lock, and would find it reclaimed after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::lock::{CancelLockReq, GetLockReq, LockKind, LockSpace, LockState, SetLockReq};
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{Cancel, Client, Ctx};

/// Most lock calls that wait at the MDT at once; each takes a credit of the connection. Further calls ask again and again.
const WAITS_MAX: usize = 96;
/// Interval at which such calls ask again.
const ASK_EVERY_MS: u64 = 50;
/// Interval at which a cancellation is repeated until the waiter answers.
const CANCEL_EVERY_MS: u64 = 200;

/// Place of a lock: inode, lock space, owner.
type Key = (Ino, LockSpace, u64);

/// A held range: kind and process, by first byte; the value holds the last byte.
type Ranges = BTreeMap<u64, (u64, LockKind, u32)>;

/// Locks held, and requests under way.
pub(crate) struct Locks {
    held: Mutex<BTreeMap<Key, Ranges>>,
    /// Owners that are gone. Their locks stay until no given-up write of theirs can lie over anybody's bytes any more.
    leaving: Mutex<BTreeSet<Key>>,
    next_request: AtomicU64,
    waits: Semaphore,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            held: Mutex::default(),
            leaving: Mutex::default(),
            next_request: AtomicU64::new(1),
            waits: Semaphore::new(WAITS_MAX),
        }
    }
}

impl Locks {
    /// Takes in a lock that was set or unlocked.
    fn note(&self, ino: Ino, lock: &LockState) {
        let key = (ino, lock.space, lock.owner);
        let mut held = self.held.lock();
        let ranges = held.entry(key).or_default();
        cut_out(ranges, lock.start..=lock.end);
        if lock.kind != LockKind::Unlock {
            ranges.insert(lock.start, (lock.end, lock.kind, lock.pid));
        }
        if ranges.is_empty() {
            held.remove(&key);
        }
    }

    /// Locks of an owner in a range.
    fn held_in(&self, ino: Ino, lock: &LockState) -> Vec<LockState> {
        let held = self.held.lock();
        let Some(ranges) = held.get(&(ino, lock.space, lock.owner)) else { return Vec::new() };
        let touched = ranges.range(..=lock.end).filter(|(_, (last, ..))| *last >= lock.start);
        let part = |(first, (last, kind, pid)): (&u64, &(u64, LockKind, u32))| LockState {
            kind: *kind,
            start: lock.start.max(*first),
            end: lock.end.min(*last),
            pid: *pid,
            ..lock.clone()
        };
        touched.map(part).collect()
    }

    /// A request for `lock` is about to be sent: locks that the MDT may give up before it answers are removed from the record.
    fn weaken(&self, ino: Ino, lock: &LockState) {
        let before = self.held_in(ino, lock);
        // A request for more than is held may be refused, and then leaves the held locks as they are.
        let is_sure = covers(&before, lock);
        for held in before {
            let kind = match (lock.kind, lock.space) {
                (LockKind::Unlock, _) => LockKind::Unlock,
                // A conversion first gives up the old lock, whether or not the new one is granted.
                (kind, LockSpace::Flock) if kind != held.kind => LockKind::Unlock,
                (LockKind::Read, LockSpace::Posix) if is_sure => LockKind::Read,
                _ => continue,
            };
            self.note(ino, &LockState { kind, ..held });
        }
    }

    /// Whether the owner holds any lock.
    fn holds(&self, ino: Ino, space: LockSpace, owner: u64) -> bool {
        self.held.lock().contains_key(&(ino, space, owner))
    }

    /// All locks held, to be reclaimed.
    pub fn all(&self) -> Vec<(Ino, LockState)> {
        let held = self.held.lock();
        let locks = held.iter().flat_map(|(key, ranges)| ranges.iter().map(move |r| (*key, r)));
        locks
            .map(|((ino, space, owner), (start, (end, kind, pid)))| {
                (ino, LockState { space, owner, kind: *kind, start: *start, end: *end, pid: *pid })
            })
            .collect()
    }

    /// The session was ended, and every lock with it.
    pub fn clear(&self) {
        self.held.lock().clear();
    }
}

/// Whether these parts of a range, in order, cover all of it.
fn covers(parts: &[LockState], range: &LockState) -> bool {
    let has_no_gap = parts.windows(2).all(|pair| pair[0].end.checked_add(1) == Some(pair[1].start));
    let begins = parts.first().is_some_and(|part| part.start == range.start);
    has_no_gap && begins && parts.last().is_some_and(|part| part.end == range.end)
}

/// Removes a range from the held locks, and cuts locks that reach out of it.
fn cut_out(ranges: &mut Ranges, range: RangeInclusive<u64>) {
    let (start, end) = range.into_inner();
    let touched: Vec<u64> =
        ranges.range(..=end).filter(|(_, (last, ..))| *last >= start).map(|(first, _)| *first).collect();
    for first in touched {
        let Some((last, kind, pid)) = ranges.remove(&first) else { continue };
        if first < start {
            ranges.insert(first, (start - 1, kind, pid));
        }
        if last > end {
            ranges.insert(end + 1, (last, kind, pid));
        }
    }
}

impl Client {
    /// The first lock in the way of `lock`, if any.
    pub async fn get_lock(&self, ino: Ino, lock: LockState) -> Result<Option<LockState>, Fault> {
        Ok(self.mds.ask(&GetLockReq { ino, lock }).await?.conflict)
    }

    /// Sets or gives up a lock. With `wait` the call waits until the lock can be had, or until the caller gives up: `Interrupted` then, and
    /// the lock is not held.
    pub async fn set_lock(&self, ctx: &Ctx, ino: Ino, lock: LockState, wait: bool) -> Result<(), Fault> {
        self.settle_under(ctx, ino, &lock).await?;
        self.set_settled_lock(ctx, ino, lock, wait).await
    }

    async fn set_settled_lock(&self, ctx: &Ctx, ino: Ino, lock: LockState, wait: bool) -> Result<(), Fault> {
        loop {
            let era = self.session.era();
            self.locks.weaken(ino, &lock);
            let done = if lock.kind == LockKind::Unlock {
                self.mds.ask_high(&self.lock_request(ino, &lock, false)).await.map(drop)
            } else if wait {
                self.wait_for_lock(ctx, ino, &lock).await
            } else {
                self.mds.ask(&self.lock_request(ino, &lock, false)).await.map(drop)
            };
            // (What a conversion gives up first is noted above; one that is asked for once more stays.)
            done?;
            self.locks.note(ino, &lock);
            // The answer may be older than the lease, or from before a restart that it was not declared after.
            self.session.held().await;
            if lock.kind == LockKind::Unlock || self.session.era() == era {
                return Ok(());
            }
        }
    }

    /// Whether a lock for writing would go to others while given-up writes under it may still come to lie over their bytes.
    fn gives_up_unsettled(&self, ino: Ino, lock: &LockState) -> bool {
        let has_abandoned = || self.inodes.get(ino).is_some_and(|inode| inode.lock().abandoned > 0);
        lock.kind != LockKind::Write
            && self.locks.held_in(ino, lock).iter().any(|held| held.kind == LockKind::Write)
            && has_abandoned()
    }

    /// Waits until a lock may be given up, and until locks of an earlier owner of the same number are given up. `Interrupted` if the caller
    /// gives up, `OstUnreachable` if an OST of the file is given up: the lock is held as before.
    async fn settle_under(&self, ctx: &Ctx, ino: Ino, lock: &LockState) -> Result<(), Fault> {
        let key = (ino, lock.space, lock.owner);
        let is_leaving = || self.locks.leaving.lock().contains(&key);
        if !is_leaving() && !self.gives_up_unsettled(ino, lock) {
            return Ok(());
        }
        let settled = async {
            while is_leaving() || self.gives_up_unsettled(ino, lock) {
                self.seams.sleep_ms(ASK_EVERY_MS).await;
            }
            Ok(())
        };
        let waited = ctx.cancel.until(self.unless_failed_out(ino, settled)).await;
        waited.unwrap_or_else(|| Err(Fault::new(Code::Interrupted)))
    }

    /// Whether an owner holds a lock on a file.
    pub fn holds_locks(&self, ino: Ino, space: LockSpace, owner: u64) -> bool {
        self.locks.holds(ino, space, owner)
    }

    /// Gives up all locks that an owner holds on a file; makes no call if there are none. A program that closes a file, or ends, does not
    /// wait for an OST that is away: its locks stay until its given-up writes are settled, and go then.
    pub async fn drop_locks(&self, ctx: &Ctx, ino: Ino, space: LockSpace, owner: u64) -> Result<(), Fault> {
        if !self.locks.holds(ino, space, owner) {
            return Ok(());
        }
        let lock = LockState { space, owner, kind: LockKind::Unlock, start: 0, end: u64::MAX, pid: 0 };
        let Some(inode) = self.inodes.get(ino).filter(|_| self.gives_up_unsettled(ino, &lock)) else {
            return Box::pin(self.set_lock(ctx, ino, lock, false)).await;
        };
        let key = (ino, space, owner);
        if !self.locks.leaving.lock().insert(key) {
            return Ok(());
        }
        let (client, cred) = (self.this.clone(), ctx.cred.clone());
        self.seams.spawn("locks.leave", async move {
            inode.wait_until(|state| state.abandoned == 0).await;
            let Some(client) = client.upgrade() else { return };
            let ctx = Ctx { cred, cancel: Cancel::new() };
            if let Err(fault) = client.set_settled_lock(&ctx, ino, lock, false).await {
                tracing::debug!(ino = ino.0, code = %fault.code, "locks of a closed file: {fault}");
            }
            client.locks.leaving.lock().remove(&key);
        });
        Ok(())
    }

    fn lock_request(&self, ino: Ino, lock: &LockState, wait: bool) -> SetLockReq {
        let request = self.locks.next_request.fetch_add(1, Ordering::Relaxed);
        SetLockReq { ino, lock: lock.clone(), wait, request }
    }

    async fn wait_for_lock(&self, ctx: &Ctx, ino: Ino, lock: &LockState) -> Result<(), Fault> {
        loop {
            if let Ok(_permit) = self.locks.waits.try_acquire() {
                return self.wait_at_mdt(ctx, ino, lock).await;
            }
            match self.mds.ask(&self.lock_request(ino, lock, false)).await {
                Err(fault) if fault.code == Code::LockConflict => {}
                done => return done.map(drop),
            }
            let slept = ctx.cancel.until(self.seams.sleep_ms(ASK_EVERY_MS)).await;
            if slept.is_none() {
                return Err(Fault::new(Code::Interrupted));
            }
        }
    }

    async fn wait_at_mdt(&self, ctx: &Ctx, ino: Ino, lock: &LockState) -> Result<(), Fault> {
        let request = self.lock_request(ino, lock, true);
        let mut asking = std::pin::pin!(self.mds.ask(&request));
        if let Some(done) = ctx.cancel.until(&mut asking).await {
            return done.map(drop);
        }
        // The waiter itself says how it ended: cancelled, or granted just before. The cancellation is repeated, because after a restart of
        // the MDT it can arrive before the request.
        loop {
            let cancel = CancelLockReq { ino, request: request.request };
            let cancelling = async {
                // The outcome of the cancellation does not matter: the waiter tells all.
                drop(self.mds.ask_high(&cancel).await);
                self.seams.sleep_ms(CANCEL_EVERY_MS).await;
            };
            match futures_util::future::select(&mut asking, std::pin::pin!(cancelling)).await {
                Either::Left((done, _)) => return done.map(drop),
                Either::Right(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(kind: LockKind, start: u64, end: u64) -> LockState {
        LockState { space: LockSpace::Posix, owner: 9, kind, start, end, pid: 1 }
    }

    #[test]
    fn what_is_held_is_remembered_by_range() {
        let locks = Locks::default();
        let ino = Ino(5);
        locks.note(ino, &lock(LockKind::Write, 0, u64::MAX));
        locks.note(ino, &lock(LockKind::Read, 10, 19));
        locks.note(ino, &lock(LockKind::Unlock, 15, 30));
        let all: Vec<_> = locks.all().into_iter().map(|(_, l)| (l.kind, l.start, l.end)).collect();
        assert_eq!(all, [(LockKind::Write, 0, 9), (LockKind::Read, 10, 14), (LockKind::Write, 31, u64::MAX)]);
        assert!(locks.holds(ino, LockSpace::Posix, 9) && !locks.holds(ino, LockSpace::Flock, 9));
        locks.note(ino, &lock(LockKind::Unlock, 0, u64::MAX));
        assert!(locks.all().is_empty());
    }

    /// Locks that would be reclaimed after a restart of the MDT: others may hold the rest by then.
    #[test]
    fn what_the_mdt_may_give_up_is_not_declared_while_it_is_asked_to() {
        let ino = Ino(5);
        let declared = |locks: &Locks| -> Vec<_> {
            locks.all().into_iter().map(|(_, lock)| (lock.kind, lock.start, lock.end)).collect()
        };
        let locks = Locks::default();
        locks.note(ino, &lock(LockKind::Write, 0, 99));
        locks.weaken(ino, &lock(LockKind::Read, 50, 200));
        locks.weaken(ino, &lock(LockKind::Write, 0, 10));
        assert_eq!(declared(&locks), [(LockKind::Write, 0, 99)], "it may be refused");
        locks.weaken(ino, &lock(LockKind::Read, 50, 99));
        assert_eq!(declared(&locks), [(LockKind::Write, 0, 49), (LockKind::Read, 50, 99)]);
        locks.weaken(ino, &lock(LockKind::Read, 40, 60));
        locks.weaken(ino, &lock(LockKind::Unlock, 10, 79));
        assert_eq!(declared(&locks), [(LockKind::Write, 0, 9), (LockKind::Read, 80, 99)]);
        let flock = |kind| LockState { space: LockSpace::Flock, ..lock(kind, 0, u64::MAX) };
        let locks = Locks::default();
        locks.note(ino, &flock(LockKind::Read));
        locks.weaken(ino, &flock(LockKind::Read));
        assert_eq!(declared(&locks), [(LockKind::Read, 0, u64::MAX)], "it stays what it is");
        locks.weaken(ino, &flock(LockKind::Write));
        assert_eq!(declared(&locks), []);
    }
}
