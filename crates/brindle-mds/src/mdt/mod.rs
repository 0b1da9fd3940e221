//! The MDT as one single-writer state machine: batches under one lock, answers after the log.
//!
//! Operations call [`Mdt::modify`] (reads and writes, one batch, with the reply row) and [`Mdt::read`]; those of several
//! steps also [`Mdt::step`] (a batch in between) and [`Mdt::complete`] (the last one, past the point of no return).
//!
//! Invariants: a batch holds all rows of its operation and the reply; volatile state changes only with a batch that
//! got into the log; no answer leaves before the log holds everything that it shows; the lock is never held over an
//! await.

mod cache_updates;
mod live;
mod numbers;
mod slots;
mod stop;
mod txn;
mod waits;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_kv::{DurabilityMode, LogPos};
use brindle_net::latch::Latch;
use brindle_net::trace::{Part, in_part};
use brindle_stdx::Seams;
use brindle_types::attr::Time;
use brindle_types::{Change, Code, Fault, Ino, Pair, Result, SessionId};
use brindle_wire::Op;
use brindle_wire::frame::encode_body;
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, oneshot};

pub use live::{Events, Live, LiveSession, Replaced};
pub use numbers::{INODES_FIRST, INODES_RESERVED, Numbers};
pub use slots::{Call, Entry, SLOTS_MAX, Slots};
pub use stop::{Event, SideTask, Step, Stop};
use txn::Parts;
pub use txn::Txn;
pub use waits::{Waiting, Waits};

use crate::access_times;
use crate::ask::{self, Notice, Notifier};
use crate::changelog;
use crate::config::{Config, Identity};
use crate::hearing::Hearing;
use crate::hsm::queue::Queue;
use crate::locking::LockService;
use crate::ops::backup::Backups;
use crate::osts::Osts;
use crate::quota::QuotaTable;
use crate::scrub::MdtScrub;
use crate::store::{self, Changes, Engine, limit, meta, reply};

/// Pages of scans that are made at once: the other threads are for operations that somebody waits for.
const SCAN_PAGES_MAX: usize = 1;
/// Number of runs of an operation after which the repetition counts as a defect.
const RERUNS_MAX: usize = 10_000;

/// A metadata target.
pub struct Mdt {
    engine: Engine,
    seams: Seams,
    identity: Identity,
    config: Config,
    live: RwLock<Live>,
    numbers: Numbers,
    slots: Slots,
    waits: Arc<Waits>,
    notifier: Arc<dyn Notifier>,
    osts: Osts,
    destroy_queue: Notify,
    replaced: Notify,
    locks: LockService,
    changelog: changelog::Log,
    scans: Semaphore,
    backups: Backups,
    scrub: MdtScrub,
    /// The latest time that was given, in nanoseconds since 1970: a clock that is set back gives it again.
    last_time_ns: AtomicI64,
    /// The wall clock is more than [`CLOCK_SLACK_NS`] behind the latest time that was given; the log has said so.
    clock_is_behind: AtomicBool,
    /// Version of the table of fenced sessions: the term, and how many sessions were ended in it.
    fences_version: AtomicU64,
    hearing: Hearing,
    access_times_since: Time,
    stopped: Arc<Latch>,
    me: Weak<Mdt>,
}

/// A clock that is set back by less than this is not worth a line in the log.
const CLOCK_SLACK_NS: i64 = 1_000_000_000;

/// Outcome of one run of a closure.
enum Attempt<R> {
    Done(R, LogPos, Vec<(SessionId, Notice)>),
    Wait(Event, oneshot::Receiver<()>),
    First(SideTask),
}

/// Whether a batch needs the caller's session to be alive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fence {
    Checked,
    Past,
}

/// Recipe for the reply row of an operation.
struct Row<R> {
    encode: fn(&R) -> Bytes,
    /// Makes the stored part of an answer; `None`: the whole answer is stored.
    short: Option<fn(&R) -> R>,
}

impl<R> Clone for Row<R> {
    fn clone(&self) -> Row<R> {
        *self
    }
}

