//! State that the handles of one inode share: layout, epochs, leases, the end of the file as far as it is known, writes that are not
//! reported or not synced.
//!
//! Changed by opens, reads and writes ([`crate::file`]) and by notices of the MDT ([`crate::notices`]).
//!
//! Invariants: an inode is in the table while it has a handle, or an open under way, so no notice for it is missed;
//! an answer that crossed a notice never gives a right ([`Asked`]); epochs never go back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use brindle_targets::Identity;
use brindle_types::attr::Time;
use brindle_types::{Ino, Layout, Pair, Stripe};
use brindle_wire::mds::open::{OpenGrant, OpenMode};
use brindle_wire::oss::Ticket;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::accesses::AccessDue;
use crate::quota::{KnownProject, Owners};
use crate::readahead::{Chunks, Seen};
use crate::unsynced::{Budget, Plan, Unsynced};

mod drops;
mod guards;
mod meanwhile;
mod pending;
mod reads;
mod table;
#[cfg(test)]
mod tests;
mod write_buffer;

pub(crate) use drops::{Drops, Wanted};
pub(crate) use guards::{Abandoned, Converting, Cutting};
pub(crate) use pending::{Carry, Due, Naming, Numbers, Pending};
pub use reads::ReadGuard;
pub(crate) use reads::Reads;
pub(crate) use table::{Hold, Inodes};
pub(crate) use write_buffer::{Author, Taken, WriteBuffer};

/// State of one inode with handles.
pub(crate) struct Inode {
    pub ino: Ino,
    state: Mutex<State>,
    /// Page reads under way.
    pub reads: Arc<Reads>,
    /// Bytes that were read ahead.
    pub chunks: Mutex<Chunks>,
    /// Held over an append. An append at our own end or in the MDT holds it alone; appends at places of the MDT share it.
    pub append: tokio::sync::RwLock<()>,
    /// Held while the layout is fetched or changed, so that one caller asks for all.
    pub relayout: tokio::sync::Mutex<()>,
    /// Held over an fsync, so that the next fsync covers all writes that came meanwhile.
    pub syncing: tokio::sync::Mutex<()>,
    /// Signalled when [`State::background`], [`State::appending`], [`State::changing`], [`State::rewriting`]
    /// or [`State::closing`] go down, when an entry of [`State::behind`] or [`State::drops`] is over, or when
    /// [`State::cutting`] goes up.
    pub quiet: Notify,
}

