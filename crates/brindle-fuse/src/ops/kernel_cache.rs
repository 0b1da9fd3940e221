//! The kernel's cache: what the kernel may keep of the answers that it gets. Attributes of directories are kept, so that the kernel need
//! not ask for them at each step of a path. Attributes of files are kept for the rest of the call that has looked them up. Names are kept
//! for a moment, where the same ones are asked for again and again.
//!
//! **Attributes.** An invalidation ([`crate::notify::Notice::InvalAttr`]) also voids answers that are still on their way to the kernel: its
//! inodes count invalidations, and answers to earlier requests are dropped. For that the kernel must have the inode. A GETATTR names an
//! inode that the kernel has, so an invalidation reaches it. A LOOKUP does not: until the calling thread has processed the reply, the
//! kernel has no inode to invalidate. Threads that were answered are therefore remembered until their next request, which shows that they
//! have gone on; an invalidation that reaches nothing is repeated meanwhile.
//!
//! Attributes of a directory are kept as long as its lease lasts. Files are so many that a recall of a lease could not name them all; their
//! attributes are kept for one tick of the kernel's clock and remembered a little longer.
//!
//! **Names** cannot be taken back without a lock that a create in flight holds. A recall therefore waits until they have run out, by the
//! kernel's own count of ticks. A name is kept for one tick, from the moment at which the calling thread has taken the answer in. A name of
//! a directory is kept without the attributes: then the same call asks for the attributes in any case, and shows that the thread has gone
//! on. Names are worth keeping where a path is walked many times within a tick: for a directory in which names were asked for a moment ago,
//! and for what a thread looks at that asks for extended attributes (`ls -l` makes three calls with the whole path of each file).
//!
//! A rename takes what the kernel keeps of a name along to another directory, whose lease somebody else may have. A rename therefore begins
//! when names in the old directory have run out ([`KernelCacheState::pause`]).
//!
//! Invariant: an answer is noted here before the check whether the lease still covers it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::{Mono, Seams, ticks};
use brindle_types::{Attr, FileType, Ino};
use parking_lot::Mutex;

use crate::reply::Given;

/// Directories at once; of more the kernel keeps nothing.
const DIRS_MAX: usize = 1 << 16;
/// Threads that were answered and have not gone on; answers to more are not kept. Also directories whose names are kept, and what
/// is remembered of habits.
const THREADS_MAX: usize = 4096;
/// A thread that was answered has gone on after this time, also if it never asks again. Between the answer and the inode there
/// is nothing that it could wait for but a processor; behind it there is the lock of a directory, whose holder may wait for the very
/// recall that awaits this thread ([`super::caller_syscall`]).
const TAKEN_IN_MS: u64 = 2000;
/// Lifetime of names, and of attributes of files, in the kernel: it rounds the value up to one tick of its
/// clock.
const A_TICK: Duration = Duration::from_nanos(1);
/// Ticks that an entry kept for one tick may live: until the end of the next tick, and one more because the two counts differ by up to one.
const TICKS: u64 = 3;
/// The kernel keeps nothing beyond the lease; an entry is kept for a tick only if the lease has at least this much time left.
const LEASE_LEFT_MS: u64 = 100;
/// A habit of this tick or the one before counts: it will be repeated at once.
const HABIT_TICKS: u64 = 2;

/// Source of attributes that a lease covers: the inode's, and for how many milliseconds they hold at least.
pub(crate) type Lasting<'a> = &'a dyn Fn(Ino) -> Option<(Attr, u64)>;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub at: Mono,
    /// Time of the kernel ([`ticks`]).
    pub tick: u64,
}

impl Moment {
    /// The present moment.
    pub fn now(seams: &Seams) -> Moment {
        Moment { at: seams.now(), tick: ticks::now() }
    }

    fn ms_since(self, earlier: Moment) -> u64 {
        self.at.ms_since(earlier.at)
    }

    fn ticks_since(self, earlier: Moment) -> u64 {
        self.tick.saturating_sub(earlier.tick)
    }
}

/// A name that a thread has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedUpName {
    pub tid: u32,
    /// The directory.
    pub parent: Ino,
    pub ino: Ino,
    pub nodeid: u64,
    pub kind: FileType,
    pub now: Moment,
}