impl<R> Copy for Row<R> {}

impl<R: Serialize> Row<R> {
    fn whole() -> Row<R> {
        Row { encode: reply_row::<R>, short: None }
    }
}

impl<R> Row<R> {
    /// Stored form of an answer, and whether it is the whole answer.
    fn stored(&self, out: &R) -> (Bytes, bool) {
        match self.short {
            Some(short) => ((self.encode)(&short(out)), false),
            None => ((self.encode)(out), true),
        }
    }
}

impl Mdt {
    /// Opens the store, takes a term and reserves inode numbers. Background work is started by the caller
    /// ([`crate::background::start`]).
    pub async fn open(
        seams: &Seams,
        identity: Identity,
        config: Config,
        notifier: Arc<dyn Notifier>,
        osts: Osts,
    ) -> Result<Arc<Mdt>> {
        let engine = Engine::open(seams, &config.store_dir(), config.kv_options(&identity))?;
        Mdt::on(engine, seams, identity, (config, notifier, osts)).await
    }

    /// An MDT on a store that was opened.
    pub async fn on(
        engine: Engine,
        seams: &Seams,
        identity: Identity,
        (config, notifier, osts): (Config, Arc<dyn Notifier>, Osts),
    ) -> Result<Arc<Mdt>> {
        let term = engine.term();
        osts.set_term(term);
        let mut first = meta::inodes_reserved(&engine)?.max(INODES_FIRST);
        if brindle_stdx::planted("mds_number_reuse") {
            first = highest_inode(&engine)?.max(INODES_FIRST) + 1;
        }
        let lost = meta::lost_terms(&engine)?;
        let changelog = changelog::Known::load(&engine)?;
        let mut live = Live { changelog, limits: QuotaTable::load(&engine, term)?, ..Live::default() };
        let device_bytes = engine.space()?.total_bytes;
        let hearing = Hearing::new(seams);
        live.hsm = Queue::load(&engine, hearing.now())?;
        let wall = seams.wall();
        let access_times_since = access_times::since(&engine, Time { secs: wall.secs, nanos: wall.nanos })?;
        for (id, row) in store::session::list(&engine)? {
            let must_reclaim = !row.ended;
            live.sessions.insert(id, LiveSession { row, renewed: hearing.now(), must_reclaim, limits: None });
        }
        let mdt = Arc::new_cyclic(|me| Mdt {
            numbers: Numbers::new(identity.index, term, first).without(lost),
            changelog: changelog::Log::new(term, config.changelog_bytes_max, device_bytes),
            engine,
            seams: seams.clone(),
            identity,
            config,
            live: RwLock::new(live),
            slots: Slots::default(),
            waits: Waits::new(seams.clone()),
            notifier,
            osts,
            destroy_queue: Notify::new(),
            replaced: Notify::new(),
            locks: LockService::default(),
            scans: Semaphore::new(SCAN_PAGES_MAX),
            backups: Backups::default(),
            scrub: MdtScrub::default(),
            last_time_ns: AtomicI64::new(i64::MIN),
            clock_is_behind: AtomicBool::new(false),
            fences_version: AtomicU64::new(u64::from(term) << 32),
            hearing,
            access_times_since,
            stopped: Arc::default(),
            me: me.clone(),
        });
        Hearing::run(&mdt);
        mdt.reserve_inodes().await?;
        access_times::keep(&mdt).await?;
        Ok(mdt)
    }

    /// Reserves the next inode numbers, durably.
    pub async fn reserve_inodes(&self) -> Result<()> {
        let end = self.numbers.reserved() + INODES_RESERVED;
        let call = Call::internal(Op::SyncAll);
        let reserve = self.step(&call, |t| {
            meta::put_inodes_reserved(t, end);
            t.frees_space();
            Ok(())
        });
        reserve.await?;
        if !brindle_stdx::planted("mds_number_reuse") {
            self.synced().await?;
        }
        self.numbers.set_reserved(end);
        self.live.write().events.fire(Event::Inodes);
        Ok(())
    }

