//! Attributes that the kernel may keep: of directories, so that it need not ask for them at each step of a path, and of
//! files for the rest of the call that has looked them up.
//!
//! What the kernel is told to forget ([`crate::notify::Notice::InvalAttr`]) also voids answers that are still on their way
//! to it: its inodes count such notices, and answers to earlier questions are dropped. For that it must have the inode. Where it asks
//! by number (GETATTR) it has. Where it asks by name it may only get it with the answer, and until the thread that asked has
//! taken that in there is nothing that a notice could reach. So threads that were answered are remembered until their
//! next request, which shows that they have gone on; a notice that reaches nothing is repeated meanwhile.
//!
//! Attributes of a directory are kept as long as its lease lasts. Those of files are many, so that a recall of a lease
//! could not name them all; they are kept for a moment ([`FILE_KEPT`]) and remembered a little longer.
//!
//! Invariant: a node id is noted here before the attributes that the kernel may keep are looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use brindle_stdx::Mono;
use brindle_types::{Attr, FileType, Ino};
use parking_lot::Mutex;

/// Directories at once; of more the kernel keeps nothing.
const DIRS_MAX: usize = 1 << 16;
/// Threads that were answered and have not gone on; answers to more are not kept.
const THREADS_MAX: usize = 4096;
/// A thread that was answered has gone on after this time, also if it never asks again. Between the answer and the inode there
/// is nothing that it could wait for but a processor.
const TAKEN_IN_MS: u64 = 2000;
/// How long the kernel keeps attributes of files: it rounds this up to one tick of its clock, which suffices for the call that asked.
const FILE_KEPT: Duration = Duration::from_nanos(1);
/// Two ticks of the slowest clock (100 Hz) and as much again.
const FILE_REMEMBERED_MS: u64 = 40;
/// What the kernel keeps ends with the lease; for files there must be this much left of it.
const FILE_LEASE_LEFT_MS: u64 = 100;

/// Who knows attributes that a lease covers: the inode's, and for how many milliseconds they hold at least.
pub(crate) type Lasting<'a> = &'a dyn Fn(Ino) -> Option<(Attr, u64)>;

/// A thread that was answered by name, and what.
#[derive(Clone, Copy)]
struct Answered {
    ino: Ino,
    nodeid: u64,
    is_dir: bool,
    at: Mono,
}

#[derive(Default)]
struct Inner {
    /// Node ids by directory.
    dirs: BTreeMap<Ino, BTreeSet<u64>>,
    /// Answers by name that have perhaps not been taken in.
    answered: BTreeMap<u32, Answered>,
    /// Files whose attributes were taken in lately; the same in order of time.
    files: BTreeMap<Ino, Mono>,
    in_order: VecDeque<(Mono, Ino)>,
}

/// What the kernel keeps of attributes.
#[derive(Default)]
pub(crate) struct Shown(Mutex<Inner>);

impl Shown {
    /// Attributes of a directory that the kernel asks for by `nodeid`, and how long it may keep them.
    pub fn by_number(&self, lasting: Lasting, ino: Ino, nodeid: u64) -> Option<(Attr, Duration)> {
        lasting(ino).filter(|(attr, _)| attr.kind == FileType::Directory)?;
        if !self.0.lock().note_dir(ino, nodeid) {
            return None;
        }
        lasting(ino).map(|(attr, left_ms)| (attr, Duration::from_millis(left_ms)))
    }

    /// Attributes of an inode that the thread `tid` has just found by name, and how long the kernel may keep them.
    pub fn by_name(
        &self,
        lasting: Lasting,
        tid: u32,
        ino: Ino,
        nodeid: u64,
        now: Mono,
    ) -> Option<(Attr, Duration)> {
        let is_dir = lasting(ino).map(|(attr, _)| attr.kind == FileType::Directory)?;
        if !self.0.lock().answer(tid, Answered { ino, nodeid, is_dir, at: now }) {
            return None;
        }
        let (attr, left_ms) = lasting(ino)?;
        match is_dir {
            true => Some((attr, Duration::from_millis(left_ms))),
            false if left_ms >= FILE_LEASE_LEFT_MS => Some((attr, FILE_KEPT)),
            false => None,
        }
    }

