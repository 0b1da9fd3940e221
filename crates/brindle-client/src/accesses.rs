//! Times of last access: reads are noted here and told to the MDT many at once (design note 045).
//!
//! A read costs no request. A file is noted when a read may change the time of its last access by the rule of `relatime`; the MDT decides.
//! Until the MDT has answered, this mount shows the noted time itself.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use brindle_stdx::Mono;
use brindle_types::attr::{ACCESS_AGE_SECS, Time, access_counts};
use brindle_types::{Attr, Code, Fault, Ino, Pair};
use brindle_wire::mds::note_access::{ACCESSES_MAX, Accessed, NoteAccessReq};
use parking_lot::Mutex;

use crate::Client;
use crate::handles::Handle;
use crate::inodes::Inode;

/// How long reads are gathered before the MDT is told.
const GATHER_MS: u64 = 5_000;
/// Interval of the checks whether the time has come.
const LOOK_EVERY_MS: u64 = 1_000;
/// Most files that are noted. Beyond this number reads are noted when there is space again.
const WAITING_MAX: usize = 1 << 16;
/// How long told reads are remembered, at least: the MDT syncs its log within a second, and a power cut before the sync takes them. The
/// session's lease is renewed more often, so a held lease proves that the MDT has lived that long.
const TOLD_KEPT_MS: u64 = 10_000;
/// Interval at which a file that is read and written all the time is noted.
const AGAIN_MS: u64 = 60_000;
/// Interval of the checks of open files with pages of the kernel: the kernel reads those pages without telling the mount.
const PAGES_EVERY_MS: u64 = 3_600_000;

/// When the next read of a file is to be noted. The default: at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccessDue {
    from: Mono,
    noted: Option<Mono>,
    /// [`crate::inodes::State::contents`] at that time.
    contents: u64,
}

impl AccessDue {
    /// By the attributes that an open was answered with; `time` is the MDT's clock.
    pub fn by(attr: &Attr, time: Time, now: Mono, contents: u64) -> AccessDue {
        let is_due = attr.atime <= attr.mtime.max(attr.ctime);
        let left_secs = attr.atime.secs.saturating_add(ACCESS_AGE_SECS).saturating_sub(time.secs);
        let left_ms = u64::try_from(left_secs).unwrap_or(0).saturating_mul(1000);
        AccessDue { from: if is_due { now } else { now.plus_ms(left_ms) }, noted: Some(now), contents }
    }

    fn is_due(&self, now: Mono, contents: u64) -> bool {
        let has_changed = contents != self.contents;
        let was_noted = self.noted.is_some_and(|noted| now.ms_since(noted) < AGAIN_MS);
        self.is_old(now) || has_changed && !was_noted
    }

    /// Whether the known time is so old that any use of the file changes it.
    fn is_old(&self, now: Mono) -> bool {
        now >= self.from
    }

    fn noted(now: Mono, contents: u64) -> AccessDue {
        let from = now.plus_ms(ACCESS_AGE_SECS as u64 * 1000);
        AccessDue { from, noted: Some(now), contents }
    }
}

/// A read that is to be reported to the MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    at: Time,
    attr_epoch: Pair,
}

type Batch = Vec<(Ino, Noted)>;

/// Reported reads, with the time and the era of the session.
struct ReportedReads {
    at: Mono,
    era: u64,
    files: Batch,
}

/// Files that were read.
#[derive(Default)]
pub(crate) struct Accesses {
    inner: Mutex<Inner>,
    /// Held while a batch is under way: an unmount waits for it.
    telling: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inner {
    waiting: BTreeMap<Ino, Noted>,
    /// When the first of them was noted.
    since: Option<Mono>,
    /// Reads that are being reported at this moment.
    sending: BTreeMap<Ino, Noted>,
    /// At most [`WAITING_MAX`] files.
    told: VecDeque<ReportedReads>,
    /// The era in which the MDT was of a release that keeps no access times.
    off_in: Option<u64>,
}

impl Accesses {
    /// Notes a read; returns whether there was space.
    fn note(&self, ino: Ino, read: Noted, now: Mono) -> bool {
        let mut inner = self.inner.lock();
        if inner.waiting.len() >= WAITING_MAX && !inner.waiting.contains_key(&ino) {
            return false;
        }
        inner.waiting.insert(ino, read);
        inner.since.get_or_insert(now);
        true
    }