/// The part of an answer that the kernel may keep.
#[derive(Debug, Default)]
pub(crate) struct CacheableAnswer {
    /// Attributes, and how long.
    pub attr: Option<(Attr, Duration)>,
    /// Lifetime of the name.
    pub name: Duration,
    /// To be set when the kernel has the answer, if it may keep anything of it.
    pub given: Option<Given>,
}

/// Habit of a thread that a request shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Walks through the directory with this node id.
    Walks(u64),
    /// Asks for extended attributes.
    LooksAtXattrs,
    None,
}

/// The part of an answer that may have been kept.
#[derive(Clone, Copy, Default)]
struct What {
    dir_attr: bool,
    file_attr: bool,
    /// A name in this directory.
    name_in: Option<Ino>,
}

/// A thread that was answered by name, and what.
struct Answered {
    ino: Ino,
    nodeid: u64,
    what: What,
    at: Moment,
    given: Given,
}

/// The answer that a thread may not have taken in yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited<'a> {
    /// A name in one of these directories (in any, for `None`), that leads to this inode (to any, for `None`).
    Name(Option<&'a [Ino]>, Option<Ino>),
    /// Attributes of the node with this number.
    Attr(u64),
}

impl Awaited<'_> {
    fn is_dir(self, dir: &Ino) -> bool {
        matches!(self, Awaited::Name(dirs, _) if dirs.is_none_or(|dirs| dirs.contains(dir)))
    }

    fn is_of(self, answered: &Answered, now: Moment) -> bool {
        let what = &answered.what;
        let is_meant = match self {
            Awaited::Name(_, ino) => {
                what.name_in.is_some_and(|dir| self.is_dir(&dir)) && ino.is_none_or(|ino| ino == answered.ino)
            }
            Awaited::Attr(nodeid) => (what.dir_attr || what.file_attr) && answered.nodeid == nodeid,
        };
        is_meant && now.ms_since(answered.at) < TAKEN_IN_MS
    }
}

#[derive(Default)]
struct Inner {
    /// Node ids by directory.
    dirs: BTreeMap<Ino, BTreeSet<u64>>,
    /// Answers by name that have perhaps not been taken in.
    answered: BTreeMap<u32, Answered>,
    /// Files whose attributes were taken in lately; the same in order of time.
    files: BTreeMap<Ino, Moment>,
    in_order: VecDeque<(Moment, Ino)>,
    /// Directories of which names were taken in lately.
    names: BTreeMap<Ino, Moment>,
    /// Last time at which a name was asked for in a directory, by node id.
    walked: BTreeMap<u64, Moment>,
    /// Last time at which a thread asked for extended attributes.
    xattrs: BTreeMap<u32, Moment>,
    /// Directories of which no name is to be kept, and how many want that.
    paused: BTreeMap<Ino, usize>,
}

/// Attributes and names that the kernel keeps.
#[derive(Default)]
pub(crate) struct KernelCacheState(Mutex<Inner>);

/// While this is there the kernel is told no name in the directory that it may keep.
pub(crate) struct Pause {
    cache: Arc<KernelCacheState>,
    dir: Ino,
}

impl Drop for Pause {
    fn drop(&mut self) {
        let paused = &mut self.cache.0.lock().paused;
        if let Some(wanted) = paused.get_mut(&self.dir) {
            *wanted -= 1;
            if *wanted == 0 {
                paused.remove(&self.dir);
            }
        }
    }
}

impl KernelCacheState {
    /// Keeps the kernel from caching names in this directory; cached ones run out
    /// ([`KernelCacheState::names_left_ticks`]).
    pub fn pause(self: &Arc<Self>, dir: Ino) -> Pause {
        *self.0.lock().paused.entry(dir).or_default() += 1;
        Pause { cache: self.clone(), dir }
    }

    /// Attributes of a directory that the kernel asks for by `nodeid`, and how long it may keep them.
    pub fn by_number(&self, lasting: Lasting, ino: Ino, nodeid: u64) -> Option<(Attr, Duration)> {
        lasting(ino).filter(|(attr, _)| attr.kind == FileType::Directory)?;
        if !self.0.lock().note_dir(ino, nodeid) {
            return None;
        }
        lasting(ino).map(|(attr, left_ms)| (attr, Duration::from_millis(left_ms)))
    }