    /// Version of the table of fenced sessions. Every reply carries it, and clients show it to OSTs.
    pub fn fences_version(&self) -> u64 {
        self.fences_version.load(Ordering::Acquire)
    }

    /// A session was ended: its row and its epoch are in the table.
    pub fn fences_changed(&self) {
        self.fences_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Reads of before this moment are not in the access times of files.
    pub fn access_times_since(&self) -> Time {
        self.access_times_since
    }

    /// The clock of leases.
    pub fn hearing(&self) -> &Hearing {
        &self.hearing
    }

    /// Identity from the superblock.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time of an operation: that of this host's clock, and never one before a time that was given.
    pub fn time(&self) -> Time {
        let wall = self.seams.wall();
        let wall = Time { secs: wall.secs, nanos: wall.nanos };
        let Some(ns) = wall.ns() else { return wall };
        let last = self.last_time_ns.fetch_max(ns, Ordering::Relaxed);
        let is_behind = last.saturating_sub(ns) > CLOCK_SLACK_NS;
        if self.clock_is_behind.swap(is_behind, Ordering::Relaxed) != is_behind {
            match is_behind {
                true => tracing::warn!(
                    "the clock of this host was set back: times of files stand still until it has caught up"
                ),
                false => tracing::info!("the clock of this host has caught up: times of files go on"),
            }
        }
        Time::from_ns(last.max(ns))
    }

    /// Time, chance, tasks, disk.
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// The rows.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Numbers that are never given out twice.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Waits of requests.
    pub fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// The way to clients.
    pub fn notifier(&self) -> &Arc<dyn Notifier> {
        &self.notifier
    }

    /// The OSTs.
    pub fn osts(&self) -> &Osts {
        &self.osts
    }

    /// Wakes the destroy queue's task.
    pub fn destroy_queue(&self) -> &Notify {
        &self.destroy_queue
    }

    /// Signalled when a file was replaced by a rename.
    pub fn replaced(&self) -> &Notify {
        &self.replaced
    }

    /// Locks of programs.
    pub fn locks(&self) -> &LockService {
        &self.locks
    }

    /// Numbers and bounds of the changelog.
    pub fn changelog(&self) -> &changelog::Log {
        &self.changelog
    }

    /// Room for pages of scans.
    pub fn scans(&self) -> &Semaphore {
        &self.scans
    }

    /// The scrub of the store.
    pub fn scrub(&self) -> &MdtScrub {
        &self.scrub
    }

    /// The backup that is being read.
    pub fn backups(&self) -> &Backups {
        &self.backups
    }

    /// Ends requests and background work wherever they wait, as a kill would. They may wait for events that never come: locks of other
    /// programs, answers of clients whose connections are closed.
    pub fn stop(&self) {
        self.stopped.set();
    }

    /// Set when the MDT stops.
    pub fn stopped(&self) -> &Latch {
        &self.stopped
    }

    /// Runs work in the background, at most until the MDT stops.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stopped = self.stopped.clone();
        self.seams.spawn(name, async move {
            stopped.until(work).await;
        });
    }

    /// Reference to this MDT for a task of its own; `None` while the MDT is shutting down.
    pub fn me(&self) -> Option<Arc<Mdt>> {
        self.me.upgrade()
    }