    /// Forgets the last read of a file, because a program here sets the time. Returns the read that was forgotten.
    fn forget(&self, ino: Ino) -> Option<Noted> {
        let mut inner = self.inner.lock();
        let (waiting, sending) = (inner.waiting.remove(&ino), inner.sending.remove(&ino));
        let mut last = None;
        for told in &mut inner.told {
            let gone = told.files.extract_if(.., |(other, _)| *other == ino);
            last = gone.last().map(|(_, read)| read).or(last);
        }
        waiting.or(sending).or(last)
    }

    /// The time was not set: the forgotten read counts again, unless there was a later read.
    fn remember(&self, ino: Ino, read: Noted, now: Mono) {
        let mut inner = self.inner.lock();
        if inner.waiting.len() < WAITING_MAX {
            inner.tell_again(ino, read, now);
        }
    }

    /// The time of a read that the MDT may not know of.
    fn last(&self, ino: Ino) -> Option<Time> {
        let inner = self.inner.lock();
        let read = inner.waiting.get(&ino).or_else(|| inner.sending.get(&ino))?;
        Some(read.at)
    }

    /// The next files to report, if their time has come; the caller reports the outcome. `is_held`: whether the lease of the session is
    /// held.
    fn take(&self, now: Mono, era: u64, is_held: bool, at_once: bool) -> Batch {
        let mut inner = self.inner.lock();
        inner.untell(now, era, is_held);
        if inner.off_in == Some(era) {
            inner.waiting.clear();
            inner.since = None;
        }
        let is_time = inner.since.is_some_and(|since| now.ms_since(since) >= GATHER_MS);
        if !(is_time || at_once || inner.waiting.len() >= ACCESSES_MAX) {
            return Vec::new();
        }
        let mut batch = Vec::new();
        while batch.len() < ACCESSES_MAX
            && let Some(read) = inner.waiting.pop_first()
        {
            batch.push(read);
        }
        if inner.waiting.is_empty() {
            inner.since = None;
        }
        inner.sending.extend(batch.iter().copied());
        batch
    }

    /// Ends the batch that was taken: it was reported in an era, or could not be reported.
    fn sent(&self, files: Batch, now: Mono, era: u64, outcome: Result<(), Fault>) {
        let mut inner = self.inner.lock();
        let still = |inner: &mut Inner, ino: &Ino| inner.sending.remove(ino).is_some();
        let files: Batch = files.into_iter().filter(|(ino, _)| still(&mut inner, ino)).collect();
        match outcome {
            Ok(()) => inner.told.push_back(ReportedReads { at: now, era, files }),
            Err(fault) => {
                tracing::debug!(code = %fault.code, files = files.len(), "reads were not told: {fault}");
                match fault.code {
                    Code::UnknownOp => inner.off_in = Some(era),
                    // The client has ended, or another request would be refused likewise.
                    Code::Shutdown | Code::InvalidArgument => {}
                    // The list stays bounded: at most as many come back as were taken out.
                    _ => files.into_iter().for_each(|(ino, read)| inner.tell_again(ino, read, now)),
                }
            }
        }
        while inner.told.iter().map(|told| told.files.len()).sum::<usize>() > WAITING_MAX {
            inner.told.pop_front();
        }
    }
}

impl Inner {
    fn tell_again(&mut self, ino: Ino, read: Noted, now: Mono) {
        self.waiting.entry(ino).or_insert(read);
        self.since.get_or_insert(now);
    }