/// The changing part of an [`Inode`].
#[derive(Default)]
pub(crate) struct State {
    /// Layout of the file; `None` before the first grant.
    pub layout: Option<Arc<Layout>>,
    /// Epoch of the last partial truncate.
    pub truncate_epoch: Pair,
    /// Epoch of the last explicit change of times.
    pub attr_epoch: Pair,
    /// No client writes the file: pages of `Cached` handles need no marks, and the size is fixed.
    pub cached: bool,
    /// Whether this session is the sole writer: then its end is the file's.
    pub exclusive: bool,
    /// Whether layout and epochs must be fetched before the next I/O.
    pub stale: bool,
    /// Whether the size must be asked for, whatever leases are held.
    pub size_stale: bool,
    /// The file has at least this size, and exactly this one while [`State::size_exact`].
    pub size_bytes: u64,
    /// The highest end of the bytes that the MDT has got from this client since [`State::notices`] was last counted up. Answers to older
    /// requests do not include these bytes. The value counts while we are the sole writer; such an answer may make us the sole writer.
    pub small_end: u64,
    /// The restore that reads of the file wait for, while the file is released.
    pub restoring: Option<Pair>,
    /// All contents of the file, while they lie in the MDT and nobody writes.
    pub inline: Option<Bytes>,
    /// Changes that were not reported to the MDT yet.
    pub pending: Pending,
    /// Start of the last write, by the MDT's clock.
    pub written_at: Option<Time>,
    /// Write-behind: acknowledged bytes that the OSTs do not have yet.
    pub behind: WriteBuffer,
    /// Unsynced writes by stripe.
    pub unsynced: BTreeMap<Stripe, Unsynced>,
    /// Allocated bytes by stripe, of the objects that have answered since we became the sole writer.
    pub allocated: BTreeMap<Stripe, u64>,
    /// The body of the file, if it had no objects when we became the sole writer: then only objects that we have written exist.
    pub made_body: Option<Pair>,
    /// Owners whose limits count for writes.
    pub owners: Option<Owners>,
    /// The project of the file. `None` unless limits of projects have made the mount ask since the last open.
    pub project: Option<KnownProject>,
    /// Range in which every block is allocated, or was charged to its owners.
    pub allocated_range: Range<u64>,
    /// How often the range was forgotten.
    pub allocated_range_epoch: u64,
    /// Allocated bytes of the file at its last close by a writer. `None` unless every object reported its allocation.
    pub counted: Option<u64>,
    /// Stripes written synchronously since the MDT was told of their objects.
    pub synced_now: BTreeSet<Stripe>,
    /// Counts changes of contents by this client; orders [`State::unsynced`].
    pub changes: u64,
    /// Counts notices.
    pub notices: u64,
    /// Counts notices of truncates by other clients.
    pub cuts: u64,
    /// Highest truncate epoch that a notice of a truncate has reported: ends are from after that truncate.
    pub cut_told: Pair,
    /// Counts possible changes of the contents by any client: changes of this client when they begin and end, and orders to drop pages.
    pub contents: u64,
    /// Last change of the contents that the MDT made for this client and that no fsync has covered.
    pub changed: Option<Pair>,
    /// The MDT has restarted: the next answer shows whether a power cut took changes from it.
    pub recheck: bool,
    /// A power cut took acknowledged changes, and the handles do not know yet.
    pub lost: bool,
    /// End up to which this client had written the file when it last gave its handles back.
    pub closed_end: Option<ClosedEnd>,
    /// Appends under way at places that the MDT gives, by their numbers.
    pub appends: BTreeMap<u64, PlacedAppend>,
    /// End of an append under way at our own end.
    pub appending: Option<u64>,
    /// Invalidations that page writebacks left to the background.
    pub background: usize,
    /// Changes of the size by this client that the MDT has not answered. Meanwhile the kernel of this client writes no page back.
    pub cutting: usize,
    /// Changes of objects under way.
    pub changing: usize,
    /// Number of callers that are about to move or cut the bytes. While it is not 0, writes are not buffered.
    pub converting: usize,
    /// The body of the file while it lies in the MDT, if the file is being moved and the OSTs have space for its buffered bytes.
    pub outgrows: Option<Pair>,
    /// Callers that wait to write lost bytes again. No change begins until they have done so.
    pub rewriters: usize,
    /// Whether bytes that an OST lost are being written again.
    pub rewriting: bool,
    /// The objects are being synced for a move.
    pub settling: bool,
    /// Pages that are being dropped.
    pub drops: Drops,
    /// Handles that can write.
    pub writers: usize,
    /// System calls under way that change the contents, begun since the file last had no writable handle.
    pub calls: usize,
    /// How many times the file came to have no writable handle.
    pub last_closes: u64,
    /// Counts ends of sessions. Calls from before the last end are in no other counter.
    pub session_ends: u64,
    /// Calls that killed programs have left under way; they come before any write of others. Also changes that were given up because an
    /// OST is away ([`Abandoned`]).
    pub abandoned: usize,
    /// When a read is to be noted for the time of last access.
    pub access_due: AccessDue,
    /// Handles that are closed here and that the MDT is not known to have taken back.
    pub closing: usize,
}

/// End up to which a client has written a file that lies in objects, as its close told the MDT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedEnd {
    end_bytes: u64,
    body: Pair,
    truncate_epoch: Pair,
}

impl ClosedEnd {
    /// Whether the end is of these contents, and no client has cut them since.
    fn is_of(&self, body: Pair, truncate_epoch: Pair) -> bool {
        (self.body, self.truncate_epoch) == (body, truncate_epoch)
    }
}