    /// The part of the answer about a name that was found that the kernel may keep. `named`: for how many milliseconds the name is sure to lead there, if that is known.
    pub fn by_name(
        &self,
        found: LookedUpName,
        lasting: Lasting,
        named: &dyn Fn() -> Option<u64>,
    ) -> CacheableAnswer {
        let is_dir = found.kind == FileType::Directory;
        let is_habit = self.0.lock().is_habit(&found);
        let lasts = || named().is_some_and(|left_ms| left_ms >= LEASE_LEFT_MS);
        let keeps_name = is_habit && lasts();
        // A thread that only walks through a directory shows that it has gone on by asking for its attributes.
        let keeps_attr = !(keeps_name && is_dir) && lasting(found.ino).is_some();
        let what = What {
            dir_attr: keeps_attr && is_dir,
            file_attr: keeps_attr && !is_dir,
            name_in: keeps_name.then_some(found.parent),
        };
        if !(keeps_name || keeps_attr) {
            return CacheableAnswer::default();
        }
        let Some((what, given)) = self.0.lock().answer(&found, what) else {
            return CacheableAnswer::default();
        };
        let name = if what.name_in.is_some() && lasts() { A_TICK } else { Duration::ZERO };
        let attr = lasting(found.ino).filter(|_| keeps_attr);
        let attr = attr.and_then(|(attr, left_ms)| match is_dir {
            true => Some((attr, Duration::from_millis(left_ms))),
            false => (left_ms >= LEASE_LEFT_MS).then_some((attr, A_TICK)),
        });
        CacheableAnswer { attr, name, given: Some(given) }
    }

    /// The thread makes a new request, so it has taken in the last answer, or will never do so.
    pub fn gone_on(&self, tid: u32, habit: Habit, now: Moment) {
        let mut inner = self.0.lock();
        if let Some(answered) = inner.answered.remove(&tid) {
            inner.taken_in(answered, now);
        }
        match habit {
            Habit::Walks(nodeid) => note_habit(&mut inner.walked, nodeid, now),
            Habit::LooksAtXattrs => note_habit(&mut inner.xattrs, tid, now),
            Habit::None => {}
        }
    }

    /// Looks whether threads that are awaited have gone on without asking for anything: `has_gone_on` tells of one, given also
    /// whether the kernel has its answer.
    pub fn settle(
        &self,
        awaited: Awaited,
        has_gone_on: impl Fn(u32, bool) -> bool,
        now: impl Fn() -> Moment,
    ) {
        let at = now();
        let threads: Vec<(u32, Mono, bool)> = {
            let inner = self.0.lock();
            let awaited = inner.answered.iter().filter(|(_, a)| awaited.is_of(a, at));
            awaited.map(|(tid, a)| (*tid, a.at.at, a.given.is_set())).collect()
        };
        for (tid, at, given) in threads {
            if !has_gone_on(tid, given) {
                continue;
            }
            let now = now();
            let mut inner = self.0.lock();
            // Unless it was answered again meanwhile.
            if inner.answered.get(&tid).is_some_and(|answered| answered.at.at == at) {
                let answered = inner.answered.remove(&tid);
                answered.into_iter().for_each(|answered| inner.taken_in(answered, now));
            }
        }
    }

    /// Whether a thread may yet take in attributes of a node.
    pub fn is_awaited(&self, nodeid: u64, now: Moment) -> bool {
        self.0.lock().answered.values().any(|answered| Awaited::Attr(nodeid).is_of(answered, now))
    }

    /// The node ids that are to forget the attributes of an inode.
    pub fn take(&self, ino: Ino, now: Moment) -> BTreeSet<u64> {
        let mut inner = self.0.lock();
        let mut nodeids = inner.dirs.remove(&ino).unwrap_or_default();
        let is_file = inner.files.remove(&ino).is_some_and(|at| now.ticks_since(at) < TICKS);
        nodeids.extend(is_file.then_some(ino.0));
        // Usually there are few threads.
        nodeids.extend(inner.answered.values().filter(|a| a.ino == ino).map(|a| a.nodeid));
        nodeids
    }