    /// Puts back the reads that a restarted MDT may have lost; forgets those that are surely synced.
    fn untell(&mut self, now: Mono, era: u64, is_held: bool) {
        let mut again = Vec::new();
        self.told.retain_mut(|told| {
            let is_synced = is_held && now.ms_since(told.at) >= TOLD_KEPT_MS;
            if told.era != era {
                again.append(&mut told.files);
                return false;
            }
            !is_synced
        });
        again.into_iter().for_each(|(ino, read)| self.tell_again(ino, read, now));
    }
}

impl Client {
    /// A program has read through a handle, or has run or mapped the file.
    pub(crate) fn note_access(&self, handle: &Handle) {
        self.note_if(handle, AccessDue::is_due);
    }

    /// The kernel may have read pages of a file through a handle until now.
    pub(crate) fn note_pages(&self, handle: &Handle) {
        if handle.has_pages.load(Ordering::Relaxed) {
            // For contents that change the kernel asks for new pages.
            self.note_if(handle, |due, now, _| due.is_old(now));
        }
    }

    fn note_if(&self, handle: &Handle, is_due: impl Fn(&AccessDue, Mono, u64) -> bool) {
        if !self.config.switches.access_times || handle.keeps_atime.load(Ordering::Relaxed) {
            return;
        }
        let now = self.seams.now();
        let mut state = handle.inode.lock();
        if !is_due(&state.access_due, now, state.contents) {
            return;
        }
        let Some(at) = self.clock.time(now) else { return };
        if self.accesses.note(handle.inode.ino, Noted { at, attr_epoch: state.attr_epoch }, now) {
            state.access_due = AccessDue::noted(now, state.contents);
        }
    }

    /// Whether an open with these flags leaves the time of last access as it is (O_NOATIME). The mount does not hear of reads from pages
    /// that were kept from an earlier open, so such an open counts as a read.
    pub fn opened_by_program(&self, open: &crate::Opened, keeps_atime: bool) {
        let Ok(handle) = self.handles.get(open.handle) else { return };
        handle.keeps_atime.store(keeps_atime, Ordering::Relaxed);
        if open.keep_cache {
            handle.has_pages.store(true, Ordering::Relaxed);
            self.note_access(&handle);
        }
    }

    /// Notes the next read only if it changes the time of last access that an answer has brought.
    pub(crate) fn access_is_due_by(&self, inode: &Inode, attr: &Attr) {
        let now = self.seams.now();
        let Some(time) = self.clock.time(now).filter(|_| self.config.switches.access_times) else { return };
        // Reads that the MDT does not know yet were made here.
        let last = self.accesses.last(attr.ino).unwrap_or(attr.atime).max(attr.atime);
        let mut state = inode.lock();
        state.access_due = AccessDue::by(&Attr { atime: last, ..attr.clone() }, time, now, state.contents);
    }

    /// Attributes with the time of a read that was perhaps not reported to the MDT.
    pub fn with_last_access(&self, mut attr: Attr) -> Attr {
        if let Some(at) = self.accesses.last(attr.ino)
            && access_counts(attr.atime, (attr.mtime, attr.ctime), at)
        {
            attr.atime = at;
        }
        attr
    }

    /// Notes that a program here is about to set the time of last access. Returns the forgotten read for [`Client::remember_access`], in
    /// case the call fails.
    pub(crate) fn forget_access(&self, ino: Ino) -> Option<Noted> {
        self.accesses.forget(ino)
    }

    /// The time of the last access was not set.
    pub(crate) fn remember_access(&self, ino: Ino, read: Noted) {
        self.accesses.remember(ino, read, self.seams.now());
    }

    /// The task that tells the MDT of reads.
    pub(crate) async fn tell_accesses_now_and_then(&self) {
        let mut looked = self.seams.now();
        while !self.session.is_ended() {
            self.seams.sleep_ms(LOOK_EVERY_MS).await;
            let now = self.seams.now();
            if now.ms_since(looked) >= PAGES_EVERY_MS {
                looked = now;
                self.handles.all().iter().for_each(|handle| self.note_pages(handle));
            }
            self.tell_accesses(false).await;
        }
    }

