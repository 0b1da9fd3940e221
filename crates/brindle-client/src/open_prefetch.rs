//! Handles that were opened ahead. A program that reads the small files of a directory one after the other finds the next
//! ones open, with their contents; the mount asks the MDT once for many.
//!
//! Owned by [`crate::Client`]; opened and used in [`crate::file::open_ahead`]. A spare is a handle like any other, at the MDT
//! too, so every notice applies to it. No program has it yet.
//!
//! Invariants: a spare is given back before a recall of its file is answered, so that a writer never has to reckon with a
//! reader that does not exist. The number of spares never exceeds the bounds, however long they are unused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_types::{Attr, Ino, Pair};
use brindle_wire::mds::open_ahead::OPENS_AHEAD_MAX;
use parking_lot::Mutex;

use crate::handles::Handle;

/// Spares of a mount, and the contents that come with them.
const SPARES_MAX: usize = 2048;
const SPARES_BYTES_MAX: usize = 16 << 20;
/// A spare that was unused for this long is given back.
const SPARE_AGE_MS: u64 = 5_000;
/// Files that may be opened ahead for each file that had to be asked for, and for each that was not.
const AHEAD_OF_ASKED: usize = 16;
const AHEAD_OF_FOUND: usize = 2;
/// Fewer files are not worth a request.
const AHEAD_MIN: usize = 32;
/// Files opened ahead in a directory before any of them was used. From then on, multiple of the files that were used.
const TRIAL: usize = OPENS_AHEAD_MAX;
const OPENED_FOR_EACH_USED: usize = 4;
/// Directories whose use is remembered.
const DIRS_MAX: usize = 64;

/// A handle without a program.
pub(crate) struct Spare {
    pub handle: Arc<Handle>,
    pub attr: Attr,
    /// Version of the contents.
    pub version: Option<Pair>,
    /// The directory whose lease covers the file.
    pub dir: Ino,
    /// Contents that it came with.
    pub bytes: usize,
    /// Time of the open.
    pub since: Mono,
}

/// All spares of a mount.
#[derive(Default)]
pub(crate) struct OpenPrefetch {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    spares: BTreeMap<Ino, (u64, Spare)>,
    /// Handles in the order in which they were opened.
    order: BTreeMap<u64, Ino>,
    next: u64,
    bytes: usize,
    dirs: BTreeMap<Ino, Use>,
}

/// Use of opening ahead in a directory.
#[derive(Default)]
struct Use {
    /// Files that may be opened ahead.
    credit: usize,
    opened: usize,
    used: usize,
    /// Whether handles are being opened.
    busy: bool,
}

impl Inner {
    fn remove(&mut self, ino: Ino) -> Option<Spare> {
        let (number, spare) = self.spares.remove(&ino)?;
        self.order.remove(&number);
        self.bytes -= spare.bytes;
        Some(spare)
    }

    fn dir(&mut self, dir: Ino) -> &mut Use {
        if self.dirs.len() >= DIRS_MAX && !self.dirs.contains_key(&dir) {
            self.dirs.retain(|_, used| used.busy);
        }
        self.dirs.entry(dir).or_default()
    }
}

impl OpenPrefetch {
    /// Takes the spare of a file out, to be used.
    pub fn take(&self, ino: Ino) -> Option<Spare> {
        let mut inner = self.inner.lock();
        let spare = inner.remove(ino)?;
        let used = inner.dir(spare.dir);
        used.used += 1;
        used.credit += AHEAD_OF_FOUND;
        Some(spare)
    }

    /// A file in `dir` had to be opened at the MDT.
    pub fn asked(&self, dir: Ino) {
        self.inner.lock().dir(dir).credit += AHEAD_OF_ASKED;
    }

    /// Number of files of a directory to open ahead now, until [`OpenPrefetch::is_opened_ahead`]; 0 for none.
    pub fn ahead(&self, dir: Ino) -> usize {
        let mut inner = self.inner.lock();
        let used = inner.dir(dir);
        let allowed = (TRIAL + OPENED_FOR_EACH_USED * used.used).saturating_sub(used.opened);
        let count = used.credit.min(OPENS_AHEAD_MAX).min(allowed);
        if used.busy || count < AHEAD_MIN {
            used.credit = used.credit.min(OPENS_AHEAD_MAX);
            return 0;
        }
        used.credit = 0;
        used.busy = true;
        count
    }

    /// Ends what [`OpenPrefetch::ahead`] began: so many files were asked for.
    pub fn is_opened_ahead(&self, dir: Ino, count: usize) {
        let mut inner = self.inner.lock();
        let used = inner.dir(dir);
        used.busy = false;
        used.opened += count;
    }

    /// Whether a file has a spare.
    pub fn has(&self, ino: Ino) -> bool {
        self.inner.lock().spares.contains_key(&ino)
    }

    /// Keeps a spare. Returns the spares that have to go for it, and an earlier one of the file.
    #[must_use]
    pub fn add(&self, spare: Spare) -> Vec<Spare> {
        let mut inner = self.inner.lock();
        let ino = spare.handle.inode.ino;
        let mut gone: Vec<Spare> = inner.remove(ino).into_iter().collect();
        let number = inner.next;
        inner.next += 1;
        inner.bytes += spare.bytes;
        inner.order.insert(number, ino);
        inner.spares.insert(ino, (number, spare));
        while inner.spares.len() > SPARES_MAX || inner.bytes > SPARES_BYTES_MAX {
            let Some((_, oldest)) = inner.order.first_key_value() else { break };
            let oldest = *oldest;
            gone.extend(inner.remove(oldest));
        }
        gone
    }