    /// Takes out the node ids of all files whose attributes are kept.
    pub fn take_files(&self, now: Moment) -> BTreeSet<u64> {
        let mut inner = self.0.lock();
        inner.in_order.clear();
        let files = std::mem::take(&mut inner.files);
        let lately = files.into_iter().filter(|(_, at)| now.ticks_since(*at) < TICKS);
        let mut nodeids: BTreeSet<u64> = lately.map(|(ino, _)| ino.0).collect();
        nodeids.extend(inner.answered.values().filter(|a| a.what.file_attr).map(|a| a.nodeid));
        nodeids
    }

    /// Takes out the node ids of all inodes whose attributes are kept.
    pub fn take_all(&self, now: Moment) -> BTreeSet<u64> {
        let mut nodeids = self.take_files(now);
        let mut inner = self.0.lock();
        nodeids.extend(std::mem::take(&mut inner.dirs).into_values().flatten());
        nodeids.extend(inner.answered.values().map(|a| a.nodeid));
        nodeids
    }

    /// After how many ticks these names have run out (of those that were taken in it is not known where they lead), 0 if that is not
    /// known yet; `None` if the kernel keeps none. No more are kept: the lease that covered them is given up, or they are [paused](KernelCacheState::pause).
    pub fn names_left_ticks(&self, names: Awaited, now: Moment) -> Option<u64> {
        let inner = self.0.lock();
        let awaited = inner.answered.values().any(|answered| names.is_of(answered, now)).then_some(0);
        let names = inner.names.iter().filter(|(dir, _)| names.is_dir(dir));
        let left =
            names.filter_map(|(_, at)| TICKS.checked_sub(now.ticks_since(*at)).filter(|left| *left > 0));
        left.max().max(awaited)
    }

    /// The kernel refers to a directory no longer.
    pub fn forget(&self, ino: Ino, nodeid: u64) {
        let dirs = &mut self.0.lock().dirs;
        let Some(nodeids) = dirs.get_mut(&ino) else { return };
        nodeids.remove(&nodeid);
        if nodeids.is_empty() {
            dirs.remove(&ino);
        }
    }
}

/// Habits are guesses: forgetting them costs a request.
fn note_habit<K: Ord>(habits: &mut BTreeMap<K, Moment>, who: K, now: Moment) {
    if habits.len() >= THREADS_MAX {
        habits.clear();
    }
    habits.insert(who, now);
}

impl Inner {
    fn is_habit(&self, found: &LookedUpName) -> bool {
        let last = match found.kind {
            FileType::Directory => self.walked.get(&found.nodeid),
            _ => self.xattrs.get(&found.tid),
        };
        last.is_some_and(|at| found.now.ticks_since(*at) < HABIT_TICKS)
    }

    fn note_dir(&mut self, ino: Ino, nodeid: u64) -> bool {
        if self.dirs.len() >= DIRS_MAX && !self.dirs.contains_key(&ino) {
            return false;
        }
        self.dirs.entry(ino).or_default().insert(nodeid);
        true
    }

    /// Notes an answer: what may be kept of it, if anything.
    fn answer(&mut self, found: &LookedUpName, mut what: What) -> Option<(What, Given)> {
        let now = found.now;
        what.name_in = what.name_in.filter(|dir| !self.paused.contains_key(dir));
        if self.answered.len() >= THREADS_MAX {
            let gone: Vec<u32> = {
                let old = self.answered.iter().filter(|(_, a)| now.ms_since(a.at) >= TAKEN_IN_MS);
                old.map(|(tid, _)| *tid).collect()
            };
            for tid in gone {
                let before = self.answered.remove(&tid);
                before.into_iter().for_each(|before| self.taken_in(before, now));
            }
        }
        if self.names.len() >= THREADS_MAX {
            self.names.retain(|_, at| now.ticks_since(*at) < TICKS);
        }
        let is_full = self.answered.len() >= THREADS_MAX || self.names.len() >= THREADS_MAX;
        // The kernel itself, or a thread of a name space that it cannot name.
        if found.tid == 0 || is_full {
            return None;
        }
        if what.dir_attr && !self.note_dir(found.ino, found.nodeid) {
            return None;
        }
        let given = Given::default();
        let answered = Answered { ino: found.ino, nodeid: found.nodeid, what, at: now, given: given.clone() };
        if let Some(before) = self.answered.insert(found.tid, answered) {
            self.taken_in(before, now);
        }
        Some((what, given))
    }