    /// Tells the MDT of reads whose time has come, or of all.
    pub(crate) async fn tell_accesses(&self, at_once: bool) {
        let _telling = self.accesses.telling.lock().await;
        // A mount that goes on reading does not keep this loop from ending.
        for _ in 0..=WAITING_MAX / ACCESSES_MAX {
            let era = self.session.era();
            let is_held = self.session.is_held();
            let batch = self.accesses.take(self.seams.now(), era, is_held, at_once);
            if batch.is_empty() {
                return;
            }
            let file =
                |(ino, read): &(Ino, Noted)| Accessed { ino: *ino, at: read.at, attr_epoch: read.attr_epoch };
            let request = NoteAccessReq { files: batch.iter().map(file).collect() };
            let outcome = self.mds.ask(&request).await.map(drop);
            let is_told = outcome.is_ok();
            self.accesses.sent(batch, self.seams.now(), era, outcome);
            if !is_told {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brindle_types::FileType;

    use super::*;

    const F: Ino = Ino(7);

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    fn read(secs: i64) -> Noted {
        Noted { at: Time { secs, nanos: 0 }, attr_epoch: Pair::ZERO }
    }

    fn attr(atime: i64, mtime: i64) -> Attr {
        let time = |secs| Time { secs, nanos: 0 };
        Attr {
            atime: time(atime),
            mtime: time(mtime),
            ctime: time(mtime),
            ..Attr::plain(F, FileType::Regular, 0)
        }
    }

    #[test]
    fn a_read_is_noted_once_a_day_or_when_the_contents_are_newer() {
        let day_ms = ACCESS_AGE_SECS as u64 * 1000;
        let now = Time { secs: 1_000_000, nanos: 0 };
        let due = |atime, mtime| AccessDue::by(&attr(atime, mtime), now, at(10), 1);
        assert!(due(500, 500).is_due(at(10), 1), "never read since it was written");
        assert!(due(1_000_000, 1_000_000).is_due(at(10), 1), "it was made at this moment");
        let recent = due(999_000, 500);
        assert!(!recent.is_due(at(10), 1) && !recent.is_due(at(day_ms - 1_000_000), 1));
        assert!(recent.is_due(at(10 + day_ms - 1_000_000), 1), "a day after the last read");
        assert!(recent.is_due(at(10 + AGAIN_MS), 2) && !recent.is_due(at(9 + AGAIN_MS), 2), "it was written");
        let noted = AccessDue::noted(at(50), 3);
        assert!(!noted.is_due(at(51), 3) && noted.is_due(at(50 + day_ms), 3));
        assert!(AccessDue::default().is_due(at(0), 0));
        // Pages of the kernel count by their age alone.
        let a_day_later = at(50 + day_ms);
        assert!(
            noted.is_due(at(50 + AGAIN_MS), 4) && !noted.is_old(at(49 + day_ms)) && noted.is_old(a_day_later)
        );
    }

    #[test]
    fn reads_are_gathered_and_told_again_only_to_an_mdt_that_may_have_lost_them() {
        let accesses = Accesses::default();
        assert!(accesses.note(F, read(1), at(0)) && accesses.note(F, read(2), at(100)));
        assert!(accesses.take(at(GATHER_MS - 1), 1, true, false).is_empty());
        assert_eq!(accesses.last(F), Some(read(2).at));
        let batch = accesses.take(at(GATHER_MS), 1, true, false);
        assert_eq!((batch.as_slice(), accesses.last(F)), (&[(F, read(2))][..], Some(read(2).at)));
        accesses.sent(batch, at(GATHER_MS), 1, Ok(()));
        assert_eq!(accesses.last(F), None, "the MDT tells it from now on");
        assert!(accesses.take(at(GATHER_MS + 1), 1, true, true).is_empty());
        assert_eq!(accesses.take(at(GATHER_MS + 2), 2, true, true), [(F, read(2))], "the MDT was restarted");
        accesses.sent(vec![(F, read(2))], at(20_000), 2, Ok(()));
        assert!(accesses.take(at(20_000 + TOLD_KEPT_MS), 2, false, true).is_empty());
        assert_eq!(accesses.take(at(20_001 + TOLD_KEPT_MS), 3, true, true).len(), 1, "it was away since");
        accesses.sent(vec![(F, read(2))], at(40_000), 3, Ok(()));
        assert!(accesses.take(at(40_000 + TOLD_KEPT_MS), 3, true, true).is_empty());
        assert!(accesses.take(at(40_001 + TOLD_KEPT_MS), 4, true, true).is_empty(), "it was synced before");
    }

    #[test]
    fn what_was_read_before_somebody_set_the_time_is_forgotten_at_every_stage() {
        let accesses = Accesses::default();
        accesses.note(F, read(1), at(0));
        accesses.forget(F);
        assert!(accesses.take(at(1), 1, true, true).is_empty());
        accesses.note(F, read(1), at(0));
        let batch = accesses.take(at(1), 1, true, true);
        accesses.forget(F);
        accesses.sent(batch, at(2), 1, Ok(()));
        assert!(accesses.take(at(3), 2, true, true).is_empty());
    }

    #[test]
    fn what_was_forgotten_for_a_time_that_was_not_set_counts() {
        let accesses = Accesses::default();
        assert_eq!(accesses.forget(F), None);
        // The read was already reported.
        accesses.note(F, read(1), at(0));
        let batch = accesses.take(at(1), 1, true, true);
        accesses.sent(batch, at(2), 1, Ok(()));
        assert_eq!(accesses.forget(F), Some(read(1)));
        accesses.remember(F, read(1), at(3));
        assert_eq!(accesses.take(at(4), 1, true, true), [(F, read(1))]);
        // The read is being reported at this moment.
        assert_eq!(accesses.forget(F), Some(read(1)));
        accesses.note(F, read(2), at(5));
        accesses.remember(F, read(1), at(6));
        assert_eq!(accesses.last(F), Some(read(2).at), "a later read");
        assert_eq!(accesses.forget(F), Some(read(2)));
    }

    #[test]
    fn a_batch_that_failed_is_told_again_later_and_one_that_was_refused_is_not() {
        let accesses = Accesses::default();
        let other = Ino(8);
        accesses.note(F, read(1), at(0));
        accesses.note(other, read(1), at(0));
        let batch = accesses.take(at(1), 1, true, true);
        accesses.note(F, read(2), at(2));
        accesses.sent(batch, at(3), 1, Err(Fault::new(Code::KvDamaged)));
        assert!(accesses.take(at(4), 1, true, false).is_empty(), "not at once");
        let batch = accesses.take(at(2 + GATHER_MS), 1, true, false);
        assert_eq!(batch, [(F, read(2)), (other, read(1))], "a later read stays");
        accesses.sent(batch, at(3 + GATHER_MS), 1, Err(Fault::new(Code::InvalidArgument)));
        assert!(accesses.take(at(4 + GATHER_MS), 2, true, true).is_empty());
    }

    #[test]
    fn the_list_is_bounded_and_batches_are() {
        let accesses = Accesses::default();
        for n in 0..WAITING_MAX as u64 {
            assert!(accesses.note(Ino(n), read(1), at(0)));
        }
        assert!(!accesses.note(Ino(WAITING_MAX as u64), read(1), at(0)), "no room");
        assert!(accesses.note(Ino(0), read(2), at(0)), "it has its room");
        assert_eq!(accesses.take(at(0), 1, true, false).len(), ACCESSES_MAX);
    }

    #[test]
    fn an_mdt_that_does_not_know_the_request_is_not_asked_again() {
        let accesses = Accesses::default();
        accesses.note(F, read(1), at(0));
        let batch = accesses.take(at(0), 1, true, true);
        accesses.sent(batch, at(0), 1, Err(Fault::new(Code::UnknownOp)));
        assert!(accesses.note(F, read(2), at(1)) && accesses.take(at(1), 1, true, true).is_empty());
        accesses.note(F, read(3), at(2));
        assert_eq!(accesses.take(at(3), 2, true, true), [(F, read(3))], "another one serves");
    }
}