    /// The thread asks for something new, so it has taken in what it was answered; or it will never do so.
    pub fn gone_on(&self, tid: u32, now: Mono) {
        let mut inner = self.0.lock();
        if let Some(answered) = inner.answered.remove(&tid) {
            inner.taken_in(answered, now);
        }
    }

    /// Whether a thread may yet take in attributes of a node.
    pub fn is_awaited(&self, nodeid: u64, now: Mono) -> bool {
        let inner = self.0.lock();
        inner.answered.values().any(|a| a.nodeid == nodeid && now.ms_since(a.at) < TAKEN_IN_MS)
    }

    /// The node ids that are to forget the attributes of an inode.
    pub fn take(&self, ino: Ino, now: Mono) -> BTreeSet<u64> {
        let mut inner = self.0.lock();
        let mut nodeids = inner.dirs.remove(&ino).unwrap_or_default();
        let is_file = inner.files.remove(&ino).is_some_and(|at| now.ms_since(at) < FILE_REMEMBERED_MS);
        nodeids.extend(is_file.then_some(ino.0));
        // Usually there are few threads.
        nodeids.extend(inner.answered.values().filter(|a| a.ino == ino).map(|a| a.nodeid));
        nodeids
    }

    /// The same for all files.
    pub fn take_files(&self, now: Mono) -> BTreeSet<u64> {
        let mut inner = self.0.lock();
        inner.in_order.clear();
        let files = std::mem::take(&mut inner.files);
        let lately = files.into_iter().filter(|(_, at)| now.ms_since(*at) < FILE_REMEMBERED_MS);
        let mut nodeids: BTreeSet<u64> = lately.map(|(ino, _)| ino.0).collect();
        nodeids.extend(inner.answered.values().filter(|a| !a.is_dir).map(|a| a.nodeid));
        nodeids
    }