/// An append under way at a place that the MDT gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedAppend {
    /// The session with which the append ends.
    pub session: Identity,
    pub len_bytes: u64,
    /// Reserved offset while bytes are being written there, with the truncate epoch of the reservation.
    pub writing_at: Option<(u64, Pair)>,
}

/// Taken before a request to the MDT. If a notice came between request and answer, the answer is not trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    notices: u64,
}

/// A copy of what one I/O needs.
#[derive(Clone)]
pub(crate) struct LayoutSnapshot {
    pub layout: Arc<Layout>,
    pub ticket: Ticket,
    pub exclusive: bool,
    pub cached: bool,
    /// [`State::cuts`].
    pub cuts: u64,
}

impl LayoutSnapshot {
    /// The right to use the object of a stripe.
    pub fn ticket_for(&self, stripe: Stripe) -> Ticket {
        Ticket { must_exist: self.layout.object_known(stripe), ..self.ticket }
    }
}

impl Inode {
    fn new(ino: Ino, numbers: Numbers) -> Inode {
        Inode {
            ino,
            state: Mutex::new(State { pending: Pending::new(numbers), ..State::default() }),
            reads: Arc::default(),
            chunks: Mutex::default(),
            append: tokio::sync::RwLock::default(),
            relayout: tokio::sync::Mutex::default(),
            syncing: tokio::sync::Mutex::default(),
            quiet: Notify::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Taken before a request whose answer carries rights, sizes or epochs.
    pub fn asked(&self) -> Asked {
        Asked { notices: self.lock().notices }
    }

    /// The snapshot that an I/O needs, if it is known.
    pub fn snapshot(&self) -> Option<LayoutSnapshot> {
        self.lock().snapshot()
    }

    /// Whether bytes that were read under `snapshot` are still the file's: the file was neither moved nor cut since. (An OST does not know
    /// an object that was given up meanwhile, and answers a hole.)
    pub fn is_still(&self, snapshot: &LayoutSnapshot) -> bool {
        let epochs =
            |snapshot: &LayoutSnapshot| (snapshot.ticket.layout_epoch, snapshot.ticket.truncate_epoch);
        self.snapshot().is_some_and(|now| epochs(&now) == epochs(snapshot))
    }

    /// Waits until `done` holds of the state, for changes that [`Inode::quiet`] signals.
    pub async fn wait_until(&self, done: impl Fn(&State) -> bool) {
        self.wait_then(done, |_| {}).await;
    }

    /// Waits as [`Inode::wait_until`] does, and changes the state at the moment at which `done` holds.
    async fn wait_then(&self, done: impl Fn(&State) -> bool, change: impl FnOnce(&mut State)) {
        loop {
            let mut woken = std::pin::pin!(self.quiet.notified());
            woken.as_mut().enable();
            {
                let mut state = self.lock();
                if done(&state) {
                    return change(&mut state);
                }
            }
            woken.await;
        }
    }
}

impl State {
    pub fn snapshot(&self) -> Option<LayoutSnapshot> {
        if self.stale { None } else { self.last_layout() }
    }

    /// The snapshot that was known last, however old it is.
    pub fn last_layout(&self) -> Option<LayoutSnapshot> {
        let layout = self.layout.clone()?;
        let ticket = Ticket {
            layout_epoch: layout.epoch,
            truncate_epoch: self.truncate_epoch,
            attr_epoch: self.attr_epoch,
            must_exist: false,
        };
        Some(LayoutSnapshot {
            layout,
            ticket,
            exclusive: self.exclusive,
            cached: self.cached,
            cuts: self.cuts,
        })
    }

    /// The contents as the OSTs have them under `snapshot`, for bytes that are kept. `None` if an I/O would now see other contents, if
    /// this client changes them, or if it has not sent all its changes.
    pub fn seen(&self, snapshot: &LayoutSnapshot) -> Option<Seen> {
        let ours = self.changing > 0 || self.cutting > 0 || self.rewriting || !self.behind.is_empty();
        let now = self
            .snapshot()
            .filter(|now| now.ticket == snapshot.ticket && now.layout.body == snapshot.layout.body)?;
        (!ours).then_some(Seen { contents: self.contents, body: now.layout.body, ticket: now.ticket })
    }

    /// Whether programs got answers for changes that the MDT may not know.
    pub fn has_news(&self) -> bool {
        self.pending.due() || !self.behind.is_empty()
    }

    /// Whether `size_bytes` is the exact size, not only a lower bound.
    pub fn size_exact(&self) -> bool {
        (self.cached || self.exclusive) && !self.size_stale
    }

    /// Takes in layout and epochs. If no notice crossed the answer, takes in its size too. Never gives a right.
    pub fn take_grant(&mut self, asked: Asked, grant: &OpenGrant, size_bytes: Option<u64>) {
        if self.recheck && !self.crossed(asked) {
            self.recheck = false;
            self.go_back_to(grant);
        }
        let old = self.layout.as_deref();
        let moved = old.is_some_and(|old| old.body != grant.layout.body);
        if old.is_none_or(|old| grant.layout.epoch >= old.epoch) {
            let leaves_mdt = old.is_some_and(|old| old.inline && !grant.layout.inline);
            if leaves_mdt && self.exclusive {
                self.no_more_sectors();
            } else if moved {
                self.void_allocated_range();
            }
            if moved {
                // The old objects are gone, and with them all that was written to them: the file was emptied, or its
                // bytes moved out of the MDT into objects. The size has to be asked for.
                self.unsynced.clear();
                self.allocated.clear();
                self.pending.cut(0);
                self.size_bytes = 0;
                self.size_stale = true;
            }
            self.layout = Some(Arc::new(grant.layout.clone()));
        }
        if grant.truncate_epoch > self.truncate_epoch {
            self.truncate_epoch = grant.truncate_epoch;
            self.allocated.clear();
            self.void_allocated_range();
            self.unsynced.values_mut().for_each(Unsynced::drop_bytes);
            if self.cut_told < grant.truncate_epoch {
                // The truncate was made while we had no handle at the MDT, or is our own, or a notice will report it. Ends from before the
                // truncate do not count any more.
                self.pending.cut(0);
            }
            self.small_end = 0;
            self.size_stale = true;
        }
        self.take_attr_epoch(grant.attr_epoch);
        if self.crossed(asked) {
            self.stale = true;
            self.size_stale = true;
        } else {
            self.stale = false;
            if let Some(size_bytes) = size_bytes {
                self.take_size(asked, size_bytes);
            }
        }
    }

    /// A restarted MDT may be at an earlier state than the one that we know: a power cut took unsynced changes. The client then goes back
    /// to the MDT's state, and loses the writes that were made upon the lost state.
    fn go_back_to(&mut self, grant: &OpenGrant) {
        let layout = self.layout.as_deref().is_some_and(|old| old.epoch > grant.layout.epoch);
        let contents = self.changed.is_some_and(|own| own > grant.changed);
        if !layout && !contents && self.truncate_epoch <= grant.truncate_epoch {
            return;
        }
        self.lost |= contents || !self.unsynced.is_empty() || !self.behind.is_empty();
        self.changed = None;
        self.outgrows = None;
        self.unsynced.clear();
        self.allocated.clear();
        self.void_allocated_range();
        self.pending.forget();
        self.small_end = 0;
        self.layout = None;
        (self.truncate_epoch, self.attr_epoch) = (grant.truncate_epoch, grant.attr_epoch);
        self.no_longer_cached();
        self.size_bytes = 0;
        self.size_stale = true;
    }

    /// The MDT has changed the contents for this client.
    pub fn changed_at_mdt(&mut self, changed: Pair) {
        self.changed = self.changed.max(Some(changed));
    }

    /// Notes that changes of the MDT up to `changed` are durable.
    pub fn synced_at_mdt(&mut self, changed: Option<Pair>) {
        self.changed = self.changed.filter(|own| Some(*own) > changed);
    }

    /// The last writer closes the file: the allocation of its objects is known until somebody opens it again.
    pub fn count_allocated(&mut self) {
        // Calls that killed programs have left under way may allocate more.
        let is_quiet = self.calls + self.abandoned == 0;
        self.counted = self.allocated_bytes().filter(|_| is_quiet);
    }

    /// The rights that an open, a create or a reclaim gives; none if a notice crossed the answer.
    pub fn take_mode(&mut self, asked: Asked, grant: &OpenGrant) {
        self.counted = None;
        let good = !self.crossed(asked);
        match grant.mode {
            OpenMode::Cached => {
                self.cached = good;
                self.inline = grant.inline.clone().filter(|_| good);
            }
            OpenMode::Exclusive => {
                self.no_longer_cached();
                if good {
                    if !self.exclusive {
                        self.allocated.clear();
                        self.made_body = None;
                    }
                    self.exclusive = true;
                } else {
                    self.no_longer_exclusive();
                }
            }
            OpenMode::Direct => self.no_longer_cached(),
        }
    }

    /// Takes in the grant of a handle that was reclaimed after a restart. Returns whether pages may still be kept. A right that was not
    /// declared is not given.
    pub fn reclaimed(&mut self, asked: Asked, grant: &OpenGrant) -> bool {
        let (was_cached, was_exclusive) = (self.cached, self.exclusive);
        let (epoch_before, was_stale) = (self.truncate_epoch, self.stale);
        // The grant counts even if a notice has crossed it: the restarted MDT cannot have given any other answer before.
        self.recheck = false;
        self.go_back_to(grant);
        self.take_grant(asked, grant, None);
        self.take_mode(asked, grant);
        if !was_cached {
            self.no_longer_cached();
        }
        self.exclusive &= was_exclusive;
        self.size_stale |= !self.exclusive;
        // The restart may have interrupted the truncate of this epoch. An OST that has not made it yet would cut bytes that are written
        // under the epoch. A caller that asks for the layout waits for the end of the truncate. (The epoch may have come with another
        // handle of the file.)
        self.stale |= was_stale || self.truncate_epoch > epoch_before;
        self.cached
    }

    /// Marks the state as doubtful: there may be changes without a notice to us.
    pub fn doubt(&mut self) {
        self.noticed();
        // The answer of the MDT was lost. If it gave a right, the MDT will recall it when it has to.
        self.no_longer_cached();
        self.stale = true;
        self.size_stale = true;
        self.recheck = true;
    }

    /// A second client writes, or is about to: kept pages do not count any more.
    pub fn no_longer_cached(&mut self) {
        self.contents += u64::from(self.cached);
        self.cached = false;
        self.inline = None;
    }

    /// Gives up the exclusive right, and returns whether it was held. Other clients may write from now on, and older bytes of this client
    /// must not overwrite theirs.
    pub fn no_longer_exclusive(&mut self) -> bool {
        self.unsynced.values_mut().for_each(Unsynced::drop_bytes);
        self.allocated.clear();
        self.made_body = None;
        self.void_allocated_range();
        std::mem::take(&mut self.exclusive)
    }

    /// Takes in the size that the MDT returned; our own end counts while we are the sole writer.
    pub fn take_size(&mut self, asked: Asked, size_bytes: u64) {
        if self.crossed(asked) {
            return;
        }
        self.size_stale = false;
        let own_end = self.pending.end_bytes.max(self.behind_end()).max(self.small_end);
        self.size_bytes = if self.exclusive { size_bytes.max(own_end) } else { size_bytes };
    }

    /// The end for [`State::closed_end`] at the next open of the file.
    fn left_end(&self) -> Option<ClosedEnd> {
        // Without a layout nothing was asked since the last close, so the old end still counts.
        let Some(layout) = &self.layout else { return self.closed_end };
        if layout.inline {
            return None;
        }
        let (body, truncate_epoch) = (layout.body, self.truncate_epoch);
        let told = if self.pending.due() { 0 } else { self.pending.end_bytes };
        let before =
            self.closed_end.filter(|left| left.is_of(body, truncate_epoch)).map_or(0, |left| left.end_bytes);
        let end_bytes = told.max(before);
        (end_bytes > 0).then_some(ClosedEnd { end_bytes, body, truncate_epoch })
    }

    /// Compares the size at an open with the end that this client had reported before. If the MDT's size is smaller, with the same
    /// contents and no truncate since, a power cut has taken the report; bytes in the objects after that size belong to no file. (A size
    /// alone must not be compared: without its epochs it may be from after a truncate that we have not heard of.)
    pub fn compare_end(&mut self, grant: &OpenGrant, size_bytes: u64) {
        let is_same = |left: &ClosedEnd| left.is_of(grant.layout.body, grant.truncate_epoch);
        if self.closed_end.filter(is_same).is_some_and(|left| size_bytes < left.end_bytes) {
            self.closed_end = None;
            self.lost = true;
        }
    }

    /// The end of acknowledged writes that the servers do not have.
    pub fn behind_end(&self) -> u64 {
        self.layout.as_ref().map_or(0, |layout| self.behind.end_bytes(layout.body))
    }

    /// Notes that the MDT has taken bytes up to `end_bytes`; the file had `size_bytes` then.
    pub fn wrote_at_mdt(&mut self, asked: Asked, end_bytes: u64, size_bytes: u64) {
        self.inline = None;
        if self.crossed(asked) || self.cutting > 0 {
            // The size may be outdated, and so may answers to requests that were sent earlier.
            self.size_stale = true;
            self.noticed();
        } else {
            self.small_end = self.small_end.max(end_bytes);
            self.take_size(asked, size_bytes);
        }
    }

    /// Notes that the last writable handle is closed: calls under way are calls of killed programs.
    pub fn abandon_calls(&mut self) {
        self.abandoned += std::mem::take(&mut self.calls);
        self.last_closes += 1;
    }

    /// Notes that the session is over, and that no OST takes anything of it any more: the calls under way need not be waited for.
    pub fn forget_calls(&mut self) {
        (self.calls, self.abandoned) = (0, 0);
        self.session_ends += 1;
    }

    fn cut_is_over(&mut self) {
        self.cutting -= 1;
        self.contents += 1;
    }

    /// Takes in the answer to a truncate or an extension of the file by this client.
    pub fn take_cut(&mut self, asked: Asked, grant: Option<&OpenGrant>, size_bytes: u64) {
        let is_known = grant.is_some_and(|grant| grant.truncate_epoch <= self.truncate_epoch);
        if let Some(grant) = grant {
            self.take_grant(asked, grant, None);
        }
        if is_known {
            // The epoch was fetched meanwhile with the layout; later writes are from after the truncate.
            self.size_stale = true;
            self.inline = None;
        } else {
            self.cut(asked, size_bytes);
        }
    }

    fn cut(&mut self, asked: Asked, size_bytes: u64) {
        self.void_allocated_range();
        self.pending.cut(size_bytes);
        self.small_end = self.small_end.min(size_bytes);
        self.inline = None;
        self.allocated.clear();
        if size_bytes == 0 {
            self.unsynced.clear();
        } else {
            self.unsynced.values_mut().for_each(Unsynced::drop_bytes);
        }
        self.size_bytes = size_bytes;
        self.size_stale = self.crossed(asked);
    }

    /// Notes a change of our own: an answer to an earlier request may show the state before it.
    pub fn overtaken(&mut self) {
        self.noticed();
    }

    /// Times were set: reports of earlier writes do not change them.
    pub fn take_attr_epoch(&mut self, epoch: Pair) {
        if epoch > self.attr_epoch {
            self.attr_epoch = epoch;
            self.pending.times_set();
        }
    }

    /// Whether a notice came since the request.
    pub fn crossed(&self, asked: Asked) -> bool {
        self.notices != asked.notices
    }

    /// Notes a notice: answers to present requests are not to be trusted.
    pub fn noticed(&mut self) {
        self.notices += 1;
        self.void_allocated_range();
        // The answer to every later request includes those bytes.
        self.small_end = 0;
    }

    /// Whether the contents are still those that `snapshot` saw, not emptied and not moved since.
    pub fn same_body(&self, snapshot: &LayoutSnapshot) -> bool {
        self.layout.as_deref().is_some_and(|now| now.body == snapshot.layout.body)
    }

    /// Whether the file may have been truncated since `snapshot`.
    fn may_be_cut_since(&self, snapshot: &LayoutSnapshot) -> bool {
        self.told_of_cut_since(snapshot) || self.truncate_epoch != snapshot.ticket.truncate_epoch
    }

    /// Whether another client's truncate was reported since `snapshot`, made or given up. An OST may have cut bytes that were written
    /// under `snapshot` before the truncate or after it. (A completed truncate of our own is no case: an OST took the write before it, or
    /// refused the write.)
    pub fn told_of_cut_since(&self, snapshot: &LayoutSnapshot) -> bool {
        self.cuts != snapshot.cuts
    }

    /// Notes an unsynced change of an object; the bytes are kept if there is a budget with space for them.
    pub fn changed(
        &mut self,
        snapshot: &LayoutSnapshot,
        stripe: Stripe,
        boot_term: u32,
        offset: u64,
        parts: &[Bytes],
        keep: Option<&Arc<Budget>>,
    ) {
        self.changes += 1;
        let unsynced = self.unsynced.entry(stripe).or_default();
        let keep = keep.filter(|_| self.exclusive && snapshot.ticket.truncate_epoch == self.truncate_epoch);
        if parts.is_empty() {
            unsynced.add_unkept(self.changes, boot_term);
        }
        let mut at = offset;
        for part in parts {
            unsynced.add(self.changes, boot_term, at, part, keep);
            at += part.len() as u64;
        }
    }

    /// A write up to `end_bytes` is done. If a truncate has overtaken the write, the write does not move the end. If explicit times have
    /// overtaken it, it does not move the times.
    pub fn wrote(&mut self, snapshot: &LayoutSnapshot, end_bytes: u64, kill_suidgid: bool) {
        let cut = self.may_be_cut_since(snapshot) || !self.same_body(snapshot);
        let end_bytes = if cut { 0 } else { end_bytes };
        if snapshot.ticket.attr_epoch == self.attr_epoch {
            self.pending.wrote(end_bytes, kill_suidgid);
        } else {
            self.pending.reserve(end_bytes);
        }
        self.size_bytes = self.size_bytes.max(end_bytes);
    }

    /// Notes that a write of a stripe was synced under a boot term of its OST, and with it the whole object. Earlier writes of the object,
    /// up to `mark` ([`State::changes`] when the write was sent), are then synced too, if none of them was lost before.
    pub fn synced_with(&mut self, stripe: Stripe, boot_term: u32, mark: u64) {
        let Some(unsynced) = self.unsynced.get_mut(&stripe) else { return };
        if unsynced.plan(boot_term) == Plan::Nothing && unsynced.synced(mark) {
            self.unsynced.remove(&stripe);
        }
    }

    /// Notes that the file has bytes up to `end_bytes` without an answer to any caller. An append at our own end is excepted: the next try
    /// begins at the same offset.
    pub fn reserved(&mut self, snapshot: &LayoutSnapshot, end_bytes: u64) {
        if !self.may_be_cut_since(snapshot) && self.same_body(snapshot) && self.appending.is_none() {
            self.pending.reserve(end_bytes);
            self.size_bytes = self.size_bytes.max(end_bytes);
        }
    }

    /// Whether the MDT's counters include all that this client has written, once its reports are delivered.
    pub fn reports_allocated(&self) -> bool {
        let is_inline = self.layout.as_ref().is_some_and(|layout| layout.inline);
        is_inline || self.allocated_bytes().is_some()
    }

    /// Allocated bytes of the file, if all its objects have reported theirs since no other client writes it.
    pub fn allocated_bytes(&self) -> Option<u64> {
        let layout = match self.exclusive {
            true => self.layout.as_deref()?,
            false => return self.counted,
        };
        let has_made_all = self.made_body == Some(layout.body);
        let of = |stripe: Stripe| match self.allocated.get(&stripe) {
            None if has_made_all && !layout.object_known(stripe) => Some(0),
            told => told.copied(),
        };
        layout.stripes().map(|(stripe, _)| of(stripe)).sum()
    }
}