    /// Takes out the spare of a file, to be given back.
    pub fn drop_of(&self, ino: Ino) -> Option<Spare> {
        self.inner.lock().remove(ino)
    }

    /// Takes out the spares of some directories.
    pub fn drop_in(&self, dirs: &BTreeSet<Ino>) -> Vec<Spare> {
        self.drop_where(|spare| dirs.contains(&spare.dir))
    }

    /// Takes out the spares that nobody has used for long.
    pub fn drop_old(&self, now: Mono) -> Vec<Spare> {
        self.drop_where(|spare| now >= spare.since.plus_ms(SPARE_AGE_MS))
    }

    fn drop_where(&self, goes: impl Fn(&Spare) -> bool) -> Vec<Spare> {
        let mut inner = self.inner.lock();
        let going: Vec<Ino> =
            inner.spares.iter().filter(|(_, (_, spare))| goes(spare)).map(|(ino, _)| *ino).collect();
        going.into_iter().filter_map(|ino| inner.remove(ino)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brindle_targets::Identity;
    use brindle_types::FileType;
    use brindle_wire::mds::open::Access;

    use super::*;
    use crate::inodes::Inodes;

    const D: Ino = Ino(7);

    fn spare(inodes: &Arc<Inodes>, ino: u64, bytes: usize, since: Mono) -> Spare {
        let ino = Ino(ino);
        let attr = Attr::plain(ino, FileType::Regular, bytes as u64);
        let access = Access { read: true, write: false, truncate: false, execute: false };
        let handle = Arc::new(Handle::new(ino.0, access, inodes.hold(ino), true, Identity::default()));
        Spare { handle, attr, version: None, dir: D, bytes, since }
    }

    /// Number of files that would be opened ahead after `asked` single opens, where every file opened ahead
    /// is used.
    fn ahead(prefetch: &OpenPrefetch, asked: usize) -> usize {
        (0..asked).for_each(|_| prefetch.asked(D));
        let count = prefetch.ahead(D);
        if count > 0 {
            assert_eq!(prefetch.ahead(D), 0, "they are being opened");
            prefetch.is_opened_ahead(D, count);
        }
        count
    }

    #[test]
    fn one_file_alone_opens_nothing_and_what_is_never_used_ends_soon() {
        let prefetch = OpenPrefetch::default();
        assert_eq!(ahead(&prefetch, 1), 0);
        assert_eq!(ahead(&prefetch, 1), 2 * AHEAD_OF_ASKED);
        let more: usize = (0..100).map(|_| ahead(&prefetch, 10)).sum();
        assert!(2 * AHEAD_OF_ASKED + more <= TRIAL, "nobody uses them: {more}");
    }

    #[test]
    fn what_is_used_goes_on_without_questions() {
        let (prefetch, inodes) = (OpenPrefetch::default(), Arc::<Inodes>::default());
        let (mut asked, mut next) = (0, 0);
        for ino in 0..2000 {
            if prefetch.take(Ino(ino)).is_none() {
                asked += 1;
                prefetch.asked(D);
            }
            let count = prefetch.ahead(D);
            next = next.max(ino + 1);
            for _ in 0..count {
                drop(prefetch.add(spare(&inodes, next, 100, Mono::default())));
                next += 1;
            }
            if count > 0 {
                prefetch.is_opened_ahead(D, count);
            }
        }
        assert!(asked <= 4, "{asked} were asked for");
    }

    #[test]
    fn there_are_never_more_than_the_bounds_say_and_the_oldest_go_first() {
        let (prefetch, inodes) = (OpenPrefetch::default(), Arc::<Inodes>::default());
        let gone: usize = (0..SPARES_MAX as u64 + 3)
            .map(|n| prefetch.add(spare(&inodes, n, 10, Mono::default())).len())
            .sum();
        assert_eq!(gone, 3);
        assert!(!prefetch.has(Ino(2)) && prefetch.has(Ino(3)));
        let gone = prefetch.add(spare(&inodes, 1 << 20, SPARES_BYTES_MAX - 100, Mono::default()));
        assert_eq!(gone.len(), SPARES_MAX - 10, "its bytes leave room for ten of the others");
        assert_eq!(prefetch.add(spare(&inodes, 1 << 20, 10, Mono::default())).len(), 1, "one for each file");
    }

    #[test]
    fn they_go_with_their_file_their_directory_and_their_age() {
        let (prefetch, inodes) = (OpenPrefetch::default(), Arc::<Inodes>::default());
        let at = |ms| Mono::default().plus_ms(ms);
        for n in 0..4 {
            drop(prefetch.add(spare(&inodes, n, 10, at(n * 1000))));
        }
        assert!(prefetch.drop_of(Ino(3)).is_some() && prefetch.drop_of(Ino(3)).is_none());
        assert!(prefetch.drop_old(at(SPARE_AGE_MS - 1)).is_empty());
        assert_eq!(prefetch.drop_old(at(SPARE_AGE_MS + 500)).len(), 1);
        assert!(prefetch.drop_in(&BTreeSet::from([Ino(8)])).is_empty());
        assert_eq!(prefetch.drop_in(&BTreeSet::from([D])).len(), 2);
        assert_eq!(prefetch.inner.lock().bytes, 0);
    }
}