    /// The same for everything.
    pub fn take_all(&self, now: Mono) -> BTreeSet<u64> {
        let mut nodeids = self.take_files(now);
        let mut inner = self.0.lock();
        nodeids.extend(std::mem::take(&mut inner.dirs).into_values().flatten());
        nodeids.extend(inner.answered.values().map(|a| a.nodeid));
        nodeids
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

impl Inner {
    fn note_dir(&mut self, ino: Ino, nodeid: u64) -> bool {
        if self.dirs.len() >= DIRS_MAX && !self.dirs.contains_key(&ino) {
            return false;
        }
        self.dirs.entry(ino).or_default().insert(nodeid);
        true
    }

    fn answer(&mut self, tid: u32, answered: Answered) -> bool {
        if self.answered.len() >= THREADS_MAX {
            let old = |a: &Answered| answered.at.ms_since(a.at) >= TAKEN_IN_MS;
            let gone: Vec<u32> = self.answered.iter().filter(|(_, a)| old(a)).map(|(tid, _)| *tid).collect();
            for tid in gone {
                let before = self.answered.remove(&tid);
                before.into_iter().for_each(|before| self.taken_in(before, answered.at));
            }
        }
        // The kernel itself, or a thread of a name space that it cannot name.
        if tid == 0 || self.answered.len() >= THREADS_MAX {
            return false;
        }
        if answered.is_dir && !self.note_dir(answered.ino, answered.nodeid) {
            return false;
        }
        if let Some(before) = self.answered.insert(tid, answered) {
            self.taken_in(before, answered.at);
        }
        true
    }

    fn taken_in(&mut self, answered: Answered, now: Mono) {
        while let Some((at, ino)) =
            self.in_order.front().copied().filter(|(at, _)| now.ms_since(*at) >= FILE_REMEMBERED_MS)
        {
            self.in_order.pop_front();
            if self.files.get(&ino) == Some(&at) {
                self.files.remove(&ino);
            }
        }
        if !answered.is_dir {
            self.files.insert(answered.ino, now);
            self.in_order.push_back((now, answered.ino));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(10);
    const F: Ino = Ino(20);
    const ALIAS: u64 = 99;

    fn lasting(ino: Ino) -> Option<(Attr, u64)> {
        let kind = if ino == F { FileType::Regular } else { FileType::Directory };
        Some((attr(ino, kind), 3000))
    }

    fn attr(ino: Ino, kind: FileType) -> Attr {
        let time = brindle_types::attr::Time::default();
        Attr {
            ino,
            kind,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            allocated_bytes: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            has_acl: false,
            has_xattr: false,
            data_version: None,
            blksize_bytes: 4096,
        }
    }

    fn at(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    fn none() -> BTreeSet<u64> {
        BTreeSet::new()
    }

    #[test]
    fn what_was_found_by_name_is_awaited_until_the_thread_goes_on() {
        let shown = Shown::default();
        let (_, kept) = shown.by_name(&lasting, 7, D, ALIAS, at(0)).unwrap();
        assert_eq!(kept, Duration::from_millis(3000));
        assert!(shown.is_awaited(ALIAS, at(1)));
        // A notice has to reach it, before and after it was taken in, once each.
        assert_eq!(shown.take(D, at(1)), [ALIAS].into());
        assert_eq!(shown.take(D, at(2)), [ALIAS].into());
        shown.gone_on(7, at(3));
        assert!(!shown.is_awaited(ALIAS, at(3)));
        assert_eq!(shown.take(D, at(4)), none());
    }

    #[test]
    fn a_directory_is_remembered_until_it_is_forgotten() {
        let shown = Shown::default();
        shown.by_name(&lasting, 7, D, D.0, at(0)).unwrap();
        shown.gone_on(7, at(1));
        assert!(!shown.is_awaited(D.0, at(1)));
        assert_eq!(shown.take(D, at(900_000)), [D.0].into());
        assert_eq!(shown.take(D, at(900_001)), none());
        shown.by_number(&lasting, D, D.0).unwrap();
        shown.by_number(&lasting, D, ALIAS).unwrap();
        shown.forget(D, D.0);
        assert_eq!(shown.take_all(at(900_002)), [ALIAS].into());
    }

    #[test]
    fn a_file_is_remembered_a_moment_longer_than_the_kernel_keeps_it() {
        let shown = Shown::default();
        assert_eq!(shown.by_number(&lasting, F, F.0), None);
        assert_eq!(shown.by_name(&lasting, 7, F, F.0, at(0)).unwrap().1, FILE_KEPT);
        // However long the thread needs to take it in.
        assert_eq!(shown.take_files(at(1500)), [F.0].into());
        shown.gone_on(7, at(1600));
        assert_eq!(shown.take(F, at(1600 + FILE_REMEMBERED_MS - 1)), [F.0].into());
        shown.by_name(&lasting, 7, F, F.0, at(2000)).unwrap();
        shown.by_name(&lasting, 7, D, D.0, at(2001)).unwrap();
        assert_eq!(shown.take_files(at(2002)), [F.0].into());
        shown.by_name(&lasting, 7, F, F.0, at(3000)).unwrap();
        shown.gone_on(7, at(3001));
        assert_eq!(shown.take_all(at(3001 + FILE_REMEMBERED_MS)), [D.0].into());
    }

    #[test]
    fn a_recall_between_the_note_and_the_look_leaves_nothing_to_keep() {
        let shown = Shown::default();
        let looks = std::cell::Cell::new(0);
        let recalled_meanwhile = |ino| {
            looks.set(looks.get() + 1);
            lasting(ino).filter(|_| looks.get() == 1)
        };
        assert_eq!(shown.by_name(&recalled_meanwhile, 7, D, D.0, at(0)), None);
        assert_eq!(looks.get(), 2);
        assert_eq!(shown.take(D, at(0)), [D.0].into(), "the recall has seen the note");
    }

    #[test]
    fn threads_are_bounded_and_those_that_never_ask_again_make_room() {
        let shown = Shown::default();
        for tid in 1..=THREADS_MAX as u32 {
            assert!(shown.by_name(&lasting, tid, F, F.0, at(0)).is_some());
        }
        assert_eq!(shown.by_name(&lasting, 1 << 20, F, F.0, at(TAKEN_IN_MS - 1)), None);
        assert!(!shown.is_awaited(F.0, at(TAKEN_IN_MS)), "a thread that ended is not waited for");
        assert!(shown.by_name(&lasting, 1 << 20, F, F.0, at(TAKEN_IN_MS)).is_some());
        assert_eq!(shown.by_name(&lasting, 0, F, F.0, at(TAKEN_IN_MS)), None, "the kernel itself");
        assert!(shown.0.lock().answered.len() < 2);
    }
}