    /// Volatile state, to look at.
    pub fn live(&self) -> RwLockReadGuard<'_, Live> {
        self.live.read()
    }

    /// Volatile state, to change without a batch. Never held over an await.
    pub fn live_mut(&self) -> RwLockWriteGuard<'_, Live> {
        self.live.write()
    }

    /// The final batch of an operation, with its reply row. Returns when the log holds it and every client that had to
    /// be told has answered.
    pub async fn modify<R, F>(&self, call: &Call, f: F) -> Result<R>
    where
        R: Serialize + Send,
        F: FnMut(&mut Txn<'_>) -> Step<R> + Send,
    {
        self.run(call, Fence::Checked, Some(Row::whole()), f).await
    }

    /// Like [`Mdt::modify`], but stores a shorter answer for a resent request: the log need not hold data
    /// that the client can ask for.
    pub async fn modify_storing<R, F>(&self, call: &Call, short: fn(&R) -> R, f: F) -> Result<R>
    where
        R: Serialize + Send,
        F: FnMut(&mut Txn<'_>) -> Step<R> + Send,
    {
        let row = Row { encode: reply_row::<R>, short: Some(short) };
        self.run(call, Fence::Checked, Some(row), f).await
    }

    /// The final batch of an operation that has changed something outside already: it happens even if the session was
    /// ended meanwhile.
    pub async fn complete<R, F>(&self, call: &Call, f: F) -> Result<R>
    where
        R: Serialize + Send,
        F: FnMut(&mut Txn<'_>) -> Step<R> + Send,
    {
        self.run(call, Fence::Past, Some(Row::whole()), f).await
    }

    /// A batch in the middle of an operation, or of the MDT's own: without a reply row.
    pub async fn step<R, F>(&self, call: &Call, f: F) -> Result<R>
    where
        R: Send,
        F: FnMut(&mut Txn<'_>) -> Step<R> + Send,
    {
        self.run(call, Fence::Checked, None, f).await
    }

    /// Reads rows and volatile state at one moment. Returns when the log holds everything that was seen, also where that is a refusal.
    pub async fn read<R, F>(&self, f: F) -> Result<R>
    where
        F: FnOnce(&Txn<'_>) -> Result<R>,
    {
        match self.look(f) {
            Ok((out, pos)) => {
                self.logged(pos).await?;
                Ok(out)
            }
            Err(refusal) => {
                self.logged(self.engine.last_pos()).await?;
                Err(refusal)
            }
        }
    }

    /// Waits until the log holds everything up to `pos`.
    async fn logged(&self, pos: LogPos) -> Result<()> {
        in_part(Part::Disk, self.engine.wait_reply(pos)).await
    }

    /// Waits until everything acknowledged so far survives a power cut.
    pub async fn synced(&self) -> Result<()> {
        in_part(Part::Disk, self.engine.wait_synced(self.engine.last_pos())).await
    }

    /// Waits as long as fsync must: like [`Mdt::synced`], but without a sync if the MDT is `scratch`.
    pub async fn synced_as_asked(&self) -> Result<()> {
        match self.engine.mode() {
            DurabilityMode::Scratch => self.logged(self.engine.last_pos()).await,
            DurabilityMode::Relaxed | DurabilityMode::Sync => self.synced().await,
        }
    }

    /// Runs a slotted request exactly once: `work` if it is new, else the reply it got before.
    pub async fn once<R: Serialize>(&self, call: &Call, work: impl Future<Output = Result<R>>) -> Bytes {
        let slot = match self.slots.enter(&self.engine, call).await {
            Ok(Entry::Run(slot)) => slot,
            Ok(Entry::Answered(body)) => {
                return match self.logged(self.engine.last_pos()).await {
                    Ok(()) => body,
                    Err(fault) => encode_body(&Err::<R, Fault>(fault)),
                };
            }
            Err(fault) => return encode_body(&Err::<R, Fault>(fault)),
        };
        let outcome = work.await;
        // The caller gets the same answer that a duplicate request would get.
        let stored = call.stored().filter(|_| outcome.is_ok());
        let body = stored.unwrap_or_else(|| encode_body(&outcome));
        if call.wants_row() && is_final(&outcome) {
            // A refusal is an answer too: a late duplicate must not be carried out after it was given.
            if let Err(fault) = self.store_reply(call, &body).await {
                return encode_body(&Err::<R, Fault>(fault));
            }
        }
        drop(slot);
        body
    }

    async fn store_reply(&self, call: &Call, body: &Bytes) -> Result<()> {
        let pos = {
            let live = self.live.write();
            if !live.sessions.contains_key(&call.session) {
                return Err(stale_session(call));
            }
            let mut changes = self.engine.changes();
            changes.frees_space();
            reply::put(&mut changes, (call.session, call.slot), call.sequence, call.op, body);
            self.engine.append(changes)?
        };
        self.logged(pos).await
    }

    async fn run<R, F>(&self, call: &Call, fence: Fence, row: Option<Row<R>>, mut f: F) -> Result<R>
    where
        R: Send,
        F: FnMut(&mut Txn<'_>) -> Step<R> + Send,
    {
        for _ in 0..RERUNS_MAX {
            in_part(Part::Disk, self.engine.admit()).await?;
            let (event, told) = match self.attempt(call, fence, row, &mut f)? {
                Attempt::Done(out, pos, notices) => {
                    self.logged(pos).await?;
                    if !notices.is_empty() {
                        in_part(Part::Others, ask::notify_all(self, notices)).await?;
                    }
                    return Ok(out);
                }
                Attempt::Wait(event, told) => (event, told),
                Attempt::First(side_task) => {
                    in_part(Part::Others, ask::run(self, side_task)).await?;
                    continue;
                }
            };
            self.wait_event(call.op.name(), event, told).await;
        }
        Err(rerun_too_often(call.op.name()))
    }

    /// A run under the writer lock.
    fn attempt<R>(
        &self,
        call: &Call,
        fence: Fence,
        row: Option<Row<R>>,
        f: &mut impl FnMut(&mut Txn<'_>) -> Step<R>,
    ) -> Result<Attempt<R>> {
        let mut live = self.live.write();
        if fence == Fence::Checked && call.session != SessionId(0) {
            check_session(&live, call)?;
        }
        let mut t = Txn::new(self, &live);
        if fence == Fence::Checked {
            call.check(&t)?;
        }
        let out = match f(&mut t) {
            Ok(out) => out,
            Err(Stop::Fault(fault)) => return Err(fault),
            Err(Stop::First(side_task)) => return Ok(Attempt::First(side_task)),
            Err(Stop::RetryAfter(event)) => {
                drop(t);
                return Ok(Attempt::Wait(event, live.events.wait(event)));
            }
        };
        if fence == Fence::Checked {
            live.limits.check(&t)?;
        }
        for (owner, row) in live.limits.graces(&t)? {
            limit::put(&mut t, owner, row);
            t.after(move |live| live.limits.set_graces(owner, row));
        }
        if let Some(first) = cache_updates::before(&live, call, t.effects()) {
            drop(t);
            return Ok(match first {
                Stop::First(side_task) => Attempt::First(side_task),
                Stop::RetryAfter(event) => Attempt::Wait(event, live.events.wait(event)),
                Stop::Fault(fault) => return Err(fault),
            });
        }
        let Parts { mut changes, mut after, notices, noted } = t.into_parts();
        let effects = changes.take_effects();
        if !noted.is_empty() {
            let known = self.enter(&mut changes, &live.changelog, call, noted)?;
            after.push(Box::new(|live| live.changelog = known));
        }
        let encode = row.filter(|_| {
            call.wants_row()
                && live.sessions.contains_key(&call.session)
                && !brindle_stdx::planted("mds_reply_row_outside_batch")
        });
        let stored = encode.map(|row| row.stored(&out));
        if let Some((body, _)) = &stored {
            reply::put(&mut changes, (call.session, call.slot), call.sequence, call.op, body);
        }
        let pos = match changes.is_empty() {
            true => self.engine.last_pos(),
            false => self.engine.append(changes)?,
        };
        if let Some((body, is_whole)) = stored {
            call.set_stored(is_whole.then_some(body));
        }
        after.into_iter().for_each(|change| change(&mut live));
        cache_updates::behind(&mut live, call, effects, pos.index, self.seams.now());
        Ok(Attempt::Done(out, pos, notices))
    }

    /// Records of the changelog go into the batch of their change.
    fn enter(
        &self,
        changes: &mut Changes<'_>,
        known: &changelog::Known,
        call: &Call,
        mut noted: Vec<Change>,
    ) -> Result<changelog::Known> {
        let nid = self.notifier.nid(call.session).unwrap_or_default();
        noted.iter_mut().for_each(|change| change.nid.clone_from(&nid));
        self.changelog.enter(changes, known, &noted, self.engine.is_space_low())
    }

    fn look<R>(&self, f: impl FnOnce(&Txn<'_>) -> Result<R>) -> Result<(R, LogPos)> {
        let live = self.live.read();
        let out = f(&Txn::new(self, &live))?;
        Ok((out, self.engine.last_pos()))
    }

    async fn wait_event(&self, what: &'static str, event: Event, told: oneshot::Receiver<()>) {
        let _listed = self.waits.enter(what, || format!("{event:?}"));
        // The sender is dropped, not used: both outcomes mean that it happened.
        let _ = in_part(Part::Others, told).await;
    }
}

fn reply_row<R: Serialize>(out: &R) -> Bytes {
    encode_body(&Ok::<&R, Fault>(out))
}

/// Whether an outcome is the answer for good. After the others, the same request may be sent again.
fn is_final<R>(outcome: &Result<R>) -> bool {
    use Code::{Disconnected, KvDamaged, LogFailed, NotOwner, Overloaded, Shutdown, StaleSession};
    let passing = [StaleSession, LogFailed, KvDamaged, Overloaded, Disconnected, NotOwner, Shutdown];
    !matches!(outcome, Err(fault) if passing.contains(&fault.code))
}

fn check_session(live: &Live, call: &Call) -> Result<()> {
    if live.session(call.session, call.epoch).is_some() || brindle_stdx::planted("mds_stale_epoch_accepted") {
        return Ok(());
    }
    Err(stale_session(call))
}

fn stale_session(call: &Call) -> Fault {
    Fault::new(Code::StaleSession).subject(format!("{} of epoch {}", call.session, call.epoch))
}

fn rerun_too_often(what: &'static str) -> Fault {
    Fault::new(Code::Bug).what("an operation found no end").subject(what)
}

fn highest_inode(engine: &Engine) -> Result<u64> {
    let mut highest = 0;
    store::for_each(engine, &[store::keys::INODE], |key, _| {
        highest = store::keys::split_ino(key).map_or(highest, |(ino, _)| ino.counter());
        Ok(true)
    })?;
    Ok(highest)
}

/// The mark of an operation of several steps on an inode: others wait until it is dropped.
pub struct Busy<'a> {
    mdt: &'a Mdt,
    ino: Ino,
    set: Arc<AtomicBool>,
}

impl<'a> Busy<'a> {
    /// A mark that is not set yet.
    pub fn new(mdt: &'a Mdt, ino: Ino) -> Busy<'a> {
        Busy { mdt, ino, set: Arc::default() }
    }

    /// Sets the mark with the batch of `t`; waits for the one that is set.
    pub fn set(&self, t: &mut Txn<'_>) -> Step<()> {
        t.idle(self.ino)?;
        let (ino, set) = (self.ino, self.set.clone());
        t.after(move |live| {
            live.busy.insert(ino);
            set.store(true, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Sets the mark with the batch of `t`, to finish a cut that a restart interrupted.
    pub fn take_over(&self, t: &mut Txn<'_>) -> Step<()> {
        if t.live().busy.contains(&self.ino) {
            return Err(Stop::RetryAfter(Event::Idle(self.ino)));
        }
        let (ino, set) = (self.ino, self.set.clone());
        t.after(move |live| {
            live.busy.insert(ino);
            set.store(true, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Gives the mark up with the batch of `t`.
    pub fn clear(&self, t: &mut Txn<'_>) {
        let (ino, set) = (self.ino, self.set.clone());
        t.after(move |live| {
            if set.swap(false, Ordering::Relaxed) {
                live.busy.remove(&ino);
                live.cut_short.remove(&ino);
                live.events.fire(Event::Idle(ino));
            }
        });
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.set.load(Ordering::Relaxed) {
            let mut live = self.mdt.live_mut();
            live.busy.remove(&self.ino);
            live.events.fire(Event::Idle(self.ino));
        }
    }
}

/// The epoch and id of a session for messages of the MDT's own.
pub fn session_pair(live: &Live, id: SessionId) -> Option<Pair> {
    live.sessions.get(&id).map(|s| s.row.epoch)
}