    fn taken_in(&mut self, answered: Answered, now: Moment) {
        while let Some((at, ino)) =
            self.in_order.front().copied().filter(|(at, _)| now.ticks_since(*at) >= TICKS)
        {
            self.in_order.pop_front();
            if self.files.get(&ino).is_some_and(|last| last.tick == at.tick) {
                self.files.remove(&ino);
            }
        }
        if answered.what.file_attr {
            self.files.insert(answered.ino, now);
            self.in_order.push_back((now, answered.ino));
        }
        if let Some(dir) = answered.what.name_in {
            self.names.insert(dir, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(10);
    const F: Ino = Ino(20);
    const P: Ino = Ino(30);
    const ALIAS: u64 = 99;

    fn lasting(ino: Ino) -> Option<(Attr, u64)> {
        let kind = if ino == F { FileType::Regular } else { FileType::Directory };
        Some((attr(ino, kind), 3000))
    }

    fn attr(ino: Ino, kind: FileType) -> Attr {
        Attr::plain(ino, kind, 0)
    }

    /// In the tests a tick is 10 ms long.
    fn at(ms: u64) -> Moment {
        Moment { at: Mono(0).plus_ms(ms), tick: ms / 10 }
    }

    const TICKS_MS: u64 = 10 * TICKS;

    fn none() -> BTreeSet<u64> {
        BTreeSet::new()
    }

    fn found(tid: u32, ino: Ino, nodeid: u64, ms: u64) -> LookedUpName {
        let kind = if ino == F { FileType::Regular } else { FileType::Directory };
        LookedUpName { tid, parent: P, ino, nodeid, kind, now: at(ms) }
    }

    /// Time for which attributes may be kept.
    fn attr_of(cache: &KernelCacheState, lasting: Lasting, found: LookedUpName) -> Option<Duration> {
        cache.by_name(found, lasting, &|| None).attr.map(|(_, kept)| kept)
    }

    fn left(cache: &KernelCacheState, dir: Ino, ms: u64) -> Option<u64> {
        cache.names_left_ticks(Awaited::Name(Some(&[dir]), None), at(ms))
    }

    fn goes_on(cache: &KernelCacheState, tid: u32, ms: u64) {
        cache.gone_on(tid, Habit::None, at(ms));
    }

    #[test]
    fn what_was_found_by_name_is_awaited_until_the_thread_goes_on() {
        let cache = KernelCacheState::default();
        assert_eq!(attr_of(&cache, &lasting, found(7, D, ALIAS, 0)), Some(Duration::from_millis(3000)));
        assert!(cache.is_awaited(ALIAS, at(1)));
        // A notice has to reach it, before and after it was taken in, once each.
        assert_eq!(cache.take(D, at(1)), [ALIAS].into());
        assert_eq!(cache.take(D, at(2)), [ALIAS].into());
        goes_on(&cache, 7, 3);
        assert!(!cache.is_awaited(ALIAS, at(3)));
        assert_eq!(cache.take(D, at(4)), none());
    }

    #[test]
    fn a_directory_is_remembered_until_it_is_forgotten() {
        let cache = KernelCacheState::default();
        assert!(attr_of(&cache, &lasting, found(7, D, D.0, 0)).is_some());
        goes_on(&cache, 7, 1);
        assert!(!cache.is_awaited(D.0, at(1)));
        assert_eq!(cache.take(D, at(900_000)), [D.0].into());
        assert_eq!(cache.take(D, at(900_001)), none());
        cache.by_number(&lasting, D, D.0).unwrap();
        cache.by_number(&lasting, D, ALIAS).unwrap();
        cache.forget(D, D.0);
        assert_eq!(cache.take_all(at(900_002)), [ALIAS].into());
    }

    #[test]
    fn a_file_is_remembered_a_moment_longer_than_the_kernel_keeps_it() {
        let cache = KernelCacheState::default();
        assert_eq!(cache.by_number(&lasting, F, F.0), None);
        assert_eq!(attr_of(&cache, &lasting, found(7, F, F.0, 0)), Some(A_TICK));
        // However long the thread needs to take it in.
        assert_eq!(cache.take_files(at(1500)), [F.0].into());
        goes_on(&cache, 7, 1600);
        assert_eq!(cache.take(F, at(1600 + TICKS_MS - 1)), [F.0].into());
        assert!(attr_of(&cache, &lasting, found(7, F, F.0, 2000)).is_some());
        assert!(attr_of(&cache, &lasting, found(7, D, D.0, 2001)).is_some());
        assert_eq!(cache.take_files(at(2002)), [F.0].into());
        assert!(attr_of(&cache, &lasting, found(7, F, F.0, 3000)).is_some());
        goes_on(&cache, 7, 3001);
        assert_eq!(cache.take_all(at(3001 + TICKS_MS)), [D.0].into());
    }

    #[test]
    fn a_recall_between_the_note_and_the_look_leaves_nothing_to_keep() {
        let cache = KernelCacheState::default();
        let looks = std::cell::Cell::new(0);
        let recalled_meanwhile = |ino| {
            looks.set(looks.get() + 1);
            lasting(ino).filter(|_| looks.get() == 1)
        };
        assert_eq!(attr_of(&cache, &recalled_meanwhile, found(7, D, D.0, 0)), None);
        assert_eq!(looks.get(), 2);
        assert_eq!(cache.take(D, at(0)), [D.0].into(), "the recall has seen the note");
    }

    #[test]
    fn threads_are_bounded_and_those_that_never_ask_again_make_room() {
        let cache = KernelCacheState::default();
        for tid in 1..=THREADS_MAX as u32 {
            assert!(attr_of(&cache, &lasting, found(tid, F, F.0, 0)).is_some());
        }
        assert_eq!(attr_of(&cache, &lasting, found(1 << 20, F, F.0, TAKEN_IN_MS - 1)), None);
        assert!(!cache.is_awaited(F.0, at(TAKEN_IN_MS)), "a thread that ended is not waited for");
        assert!(attr_of(&cache, &lasting, found(1 << 20, F, F.0, TAKEN_IN_MS)).is_some());
        assert_eq!(attr_of(&cache, &lasting, found(0, F, F.0, TAKEN_IN_MS)), None, "the kernel itself");
        assert!(cache.0.lock().answered.len() < 2);
    }

    /// The name leads where it was found to lead.
    fn named() -> Option<u64> {
        Some(3000)
    }

    #[test]
    fn a_name_is_kept_where_it_is_asked_for_again_and_again() {
        let cache = KernelCacheState::default();
        let kept = |ms| {
            let kept = cache.by_name(found(7, D, D.0, ms), &lasting, &named);
            (kept.name, kept.attr.is_some())
        };
        assert_eq!(kept(0), (Duration::ZERO, true));
        cache.gone_on(7, Habit::Walks(D.0), at(1));
        // Without attributes, so that the same call asks for those.
        assert_eq!(kept(2), (A_TICK, false));
        goes_on(&cache, 7, 3);
        assert_eq!(kept(10 * HABIT_TICKS), (Duration::ZERO, true));
        // Of files, to threads that ask for extended attributes.
        assert_eq!(cache.by_name(found(8, F, F.0, 20), &lasting, &named).name, Duration::ZERO);
        cache.gone_on(8, Habit::LooksAtXattrs, at(21));
        let kept = cache.by_name(found(8, F, F.0, 22), &lasting, &named);
        assert_eq!((kept.name, kept.attr.is_some()), (A_TICK, true));
        assert_eq!(cache.take(F, at(22)), [F.0].into());
        assert_eq!(left(&cache, P, 1000), Some(0), "not taken in");
        assert_eq!(cache.by_name(found(9, F, F.0, 22), &lasting, &named).name, Duration::ZERO);
        let soon_over = || Some(LEASE_LEFT_MS - 1);
        assert_eq!(cache.by_name(found(8, F, F.0, 23), &lasting, &soon_over).name, Duration::ZERO);
    }

    #[test]
    fn a_recall_waits_until_names_have_run_out() {
        let cache = KernelCacheState::default();
        let left = |dir: Ino, ms| left(&cache, dir, ms);
        cache.gone_on(7, Habit::Walks(D.0), at(0));
        cache.by_name(found(7, D, D.0, 1), &lasting, &named);
        // However long the thread needs to take it in, and two ticks after that.
        assert_eq!((left(P, 500), left(D, 500)), (Some(0), None));
        goes_on(&cache, 7, 600);
        assert_eq!((left(P, 600), left(P, 600 + TICKS_MS - 1)), (Some(TICKS), Some(1)));
        assert_eq!((left(P, 600 + TICKS_MS), left(D, 601)), (None, None));
        assert_eq!(cache.names_left_ticks(Awaited::Name(None, None), at(601)), Some(TICKS));
        // Nor one that never asks again, for longer than an answer can take.
        cache.gone_on(7, Habit::Walks(D.0), at(1000));
        cache.by_name(found(7, D, D.0, 1001), &lasting, &named);
        assert_eq!((left(P, 1001 + TAKEN_IN_MS - 1), left(P, 1001 + TAKEN_IN_MS)), (Some(0), None));
    }

    #[test]
    fn threads_that_have_ended_or_sleep_after_their_answer_are_not_waited_for() {
        let cache = KernelCacheState::default();
        let dirs = [P];
        let settle = |ms, gone_on: &dyn Fn(u32, bool) -> bool| {
            cache.settle(Awaited::Name(Some(&dirs), None), gone_on, || at(ms));
        };
        let told = |ms: u64| {
            cache.gone_on(7, Habit::Walks(D.0), at(ms - 1));
            cache.by_name(found(7, D, D.0, ms), &lasting, &named).given.expect("the name is kept")
        };
        let given = told(1);
        settle(2, &|tid, given| tid != 7 || given);
        assert_eq!(
            left(&cache, P, 2),
            Some(0),
            "it is still there, and may sleep because it has no answer yet"
        );
        given.set();
        settle(3, &|tid, given| tid == 7 && given);
        assert_eq!((left(&cache, P, 3), left(&cache, P, 3 + TICKS_MS)), (Some(TICKS), None));
        told(100);
        cache.settle(Awaited::Attr(D.0), |_, _| true, || at(101));
        cache.settle(Awaited::Name(Some(&[D]), None), |_, _| true, || at(101));
        cache.settle(Awaited::Name(Some(&dirs), Some(F)), |_, _| true, || at(101));
        assert_eq!(left(&cache, P, 101), Some(0), "others were looked at");
        settle(102, &|_, _| {
            // Meanwhile it goes on, and is answered again.
            told(103);
            true
        });
        assert_eq!(left(&cache, P, 104 + TICKS_MS), Some(0), "that is another answer");
    }

    #[test]
    fn names_run_out_where_they_are_paused() {
        let cache = Arc::new(KernelCacheState::default());
        let kept = |ms| {
            cache.gone_on(7, Habit::LooksAtXattrs, at(ms - 1));
            cache.by_name(found(7, F, F.0, ms), &lasting, &named)
        };
        let to = |ino, ms| cache.names_left_ticks(Awaited::Name(Some(&[P]), Some(ino)), at(ms));
        assert_eq!(kept(1).name, A_TICK);
        let (pause, other) = (cache.pause(P), cache.pause(P));
        assert_eq!((to(F, 2), to(D, 2)), (Some(0), None), "who was told of another one is not waited for");
        let now = kept(100);
        assert_eq!((now.name, now.attr.is_some()), (Duration::ZERO, true));
        assert_eq!((left(&cache, P, 100), left(&cache, P, 100 + TICKS_MS)), (Some(TICKS - 1), None));
        drop(pause);
        assert_eq!(kept(200).name, Duration::ZERO);
        drop(other);
        assert_eq!(kept(300).name, A_TICK);
        assert!(cache.0.lock().paused.is_empty());
    }

    #[test]
    fn a_name_that_is_recalled_between_the_note_and_the_look_is_not_kept() {
        let cache = KernelCacheState::default();
        cache.gone_on(7, Habit::Walks(D.0), at(0));
        let looks = std::cell::Cell::new(0);
        let recalled_meanwhile = || {
            looks.set(looks.get() + 1);
            named().filter(|_| looks.get() == 1)
        };
        let kept = cache.by_name(found(7, D, D.0, 1), &lasting, &recalled_meanwhile);
        assert_eq!((kept.name, kept.attr.is_some(), looks.get()), (Duration::ZERO, false, 2));
        assert_eq!(left(&cache, P, 1), Some(0), "the recall has seen the note");
    }
}
